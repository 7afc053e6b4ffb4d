"""Learning after the run: new classes, or more images of known ones, from their images alone.

The backbone and the sets stay as they are; only the sums of a closed-form head grow. So a step is exact: it
gives the head that a stream with the same images would have. The model keeps the features of the images it
learns from (``learned.safetensors``) and the sums before the first step. Taking a step or a class back means
to add up again without it, which has the same bits as never having learned it.
"""

from __future__ import annotations

import copy
import math
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor

from lw2g import __version__
from lw2g.base.boundary import guarded
from lw2g.config.directory import WEIGHTS
from lw2g.config.resolve import resolve
from lw2g.config.structure import read_plain
from lw2g.config.toml import to_toml
from lw2g.errors import ConfigError, DataError
from lw2g.files.checkpoint import part, under
from lw2g.files.stored_run import StoredRun
from lw2g.images.streams import as_one_task, joined
from lw2g.inputs.feature_files import is_feature_file
from lw2g.inputs.image_files import examine_image, image_paths
from lw2g.interfaces.context import BuildContext
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.stream import Task
from lw2g.models.class_folders import digest_of, read_class_folders, shared_files
from lw2g.models.class_vectors import facts_of_file, read_class_vectors
from lw2g.models.expert import expert_of
from lw2g.models.exported import write_export
from lw2g.models.manifest import Manifest, Step, described, sections
from lw2g.models.model import TrainedModel
from lw2g.models.parts import ModelParts, build_methods, engine_of, open_backbone
from lw2g.models.places import reserved
from lw2g.models.saved import (
    Memory,
    as_exported,
    export_run,
    filled,
    lasting_tensors,
    require_usable,
    trained,
)
from lw2g.registry.catalogue import Catalogue
from lw2g.updates.solved import Solved
from lw2g.updates.step_checks import calibration_of, look_alikes, recall, warnings_of
from lw2g.updates.steps import (
    Saved,
    base_classes,
    features_of,
    grown,
    names_of,
    read_saved,
    without_class,
    without_step,
)
from lw2g.vit.weights import state_sha256

__all__ = ["export_learnable", "learn", "solved_of", "start", "unlearn"]

_EMBEDDED_SIDE = 32
"""Side in pixels of the images that the embedded backbone was trained on."""
_KEPT = 20
"""Images of each class of a run whose features an export keeps."""


