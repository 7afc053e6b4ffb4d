"""A session: everything a run is made of, built once from a resolved configuration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import attrs
import numpy as np

from lw2g.config.settings import Chosen, ExperimentConfig
from lw2g.disk.origins import ComponentOrigin, origins_of
from lw2g.disk.predictions import Predictions
from lw2g.errors import ConfigError
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.classes import ClassMap
from lw2g.interfaces.component import BackboneComponent, BaselineComponent, Component, Kind, PolicyComponent
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.memory import SpaceOptions, SubspaceMemory
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.stream import Benchmark, TaskData, TaskStream
from lw2g.interfaces.vectors import VectorFacts
from lw2g.learning.evaluator import Evaluator
from lw2g.learning.evidence.evidence_sample import EvidenceSample
from lw2g.learning.evidence.outcomes import require_images_apart
from lw2g.learning.evidence.space_rows import require_rows
from lw2g.learning.session_data import RunData, require_images
from lw2g.learning.session_parts import Growth, RunParts
from lw2g.model.frozen_expert import expert_of
from lw2g.model.mixing import Mixer
from lw2g.model.parts import (
    build_methods,
    device_of,
    mixer_of,
    open_backbone,
)
from lw2g.model.predictor import Predictor
from lw2g.pixels.decoding import chunks, open_workers, require_open_files, workers_of
from lw2g.pixels.image_set import ImageSet
from lw2g.pixels.image_vectors import facts_of_all
from lw2g.pixels.pixels import Originals
from lw2g.pixels.shared import require_unseen_images
from lw2g.pixels.shared_words import SharedImages
from lw2g.pixels.streams import as_one_task, hold_back, joined
from lw2g.registry.catalogue import Catalogue, Registered
from lw2g.runtime.boundary import build
from lw2g.runtime.engine import find_device
from lw2g.runtime.precision import PrecisionChoice
from lw2g.runtime.progress import Reporter
from lw2g.runtime.returned import require_mergeable, require_several_classes, stream_of, transforms_of
from lw2g.vit.backbone import Backbone

__all__ = ["Components", "Session", "open_session"]


@attrs.frozen(kw_only=True, eq=False)
class Components:
    """The records of the components that a run uses.

    Attributes:
        baseline: That of the baseline.
        policy: That of the growth policy.
        every: All of them.
        metrics: All installed metrics; of a run that goes on, those that it began with.
        origins: Who offers what is used, every metric and the benchmarks of new classes among it.
    """

    baseline: BaselineComponent
    policy: PolicyComponent
    every: tuple[Component, ...]
    metrics: tuple[Registered, ...]
    origins: tuple[ComponentOrigin, ...]


@attrs.frozen(kw_only=True, eq=False)
class Session:
    """Everything a run is made of: what learns, and what it learns from.

    What needs one half takes that half. The mutable state lies in the parts.

    Attributes:
        parts: What learns.
        data: What it learns from.
        components: The records of what is used.
        precision: The precision that was asked for, and why the one in the configuration is used.
    """

    parts: RunParts
    data: RunData
    components: Components
    precision: PrecisionChoice

    def task_context(
        self, index: int, images: ImageSet, evidence_sample: EvidenceSample | None = None
    ) -> TaskContext:
        """Return the context of a task that has its set.

        Args:
            index: The task.
            images: Its training images under the test transform.
            evidence_sample: The task's, of which pre-trained spaces are built; drawn again by default.
        """
        parts = self.parts
        data = self.data
        history = parts.infos[: index + 1]
        set_id = parts.pool.task_to_set[index]
        if evidence_sample is None:
            evidence_sample = parts.evidence_sample(index, images)

        def batches(size: int, seed: int | None = None, shuffled: bool = False) -> Iterable[Batch]:
            """Yield all images: under the training transform drawn by a seed, or without one as they are."""
            source = images if seed is None else data.image_set(images.originals, train=True)
            order: Sequence[int] = range(len(images))
            if shuffled:
                order = np.random.default_rng(seed).permutation(order).tolist()
            with parts.engine.autocast():
                yield from source.batches(chunks(order, size), seed=seed)

        return TaskContext(
            task=history[-1],
            history=history,
            pool=parts.pool,
            set_id=set_id,
            grew=set_id not in parts.pool.task_to_set[:index],
            held=parts.holds_set,
            retrieval=parts.retrieval,
            memory=parts.memory,
            pretrained_space=evidence_sample.pretrained_space,
            backbone=parts.backbone,
            device=parts.engine.device,
            seed=parts.config.run.seed,
            statistics=batches,
            augmented=None if data.transforms.train_is_deterministic else batches,
            shuffled=partial(batches, shuffled=True),
        )

    def evaluate(self, index: int, reporter: Reporter) -> tuple[Predictions, list[float | None]]:
        """Return predictions and drift over the test samples of all tasks up to the last learned one."""
        return self.data.evaluator.evaluate(Predictor.of(self.parts, index), reporter)

    def pass_over(self, index: int) -> None:
        """Go on after a task without an evaluation (``run.evaluate``)."""
        self.data.evaluator.pass_over(Predictor.of(self.parts, index))

    def predictions(self, index: int) -> Predictions:
        """Return the predictions after a task, at whose end the session stands."""
        # nobody listens: the reporter only has to have the sizes
        sizes = [info.num_images for info in self.parts.infos[: index + 1]]
        return self.evaluate(index, Reporter([], sizes))[0]

    def evaluate_next(self, index: int, reporter: Reporter) -> float | None:
        """Return the accuracy in percent on the test images of the task after one, before it is learned.

        None where it brings a class that no learned task has, or no test images.
        """
        data = self.data
        if index + 1 == len(data.stream.tasks):
            return None
        task = data.stream.tasks[index + 1]
        learned = ClassMap.of(self.parts.infos[: index + 1])
        if not len(task.test) or not set(data.stream.targets_of(task)) <= set(learned.known):
            return None
        # the images as those of the tasks that have taught their classes
        targets = data.stream.class_map.targets_at(task.test.labels).tolist()
        labels = [learned.positions_of(target)[-1] for target in targets]
        renamed = attrs.evolve(task.test, labels=np.asarray(labels, dtype=task.test.labels.dtype))
        originals = Originals([renamed], self.parts.engine.device, limit=0, keep=False)
        images = data.image_set(originals, train=False)
        evaluator = Evaluator(images, [len(renamed)], data.options.evaluation_batch)
        predictions, _ = evaluator.evaluate(Predictor.of(self.parts, index), reporter)
        return predictions.accuracies()[0]


def open_session(
    config: ExperimentConfig,
    catalogue: Catalogue,
    later: Sequence[Chosen] = (),
    settled: Path | None = None,
    moved: Chosen | None = None,
) -> Session:
    """Build all components of a configuration.

    Args:
        config: The configuration.
        catalogue: Where components come from.
        later: Benchmarks whose classes follow those of the configuration's, under the same transforms.
        settled: As for :func:`lw2g.model.parts.open_backbone`.
        moved: The configuration's benchmark with the place where its data lie now; None: as configured.

    Raises:
        ConfigError: Something cannot be built as configured.
        DataError: Data or weights are missing.
    """
    run = config.run
    require_open_files(workers_of(run.workers, find_device(run.device)))
    benchmark = build(catalogue, "benchmark", moved or config.benchmark)
    component = catalogue.get("baseline", config.baseline.name)
    streams = _streams(config, benchmark, later, catalogue)
    vectors = facts_of_all(streams)
    sources, stream = joined([config.benchmark, *later], streams)
    if component.joint:
        stream = _one_task(stream, component, later)
    shared = _require_learnable(stream, component)
    config, built = _built_backbone(config, vectors, catalogue)
    transforms = transforms_of(benchmark, config.benchmark.name, built.fingerprint)
    workers = open_workers(run.workers, stream, transforms, device_of(config, built))
    # from here on with the precision that is used: what is built next may ask for it
    config, engine, precision, backbone = open_backbone(config, lambda: built, settled)
    mixer = mixer_of(config, engine)
    context = BuildContext(
        backbone=backbone,
        num_tasks=len(stream.tasks),
        num_classes=stream.num_classes,
        device=engine.device,
        seed=config.run.seed,
    )
    baseline, retrieval = build_methods(config, catalogue, context)
    # before anything counts training images: what is held back is none of them
    stream, held_back = _held_back(stream, config, mixer, baseline)
    if config.growth.merge != 1:  # by 1 a merge takes up all that the task trains: it is a reuse
        require_mergeable(baseline, component.name)
    parts = RunParts(
        config=config,
        engine=engine,
        backbone=backbone,
        baseline=baseline,
        retrieval=retrieval,
        pool=Pool(),
        mixer=mixer,
        still=transforms.test,
        infos=stream.infos,
        growth=_growth_of(config, component, catalogue),
        constraints={
            choice.name: build(catalogue, "constraint", choice, context) for choice in config.constraints
        },
        memory=_memory_of(config),
    )
    if vectors is not None:
        _require_no_look_inside(parts)
    if parts.builds_spaces or parts.growth.collects_evidence:
        require_rows(config.growth, backbone, [len(task.train) for task in stream.tasks])
    if parts.growth.trains_copies:
        require_images_apart(stream.tasks)
    data = RunData(
        stream=stream,
        sources=sources,
        transforms=transforms,
        held_back=held_back,
        shared=shared,
        options=config.run,
        backbone=backbone,
        engine=engine,
        query_norm=retrieval is None or retrieval.query_norm,
        workers=workers,
    )
    components = _components_of(config, component, later, catalogue)
    return Session(parts=parts, data=data, components=components, precision=precision)


# -- steps of opening ----------------------------------------------------------------------------------------


def _streams(
    config: ExperimentConfig, benchmark: Benchmark, later: Sequence[Chosen], catalogue: Catalogue
) -> list[TaskStream]:
    """Return the stream of a configuration's benchmark, which is built, and those of later ones."""
    streams = [stream_of(benchmark, config.benchmark.name)]
    for choice in later:
        streams.append(stream_of(build(catalogue, "benchmark", choice), choice.name))
    return streams


