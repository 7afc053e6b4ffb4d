"""Opening an exported model: without its run, its data, or the components that only learning needs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
from attrs.validators import max_len, min_len
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from lw2g import __version__
from lw2g.blocks.preprocessing import Preprocessing
from lw2g.config.directory import MANIFEST, WEIGHTS
from lw2g.config.model import BackboneChoice, Chosen, ModelConfig, RoutingConfig, RunConfig
from lw2g.config.structure import structure
from lw2g.errors import ConfigError, DataError, PluginError, UnknownComponentError
from lw2g.interfaces.component import Kind
from lw2g.interfaces.context import BuildContext, TaskInfo
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.stream import ImageTransform
from lw2g.registry.catalogue import Catalogue
from lw2g.training.boundary import guarded
from lw2g.training.files.checkpoint import part
from lw2g.training.files.contents import read_sealed, require_fit
from lw2g.training.models.export import FORMAT, untrained
from lw2g.training.models.model import TrainedModel
from lw2g.training.models.parts import (
    ModelParts,
    build_methods,
    engine_of,
    fill,
    lasting,
    lay_foundation,
    mixer_of,
)
from lw2g.vit.backbone import Backbone, BackboneFingerprint
from lw2g.vit.weights import state_sha256

__all__ = ["is_export", "open_export"]


@attrs.frozen(kw_only=True)
class _Chosen:
    name: str
    options: dict[str, Any]


@attrs.frozen(kw_only=True)
class _Backbone(_Chosen):
    image_size: int | None


@attrs.frozen(kw_only=True)
class _Component:
    kind: str
    name: str
    plugin: str
    distribution: str | None
    version: str | None


@attrs.frozen(kw_only=True)
class _Task:
    class_names: list[str]
    num_images: int


@attrs.frozen(kw_only=True)
class _Fingerprint:
    name: str
    sha256: str


@attrs.frozen(kw_only=True)
class _Preprocessing:
    size: int
    resize: str
    interpolation: str
    mean: list[float] = attrs.field(validator=[min_len(3), max_len(3)])
    std: list[float] = attrs.field(validator=[min_len(3), max_len(3)])


@attrs.frozen(kw_only=True)
class _Transform:
    preprocessing: _Preprocessing | None = None
    benchmark: _Chosen | None = None


@attrs.frozen(kw_only=True)
class Export:
    """``model.json``, as far as it is of every version."""

    format: int
    lw2g: str


@attrs.frozen(kw_only=True)
class Manifest(Export):
    """``model.json`` of this version."""

    components: list[_Component]
    baseline: _Chosen
    retrieval: _Chosen | None
    backbone: _Backbone
    routing: dict[str, Any]
    run: dict[str, Any]
    transform: _Transform
    num_tasks: int
    num_classes: int
    task_to_set: list[int]
    tasks: list[_Task]
    fingerprint: _Fingerprint
    state: str
    backbone_inside: bool
    files: dict[str, str]


def is_export(directory: Path) -> bool:
    """Whether a folder holds an exported model."""
    return any((directory / name).is_file() for name in (MANIFEST, WEIGHTS))


def open_export(
    directory: Path,
    catalogue: Catalogue,
    *,
    device: str | None = None,
    batch_size: int | None = None,
    weights: Path | None = None,
) -> TrainedModel:
    """Open an exported model.

    Args:
        directory: Its folder.
        catalogue: Where its components come from.
        device: Where it computes; None for a GPU if there is one.
        batch_size: Images per forward; None for the run's own.
        weights: A file with the backbone's weights.

    Raises:
        DataError: A file is damaged, a component is not installed, or the backbone's weights are other ones
            or nowhere.
        ConfigError: The device is not there.
    """
    told, tensors = _read(directory)
    config = _config(told, catalogue, weights, device, batch_size)
    with guarded(catalogue, config):
        if told["backbone_inside"] and weights is None:
            found = partial(_inside, told, part(tensors, "backbone"), config, catalogue)
        else:
            found = partial(_outside, told, config, catalogue)
        config, base = lay_foundation(config, engine_of(config), found)
        _require_same(told, base.backbone, config.backbone.weights)
        context = BuildContext(
            backbone=base.backbone,
            num_tasks=told["num_tasks"],
            num_classes=told["num_classes"],
            device=base.engine.device,
            seed=config.run.seed,
        )
        baseline, retrieval = build_methods(config, catalogue, context)
        parts = ModelParts(
            config=config,
            engine=base.engine,
            backbone=base.backbone,
            baseline=baseline,
            retrieval=retrieval,
            pool=Pool(),
            mixer=mixer_of(config, base.engine),
            still=_transform(told, base.backbone, catalogue),
            infos=tuple(_infos(told)),
        )
        for index in range(len(parts.infos)):
            parts.begin_task(index)
        with _strictly(told):
            fill(parts, tensors, told["task_to_set"], _completed)
    return TrainedModel(parts, len(parts.infos) - 1, partial(guarded, catalogue, config))


def _read(directory: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what an export says, and its tensors, if every byte is as it was written."""
    again = f"export it anew: lw2g export RUN {directory}"
    path = directory / MANIFEST
    if not path.exists():
        raise DataError(f"the export {str(directory)!r} has lost its {MANIFEST}; put it back, or {again}")
    told = read_sealed(path, Export)
    if told["format"] != FORMAT:
        raise DataError(
            f"{str(path)!r} has format {told['format']!r}, and lw2g {__version__} reads {FORMAT}; {again}, "
            f"or use lw2g {told['lw2g']}"
        )
    require_fit(told, path, Manifest)
    try:
        content = (directory / WEIGHTS).read_bytes()
    except OSError as error:
        raise DataError(f"{str(directory / WEIGHTS)!r} cannot be read: {error.strerror}; {again}") from error
    if hashlib.sha256(content).hexdigest() != told["files"].get(WEIGHTS):
        raise DataError(f"{str(directory / WEIGHTS)!r} does not match its checksum in {MANIFEST}; {again}")
    try:
        return told, load_tensors(content)
    except SafetensorError as error:
        raise DataError(f"{str(directory / WEIGHTS)!r} holds no tensors ({error}); {again}") from error


