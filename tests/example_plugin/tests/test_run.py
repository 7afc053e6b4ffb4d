"""A whole run with LW2G on it: a set of adapters is reused, and what it did for the old task stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from click.testing import CliRunner
from lw2g_peft_adapters.adapters import AdapterInjection, AdapterSet
from torch import Tensor

from lw2g.cli.main import main
from lw2g.config.resolve import Resolved, resolve
from lw2g.disk.checkpoint import CheckpointStore
from lw2g.lifecycle.runner import resume, start
from lw2g.plugin import EpochEnded, Event, Tap, attention_of, block_at
from lw2g.registry.catalogue import Catalogue
from lw2g.results.verification import verify
from lw2g.testing import tiny_backbone, tiny_catalogue

QUICK = {
    "baseline.epochs": 3,
    "baseline.batch_size": 8,
    "baseline.lr": 0.01,
    "growth.images": 16,
    "growth.energy": 0.95,
    "growth.energy_pre": 0.95,
    "run.device": "cpu",
    "run.precision": "32-true",
    "run.evaluation_batch": 16,
}
RANK = 8


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    """All installed plugins and the tiny benchmark and backbone."""
    return tiny_catalogue()


@pytest.fixture(scope="module")
def experiment(catalogue: Catalogue) -> Callable[..., Resolved]:
    """Resolve an experiment with the baseline on the tiny components."""

    def make(overrides: dict[str, Any] | None = None, **names: Any) -> Resolved:
        chosen = {"baseline": "peft-lora", "policy": "min", "benchmark": "tiny", "backbone": "tiny"} | names
        return resolve(catalogue, overrides=QUICK | (overrides or {}), **chosen)

    return make


@pytest.fixture(scope="module")
def grown(
    tmp_path_factory: pytest.TempPathFactory, catalogue: Catalogue, experiment: Callable[..., Resolved]
) -> tuple[Path, dict[str, Any]]:
    """Directory and record of a run under ``min``, with the constraints that the policy brings."""
    directory = tmp_path_factory.mktemp("grown") / "run"
    return directory, start(experiment(), catalogue, directory)


def set_after(directory: Path, task: int) -> AdapterSet:
    """Return set 0 as it stood after a task."""
    checkpoint = CheckpointStore(directory / "checkpoints").of_task(task)
    assert checkpoint is not None
    found = new_set()
    prefix = "pool/0."
    found.load_state_dict(
        {
            name.removeprefix(prefix): value
            for name, value in checkpoint.tensors.items()
            if name.startswith(prefix)
        }
    )
    return found


def new_set(init: Any = "gaussian") -> AdapterSet:
    """Return a new set on all blocks of the tiny backbone."""
    model = tiny_backbone().model
    frozen = {block: attention_of(block_at(model, block)).qkv for block in range(len(model.blocks))}
    return AdapterSet(frozen, rank=RANK, alpha=RANK, init=init)


def low_rank_outputs(adapters: AdapterSet, inputs: dict[int, Tensor]) -> Tensor:
    """Return ``B A x`` of all blocks for the given inputs of qkv."""
    return torch.cat(
        [up(down(inputs[i])) for i, (down, up) in enumerate(zip(adapters.down, adapters.up, strict=True))]
    )


@torch.no_grad()
def drift(directory: Path, catalogue: Catalogue) -> float:
    """Return how far set 0's outputs for the first task's images moved in the second task, relative.

    The inputs are what the blocks saw when the first task was done.
    """
    before, after = set_after(directory, 0), set_after(directory, 1)
    backbone = tiny_backbone()
    stream = catalogue.get("benchmark", "tiny").build(catalogue.get("benchmark", "tiny").config()).stream()
    train = stream.tasks[0].train
    images = torch.stack([train.source.image(int(i)) for i in train.indices]).float() / 127.5 - 1
    taps = [Tap(block=block, kind="attn_in") for block in range(backbone.depth)]
    injection = AdapterInjection(range(backbone.depth), [before], 0)
    seen = backbone.activations(images, taps, (injection,))
    inputs = {tap.block: seen[tap] for tap in taps}
    old, new = low_rank_outputs(before, inputs), low_rank_outputs(after, inputs)
    assert float(old.norm()) > 0
    return float((new - old).norm() / old.norm())


def test_a_set_is_reused_and_another_grown(grown: tuple[Path, dict[str, Any]]) -> None:
    """Evidence of every live set decides, and it is measured at the down factors alone."""
    _, record = grown
    assert record["task_to_set"] == [0, 0, 1]
    for entry in record["decisions"][1:]:
        for candidate in entry["candidates"]:
            measured = candidate["measures"]["hindrance"]
            assert measured["sites"].keys() == {f"blocks.{i}.lora_a" for i in range(6)}
            parts = measured["parts"]
            assert measured["value"] == pytest.approx(parts["hfc"] - parts["hfc_pre"])
    assert record["decisions"][1]["ranks_after"]
    assert record["metrics"]["pra"] is not None


def test_the_metric_is_recorded_reported_and_recomputed(grown: tuple[Path, dict[str, Any]]) -> None:
    """It stands in the record and in the table, and `lw2g verify` computes it again."""
    directory, record = grown
    assert record["metrics"]["worst_task"] == min(row[-1] for row in record["accuracy_matrix"])
    assert "lw2g-peft-adapters" in record["metric_definitions"]["worst_task"]["plugin"]
    table = CliRunner().invoke(main, ["report", str(directory)]).stdout
    assert f"{record['metrics']['worst_task']:.1f}" in table
    assert {one.what: one.holds for one in verify(directory)}["record.json: metrics.worst_task"] is True


def test_what_a_reused_set_did_for_the_old_task_stays(
    grown: tuple[Path, dict[str, Any]],
    catalogue: Catalogue,
    experiment: Callable[..., Resolved],
    tmp_path: Path,
) -> None:
    """Low-rank outputs of old inputs move by what lies outside 95 % of their energy, else freely."""
    directory, _ = grown
    free = start(experiment(policy="one", constraints=["none"]), catalogue, tmp_path / "free")
    assert free["task_to_set"] == [0, 0, 0]
    first, second = set_after(directory, 0), set_after(directory, 1)
    assert not torch.equal(first.down[0].weight, second.down[0].weight)
    protected, unprotected = drift(directory, catalogue), drift(tmp_path / "free", catalogue)
    assert protected < 0.2 * unprotected


def test_the_backbone_is_the_one_it_was(grown: tuple[Path, dict[str, Any]]) -> None:
    """A checkpoint holds the factors and nothing that peft wraps; the record names the plain weights."""
    directory, record = grown
    assert record["fingerprints"]["backbone"] == tiny_backbone().fingerprint.sha256
    checkpoint, _ = CheckpointStore(directory / "checkpoints").newest()
    assert checkpoint is not None
    owned = {name for name in checkpoint.tensors if name.startswith("pool/0.")}
    assert owned == {f"pool/0.{part}.{block}.weight" for part in ("down", "up") for block in range(6)}


def test_a_run_that_crashed_resumes_to_the_same_numbers(
    grown: tuple[Path, dict[str, Any]],
    catalogue: Catalogue,
    experiment: Callable[..., Resolved],
    tmp_path: Path,
) -> None:
    """Crashed while the reused set is trained, the run ends as one that never stopped."""

    class PowerCutError(Exception):
        pass

    class Crash:
        def on_event(self, event: Event) -> None:
            if isinstance(event, EpochEnded) and (event.task, event.epoch) == (1, 1):
                raise PowerCutError

        def close(self) -> None:
            pass

    directory, quiet = tmp_path / "run", grown[1]
    with pytest.raises(PowerCutError):
        start(experiment(), catalogue, directory, [Crash()])
    record = resume(directory, catalogue)
    for key in ("metrics", "accuracy_matrix", "retrieval_matrix", "decisions", "task_to_set"):
        assert record[key] == quiet[key]


@pytest.mark.parametrize(
    ("policy", "constraints"),
    [("max", None), ("rnd", ["pgp"]), ("one", ["cpk", "orthogonal"]), ("always", None)],
)
def test_every_policy_and_constraint_composes(
    policy: str,
    constraints: list[str] | None,
    catalogue: Catalogue,
    experiment: Callable[..., Resolved],
    tmp_path: Path,
) -> None:
    """The package has no line about any of them."""
    record = start(experiment(policy=policy, constraints=constraints), catalogue, tmp_path / "run")
    sets = record["metrics"]["ssp"]
    assert sets == len(set(record["task_to_set"]))
    assert {"one": sets == 1, "always": sets == 3}.get(policy, 1 <= sets <= 3)
    assert (record["storage"]["basis_vectors"] > 0) == (policy != "always")


@pytest.mark.parametrize("init", ["gaussian", "kaiming"])
def test_a_new_set_changes_nothing_and_mixed_batches_equal_single_ones(init: str) -> None:
    """Up factors start at zero; each sample of a mixed batch has the bits it has under its set alone."""
    torch.manual_seed(0)
    backbone = tiny_backbone()
    blocks = range(backbone.depth)
    images = torch.randn(6, 3, 16, 16)
    plain = backbone.features(images)
    sets = [new_set(init) for _ in range(3)]
    assert torch.equal(backbone.features(images, (AdapterInjection(blocks, sets, 1),)), plain)
    with torch.no_grad():
        for one in sets:
            for layer in one.up:
                cast(Tensor, layer.weight).normal_()
        alone = [backbone.features(images, (AdapterInjection(blocks, sets, i),)) for i in range(3)]
        chosen = torch.tensor([2, 0, 0, 1, 2, 0])
        mixed = backbone.features(images, (AdapterInjection(blocks, sets, chosen),))
    assert torch.equal(mixed, torch.stack([alone[one][row] for row, one in enumerate(chosen.tolist())]))
    assert not torch.allclose(alone[0], alone[1])
    assert torch.equal(backbone.features(images), plain)


def test_adapters_are_trained_in_float32_on_a_bfloat16_backbone(
    catalogue: Catalogue, experiment: Callable[..., Resolved], tmp_path: Path
) -> None:
    """peft follows the dtype of the layer it wraps; a set does not."""
    start(experiment(overrides={"run.precision": "bf16-mixed"}), catalogue, tmp_path / "run")
    checkpoint, _ = CheckpointStore(tmp_path / "run" / "checkpoints").newest()
    assert checkpoint is not None
    assert checkpoint.tensors["pool/0.down.0.weight"].dtype == torch.float32
