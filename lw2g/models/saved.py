"""Opening a trained model: a run after its newest or a named task, or an export."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import attrs
from torch import Tensor

from lw2g.base.boundary import guarded
from lw2g.config.model import BackboneChoice, ModelConfig
from lw2g.config.toml import read_toml
from lw2g.errors import ConfigError, DataError, Lw2gError
from lw2g.files.checkpoint import part, under
from lw2g.files.contents import require_fit
from lw2g.files.stored_run import StoredRun, open_after
from lw2g.inputs.preprocessing import AsStored, Preprocessing
from lw2g.interfaces.component import Kind
from lw2g.interfaces.context import BuildContext
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.stream import ImageTransform
from lw2g.models.exported import Saved, is_export, read_export, write_export
from lw2g.models.manifest import ComponentOrigin, Learning, Manifest, sections
from lw2g.models.model import TrainedModel
from lw2g.models.parts import (
    ModelParts,
    build_methods,
    engine_of,
    fill,
    lasting,
    mixer_of,
    open_backbone,
    tensors_of,
    widened,
)
from lw2g.models.places import reserved
from lw2g.registry.catalogue import Catalogue
from lw2g.vit.backbone import Backbone
from lw2g.vit.weights import state_sha256

__all__ = [
    "Memory",
    "as_exported",
    "export_run",
    "lasting_tensors",
    "live_model",
    "model_of",
    "open_model",
    "require_usable",
]

Memory: TypeAlias = tuple[Learning, Mapping[str, Tensor], Mapping[str, Tensor]]
"""The history of a model, what rejects unknown images, and what only learning reads."""
_RUN_OPTIONS = ("seed", "precision", "deterministic", "compile", "evaluation_batch")
"""Options of the section ``run`` that an answer depends on."""


def open_model(
    directory: Path,
    catalogue: Catalogue,
    task: int | None = None,
    *,
    device: str | None = None,
    batch_size: int | None = None,
    weights: Path | None = None,
) -> TrainedModel:
    """Open a run or an exported model for use; neither needs data, benchmark or policy.

    Args:
        directory: Its directory.
        catalogue: Where its components come from.
        task: The task, counted from 1, after which a run is wanted; None for the last finished one.
        device: Where it computes (as ``run.device``); None for the run's own, for an export ``auto``.
        batch_size: Images per forward; None for the run's own.
        weights: A file with the backbone's weights; None for where they were.

    Raises:
        DataError: There is no such model, it is damaged, has not finished a task (or not this one), a
            component is not installed, or its backbone is another one or nowhere.
        ConfigError: The device is not there, or tasks are counted from 0.
    """
    _require_counted(task)
    saved = read_export(directory) if is_export(directory) else _saved_of(_run_after(directory, task))
    # a run has a state for each task, an export one alone
    last = len(saved.manifest.tasks)
    if task not in (None, last):
        raise DataError(
            f"{str(directory)!r} holds the model after task {last} alone",
            f"export another one of its run: lw2g export RUN OUT --task {task}",
        )
    return live_model(saved, catalogue, device=device, batch_size=batch_size, weights=weights)


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
        device: As for :func:`open_model`, as are the next two.
        batch_size: Images per forward.
        weights: A file with the backbone's weights.
        tasks: After how many of its tasks the state was saved, where others have begun since: their rows
            are new. None for all.

    Raises:
        DataError: A component is not installed, or its backbone is another one or nowhere.
        ConfigError: The device is not there, or a component has other options.
    """
    config = saved.manifest.config(catalogue, device=device, batch_size=batch_size, weights=weights)
    return model_of(saved, _filled(saved, config, catalogue, tasks), catalogue)


def model_of(saved: Saved, parts: ModelParts, catalogue: Catalogue) -> TrainedModel:
    """Return the model that parts in their learned state make."""
    model = TrainedModel(parts, len(saved.manifest.tasks), partial(guarded, catalogue, parts.config))
    learning = saved.manifest.learning
    if learning is not None:
        model.number(learning.names, learning.numbers)
        model.calibration = part(saved.tensors, "calibration")
    return model


def require_usable(
    directory: Path,
    catalogue: Catalogue,
    *,
    whole: bool,
    device: str | None = None,
    weights: Path | None = None,
) -> None:
    """Open a model that was just written and let it answer for a blank input.

    Args:
        directory: Its folder.
        catalogue: Where its components come from.
        whole: Whether it must be able to go on learning, too.
        device: As for :func:`open_model`.
        weights: Likewise.

    Raises:
        DataError: It cannot be opened, or does not answer.
    """
    try:
        saved = read_export(directory, whole=whole)
        model = live_model(saved, catalogue, device=device, batch_size=1, weights=weights)
        model.predict(model.backbone.blank())  # numbers that are not finite show here, not in the files
    except Lw2gError as error:
        raise DataError(f"the model was written and cannot be used: {error.what}", error.remedy) from error