def _config(
    told: Mapping[str, Any],
    catalogue: Catalogue,
    weights: Path | None,
    device: str | None,
    batch_size: int | None,
) -> ModelConfig:
    backbone = _chosen(told, "backbone", catalogue)
    asked = {"device": device, "evaluation_batch": batch_size}
    run = told["run"] | {name: value for name, value in asked.items() if value is not None}
    ours = f"lw2g {told['lw2g']}"
    return ModelConfig(
        baseline=_chosen(told, "baseline", catalogue),
        retrieval=None if told["retrieval"] is None else _chosen(told, "retrieval", catalogue),
        backbone=BackboneChoice(
            name=backbone.name,
            config=backbone.config,
            weights=weights,
            image_size=told["backbone"]["image_size"],
        ),
        routing=_record(RoutingConfig, told["routing"], ours),
        run=_record(RunConfig, run, ours),
    )


def _chosen(told: Mapping[str, Any], kind: Kind, catalogue: Catalogue) -> Chosen:
    named, origin = told[kind], _made_with(told, kind)
    try:
        component = catalogue.get(kind, named["name"])
    except (UnknownComponentError, PluginError) as error:
        raise DataError(f"{origin} cannot be used here; install it ({error})") from error
    return Chosen(name=component.name, config=_record(component.config, named["options"], origin))


def _record(cls: type[Any], options: Mapping[str, Any], origin: str) -> Any:
    found, problems = structure(cls, options)
    if problems:
        text = ", ".join(f"{key}: {what}" for key, what in problems)
        raise ConfigError(f"{text}; the model was exported with {origin}: install that")
    return found


