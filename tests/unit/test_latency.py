"""The benchmark of answers times whole ones beside bare passes, and nothing twice."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "latency.py"


@pytest.fixture
def script():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("latency_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_run_is_timed_once(script, finished, catalogue, tmp_path, monkeypatch, capsys):
    """The first call writes what it has timed; the second reads that and times nothing."""
    monkeypatch.setattr("lw2g.registry.catalogue.load_catalogue", lambda: catalogue)
    monkeypatch.setattr("torch.set_num_threads", lambda count: None)
    out = tmp_path / "latency.json"
    argv = ["latency.py", str(finished[0]), "--images", "4", "--repeats", "2", "--json", str(out)]
    monkeypatch.setattr("sys.argv", argv)
    script.main()
    found = json.loads(out.read_text())
    assert list(found) == [str(finished[0])]
    assert found[str(finished[0])]["passes"] > 0
    monkeypatch.setattr(script, "measure", None)
    script.main()
    first, second = capsys.readouterr().out.split("ms an image")[1:]
    assert first == second
    assert str(finished[0]) in first
