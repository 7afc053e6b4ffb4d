"""Checkpoints are whole or not there, damage is noticed, and only what has changed is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from lw2g.disk.checkpoint import Checkpoint, CheckpointStore, part, under
from lw2g.disk.differences import apply, changes
from lw2g.errors import DataError


def checkpoint(
    value: float, task_done: int | None = None, ledger: dict[str, Any] | None = None
) -> Checkpoint:
    tensors = {"a": torch.full((3,), value)}
    return Checkpoint(tensors=tensors, progress={"value": value}, ledger=ledger or {}, task_done=task_done)


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "truncated":
        del content[-2:]
    elif how == "emptied":
        content.clear()
    else:
        content[{"tensors": -1, "header": content.index(b"progress"), "length": 0}[how]] ^= 1
    path.write_bytes(content)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("how", ["truncated", "emptied", "tensors", "header", "length"])
def test_a_damaged_checkpoint_is_named_and_the_previous_one_used(tmp_path: Path, how: str) -> None:
    """A truncated or altered file is found out by its checksum."""
    store = CheckpointStore(tmp_path)
    store.save(checkpoint(1.0))
    path = store.save(checkpoint(2.0))
    damage(path, how)
    found, complaints = store.newest()
    assert found is not None
    assert found.progress == {"value": 1.0}
    assert len(complaints) == 1
    assert path.name in complaints[0]


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """There is no byte in the file that the checksum does not cover."""
    path = CheckpointStore(tmp_path).save(checkpoint(1.0, task_done=0))
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(DataError, match="task-000"):
            CheckpointStore(tmp_path).of_task(0)


def test_two_within_a_task_and_all_finished_tasks_are_kept(tmp_path: Path) -> None:
    """Checkpoints of finished tasks stay; of those within a task the last two; nobody else's files go."""
    notes = ["000007.step.safetensors", "task-000.step-000001.safetensors.bak"]
    for name in notes:
        (tmp_path / name).write_text("mine")
    store = CheckpointStore(tmp_path)
    for value in range(3):
        store.save(checkpoint(float(value)))
    assert len(names(tmp_path)) == 2 + len(notes)
    store.save(checkpoint(10.0, task_done=0))
    for value in range(3):
        store.save(checkpoint(float(value)))
    store.save(checkpoint(11.0, task_done=1))
    assert names(tmp_path) == sorted([*notes, "task-000.safetensors", "task-001.safetensors"])
    reader = CheckpointStore(tmp_path)
    assert reader.of_task(0).progress == {"value": 10.0}
    assert reader.of_task().progress == {"value": 11.0}
    with pytest.raises(DataError, match="task 3 is not finished, the last one is 2"):
        reader.of_task(2)


def test_a_link_is_neither_read_nor_removed(tmp_path: Path) -> None:
    """A link in the folder is no checkpoint: what it points to stays."""
    directory, precious = tmp_path / "checkpoints", tmp_path / "precious"
    precious.write_text("mine")
    store = CheckpointStore(directory)
    store.save(checkpoint(1.0))
    (directory / "task-000.step-000000.safetensors").unlink()
    (directory / "task-000.step-000000.safetensors").symlink_to(precious)
    store.save(checkpoint(2.0, task_done=0))
    assert precious.read_text() == "mine"
    assert CheckpointStore(directory).of_task().progress == {"value": 2.0}


@pytest.mark.parametrize("broken", ["task-001.safetensors", None])
def test_damage_in_the_middle_is_said_and_learned_anew(tmp_path: Path, broken: str | None) -> None:
    """Nothing after a damaged or lost task is used, whoever asks; learned anew, everything is whole again."""
    store = CheckpointStore(tmp_path)
    for task in range(4):
        store.save(checkpoint(float(task), task_done=task))
    if broken is None:
        (tmp_path / "task-001.safetensors").unlink()
    else:
        damage(tmp_path / broken, "tensors")
    with pytest.raises(DataError, match=r"after task 4 cannot.*task-001.*models of tasks 1 to 1 are whole"):
        store.of_task()
    assert store.of_task(0).progress == {"value": 0.0}
    found, complaints = store.newest()
    assert found is not None
    assert found.task_done == 0
    assert len(complaints) == 1
    assert "what builds on it up to task 4; going on from the end of task 1" in complaints[0]
    store.save(checkpoint(1.5, task_done=1))
    assert names(tmp_path) == ["task-000.safetensors", "task-001.safetensors"]
    assert CheckpointStore(tmp_path).of_task().progress == {"value": 1.5}


