"""The functions of lw2g for models that go on learning: start, learn, unlearn.

Importing this module imports neither torch nor any plugin.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lw2g.ground.spelling import expands_paths
from lw2g.interfaces.defaults import DEFAULT_HEAD
from lw2g.runtime.collector import collector_waits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lw2g.model.trained import TrainedModel

__all__ = ["learn", "start", "unlearn"]


@expands_paths
def start(
    folder: str | Path,
    out: str | Path,
    *,
    backbone: str | None = None,
    weights: str | Path | None = None,
    image_size: int | None = None,
    head: str = DEFAULT_HEAD,
    settings: Mapping[str, Any] | None = None,
    test: str | Path | None = None,
    device: str | None = None,
    local: Mapping[str, Any] | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Make a first model of the images in ``folder``/CLASS: a closed-form head on a frozen backbone.

    ``folder`` may be a file of stored features (``lw2g data features``); then there is no backbone to name.

    The embedded backbone ``micro`` knows small drawings and no photos: name another for real images.

    Args:
        folder: ``CLASS/IMAGE``, or a file of stored features.
        out: The model's folder.
        backbone: A backbone, or any timm model; None for micro.
        weights: The backbone's weights.
        image_size: Side of its input in pixels; None for its own.
        head: A head whose scores do not depend on how images are cut into tasks: lda, ridge, cosine,
            mahalanobis, or one of your own that declares ``exact``.
        settings: Options of the backbone and the head by their dotted keys, such as ``backbone.pool=avg``,
            ``baseline.head_features=0``.
        test: Images, CLASS/*, that check the result; None for a fifth of the new ones, which join
            afterwards.
        device: cpu, cuda, cuda:N or mps; None for a GPU if present.
        local: As for :func:`lw2g.resume`.

    Returns:
        The model, and the report of :func:`learn`.

    Raises:
        DataError: The folder, an image or the weights cannot be used.
        ConfigError: A name is unknown, or ``out`` is in use.
    """
    from lw2g.api.given_objects import Locals

    with collector_waits():
        from lw2g_photos.starting import start as begin

        catalogue = Locals.of(local).catalogue()
    model, report = begin(
        Path(folder),
        Path(out),
        catalogue,
        backbone=backbone,
        weights=_path(weights),
        image_size=image_size,
        head=head,
        settings=settings,
        test=_path(test),
        device=device,
    )
    return _with_learner(model, report, weights, device, local), report


@expands_paths
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
    """Let the exported ``model`` learn the images in ``folder``/CLASS; the result goes into a new folder.

    A known name adds images to that class, any other name is a new class. No old image is read. The backbone
    stays as it is and the sums of the closed-form head grow, so the result is the model that a stream with
    the same images would have. A model of stored features learns from the training rows of a file of these
    (``test``: from its test rows).

    A run that shall train on new classes goes on with ``lw2g continue RUN --benchmark folder``.

    Args:
        model: The export, which is not changed.
        folder: ``CLASS/IMAGE``, or a file of stored features.
        out: The new folder; None for the next free MODEL-N.
        test: Images, CLASS/*, that check the result; None for a fifth of the new ones, which join
            afterwards.
        max_loss: Points of accuracy that the old classes may lose, measured or estimated, before the result
            is refused.
        weights: The backbone's weights, if they have moved.
        device: cpu, cuda, cuda:N or mps; None for a GPU if present.
        local: As for :func:`lw2g.resume`.

    Returns:
        The new model, and the report as ``lw2g learn --json`` prints it.

    Raises:
        DataError: The model, the folder or an image cannot be used.
        ConfigError: The head cannot learn, ``out`` is in use, or the old classes lose too much.
    """
    from lw2g.api.given_objects import catalogue_of

    with collector_waits():
        from lw2g_photos.updating import learn as add

        catalogue = catalogue_of(local, model)
    learned, report = add(
        Path(model),
        Path(folder),
        catalogue,
        out=_path(out),
        test=_path(test),
        max_loss=max_loss,
        weights=_path(weights),
        device=device,
    )
    return _with_learner(learned, report, weights, device, local), report


@expands_paths
def unlearn(
    model: str | Path,
    name: str | None = None,
    *,
    out: str | Path | None = None,
    weights: str | Path | None = None,
    device: str | None = None,
    local: Mapping[str, Any] | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Take a class or the last step of the exported ``model`` back, and write the result into a new folder.

    The sums have the same bits as if it had never been learned. The numbers of other classes stay.

    Args:
        model: The export, which is not changed.
        name: The class; None for the last step.
        out: The new folder; None for the next free MODEL-N.
        weights: The backbone's weights, if they have moved.
        device: cpu, cuda, cuda:N or mps; None for a GPU if present.
        local: As for :func:`lw2g.resume`.

    Returns:
        The new model, and what was forgotten and what of it may remain.

    Raises:
        DataError: There is no such class or step.
        ConfigError: The head's sums do not tell the class from others.
    """
    from lw2g.api.given_objects import catalogue_of

    with collector_waits():
        from lw2g_photos.updating import unlearn as remove

        catalogue = catalogue_of(local, model)
    reduced, report = remove(
        Path(model), name, catalogue, out=_path(out), weights=_path(weights), device=device
    )
    return _with_learner(reduced, report, weights, device, local), report


def _path(given: str | Path | None) -> Path | None:
    if given is None:
        return None
    return Path(given)


def _with_learner(
    model: TrainedModel,
    report: Mapping[str, Any],
    weights: str | Path | None,
    device: str | None,
    local: Mapping[str, Any] | None,
) -> TrainedModel:
    """Return a new model, whose ``learn`` goes on from the folder that was written."""
    model.learner = partial(learn, report["out"], weights=weights, device=device, local=local)
    return model
