"""A first model of images alone, without a run: a head in closed form on a frozen backbone."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from lw2g.config.resolve import resolve
from lw2g.config.settings import ExperimentConfig, RunConfig
from lw2g.config.structure import read_plain
from lw2g.config.toml import to_toml
from lw2g.errors import ConfigError
from lw2g.ground.notes import tell_note
from lw2g.interfaces.context import BuildContext
from lw2g.interfaces.defaults import DEFAULT_HEAD, FEATURES_BENCHMARK, FOLDER_BENCHMARK, FROZEN_BASELINE
from lw2g.interfaces.pool import Pool
from lw2g.model.exported import Saved
from lw2g.model.exporting import as_exported, lasting_tensors
from lw2g.model.live import model_of
from lw2g.model.manifest import Manifest, described, sections
from lw2g.model.parts import ModelParts, build_methods, open_backbone
from lw2g.model.places import reserved
from lw2g.model.saved import require_usable
from lw2g.model.trained import TrainedModel
from lw2g.pixels.feature_files import is_feature_file
from lw2g.pixels.found_images import find_images
from lw2g.pixels.image_files import examine_image
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.returned import transforms_of
from lw2g.vit.backbone import Backbone
from lw2g.vit.weights import state_sha256
from lw2g_photos.class_folders import digest_of
from lw2g_photos.class_vectors import facts_of_file, read_class_vectors
from lw2g_photos.updating import take_step

__all__ = ["start"]

_SECTIONS = ("backbone.", "baseline.head_features", "head.")
"""What options may be set of a first model."""
_EMBEDDED_SIDE = 32
"""Side in pixels of the images that the embedded backbone was trained on."""
_TOKENS_ON_A_CPU = 1_600
"""Tokens of a forward, above which a CPU takes no less time an image (measured at 17 and 197 an image)."""


def start(
    folder: Path,
    out: Path,
    catalogue: Catalogue,
    *,
    backbone: str | None = None,
    weights: Path | None = None,
    image_size: int | None = None,
    head: str = DEFAULT_HEAD,
    test: Path | None = None,
    device: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Make a first model from a folder of images, as :func:`lw2g.start` says."""
    # first: an unknown head is reported before any mistake in files and options
    component = catalogue.get("head", head)
    overrides = dict(settings or {})
    for key in overrides:
        if not key.startswith(_SECTIONS):
            raise ConfigError(
                f"{key}: only options of the backbone and of the head can be set here",
                "run an experiment: lw2g run",
            )
    for option, value in component.without_tasks.items():
        overrides.setdefault(f"head.{component.name}.{option}", value)
    given = {"baseline.head": head, "run.device": device, "backbone.image_size": image_size}
    overrides |= {key: value for key, value in given.items() if value is not None}
    benchmark = FEATURES_BENCHMARK if is_feature_file(folder) else FOLDER_BENCHMARK
    config = resolve(
        catalogue,
        overrides=overrides,
        baseline=FROZEN_BASELINE,
        benchmark=benchmark,
        backbone=backbone,
        weights=weights,
    ).config
    chosen = catalogue.get("backbone", config.backbone.name)
    if backbone is None and chosen.embedded:
        _require_small(folder)
    if chosen.fit_vectors is not None:
        facts = facts_of_file(folder, digest_of(read_class_vectors(folder, "train")))
        fitted = attrs.evolve(config.backbone, config=chosen.fit_vectors(config.backbone.config, facts))
        config = attrs.evolve(config, backbone=fitted)
    config, empty = _opened(config, catalogue)
    _require_no_stream(empty, head)
    for text in empty.layer_notes:
        tell_note(text)

    def build(more: Saved) -> TrainedModel:
        parts = _parts_for(empty, catalogue, more.manifest)
        parts.pool.grow(parts.new_set(None))
        parts.begin_task(0)
        return model_of(more, parts, catalogue)

    saved = Saved(manifest=_manifest_of(config, empty, catalogue), tensors=lasting_tensors(empty))
    look = partial(require_usable, catalogue=catalogue, whole=True, device=device, weights=weights)
    with reserved(out, inputs=(folder, test)) as place:
        return take_step(saved, folder, build, catalogue, place, look, test=test)