def export_run(
    directory: Path,
    catalogue: Catalogue,
    out: Path,
    task: int | None = None,
    *,
    with_backbone: bool = False,
    weights: Path | None = None,
    remember: Callable[[StoredRun, Manifest, TrainedModel], Memory] | None = None,
) -> int:
    """Write the model of a run into a new folder, from where :func:`open_model` opens it.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        out: The folder.
        task: The task, counted from 1, after which it is wanted; None for the last finished one.
        with_backbone: Whether the frozen weights are put inside.
        weights: A file with the backbone's weights; None for where they were.
        remember: Returns what a model keeps that goes on learning; None for nothing.

    Returns:
        The bytes of what was written.

    Raises:
        DataError: There is no such run or task.
        ConfigError: The folder is in use, the run's retrieval must be told the task, or the backbone cannot
            be put inside.
    """
    _require_counted(task)
    with reserved(out) as place:
        return _export(directory, catalogue, place, task, with_backbone, weights, remember)


def _export(
    directory: Path,
    catalogue: Catalogue,
    out: Path,
    task: int | None,
    with_backbone: bool,
    weights: Path | None,
    remember: Callable[[StoredRun, Manifest, TrainedModel], Memory] | None,
) -> int:
    """Write the model of a run into a folder that is kept for it."""
    run = _run_after(directory, task)
    saved = _saved_of(run)
    model = live_model(saved, catalogue, device="cpu", weights=weights)
    parts = model.parts
    if parts.retrieval is not None and parts.retrieval.control:
        raise ConfigError(
            f"{parts.names[1]} is told the task, so that nobody could use the model", "export another run"
        )
    tensors = lasting_tensors(parts)
    chosen = parts.config.backbone
    # as it computes here: whoever opens the export compares other files with it
    state = parts.backbone.model.state_dict()
    file: str | None = None
    if with_backbone:
        _require_rebuilt(chosen, state, catalogue)
        tensors |= under("backbone", state)
    elif chosen.weights is not None:
        file = str(chosen.weights.absolute())
    manifest = attrs.evolve(
        as_exported(saved.manifest, catalogue),
        state=state_sha256(state),
        backbone=attrs.evolve(saved.manifest.backbone, weights=file),
    )
    learned: Mapping[str, Tensor] = {}
    if remember is not None:
        learning, calibration, learned = remember(run, manifest, model)
        manifest = attrs.evolve(manifest, learning=learning)
        tensors |= under("calibration", calibration)
    look = partial(
        require_usable, catalogue=catalogue, whole=remember is not None, device="cpu", weights=weights
    )
    return write_export(Saved(manifest=manifest, tensors=tensors, learned=learned), out, look=look)


def lasting_tensors(parts: ModelParts) -> dict[str, Tensor]:
    """Return the learned state that predictions need, by name."""
    tensors = tensors_of(parts)
    for prefix, module in (("baseline", parts.baseline), ("retrieval", parts.retrieval)):
        if module is None:
            continue
        state = part(tensors, prefix)
        for name in state.keys() - lasting(module, state).keys():
            del tensors[f"{prefix}/{name}"]
    return tensors


def _require_counted(task: int | None) -> None:
    if task is not None and task < 1:
        raise ConfigError(f"task: expected a number from 1 but got {task}", "the first task is 1")


def as_exported(manifest: Manifest, catalogue: Catalogue) -> Manifest:
    """Return a run's manifest with the origins of components, and without what only the run needs."""
    backbone = catalogue.get("backbone", manifest.backbone.name)
    benchmark = manifest.benchmark
    if manifest.preprocessing is not None or backbone.fit_vectors is not None:
        benchmark = None  # numbers say how images are transformed, or vectors are taken as they are
    used: list[tuple[Kind, str]] = [("baseline", manifest.baseline.name)]
    if manifest.retrieval is not None:
        used.append(("retrieval", manifest.retrieval.name))
    used.append(("backbone", manifest.backbone.name))
    if benchmark is not None:
        used.append(("benchmark", benchmark.name))
    used += [("head", name) for name in manifest.head]
    used += [("carry", name) for name in manifest.carry]
    components = []
    for kind, name in used:
        origin = attrs.asdict(catalogue.entries[kind, name].origin)
        components.append(ComponentOrigin(kind=kind, name=name, **origin))
    return attrs.evolve(
        manifest,
        benchmark=benchmark,
        run={name: manifest.run[name] for name in _RUN_OPTIONS},
        components=components,
    )


def _run_after(directory: Path, task: int | None) -> StoredRun:
    """Open a run as it was after a task, counted from 1; None for the last finished one."""
    return open_after(directory, None if task is None else task - 1)


