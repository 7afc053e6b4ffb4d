"""Workers: started once a run, fed with positions, told of when they end, and gone afterwards."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.stream import TaskData
from lw2g.lifecycle.runner import start
from lw2g.pixels.decoding import Decoder, chunks
from lw2g.pixels.pixels import Originals
from lw2g.pixels.workers import WorkerLostError, Workers
from noted_images import COUNT, Noted, brightened

CPU = torch.device("cpu")


@pytest.fixture
def source(tmp_path):
    return Noted(tmp_path / "notes")


@pytest.fixture
def workers(source):
    found = Workers(2, [source], CPU)
    yield found
    found.close()


def decoder_of(source, workers, *, limit=2**20):
    part = TaskData(source=source, indices=range(COUNT), labels=[0] * COUNT)
    return Decoder(Originals([part], CPU, limit=limit, keep=True), brightened, workers)


def images_of(decoder, order, seed=3):
    return [made.batch(batch, CPU) for batch, made in zip(order, decoder.load(order, seed), strict=True)]


ORDER = [[5, 2, 8], [1], [0, 3, 4, 7], [9, 6], [10], [2, 1], [3]]


def test_walks_in_turn_and_left_ones_give_the_images_of_one_process(source, workers):
    """A walk within another, one that nobody ends, and positions in any order."""
    expected = images_of(decoder_of(source, None), ORDER)
    decoder = decoder_of(source, workers)
    outer = decoder.load(ORDER, 3)
    first = next(outer).batch(ORDER[0], CPU)
    next(decoder.load(ORDER, 4))
    inner = images_of(decoder, ORDER)
    rest = [made.batch(batch, CPU) for batch, made in zip(ORDER[1:], outer, strict=True)]
    for found in (inner, [first, *rest]):
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize(("limit", "times"), [(2**20, 1), (0, 2)])
def test_an_original_is_decoded_once_as_far_as_there_is_room(source, workers, limit, times):
    """By the process that has kept it; what it keeps is taken off the room of the run."""
    order = [[5, 2, 8], [1, 0], [3, 10]]
    decoder = decoder_of(source, workers, limit=limit)
    originals = decoder._originals
    for seed in (3, 4):
        images_of(decoder, order, seed)
    assert source.decoded == sorted([0, 1, 2, 3, 5, 8, 10] * times)
    kept = sum(3 * (4 + index) * 5 for index in (0, 1, 2, 3, 5, 8, 10))
    assert originals.left == (limit - kept if limit else 0)
    assert originals.sizes[8].tolist() == [12, 5]


def test_an_error_of_a_worker_is_that_of_the_image_and_ends_nothing(source, workers):
    """Data errors stay what they are, and the processes go on with the next walk."""
    decoder = decoder_of(source, workers)
    with pytest.raises(DataError, match=r"^'image-11' cannot be read; replace it$"):
        images_of(decoder, [[0, 1], [COUNT - 1, 2], [3]])
    assert torch.equal(images_of(decoder, [[4]])[0], images_of(decoder_of(source, None), [[4]])[0])


@pytest.mark.parametrize("when", ["between walks", "within a walk"])
def test_a_killed_worker_is_told_in_one_line(source, workers, when):
    """By the signal; the processes that a later walk starts are others."""
    decoder = decoder_of(source, workers)
    walk = decoder.load([[number % 10] for number in range(40)], 3)
    next(walk)
    if when == "between walks":
        walk = decoder.load([[0, 1]], 3)
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    with pytest.raises(
        WorkerLostError, match=r"has ended \(killed by SIGKILL\); if memory ran out, lower run"
    ):
        list(walk)
    workers.close()
    assert len(images_of(decoder, ORDER)) == len(ORDER)


def test_what_fails_beside_a_worker_reaches_whoever_asked(source, monkeypatch):
    """The thread that talks to a process cannot take the GPU: the walk ends with that, and does not wait."""

    def refused(device):
        raise ValueError("no such GPU")

    monkeypatch.setattr(torch.cuda, "set_device", refused)
    opened = Workers(1, [source], torch.device("cuda"))
    try:
        with pytest.raises(ValueError, match="no such GPU"):
            images_of(decoder_of(source, opened), ORDER)
    finally:
        opened.close()


def open_files():
    return len(os.listdir("/proc/self/fd"))


def test_nothing_is_left_of_workers(source):
    """Neither processes nor threads, nor files, whether they are closed or forgotten."""
    before = open_files()
    for closed in (True, False):
        workers = Workers(2, [source], CPU)
        images_of(decoder_of(source, workers), ORDER)
        assert open_files() > before
        assert len(multiprocessing.active_children()) == 2
        if closed:
            workers.close()
        del workers
        assert not multiprocessing.active_children()
        assert open_files() == before


def test_a_signal_to_stop_is_for_the_run(source, workers):
    """A terminal and a scheduler signal all processes: those that decode go on until the run ends them."""
    decoder = decoder_of(source, workers)
    images_of(decoder, ORDER)
    for process in multiprocessing.active_children():
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(process.pid, number)
    assert len(images_of(decoder, ORDER)) == len(ORDER)


def test_a_transform_that_cannot_travel_is_refused(source, workers):
    """One that the processes did not have from the start and cannot be pickled."""
    part = TaskData(source=source, indices=range(COUNT), labels=[0] * COUNT)
    decoder = Decoder(Originals([part], CPU, limit=0, keep=True), lambda image: image, workers)
    with pytest.raises(ConfigError, match=r"run\.workers: the transform cannot be pickled"):
        images_of(decoder, ORDER)


def test_features_of_a_pass_are_asked_for_in_one_walk(session_of, monkeypatch):
    """Whoever reads the queries of a pass batch by batch opens one walk, as far as he has asked."""
    session = session_of({"run.evaluation_batch": 4})
    images = session.data.image_set([session.data.stream.tasks[0].train], train=False)
    loads = []
    load = Decoder.load
    monkeypatch.setattr(
        Decoder, "load", lambda self, batches, seed: loads.append(batches) or load(self, batches, seed)
    )
    order = chunks(range(len(images)), 5)
    batches = list(images.batches(order))
    found = [batch.query for batch in batches]
    assert [sorted({one for batch in loaded for one in batch}) for loaded in loads] == [
        list(range(len(images)))
    ]
    apart = session.data.image_set([session.data.stream.tasks[0].train], train=False)
    late = list(apart.batches(order))
    for number in (2, 0, 1):
        assert torch.equal(late[number].query, found[number])
    assert not apart.are_known(range(len(images)))


def test_a_run_starts_its_workers_once_and_learns_the_same(catalogue, quick, tmp_path, monkeypatch):
    """As many forks as workers, whatever the number of tasks, passes and requests; and the same bits."""
    forks = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: forks.append(None) or fork())
    found = {}
    for count in (0, 2):
        resolved = quick({"benchmark.random_crops": True, "run.workers": count}, policy="min")
        record = start(resolved, catalogue, tmp_path / str(count))
        assert len(forks) == count
        sums = {name: one for name, one in record["files"].items() if name.startswith("predictions")}
        found[count] = (sums, record["accuracy_matrix"], record["task_to_set"])
    assert found[0][0]
    assert found[0] == found[2]
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_spawned_workers_give_the_same_images(source, monkeypatch):
    """Where processes are not forked, sources and transforms are pickled once."""
    monkeypatch.setattr(multiprocessing, "Process", multiprocessing.get_context("spawn").Process)
    workers = Workers(1, [source], CPU)
    found = images_of(decoder_of(source, workers), ORDER)
    workers.close()
    expected = images_of(decoder_of(source, None), ORDER)
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


ENDS = """
import multiprocessing, os, sys, time
from pathlib import Path
sys.path[:0] = {folders!r}
from test_workers import *
source = Noted(Path({notes!r}))
decoder = decoder_of(source, Workers(2, [source], CPU))
walk = decoder.load(ORDER, 3)
next(walk)
print(*[child.pid for child in multiprocessing.active_children()], flush=True)
{end}
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "sys.exit()", "raise KeyError", "os._exit(1)"])
def test_workers_end_with_their_run_however_that_ends(tmp_path, end):
    """Killed, or through the end of a program that has closed nothing: soon, and without waiting."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "support")]
    program = ENDS.format(folders=folders, notes=str(tmp_path / "notes"), end=end)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    processes = done.stdout.split()
    assert len(processes) == 2
    until = time.monotonic() + 60  # on a machine that may be busy
    while any(Path("/proc", process).exists() for process in processes):
        assert time.monotonic() < until
        time.sleep(0.02)