def learn(
    directory: Path,
    folder: Path,
    catalogue: Catalogue,
    *,
    out: Path | None = None,
    test: Path | None = None,
    max_loss: float | None = None,
    device: str | None = None,
    weights: Path | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Let an exported model learn from new images, as :func:`lw2g.learn` says, and write the result."""
    if max_loss is not None and not 0 <= max_loss < math.inf:
        raise ConfigError(f"max-loss: expected points of accuracy from 0 but got {max_loss}", "such as 2.5")
    saved = read_saved(directory)

    def build(manifest: Manifest) -> ModelParts:
        config = manifest.config(catalogue, device=device, batch_size=None, weights=weights)
        return filled(manifest, saved.tensors, config, catalogue, tasks=len(saved.manifest.tasks))

    look = _look(catalogue, device=device, weights=weights)
    with reserved(out, directory) as place:
        return _learned(saved, folder, build, catalogue, place, look, test=test, max_loss=max_loss)


def export_learnable(
    directory: Path, catalogue: Catalogue, out: Path, task: int | None = None, **options: Any
) -> int:
    """Write the model of a run as :func:`~lw2g.models.saved.export_run`, with features to learn by.

    It keeps those of the first 20 training images of each class: they are left out of the sums in turn to
    see what a step costs old classes, and where unknown images begin.

    Raises:
        DataError: As there, or the run's data have changed or gone.
        ConfigError: As there, or the head cannot learn.
    """

    def remember(run: StoredRun, manifest: Manifest, parts: ModelParts) -> Memory:
        solved = solved_of(parts)
        model = TrainedModel(parts, len(manifest.tasks))
        learned: dict[str, Tensor] = {}
        with guarded(catalogue, parts.config):
            for taught in _tasks_of(run, catalogue, manifest):
                for label in taught.classes:
                    rows = taught.train.indices[taught.train.labels == label][:_KEPT]
                    images = [taught.train.source.image(int(row)) for row in rows]
                    learned[f"kept/{label}"] = model.features(images, queries=solved.expert is not None).cpu()
            saved = Saved(manifest=manifest, tensors={}, learned=learned)
            calibration, _, _ = calibration_of(solved, saved)
        return saved.learning, calibration, learned

    return export_run(directory, catalogue, out, task, remember=remember, **options)


def _tasks_of(run: StoredRun, catalogue: Catalogue, manifest: Manifest) -> Sequence[Task]:
    """Return the tasks that a run has learned.

    Raises:
        DataError: Its data are others now.
    """
    config = run.resolved(catalogue).config
    chosen = [config.benchmark, *run.later_benchmarks(catalogue)]
    streams = [catalogue.get("benchmark", one.name).build(one.config).stream() for one in chosen]
    _, stream = joined(chosen, streams)
    if catalogue.get("baseline", config.baseline.name).joint:
        stream = as_one_task(stream)
    if stream.fingerprint != manifest.learned_from.get("fingerprint"):
        raise DataError(
            f"the data of {str(run.files.path)!r} have changed",
            "restore them, or export without --learnable",
        )
    return stream.tasks[: len(manifest.tasks)]


def start(
    folder: Path,
    out: Path,
    catalogue: Catalogue,
    *,
    backbone: str | None = None,
    weights: Path | None = None,
    image_size: int | None = None,
    head: str = "lda",
    test: Path | None = None,
    device: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Make a first model from a folder of images, as :func:`lw2g.start` says."""
    if head not in ("lda", "cosine", "mahalanobis"):
        raise ConfigError(f"head: {head!r} chooses its constants by a stream", "lda, cosine or mahalanobis")
    settings = settings or {}
    if strange := [key for key in settings if not key.startswith("backbone.")]:
        raise ConfigError(
            f"{strange[0]}: only options of the backbone can be set here", "run an experiment: lw2g run"
        )
    given = {"baseline.head": head, "run.device": device, "backbone.image_size": image_size}
    overrides = {**settings, **{key: value for key, value in given.items() if value is not None}}
    kind = "features" if is_feature_file(folder) else "folder"
    wanted = resolve(
        catalogue,
        overrides=overrides,
        baseline="simple-cil",
        benchmark=kind,
        backbone=backbone,
        weights=weights,
    ).config
    chosen = wanted.backbone
    if backbone is None and catalogue.get("backbone", chosen.name).embedded:
        _require_small(folder)
    fit = catalogue.get("backbone", chosen.name).fit_vectors
    if fit is not None:
        digest = digest_of(read_class_vectors(folder, "train"))
        chosen = attrs.evolve(chosen, config=fit(chosen.config, facts_of_file(folder, digest)))
        wanted = attrs.evolve(wanted, backbone=chosen)
    config, engine, _, opened = open_backbone(
        wanted,
        engine_of(wanted),
        lambda: catalogue.get("backbone", chosen.name).build(
            chosen.config, chosen.weights, chosen.image_size
        ),
    )
    known = opened.fingerprint
    benchmark = catalogue.get("benchmark", kind).build(config.benchmark.config)
    still = benchmark.transforms(known.image_size, known.mean, known.std).test

    def parts_for(tasks: int, classes: int) -> ModelParts:
        context = BuildContext(
            backbone=opened,
            num_tasks=tasks,
            num_classes=classes,
            device=engine.device,
            seed=config.run.seed,
        )
        baseline, retrieval = build_methods(config, catalogue, context)
        return ModelParts(
            config=config,
            engine=engine,
            backbone=opened,
            baseline=baseline,
            retrieval=retrieval,
            pool=Pool(),
            mixer=None,
            still=still,
            infos=(),
        )

    empty = parts_for(0, 0)
    content = {**sections(tomllib.loads(to_toml(config))), **described(empty), "tasks": [], "task_to_set": []}
    manifest = as_exported(read_plain(content, Manifest), catalogue)
    file = manifest.backbone.weights
    manifest = attrs.evolve(
        manifest,
        state=state_sha256(opened.model.state_dict()),
        backbone=attrs.evolve(
            manifest.backbone, weights=None if file is None else str(Path(file).absolute())
        ),
    )

    def build(manifest: Manifest) -> ModelParts:
        parts = attrs.evolve(parts_for(manifest.num_tasks, manifest.num_classes), infos=manifest.infos)
        parts.pool.grow(parts.new_set(None))
        parts.begin_task(0)
        return parts

    saved = Saved(manifest=manifest, tensors=lasting_tensors(empty), learned={})
    look = _look(catalogue, device=device, weights=weights)
    with reserved(out) as place:
        return _learned(saved, folder, build, catalogue, place, look, test=test)


def _require_small(folder: Path) -> None:
    """Refuse photos where no backbone was named: the embedded one knows small drawings alone.

    One image of each class is looked at; what is wrong with a folder is told where all are read.

    Raises:
        ConfigError: An image is larger than what the embedded backbone was trained on.
    """
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        first = next(iter(image_paths(entry)), None) if entry.is_dir() else None
        if first is None:
            continue
        width, height = examine_image(first).size
        if max(width, height) > _EMBEDDED_SIDE:
            raise ConfigError(
                f"{str(first)!r} has {width} x {height} pixels, and the embedded backbone knows drawings of "
                f"up to {_EMBEDDED_SIDE} x {_EMBEDDED_SIDE} alone",
                "for photos: --backbone vit-tiny (23 MB); to use it all the same: --backbone micro",
            )


def unlearn(
    directory: Path,
    name: str | None,
    catalogue: Catalogue,
    *,
    out: Path | None = None,
    device: str | None = None,
    weights: Path | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Take a class or the last step back, as :func:`lw2g.unlearn` says, and write the result."""
    saved = read_saved(directory)

    def has_own_rows() -> bool:
        config = saved.manifest.config(catalogue, device=device, batch_size=None, weights=weights)
        baseline = filled(saved.manifest, saved.tensors, config, catalogue).baseline
        head = baseline.closed_form
        return head is not None and head.class_rows and expert_of(baseline) is None

    less = without_step(saved) if name is None else without_class(saved, name, has_own_rows)
    if not less.manifest.tasks:
        raise ConfigError("the model would know no class any more", "remove its folder instead")
    config = less.manifest.config(catalogue, device=device, batch_size=None, weights=weights)
    parts = filled(less.manifest, less.tensors, config, catalogue, tasks=less.learning.tasks)
    solved, first = solved_of(parts), base_classes(less)
    with guarded(catalogue, config):
        for number in range(len(less.learning.steps)):
            rows = features_of(less.learned, number)
            _add(solved, rows, first)
            first += len(rows)
        calibration, _, _ = calibration_of(solved, less)
    steps = less.learning.steps
    learned = (
        less.learned
        if steps
        else {key: value for key, value in less.learned.items() if not key.startswith(("base/", "new/"))}
    )
    gone = sorted(set(names_of(saved.manifest)) - set(names_of(less.manifest)))
    look = _look(catalogue, device=device, weights=weights)
    with reserved(out, directory) as place:
        made = _written(less, parts, calibration, learned, place, catalogue, look)
    report = {
        "out": str(place),
        "forgotten": gone,
        "classes": names_of(less.manifest),
        "remains": _remains(parts),
    }
    return made, report


def solved_of(parts: ModelParts) -> Solved:
    """Return what learns: the head, and the frozen expert beside it.

    Raises:
        ConfigError: The model has none whose sums can grow.
    """
    head = parts.baseline.closed_form
    reason = ""
    if head is None:
        reason = f"the head of {parts.names[0]} is trained"
    elif parts.retrieval is not None or parts.mixer is not None or parts.baseline.scope.each:
        reason = f"{parts.names[0]} chooses among sets"
    if head is None or reason:
        raise ConfigError(
            f"{reason}, so that new classes cannot be added to sums",
            "use a baseline without sets that are chosen, with baseline.head=lda, or lw2g start",
        )
    return Solved(head=head, expert=expert_of(parts.baseline))


# -- a step --------------------------------------------------------------------------------------------------


def _learned(
    saved: Saved,
    folder: Path,
    build: Callable[[Manifest], ModelParts],
    catalogue: Catalogue,
    out: Path,
    look: Callable[[Path], None],
    *,
    test: Path | None,
    max_loss: float | None = None,
) -> tuple[TrainedModel, dict[str, Any]]:
    """Learn from a folder, check the result, and write it."""
    began = time.monotonic()
    if catalogue.get("backbone", saved.manifest.backbone.name).fit_vectors is not None:
        known = saved.manifest.fingerprint
        images = read_class_vectors(folder, "train", known)
        tested = None if test is None else read_class_vectors(test, "test", known)
    else:
        images = read_class_folders(folder)
        tested = None if test is None else read_class_folders(test)
    seen = 0 if tested is None else shared_files(images, tested)
    counts = {name: len(one.paths) for name, one in images.items()}
    more = grown(saved, counts)
    if tested is not None and (unknown := tested.keys() - set(names_of(more.manifest))):
        raise DataError(f"test: no class is called {min(unknown)!r}", "give images of classes of the model")
    parts = build(more.manifest)
    solved, number = solved_of(parts), len(more.learning.steps)
    both = solved.expert is not None
    model = trained(more.manifest, {}, parts, catalogue)
    rows = [model.features(one.paths, queries=both).cpu() for one in images.values()]
    learned = {**more.learned, **{f"features/{number}/{place}": one for place, one in enumerate(rows)}}
    with guarded(catalogue, parts.config):
        first = more.manifest.infos[-1].classes[0]
        held = [torch.tensor(one.held_out) for one in images.values()]
        if tested is None:
            checked = {
                name: own[apart] for name, own, apart in zip(images, rows, held, strict=True) if apart.any()
            }
            trial = copy.deepcopy(solved)
            _add(trial, [own[~apart] for own, apart in zip(rows, held, strict=True)], first)
            found = recall(trial, more.manifest, checked)
            del trial
        _add(solved, rows, first)
        if tested is not None:
            checked = {name: model.features(one.paths, queries=both).cpu() for name, one in tested.items()}
            found = recall(solved, more.manifest, checked)
        after = attrs.evolve(more, learned=learned)
        calibration, measures, gaussians = calibration_of(solved, after, learned=True)
        estimate = look_alikes(gaussians, measures.pop("wrong"), more.manifest)
    report = {
        "out": str(out),
        "classes": [
            {"class": name, "images": count, "new": name not in names_of(saved.manifest)}
            | found.get(name, {"checked": 0, "recall": None, "taken_for": []})
            for name, count in counts.items()
        ],
        "accuracy": _share_found(found),
        **estimate,
        **measures,
    }
    report["warnings"] = [*warnings_of(report, images, saved)]
    if seen:
        report["warnings"].append(f"test: {seen} of its images are among those that are learned")
    loss = max(
        (value for value in (report["loss"], report["estimated_loss"]) if value is not None), default=None
    )
    if max_loss is not None and (loss is None or loss > max_loss):
        what = "cannot be estimated for this head" if loss is None else f"is {loss:.1f} points"
        raise ConfigError(f"max-loss: the loss of the old classes {what}", "raise it, or leave it out")
    checks = {key: value for key, value in report.items() if key not in ("out", "warnings")}
    step = Step(
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        lw2g=__version__,
        parent=saved.manifest.files.get(WEIGHTS, ""),
        classes=list(counts),
        images=list(counts.values()),
        digest=digest_of(images),
        checks=checks,
    )
    history = attrs.evolve(more.learning, steps=[*more.learning.steps, step])
    after = attrs.evolve(after, manifest=attrs.evolve(more.manifest, learning=history))
    made = _written(after, parts, calibration, _with_base(saved, parts, learned), out, catalogue, look)
    return made, report | {"seconds": round(time.monotonic() - began, 3)}


def _share_found(found: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Return the accuracy in percent over all images that were checked; None where none was."""
    total = sum(one["checked"] for one in found.values())
    right = sum(one["checked"] * one["recall"] for one in found.values())
    return right / total if total else None


def _with_base(saved: Saved, parts: ModelParts, learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what only learning reads, with the state before the first step of all that steps change."""
    now = {name: value.cpu() for name, value in part(lasting_tensors(parts), "baseline").items()}
    then = part(saved.tensors, "baseline")
    base = {
        f"base/{name}": value
        for name, value in then.items()
        if name not in now or now[name].shape != value.shape or not torch.equal(now[name], value.cpu())
    }
    base |= {f"new/{name}": torch.zeros(0) for name in now.keys() - then.keys()}
    return {**base, **learned}


def _look(catalogue: Catalogue, *, device: str | None, weights: Path | None) -> Callable[[Path], None]:
    """Return what opens a model that was written, before anybody is told of it."""

    def look(made: Path) -> None:
        read_saved(made)
        require_usable(made, catalogue, device=device, weights=weights)

    return look


def _written(
    saved: Saved,
    parts: ModelParts,
    calibration: Mapping[str, Tensor],
    learned: Mapping[str, Tensor],
    out: Path,
    catalogue: Catalogue,
    look: Callable[[Path], None],
) -> TrainedModel:
    """Write a model, and return it."""
    tensors = {
        **lasting_tensors(parts),
        **under("backbone", part(saved.tensors, "backbone")),
        **under("calibration", calibration),
    }
    write_export(saved.manifest, tensors, out, learned, look=look)
    return trained(saved.manifest, tensors, parts, catalogue)


def _remains(parts: ModelParts) -> list[str]:
    """Return in words what was fitted to forgotten images and stays."""
    words = []
    if parts.baseline.scope.learned:
        words.append("the sets, which were trained before the export")
    solved = solved_of(parts)
    if not solved.head.exact:
        words.append("constants that the head chose before the export")
    if solved.expert is not None and solved.expert.temperature is not None:
        words.append("the head's temperature beside the expert, which was fitted before the export")
    return words


def _add(solved: Solved, rows: Sequence[Tensor], first: int) -> None:
    """Add the features of classes whose positions begin at ``first`` to the sums."""
    if rows:
        device = solved.device
        labels = torch.arange(first, first + len(rows)).repeat_interleave(torch.tensor([*map(len, rows)]))
        solved.update(torch.cat(list(rows)).to(device), labels.to(device))
