"""Two processes that work on one run: what they learn, and that none outlives the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import torch

from listening import At
from lw2g.config.resolve import Resolved
from lw2g.disk.checkpoint import CheckpointStore
from lw2g.disk.sealed import unseal_json
from lw2g.interfaces.tracker import EpochEnded
from lw2g.lifecycle.runner import resume, start
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime import ranks
from lw2g.runtime.progress import Interrupted
from lw2g.runtime.ranks import RankLostError
from lw2g_testing.tiny import tiny_catalogue
from runs import shortest

Together = Callable[[str], tuple[Resolved, Path]]

TWO = {"benchmark.random_crops": True, "benchmark.tasks": 2, "benchmark.test": 3, "run.devices": 2}
QUICKLY = "inflora"
"""Its loss is a mean over images, and it keeps a memory between tasks. Every other baseline is slow."""
_LEARNED = ("baseline/", "pool/", "retrieval/", "routing/")
"""Of the tensors of a checkpoint; the basis of a space may be another one of the same space."""

pytestmark = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two processes need two cores")


def at_epoch(epoch: int, act: Callable[[], object]) -> At:
    """Do something at the end of an epoch of the second task."""
    return At(lambda event: isinstance(event, EpochEnded) and (event.task, event.epoch) == (1, epoch), act)


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory, catalogue: Catalogue) -> Iterator[None]:
    """Let further processes find the tiny components as an installed plugin.

    The catalogue of this process has them already, and is made before: it would find them twice.
    """
    folder = tmp_path_factory.mktemp("site")
    info = folder / "lw2g_tiny-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lw2g-tiny\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[lw2g]\ntiny = lw2g_tiny:plugin\n")
    (folder / "lw2g_tiny.py").write_text(
        "from lw2g_testing.tiny import TinyPlugin\n\nplugin = TinyPlugin()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


def told_of(path: Path) -> bytes:
    """Return what the system tells of a process or thread, nothing where that has ended meanwhile."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def children(process: int) -> list[int]:
    """Return the processes that a process has started and that have not ended."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return [int(pid) for thread in threads for pid in told_of(thread / "children").split()]


def others(process: int | None = None) -> list[int]:
    """Return the further ranks that a process (this one) has started."""
    started = children(process or os.getpid())
    return [pid for pid in started if b"ranks.follow" in told_of(Path(f"/proc/{pid}/cmdline"))]


def learned(directory: Path) -> list[dict[str, torch.Tensor]]:
    """Return what a run holds after every task."""
    return [
        {name: value for name, value in checkpoint.tensors.items() if name.startswith(_LEARNED)}
        for checkpoint in CheckpointStore(directory / "checkpoints").up_to()
    ]


_WARM = """
import json, os, signal, sys
from lw2g.lifecycle import runner
from lw2g.registry.catalogue import load_catalogue
from lw2g.runtime import ranks
from lw2g_testing.tiny import tiny_backbone

load_catalogue(), tiny_backbone()
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no rank that has ended waits to be asked how
for line in sys.stdin:
    if child := os.fork():
        print(child, flush=True)
        continue
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    *arguments, _ = json.loads(line)
    sys.argv = ["-c", *arguments, str(os.getppid())]
    ranks.follow(runner.follow)
