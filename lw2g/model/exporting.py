"""Writing the model of a run as an export: what it needs without its run, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs
from torch import Tensor

from lw2g.disk.checkpoint import part, under
from lw2g.disk.origins import origins_of
from lw2g.disk.stored_run import StoredRun
from lw2g.errors import ConfigError
from lw2g.ground.notes import tell_note
from lw2g.interfaces.component import Kind
from lw2g.model.backbones import require_rebuilt
from lw2g.model.exported import Saved, read_export, write_export
from lw2g.model.live import live_model
from lw2g.model.manifest import Learning, Manifest
from lw2g.model.parts import (
    ModelParts,
    lasting,
    tensors_of,
)
from lw2g.model.places import reserved
from lw2g.model.saved import require_counted, require_usable, run_after, saved_of
from lw2g.model.trained import TrainedModel
from lw2g.registry.catalogue import Catalogue
from lw2g.vit.weights import state_sha256

__all__ = ["Memory", "as_exported", "export_run", "lasting_tensors", "with_backbone_inside"]
Memory: TypeAlias = tuple[Learning, Mapping[str, Tensor], Mapping[str, Tensor]]
"""The history of a model, what rejects unknown images, and what only learning reads."""
_RUN_OPTIONS = ("seed", "precision", "deterministic", "compile", "evaluation_batch", "probabilities")
"""Options of the section ``run`` that a model reads; no role tells which these are."""
_CHOICE = ("head", "layers", "units")
"""What names a head that was chosen."""


def export_run(
    directory: Path,
    catalogue: Catalogue,
    out: Path,
    task: int | None = None,
    *,
    with_backbone: bool = False,
    weights: Path | None = None,
    remember: Callable[[StoredRun, Manifest, TrainedModel], Memory] | None = None,
    tell: Callable[[str], None] = tell_note,
) -> int:
    """Write the model of a run into a new folder, from where :func:`~lw2g.model.saved.open_model` opens it.

    Args:
        directory: The run's directory.
        catalogue: Where its components come from.
        out: The folder.
        task: The task, counted from 1, after which it is wanted; None for the last finished one.
        with_backbone: Whether the frozen weights are put inside.
        weights: A file with the backbone's weights; None for where they were.
        remember: Returns what a model keeps that goes on learning; None for nothing.
        tell: Receives what a user should know.

    Returns:
        The bytes of what was written.

    Raises:
        DataError: There is no such run or task.
        ConfigError: The folder is in use, the run's retrieval must be told the task, or the backbone cannot
            be put inside.
    """
    require_counted(task)
    with reserved(out, inputs=(directory,)) as reserved_path:
        return _export(directory, catalogue, reserved_path, task, with_backbone, weights, remember, tell)


def _export(
    directory: Path,
    catalogue: Catalogue,
    out: Path,
    task: int | None,
    with_backbone: bool,
    weights: Path | None,
    remember: Callable[[StoredRun, Manifest, TrainedModel], Memory] | None,
    tell: Callable[[str], None],
) -> int:
    """Write the model of a run into a folder that is kept for it."""
    run = run_after(directory, task)
    saved = saved_of(run)
    model = live_model(saved, catalogue, device="cpu", weights=weights)
    parts = model.parts
    if parts.retrieval is not None and parts.retrieval.control:
        raise ConfigError(
            f"{parts.names[1]} is told the task, so that nobody could use the model", "export another run"
        )
    tensors = lasting_tensors(parts)
    chosen = parts.config.backbone
    # the state as it computes here: whoever opens the export compares other files with it
    state = parts.backbone.model.state_dict()
    file: str | None = None
    if with_backbone:
        require_rebuilt(chosen, state, catalogue)
        tensors |= under("backbone", state)
    elif chosen.weights is not None:
        file = str(chosen.weights.absolute())
    choice = parts.baseline.findings().get("choice", {})
    manifest = attrs.evolve(
        as_exported(saved.manifest, catalogue),
        state=state_sha256(state),
        backbone=attrs.evolve(saved.manifest.backbone, weights=file),
        choice={key: choice[key] for key in _CHOICE if key in choice},
    )
    learned: Mapping[str, Tensor] = {}
    if remember is not None:
        learning, calibration, learned = remember(run, manifest, model)
        manifest = attrs.evolve(manifest, learning=learning)
        tensors |= under("calibration", calibration)
    elif not parts.unsolved:
        tell("probabilities are uncalibrated; --learnable calibrates them, and lets the model learn")
    # looked at before it gets its name: a folder of this name can be used
    look = partial(
        require_usable, catalogue=catalogue, whole=remember is not None, device="cpu", weights=weights
    )
    return write_export(Saved(manifest=manifest, tensors=tensors, learned=learned), out, look=look)


def with_backbone_inside(directory: Path, catalogue: Catalogue, out: Path, *, weights: Path | None) -> int:
    """Copy an exported model into a new folder, with its frozen weights inside; it learns on as before.

    Args:
        directory: The model.
        catalogue: Where its components come from.
        out: The folder.
        weights: A file with the backbone's weights; None for where they were.

    Returns:
        The bytes of what was written.

    Raises:
        DataError: There is no such model, or its backbone is another one or nowhere.
        ConfigError: The folder is in use, or the backbone cannot be put inside.
    """
    with reserved(out, inputs=(directory,)) as place:
        saved = read_export(directory, whole=True)
        parts = live_model(saved, catalogue, device="cpu", weights=weights).parts
        if parts.backbone.takes_vectors:
            raise ConfigError("a model of stored features has no backbone to put inside", "copy its folder")
        state = parts.backbone.model.state_dict()
        require_rebuilt(parts.config.backbone, state, catalogue)
        manifest = attrs.evolve(
            saved.manifest,
            state=state_sha256(state),
            backbone=attrs.evolve(saved.manifest.backbone, weights=None),
        )
        tensors = {**saved.tensors, **under("backbone", state)}
        whole = manifest.learning is not None
        look = partial(require_usable, catalogue=catalogue, whole=whole, device="cpu", weights=None)
        return write_export(attrs.evolve(saved, manifest=manifest, tensors=tensors), place, look=look)


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
    return attrs.evolve(
        manifest,
        benchmark=benchmark,
        # a run has the options that its lw2g knew; those added since are at their defaults
        run={name: manifest.run[name] for name in _RUN_OPTIONS if name in manifest.run},
        components=origins_of(catalogue, used),
    )