def _opened(config: ExperimentConfig, catalogue: Catalogue) -> tuple[ExperimentConfig, ModelParts]:
    """Return the configuration with its precision settled, and the parts of a model that knows no class."""

    chosen = config.backbone

    def build() -> Backbone:
        component = catalogue.get("backbone", chosen.name)
        return component.build(chosen.config, chosen.weights, chosen.image_size)

    config, engine, _, backbone = open_backbone(config, build)
    if engine.device.type == "cpu" and backbone.num_tokens > 0:
        config = attrs.evolve(config, run=_answering_few(config.run, backbone))
    known = backbone.fingerprint
    benchmark = catalogue.get("benchmark", config.benchmark.name).build(config.benchmark.config)
    context = BuildContext(
        backbone=backbone, num_tasks=0, num_classes=0, device=engine.device, seed=config.run.seed
    )
    baseline, retrieval = build_methods(config, catalogue, context)
    empty = ModelParts(
        config=config,
        engine=engine,
        backbone=backbone,
        baseline=baseline,
        retrieval=retrieval,
        pool=Pool(),
        mixer=None,
        still=transforms_of(benchmark, config.benchmark.name, known).test,
        infos=(),
    )
    return config, empty


def _require_no_stream(empty: ModelParts, head: str) -> None:
    """Refuse a head whose scores depend on how the images are cut into tasks: here they come at once.

    Raises:
        ConfigError: The head does not declare that it is exact.
    """
    closed = empty.baseline.closed_form
    if closed is None or not closed.exact:
        raise ConfigError(
            f"head: the scores of {head!r} may depend on how images are cut into tasks (its class does not "
            "declare `exact`), and a first model has no tasks",
            "take another, such as lda, ridge, cosine or mahalanobis, or run an experiment: lw2g run",
        )


def _answering_few(run: RunConfig, backbone: Backbone) -> RunConfig:
    """Return options with which the model soon answers for one image.

    An answer fills up a whole batch, so that its bits do not depend on what else was asked.
    """
    batch = max(1, _TOKENS_ON_A_CPU // backbone.num_tokens)
    return attrs.evolve(run, evaluation_batch=min(run.evaluation_batch, batch))


def _parts_for(empty: ModelParts, catalogue: Catalogue, manifest: Manifest) -> ModelParts:
    """Return the parts of a model with room for the classes of a manifest; the backbone is the same."""
    context = attrs.evolve(
        empty.baseline.context, num_tasks=manifest.num_tasks, num_classes=manifest.num_classes
    )
    baseline, retrieval = build_methods(empty.config, catalogue, context)
    return attrs.evolve(empty, baseline=baseline, retrieval=retrieval, pool=Pool(), infos=manifest.infos)


def _manifest_of(config: ExperimentConfig, empty: ModelParts, catalogue: Catalogue) -> Manifest:
    """Return what a model is made of that knows no class."""
    # by way of the file that a run would have, so that both have one form
    written = sections(tomllib.loads(to_toml(config)))
    content = {**written, **described(empty), "tasks": [], "task_to_set": []}
    manifest = as_exported(read_plain(content, Manifest), catalogue)
    file = manifest.backbone.weights
    if file is not None:
        file = str(Path(file).absolute())
    return attrs.evolve(
        manifest,
        state=state_sha256(empty.backbone.model.state_dict()),
        backbone=attrs.evolve(manifest.backbone, weights=file),
    )


def _require_small(folder: Path) -> None:
    """Refuse photos where no backbone was named: the embedded one knows small drawings alone.

    One image of each class is looked at; what is wrong with a folder is reported where all are read.

    Raises:
        ConfigError: An image is larger than what the embedded backbone was trained on.
    """
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir()):
        paths = find_images(entry).paths if entry.is_dir() else ()
        first = next(iter(paths), None)
        if first is None:
            continue
        width, height = examine_image(first).size
        if max(width, height) > _EMBEDDED_SIDE:
            raise ConfigError(
                f"{str(first)!r} has {width} x {height} pixels, and the embedded backbone knows drawings of "
                f"up to {_EMBEDDED_SIDE} x {_EMBEDDED_SIDE} alone",
                "for photos: --backbone vit-tiny (23 MB); to use it all the same: --backbone micro",
            )
