"""A session: everything a run is made of, built once from a resolved configuration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import numpy as np
from torch import Tensor, nn

from lw2g.config.model import Chosen, ExperimentConfig
from lw2g.errors import ConfigError
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.component import BaselineComponent, Component, Kind, PolicyComponent
from lw2g.interfaces.constraint import Constraint
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.evidence import Measure, Stored
from lw2g.interfaces.growth import GrowthPolicy
from lw2g.interfaces.memory import SpaceOptions, SubspaceMemory
from lw2g.interfaces.phase import Phase
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.interfaces.stream import ImageTransform, RandomTransform, TaskData, TaskStream, Transforms
from lw2g.registry.catalogue import Catalogue
from lw2g.training.boundary import build
from lw2g.training.devices.precision import Choice
from lw2g.training.evaluation.answers import require_phases
from lw2g.training.evaluation.evaluator import Evaluator, Predictions
from lw2g.training.evaluation.mixing import Mixer
from lw2g.training.evidence.probe import Probe
from lw2g.training.images.decoding import chunks, require_open_files
from lw2g.training.images.image_set import ImageSet
from lw2g.training.images.pixels import Originals
from lw2g.training.images.streams import Source, as_one_task, hold_back, joined
from lw2g.training.models.parts import (
    Foundation,
    ModelParts,
    build_methods,
    engine_of,
    lay_foundation,
    mixer_of,
    names_of,
)
from lw2g.training.progress import Reporter
from lw2g.vit.taps import Tap

__all__ = ["Session", "open_session"]


@attrs.frozen(kw_only=True, eq=False)
class Session(ModelParts):
    """What a run works with. The mutable state lies in baseline, retrieval, pool, memory and constraints.

    In its configuration ``run.precision`` is settled; ``precision`` says what was asked for, and why.
    The transforms are those of the first source, whatever comes later: a model has one way to see images.
    Where several sets answer for an image, ``mixer`` makes one answer of theirs, and ``held_back`` holds,
    task by task, what it is fitted to: training images that the stream no longer has.

    Attributes:
        measures: What is measured before each decision, by name; none where nothing grows.
        stored: What they have stored of old tasks.
        infos: What is known of each task before it is learned.
    """

    config: ExperimentConfig
    precision: Choice
    stream: TaskStream
    sources: tuple[Source, ...]
    transforms: Transforms
    baseline_component: BaselineComponent
    policy: GrowthPolicy
    policy_component: PolicyComponent
    measures: dict[str, Measure]
    components: tuple[Component, ...]
    constraints: dict[str, Constraint]
    memory: SubspaceMemory
    stored: Stored
    evaluator: Evaluator
    held_back: tuple[TaskData | None, ...]
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
            )
            for task in self.stream.tasks
        )

    @property
    def fixed(self) -> bool:
        """Whether the baseline has one set for the whole run."""
        return self.baseline_component.growth == "fixed"

    @property
    def collects_evidence(self) -> bool:
        """Whether anything is measured before each decision."""
        return bool(self.measures)

    @property
    def keeps_memory(self) -> bool:
        """Whether anyone reads the memory's spaces; otherwise nothing is paid for them."""
        wanted = any(constraint.needs_memory for constraint in self.constraints.values())
        return wanted or any("spaces" in one.needs | one.store_needs for one in self.measures.values())

    @property
    def builds_spaces(self) -> bool:
        """Whether finished tasks leave spaces anywhere: in the memory, or with a constraint of its own."""
        return self.keeps_memory or any(constraint.absorbs for constraint in self.constraints.values())

    @property
    def modules(self) -> list[nn.Module]:
        """All modules with state: the baseline, the sets, the retrieval strategy."""
        found: list[nn.Module] = [self.baseline, *self.pool.sets]
        return found if self.retrieval is None else [*found, self.retrieval]

    def passes(self, sets: int) -> int:
        """Return how many forwards answer for an image where there are so many sets."""
        if self.mixer is not None:
            return self.mixer.passes(sets)
        return sets + len(self.baseline.beside()) if self.baseline.feature_scope == "each" else 1

    def learning(self, set_id: int) -> list[nn.Module]:
        """Return the modules that a task learns in: the baseline, its set, the retrieval strategy."""
        found: list[nn.Module] = [self.baseline, self.pool[set_id]]
        return found if self.retrieval is None else [*found, self.retrieval]

    @property
    def labels(self) -> tuple[str, tuple[str, RetrievalStrategy] | None, dict[str, Constraint]]:
        """The baseline's name for messages; strategy and constraints with theirs."""
        baseline, retrieval = self.names
        strategy = None if self.retrieval is None else (retrieval, self.retrieval)
        rules = {f"constraint {name!r}": constraint for name, constraint in self.constraints.items()}
        return baseline, strategy, rules

    def phases(self, context: TaskContext) -> tuple[list[Phase], list[Phase]]:
        """Return the phases of the retrieval strategy and those of the baseline.

        Raises:
            ContractError: One of them gives something else.
        """
        first = () if self.retrieval is None else self.retrieval.phases(context)
        own = self.baseline.phases(context)
        return require_phases(first, self.names[1]), require_phases(own, self.names[0])

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
        """What a user should know before the run, one sentence each."""
        train = self.transforms.train
        batched = self.transforms.train_is_deterministic or isinstance(train, RandomTransform)
        if self.config.run.speed == "exact" or batched:
            return []
        name = self.config.benchmark.name
        return [f"run.speed 'fast': benchmark {name!r} cannot augment by the batch; exact instead"]

    def image_set(self, parts: Sequence[TaskData] | Originals, *, train: bool) -> ImageSet:
        """Return images under the training or the test transform.

        Args:
            parts: One entry per task; or what another image set has decoded of them, to be shared.
            train: Under the training transform.
        """
        fixed = self.transforms.train_is_deterministic
        return ImageSet(
            parts if isinstance(parts, Originals) else self._originals(parts),
            self.transforms.train if train else self.transforms.test,
            deterministic=fixed or not train,
            fast=self.config.run.speed == "fast",
            backbone=self.backbone,
            engine=self.engine,
            batch_size=self.config.run.evaluation_batch,
            workers=self.config.run.workers,
            query_norm=_query_norm(self.retrieval),
        )

    def _originals(self, parts: Sequence[TaskData]) -> Originals:
        limit = self.config.run.image_memory * 2**20
        # images of one transform are kept as it makes them; a random one begins with the originals again
        keep = not self.transforms.train_is_deterministic
        return Originals(parts, self.engine.device, limit=limit, keep=keep)

    def task_context(self, index: int, images: ImageSet) -> TaskContext:
        """Return the context of a task that has its set.

        Args:
            index: The task.
            images: Its training images under the test transform.
        """
        history = self.infos[: index + 1]
        set_id = self.pool.task_to_set[index]

        def all_of(size: int, seed: int | None = None) -> Iterable[Batch]:
            source = images if seed is None else self.image_set(images.originals, train=True)
            with self.engine.autocast():
                yield from source.batches(chunks(range(len(images)), size), seed=seed)

        return TaskContext(
            task=history[-1],
            history=history,
            pool=self.pool,
            set_id=set_id,
            grew=set_id not in self.pool.task_to_set[:index],
            retrieval=self.retrieval,
            backbone=self.backbone,
            device=self.engine.device,
            seed=self.config.run.seed,
            statistics=all_of,
            augmented=None if self.transforms.train_is_deterministic else all_of,
        )

    def probe(self, index: int, images: ImageSet) -> Probe:
        """Return a task's D_sub."""

        def taps() -> list[Tap]:
            own = self.baseline.sites(self.pool.sets[-1]) if len(self.pool) else ()
            every = (*own, *self.baseline.shared_sites())
            # others are never compared with un-prompted activations, which need not exist (published ones)
            return [site.activation.tap for site in every if site.measured or site.soft]

        growth, seed = self.config.growth, self.config.run.seed
        return Probe(self.info(index), images, self.backbone, self.engine, growth, seed, taps)

    def evaluate(self, index: int, reporter: Reporter) -> tuple[Predictions, list[float | None]]:
        """Return predictions and drift over the test samples of all tasks up to one, which it has learned."""
        return self.evaluator.evaluate(
            self.baseline, self.pool, self.retrieval, self.infos[: index + 1], reporter
        )

    def learned(self, set_id: int) -> dict[str, Tensor]:
        """Return what a task changes in modules and spaces, by name."""
        modules = [*self.learning(set_id), *([] if self.mixer is None else [self.mixer])]
        parameters = {
            f"{type(module).__name__}.{name}": value
            for module in modules
            for name, value in module.state_dict().items()
        }
        return parameters | self.memory.state_dict()

    def generator(self, index: int) -> np.random.Generator:
        """Return the policy's generator for one task."""
        return np.random.default_rng(self.seed_of(index, "policy"))