def _one_task(stream: TaskStream, component: BaselineComponent, later: Sequence[Chosen]) -> TaskStream:
    """Return the stream of a baseline that learns all classes at once.

    Raises:
        ConfigError: Classes are to follow.
    """
    if later:
        raise ConfigError(
            f"baseline {component.name!r} learns all its tasks as one, and takes no more afterwards",
            "run it on all classes at once",
        )
    return as_one_task(stream)


def _require_learnable(stream: TaskStream, component: BaselineComponent) -> SharedImages | None:
    """Refuse tasks from which a baseline learns nothing; return which test images are training images, too.

    Raises:
        ConfigError: There is such a task.
        DataError: Every test image is a training image.
    """
    require_images(stream)
    shared = require_unseen_images(stream)
    if component.growth == "sets":
        for task in stream.tasks:
            require_several_classes(task.index, len(task.classes), f"baseline {component.name!r}")
    return shared


def _built_backbone(
    config: ExperimentConfig, vectors: VectorFacts | None, catalogue: Catalogue
) -> tuple[ExperimentConfig, Backbone]:
    """Return a run's backbone where it was built, with its configuration: on stored features for these."""
    component = catalogue.get("backbone", config.backbone.name)
    if vectors is not None:
        config = _of_vectors(config, component, vectors)
    chosen = config.backbone
    return config, component.build(chosen.config, chosen.weights, chosen.image_size)