def _saved_of(run: StoredRun) -> Saved:
    """Return the model of a run.

    Raises:
        DataError: The run is of an older lw2g.
    """
    checkpoint = run.require_checkpoint()
    config = run.files.config
    if "model" not in checkpoint.progress:
        raise DataError(
            f"run {str(run.files.path)!r} is of an older lw2g, which did not note what its models are made "
            "of",
            f"run it anew: lw2g run {config} --out NEW",
        )
    # plain values: a model needs neither the policy nor the benchmark of its run to be installed
    written = read_toml(config)
    content = {
        **sections(written),
        **checkpoint.progress["model"],
        "tasks": checkpoint.ledger["tasks"],
        "task_to_set": checkpoint.ledger["task_to_set"],
        "learned_from": {
            "name": written["benchmark"]["name"],
            "fingerprint": checkpoint.progress["fingerprints"]["benchmark"],
        },
    }
    return Saved(manifest=require_fit(content, config, Manifest), tensors=checkpoint.tensors)


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
    """Return the parts of a model, as they are before anything is learned."""

    def build() -> Backbone:
        if inside:
            return _inside(manifest, inside, config, catalogue)
        return _outside(manifest, config, catalogue)

    config, engine, _, backbone = open_backbone(config, engine_of(config), build)
    _require_same(manifest, backbone, config.backbone.weights)
    context = BuildContext(
        backbone=backbone,
        num_tasks=manifest.num_tasks,
        num_classes=manifest.num_classes,
        device=engine.device,
        seed=config.run.seed,
    )
    baseline, retrieval = build_methods(config, catalogue, context)
    return ModelParts(
        config=config,
        engine=engine,
        backbone=backbone,
        baseline=baseline,
        retrieval=retrieval,
        pool=Pool(),
        mixer=mixer_of(config, engine),
        still=_transform(manifest, backbone, catalogue),
        infos=manifest.infos,
    )


# -- the backbone --------------------------------------------------------------------------------------------


def _inside(
    manifest: Manifest, state: Mapping[str, Tensor], config: ModelConfig, catalogue: Catalogue
) -> Backbone:
    """Return the backbone whose weights an export brings along."""
    plain = _untrained(config.backbone, catalogue)
    # the weights went along as they computed
    if config.run.precision == "bf16-mixed":
        plain.to_bf16()
    plain.model.load_state_dict(state)
    return Backbone(plain.model, name=manifest.weights_name, fingerprint=manifest.fingerprint)


def _outside(manifest: Manifest, config: ModelConfig, catalogue: Catalogue) -> Backbone:
    """Return the backbone with its weights from where they were, or from where they are said to be."""
    chosen = config.backbone
    try:
        if chosen.weights is not None and not chosen.weights.is_file():
            raise DataError(f"no weights file {str(chosen.weights)!r}")
        return catalogue.get("backbone", chosen.name).build(chosen.config, chosen.weights, chosen.image_size)
    except (ConfigError, DataError) as error:
        raise DataError(error.what, _wanted(manifest)) from error


def _require_same(manifest: Manifest, backbone: Backbone, weights: Path | None) -> None:
    """Refuse another backbone than the model was trained on; the same numbers in another file will do."""
    if backbone.fingerprint.sha256 == manifest.fingerprint.sha256:
        return
    # a fingerprint is of the file: the same weights may come in another one
    if state_sha256(backbone.model.state_dict()) != manifest.state:
        whose = "" if weights is None else f" of {str(weights)!r}"
        raise DataError(
            f"the weights{whose} have SHA-256 {backbone.fingerprint.sha256} and are not those that the model "
            f"was trained on",
            _wanted(manifest),
        )


def _wanted(manifest: Manifest) -> str:
    return (
        f"give the weights of {manifest.weights_name!r} with SHA-256 {manifest.fingerprint.sha256} as "
        "--weights FILE (weights= from Python), or export with --with-backbone"
    )


def _require_rebuilt(chosen: BackboneChoice, held: Mapping[str, Tensor], catalogue: Catalogue) -> None:
    """Refuse to put weights into an export that could not build its model without their file."""
    try:
        state = _untrained(chosen, catalogue).model.state_dict()
    except (ConfigError, DataError):
        state = {}
    if _shapes(state) != _shapes(held):
        raise ConfigError(
            f"backbone {chosen.name!r} cannot be built without its weights file, so that they cannot be put "
            "inside",
            "leave out --with-backbone, and give the file to whoever uses the export",
        )


def _shapes(state: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: value.shape for name, value in state.items()}


def _untrained(chosen: BackboneChoice, catalogue: Catalogue) -> Backbone:
    component = catalogue.get("backbone", chosen.name)
    if component.untrained is None:
        raise ConfigError(f"backbone {chosen.name!r} has no architecture without weights")
    return component.untrained(chosen.config, chosen.image_size)


# -- the rest ------------------------------------------------------------------------------------------------


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
    return benchmark.transforms(known.image_size, known.mean, known.std).test


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
