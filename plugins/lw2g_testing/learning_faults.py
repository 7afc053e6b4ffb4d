"""Why a baseline learns nothing, or ends in an error: what its author has to look at."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from lw2g_testing.cases import Subject, methods_of, told_line
from lw2g_testing.moved_session import MovedSession
from lw2g_testing.small_run import begin, opened

__all__ = ["why_unmoved", "wrong_shape"]


def wrong_shape(subject: Subject) -> str:
    """Return what a baseline returns of another shape than it has to, with the line; empty if nothing is."""
    if subject.component.kind != "baseline":
        return ""
    try:
        session = opened(subject)
        begin(session, 0)
        now = MovedSession(session=session)
        images = now.images
        batch = now.batch(range(images))
        with torch.no_grad():
            features: Any = now.baseline.features(batch, now.pool.force(0))
            if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != images:
                wanted = f"return a tensor [{images}, F], a row an image"
                return _shape_told(now.baseline.features, features, images, wanted)
            logits: Any = now.baseline.logits(now.as_answers(features))
    except Exception:  # a plugin's code may raise anything, which is told as it is
        return ""
    classes = now.baseline.context.num_classes
    if not isinstance(logits, Tensor) or logits.shape != (images, classes):
        wanted = f"return a tensor [{images}, {classes}], a column for each class (context.num_classes)"
        return _shape_told(now.baseline.logits, logits, images, wanted)
    return ""


def _shape_told(method: Any, returned: object, images: int, wanted: str) -> str:
    """Return what a method returns, what it has to, and its line that returns."""
    name = method.__name__
    what = list(returned.shape) if isinstance(returned, Tensor) else f"a {type(returned).__name__}"
    lines, first = inspect.getsourcelines(method)
    returning = [number for number, text in enumerate(lines, first) if text.strip().startswith("return ")]
    place = told_line(inspect.getfile(method), (returning or [first])[-1], name)
    return f"{name} returns {what} for {images} images; {wanted} ({place})"


def why_unmoved(subject: Subject, parameter: str) -> str:
    """Return that no task changes a parameter, and what to do in the baseline's phases."""
    session = opened(subject)
    context = begin(session, 0)
    baseline = session.parts.baseline
    phases = methods_of(baseline, "phases")
    if not baseline.phases(context):
        return (
            f"{phases} returns no phase, so that no task changes the parameter {parameter!r}; return a "
            "TrainingPhase"
        )
    return (
        f"no task changes the parameter {parameter!r}; put it into the groups of a TrainingPhase whose loss "
        f"depends on it, in {phases}, or register it as a buffer"
    )