def open_session(config: ExperimentConfig, catalogue: Catalogue, later: Sequence[Chosen] = ()) -> Session:
    """Build everything a configuration names.

    Args:
        config: The configuration.
        catalogue: Where components come from.
        later: Benchmarks whose classes follow those of the configuration's, under the same transforms.

    Raises:
        ConfigError: Something cannot be built as configured.
        DataError: Data or weights are missing.
    """
    run, engine = config.run, engine_of(config)
    require_open_files(run.workers)
    benchmark = build(catalogue, "benchmark", config.benchmark)
    component = catalogue.get("baseline", config.baseline.name)
    streams = [build(catalogue, "benchmark", one).stream() for one in later]
    sources, stream = joined([config.benchmark, *later], [benchmark.stream(), *streams])
    if component.joint:
        if later:
            raise ConfigError(
                f"baseline {component.name!r} learns all its tasks as one, and takes no more afterwards; run "
                "it on all classes at once"
            )
        stream = as_one_task(stream)
    mixer = mixer_of(config, engine)
    stream, held_back = hold_back(stream, 0 if mixer is None else config.routing.held_back, run.seed)
    chosen, of_backbones = config.backbone, catalogue.get("backbone", config.backbone.name)
    config, base = lay_foundation(
        config, engine, lambda: of_backbones.build(chosen.config, chosen.weights, chosen.image_size)
    )
    engine, backbone = base.engine, base.backbone
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
    growth = config.growth
    options = SpaceOptions(energy=growth.energy, power=growth.energy_power, rule=growth.rule)
    return Session(
        config=config,
        precision=base.precision,
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
        measures={one.name: build(catalogue, "evidence", one) for one in config.evidence},
        components=_components(catalogue, config),
        constraints={one.name: build(catalogue, "constraint", one, context) for one in config.constraints},
        pool=Pool(),
        memory=SubspaceMemory(options),
        stored=Stored(),
        evaluator=_evaluator(stream, transforms, base, config, retrieval, mixer),
        mixer=mixer,
        held_back=held_back,
    )


