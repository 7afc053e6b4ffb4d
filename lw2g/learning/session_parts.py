"""The half of a session that learns: a model's parts, and what decides and constrains while it learns."""

from __future__ import annotations

import attrs
import numpy as np
from torch import Tensor, nn

from lw2g.config.settings import ExperimentConfig
from lw2g.errors import ConfigError
from lw2g.interfaces.choices import Screen
from lw2g.interfaces.constraint import Constraint
from lw2g.interfaces.context import TaskContext
from lw2g.interfaces.evidence import Measure
from lw2g.interfaces.growth import GrowthPolicy, Planned
from lw2g.interfaces.head import heads_within
from lw2g.interfaces.memory import SubspaceMemory
from lw2g.interfaces.phase import Phase
from lw2g.learning.evidence.evidence_sample import EvidenceSample
from lw2g.learning.evidence.stored_statistics import StoredStatistics
from lw2g.learning.phases import joined_phases
from lw2g.model.parts import ModelParts
from lw2g.pixels.image_set import ImageSet
from lw2g.runtime.returned import require_several_classes
from lw2g.vit.taps import Tap

__all__ = ["Growth", "RunParts"]


@attrs.frozen(kw_only=True, eq=False)
class Growth:
    """What decides whether a task gets a set of its own.

    Attributes:
        policy: The policy.
        fixed: Whether the baseline has one set for the whole run; the policy is not asked then.
        screen: Which sets the policy wants to be measured if there are too many.
        measures: The measures before each decision, by name; empty where nothing grows.
        stored: The statistics of old tasks that they have stored.
    """

    policy: GrowthPolicy
    fixed: bool
    screen: Screen
    measures: dict[str, Measure]
    stored: StoredStatistics = attrs.field(factory=StoredStatistics)

    @property
    def collects_evidence(self) -> bool:
        """Whether there are measures before each decision."""
        return bool(self.measures)

    @property
    def trains_copies(self) -> bool:
        """Whether copies of what learns are trained to the end before each decision."""
        return any("outcome" in measure.needs for measure in self.measures.values())