def test_another_end_of_the_task_before_is_noticed(tmp_path: Path) -> None:
    """A whole file that replaces another whole one does not fit what builds on it."""
    store, other = CheckpointStore(tmp_path / "a"), CheckpointStore(tmp_path / "b")
    for task in range(2):
        store.save(checkpoint(float(task), task_done=task))
    other.save(checkpoint(5.0, task_done=0))
    (tmp_path / "b" / "task-000.safetensors").replace(tmp_path / "a" / "task-000.safetensors")
    with pytest.raises(DataError, match=r"'task-001.safetensors' builds on another end"):
        store.of_task(1)


def test_what_is_written_behind_is_the_state_at_the_call(tmp_path: Path) -> None:
    """Training on at once changes neither the file nor what the next one is compared with."""
    store, weight, kept = CheckpointStore(tmp_path), torch.zeros(4), torch.ones(4)
    ledger: dict[str, Any] = {"decisions": ["first"]}
    for task in range(3):
        state = {"w": weight, "kept": store.base.get("kept", kept)} | ({} if task else {"left": kept})
        store.save_behind(Checkpoint(tensors=state, progress={}, ledger=ledger, task_done=task))
        weight += 1
        ledger["decisions"].append("later")
    store.wait()
    for task in range(3):
        found = CheckpointStore(tmp_path).of_task(task)
        assert (float(found.tensors["w"][0]), float(found.tensors["kept"][0])) == (task, 1)
        assert (len(found.ledger["decisions"]), "left" in found.tensors) == (task + 1, task == 0)


@pytest.mark.parametrize("after", [CheckpointStore.wait, lambda store: store.save(checkpoint(2.0))])
def test_an_error_of_the_writing_is_raised_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: Any
) -> None:
    """A full disk ends the run, if not at once."""

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("lw2g.disk.checkpoint.write_atomically", full)
    store = CheckpointStore(tmp_path)
    store.save_behind(checkpoint(1.0))
    with pytest.raises(OSError, match=r"No space left.*task-000\.step-000000"):
        after(store)
    assert names(tmp_path) == []


def test_a_task_costs_the_same_however_many_came_before(tmp_path: Path) -> None:
    """A set, a row of the head and an entry of the ledger a task: the 40th file is as large as the 4th."""
    store, generator = CheckpointStore(tmp_path), torch.Generator().manual_seed(0)
    tensors: dict[str, Tensor] = {"baseline/head": torch.zeros(100, 64)}
    ledger: dict[str, list[Any]] = {"decisions": []}
    sizes, states = [], []
    for task in range(40):
        tensors[f"pool/{task}.key"] = torch.randn(8, 64, generator=generator)
        tensors["baseline/head"][task] = torch.randn(64, generator=generator)
        ledger["decisions"].append({"task": task + 1000, "decision": "grow"})
        saved = Checkpoint(tensors=tensors, progress={}, ledger=ledger, task_done=task)
        sizes.append(store.save(saved).stat().st_size)
        states.append({name: value.clone() for name, value in tensors.items()})
    assert abs(sizes[39] - sizes[4]) <= 16  # numbers of two digits
    for task in (0, 20, 39):
        found = CheckpointStore(tmp_path).of_task(task)
        assert len(found.ledger["decisions"]) == task + 1
        assert found.tensors.keys() == states[task].keys()
        assert all(torch.equal(found.tensors[name], value) for name, value in states[task].items())


def test_nothing_saved_gives_nothing(tmp_path: Path) -> None:
    """A run without a checkpoint starts over; one without a finished task has no model."""
    assert CheckpointStore(tmp_path / "none").newest() == (None, [])
    with pytest.raises(DataError, match="no task is finished"):
        CheckpointStore(tmp_path / "none").of_task()


