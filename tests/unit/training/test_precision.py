"""Tests of what ``run.precision = "auto"`` takes, and that a run keeps it."""

from pathlib import Path

import pytest
import torch

from lw2g.cli.execute import run_seeds
from lw2g.config.toml import read_toml
from lw2g.interfaces.tracker import RunStarted
from lw2g.testing.tiny import tiny_backbone
from lw2g.training.devices import precision
from lw2g.training.devices.engine import BF16, FP32
from lw2g.training.devices.precision import (
    PrecisionChoice,
    Step,
    choose_precision,
    has_bf16_instructions,
    judge,
    measured,
)
from lw2g.training.models import parts
from lw2g.training.runner import resume, start

TAKEN = PrecisionChoice(used=BF16, reason="taken")


def step(loss=1.0, off=0.0, first=0.0):
    """Return a step that gave a loss, and gradients of three images, off by so much."""
    return Step(seconds=0.0, loss=loss, gradient=torch.tensor([[9.0, first], [1.0, off], [1.0, off]]))


@pytest.mark.parametrize(
    ("reduced", "seconds", "used", "said"),
    [
        (step(1.04, 0.2), 0.5, BF16, "2.0 times as fast"),
        (step(1.04, 0.2, first=9.0), 0.5, BF16, "2.0 times as fast"),
        (step(1.04, 0.2), 1.0, FP32, "1.0 times as fast"),
        (step(1.06), 0.5, FP32, "loss by 6.0%"),
        (step(1.0, 0.3), 0.5, FP32, "gradient by 30.0%"),
        (step(float("nan")), 0.5, FP32, "not safe"),
        (step(1.0, float("nan")), 0.5, FP32, "not safe"),
    ],
)
def test_bf16_is_taken_where_it_is_faster_and_safe(reduced, seconds, used, said):
    """Speed alone does not do: loss within 5 %, an image's gradient within 25 % of float32's."""
    choice = judge({FP32: step(), BF16: reduced}, {FP32: 1.0, BF16: seconds})
    assert (choice.used, said in choice.reason) == (used, True)


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("flags\t\t: fpu avx512_bf16 sse\n", True),
        ("flags : fpu amx_bf16\n", True),
        ("Features\t: asimd bf16\n", True),
        ("flags\t\t: fpu avx512f sse\nbugs: bf16\n", False),
        ("nothing to say\n", True),
        (None, True),
    ],
)
def test_instructions_are_read_where_the_system_tells_them(tmp_path, text, there):
    """x86 and ARM name them by different words; what is unknown is measured."""
    info = tmp_path / "cpuinfo"
    if text is not None:
        info.write_text(text)
    assert has_bf16_instructions(info) is there


def test_what_is_known_is_not_measured(monkeypatch):
    """A small backbone and a CPU without bf16 take no step."""
    monkeypatch.setattr(precision, "training_step", None)
    backbone = tiny_backbone()
    assert choose_precision(backbone).reason == "the backbone is small"
    monkeypatch.setattr(precision, "_SMALL", {"cpu": 0})
    monkeypatch.setattr(precision, "has_bf16_instructions", lambda: False)
    assert choose_precision(backbone) == PrecisionChoice(used=FP32, reason="the CPU has no bf16 instructions")


def test_measuring_changes_neither_generator_nor_backbone():
    """The steps are real, and leave weights, flags and the stream of random numbers as they were."""
    backbone = tiny_backbone()
    weights = {name: value.clone() for name, value in backbone.state_dict().items()}
    before = torch.get_rng_state()
    with torch.no_grad():
        choice = measured(backbone)
    assert "bf16" in choice.reason
    assert torch.equal(torch.get_rng_state(), before)
    assert backbone.dtype == torch.float32
    assert all(torch.equal(value, weights[name]) for name, value in backbone.state_dict().items())
    assert not any(p.requires_grad or p.grad is not None for p in backbone.parameters())


class Heard:
    """A listener that keeps the notes of the run's start."""

    def __init__(self):
        self.notes = []

    def on_event(self, event):
        if isinstance(event, RunStarted):
            self.notes.append(event.notes)

    def close(self):
        """Nothing to close."""


def test_auto_is_settled_once_and_kept(monkeypatch, tmp_path, quick, catalogue):
    """Configuration, record and notes tell the choice; a resumed run does not choose again."""
    heard, directory = Heard(), tmp_path / "run"
    resolved = quick({"baseline.epochs": 1, "benchmark.tasks": 1}, policy="always", constraints=())
    assert resolved.config.run.precision == "auto"
    monkeypatch.setattr(parts, "choose_precision", lambda backbone: TAKEN)
    record = start(resolved, catalogue, directory, [heard])
    assert record["precision"] == {"used": BF16, "reason": "taken", "asked": "auto"}
    assert record["environment"]["precision"] == record["config"]["run"]["precision"] == BF16
    assert record["environment"]["attention"] == "plain"
    assert read_toml(directory / "config.toml")["run"]["precision"] == BF16
    monkeypatch.setattr(parts, "choose_precision", None)
    (directory / "record.json").unlink()
    again = resume(directory, catalogue, [heard])
    assert again["precision"] == record["precision"]
    assert heard.notes == [("precision bf16-mixed (taken)",), ()]


def test_all_seeds_compute_as_the_first_one(monkeypatch, tmp_path, quick, catalogue):
    """A choice that would change from seed to seed would be a difference between them."""
    choices = iter([TAKEN, PrecisionChoice(used=FP32, reason="another")])
    monkeypatch.setattr(parts, "choose_precision", lambda backbone: next(choices))
    resolved = quick({"baseline.epochs": 1, "benchmark.tasks": 1}, policy="always", constraints=())
    run_seeds(resolved, catalogue, tmp_path, [1, 2])
    used = [read_toml(Path(tmp_path, f"seed-{seed}", "config.toml"))["run"]["precision"] for seed in (1, 2)]
    assert used == [BF16, BF16]
