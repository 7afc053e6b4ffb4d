"""The records with which a plugin offers components: one frozen record per component, one class per kind."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import attrs

from lw2g.errors import ConfigError, PluginError, message_of
from lw2g.ground.plugin_lines import line_of_plugin
from lw2g.interfaces.choices import Growth, Screen, is_one_of
from lw2g.interfaces.dataset import DataSet
from lw2g.interfaces.defaults import DEFAULT_CONSTRAINTS, DEFAULT_MEASURES
from lw2g.interfaces.deviations import Deviation
from lw2g.interfaces.options import idle_options

if TYPE_CHECKING:
    from pathlib import Path

    from lw2g.interfaces.baseline import Baseline
    from lw2g.interfaces.carry import Carry, CarryContext
    from lw2g.interfaces.constraint import Constraint
    from lw2g.interfaces.context import BuildContext
    from lw2g.interfaces.evidence import Measure
    from lw2g.interfaces.growth import GrowthPolicy
    from lw2g.interfaces.head import ClosedForm, HeadContext
    from lw2g.interfaces.retrieval import RetrievalStrategy
    from lw2g.interfaces.stream import Benchmark, TaskStream
    from lw2g.interfaces.tracker import Tracker
    from lw2g.interfaces.vectors import VectorFacts
    from lw2g.vit.backbone import Backbone

__all__ = [
    "KINDS",
    "Alias",
    "BackboneComponent",
    "BaselineComponent",
    "BenchmarkComponent",
    "CarryComponent",
    "Component",
    "ConstraintComponent",
    "EvidenceComponent",
    "HeadComponent",
    "Kind",
    "Lazy",
    "NoOptions",
    "PolicyComponent",
    "Presets",
    "RetrievalComponent",
    "TrackerComponent",
    "lazy",
]

Kind = Literal[
    "baseline",
    "head",
    "carry",
    "retrieval",
    "policy",
    "evidence",
    "constraint",
    "benchmark",
    "backbone",
    "tracker",
    "metric",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

Presets = Mapping[str, Mapping[str, Any]]
"""Benchmark family -> dotted key of an experiment -> value."""


def _name_backbones_only(_instance: object, field: attrs.Attribute[Any], presets: Presets) -> None:
    if not isinstance(presets, dict):  # a file is checked when it is read
        return
    for values in presets.values():
        for key in values:
            if key.startswith("backbone.") and key != "backbone.name":
                raise ValueError(f"{field.name}: of a backbone only the name can be set, not {key!r}")


def _brings_nothing(_config: Any) -> Mapping[str, Any]:
    """Return no options: most policies leave those of other sections alone."""
    return {}


def _lacks_nothing(_config: Any) -> tuple[str, str] | None:
    """Return None: most components need no file of the user's."""
    return None


def _is_held_equal(_instance: object, field: attrs.Attribute[Any], values: Mapping[str, Any]) -> None:
    for key in values:
        if key != "backbone.name" and not key.startswith("benchmark."):
            raise ValueError(f"{field.name}: only benchmark.* and backbone.name are held equal, not {key!r}")


QUALIFIER = r"([a-z0-9-]+:)?"
"""What the catalogue puts before a name that lw2g has itself: the distribution that registers it."""
_KEBAB = attrs.validators.matches_re(QUALIFIER + r"[a-z][a-z0-9]*(-[a-z0-9+]+)*")


