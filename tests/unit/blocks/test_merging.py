"""Merging a trained copy of a set into the set it started from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from listening import At, power_cut
from lw2g.blocks.lora import LowRankSet
from lw2g.blocks.merging import merge_set, merged_product
from lw2g.disk.checkpoint import part
from lw2g.errors import ConfigError, ContractError
from lw2g.interfaces.growth import Decision, Grow, Merge, Reuse
from lw2g.interfaces.tracker import EpochEnded, Event
from lw2g.lifecycle.runner import resume, start
from lw2g_lora.ewc import DenseSet
from lw2g_testing.tiny import tiny_catalogue
from runs import different, shortest, telling, tensors, untimed

SHAPE = {"num_blocks": 2, "num_targets": 3, "rank": 4, "dim": 6, "bound": 1.0}
CLOSED = {"baseline.head": "lda", "baseline.head_carry": "affine"}


def pair(shared: bool = False) -> tuple[LowRankSet, LowRankSet]:
    """Return a set of low-rank updates and a copy that was trained."""
    start = LowRankSet(**SHAPE, shared_down=shared)
    nn.init.normal_(start.up)
    copy = LowRankSet(**SHAPE, shared_down=shared).copy_from(start)
    for value in copy.parameters():
        value.data += 0.3 * torch.randn_like(value)
    return start, copy


@torch.no_grad()
@pytest.mark.parametrize("shared", [False, True])
def test_products_are_merged_and_not_factors(shared: bool) -> None:
    """What is left is the nearest of its rank; equal factors, and sums of that rank, are kept whole."""
    start, copy = pair(shared)
    wanted = 0.75 * start.increments().double() + 0.25 * copy.increments().double()
    down, up, energy = merged_product((start.down, start.up), (copy.down, copy.up), 0.25)
    assert (down.shape, up.shape) == (start.down.shape, start.up.shape)
    lost = (wanted - up.double() @ down.double()).norm()
    columns = wanted.flatten(1, 2) if shared else wanted.flatten(0, 1)  # what one down factor serves
    least = sum(part.square().sum() for part in torch.linalg.svdvals(columns)[..., 4:]).sqrt()
    assert float(lost) == pytest.approx(float(least), rel=1e-4)
    assert energy.tolist() == pytest.approx(
        [float(lost) ** 2, float(wanted.square().sum() - lost**2)], rel=1e-4
    )
    factors = (0.75 * start.up + 0.25 * copy.up) @ (0.75 * start.down + 0.25 * copy.down)
    assert (wanted - factors.double()).norm() > lost
    down, up, energy = merged_product((start.down, start.up), (start.down, start.up), 0.4)
    assert float(energy[0]) < 1e-9 * float(energy[1])
    torch.testing.assert_close(up @ down, start.increments(), rtol=1e-4, atol=1e-5)


def test_the_ends_of_the_line_are_the_start_and_the_copy() -> None:
    """Weight 0 is the start to the bit, 1 the copy; in between plain parameters are interpolated."""
    for make in (pair, lambda: (nn.Linear(3, 2), nn.Linear(3, 2))):
        start, copy = make()
        before, after = start.state_dict(), {k: v.clone() for k, v in copy.state_dict().items()}
        merge_set(copy, before, 1)
        assert all(torch.equal(value, after[name]) for name, value in copy.state_dict().items())
        merge_set(copy, before, 0)
        assert all(torch.equal(value, before[name]) for name, value in copy.state_dict().items())
    start, copy = nn.Linear(3, 2), nn.Linear(3, 2)
    middle = (start.weight + copy.weight) / 2
    merge_set(copy, start.state_dict(), 0.5)
    torch.testing.assert_close(copy.weight, middle)


def test_an_update_on_top_of_a_sum_is_scaled() -> None:
    """The sum below it is the function of the start."""
    own = DenseSet(**SHAPE)
    own.dense.data.normal_()
    own.up.data.normal_()
    wanted = own.dense + 0.3 * own.increments()
    merge_set(own, {}, 0.3)
    torch.testing.assert_close(own.dense + own.increments(), wanted)


@pytest.fixture
def decided(tmp_path: Path) -> Callable[..., Path]:
    """Run the tiny stream with the decision on each task told, and return the run's directory."""

    def run(name: str, *decisions: Decision) -> Path:
        catalogue = telling(*decisions)
        options = {**CLOSED, "benchmark.tasks": len(decisions)}
        chosen = shortest(catalogue, "dual-prompt", options, policy="told", constraints=[])
        start(chosen, catalogue, tmp_path / name)
        return tmp_path / name

    return run


def record_of(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "record.json").read_text())
    return found


def sets_of(directory: Path, task: int | None = None) -> dict[int, dict[str, torch.Tensor]]:
    """The parameters of each set at the end of a task, of the last one by default."""
    found: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in part(tensors(directory, task), "pool").items():
        number, _, rest = name.partition(".")
        found.setdefault(int(number), {})[rest] = value
    return found


