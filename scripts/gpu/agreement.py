"""How far a device agrees with the CPU in float32: the same seed, a tiny run of every baseline on both."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor

from gpu.lab import Lab, Measurement, Skipped
from gpu.stage import run_through, staged
from lw2g.disk.record import RunDirectory
from lw2g.interfaces.tracker import EpochEnded, Event
from lw2g.learning.session import open_session


def measurements(lab: Lab) -> Iterator[tuple[str, Measurement]]:
    """Yield every baseline in float32 and in bf16, each against the CPU in float32."""
    reference = cache(partial(_figures, lab, "cpu", "32-true"))
    for baseline in lab.baselines:
        for mode, precision in (("fp32", "32-true"), ("bf16", "bf16-mixed")):
            yield f"{baseline} / {mode}", partial(_compare, lab, reference, baseline, precision)


@attrs.frozen(kw_only=True, eq=False)
class Figures:
    """What a tiny run has computed, as float64 on the CPU.

    Attributes:
        losses: Mean loss of every epoch.
        z: Z of every candidate at every decision, NaN where there is none.
        gradients: Of the host phase's loss at its start, by trained parameter; empty without training steps.
        logits: Of the test images after the last task.
        predicted: Predicted classes of the same images.
        sets: Set of each task.
    """

    losses: Tensor
    z: Tensor
    gradients: tuple[Tensor, ...]
    logits: Tensor
    predicted: Tensor
    sets: tuple[int, ...]


class _Losses:
    def __init__(self) -> None:
        self.found: list[float] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, EpochEnded):
            self.found.append(event.loss)

    def close(self) -> None:
        """Nothing to close."""


def _figures(lab: Lab, device: str, precision: str, baseline: str) -> Figures:
    options = {"run.device": device, "run.precision": precision, "run.evaluation_batch": 16}
    resolved = lab.resolve(baseline, "min", options, benchmark="tiny", backbone="tiny")
    session, losses = open_session(resolved.config, lab.catalogue), _Losses()
    with tempfile.TemporaryDirectory() as folder:
        record = run_through(session, resolved, [losses], Path(folder))
        last = len(session.data.stream.tasks) - 1
        predicted = torch.as_tensor(RunDirectory(Path(folder)).read_predictions(last).predicted)
    with torch.no_grad(), session.parts.engine.autocast():
        logits = session.parts.baseline.logits(session.data.evaluator.features_of(len(predicted)))
    candidates = [
        one["measures"]["hindrance"]["value"] if one["measures"] else None
        for entry in record["decisions"]
        for one in entry["candidates"]
    ]
    return Figures(
        losses=_double(losses.found),
        z=_double([float("nan") if z is None else z for z in candidates]),
        gradients=_gradients(lab, baseline, options),
        logits=_double(logits),
        predicted=predicted,
        sets=tuple(record["task_to_set"]),
    )


def _gradients(lab: Lab, baseline: str, options: Mapping[str, Any]) -> tuple[Tensor, ...]:
    resolved = lab.resolve(baseline, "one", options, benchmark="tiny", backbone="tiny")
    try:
        stage = staged(lab, resolved)
    except Skipped:
        return ()
    task = stage.session.data.stream.tasks[stage.context.task.index]
    images = stage.session.data.image_set([task.train], train=False)
    for parameter in stage.phase.trained:
        parameter.requires_grad_(True)
    torch.manual_seed(0)
    with stage.session.parts.engine.autocast():
        loss = stage.phase.step(next(images.batches([range(8)]))).loss
    found = torch.autograd.grad(loss, stage.phase.trained, allow_unused=True)
    return tuple(_double([] if one is None else one) for one in found)


def _double(values: Any) -> Tensor:
    return torch.as_tensor(values).detach().double().cpu()


def _compare(lab: Lab, reference: Any, baseline: str, precision: str) -> dict[str, Any]:
    expected: Figures = reference(baseline)
    got = _figures(lab, str(lab.device), precision, baseline)
    same = expected.sets == got.sets
    found: dict[str, Any] = {
        "losses": _furthest(expected.losses, got.losses),
        "gradients": _largest(map(_furthest, expected.gradients, got.gradients)),
        "logits": _furthest(expected.logits, got.logits),
        "equal_predictions": float((expected.predicted == got.predicted).double().mean()),
        "same_sets": same,
        "z_degrees": None,
    }
    if same:  # else later candidates are others
        measured = ~expected.z.isnan()
        found["z_degrees"] = _largest((expected.z - got.z)[measured].abs().tolist())
    return found


def _largest(values: Iterable[float | None]) -> float | None:
    """Return the largest of what there is."""
    return max((value for value in values if value is not None), default=None)


def _furthest(expected: Tensor, got: Tensor) -> float | None:
    """Return the largest difference relative to the largest value; None where there is nothing."""
    if not expected.numel():
        return None
    return float((expected - got).abs().max() / expected.abs().max().clamp(min=1e-12))
