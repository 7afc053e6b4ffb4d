"""A session: everything a run is made of, built once from a resolved configuration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from torch import Tensor, nn

from lw2g.base.boundary import build
from lw2g.base.checks import require_mergeable, require_several_classes
from lw2g.base.progress import Reporter
from lw2g.blocks.closed_form import ClosedForm
from lw2g.config.model import Chosen, ExperimentConfig
from lw2g.devices.precision import PrecisionChoice
from lw2g.errors import ConfigError
from lw2g.evaluation.evaluator import Evaluator
from lw2g.files.predictions import Predictions
from lw2g.files.protocol import noted_facts
from lw2g.images.decoding import chunks, require_open_files, workers_of
from lw2g.images.image_set import ImageSet
from lw2g.images.pixels import Originals
from lw2g.images.shared import SharedImages, require_unseen_images
from lw2g.images.streams import Source, as_one_task, hold_back, joined
from lw2g.images.vectors import VectorSet, facts_of_all
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.component import BackboneComponent, BaselineComponent, Component, PolicyComponent
from lw2g.interfaces.constraint import Constraint
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.evidence import Measure
from lw2g.interfaces.growth import GrowthPolicy, Planned
from lw2g.interfaces.memory import SpaceOptions, SubspaceMemory
from lw2g.interfaces.phase import Phase
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.stream import ImageTransform, RandomTransform, TaskData, TaskStream, Transforms
from lw2g.interfaces.vectors import VectorFacts
from lw2g.models.expert import expert_of
from lw2g.models.parts import (
    ModelParts,
    build_methods,
    engine_of,
    mixer_of,
    open_backbone,
)
from lw2g.models.predictor import Predictor
from lw2g.registry.catalogue import Catalogue, Registered
from lw2g.tasks.evidence.d_sub import DSub
from lw2g.tasks.evidence.stored import StoredStatistics
from lw2g.tasks.phases import joined_phases
from lw2g.vit.taps import Tap

__all__ = ["Session", "open_session"]


@attrs.frozen(kw_only=True, eq=False)
class Session(ModelParts):
    """The components of a run. The mutable state lies in baseline, retrieval, pool, memory and constraints.

    In its configuration ``run.precision`` is settled; ``precision`` holds the request and the reason.
    All sources use the transforms of the first one, because a model sees all images alike. Where several
    sets answer for an image, ``mixer`` combines their answers. ``held_back`` holds each task's images that it
    or the temperature beside a frozen expert is fitted to, which the stream no longer has.

    Attributes:
        measures: The measures before each decision, by name; empty where nothing grows.
        stored: The statistics of old tasks that they have stored.
        shared: Test images that are training images, too; None where the benchmark does not tell.
        merging: Within a task that merges its set, what the set was before, and the weight; else empty.
        infos: What is known of each task before it is learned.
    """

    config: ExperimentConfig
    precision: PrecisionChoice
    stream: TaskStream
    sources: tuple[Source, ...]
    transforms: Transforms
    baseline_component: BaselineComponent
    policy: GrowthPolicy
    policy_component: PolicyComponent
    measures: dict[str, Measure]
    components: tuple[Component, ...]
    metrics: tuple[Registered, ...]
    constraints: dict[str, Constraint]
    memory: SubspaceMemory
    stored: StoredStatistics
    held_back: tuple[TaskData | None, ...]
    shared: SharedImages | None
    merging: dict[str, Tensor] = attrs.field(factory=dict, init=False)
    still: ImageTransform = attrs.field(init=False)
    infos: tuple[TaskInfo, ...] = attrs.field(init=False)

    @still.default
    def _test_transform(self) -> ImageTransform:
        return self.transforms.test

    @infos.default
    def _infos_of_the_stream(self) -> tuple[TaskInfo, ...]:
        return tuple(
            TaskInfo(
                index=task.index,
                classes=task.classes,
                class_names=task.class_names,
                seen=task.classes[-1] + 1,
                num_images=len(task.train),
                targets=self.stream.targets_of(task),
                domain=task.domain,
            )
            for task in self.stream.tasks
        )

    @cached_property
    def evaluator(self) -> Evaluator:
        """Evaluates the test images of all tasks; keeps features between evaluations."""
        limit, parts = self.config.run.image_memory * 2**20, [task.test for task in self.stream.tasks]
        images = self.image_set(Originals(parts, self.engine.device, limit=limit, keep=False), train=False)
        return Evaluator(images, [len(part) for part in parts], self.config.run.evaluation_batch)

    @cached_property
    def noted_facts(self) -> dict[str, Any]:
        """What the record tells of the protocol and of nothing else: test images, transforms, definitions."""
        return noted_facts(self.stream, self.transforms, self.config.benchmark.config)

    @property
    def fixed(self) -> bool:
        """Whether the baseline has one set for the whole run."""
        return self.baseline_component.growth == "fixed"

    @property
    def collects_evidence(self) -> bool:
        """Whether there are measures before each decision."""
        return bool(self.measures)

    @property
    def keeps_memory(self) -> bool:
        """Whether a component reads the memory's spaces; otherwise none are built."""
        wanted = any(constraint.needs_memory for constraint in self.constraints.values())
        return wanted or any(
            "spaces" in measure.needs | measure.store_needs for measure in self.measures.values()
        )

    @property
    def builds_spaces(self) -> bool:
        """Whether finished tasks leave spaces anywhere: in the memory, or with a constraint of its own."""
        return self.keeps_memory or any(constraint.absorbs for constraint in self.constraints.values())

    @property
    def modules(self) -> list[nn.Module]:
        """All modules with state: the baseline, the sets, the retrieval strategy."""
        modules: list[nn.Module] = [self.baseline, *self.pool.sets]
        return modules if self.retrieval is None else [*modules, self.retrieval]

    def bytes_of(self, classes: int) -> int:
        """Return the bytes of classifiers in closed form that grow with classes, for so many of them."""
        heads = (head for module in self.modules for head in module.modules() if isinstance(head, ClosedForm))
        return sum(head.bytes_of(classes) for head in heads)

    def passes(self, sets: int) -> int:
        """Return the number of forwards per image where there are that many sets."""
        if self.mixer is not None:
            return self.mixer.passes(sets)
        return self.baseline.scope.forwards(sets, len(self.baseline.beside()))

    def learning(self, set_id: int) -> list[nn.Module]:
        """Return the modules that a task trains: the baseline, its set, the retrieval strategy."""
        modules: list[nn.Module] = [self.baseline, self.pool[set_id]]
        return modules if self.retrieval is None else [*modules, self.retrieval]

    def phases(self, context: TaskContext) -> list[tuple[str, Phase]]:
        """Return the phases of a task in order, each after the name of its owner.

        Raises:
            ContractError: Retrieval strategy or baseline return something else.
        """
        return joined_phases(self.baseline, self.retrieval, self.constraints, self.names, context)

    @property
    def sample_lists(self) -> list[tuple[str, ...]]:
        """The ids of all test samples, source by source."""
        ends = [*(source.first for source in self.sources[1:]), len(self.stream.tasks)]
        return [
            tuple(name for task in self.stream.tasks[source.first : end] for name in task.test.ids)
            for source, end in zip(self.sources, ends, strict=True)
        ]

    @property
    def notes(self) -> list[str]:
        """Notes for the user before the run, one sentence each."""
        seen = self.shared is not None and self.shared.count > 0
        return [*([str(self.shared)] if seen else []), *self._notes_on_speed()]

    def _notes_on_speed(self) -> list[str]:
        train = self.transforms.train
        batched = self.transforms.train_is_deterministic or isinstance(train, RandomTransform)
        if self.config.run.speed == "exact" or batched:
            return []
        name = self.config.benchmark.name
        return [f"run.speed 'fast': benchmark {name!r} cannot augment by the batch; exact instead"]

    @property
    def workers(self) -> int:
        """The number of processes that decode and augment images."""
        return workers_of(self.config.run.workers, self.engine.device)

    def image_set(self, parts: Sequence[TaskData] | Originals, *, train: bool) -> ImageSet:
        """Return images under the training or the test transform.

        Args:
            parts: One entry per task; or the originals that another image set has decoded, to share them.
            train: Under the training transform.
        """
        fixed = self.transforms.train_is_deterministic
        originals = parts if isinstance(parts, Originals) else self._originals(parts)
        if self.stream.vectors is not None:
            return VectorSet(originals, self.engine.device)
        still = train and not fixed and self.config.run.queries == "still"
        return ImageSet(
            originals,
            self.transforms.train if train else self.transforms.test,
            deterministic=fixed or not train,
            fast=self.config.run.speed == "fast",
            backbone=self.backbone,
            engine=self.engine,
            batch_size=self.config.run.evaluation_batch,
            workers=self.workers,
            query_norm=self.retrieval is None or self.retrieval.query_norm,
            still=self.image_set(originals, train=False) if still else None,
        )

    def _originals(self, parts: Sequence[TaskData]) -> Originals:
        limit = self.config.run.image_memory * 2**20
        # a fixed transform's images are kept transformed; a random one needs the originals each time
        keep = not self.transforms.train_is_deterministic
        return Originals(parts, self.engine.device, limit=limit, keep=keep)

    def task_context(self, index: int, images: ImageSet, d_sub: DSub | None = None) -> TaskContext:
        """Return the context of a task that has its set.

        Args:
            index: The task.
            images: Its training images under the test transform.
            d_sub: Its D_sub, of which pre-trained spaces are built; drawn again by default.
        """
        history = self.infos[: index + 1]
        set_id = self.pool.task_to_set[index]

        def all_of(size: int, seed: int | None = None, shuffled: bool = False) -> Iterable[Batch]:
            source = images if seed is None else self.image_set(images.originals, train=True)
            whole = range(len(images))
            order = np.random.default_rng(seed).permutation(whole).tolist() if shuffled else whole
            with self.engine.autocast():
                yield from source.batches(chunks(order, size), seed=seed)

        return TaskContext(
            task=history[-1],
            history=history,
            pool=self.pool,
            set_id=set_id,
            grew=set_id not in self.pool.task_to_set[:index],
            retrieval=self.retrieval,
            memory=self.memory,
            pretrained_space=(d_sub or self.d_sub(index, images)).pretrained_space,
            backbone=self.backbone,
            device=self.engine.device,
            seed=self.config.run.seed,
            statistics=all_of,
            augmented=None if self.transforms.train_is_deterministic else all_of,
            shuffled=partial(all_of, shuffled=True),
        )

    def d_sub(self, index: int, images: ImageSet) -> DSub:
        """Return a task's D_sub."""

        def taps() -> list[Tap]:
            own = self.baseline.sites(self.pool.sets[-1]) if len(self.pool) else ()
            every = (*own, *self.baseline.shared_sites())
            # other sites are never compared with un-prompted activations, which published taps lack
            return [site.activation.tap for site in every if site.measured or site.soft]

        growth, seed = self.config.growth, self.config.run.seed
        return DSub(self.info(index), images, self.backbone, self.engine, growth, seed, taps)

    def evaluate(self, index: int, reporter: Reporter) -> tuple[Predictions, list[float | None]]:
        """Return predictions and drift over the test samples of all tasks up to the last learned one."""
        return self.evaluator.evaluate(Predictor.of(self, index), reporter)

    def pass_over(self, index: int) -> None:
        """Go on after a task without an evaluation (``run.evaluate``)."""
        self.evaluator.pass_over(Predictor.of(self, index))

    def evaluate_next(self, index: int, reporter: Reporter) -> float | None:
        """Return the accuracy in percent on the test images of the task after one, before it is learned.

        None where it brings a class that no learned task has, or no test images.
        """
        known = {
            target: position
            for info in self.infos[: index + 1]
            for position, target in zip(info.classes, info.targets, strict=True)
        }
        for task, info in zip(self.stream.tasks[index + 1 :][:1], self.infos[index + 1 :], strict=False):
            if len(task.test) and known.keys() >= set(info.targets):
                labels = [known[info.targets[label - task.classes[0]]] for label in task.test.labels.tolist()]
                data = attrs.evolve(task.test, labels=np.asarray(labels, dtype=task.test.labels.dtype))
                originals = Originals([data], self.engine.device, limit=0, keep=False)
                images = self.image_set(originals, train=False)
                evaluator = Evaluator(images, [len(data)], self.config.run.evaluation_batch)
                predictions, _ = evaluator.evaluate(Predictor.of(self, index), reporter)
                return predictions.accuracies()[0]
        return None

    def learned(self, set_id: int) -> dict[str, Tensor]:
        """Return the tensors that a task changes, of modules and spaces, by name."""
        modules = [*self.learning(set_id), *([] if self.mixer is None else [self.mixer])]
        parameters = {
            f"{type(module).__name__}.{name}": value
            for module in modules
            for name, value in module.state_dict().items()
        }
        return parameters | self.memory.state_dict()

    def require_goal(self, done: int, tasks: int | None) -> int:
        """Return after how many tasks the run stops.

        Args:
            done: How many it has finished.
            tasks: How many the user asks for; None: those of the whole stream.

        Raises:
            ConfigError: There are fewer, more are finished already, or the policy cannot decide for them.
        """
        whole, least = len(self.stream.tasks), max(done, 1)
        if tasks is not None and not least <= tasks <= whole:
            state = f"has finished {done} of {whole}" if done else f"has {whole}"
            raise ConfigError(
                f"cannot stop after task {tasks}: the stream {state}", f"name one of {least} to {whole}"
            )
        goal = whole if tasks is None else tasks
        if isinstance(self.policy, Planned):
            self.policy.require_tasks(goal)
        return goal

    def require_prepared(self, tasks: int) -> None:
        """Refuse where a head in closed form lacks something for one of the first tasks.

        Raises:
            Lw2gError: It does.
        """
        for module in self.baseline.modules():
            if isinstance(module, ClosedForm):
                for info in self.infos[:tasks]:
                    module.require(info)

    def generator(self, index: int) -> np.random.Generator:
        """Return the policy's generator for one task."""
        return np.random.default_rng(self.seed_of(index, "policy"))