def test_shared_storage_is_saved_once_per_name(tmp_path: Path) -> None:
    """Views of one tensor are stored each on their own."""
    base = torch.arange(6.0)
    store = CheckpointStore(tmp_path)
    store.save(Checkpoint(tensors={"whole": base, "same": base, "part": base[2:4]}, progress={}))
    found, _ = store.newest()
    assert found is not None
    assert torch.equal(found.tensors["same"], base)
    assert torch.equal(found.tensors["part"], torch.tensor([2.0, 3.0]))


OLD = torch.arange(24.0).reshape(2, 3, 4)


def _edited(axis: int, at: int) -> Tensor:
    new = OLD.clone()
    new.select(axis, at).neg_()
    return new


@pytest.mark.parametrize(
    ("new", "stored"),
    [
        (OLD.clone(), 0),
        (_edited(0, 1), 12),
        (_edited(1, 2), 8),
        (_edited(2, 0), 6),
        (torch.cat([OLD, OLD[:1]]), 12),
        (torch.cat([_edited(2, 3), OLD[:, :, :1]], dim=2), 12),
        (OLD + 100, 24),
        (OLD[:1], 12),
        (OLD.double(), 24),
        (torch.cat([torch.tensor([-0.0]), OLD.flatten()[1:]]).reshape(2, 3, 4), 6),
        (torch.zeros(2, 3, 0), 0),
        (torch.tensor(1.0), 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_changes_lead_from_one_state_to_the_other(new: Tensor, stored: int, dtype: torch.dtype) -> None:
    """Bit for bit, whatever changed or grew, storing the slices along the axis where they are fewest."""
    old = {"kept": torch.ones(2), "x": OLD.to(dtype), "gone": torch.ones(1)}
    later = {"kept": torch.ones(2), "x": new.to(dtype if new.dtype != torch.float64 else new.dtype)}
    kept, sliced = changes(old, later)
    found = apply(old, kept, sliced, ["gone"])
    assert found.keys() == later.keys()
    assert found["x"].dtype == later["x"].dtype
    assert torch.equal(found["x"].reshape(-1).view(torch.uint8), later["x"].reshape(-1).view(torch.uint8))
    assert "kept" not in kept
    if dtype == torch.float32:
        assert kept.get("x", torch.zeros(0)).numel() == stored


def test_prefixes_are_added_and_removed() -> None:
    """Names survive the round trip through a prefix."""
    tensors = {"a": torch.zeros(1), "b/c": torch.ones(1)}
    whole = under("x", tensors) | under("y", {"a": torch.ones(2)})
    assert set(part(whole, "x")) == {"a", "b/c"}
    assert part(whole, "y")["a"].shape == (2,)


def test_what_fails_to_be_written_costs_nothing_older(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older checkpoints within the task go once the new one is whole on the disk, not before."""
    store = CheckpointStore(tmp_path)
    store.save(checkpoint(0.0, task_done=0))
    for value in (1.0, 2.0):
        store.save(checkpoint(value))
    before = names(tmp_path)

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("lw2g.disk.checkpoint.write_atomically", full)
    with pytest.raises(OSError, match="No space left"):
        store.save(checkpoint(3.0))
    assert names(tmp_path) == before
    found, complaints = CheckpointStore(tmp_path).newest()
    assert found is not None
    assert (found.progress, complaints) == ({"value": 2.0}, [])


@pytest.mark.parametrize("done", [None, 1])
def test_a_file_holds_what_has_changed_since_the_task_before(tmp_path: Path, done: int | None) -> None:
    """Within a task, too: what the end of the task before has is not written again."""
    store, large = CheckpointStore(tmp_path), torch.randn(1000, generator=torch.Generator().manual_seed(0))
    for task, value in ((0, 1.0), (done, 2.0), (2 if done else None, 3.0)):
        tensors = {"large": large, "small": torch.full((3,), value)}
        path = store.save(Checkpoint(tensors=tensors, progress={}, ledger={}, task_done=task))
        with safe_open(path, framework="pt") as file:
            assert set(file.keys()) == ({"large", "small"} if task == 0 else {"small"})
    found, _ = CheckpointStore(tmp_path).newest()
    assert found is not None
    assert torch.equal(found.tensors["large"], large)
