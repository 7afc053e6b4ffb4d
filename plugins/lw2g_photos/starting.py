"""A first model of images alone, without a run: a head in closed form on a frozen backbone."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from lw2g.blocks.chosen_head import UNIT_SHARE
from lw2g.config.resolve import resolve
from lw2g.config.settings import ExperimentConfig, RunConfig
from lw2g.config.structure import read_plain
from lw2g.config.toml import to_toml
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.context import BuildContext
from lw2g.interfaces.defaults import (
    CHOSEN_HEAD,
    CHOSEN_HEADS,
    DEFAULT_HEAD,
    FEATURES_BENCHMARK,
    FOLDER_BENCHMARK,
    FROZEN_BASELINE,
)
from lw2g.interfaces.pool import Pool
from lw2g.model.exporting import as_exported
from lw2g.model.manifest import Manifest, described, sections
from lw2g.model.parts import ModelParts, build_methods, open_backbone
from lw2g.model.places import require_free, reserved
from lw2g.model.saved import require_usable
from lw2g.model.trained import TrainedModel
from lw2g.pixels.crops import Crops
from lw2g.pixels.found_images import find_images, is_feature_file
from lw2g.pixels.image_files import Crop, examine_image
from lw2g.pixels.small_drawings import require_drawing
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.engine import Engine
from lw2g.runtime.returned import transforms_of
from lw2g.vit.backbone import Backbone
from lw2g.vit.own_feature import with_layers
from lw2g.vit.pool_words import FEATURE_OPTIONS, WIDEST
from lw2g.vit.pooling import layers_within
from lw2g.vit.weights import state_sha256
from lw2g_photos.class_folders import digest_of
from lw2g_photos.class_vectors import facts_of_file, read_class_vectors
from lw2g_photos.head_choice import Untaught, untaught
from lw2g_photos.labelled_images import LabelledImages, paths_among
from lw2g_photos.step_taking import take_step

__all__ = ["require_backbone", "start"]

_OF_LAYERS = {f"backbone.{name}" for name in FEATURE_OPTIONS}
"""Options that say what features a head is fed: where one is set, only the head is chosen."""
_SECTIONS = ("backbone.", "baseline.head_features", "head.")
"""What options may be set of a first model."""
_TOKENS_ON_A_CPU = 1_600
"""Tokens of a forward, above which a CPU takes no less time an image (measured at 17 and 197 an image)."""


def start(
    folder: Path | LabelledImages,
    out: Path,
    catalogue: Catalogue,
    *,
    backbone: str | None = None,
    weights: Path | None = None,
    image_size: int | None = None,
    head: str = CHOSEN_HEAD,
    test: Path | LabelledImages | None = None,
    device: str | None = None,
    settings: Mapping[str, Any] | None = None,
    crops: Crops | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Make a first model from a folder of images, as :func:`lw2g.start` says."""
    choose = head == CHOSEN_HEAD
    # first: an unknown head is reported before any mistake in files and options
    head = catalogue.get("head", DEFAULT_HEAD if choose else head).name
    settings = dict(settings or {})
    for key in settings:
        if not key.startswith(_SECTIONS):
            raise ConfigError(
                f"{key}: only options of the backbone and of the head can be set here",
                "run an experiment: lw2g run",
            )
    # before the backbone, whose weights may have to be fetched
    require_free(out)
    configured = partial(
        _configured,
        catalogue=catalogue,
        folder=folder,
        settings=settings,
        given={"run.device": device, "backbone.image_size": image_size},
        backbone=backbone,
        weights=weights,
        tried=(*CHOSEN_HEADS, CHOSEN_HEAD) if choose else (),
    )
    config = configured(head)
    if backbone is None and catalogue.get("backbone", config.backbone.name).embedded:
        if isinstance(folder, LabelledImages):
            sizes = folder.sizes()
        else:
            sizes = _sizes_of(_first_of_each(folder) if crops is None else crops.crops)
        for name, size in sizes:
            require_drawing(name, size)
    opened = _opened(config, catalogue)
    models = [_first_model(opened, catalogue)]
    if choose:
        layers = 1 if settings.keys() & _OF_LAYERS else _several_layers(opened)
        models += _others_tried(opened, layers, configured, catalogue)
    look = partial(require_usable, catalogue=catalogue, whole=True, device=device, weights=weights)
    with reserved(out, inputs=paths_among(folder, test)) as place:
        begins = models[0].saved.manifest
        return take_step(
            begins, lambda images: models, folder, catalogue, place, look, test=test, crops=crops
        )