def open_session(
    config: ExperimentConfig,
    catalogue: Catalogue,
    later: Sequence[Chosen] = (),
    settled: Path | None = None,
) -> Session:
    """Build all components of a configuration.

    Args:
        config: The configuration.
        catalogue: Where components come from.
        later: Benchmarks whose classes follow those of the configuration's, under the same transforms.
        settled: As for :func:`lw2g.models.parts.open_backbone`.

    Raises:
        ConfigError: Something cannot be built as configured.
        DataError: Data or weights are missing.
    """
    run, engine = config.run, engine_of(config)
    require_open_files(workers_of(run.workers, engine.device))
    benchmark = build(catalogue, "benchmark", config.benchmark)
    component = catalogue.get("baseline", config.baseline.name)
    streams = [benchmark.stream(), *(build(catalogue, "benchmark", choice).stream() for choice in later)]
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
    _require_images(stream)
    shared = require_unseen_images(stream)
    if component.growth == "sets":
        for task in stream.tasks:
            require_several_classes(task.index, len(task.classes), f"baseline {component.name!r}")
    of_backbones = catalogue.get("backbone", config.backbone.name)
    if vectors is not None:
        config = _of_vectors(config, of_backbones, vectors)
    chosen = config.backbone
    config, engine, precision, backbone = open_backbone(
        config, engine, lambda: of_backbones.build(chosen.config, chosen.weights, chosen.image_size), settled
    )
    print_of = backbone.fingerprint
    transforms = benchmark.transforms(print_of.image_size, print_of.mean, print_of.std)
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
    stream, held_back = hold_back(stream, config.routing.held_back if fits else 0, run.seed)
    if mixer is None and fits and not any(held_back):
        raise ConfigError(
            "routing.expert: scores of this head are no log likelihoods, and no class can spare images "
            "that fit their temperature",
            "use baseline.head=lda, or give classes 5 images or more",
        )
    growth = config.growth
    if growth.merge != 1:
        require_mergeable(baseline, component.name)
    options = SpaceOptions(energy=growth.energy, power=growth.energy_power, rule=growth.rule)
    session = Session(
        config=config,
        precision=precision,
        engine=engine,
        backbone=backbone,
        stream=stream,
        sources=sources,
        transforms=transforms,
        baseline=baseline,
        baseline_component=component,
        retrieval=retrieval,
        policy=build(catalogue, "policy", config.policy),
        policy_component=catalogue.get("policy", config.policy.name),
        measures={choice.name: build(catalogue, "evidence", choice) for choice in config.evidence},
        metrics=catalogue.metrics,
        components=tuple(catalogue.get(kind, choice.name) for kind, choice in config.chosen()),
        constraints={
            choice.name: build(catalogue, "constraint", choice, context) for choice in config.constraints
        },
        pool=Pool(),
        memory=SubspaceMemory(options),
        stored=StoredStatistics(),
        mixer=mixer,
        held_back=held_back,
        shared=shared,
    )
    if vectors is not None and (session.builds_spaces or session.collects_evidence):
        raise ConfigError(
            "constraints and evidence look into the transformer, and stored features have none",
            "leave constraints and growth.measures out, or name a benchmark of images",
        )
    return session


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


def _require_images(stream: TaskStream) -> None:
    """Refuse tasks that teach nothing, or whose classes nobody can test, or whose images are tested twice."""
    met: set[tuple[str, int]] = set()
    for task in stream.tasks:
        targets = stream.targets_of(task)
        own = {(task.domain, target) for target in targets}
        tested = {(task.domain, targets[label - task.classes[0]]) for label in set(task.test.labels.tolist())}
        if not len(task.train) or (own - met and not tested):
            raise ConfigError(
                f"benchmark: task {task.index + 1} has no training or no test images", "leave it out"
            )
        if tested & met:
            raise ConfigError(
                f"benchmark: task {task.index + 1} tests a class that an earlier task has brought",
                "give each test image to the first task with its class and domain",
            )
        met |= own