def _held_back(
    stream: TaskStream, config: ExperimentConfig, mixer: Mixer | None, baseline: Baseline
) -> tuple[TaskStream, tuple[TaskData | None, ...]]:
    """Return the stream without the images to which routing is fitted, and these, task by task.

    Raises:
        ConfigError: A head needs such images, and no class can spare one.
    """
    expert = expert_of(baseline)
    fits = mixer is not None or (expert is not None and expert.temperature is not None)
    stream, held_back = hold_back(stream, config.routing.held_back if fits else 0, config.run.seed)
    if mixer is None and fits and not any(held_back):
        raise ConfigError(
            "routing.expert: the head's answer needs a temperature beside it, and no class can spare images "
            "that fit one",
            "use routing.expert=frozen with baseline.head=lda, or give classes 5 images or more",
        )
    return stream, held_back


def _growth_of(config: ExperimentConfig, component: BaselineComponent, catalogue: Catalogue) -> Growth:
    """Return what decides when the pool grows."""
    return Growth(
        policy=build(catalogue, "policy", config.policy),
        fixed=component.growth == "fixed",
        screen=catalogue.get("policy", config.policy.name).screen,
        measures={choice.name: build(catalogue, "evidence", choice) for choice in config.evidence},
    )


def _memory_of(config: ExperimentConfig) -> SubspaceMemory:
    """Return an empty memory of subspaces."""
    growth = config.growth
    return SubspaceMemory(SpaceOptions(energy=growth.energy, power=growth.energy_power, rule=growth.rule))


def _require_no_look_inside(parts: RunParts) -> None:
    """Refuse, on stored features, what looks into the transformer.

    Raises:
        ConfigError: Something does.
    """
    if parts.builds_spaces or parts.growth.collects_evidence:
        raise ConfigError(
            "constraints and evidence look into the transformer, and stored features have none",
            "leave constraints and growth.measures out, or name a benchmark of images",
        )


def _components_of(
    config: ExperimentConfig, component: BaselineComponent, later: Sequence[Chosen], catalogue: Catalogue
) -> Components:
    """Return the records of what a run uses."""
    return Components(
        baseline=component,
        policy=catalogue.get("policy", config.policy.name),
        every=tuple(catalogue.get(kind, choice.name) for kind, choice in config.chosen()),
        metrics=catalogue.metrics,
        origins=_origins_in_use(config, later, catalogue),
    )


def _origins_in_use(
    config: ExperimentConfig, later: Sequence[Chosen], catalogue: Catalogue
) -> tuple[ComponentOrigin, ...]:
    """Return who offers what a run uses.

    Args:
        config: Names it.
        later: Benchmarks whose classes follow.
        catalogue: Has all of it, and the metrics, which every run computes.
    """
    used: list[tuple[Kind, str]] = [(kind, choice.name) for kind, choice in config.chosen()]
    used += [("benchmark", choice.name) for choice in later]
    used += [("metric", name) for name in catalogue.names("metric")]
    # objects of a Python program are of no distribution: whoever goes on with the run gives them anew
    return tuple(one for one in origins_of(catalogue, used) if one.distribution is not None)


def _of_vectors(
    config: ExperimentConfig, component: BackboneComponent, facts: VectorFacts
) -> ExperimentConfig:
    """Return the configuration with a backbone of what the stream's vectors are of.

    Raises:
        ConfigError: The backbone takes images, or the configuration speaks of other vectors.
    """
    if component.fit_vectors is None:
        raise ConfigError(
            f"backbone {component.name!r} takes images, and the benchmark has stored features", "leave it out"
        )
    fitted = component.fit_vectors(config.backbone.config, facts)
    return attrs.evolve(config, backbone=attrs.evolve(config.backbone, config=fitted))