@attrs.frozen
class Lazy:
    """A class or function that is imported when it is first called.

    Attributes:
        target: Where it is, as in an entry point: ``"package.module:name"``.
        fixed: Keyword arguments of every call.
    """

    target: str = attrs.field(validator=attrs.validators.matches_re(r"[\w.]+:\w+"))
    fixed: Mapping[str, Any] = attrs.field(factory=dict, hash=False)

    def load(self) -> Callable[..., Any]:
        """Import the module and return its attribute of that name.

        Raises:
            PluginError: The module cannot be imported or has no such name.
        """
        module, _, name = self.target.partition(":")
        try:
            target: Callable[..., Any] = getattr(importlib.import_module(module), name)
        # a syntax error too: no frame of the plugin is in its traceback, so that it would pass for lw2g's own
        except (ImportError, AttributeError, SyntaxError) as error:
            remedy = "install what it needs or fix the plugin"
            missing = getattr(error, "name", None) or ""
            if isinstance(error, ImportError) and missing.partition(".")[0] == "lw2g":
                remedy = "lw2g's changelog says where the name has moved; lw2g.plugin has what plugins import"
            what = f"{self.target!r} cannot be imported: {message_of(error)}{line_of_plugin(error)}"
            raise PluginError(what, remedy) from error
        return target

    def __call__(self, *arguments: Any) -> Any:
        """Build the component."""
        return self.load()(*arguments, **self.fixed)


def lazy(target: str, **fixed: Any) -> Lazy:
    """Return a ``build`` that imports its code when it is called.

    Most commands import the records of every plugin, so a module of records and options should import
    nothing heavy; the code that builds a component may.

    Args:
        target: Where the class or function is, as in an entry point: ``"package.module:name"``. It is called
            with the arguments of the kind's ``build``.
        **fixed: Further keyword arguments, in which components that share the code differ.
    """
    return Lazy(target, fixed)


@attrs.frozen(kw_only=True)
class Alias:
    """A name by which users look for a component, since a paper has it.

    It never runs as it stands: what is typed says what it gets. An error, ``lw2g plugins`` and the page of
    components lead from it to the component.

    Attributes:
        name: As it would be typed, in kebab-case.
        differs: What is different here, as the end of a sentence that begins with the name.
        options: Further options to set, as ``--set`` takes them; none of them names the component.
    """

    name: str = attrs.field(validator=attrs.validators.matches_re(r"[a-z0-9]+(-[a-z0-9]+)*"))
    differs: str
    options: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Component:
    """The record of one component.

    Attributes:
        name: The kebab-case name users type; unique within the kind. The catalogue calls a component of a
            stranger ``distribution:name`` where lw2g has one of that name itself.
        config: The attrs class of its options (frozen, keyword only, every option with a default).
        summary: One line for listings.
        citation: Where the method was published; empty for lw2g's own.
        deviations: Differences from the published method that no option removes; a run that a deviation
            affects lists it in its record.
        control: True for a reference row: a bound, a baseline that learns next to nothing, a retrieval
            strategy that looks at the answer (``oracle``). Reports mark such rows. A baseline that is
            nothing but a head, given by name, is as that head says.
        rehearsal: Options with which a rehearsal (``lw2g sweep --rehearse``) uses it: small, quick, and
            without files that do not ship with lw2g.
        lacks: ``lacks(config)`` returns the option that has to name a file or a folder and names none, with
            how to get it; None if the options suffice.
        unread: ``unread(config)`` returns the options that nothing reads beside the others, each with what to
            say of it, such as ``{"epochs": "is not read: adapt=none trains nothing"}``. A run tells those
            that somebody has set, and a sweep refuses cells that differ in them alone. Where it is left out,
            options declare it themselves (``only`` and ``unless`` of ``option``).
        aliases: Names by which users look for it.
    """

    kind: ClassVar[Kind]
    hook: ClassVar[str]
    """The hook that returns records of the kind."""
    section: ClassVar[str] = ""
    """The section of a configuration that names those in use; empty if all installed ones are."""
    several: ClassVar[bool] = False
    """Whether several can be in use: the section then has one table per name."""
    interface: ClassVar[Lazy]
    """The class or protocol of what ``build`` returns."""

    name: str = attrs.field(validator=_KEBAB)
    config: type[Any]
    summary: str
    citation: str = ""
    deviations: tuple[Deviation, ...] = ()
    control: bool = False
    rehearsal: Mapping[str, Any] = attrs.field(factory=dict, hash=False)
    lacks: Callable[[Any], tuple[str, str] | None] = _lacks_nothing
    unread: Callable[[Any], Mapping[str, str]] = idle_options
    aliases: tuple[Alias, ...] = ()

    def __attrs_pre_init__(self, **given: Any) -> None:  # before validators, which go through tuples
        for field in attrs.fields(type(self)):
            value = given[field.name]
            # a text is a sequence as well: without its comma a tuple of one name would be one of letters
            if str(field.type).startswith("tuple[") and isinstance(value, str):
                what = f"{self.kind} {given['name']!r}: {field.name} is the text {value!r}"
                raise ConfigError(what, f"write ({value!r},)")


