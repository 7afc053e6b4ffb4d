"""Two processes that work on one run: what they learn, and that none outlives the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
import torch

from lw2g.config.resolve import Resolved, resolve
from lw2g.interfaces.tracker import EpochEnded, Event
from lw2g.registry.catalogue import Catalogue
from lw2g.testing.tiny import tiny_catalogue
from lw2g.training.files.checkpoint import CheckpointStore
from lw2g.training.progress import Interrupted
from lw2g.training.ranks import RankLostError
from lw2g.training.runner import resume, start

Quick = Callable[..., Resolved]

TWO = {"benchmark.random_crops": True, "benchmark.tasks": 2, "benchmark.test": 3, "run.devices": 2}
QUICKLY = ("hide-prompt", "inflora")
"""A loss of the whole batch; a mean over images. Every other baseline is slow."""
_LEARNED = ("baseline/", "pool/", "retrieval/", "routing/")
"""Of the tensors of a checkpoint; the basis of a space may be another one of the same space."""

pytestmark = pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two processes need two cores")


class AtEpoch:
    """Does something at the end of the first epoch of the second task."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    def on_event(self, event: Event) -> None:
        if isinstance(event, EpochEnded) and (event.task, event.epoch) == (1, 0):
            self.act()

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let further processes find the tiny components as an installed plugin."""
    folder = tmp_path_factory.mktemp("site")
    info = folder / "lw2g_tiny-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lw2g-tiny\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[lw2g]\ntiny = lw2g_tiny:plugin\n")
    (folder / "lw2g_tiny.py").write_text(
        "from lw2g.testing.tiny import TinyPlugin\n\nplugin = TinyPlugin()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


def others(process: int | None = None) -> list[int]:
    """Return the further ranks that a process (this one) has started."""
    found = []
    for thread in Path(f"/proc/{process or os.getpid()}/task").iterdir():
        for pid in (thread / "children").read_text().split():
            if b"ranks.follow" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


def learned(directory: Path) -> list[dict[str, torch.Tensor]]:
    """Return what a run holds after every task."""
    return [
        {name: value for name, value in checkpoint.tensors.items() if name.startswith(_LEARNED)}
        for checkpoint in CheckpointStore(directory / "checkpoints").up_to()
    ]


@pytest.mark.parametrize(
    "baseline",
    [
        pytest.param(name, marks=() if name in QUICKLY else pytest.mark.slow)
        for name in tiny_catalogue().names("baseline")
    ],
)
def test_two_processes_agree_after_every_task(baseline: str, catalogue: Catalogue, tmp_path: Path) -> None:
    """Else the run would end; where the loss is a mean over images, they learn what one learns."""
    options = attrs.fields_dict(catalogue.get("baseline", baseline).config)
    wanted = {"baseline.epochs": 1, "baseline.batch_size": 8, "baseline.statistics": "variance"}
    own = {key: value for key, value in wanted.items() if key.partition(".")[2] in options}
    run = {"run.device": "cpu", "run.evaluation_batch": 8, "growth.images": 16}
    names = {"baseline": baseline, "benchmark": "tiny", "backbone": "tiny"}
    retrieval = resolve(catalogue, **names).config.retrieval
    if retrieval is not None and hasattr(retrieval.config, "statistics"):
        own["retrieval.statistics"] = "variance"
    two = start(resolve(catalogue, overrides=TWO | run | own, **names), catalogue, tmp_path / "2")
    assert two["environment"]["processes"] == 2
    assert [one["value"] for one in two["deviations"] if one["option"] == "run.devices"] == [2]
    assert others() == []
    if baseline != "inflora":
        return
    resolved = resolve(catalogue, overrides=TWO | run | own | {"run.devices": 1}, **names)
    one = start(resolved, catalogue, tmp_path / "1")
    for key in ("task_to_set", "accuracy_matrix", "retrieval_matrix"):
        assert one[key] == two[key], key
    for alone, together in zip(learned(tmp_path / "1"), learned(tmp_path / "2"), strict=True):
        torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("killed", [True, False])
def test_a_run_goes_on_to_the_same_bits(
    killed: bool, catalogue: Catalogue, quick: Quick, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where a rank is killed the run ends in one line; where rank 0 is asked to stop, with a checkpoint."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"

    def act() -> None:
        os.kill(others()[0] if killed else os.getpid(), signal.SIGKILL if killed else signal.SIGTERM)

    with pytest.raises(RankLostError if killed else Interrupted) as stopped:
        start(quick(TWO, policy="min"), catalogue, cut, [AtEpoch(act)])
    if killed:
        assert str(stopped.value) == f"process 2 of 2 ended (killed by SIGKILL); go on: lw2g resume {cut}"
        assert capfd.readouterr().err == ""
    assert others() == []
    checkpoint, _ = CheckpointStore(cut / "checkpoints").newest()
    assert checkpoint is not None
    assert checkpoint.progress["position"]["within"]
    records = start(quick(TWO, policy="min"), catalogue, whole), resume(cut, catalogue)
    assert records[0]["accuracy_matrix"] == records[1]["accuracy_matrix"]
    for expected, found in zip(learned(whole), learned(cut), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


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


def test_more_processes_than_cores_are_refused_in_one_line(tmp_path: Path) -> None:
    """With exit code 2, and nothing is left behind."""
    command = [sys.executable, "-m", "lw2g", "run", "--device", "cpu", "--devices", "1000"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "run")], check=False, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.count("error: run.devices: 1000 is too many for the cores here") == 1
    assert not (tmp_path / "run").exists()
