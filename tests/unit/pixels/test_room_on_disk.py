"""Images that memory has no room for lie on a disk: the same bits, decoded once, nothing left behind."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lw2g.config.resolve import Resolved
from lw2g.interfaces.stream import StagedTransform
from lw2g.lifecycle.runner import start
from lw2g.pixels.pixels import Disk, Kept, Room
from lw2g.registry.catalogue import Catalogue
from lw2g_testing import tiny

IMAGES = {number: torch.full((3, 4, 5), number, dtype=torch.uint8) for number in range(4)}


def test_memory_comes_first_and_the_disk_takes_what_it_has_room_for(tmp_path: Path) -> None:
    """One image in memory, two on the disk, the fourth nowhere; no file has a name."""
    kept = Kept(Room(60), Disk(tmp_path, 120))
    kept.keep(IMAGES)
    assert [number for number in IMAGES if number in kept] == [0, 1, 2]
    for number in (0, 1, 2):
        assert torch.equal(kept[number], IMAGES[number])
    assert list(tmp_path.iterdir()) == []


def test_only_bytes_are_taken(tmp_path: Path) -> None:
    """Floats would cost four times the disk."""
    kept = Kept(Room(0), Disk(tmp_path, 2**20))
    kept.keep({0: torch.zeros(3, 2, 2)})
    assert 0 not in kept


def test_a_full_disk_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An image that could not be written is decoded again as before; the run goes on."""
    kept = Kept(Room(0), Disk(tmp_path, 2**20))
    kept.keep({0: IMAGES[0]})

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        kept.keep({1: IMAGES[1]})
    kept.keep({2: IMAGES[2]})
    assert [number for number in IMAGES if number in kept] == [0]
    assert torch.equal(kept[0], IMAGES[0])


def test_a_run_decodes_its_test_images_once(
    catalogue: Catalogue, quick: Callable[..., Resolved], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without memory for images a disk serves every evaluation; results are the same bits."""
    resolved = quick({"run.image_memory": 0})
    test = tiny.TinyBenchmark(resolved.config.benchmark.config).stream().tasks[0].test.source
    first_id = test.ids[0]
    decoded: Counter[int] = Counter()
    view = tiny._Source.image

    def counted(source: tiny._Source, index: int) -> torch.Tensor:
        if source.ids[0] == first_id:
            decoded[index] += 1
        return view(source, index).clone()

    def staged(*_: object) -> tiny._Transforms:
        bytes_first = StagedTransform(pixels=lambda image: image, finish=tiny._scale)
        return tiny._Transforms(train=bytes_first, test=bytes_first)

    monkeypatch.setattr(tiny.TinyBenchmark, "transforms", staged)
    monkeypatch.setattr(tiny._Source, "image", counted)
    without = start(resolved, catalogue, tmp_path / "without")
    assert max(decoded.values()) > 1
    decoded.clear()
    record = start(quick({"run.image_memory": 0, "run.image_disk": 4}), catalogue, tmp_path / "run")
    assert set(decoded.values()) == {1}
    assert record["accuracy_matrix"] == without["accuracy_matrix"]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names == {path.name for path in (tmp_path / "without").iterdir()}