"""
"""Becomes a further rank as often as it is asked: its imports take longer than a run, its state is as new."""


class Forked:
    """A further rank of the process above: what is asked of a `subprocess.Popen`."""

    def __init__(self, warm: subprocess.Popen[str], command: Sequence[str], **_: Any) -> None:
        assert command[1:3] == ["-c", ranks._PROGRAM]
        assert warm.stdin is not None
        assert warm.stdout is not None
        print(json.dumps(command[3:]), file=warm.stdin, flush=True)
        self.pid = int(warm.stdout.readline())

    def poll(self) -> int | None:
        """Return None until it has ended."""
        return None if Path(f"/proc/{self.pid}").exists() else 1

    def wait(self) -> None:
        """Return when it has ended."""
        while self.poll() is None:
            time.sleep(0.01)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """A process that further ranks are made of; another one than this, with seeds of its own for hashes."""
    program = tmp_path_factory.mktemp("warm") / "warm.py"
    program.write_text(_WARM)
    paths = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, str(program)],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process


@pytest.fixture(scope="module")
def together(
    catalogue: Catalogue, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Together:
    """The configuration of a short run of a baseline, and its directory after two processes ran it, once."""

    @cache
    def run(baseline: str) -> tuple[Resolved, Path]:
        component = catalogue.get("baseline", baseline)
        own = {"baseline.epochs": 2} if hasattr(component.config, "epochs") else {}
        for kind, name in (("baseline", baseline), ("retrieval", component.retrieval)):
            if name is not None and hasattr(catalogue.get(kind, name).config, "statistics"):
                own[f"{kind}.statistics"] = "variance"
        policy = "min" if component.growth == "sets" else None
        resolved = shortest(catalogue, baseline, TWO | own, policy=policy)
        directory = tmp_path_factory.mktemp("together") / "run"
        with pytest.MonkeyPatch.context() as patch:
            if baseline != QUICKLY:
                warm = request.getfixturevalue("warm")
                own = SimpleNamespace(Popen=partial(Forked, warm), DEVNULL=subprocess.DEVNULL)
                patch.setattr(ranks, "subprocess", own)
            start(resolved, catalogue, directory)
        return resolved, directory

    return run


@pytest.mark.parametrize(
    "baseline",
    [
        pytest.param(name, marks=() if name == QUICKLY else pytest.mark.slow)
        for name in tiny_catalogue().names("baseline")
    ],
)
def test_two_processes_agree_after_every_task(
    baseline: str,
    together: Together,
    catalogue: Catalogue,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Else the run would end; where the loss is a mean over images, they learn what one learns."""
    resolved, directory = together(baseline)
    two = unseal_json(directory / "record.json")
    assert two["environment"]["processes"] == 2
    assert [one["value"] for one in two["deviations"] if one["option"] == "run.devices"] == [2]
    if baseline != QUICKLY:
        assert children(request.getfixturevalue("warm").pid) == []
        return
    assert others() == []
    config = attrs.evolve(resolved.config, run=attrs.evolve(resolved.config.run, devices=1))
    one = start(attrs.evolve(resolved, config=config), catalogue, tmp_path / "1")
    for key in ("task_to_set", "accuracy_matrix", "retrieval_matrix"):
        assert one[key] == two[key], key
    for alone, both in zip(learned(tmp_path / "1"), learned(directory), strict=True):
        torch.testing.assert_close(both, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.slow(seconds=15)
def test_a_run_goes_on_to_the_same_bits(
    together: Together, catalogue: Catalogue, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Asked to stop, the run ends with a checkpoint; where a rank is killed, in one line."""
    resolved, whole = together(QUICKLY)
    cut = tmp_path / "cut"
    with pytest.raises(Interrupted):
        start(resolved, catalogue, cut, [at_epoch(0, lambda: os.kill(os.getpid(), signal.SIGTERM))])
    assert others() == []
    checkpoint, _ = CheckpointStore(cut / "checkpoints").newest()
    assert checkpoint is not None
    assert checkpoint.progress["position"]["within"]
    capfd.readouterr()
    with pytest.raises(RankLostError) as lost:
        resume(cut, catalogue, [at_epoch(1, lambda: os.kill(others()[0], signal.SIGKILL))])
    assert str(lost.value) == f"process 2 of 2 ended (killed by SIGKILL); go on: lw2g.resume({str(cut)!r})"
    assert capfd.readouterr().err == ""
    assert others() == []
    assert resume(cut, catalogue)["accuracy_matrix"] == unseal_json(whole / "record.json")["accuracy_matrix"]
    for expected, found in zip(learned(whole), learned(cut), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.slow(seconds=8)
def test_no_process_outlives_the_first(tmp_path: Path) -> None:
    """However that ends, and even while the others still begin."""
    command = [sys.executable, "-m", "lw2g", "run", "--device", "cpu", "--devices", "2"]
    first = subprocess.Popen([*command, "--out", str(tmp_path / "run")], stderr=subprocess.DEVNULL)
    try:
        while not (started := others(first.pid)):
            assert first.poll() is None
            time.sleep(0.1)
    finally:
        first.kill()
        first.wait()
    until = time.monotonic() + 60  # imports come first, on a machine that may be busy
    while (left := [pid for pid in started if Path(f"/proc/{pid}").exists()]) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == []
