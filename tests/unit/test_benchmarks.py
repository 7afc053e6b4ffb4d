"""The benchmarks that take a second at toy size run, and print their rows."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
import tomli_w

from installed import load_instead

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
TOY = {
    "benchmark": {"name": "tiny"},
    "backbone": {"name": "tiny"},
    "baseline": {"name": "s-prompt-plus-plus", "epochs": 1},
    "run": {"device": "cpu"},
}


@pytest.fixture
def printed(monkeypatch, capsys, catalogue):
    """Run a benchmark in this process, and return the words of the lines that it prints."""
    monkeypatch.syspath_prepend(str(FOLDER))
    load_instead(monkeypatch, lambda **_: catalogue)

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
        return [line.split() for line in capsys.readouterr().out.splitlines()]

    return run


@pytest.mark.slow
def test_errors_of_z_are_held_against_their_spread(printed, tmp_path):
    """That of a set's Z and that of the difference of two, for every kind of head."""
    (tmp_path / "toy.toml").write_text(tomli_w.dumps(TOY))
    heads = ["literal", "2", "fitted"]
    arguments = ["--config", tmp_path / "toy.toml", "--images", 16, "--repeats", 3, "--heads", *heads]
    rows = [[word for word in line if word != "|"] for line in printed("evidence_error", *arguments)[2:]]
    assert [row[:3] for row in rows] == [["16", head, of] for head in heads for of in ("Z", "difference")]
    for row in rows:
        spread, claimed, ratio = map(float, row[4:7])
        assert ratio == pytest.approx(claimed / spread, rel=0.02)
        assert min(spread, claimed) > 0


@pytest.mark.parametrize(
    ("arguments", "firsts"),
    [
        (("flatness", "simple-cil", "--tasks", 32), {"task", "simple-cil", "checkpoints", "predictions"}),
        (("executors", "--cells", 2, "--seconds", 0), {"local:", "CPU"}),
    ],
    ids=["flatness", "executors"],
)
def test_a_benchmark_prints_its_rows(arguments, firsts, printed):
    """What it asks of lw2g is still there."""
    lines = printed(*arguments)
    assert firsts <= {line[0] for line in lines if line}, lines


def test_the_latency_of_a_run_is_timed_once(printed, finished, tmp_path, monkeypatch):
    """Whole answers beside bare passes; a second call reads what the first wrote, and times nothing."""
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)
    out = tmp_path / "latency.json"
    arguments = ["latency", finished[0], "--images", 4, "--repeats", 2, "--json", out]
    first = printed(*arguments)
    assert str(finished[0]) in {word for line in first for word in line}
    (found,) = json.loads(out.read_text()).items()
    assert (found[0], found[1]["passes"] > 0) == (str(finished[0]), True)
    monkeypatch.setattr("lw2g.load", None)
    assert printed(*arguments) == first