@attrs.frozen(kw_only=True)
class NoOptions:
    """The options of a component that has none: its name alone says what it is."""


@attrs.frozen(kw_only=True)
class BaselineComponent(Component):
    """A baseline: how a parameter set (prompts, low-rank updates, adapters) adapts the backbone.

    Attributes:
        build: ``build(config, context)``.
        growth: ``"sets"`` composes with every growth policy; ``"fixed"`` runs under ``always`` only.
        retrieval: The default retrieval strategy; None if the baseline makes no hard choice of a set.
        joint: Whether it learns all tasks at once, as a single task.
        presets: The authors' values: benchmark family -> dotted keys of an experiment, with the transforms,
            class order and backbone (``{"cifar100": {"baseline.epochs": 40, "benchmark.normalise": "unit",
            "backbone.name": "sup21k"}}``). The protocol ``official`` uses all of them; under
            ``like-for-like`` those of :attr:`BenchmarkComponent.like_for_like` replace some of them.
        tuned: Our own values of its options for benchmarks that the authors never ran, such as ``digits``.
        without_images: Option values under which the method reads un-prompted features alone
            (:attr:`lw2g.interfaces.batch.Batch.query`), so that it runs on stored features too, such as
            ``{"adapt": "none"}``; empty where it always does, None where it needs images.
        has_sites: Whether it declares sites, at which constraints restrict how parameters move.
        query_sites: Whether some may be of attention queries, which alone have spaces by head.
        trains_once: Whether it trains in the first task alone, as a ``joint`` one does, too.
    """

    kind: ClassVar[Kind] = "baseline"
    hook: ClassVar[str] = "lw2g_baselines"
    section: ClassVar[str] = "baseline"
    interface: ClassVar[Lazy] = Lazy("lw2g.interfaces.baseline:Baseline")

    build: Callable[[Any, BuildContext], Baseline]
    growth: Growth = attrs.field(default="sets", validator=is_one_of(get_args(Growth)))
    retrieval: str | None = None
    joint: bool = False
    presets: Presets = attrs.field(factory=dict, validator=_name_backbones_only)
    tuned: Presets = attrs.field(factory=dict)
    without_images: Mapping[str, Any] | None = None
    has_sites: bool = True
    query_sites: bool = True
    trains_once: bool = False


@attrs.frozen(kw_only=True)
class HeadComponent(Component):
    """A head: a classifier in closed form, which predicts from features in place of a method's trained one.

    Every baseline with the option ``head`` takes every head: ``baseline.head=NAME``. Its own options stand
    in the section ``head``: ``head.NAME.OPTION``. What it can do is declared by the class that it builds
    (:class:`lw2g.interfaces.head.ClosedForm`).

    Attributes:
        build: ``build(config, context)``.
        random_features: Whether it reads ``baseline.head_features``.
        without_tasks: Options with which its scores do not depend on how images are cut into tasks, for a
            model that is made without any (``lw2g start``), where these are not the defaults.
        backbone: Options of the backbone that a run takes where nobody says how features are made.
    """

    kind: ClassVar[Kind] = "head"
    hook: ClassVar[str] = "lw2g_heads"
    section: ClassVar[str] = "head"
    several: ClassVar[bool] = True
    interface: ClassVar[Lazy] = Lazy("lw2g.interfaces.head:ClosedForm")

    build: Callable[[Any, HeadContext], ClosedForm]
    random_features: bool = True
    without_tasks: Mapping[str, Any] = attrs.field(factory=dict)
    backbone: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class CarryComponent(Component):
    """A carry: it moves what heads and replay keep of old classes along with features that drift.

    Every baseline with the option ``head_carry`` takes every carry: ``baseline.head_carry=NAME``. Its own
    options stand in the section ``carry``: ``carry.NAME.OPTION``.

    Attributes:
        build: ``build(config, context)``.
        wraps: Whether it changes the motion of another carry, which ``baseline.head_gated`` names and
            ``context.inner`` holds.
    """

    kind: ClassVar[Kind] = "carry"
    hook: ClassVar[str] = "lw2g_carries"
    section: ClassVar[str] = "carry"
    several: ClassVar[bool] = True
    interface: ClassVar[Lazy] = Lazy("lw2g.interfaces.carry:Carry")

    build: Callable[[Any, CarryContext], Carry]
    wraps: bool = False