@attrs.frozen(kw_only=True, eq=False)
class RunParts(ModelParts):
    """The parts of a run that hold learned state: those of a model, and those that only learning needs.

    Attributes:
        config: In which ``run.precision`` is settled.
        growth: What decides on sets.
        constraints: By name.
        memory: The spaces of old tasks.
        merging: Within a task that merges its set, what the set was before, and the weight; within one that
            leaves its set as it is, ``held``; else empty. A checkpoint within the task has it.
    """

    config: ExperimentConfig
    growth: Growth
    constraints: dict[str, Constraint]
    memory: SubspaceMemory
    merging: dict[str, Tensor] = attrs.field(factory=dict, init=False)

    @property
    def holds_set(self) -> bool:
        """Whether the task under way leaves its set as it is."""
        return "held" in self.merging

    @property
    def keeps_memory(self) -> bool:
        """Whether a component reads the memory's spaces; otherwise none are built."""
        for constraint in self.constraints.values():
            if constraint.needs_memory:
                return True
        for measure in self.growth.measures.values():
            if "spaces" in measure.needs or "spaces" in measure.store_needs:
                return True
        return False

    @property
    def builds_spaces(self) -> bool:
        """Whether finished tasks leave spaces anywhere: in the memory, or with a constraint of its own."""
        return self.keeps_memory or any(constraint.absorbs for constraint in self.constraints.values())

    @property
    def modules(self) -> list[nn.Module]:
        """All modules with state: the baseline, the sets, the retrieval strategy."""
        modules: list[nn.Module] = [self.baseline, *self.pool.sets]
        return modules if self.retrieval is None else [*modules, self.retrieval]

    def learning(self, set_id: int) -> list[nn.Module]:
        """Return the modules that a task trains: the baseline, its set, the retrieval strategy."""
        modules: list[nn.Module] = [self.baseline, self.pool[set_id]]
        return modules if self.retrieval is None else [*modules, self.retrieval]

    def learned(self, set_id: int) -> dict[str, Tensor]:
        """Return the tensors that a task changes, of modules and spaces, by name."""
        tensors: dict[str, Tensor] = {}
        for module in (*self.learning(set_id), self.mixer):
            if module is None:
                continue
            kind = type(module).__name__
            for name, value in module.state_dict().items():
                tensors[f"{kind}.{name}"] = value
        return tensors | self.memory.state_dict()

    def bytes_of(self, classes: int) -> int:
        """Return the bytes of classifiers in closed form that grow with classes, for so many of them."""
        total = 0
        # a head may lie anywhere: in an expert, or in the retrieval strategy
        for module in self.modules:
            for head in heads_within(module):
                total += head.bytes_of(classes)
        return total

    def passes(self, sets: int) -> int:
        """Return the number of forwards per image where there are that many sets."""
        if self.mixer is not None:
            return self.mixer.passes(sets)
        return self.baseline.scope.forwards(sets, len(self.baseline.beside()))

    def phases(self, context: TaskContext) -> list[tuple[str, Phase]]:
        """Return the phases of a task in order, each after the name of its owner.

        Raises:
            ContractError: Retrieval strategy or baseline return something else.
        """
        return joined_phases(self.baseline, self.retrieval, self.constraints, self.names, context)

    def evidence_sample(self, index: int, images: ImageSet) -> EvidenceSample:
        """Return a task's evidence sample.

        Args:
            index: The task.
            images: Its training images under the test transform.
        """

        def taps() -> list[Tap]:
            sites = self.baseline.sites(self.pool.sets[-1]) if len(self.pool) else ()
            every = (*sites, *self.baseline.shared_sites())
            # other sites are never compared with un-prompted activations, which published taps lack
            return [site.activation.tap for site in every if site.measured or site.soft]

        return EvidenceSample(
            self.infos[index],
            images,
            self.backbone,
            self.engine,
            self.config.growth,
            self.config.run.seed,
            taps,
        )

    def require_goal(self, done: int, tasks: int | None) -> int:
        """Return after how many tasks the run stops.

        Args:
            done: How many it has finished.
            tasks: How many the user asks for; None: those of the whole stream.

        Raises:
            ConfigError: There are fewer, more are finished already, or the policy cannot decide for them.
        """
        whole = len(self.infos)
        least = max(done, 1)
        if tasks is not None and not least <= tasks <= whole:
            state = f"the stream has {whole}" + (f", of which {done} are finished" if done else "")
            some = f"name one of {least} to {whole}"
            if done == whole:
                some = "nothing is left to learn; new classes: lw2g continue RUN --benchmark NAME"
            elif least == whole:
                some = f"name {whole}"
            raise ConfigError(f"cannot stop after task {tasks}: {state}", some)
        goal = whole if tasks is None else tasks
        if isinstance(self.growth.policy, Planned):
            self.growth.policy.require_tasks(goal)
        return goal

    def require_prepared(self, tasks: int) -> None:
        """Refuse tasks for which a head in closed form lacks something, or a loss has one class alone.

        Raises:
            Lw2gError: There is such a task.
        """
        if self.baseline.several_classes:
            self.require_several_classes(0)
        for head in heads_within(self.baseline):
            for info in self.infos[:tasks]:
                head.require(info)

    def require_several_classes(self, index: int) -> None:
        """Refuse to train from a task on where it or a later one has one class: the loss over it is 0.

        Raises:
            ConfigError: There is such a task.
        """
        trained = [info for info in self.infos[index:] if self.baseline.trains(info)]
        # all tasks are checked: whoever has to change them wants to know it before the first is learned
        for info in trained:
            require_several_classes(info.index, len(info.classes), self.names[0])

    def generator(self, index: int) -> np.random.Generator:
        """Return the policy's generator for one task."""
        return np.random.default_rng(self.seed_of(index, "policy"))
