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
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.classes import ClassMap
from lw2g.interfaces.component import BackboneComponent, BaselineComponent, Component, Kind, PolicyComponent
from lw2g.interfaces.context import BuildContext, TaskContext
from lw2g.interfaces.memory import SpaceOptions, SubspaceMemory
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.vectors import VectorFacts
from lw2g.learning.evaluator import Evaluator
from lw2g.learning.evidence.evidence_sample import EvidenceSample
from lw2g.learning.evidence.space_rows import require_rows
from lw2g.learning.session_data import RunData, require_images, require_names
from lw2g.learning.session_parts import Growth, RunParts
from lw2g.model.frozen_expert import expert_of
from lw2g.model.parts import (
    build_methods,
    engine_of,
    mixer_of,
    open_backbone,
)
from lw2g.model.predictor import Predictor
from lw2g.pixels.decoding import chunks, require_open_files, workers_of
from lw2g.pixels.image_set import ImageSet
from lw2g.pixels.image_vectors import facts_of_all
from lw2g.pixels.pixels import Originals
from lw2g.pixels.shared import require_unseen_images
from lw2g.pixels.streams import as_one_task, hold_back, joined
from lw2g.registry.catalogue import Catalogue, Registered
from lw2g.runtime.boundary import build
from lw2g.runtime.precision import PrecisionChoice
from lw2g.runtime.progress import Reporter
from lw2g.runtime.returned import require_mergeable, require_several_classes, stream_of, transforms_of

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

        def all_of(size: int, seed: int | None = None, shuffled: bool = False) -> Iterable[Batch]:
            source = images if seed is None else data.image_set(images.originals, train=True)
            whole = range(len(images))
            order = np.random.default_rng(seed).permutation(whole).tolist() if shuffled else whole
            with parts.engine.autocast():
                yield from source.batches(chunks(order, size), seed=seed)

        return TaskContext(
            task=history[-1],
            history=history,
            pool=parts.pool,
            set_id=set_id,
            grew=set_id not in parts.pool.task_to_set[:index],
            retrieval=parts.retrieval,
            memory=parts.memory,
            pretrained_space=evidence_sample.pretrained_space,
            backbone=parts.backbone,
            device=parts.engine.device,
            seed=parts.config.run.seed,
            statistics=all_of,
            augmented=None if data.transforms.train_is_deterministic else all_of,
            shuffled=partial(all_of, shuffled=True),
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
    engine = engine_of(config)
    require_open_files(workers_of(run.workers, engine.device))
    benchmark = build(catalogue, "benchmark", moved or config.benchmark)
    component = catalogue.get("baseline", config.baseline.name)
    streams = [stream_of(benchmark, config.benchmark.name)]
    for choice in later:
        streams.append(stream_of(build(catalogue, "benchmark", choice), choice.name))
    vectors = facts_of_all(streams)
    sources, stream = joined([config.benchmark, *later], streams)
    if component.joint:
        if later:
            raise ConfigError(
                f"baseline {component.name!r} learns all its tasks as one, and takes no more afterwards",
                "run it on all classes at once",
            )
        stream = as_one_task(stream)
    mixer = mixer_of(config, engine)
    require_names(stream)
    require_images(stream)
    shared = require_unseen_images(stream)
    if component.growth == "sets":
        for task in stream.tasks:
            require_several_classes(task.index, len(task.classes), f"baseline {component.name!r}")
    of_backbones = catalogue.get("backbone", config.backbone.name)
    if vectors is not None:
        config = _of_vectors(config, of_backbones, vectors)
    chosen = config.backbone
    # from here on with the precision that is used: what is built next may ask for it
    config, engine, precision, backbone = open_backbone(
        config, engine, lambda: of_backbones.build(chosen.config, chosen.weights, chosen.image_size), settled
    )
    print_of = backbone.fingerprint
    transforms = transforms_of(benchmark, config.benchmark.name, print_of)
    context = BuildContext(
        backbone=backbone,
        num_tasks=len(stream.tasks),
        num_classes=stream.num_classes,
        device=engine.device,
        seed=config.run.seed,
    )
    baseline, retrieval = build_methods(config, catalogue, context)
    expert = expert_of(baseline)
    fits = mixer is not None or (expert is not None and expert.temperature is not None)
    # before anything counts training images: what is held back is none of them
    stream, held_back = hold_back(stream, config.routing.held_back if fits else 0, run.seed)
    if mixer is None and fits and not any(held_back):
        raise ConfigError(
            "routing.expert: scores of this head are no log likelihoods, and no class can spare images "
            "that fit their temperature",
            "use baseline.head=lda, or give classes 5 images or more",
        )
    options = config.growth
    if options.merge != 1:
        require_mergeable(baseline, component.name)
    spaces = SpaceOptions(energy=options.energy, power=options.energy_power, rule=options.rule)
    policy = catalogue.get("policy", config.policy.name)
    growth = Growth(
        policy=build(catalogue, "policy", config.policy),
        fixed=component.growth == "fixed",
        screen=policy.screen,
        measures={choice.name: build(catalogue, "evidence", choice) for choice in config.evidence},
    )
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
        growth=growth,
        constraints={
            choice.name: build(catalogue, "constraint", choice, context) for choice in config.constraints
        },
        memory=SubspaceMemory(spaces),
    )
    if vectors is not None and (parts.builds_spaces or growth.collects_evidence):
        raise ConfigError(
            "constraints and evidence look into the transformer, and stored features have none",
            "leave constraints and growth.measures out, or name a benchmark of images",
        )
    if parts.builds_spaces or growth.collects_evidence:
        require_rows(options, backbone, [len(task.train) for task in stream.tasks])
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
    )
    components = Components(
        baseline=component,
        policy=policy,
        every=tuple(catalogue.get(kind, choice.name) for kind, choice in config.chosen()),
        metrics=catalogue.metrics,
        origins=_origins_in_use(config, later, catalogue),
    )
    return Session(parts=parts, data=data, components=components, precision=precision)


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