def _others_tried(
    opened: _Opened, layers: int, configured: Callable[..., ExperimentConfig], catalogue: Catalogue
) -> list[Untaught]:
    """Return what is tried beside the default head on the backbone's own features.

    Args:
        opened: The backbone.
        layers: Of how many layers the candidates' features are joined, 1 for those of the backbone.
        configured: Returns the configuration of a head on so many layers.
        catalogue: Where components come from.
    """
    models = []
    for head in CHOSEN_HEADS:
        if layers > 1 or head != DEFAULT_HEAD:
            used = _with_layers(opened, configured(head, layers), layers)
            models.append(_first_model(used, catalogue))
    units = _units_asked(configured(CHOSEN_HEAD))
    if units:
        half = max(layers // 2, 1)
        (regression,) = (head for head in CHOSEN_HEADS if head != DEFAULT_HEAD)
        used = _with_layers(opened, configured(regression, half, units), half)
        models.append(_first_model(used, catalogue, units))
    return models


def _units_asked(config: ExperimentConfig) -> int:
    """Return how many random units a candidate has, by the options of the head that is chosen."""
    (head,) = config.head
    units: int = head.config.units
    return units


def _configured(
    head: str,
    layers: int = 1,
    units: int = 0,
    *,
    catalogue: Catalogue,
    folder: Path | LabelledImages,
    settings: Mapping[str, Any],
    given: Mapping[str, Any],
    backbone: str | None,
    weights: Path | None,
    tried: Sequence[str],
) -> ExperimentConfig:
    """Return the configuration of a first model.

    Args:
        head: Its head.
        layers: Of how many layers its features are joined; 1 for what the settings say.
        units: Random units beside these features; 0 for what the settings say of random features.
        catalogue: Where components come from.
        folder: What it learns from.
        settings: Options by their dotted keys.
        given: Further ones, None where nobody gave them.
        backbone: As for :func:`lw2g.start`.
        weights: Likewise.
        tried: Heads that are tried one after the other: each takes its own options.
    """
    others = tuple(f"head.{other}." for other in tried if other != head)
    overrides = {key: value for key, value in settings.items() if not key.startswith(others)}
    component = catalogue.get("head", head)
    for option, value in component.without_tasks.items():
        overrides.setdefault(f"head.{component.name}.{option}", value)
    overrides["baseline.head"] = head
    if tried and head != DEFAULT_HEAD:
        # layers are many numbers already; random features in their place would tell classes apart less well
        overrides.setdefault("baseline.head_features", 0)
    if units:
        overrides |= {"baseline.head_features": units, f"head.{head}.beside": UNIT_SHARE}
    if layers > 1:
        overrides["backbone.layers"] = layers
    overrides |= {key: value for key, value in given.items() if value is not None}
    file = folder if isinstance(folder, Path) and is_feature_file(folder) else None
    config = resolve(
        catalogue,
        overrides=overrides,
        baseline=FROZEN_BASELINE,
        benchmark=FEATURES_BENCHMARK if file is not None else FOLDER_BENCHMARK,
        backbone=backbone,
        weights=weights,
    ).config
    chosen = catalogue.get("backbone", config.backbone.name)
    if chosen.fit_vectors is None:
        return config
    if file is None:
        raise ConfigError(
            f"backbone: {config.backbone.name!r} takes stored features, not images", "name another"
        )
    # a file of stored features says what they are
    facts = facts_of_file(file, digest_of(read_class_vectors(file, "train")))
    fitted = attrs.evolve(config.backbone, config=chosen.fit_vectors(config.backbone.config, facts))
    return attrs.evolve(config, backbone=fitted)


def require_backbone(
    catalogue: Catalogue, backbone: str, *, weights: Path | None, device: str | None
) -> None:
    """Refuse a backbone that no first model can have, before there are images to learn from.

    Raises:
        DataError: Its weights cannot be had.
        ConfigError: There is no such backbone or device.
    """
    config = _configured(
        catalogue.get("head", DEFAULT_HEAD).name,
        catalogue=catalogue,
        folder=Path(),
        settings={},
        given={"run.device": device},
        backbone=backbone,
        weights=weights,
        tried=(),
    )
    _opened(config, catalogue)


@attrs.frozen(kw_only=True, eq=False)
class _Opened:
    """A backbone that is ready to compute.

    Attributes:
        config: With its precision settled.
        engine: Where it computes.
        backbone: It.
    """

    config: ExperimentConfig
    engine: Engine
    backbone: Backbone


def _opened(config: ExperimentConfig, catalogue: Catalogue) -> _Opened:
    """Return the backbone of a configuration, whose precision is settled."""
    chosen = config.backbone

    def build() -> Backbone:
        component = catalogue.get("backbone", chosen.name)
        return component.build(chosen.config, chosen.weights, chosen.image_size)

    config, engine, _, backbone = open_backbone(config, build)
    if engine.device.type == "cpu" and backbone.num_tokens > 0:
        config = attrs.evolve(config, run=_answering_few(config.run, backbone))
    return _Opened(config=config, engine=engine, backbone=backbone)


def _several_layers(opened: _Opened) -> int:
    """Return of how many layers features are joined where the head is chosen, 1 where none can be."""
    if not hasattr(opened.config.backbone.config, "layers"):
        return 1
    return layers_within(opened.backbone.model, WIDEST)


def _with_layers(opened: _Opened, config: ExperimentConfig, layers: int) -> _Opened:
    """Return the same backbone with features of several layers, in the settled precision."""
    used = opened.backbone if layers == 1 else with_layers(opened.backbone, layers)
    return attrs.evolve(opened, config=attrs.evolve(config, run=opened.config.run), backbone=used)


def _first_model(opened: _Opened, catalogue: Catalogue, units: int = 0) -> Untaught:
    """Return a model that knows no class.

    Raises:
        ConfigError: Its head needs tasks.
    """
    config, engine, backbone = opened.config, opened.engine, opened.backbone
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
        still=transforms_of(benchmark, config.benchmark.name, backbone.fingerprint).test,
        infos=(),
    )
    _require_no_stream(empty, config.baseline.config.head)
    return untaught(empty, _manifest_of(config, empty, catalogue), catalogue, units=units)


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
    """Return options with a batch that is as fast as larger ones, and takes less memory."""
    batch = max(1, _TOKENS_ON_A_CPU // backbone.num_tokens)
    return attrs.evolve(run, evaluation_batch=min(run.evaluation_batch, batch))


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


def _first_of_each(folder: Path) -> Iterator[Path]:
    """Yield one image of each class; what is wrong with a folder is reported where all are read."""
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir()):
        paths = find_images(entry).paths if entry.is_dir() else ()
        yield from paths[:1]


def _sizes_of(images: Iterable[Path | Crop]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield what each image is called, and its width and height."""
    for image in images:
        # what cannot be used is reported where all are read
        with suppress(DataError):
            header = image.header if isinstance(image, Crop) else examine_image(image)
            yield repr(str(image)), header.size
