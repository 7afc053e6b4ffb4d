"""Two processes that work on one run: what one alone would have found, wherever either is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from lw2g.config.resolve import Resolved, resolve
from lw2g.errors import ConfigError
from lw2g.registry.catalogue import Catalogue
from lw2g.testing.tiny import tiny_catalogue
from lw2g.training.continuing import proceed
from lw2g.training.files.checkpoint import CheckpointStore
from lw2g.training.processes.team import Team
from lw2g.training.progress import Interrupted
from lw2g.training.runner import resume, start
from several import FEW, AtEpoch, followers, pair, require_alike

Quick = Callable[..., Resolved]

QUICKLY = ("hide-prompt", "inflora")
"""A loss of the whole batch, statistics and evidence; second moments. Every other baseline is slow."""


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """This process and another one."""
    with pair(tmp_path_factory.mktemp("site")) as two:
        yield two


@pytest.mark.parametrize(
    "baseline",
    [
        pytest.param(name, marks=() if name in QUICKLY else pytest.mark.slow)
        for name in tiny_catalogue().names("baseline")
    ],
)
def test_two_processes_learn_what_one_learns(
    baseline: str, team: Team, catalogue: Catalogue, tmp_path: Path
) -> None:
    """Parameters within 1e-5 after every task, the same decisions and predictions; one of them writes."""
    options = attrs.fields_dict(catalogue.get("baseline", baseline).config)
    wanted = {"baseline.epochs": 1, "baseline.batch_size": 8, "baseline.statistics": "variance"}
    own = {key: value for key, value in wanted.items() if key.partition(".")[2] in options}
    run = {"run.device": "cpu", "run.evaluation_batch": 8, "growth.images": 16}
    names = {"baseline": baseline, "benchmark": "tiny", "backbone": "tiny"}
    retrieval = resolve(catalogue, **names).config.retrieval
    if retrieval is not None and hasattr(retrieval.config, "statistics"):
        own["retrieval.statistics"] = "variance"
    resolved = resolve(catalogue, overrides={**FEW, **run, **own}, **names)
    one, two = tmp_path / "one", tmp_path / "two"
    records = (start(resolved, catalogue, one), start(resolved, catalogue, two, team=team))
    require_alike(one, two, records)
    assert [record["environment"]["processes"] for record in records] == [1, 2]
    events = [(folder / "events.jsonl").read_text().count('"TaskEvaluated"') for folder in (one, two)]
    assert events == [len(record["accuracy_matrix"]) for record in records]


def test_a_run_goes_on_with_another_number_of_processes(
    team: Team, catalogue: Catalogue, quick: Quick, tmp_path: Path
) -> None:
    """From one to two after a task, and to one within the next, where the other was asked to stop."""
    one, two = tmp_path / "one", tmp_path / "two"
    resolved = quick(FEW, policy="min")
    start(resolved, catalogue, two, tasks=1)
    ask = AtEpoch(1, lambda: os.kill(followers()[0], signal.SIGTERM))
    with pytest.raises(Interrupted):
        proceed(two, catalogue, [ask], team=team)
    checkpoint, _ = CheckpointStore(two / "checkpoints").newest()
    assert checkpoint is not None
    assert checkpoint.progress["position"]["within"]
    require_alike(one, two, (start(resolved, catalogue, one), resume(two, catalogue)))


def test_what_the_first_cannot_open_is_told_once(
    team: Team, catalogue: Catalogue, quick: Quick, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The other process says nothing, and waits for what can be run."""
    with pytest.raises(ConfigError, match="is one device, and 2 processes need one each"):
        start(quick({"run.device": "cuda:1"}), catalogue, tmp_path / "run", team=team)
    assert capfd.readouterr().err == ""
    assert len(followers()) == 1


@pytest.mark.slow
def test_commands_start_processes_or_torchrun_has(tmp_path: Path) -> None:
    """`--devices 2` and two processes of torchrun end with the predictions of one; mistakes are told once."""
    names = ["--baseline", "dual-prompt", "--policy", "always", "--benchmark", "digits", "--device", "cpu"]
    options = ["--set", "benchmark.increment=5", "--set", "baseline.epochs=1"]
    lw2g = ["-m", "lw2g"]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", *lw2g]
    found = []
    for way, command, more in (("1", lw2g, []), ("2", lw2g, ["--devices", "2"]), ("run", torchrun, [])):
        out = tmp_path / way
        done = _run([*command, "run", *names, *options, *more, "--out", str(out)])
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("run: ") == 1
        found.append([path.read_bytes() for path in sorted((out / "predictions").iterdir())])
    assert found[0] == found[1] == found[2]
    wrong = _run([*lw2g, "run", *names, "--devices", "2", "--out", str(tmp_path / "1")])
    assert wrong.returncode == 2
    assert wrong.stderr.count("error: ") == 1


def _run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )
