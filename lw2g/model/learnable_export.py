"""Exporting the model of a run so that it can go on learning: with features of some of its images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from lw2g.disk.stored_run import StoredRun
from lw2g.errors import DataError
from lw2g.interfaces.stream import Task
from lw2g.model.exported import Saved
from lw2g.model.exporting import Memory, export_run
from lw2g.model.left_out import calibration_of
from lw2g.model.manifest import Manifest
from lw2g.model.solved import Solved, solved_of
from lw2g.model.trained import TrainedModel
from lw2g.pixels.streams import as_one_task, hold_back, joined
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.returned import stream_of
from lw2g.runtime.telling import Telling

__all__ = ["export_learnable"]

_KEPT = 20
"""Images of each class of a run whose features an export keeps."""


def export_learnable(
    directory: Path, catalogue: Catalogue, out: Path, task: int | None = None, **options: Any
) -> int:
    """Write the model of a run as :func:`~lw2g.model.exporting.export_run`, with features to learn by.

    It keeps those of the first 20 images of each class, which tell what a step costs old classes, and where
    unknown images begin. Of a run that has trained nothing they are training images, which are left out of
    the sums in turn; of another one test images, because its training images say nothing of new ones.

    Raises:
        DataError: As there, or the run's data have changed or gone.
        ConfigError: As there, or the head cannot learn.
    """

    def remember(run: StoredRun, manifest: Manifest, model: TrainedModel) -> Memory:
        solved = solved_of(model.parts)
        with model.computing():
            learned = _kept_features(model, solved, _tasks_of(run, catalogue, manifest, solved))
            saved = Saved(manifest=manifest, tensors={}, learned=learned)
            calibration = calibration_of(solved, saved)[0].tensors()
        return manifest.history, calibration, learned

    return export_run(directory, catalogue, out, task, remember=remember, **options)


def _kept_features(model: TrainedModel, solved: Solved, tasks: Sequence[Task]) -> dict[str, Tensor]:
    """Return the features of the first images of each class, by the position of the class.

    They tell how known an image of the class looks. Images that trained the features look more known than any
    new one: then test images are kept, else training images.
    """
    with_queries = solved.expert is not None
    chosen = []
    for task in tasks:
        data = task.test if solved.trained else task.train
        for position in task.classes:
            # the first ones, not drawn ones: exported again, a model is the same
            rows = data.indices[data.labels == position][:_KEPT]
            if len(rows):
                chosen.append((position, data, rows))
    kept = {}
    with Telling("reading", sum(len(rows) for _, _, rows in chosen)) as tell:
        for position, data, rows in chosen:
            images = [data.source.image(int(row)) for row in rows]
            features = model.features(images, queries=with_queries, progress=tell)
            kept[f"kept/{position}"] = features.cpu()
    return kept


def _tasks_of(run: StoredRun, catalogue: Catalogue, manifest: Manifest, solved: Solved) -> Sequence[Task]:
    """Return the tasks that a run has learned, without the images that it held back.

    Raises:
        DataError: Its data are others now.
    """
    config = run.resolved(catalogue).config
    chosen = [run.moved(catalogue) or config.benchmark, *run.later_benchmarks(catalogue)]
    streams = []
    for one in chosen:
        benchmark = catalogue.get("benchmark", one.name).build(one.config)
        streams.append(stream_of(benchmark, one.name))
    _, stream = joined(chosen, streams)
    if catalogue.get("baseline", config.baseline.name).joint:
        stream = as_one_task(stream)
    if stream.fingerprint != manifest.learned_from.get("fingerprint"):
        raise DataError(
            f"the data of {str(run.files.path)!r} have changed",
            "restore them, or export without --learnable",
        )
    if solved.expert is not None and solved.expert.temperature is not None:
        # they fitted the head's temperature, and are in no sums
        stream, _ = hold_back(stream, config.routing.held_back, config.run.seed)
    return stream.tasks[: len(manifest.tasks)]
