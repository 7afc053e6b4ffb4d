"""The form of a model that answers, made of its values: components built, and filled with learned state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from torch import Tensor

from lw2g.config.settings import ModelConfig
from lw2g.disk.checkpoint import part
from lw2g.errors import DataError
from lw2g.interfaces.context import BuildContext
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.stream import ImageTransform
from lw2g.model.backbones import backbone_inside, backbone_outside, require_same
from lw2g.model.exported import Saved
from lw2g.model.manifest import Manifest
from lw2g.model.parts import (
    ModelParts,
    build_methods,
    fill,
    lasting,
    mixer_of,
    open_backbone,
    widened,
)
from lw2g.model.trained import TrainedModel
from lw2g.pixels.preprocessing import AsStored, Preprocessing
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.boundary import guarded
from lw2g.runtime.returned import transforms_of
from lw2g.vit.backbone import Backbone
from lw2g.vit.own_feature import with_layers

__all__ = ["empty_parts", "live_model", "model_of", "parts_for"]


def live_model(
    saved: Saved,
    catalogue: Catalogue,
    *,
    device: str | None = None,
    batch_size: int | None = None,
    weights: Path | None = None,
    tasks: int | None = None,
) -> TrainedModel:
    """Return the form of a model that answers.

    Args:
        saved: The model.
        catalogue: Where its components come from.
        device: As for :func:`~lw2g.model.saved.open_model`, as are the next two.
        batch_size: Images per forward, always so many; None for at most as many as the run had.
        weights: A file with the backbone's weights.
        tasks: After how many of its tasks the state was saved, where others have begun since: their rows
            are new. None for all.

    Raises:
        DataError: A component is not installed, or its backbone is another one or nowhere.
        ConfigError: The device is not there, or a component has other options.
    """
    config = saved.manifest.config(catalogue, device=device, batch_size=batch_size, weights=weights)
    model = model_of(saved, _filled(saved, config, catalogue, tasks), catalogue)
    if batch_size is not None:
        model.fills_up = True
    return model


def model_of(saved: Saved, parts: ModelParts, catalogue: Catalogue) -> TrainedModel:
    """Return the model that parts in their learned state make."""
    model = TrainedModel(parts, len(saved.manifest.tasks), partial(guarded, catalogue, parts.config))
    learning = saved.manifest.learning
    if learning is not None:
        model.number(learning.names, learning.numbers)
        model.calibration = part(saved.tensors, "calibration")
    return model


def empty_parts(manifest: Manifest, beside: ModelParts, catalogue: Catalogue) -> ModelParts:
    """Return the parts of a model that has learned nothing, on the backbone of another one.

    Args:
        manifest: The model; its ``fingerprint`` says of how many layers its features are.
        beside: The parts of the other one, which computes where this one is to.
        catalogue: Where its components come from.
    """
    config = manifest.config(catalogue, device=None, batch_size=None, weights=None)
    config = attrs.evolve(config, run=beside.config.run)
    backbone = beside.backbone
    if manifest.fingerprint.layers != backbone.fingerprint.layers:
        backbone = with_layers(backbone, manifest.fingerprint.layers)
    history = manifest.history
    context = BuildContext(
        backbone=backbone,
        num_tasks=history.num_tasks,
        num_classes=history.num_classes,
        device=beside.engine.device,
        seed=config.run.seed,
    )
    baseline, retrieval = build_methods(config, catalogue, context)
    return attrs.evolve(
        beside,
        config=config,
        backbone=backbone,
        baseline=baseline,
        retrieval=retrieval,
        pool=Pool(),
        infos=(),
    )


def parts_for(empty: ModelParts, manifest: Manifest, catalogue: Catalogue) -> ModelParts:
    """Return the parts of a model with room for the tasks of a manifest; the backbone is the same.

    Args:
        empty: The parts of a model without a task.
        manifest: The model with tasks.
        catalogue: Where its components come from.
    """
    context = attrs.evolve(
        empty.baseline.context, num_tasks=manifest.num_tasks, num_classes=manifest.num_classes
    )
    baseline, retrieval = build_methods(empty.config, catalogue, context)
    parts = attrs.evolve(empty, baseline=baseline, retrieval=retrieval, pool=Pool(), infos=manifest.infos)
    parts.pool.restore(manifest.task_to_set, {}, lambda: parts.new_set(None))
    for index in range(len(parts.infos)):
        parts.begin_task(index)
    return parts


def _filled(saved: Saved, config: ModelConfig, catalogue: Catalogue, tasks: int | None) -> ModelParts:
    """Return the parts of a model as they were when its state was saved.

    Args:
        saved: The model.
        config: Its configuration.
        catalogue: Where its components come from.
        tasks: As for :func:`live_model`.
    """
    manifest = saved.manifest
    inside = part(saved.tensors, "backbone") if config.backbone.weights is None else {}
    begun = len(manifest.tasks) if tasks is None else tasks

    def adapt(state: dict[str, Tensor], module: Any, whose: str) -> dict[str, Tensor]:
        whole = _completed(state, module)
        return whole if tasks is None else widened(whole, module.state_dict(), whose)

    with guarded(catalogue, config):
        parts = _parts(manifest, config, catalogue, inside)
        # room for a task is made before its state is put there, and for a new task after that of the others
        for index in range(begun):
            parts.begin_task(index)
        with _strictly(manifest):
            fill(parts, saved.tensors, manifest.task_to_set, adapt)
        for index in range(begun, len(parts.infos)):
            parts.begin_task(index)
    return parts


def _parts(
    manifest: Manifest, config: ModelConfig, catalogue: Catalogue, inside: Mapping[str, Tensor]
) -> ModelParts:
    """Return the parts of a model, as they are before anything is learned.

    Args:
        manifest: What the export says of itself.
        config: As written; its precision is settled here.
        catalogue: Where components come from.
        inside: The backbone's tensors in the export; empty where its weights lie elsewhere.
    """

    def build() -> Backbone:
        if inside:
            return backbone_inside(manifest, inside, config, catalogue)
        return backbone_outside(manifest, config, catalogue)

    # the backbone by a callback: the device is looked for before weights are read
    settled, engine, _, backbone = open_backbone(config, build)
    require_same(manifest, backbone, settled.backbone.weights)
    context = BuildContext(
        backbone=backbone,
        num_tasks=manifest.num_tasks,
        num_classes=manifest.num_classes,
        device=engine.device,
        seed=settled.run.seed,
    )
    baseline, retrieval = build_methods(settled, catalogue, context)
    return ModelParts(
        config=settled,
        engine=engine,
        backbone=backbone,
        baseline=baseline,
        retrieval=retrieval,
        pool=Pool(),
        mixer=mixer_of(settled, engine),
        still=_transform(manifest, backbone, catalogue),
        infos=manifest.infos,
    )


def _transform(manifest: Manifest, backbone: Backbone, catalogue: Catalogue) -> ImageTransform:
    """Return the test transform: of numbers, or as the benchmark makes it, without its data."""
    if backbone.takes_vectors:
        return AsStored()
    if manifest.preprocessing is not None:
        return Preprocessing(**attrs.asdict(manifest.preprocessing))
    if manifest.benchmark is None:
        raise DataError("nothing says how images are transformed", "export the model anew")
    known = backbone.fingerprint
    chosen = manifest.chosen("benchmark", manifest.benchmark, catalogue)
    benchmark = catalogue.get("benchmark", chosen.name).build(chosen.config)
    return transforms_of(benchmark, chosen.name, known).test


@contextmanager
def _strictly(manifest: Manifest) -> Iterator[None]:
    """Tell of state that does not fit its module, which torch reports on many lines."""
    try:
        yield
    except RuntimeError as error:
        if "loading state_dict" not in str(error):
            raise
        what = " ".join(str(error).split())
        raise DataError(
            f"the saved state does not fit the code that is installed ({what:.200})",
            f"install {manifest.made_with('baseline', manifest.baseline)}",
        ) from error


def _completed(state: dict[str, Tensor], module: Any) -> dict[str, Tensor]:
    """Return the state of a module with what only learning reads as it was built: an export leaves it out."""
    fresh = module.state_dict()
    dropped = fresh.keys() - lasting(module, fresh).keys()
    return {name: fresh[name] for name in dropped} | state