def test_a_policy_merges(decided) -> None:
    """Weight 1 ends as reuse to the bit, 0 keeps the set of the first task; the pool has one set."""
    reused = decided("reuse", Grow(), Reuse(0), Reuse(0))
    merged = decided("merge", Grow(), Merge(0, 1.0), Merge(0, 1.0))
    frozen = decided("frozen", Grow(), Merge(0, 0.0), Merge(0, 0.0))
    trained, first = sets_of(reused), sets_of(frozen, 0)
    assert record_of(merged)["accuracy_matrix"] == record_of(reused)["accuracy_matrix"]
    assert record_of(merged)["task_to_set"] == record_of(frozen)["task_to_set"] == [0, 0, 0]
    decisions = record_of(frozen)["decisions"]
    assert [entry["decision"] for entry in decisions] == ["grow", "merge", "merge"]
    assert decisions[1]["weight"] == 0
    assert trained[0]
    assert not different(trained[0], sets_of(merged)[0])
    assert not different(first[0], sets_of(frozen)[0])
    assert different(trained[0], first[0])


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_merge_outlives_a_kill_within_its_task(epoch: int, tmp_path: Path) -> None:
    """Resumed after any epoch of a task whose set is merged, the run merges as if it had not stopped."""
    catalogue = tiny_catalogue()
    options = {**CLOSED, "growth.merge": 0.5, "baseline.epochs": 2, "benchmark.tasks": 2}
    chosen = shortest(catalogue, "dual-prompt", options, policy="one", constraints=[])
    reference = start(chosen, catalogue, tmp_path / "quiet")
    assert "lost" in reference["decisions"][1]

    def is_trained(event: Event) -> bool:
        return isinstance(event, EpochEnded) and event.task == 1 and event.epoch == epoch

    with pytest.raises(RuntimeError, match="power cut"):
        start(chosen, catalogue, tmp_path / "killed", [At(is_trained, power_cut)])
    assert untimed(resume(tmp_path / "killed", catalogue)) == untimed(reference)
    assert not different(tensors(tmp_path / "killed"), tensors(tmp_path / "quiet"))


SEQUENCES: dict[str, tuple[Decision, ...]] = {
    "merge, grow": (Grow(), Merge(0, 0.0), Grow()),
    "merge, reuse": (Grow(), Merge(0, 0.0), Reuse(0)),
    "two sets": (Grow(), Grow(), Merge(0, 0.0), Reuse(1)),
    "merge, merge another": (Grow(), Grow(), Merge(0, 0.5), Merge(1, 0.0)),
    "merge by all, grow": (Grow(), Merge(0, 1.0), Grow()),
}


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_merge_concerns_its_own_task_alone(sequence: str, decided) -> None:
    """Whatever comes next starts afresh: a set that grows or is reused keeps all that its task trains."""
    decisions = SEQUENCES[sequence]
    directory = decided("run", *decisions)
    entries = record_of(directory)["decisions"]
    merges = [isinstance(one, Merge) and one.weight < 1 for one in decisions]
    assert ["lost" in entry for entry in entries] == merges
    for task, decision in enumerate(decisions):
        before = sets_of(directory, task - 1) if task else {}
        after = sets_of(directory, task)
        assert not [name for name in tensors(directory, task) if name.startswith("merging/")]
        own = entries[task]["set"]
        changed = [one for one in before if different(before[one], after[one])]
        kept = isinstance(decision, Merge) and not decision.weight
        assert changed == ([] if kept or own not in before else [own])
        assert all(different(after[own], after[other]) for other in after if other != own)


def test_what_a_merge_has_trained_enters_by_its_weight(decided) -> None:
    """After other merges and growth, too: the set lies on the line from what it was to what reuse makes."""
    earlier = (Grow(), Merge(0, 0.25), Grow())
    merged = decided("merged", *earlier, Merge(0, 0.75))
    reused = decided("reused", *earlier, Reuse(0))
    begun, trained, found = sets_of(merged, 2)[0], sets_of(reused)[0], sets_of(merged)[0]
    assert not different(begun, sets_of(reused, 2)[0])
    for name, value in begun.items():
        torch.testing.assert_close(found[name], value.lerp(trained[name], 0.75))
    assert not different(sets_of(merged)[1], sets_of(reused)[1])


def test_what_cannot_be_merged_is_refused(decided, catalogue, tmp_path) -> None:
    """A trained head fits the copy; a set that is not there; a share that is none."""

    def run(**options: Any) -> None:
        settings = {name.replace("__", "."): value for name, value in options.items()}
        start(shortest(catalogue, "dual-prompt", settings, policy="one"), catalogue, tmp_path / "run")

    with pytest.raises(ConfigError, match="dual-prompt' cannot merge sets: its trained head fits the copy"):
        run(growth__merge="average")
    with pytest.raises(ConfigError, match="share from 0 to 1"):
        run(growth__merge=2.0, **CLOSED)
    with pytest.raises(ContractError, match="reuses set 3"):
        decided("no such set", Grow(), Merge(3, 0.5))


def test_the_share_of_an_average_falls_with_the_tasks(catalogue, tmp_path) -> None:
    """The option makes every reuse a merge, by one part in the set's tasks."""
    chosen = shortest(catalogue, "dual-prompt", {**CLOSED, "growth.merge": "average"}, policy="one")
    start(chosen, catalogue, tmp_path / "run")
    record = record_of(tmp_path / "run")
    assert [entry.get("weight") for entry in record["decisions"]] == [None, 1 / 2, 1 / 3]
    assert "growth.merge" in {entry["option"] for entry in record["deviations"]}