def _components(catalogue: Catalogue, config: ExperimentConfig) -> tuple[Component, ...]:
    """Return the records of all components in use that belong to a method."""
    named: list[tuple[Kind, Chosen | None]] = [
        ("baseline", config.baseline),
        ("retrieval", config.retrieval),
        ("policy", config.policy),
        *(("evidence", chosen) for chosen in config.evidence),
        *(("constraint", chosen) for chosen in config.constraints),
    ]
    return tuple(catalogue.get(kind, chosen.name) for kind, chosen in named if chosen is not None)


def _query_norm(retrieval: RetrievalStrategy | None) -> bool:
    return retrieval is None or retrieval.query_norm


def _evaluator(
    stream: TaskStream,
    transforms: Transforms,
    base: Foundation,
    config: ExperimentConfig,
    retrieval: RetrievalStrategy | None,
    mixer: Mixer | None,
) -> Evaluator:
    parts = [task.test for task in stream.tasks]
    empty = [task.index for task in stream.tasks if not len(task.test) or not len(task.train)]
    if empty:
        raise ConfigError(f"benchmark: tasks {empty} have no training or no test images")
    images = ImageSet(
        Originals(parts, base.engine.device, limit=config.run.image_memory * 2**20, keep=False),
        transforms.test,
        deterministic=True,
        backbone=base.backbone,
        engine=base.engine,
        batch_size=config.run.evaluation_batch,
        workers=config.run.workers,
        query_norm=_query_norm(retrieval),
    )
    sizes = [len(part) for part in parts]
    return Evaluator(images, sizes, base.engine, config.run.evaluation_batch, names_of(config), mixer)