@attrs.frozen(kw_only=True)
class RetrievalComponent(Component):
    """A retrieval strategy: it chooses the task whose set a test sample gets."""

    kind: ClassVar[Kind] = "retrieval"
    hook: ClassVar[str] = "lw2g_retrievals"
    section: ClassVar[str] = "retrieval"
    interface: ClassVar[Lazy] = Lazy("lw2g.interfaces.retrieval:RetrievalStrategy")

    build: Callable[[Any, BuildContext], RetrievalStrategy]


@attrs.frozen(kw_only=True)
class PolicyComponent(Component):
    """A growth policy: it decides whether a task gets a new set or shares an old one.

    Attributes:
        measures: Names of the measures that it reads, computed before each decision; or a function that
            returns them for given options.
        screen: Which sets to measure if ``growth.screen`` limits their number.
        default_constraints: The constraints in use unless the user names others.
        brings: ``brings(config)`` returns options of other sections, by dotted keys, that belong to the
            policy under its options; what the user sets goes before them.
        adds_always: True if every task gets a set of its own; ``fixed`` baselines need such a policy.
    """

    kind: ClassVar[Kind] = "policy"
    hook: ClassVar[str] = "lw2g_policies"
    section: ClassVar[str] = "policy"
    interface: ClassVar[Lazy] = Lazy("lw2g.interfaces.growth:GrowthPolicy")

    build: Callable[[Any], GrowthPolicy]
    measures: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = DEFAULT_MEASURES
    screen: Screen = attrs.field(default="ends", validator=is_one_of(get_args(Screen)))
    default_constraints: tuple[str, ...] = DEFAULT_CONSTRAINTS
    brings: Callable[[Any], Mapping[str, Any]] = _brings_nothing
    adds_always: bool = False

    def reads(self, config: Any) -> tuple[str, ...]:
        """Return the names of the measures that the policy reads under given options."""
        names = self.measures(config) if callable(self.measures) else self.measures
        if isinstance(names, str):
            raise ConfigError(f"policy {self.name!r}: measures is the text {names!r}", f"write ({names!r},)")
        return names


@attrs.frozen(kw_only=True)
class EvidenceComponent(Component):
    """A measure: it relates a new task to each live set."""

    kind: ClassVar[Kind] = "evidence"
    hook: ClassVar[str] = "lw2g_evidence"
    section: ClassVar[str] = "evidence"
    several: ClassVar[bool] = True
    interface: ClassVar[Lazy] = Lazy("lw2g.interfaces.evidence:Measure")

    build: Callable[[Any], Measure]


@attrs.frozen(kw_only=True)
class ConstraintComponent(Component):
    """A constraint: it changes gradients or updates so that old tasks are preserved.

    Attributes:
        needs_sites: Whether it acts at sites alone.
        needs_old_tasks: Whether it acts from the second task on.
    """

    kind: ClassVar[Kind] = "constraint"
    hook: ClassVar[str] = "lw2g_constraints"
    section: ClassVar[str] = "constraints"
    several: ClassVar[bool] = True
    interface: ClassVar[Lazy] = Lazy("lw2g.interfaces.constraint:Constraint")

    build: Callable[[Any, BuildContext], Constraint]
    needs_sites: bool = False
    needs_old_tasks: bool = False


