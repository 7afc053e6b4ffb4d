"""Merging a trained copy of a set into the set it started from."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import lw2g
from lw2g.blocks.lora import LowRankSet
from lw2g.blocks.merging import merge_set, merged_product
from lw2g.errors import ConfigError, ContractError
from lw2g.interfaces.growth import Grow, Merge, Reuse
from lw2g_lora.sequential import DenseSet

SHAPE = {"num_blocks": 2, "num_targets": 3, "rank": 4, "dim": 6, "bound": 1.0}
SMALL = {
    "benchmark": "digits",
    "device": "cpu",
    "progress": False,
    "tasks": 3,
    "baseline.epochs": 1,
    "baseline.head": "lda",
    "baseline.head_carry": "affine",
}


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


def test_a_policy_merges(tmp_path) -> None:
    """Weight 1 ends as reuse to the bit, 0 keeps the set of the first task; the pool has one set."""

    def run(name: str, decision, tasks: int = 3) -> tuple[dict, dict]:
        options = {**SMALL, "tasks": tasks, "policy": lambda evidence: decision if evidence.task else Grow()}
        lw2g.run(baseline="dual-prompt", constraints=[], out=tmp_path / name, **options)
        record = json.loads((tmp_path / name / "record.json").read_text())
        own = lw2g.load(tmp_path / name).state_dict()
        return record, {key: value for key, value in own.items() if key.startswith("sets.")}

    reused, trained = run("reuse", Reuse(0))
    merged, same = run("merge", Merge(0, 1.0))
    frozen, kept = run("frozen", Merge(0, 0.0))
    _, first = run("first", Grow(), tasks=1)
    assert merged["accuracy_matrix"] == reused["accuracy_matrix"]
    assert merged["task_to_set"] == frozen["task_to_set"] == [0, 0, 0]
    assert [entry["decision"] for entry in frozen["decisions"]] == ["grow", "merge", "merge"]
    assert frozen["decisions"][1]["weight"] == 0
    assert trained
    assert all(torch.equal(value, same[name]) for name, value in trained.items())
    assert all(torch.equal(value, kept[name]) for name, value in first.items())
    assert not all(torch.equal(value, kept[name]) for name, value in trained.items())


def test_what_cannot_be_merged_is_refused(tmp_path) -> None:
    """A trained head fits the copy; a set that is not there; a share that is none."""
    options = {**SMALL, "baseline": "dual-prompt", "policy": "one", "growth.merge": "average"}
    with pytest.raises(ConfigError, match="dual-prompt' cannot merge sets: its trained head fits the copy"):
        lw2g.run(**{**options, "baseline.head": "linear", "baseline.head_carry": "none"}, out=tmp_path / "a")
    with pytest.raises(ConfigError, match="share from 0 to 1"):
        lw2g.run(**{**options, "growth.merge": 2.0}, out=tmp_path / "b")
    with pytest.raises(ContractError, match="reuses set 3"):
        lw2g.run(**{**options, "growth.merge": 1.0, "policy": lambda _: Merge(3, 0.5)}, out=tmp_path / "c")


def test_the_share_of_an_average_falls_with_the_tasks(tmp_path) -> None:
    """The option makes every reuse a merge, by one part in the set's tasks."""
    lw2g.run(**SMALL, **{"growth.merge": "average"}, baseline="dual-prompt", policy="one", out=tmp_path / "r")
    record = json.loads((tmp_path / "r" / "record.json").read_text())
    assert [entry.get("weight") for entry in record["decisions"]] == [None, 1 / 2, 1 / 3]
    assert "growth.merge" in {entry["option"] for entry in record["deviations"]}
