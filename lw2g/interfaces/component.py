"""The records by which a plugin offers components: one frozen record a component, one class a kind."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import attrs

from lw2g.errors import PluginError
from lw2g.interfaces.dataset import DataSet, Outline
from lw2g.interfaces.deviations import Deviation

if TYPE_CHECKING:
    from pathlib import Path

    from lw2g.interfaces.baseline import Baseline
    from lw2g.interfaces.constraint import Constraint
    from lw2g.interfaces.context import BuildContext
    from lw2g.interfaces.evidence import Measure
    from lw2g.interfaces.growth import GrowthPolicy
    from lw2g.interfaces.retrieval import RetrievalStrategy
    from lw2g.interfaces.stream import Benchmark
    from lw2g.interfaces.tracker import Tracker
    from lw2g.vit.backbone import Backbone

__all__ = [
    "KINDS",
    "BackboneComponent",
    "BaselineComponent",
    "BenchmarkComponent",
    "Component",
    "ConstraintComponent",
    "EvidenceComponent",
    "Kind",
    "Lazy",
    "PolicyComponent",
    "Presets",
    "RetrievalComponent",
    "TrackerComponent",
    "lazy",
]

Kind = Literal[
    "baseline", "retrieval", "policy", "evidence", "constraint", "benchmark", "backbone", "tracker"
]
KINDS: tuple[Kind, ...] = (
    "baseline",
    "retrieval",
    "policy",
    "evidence",
    "constraint",
    "benchmark",
    "backbone",
    "tracker",
)

Presets = Mapping[str, Mapping[str, Any]]
"""Benchmark family -> dotted keys of an experiment -> values."""


def _name_backbones_only(_instance: object, field: attrs.Attribute[Any], presets: Presets) -> None:
    for values in presets.values():
        for key in values:
            if key.startswith("backbone.") and key != "backbone.name":
                raise ValueError(f"{field.name}: of a backbone only the name can be set, not {key!r}")


def _is_held_equal(_instance: object, field: attrs.Attribute[Any], values: Mapping[str, Any]) -> None:
    for key in values:
        if key != "backbone.name" and not key.startswith("benchmark."):
            raise ValueError(f"{field.name}: only benchmark.* and backbone.name are held equal, not {key!r}")


_KEBAB = attrs.validators.matches_re(r"[a-z][a-z0-9]*(-[a-z0-9+]+)*")


@attrs.frozen
class Lazy:
    """What builds a component, imported when it is first called.

    Attributes:
        target: Where it is, as in an entry point: ``"package.module:name"``.
    """

    target: str = attrs.field(validator=attrs.validators.matches_re(r"[\w.]+:\w+"))

    def load(self) -> Callable[..., Any]:
        """Import the module and return what the name stands for.

        Raises:
            PluginError: The module cannot be imported or has no such name.
        """
        module, _, name = self.target.partition(":")
        try:
            found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise PluginError(
                f"{self.target!r} cannot be imported: {error}; install what it needs or fix the plugin"
            ) from error
        return found

    def __call__(self, *arguments: Any) -> Any:
        """Build the component."""
        return self.load()(*arguments)


def lazy(target: str) -> Lazy:
    """Return a ``build`` that imports its code when it is called.

    Every command imports every plugin's records, so records and options should import nothing heavy; the
    code that builds a component may.

    Args:
        target: Where the class or function is, as in an entry point: ``"package.module:name"``.
    """
    return Lazy(target)


@attrs.frozen(kw_only=True)
class Component:
    """What every component says of itself.

    Attributes:
        name: The kebab-case name users type; unique within the kind.
        config: The attrs class of its options (frozen, keyword only, every option with a default).
        summary: One line for listings.
        citation: Where the method was published, empty for our own.
        deviations: What differs from the published method whatever the options are; runs that a deviation
            touches list it in their record.
    """

    kind: ClassVar[Kind]

    name: str = attrs.field(validator=_KEBAB)
    config: type[Any]
    summary: str
    citation: str = ""
    deviations: tuple[Deviation, ...] = ()


@attrs.frozen(kw_only=True)
class BaselineComponent(Component):
    """A baseline: how a prompt set (or low-rank set, adapter ...) adapts the backbone.

    Attributes:
        build: ``build(config, context)``.
        growth: ``"sets"`` composes with every growth policy; ``"fixed"`` runs under ``always`` only.
        retrieval: The retrieval strategy it uses by default; None where it makes no hard choice of a set.
        joint: Whether it learns all tasks at once, as one.
        control: True for a row that shows where methods stand: a bound, or one that learns next to nothing.
            Reports mark it.
        presets: Official values: benchmark family -> dotted keys of an experiment, with the authors'
            transforms, class order and backbone (``{"cifar100": {"baseline.epochs": 40,
            "benchmark.normalise": "unit", "backbone.name": "sup21k"}}``). They are the protocol ``official``;
            under ``like-for-like`` those of benchmark and backbone give way to
            :attr:`BenchmarkComponent.like_for_like`.
        tuned: Our own values for benchmarks the authors never ran (``digits``, ``glyphs``, ``folder``): the
            method's options alone.
    """

    kind: ClassVar[Kind] = "baseline"

    build: Callable[[Any, BuildContext], Baseline]
    growth: Literal["sets", "fixed"] = "sets"
    retrieval: str | None = None
    joint: bool = False
    control: bool = False
    presets: Presets = attrs.field(factory=dict, validator=_name_backbones_only)
    tuned: Presets = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class RetrievalComponent(Component):
    """A retrieval strategy: which task's set a test sample gets.

    Attributes:
        control: True for a strategy that looks at the answer (``oracle``): control rows only, marked in the
            record.
    """

    kind: ClassVar[Kind] = "retrieval"

    build: Callable[[Any, BuildContext], RetrievalStrategy]
    control: bool = False


Screen = Literal["least", "most", "ends"]
"""Which sets are measured where there are too many: those whose spaces capture the least energy of the new
task (they hinder least), the most, or as many of either end."""


@attrs.frozen(kw_only=True)
class PolicyComponent(Component):
    """A growth policy.

    Attributes:
        measures: The measures that it reads, by name, which are computed before each decision; or what
            returns them for given options.
        screen: Which sets it wants to know of where ``growth.screen`` lets only some be measured.
        default_constraints: Constraints that come with the policy unless the user names others.
        adds_always: True where every task gets a set of its own (what ``fixed`` baselines can run under).
    """

    kind: ClassVar[Kind] = "policy"

    build: Callable[[Any], GrowthPolicy]
    measures: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ("hindrance",)
    screen: Screen = attrs.field(default="ends", validator=attrs.validators.in_(get_args(Screen)))
    default_constraints: tuple[str, ...] = ("orthogonal", "cpk")
    adds_always: bool = False

    def reads(self, config: Any) -> tuple[str, ...]:
        """Return the measures that are read under given options."""
        return self.measures(config) if callable(self.measures) else self.measures


@attrs.frozen(kw_only=True)
class EvidenceComponent(Component):
    """A measure: how a task that has arrived stands to each live set."""

    kind: ClassVar[Kind] = "evidence"

    build: Callable[[Any], Measure]


@attrs.frozen(kw_only=True)
class ConstraintComponent(Component):
    """A constraint: how gradients or updates are bent."""

    kind: ClassVar[Kind] = "constraint"

    build: Callable[[Any, BuildContext], Constraint]


@attrs.frozen(kw_only=True)
class BenchmarkComponent(Component):
    """A benchmark: a stream of tasks with disjoint classes.

    Attributes:
        family: The name under which baselines keep presets for it; their official ones set options of this
            benchmark, which must have them.
        embedded: True where it ships with lw2g or is generated (a default to learn with, not to publish).
        like_for_like: What the protocol of that name holds equal for all methods on this benchmark, as dotted
            keys: the benchmark's transforms, class order and increment, and ``backbone.name``.
        data: The facts of a published data set, by which ``lw2g data`` lists, fetches and checks it; its
            configuration then has an option ``root``.
        outline: ``outline(config)``: its size as published, so that a run can be priced where the data are
            not; raises DataError where counts are unknown. None where nothing is known without the data.
    """

    kind: ClassVar[Kind] = "benchmark"

    build: Callable[[Any], Benchmark]
    family: str
    embedded: bool = False
    like_for_like: Mapping[str, Any] = attrs.field(factory=dict, validator=_is_held_equal)
    data: DataSet | None = None
    outline: Callable[[Any], Outline] | None = None


@attrs.frozen(kw_only=True)
class BackboneComponent(Component):
    """A frozen pre-trained ViT under a short name.

    Attributes:
        build: ``build(config, weights, image_size)``; ``weights`` overrides the preset's source.
        embedded: True for weights that ship with lw2g.
        untrained: ``untrained(config, image_size)``: the same architecture with random weights, so that a run
            can be priced where the weights are not. None where it is not known without them.
        facts: What else is known of the checkpoint (files, hashes, who used it), one sentence each.
    """

    kind: ClassVar[Kind] = "backbone"

    build: Callable[[Any, Path | None, int | None], Backbone]
    embedded: bool = False
    untrained: Callable[[Any, int | None], Backbone] | None = None
    facts: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class TrackerComponent(Component):
    """A tracker: receives the typed events of a run."""

    kind: ClassVar[Kind] = "tracker"

    build: Callable[[Any, Path], Tracker]