def _made_with(told: Mapping[str, Any], kind: Kind) -> str:
    """Return a component with its origin, for people."""
    one = next((one for one in told["components"] if one["kind"] == kind), None)
    if one is None:
        return f"{kind} {told[kind]['name']!r}"
    whose = f"plugin {one['plugin']!r}"
    if one["distribution"] is not None:
        whose += f", {one['distribution']} {one['version']}"
    return f"{kind} {one['name']!r} ({whose})"


@contextmanager
def _strictly(told: Mapping[str, Any]) -> Iterator[None]:
    """Tell of state that does not fit its module, which torch reports on many lines."""
    try:
        yield
    except RuntimeError as error:
        if "loading state_dict" not in str(error):
            raise
        what = " ".join(str(error).split())
        raise DataError(
            f"the exported state does not fit the code that is installed ({what:.200}); install "
            f"{_made_with(told, 'baseline')}"
        ) from error


def _inside(
    told: Mapping[str, Any], state: Mapping[str, Tensor], config: ModelConfig, catalogue: Catalogue
) -> Backbone:
    plain = untrained(config.backbone, catalogue)
    if config.run.precision == "bf16-mixed":
        plain.to_bf16()
    plain.model.load_state_dict(state)
    known = dict(told["fingerprint"])
    name = known.pop("name")
    known |= {key: tuple(known[key]) for key in ("mean", "std")}
    return Backbone(plain.model, name=name, fingerprint=BackboneFingerprint(**known))


def _outside(told: Mapping[str, Any], config: ModelConfig, catalogue: Catalogue) -> Backbone:
    chosen = config.backbone
    try:
        return catalogue.get("backbone", chosen.name).build(chosen.config, chosen.weights, chosen.image_size)
    except (ConfigError, DataError) as error:
        what = str(error).partition(";")[0]
        raise DataError(f"{what}; {_wanted(told)}") from error


def _require_same(told: Mapping[str, Any], backbone: Backbone, weights: Path | None) -> None:
    """Refuse another backbone than the model was trained on; the same numbers in another file will do."""
    if backbone.fingerprint.sha256 == told["fingerprint"]["sha256"]:
        return
    if state_sha256(backbone.model.state_dict()) != told["state"]:
        whose = "" if weights is None else f" of {str(weights)!r}"
        raise DataError(
            f"the weights{whose} have SHA-256 {backbone.fingerprint.sha256} and are not those that the model "
            f"was trained on; {_wanted(told)}"
        )


def _wanted(told: Mapping[str, Any]) -> str:
    known = told["fingerprint"]
    return (
        f"give the weights of {known['name']!r} with SHA-256 {known['sha256']} as --weights FILE "
        "(weights= from Python), or export with --with-backbone"
    )


def _transform(told: Mapping[str, Any], backbone: Backbone, catalogue: Catalogue) -> ImageTransform:
    if "preprocessing" in told["transform"]:
        return Preprocessing(**told["transform"]["preprocessing"])
    chosen, known = _chosen({**told, **told["transform"]}, "benchmark", catalogue), backbone.fingerprint
    benchmark = catalogue.get("benchmark", chosen.name).build(chosen.config)
    return benchmark.transforms(known.image_size, known.mean, known.std).test


def _infos(told: Mapping[str, Any]) -> Iterator[TaskInfo]:
    seen = 0
    for index, task in enumerate(told["tasks"]):
        names = tuple(task["class_names"])
        classes = tuple(range(seen, seen := seen + len(names)))
        yield TaskInfo(
            index=index, classes=classes, class_names=names, seen=seen, num_images=task["num_images"]
        )


def _completed(state: dict[str, Tensor], module: Any, whose: str) -> dict[str, Tensor]:
    """Return the state of a module with what only learning reads as it was built."""
    fresh = module.state_dict()
    return {name: fresh[name] for name in fresh.keys() - lasting(module, fresh).keys()} | state