@attrs.frozen(kw_only=True)
class BenchmarkComponent(Component):
    """A benchmark: a stream of tasks and their images.

    Attributes:
        family: The name under which baselines keep presets for it. Official presets set options of this
            benchmark, so its configuration must have them.
        embedded: True if it ships with lw2g or is generated: a default to learn with, not to publish.
        like_for_like: What the protocol ``like-for-like`` holds equal for all methods on this benchmark, as
            dotted keys: transforms, class order and increment, and ``backbone.name``.
        data: The facts of a published data set, with which ``lw2g data`` lists, fetches and checks it; its
            configuration then has the options ``root`` and ``split``.
        fresh_stream: ``fresh_stream(config, seed)`` of a benchmark that draws its images: the stream with
            other test images of the same classes, those of a seed. None if its images are what they are.
        vectors: Whether its items are stored features in place of images; its streams then say where they
            come from (:attr:`lw2g.interfaces.stream.TaskStream.vectors`).
    """

    kind: ClassVar[Kind] = "benchmark"
    hook: ClassVar[str] = "lw2g_benchmarks"
    section: ClassVar[str] = "benchmark"
    interface: ClassVar[Lazy] = Lazy("lw2g.interfaces.stream:Benchmark")

    build: Callable[[Any], Benchmark]
    family: str
    embedded: bool = False
    like_for_like: Mapping[str, Any] = attrs.field(factory=dict, validator=_is_held_equal)
    data: DataSet | None = None
    fresh_stream: Callable[[Any, int], TaskStream] | None = None
    vectors: bool = False


@attrs.frozen(kw_only=True)
class BackboneComponent(Component):
    """A frozen pre-trained ViT under a short name.

    Attributes:
        build: ``build(config, weights, image_size)``; ``weights`` overrides the preset's source.
        embedded: True for weights that ship with lw2g.
        untrained: ``untrained(config, image_size)``: the same architecture with random weights, into which
            an export loads its own. None if the architecture is unknown without the weights.
        facts: Further facts about the checkpoint (files, hashes, who used it), one sentence each.
        hashes: SHA-256 of the files that hold the checkpoint, or their first digits; a report names any other
            file by its hash.
        fit_vectors: ``fit_vectors(config, facts)`` of a backbone that takes stored features: returns its
            options, completed by where a stream's vectors come from. None for a backbone that takes images.
        hub: The repository of the hub that the weights are fetched from; empty if a file is needed; or a
            function that returns it for given options.
        page: Where that file comes from, in words.
    """

    kind: ClassVar[Kind] = "backbone"
    hook: ClassVar[str] = "lw2g_backbones"
    section: ClassVar[str] = "backbone"
    interface: ClassVar[Lazy] = Lazy("lw2g.vit.backbone:Backbone")

    build: Callable[[Any, Path | None, int | None], Backbone]
    embedded: bool = False
    untrained: Callable[[Any, int | None], Backbone] | None = None
    facts: tuple[str, ...] = ()
    hashes: tuple[str, ...] = ()
    fit_vectors: Callable[[Any, VectorFacts], Any] | None = None
    hub: str | Callable[[Any], str] = ""
    page: str = ""

    def repository(self, config: Any) -> str:
        """Return the repository of the hub with the weights under given options; empty if there is none."""
        return self.hub(config) if callable(self.hub) else self.hub


@attrs.frozen(kw_only=True)
class TrackerComponent(Component):
    """A tracker: it receives the typed events of a run.

    Attributes:
        package: The package that it imports beside lw2g, for which a dry run looks; empty for none.
        install: The command that installs it.
    """

    kind: ClassVar[Kind] = "tracker"
    hook: ClassVar[str] = "lw2g_trackers"
    section: ClassVar[str] = "trackers"
    several: ClassVar[bool] = True
    interface: ClassVar[Lazy] = Lazy("lw2g.interfaces.tracker:Tracker")

    build: Callable[[Any, Path], Tracker]
    package: str = ""
    install: str = ""

    @property
    def is_installed(self) -> bool:
        """Whether its package is here."""
        return not self.package or find_spec(self.package) is not None
