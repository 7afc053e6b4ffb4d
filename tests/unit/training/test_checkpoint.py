"""Checkpoints are whole or not there, and damage is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from lw2g.training.checkpoint import Checkpoint, CheckpointStore, part, under, write_atomically


def checkpoint(value: float, task_done: int | None = None) -> Checkpoint:
    return Checkpoint(tensors={"a": torch.full((3,), value)}, progress={"value": value}, task_done=task_done)


def test_newest_returns_what_was_saved_last(tmp_path: Path) -> None:
    """Tensors and progress come back as they were."""
    store = CheckpointStore(tmp_path)
    store.save(checkpoint(1.0))
    store.save(checkpoint(2.0))
    found, complaints = store.newest()
    assert complaints == []
    assert found is not None
    assert found.progress == {"value": 2.0}
    assert torch.equal(found.tensors["a"], torch.full((3,), 2.0))


@pytest.mark.parametrize("damage", ["truncated", "flipped", "header"])
def test_a_damaged_checkpoint_is_named_and_the_previous_one_used(tmp_path: Path, damage: str) -> None:
    """A truncated or altered file is found out by its checksum."""
    store = CheckpointStore(tmp_path)
    store.save(checkpoint(1.0))
    path = store.save(checkpoint(2.0))
    tensors = path.with_suffix(".safetensors")
    content = bytearray(tensors.read_bytes())
    if damage == "truncated":
        tensors.write_bytes(content[:-2])
    elif damage == "flipped":
        content[-1] ^= 1
        tensors.write_bytes(content)
    else:
        header = json.loads(path.read_text())
        header["progress"]["value"] = 3.0
        path.write_text(json.dumps(header))
    found, complaints = store.newest()
    assert found is not None
    assert found.progress == {"value": 1.0}
    assert len(complaints) == 1
    assert path.stem in complaints[0]


def test_a_json_cut_short_is_passed_over(tmp_path: Path) -> None:
    """A header that is no JSON any more does not stop a resume."""
    store = CheckpointStore(tmp_path)
    store.save(checkpoint(1.0))
    path = store.save(checkpoint(2.0))
    path.write_text(path.read_text()[:20])
    found, complaints = store.newest()
    assert found is not None
    assert found.progress == {"value": 1.0}
    assert "cannot be read" in complaints[0]


def test_two_within_a_task_and_all_finished_tasks_are_kept(tmp_path: Path) -> None:
    """Checkpoints of finished tasks stay; of those within a task the last two."""
    store = CheckpointStore(tmp_path, keep=2)
    for value in range(3):
        store.save(checkpoint(float(value)))
    assert len(list(tmp_path.glob("*.json"))) == 2
    store.save(checkpoint(10.0, task_done=0))
    assert len(list(tmp_path.glob("*.json"))) == 1
    for value in range(3):
        store.save(checkpoint(float(value)))
    store.save(checkpoint(11.0, task_done=1))
    assert len(list(tmp_path.glob("*.json"))) == 2
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
    first, _ = store.newest_of_task(0)
    last, _ = store.newest_of_task(None)
    assert first is not None
    assert last is not None
    assert (first.progress, last.progress) == ({"value": 10.0}, {"value": 11.0})


def test_nothing_saved_gives_nothing(tmp_path: Path) -> None:
    """A run without a checkpoint starts over."""
    assert CheckpointStore(tmp_path / "none").newest() == (None, [])


def test_shared_storage_is_saved_once_per_name(tmp_path: Path) -> None:
    """Views of one tensor are stored each on their own."""
    base = torch.arange(6.0)
    store = CheckpointStore(tmp_path)
    store.save(Checkpoint(tensors={"whole": base, "same": base, "part": base[2:4]}, progress={}))
    found, _ = store.newest()
    assert found is not None
    assert torch.equal(found.tensors["same"], base)
    assert torch.equal(found.tensors["part"], torch.tensor([2.0, 3.0]))


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    """What is under the temporary name never counts."""
    path = tmp_path / "file"
    write_atomically(path, b"old")
    (tmp_path / ".file.part").write_bytes(b"half of the n")
    assert path.read_bytes() == b"old"


def test_prefixes_are_added_and_removed() -> None:
    """Names survive the round trip through a prefix."""
    tensors = {"a": torch.zeros(1), "b/c": torch.ones(1)}
    whole = under("x", tensors) | under("y", {"a": torch.ones(2)})
    assert set(part(whole, "x")) == {"a", "b/c"}
    assert part(whole, "y")["a"].shape == (2,)
