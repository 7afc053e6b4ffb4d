"""Resolves names, a TOML file and single options to one complete, valid configuration.

Precedence, lowest first: the defaults of each config class, the baseline's preset for the benchmark's family,
the TOML file, explicit options. The preset is that of the benchmark finally used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import attrs

from lw2g.config.describe import places_outside
from lw2g.config.inputs import idle_constraints, input_problems
from lw2g.config.layers import Preset, choose_preset, nest, preset_tables, table_of, with_short
from lw2g.config.named import named_by
from lw2g.config.protocols import AUTO, LIKE_FOR_LIKE, Protocol, choose_protocol, differences
from lw2g.config.settings import (
    FORMER_RUN_OPTIONS,
    BackboneChoice,
    BackboneSource,
    Chosen,
    ExperimentConfig,
    GrowthConfig,
    Resolved,
    RoutingConfig,
    RunConfig,
)
from lw2g.config.structure import structure
from lw2g.config.toml import read_toml, to_mapping
from lw2g.config.unknown import unknown_name, whose_options
from lw2g.config.unread import unread_notes
from lw2g.config.written import Written
from lw2g.errors import ConfigError, PluginError, UnknownComponentError, nearest, problems_in
from lw2g.interfaces.component import (
    BackboneComponent,
    BaselineComponent,
    BenchmarkComponent,
    Component,
    HeadComponent,
    Kind,
    PolicyComponent,
)
from lw2g.interfaces.defaults import (
    DEFAULT_BACKBONE,
    DEFAULT_BASELINE,
    DEFAULT_BENCHMARK,
    DEFAULT_FIXED_POLICY,
    DEFAULT_POLICY,
    TIMM_BACKBONE,
)
from lw2g.registry.catalogue import Catalogue
from lw2g.registry.kinds import COMPONENTS, place_of
from lw2g.vit.pool_words import FEATURE_OPTIONS

__all__ = ["Resolved", "load_resolved", "resolve"]


def resolve(
    catalogue: Catalogue,
    *,
    file: Path | Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    baseline: str | None = None,
    retrieval: str | None = None,
    policy: str | None = None,
    constraints: Sequence[str] | None = None,
    trackers: Sequence[str] = (),
    benchmark: str | None = None,
    backbone: str | None = None,
    weights: Path | str | None = None,
) -> Resolved:
    """Resolve an experiment.

    Args:
        catalogue: Where components are looked up.
        file: A TOML file, or its content.
        overrides: Dotted keys and values, such as ``{"baseline.epochs": 3}``; ``constraints`` has names.
        baseline: Name of the baseline, over what the overrides say of it; likewise the other names.
        retrieval: Name of the retrieval strategy that replaces the baseline's own.
        policy: Name of the growth policy.
        constraints: Names of the constraints that replace the policy's own; empty or ``["none"]`` for none.
        trackers: Names of trackers in addition to those of the file.
        benchmark: Name of the benchmark.
        backbone: Name of a backbone component or of any timm model.
        weights: A weights file for the backbone.

    Raises:
        ConfigError: Something cannot be used; the message lists every problem with its path.
    """
    names: dict[str, Any] = {"baseline": baseline, "retrieval": retrieval, "policy": policy}
    names |= {"constraints": constraints, "trackers": trackers, "benchmark": benchmark}
    names |= {"backbone": backbone, "weights": weights}
    place = ""
    if isinstance(file, Path):
        place = str(file)
        file = read_toml(file)
    return _Resolver(catalogue, file or {}, with_short(overrides or {}, names), place).resolve()


def load_resolved(path: Path, catalogue: Catalogue) -> Resolved:
    """Resolve a file written by :func:`lw2g.config.toml.dump_resolved`.

    Raises:
        ConfigError: It cannot be read, or a component or option in it no longer exists.
    """
    tables = read_toml(path)
    run = tables.get("run")
    if isinstance(run, dict):
        for name in FORMER_RUN_OPTIONS:
            run.pop(name, None)
    return resolve(catalogue, file=tables)


class _Resolver:
    """The state of one resolution: the layers, and the problems and notes so far."""

    def __init__(
        self, catalogue: Catalogue, file: Mapping[str, Any], explicit: Mapping[str, Any], place: str
    ) -> None:
        self.catalogue = catalogue
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.written = Written(file, explicit, catalogue, self.problems, place)
        self.preset = Preset()
        self.protocol = Protocol(name=LIKE_FOR_LIKE, preset=self.preset)
        self.preset_tables: dict[str, Any] = {}

    def resolve(self) -> Resolved:
        """Choose the components, fill in their options, and raise if there were problems."""
        # these two first: together they name the preset, which all other defaults come from
        benchmark = self._choose("benchmark", DEFAULT_BENCHMARK)
        baseline = self._choose("baseline", DEFAULT_BASELINE)
        self._find_preset(baseline, benchmark)
        config = self._fill(baseline, benchmark)
        if config is not None:  # what is wrong by itself needs no second complaint
            self.problems.extend(input_problems(self.catalogue, config))
            if idle := idle_constraints(self.catalogue, config):
                (self.problems if self.written.types_constraints else self.notes).append(idle)
            self.notes += unread_notes(self.catalogue, config, self.written, self.preset_tables)
        if self.problems or config is None:
            raise ConfigError(problems_in("the configuration", self.written.with_sources(self.problems)))
        mapping = to_mapping(config)
        published = self.preset.values if self.preset.official else {}
        note = f"differs from the authors' value for {self.preset.family}"
        return Resolved(
            config=config,
            preset=self.preset.label,
            preset_values=self.preset.values,
            preset_differences=[
                {"option": option, "value": value, "published": theirs, "note": note}
                for option, value, theirs in differences(published, mapping)
            ],
            protocol_changes=[
                {"option": option, "value": value, "protocol": expected}
                for option, value, expected in differences(self.protocol.fixed_options, mapping)
            ],
            notes=tuple(self.notes),
            names_backbone="name" in self.written.of("backbone"),
        )

    # -- layers ----------------------------------------------------------------------------------------

    def _find_preset(self, baseline: Component | None, benchmark: Component | None) -> None:
        """Choose the preset and the protocol for a method on a family of data sets, and read their tables."""
        if not isinstance(baseline, BaselineComponent) or not isinstance(benchmark, BenchmarkComponent):
            return
        self.preset = choose_preset(baseline, benchmark.family)
        wanted = self.written.of("run").get("protocol", AUTO)
        self.protocol = choose_protocol(wanted, self.preset, baseline, benchmark, self.problems)
        self.preset_tables = preset_tables(self.protocol.values, self.preset, baseline.name, self.problems)
        if not self.preset.values and _has_own_values(baseline):
            self.notes.append(
                f"no values of baseline {baseline.name!r} were tried on {benchmark.family!r}, and it runs "
                "with its defaults; others: --set baseline.OPTION=VALUE"
            )

    # -- components ------------------------------------------------------------------------------------

    def _find(self, kind: Kind, name: Any, path: str) -> Component | None:
        """Return the component of this kind and name; None after noting a problem."""
        if not isinstance(name, str):
            got = repr(name)
            if not isinstance(name, bool | int | float):
                # the message names the class, not the object: a model prints itself over hundreds of lines
                got = f"an object {type(name).__name__!r}"
            self.problems.append(f"{path}: expected a name but got {got}")
            return None
        try:
            return self.catalogue.get(kind, name)
        except (UnknownComponentError, PluginError) as error:
            problem = unknown_name(kind, name, error) if isinstance(error, UnknownComponentError) else error
            self.problems.append(f"{path}: {problem}")
            return None

    def _choose(self, section: Kind, default: str) -> Component | None:
        """Find the component of a section; drop the file's options if they belong to another component."""
        if section == "backbone":
            self.written.adopt_timm_names()
        in_file = self.written.file.get(section, {})
        explicit = self.written.explicit.get(section, {})
        written = in_file.get("name", default)
        name = explicit.get("name", written)
        if "name" in explicit and not _is_same(name, explicit, written, in_file):
            options = sorted(in_file.keys() - {"name"})
            if options:
                self.notes.append(
                    f"the [{section}] options ({', '.join(options)}) are for {written!r} and not used"
                )
            self.written.file[section] = {}
        return self._find(section, name, section)

    def _choose_policy(self, baseline: BaselineComponent | None) -> PolicyComponent | None:
        """Return the growth policy: the one that is named, else the default for methods of this kind."""
        fixed = baseline is not None and baseline.growth == "fixed"
        policy = self._choose("policy", DEFAULT_FIXED_POLICY if fixed else DEFAULT_POLICY)
        if not isinstance(policy, PolicyComponent):
            return None
        if baseline is not None and fixed and not policy.adds_always:
            self.problems.append(
                f"policy: baseline {baseline.name!r} does not grow and runs under {DEFAULT_FIXED_POLICY!r} "
                f"only, but got {policy.name!r}; leave the policy out"
            )
        return policy

    def _choose_retrieval(self, baseline: BaselineComponent | None) -> Component | None:
        """Return the retrieval strategy that is named, else the method's; None where a method takes none."""
        if baseline is None:
            return None
        if baseline.retrieval is not None:
            if "name" not in self.written.of("retrieval"):
                try:
                    return self.catalogue.retrieval_of(baseline)
                except PluginError as error:
                    self.problems.append(str(error))
                    return None
            return self._choose("retrieval", baseline.retrieval)
        if self.written.of("retrieval"):
            self.problems.append(
                f"retrieval: baseline {baseline.name!r} makes no hard choice of a set and takes no retrieval "
                "strategy; leave it out"
            )
        return None

    def _constraint_names(self, policy: PolicyComponent | None) -> list[str]:
        """Return the constraints in use: the explicit ones, else the file's, else the policy's own."""
        names = self.written.constraints()
        if names is not None:
            return names
        if policy is None:
            return []
        return list(policy.default_constraints)

    # -- options ---------------------------------------------------------------------------------------

    def _fill(self, baseline: Component | None, benchmark: Component | None) -> ExperimentConfig | None:
        """Return the whole configuration; None if there are problems, all of which are noted before that."""
        host = baseline if isinstance(baseline, BaselineComponent) else None
        policy = self._choose_policy(host)
        retrieval = self._choose_retrieval(host)
        # the preset's retrieval options are for the method's own strategy
        has_own_retrieval = host is not None and retrieval is not None and retrieval.name == host.retrieval
        rule = self._chosen(policy, "policy", host)
        # the policy comes before the other parts: their defaults may be the policy's
        self._apply_options_of(policy, rule)
        # parts come in the order in which problems are listed, that of the file
        parts: dict[str, Any] = {}
        parts["benchmark"] = self._chosen(benchmark, "benchmark")
        method = parts["baseline"] = self._chosen(baseline, "baseline")
        parts["head"] = self._named_by(method, "head")
        parts["carry"] = self._named_by(method, "carry")
        parts["policy"] = rule
        parts["retrieval"] = self._chosen(retrieval, "retrieval", host, preset=has_own_retrieval)
        parts["constraints"] = self._constraints(policy)
        parts["backbone"] = self._backbone(self._choose("backbone", self._default_backbone()), parts["head"])
        growth = parts["growth"] = self._growth()
        parts["evidence"] = self._evidence(policy, rule, growth, host)
        parts["routing"] = self._routing(retrieval)
        parts["run"] = self._run()
        parts["trackers"] = self._trackers()
        return None if self.problems else ExperimentConfig(**parts)

    def _apply_options_of(self, policy: PolicyComponent | None, rule: Chosen | None) -> None:
        """Let the options that a policy brings along replace those of the preset."""
        if policy is None or rule is None or rule.config is None:
            return
        for section, table in nest(policy.brings(rule.config), self.problems).items():
            below = self.preset_tables.get(section, {})
            merged = {**below, **table}
            for name in below.keys() & table.keys():
                # a section of several components has a table for each
                if isinstance(below[name], Mapping):
                    merged[name] = {**below[name], **table[name]}
            self.preset_tables[section] = merged

    def _named_by(self, method: Chosen | None, kind: Kind) -> tuple[Chosen | None, ...]:
        """Return the components of a kind that the baseline's options name."""
        if method is None or method.config is None:
            return ()
        named = named_by(method.config, kind, self.catalogue)
        self._require_use(kind, kind, list(named), "name it in an option of the baseline")
        for name in self.written.file.get(kind, {}):
            if name not in named and self._find(kind, name, f"{kind}.{name}") is not None:
                self.notes.append(f"[{kind}.{name}] is of a {kind} that is not in use")
        found: list[Chosen | None] = []
        for name, option in named.items():
            path = f"baseline.{option.name}"
            hint = ""
            if self.catalogue.find(kind, name) is None:
                hint = nearest(name, option.metadata["own"])
            if hint:  # a value of the option's own was meant
                self.problems.append(f"{path}: no {kind} is called {name!r}{hint}")
            elif self._find(kind, name, path) is not None:
                found.append(self._named(kind, name))
        return tuple(found)

    def _require_use(self, section: str, kind: str, used: Sequence[str], remedy: str) -> None:
        """Report explicit options of components that are not in use."""
        for name in self.written.explicit.get(section, {}):
            if name not in used:
                listed = ", ".join(map(repr, used)) or "none"
                self.problems.append(
                    f"{section}.{name}: no such {kind} in use ({listed}){nearest(name, used)}; {remedy}"
                )

    def _growth(self) -> GrowthConfig | None:
        preset = self.preset_tables.get("growth", {})
        config: GrowthConfig | None = self._record(GrowthConfig, "growth", self.written.of("growth"), preset)
        return config

    def _evidence(
        self,
        policy: PolicyComponent | None,
        rule: Chosen | None,
        growth: GrowthConfig | None,
        baseline: BaselineComponent | None,
    ) -> tuple[Chosen | None, ...]:
        """Return the measures in use: those that the policy reads, then those only recorded."""
        if policy is None or rule is None or rule.config is None or growth is None or baseline is None:
            return ()
        if baseline.growth == "fixed":
            if growth.measures:
                self.problems.append(
                    f"growth.measures: baseline {baseline.name!r} does not grow, and nothing is measured; "
                    "leave it out"
                )
            return ()
        names = list(dict.fromkeys((*policy.reads(rule.config), *growth.measures)))
        remedy = "name it in growth.measures, or use a policy that reads it"
        self._require_use("evidence", "measure", names, remedy)
        for name in self.written.file.get("evidence", {}):
            if name not in names and self._find("evidence", name, f"evidence.{name}") is not None:
                self.notes.append(f"[evidence.{name}] is of a measure that is not in use")
        return tuple(self._named("evidence", name) for name in names)

    def _routing(self, retrieval: Component | None) -> RoutingConfig | None:
        """Return the options of routing; sets are mixed only where a retrieval ranks them."""
        routing: RoutingConfig | None = self._record(RoutingConfig, "routing", self.written.of("routing"))
        if routing is not None and routing.mix != 1 and (retrieval is None or retrieval.control):
            why = "is told the task"
            if retrieval is None:
                why = "is not asked: the baseline makes no choice among sets"
            self.problems.append(f"routing.mix: expected 1 but got {routing.mix!r}; retrieval {why}")
        return routing

    def _record(
        self,
        cls: type[Any],
        path: str,
        user: Mapping[str, Any],
        preset: Mapping[str, Any] | None = None,
        also_known: Sequence[str] = (),
        whose: str = "",
        beside: Sequence[str] = (),
    ) -> Any:
        """Make one option record, and collect problems under its path; ``whose``: the component's."""
        given = {**(preset or {}), **user}
        known: dict[str, Any] = {"beside": beside, "also_known": also_known, "whose": whose}
        known["elsewhere"] = places_outside(path, self.catalogue)
        record, problems = structure(cls, given, **known)
        for key, message in problems:
            where = f"{path}.{key}" if key else path
            if preset and key in preset and key not in user:
                message += self._source(where)
            self.problems.append(f"{where}: {message}")
        return record

    def _source(self, option: str) -> str:
        """Return the source of a value that the user has not given, in words."""
        if self.protocol.name == LIKE_FOR_LIKE and option in self.protocol.fixed_options:
            return f" (held equal by the protocol {self.protocol.name!r})"
        return f" (in the preset {self.preset.label!r})"

    def _chosen(
        self, component: Component | None, section: str, host: Component | None = None, *, preset: bool = True
    ) -> Chosen | None:
        """Return a component with its options: the user's, else the preset's, else their defaults.

        Args:
            component: The component; None where there is none.
            section: The section of its options.
            host: The baseline that it comes with where nobody has named it.
            preset: Whether values of the preset are for this component.
        """
        if component is None:
            return None
        user = self.written.of(section)
        # it stands among the options, and is none
        is_named = user.pop("name", None) is not None
        whose = whose_options(component, None if is_named else host)
        values = self.preset_tables.get(section, {}) if preset else {}
        config = self._record(component.config, section, user, values, ("name",), whose)
        return Chosen(name=component.name, config=config)

    def _named(self, kind: Kind, name: str) -> Chosen | None:
        """Make a component of a section that holds one table per component."""
        section = COMPONENTS[kind].section
        path = place_of(kind, name)
        component = self._find(kind, name, path)
        if component is None:
            return None
        user: dict[str, Any] = {}
        # what is typed overrides the file
        for layer in (self.written.file, self.written.explicit):
            user |= table_of(layer.get(section, {}).get(name, {}), path, self.problems)
        preset = self.preset_tables.get(section, {}).get(name, {})
        return Chosen(name=name, config=self._record(component.config, path, user, preset))

    def _constraints(self, policy: PolicyComponent | None) -> tuple[Chosen | None, ...]:
        names = self._constraint_names(policy)
        if policy is not None:  # else its own constraints are not known
            remedy = "name it with --constraint or in the file"
            self._require_use("constraints", "constraint", names, remedy)
        return tuple(self._named("constraint", name) for name in names)

    def _trackers(self) -> tuple[Chosen | None, ...]:
        return tuple(self._named("tracker", name) for name in self.written.of("trackers"))

    def _run(self) -> Any:
        user = self.written.of("run")
        if user.get("protocol", AUTO) == AUTO:
            user["protocol"] = self.protocol.name
        return self._record(RunConfig, "run", user)

    def _default_backbone(self) -> str:
        name: str = self.preset_tables.get("backbone", {}).get("name", DEFAULT_BACKBONE)
        return name

    def _backbone(self, component: Component | None, heads: Sequence[Chosen | None]) -> BackboneChoice | None:
        """Return the backbone, its own options, and those that all backbones have: weights and image size."""
        user = self.written.of("backbone")
        user.pop("name", None)
        if not user.keys() & set(FEATURE_OPTIONS):
            user |= self._features_of(heads, component)
        # one table holds the options of the component and those that every backbone has
        shared = set(attrs.fields_dict(BackboneSource))
        of_source = {key: user.pop(key) for key in list(user) if key in shared}
        source = self._record(BackboneSource, "backbone", of_source)
        if component is None:
            return None
        config = self._record(component.config, "backbone", user, also_known=("name",), beside=sorted(shared))
        if source is None:
            return None
        if source.weights is not None and not (source.weights.is_file() or source.weights.is_dir()):
            self.problems.append(
                f"backbone.weights: no file {str(source.weights)!r}; give a file or a folder of weights"
            )
        return BackboneChoice(
            name=component.name, config=config, weights=source.weights, image_size=source.image_size
        )

    def _features_of(self, heads: Sequence[Chosen | None], component: Component | None) -> Mapping[str, Any]:
        """Return the options of the backbone that heads bring along; stored features are as they are."""
        if not isinstance(component, BackboneComponent) or component.fit_vectors is not None:
            return {}
        options: dict[str, Any] = {}
        for head in heads:
            found = head and self.catalogue.get("head", head.name)
            if isinstance(found, HeadComponent):
                options |= found.backbone
        known = attrs.fields_dict(component.config)
        return {name: value for name, value in options.items() if name in known}


def _is_same(name: Any, explicit: Mapping[str, Any], written: Any, in_file: Mapping[str, Any]) -> bool:
    """Whether an explicit choice equals the file's; for timm the model counts, not the component."""
    if name != written:
        return False
    model = in_file.get("model")
    return bool(name != TIMM_BACKBONE or explicit.get("model", model) == model)


def _has_own_values(baseline: BaselineComponent) -> bool:
    """Whether a method has values of its own options for some data; one that trains nothing has none."""
    tried = chain(baseline.presets.values(), baseline.tuned.values())
    return any(key.startswith("baseline.") for values in tried for key in values)
