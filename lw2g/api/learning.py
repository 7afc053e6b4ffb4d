"""The functions of lw2g for models that go on learning: start, learn, unlearn.

Importing this module imports neither torch nor any plugin.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lw2g.models.model import TrainedModel

__all__ = ["learn", "start", "unlearn"]


def start(
    folder: str | Path,
    out: str | Path,
    *,
    backbone: str | None = None,
    weights: str | Path | None = None,
    image_size: int | None = None,
    head: str = "lda",
    test: str | Path | None = None,
    device: str | None = None,
    local: Mapping[str, Any] | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Make a first model of a folder of images, without a run: a closed-form head on a frozen backbone.

    Args:
        folder: ``CLASS/IMAGE``.
        out: The model's folder.
        backbone: Its name; None for the embedded one, which knows small drawings and no photos.
        weights: A file with its weights.
        image_size: Side of its input in pixels; None for its own.
        head: ``lda``, ``cosine`` or ``mahalanobis``.
        test: As for :func:`learn`.
        device: As for :func:`lw2g.load`.
        local: As for :func:`lw2g.resume`.

    Returns:
        The model, and the report of :func:`learn`.

    Raises:
        DataError: The folder, an image or the weights cannot be used.
        ConfigError: A name is unknown, or ``out`` is in use.
    """
    from lw2g.api.local import Locals
    from lw2g.updates.starting import start as begin

    files: dict[str, Any] = {"weights": _path(weights), "test": _path(test)}
    options: dict[str, Any] = {"backbone": backbone, "image_size": image_size, "head": head, "device": device}
    made = begin(Path(folder), Path(out), Locals.of(local).catalogue(), **files, **options)
    return _able(*made, weights, device, local)


def learn(
    model: str | Path,
    folder: str | Path,
    *,
    out: str | Path | None = None,
    test: str | Path | None = None,
    max_loss: float | None = None,
    weights: str | Path | None = None,
    device: str | None = None,
    local: Mapping[str, Any] | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Let an exported model learn new classes, or more images of known ones; no old image is read.

    The backbone stays as it is and the sums of the closed-form head grow, so the result is the model that a
    stream with the same images would have.

    Args:
        model: The export, which is not changed.
        folder: ``CLASS/IMAGE``.
        out: The new model's folder; None for the next free ``MODEL-2``, ``MODEL-3``.
        test: Images of the same form that check the result; None for a fifth of the new ones, which join
            after the check.
        max_loss: Points of accuracy that the old classes may lose, as measured or estimated.
        weights: As for :func:`lw2g.load`.
        device: As for :func:`lw2g.load`.
        local: As for :func:`lw2g.resume`.

    Returns:
        The new model, and the report as ``lw2g learn --json`` prints it.

    Raises:
        DataError: The model, the folder or an image cannot be used.
        ConfigError: The head cannot learn, ``out`` is in use, or the old classes lose too much.
    """
    from lw2g.api.local import Locals
    from lw2g.updates.learning import learn as add

    files: dict[str, Any] = {"out": _path(out), "test": _path(test), "weights": _path(weights)}
    options: dict[str, Any] = {"max_loss": max_loss, "device": device}
    made = add(Path(model), Path(folder), Locals.of(local).catalogue(), **files, **options)
    return _able(*made, weights, device, local)


def unlearn(
    model: str | Path,
    name: str | None = None,
    *,
    out: str | Path | None = None,
    weights: str | Path | None = None,
    device: str | None = None,
    local: Mapping[str, Any] | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Take a class of an exported model back, or its last step, as if it had never been learned.

    Args:
        model: The export, which is not changed.
        name: The class; None for the last step.
        out: As for :func:`learn`.
        weights: As for :func:`lw2g.load`.
        device: As for :func:`lw2g.load`.
        local: As for :func:`lw2g.resume`.

    Returns:
        The new model, and what was forgotten and what of it may remain.

    Raises:
        DataError: There is no such class or step.
        ConfigError: The head's sums do not tell the class from others.
    """
    from lw2g.api.local import Locals
    from lw2g.updates.learning import unlearn as remove

    files = {"out": _path(out), "weights": _path(weights)}
    made = remove(Path(model), name, Locals.of(local).catalogue(), **files, device=device)
    return _able(*made, weights, device, local)


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _able(
    model: TrainedModel,
    report: dict[str, Any],
    weights: str | Path | None,
    device: str | None,
    local: Mapping[str, Any] | None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Return a new model, which can go on learning, and its report."""
    model.learner = partial(learn, report["out"], weights=weights, device=device, local=local)
    return model, report
