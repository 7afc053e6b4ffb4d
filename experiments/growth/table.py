"""What the forks say: which measure ranks sets as they turn out, and which rule would have paid.

    python experiments/growth/table.py runs/growth [--routing soft] [--arm protected] [--svg growth.svg]

Per decision, a measure's readings of the live sets are compared with what reuse of each brought: mean over
tasks of the accuracy after the task (FAA). Figures are means over decisions within a cluster and then over
clusters, with 95 % intervals by Student's t over clusters; decisions of one run are not independent. ``tau``:
Kendall's tau-b over live sets (two and more); ``beyond rank``: its partial tau, over all pairs of live sets
of a cluster, given the rank of a set's spaces. ``pick``: FAA of the set that a measure likes best, less the
mean over live sets. ``AUC``: does the highest reading tell decisions where reuse beat a new set from others?
``gain``: FAA points of a rule less those of always growing, on the same forks. ``regret``: against the choice
that was best in another repetition (``--outcomes 2``), so that luck is not taken for a choice. Thresholds are
the rules' own, set before any of this was read.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from forks import GROW, read_forks
from scipy import stats

from lw2g.interfaces.growth import CandidateEvidence, Evidence, Grow, GrowthPolicy, Measurement
from lw2g.registry.catalogue import load_catalogue

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from interval_plot import Panel, Point, picture

Choice = int | str


@attrs.frozen(kw_only=True, eq=False)
class Decision:
    """One decision and what each way of taking it brought.

    Attributes:
        task: The task, from 0.
        history: The sets of the tasks before it.
        candidates: The evidence on each live set, as the record has it.
        outcomes: Per repetition, the FAA of each choice.
    """

    task: int
    history: tuple[int, ...]
    candidates: Sequence[Mapping[str, Any]]
    outcomes: Sequence[Mapping[Choice, float]]

    @property
    def sets(self) -> list[int]:
        """The live sets."""
        return sorted(set(self.history))

    def value(self, choice: Choice) -> float:
        """Return the FAA of a choice, the mean over repetitions."""
        return float(np.mean([one[choice] for one in self.outcomes]))


@attrs.frozen(kw_only=True, eq=False)
class Clustered:
    """The decisions of one stream, baseline and seed."""

    name: str
    groups: tuple[int, ...]
    decisions: tuple[Decision, ...]


def read_cluster(directory: Path, arm: str, routing: str) -> Clustered:
    """Return what is known of a cluster; decisions that lack a choice are left out."""
    told = json.loads((directory / "cluster.json").read_text())
    record = json.loads((directory / "run" / "record.json").read_text())
    found: dict[int, dict[int, dict[Choice, float]]] = {}
    for row in read_forks(directory / "forks.jsonl"):
        if row["choice"] == GROW or row["arm"] == arm:
            by_outcome = found.setdefault(row["task"], {})
            by_outcome.setdefault(row["outcome"], {})[row["choice"]] = row["routings"][routing]["faa"]
    decisions = []
    for task, by_outcome in sorted(found.items()):
        history = tuple(record["task_to_set"][:task])
        whole = [one for one in by_outcome.values() if set(one) >= {GROW, *history}]
        if whole:
            entry = next(one for one in record["decisions"] if one["task"] == task)
            decisions.append(
                Decision(task=task, history=history, candidates=entry["candidates"], outcomes=whole)
            )
    return Clustered(name=directory.name, groups=tuple(told["groups"]), decisions=tuple(decisions))


# -- readings ------------------------------------------------------------------------------------------------

Rule = Callable[[Decision], Choice]
Reading = Callable[[Decision], Mapping[int, float]]
"""Likeness of each live set by a measure: the higher, the more it speaks for reuse."""


def _measured(name: str) -> Reading:
    def read(decision: Decision) -> Mapping[int, float]:
        readings = {one["set"]: one["measures"].get(name) for one in decision.candidates}
        return {
            one: reading["alike"] * reading["value"]
            for one, reading in readings.items()
            if reading is not None and reading["value"] is not None
        }

    return read


def _trivial() -> dict[str, Reading]:
    """Return readings that look at no image: a measure must beat them."""
    return {
        "(newest)": lambda one: {each: max(_tasks(one, each)) for each in one.sets},
        "(oldest)": lambda one: {each: -max(_tasks(one, each)) for each in one.sets},
        "(fewest tasks)": lambda one: {each: -len(_tasks(one, each)) for each in one.sets},
        "(least rank)": lambda one: {each["set"]: -each["rank"] for each in one.candidates},
    }


def _tasks(decision: Decision, one: int) -> list[int]:
    return [task for task, owner in enumerate(decision.history) if owner == one]


def readings(clusters: Iterable[Clustered]) -> dict[str, Reading]:
    """Return all measures that some record has, and the trivial ones."""
    names = {
        name
        for cluster in clusters
        for decision in cluster.decisions
        for one in decision.candidates
        for name in one["measures"]
    }
    return {**{name: _measured(name) for name in sorted(names)}, **_trivial()}


# -- figures -------------------------------------------------------------------------------------------------


@attrs.frozen
class Figure:
    """A mean over clusters with half of its 95 % interval, both None where there is too little."""

    mean: float | None
    half: float | None
    clusters: int

    def __str__(self) -> str:
        if self.mean is None:
            return "-"
        return f"{self.mean:.2f}" + ("" if self.half is None else f" ± {self.half:.2f}")


def over_clusters(values: Iterable[float | None]) -> Figure:
    """Return mean and interval (Student's t) of what clusters say, those that say nothing left out."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return Figure(None, None, 0)
    half = None
    if len(known) > 1:
        half = float(stats.t.ppf(0.975, len(known) - 1) * np.std(known, ddof=1) / math.sqrt(len(known)))
    return Figure(float(np.mean(known)), half, len(known))


def mean_tau(cluster: Clustered, reading: Reading) -> float | None:
    """Return the mean of Kendall's tau-b between readings and outcomes; a constant reading says 0."""
    found = []
    for decision in cluster.decisions:
        likeness = reading(decision)
        if len(likeness) >= 2:
            outcome = [decision.value(one) for one in likeness]
            tau = stats.kendalltau(list(likeness.values()), outcome).statistic
            found.append(0.0 if math.isnan(tau) else float(tau))
    return float(np.mean(found)) if found else None


def beyond_rank(cluster: Clustered, reading: Reading) -> float | None:
    """Return Kendall's partial tau of readings and outcomes given the rank of a set's spaces.

    Pairs are of live sets of one decision, pooled over a cluster, since one decision has few (Kendall 1942:
    ``(t_xy - t_xz t_yz) / sqrt((1 - t_xz^2)(1 - t_yz^2))``); None where rank says all of either.
    """
    signs = []
    for decision in cluster.decisions:
        likeness, rank = reading(decision), {each["set"]: each["rank"] for each in decision.candidates}
        for one, other in combinations(sorted(likeness), 2):
            told = (likeness, rank, {each: decision.value(each) for each in (one, other)})
            signs.append([float(np.sign(each[one] - each[other])) for each in told])
    if not signs:
        return None
    pairs = np.asarray(signs)
    with np.errstate(invalid="ignore", divide="ignore"):
        x_z, x_y, z_y = (
            float(pairs[:, a] @ pairs[:, b] / np.linalg.norm(pairs[:, a]) / np.linalg.norm(pairs[:, b]))
            for a, b in ((0, 1), (0, 2), (1, 2))
        )
    left = (1 - x_z**2) * (1 - z_y**2)
    return (x_y - x_z * z_y) / math.sqrt(left) if left > 1e-9 else None


def ceiling(cluster: Clustered) -> float | None:
    """Return the tau of one repetition of the outcomes with the next: no measure can do much better."""
    found = []
    for decision in cluster.decisions:
        if len(decision.outcomes) >= 2 and len(decision.sets) >= 2:
            first, second = ([one[each] for each in decision.sets] for one in decision.outcomes[:2])
            found.append(float(np.nan_to_num(stats.kendalltau(first, second).statistic)))
    return float(np.mean(found)) if found else None


def auc(clusters: Sequence[Clustered], reading: Reading) -> float | None:
    """Return how often the highest reading is higher where reuse pays than where not, over all pairs."""
    pays: dict[bool, list[float]] = {True: [], False: []}
    for cluster in clusters:
        for decision in cluster.decisions:
            if likeness := reading(decision):
                best = max(decision.value(one) for one in decision.sets)
                pays[best > decision.value(GROW)].append(max(likeness.values()))
    if not pays[True] or not pays[False]:
        return None
    return float(stats.mannwhitneyu(pays[True], pays[False]).statistic / (len(pays[True]) * len(pays[False])))


def gain(cluster: Clustered, rule: Rule) -> float | None:
    """Return the mean FAA of a rule's choices less that of growing."""
    found = [one.value(rule(one)) - one.value(GROW) for one in cluster.decisions]
    return float(np.mean(found)) if found else None


def regret(cluster: Clustered, rule: Rule) -> float | None:
    """Return the mean FAA lost against the choice that is best in another repetition, both ways round."""
    found = []
    for decision in cluster.decisions:
        for chosen_by, judged_by in ((0, 1), (1, 0)) if len(decision.outcomes) > 1 else ():
            best = max(decision.outcomes[chosen_by].items(), key=lambda item: item[1])[0]
            found.append(decision.outcomes[judged_by][best] - decision.outcomes[judged_by][rule(decision)])
    return float(np.mean(found)) if found else None


def pick(cluster: Clustered, reading: Reading) -> float | None:
    """Return the FAA of the set a measure likes best, less the mean over live sets: its worth."""
    found = []
    for decision in cluster.decisions:
        likeness = reading(decision)
        if len(likeness) >= 2:
            best = max(likeness, key=lambda one: likeness[one])
            found.append(
                decision.value(best) - float(np.mean([decision.value(one) for one in decision.sets]))
            )
    return float(np.mean(found)) if found else None


def agreement(cluster: Clustered, rule: Rule) -> float | None:
    """Return the share of decisions, in percent, in which a rule takes what was best."""
    right = [
        rule(one) == max([GROW, *one.sets], key=lambda choice, one=one: one.value(choice))
        for one in cluster.decisions
    ]
    return 100 * float(np.mean(right)) if right else None


# -- rules ---------------------------------------------------------------------------------------------------


def _by_hand(groups: Sequence[int]) -> Rule:
    """Return a person's rule: the set of the last task of the same group, a new one for a new group."""

    def choose(decision: Decision) -> Choice:
        alike = [task for task in range(decision.task) if groups[task] == groups[decision.task]]
        return decision.history[alike[-1]] if alike else GROW

    return choose


def rules(cluster: Clustered, policies: Mapping[str, GrowthPolicy]) -> dict[str, Rule]:
    """Return what is compared on a cluster: constants, a person's grouping if there is one, and policies."""
    found: dict[str, Rule] = {
        "(always)": lambda _: GROW,
        "(first set)": lambda one: one.sets[0],
        "(newest set)": lambda one: one.sets[-1],
    }
    if cluster.groups:
        found["(by hand)"] = _by_hand(cluster.groups)
    read = {name for one in cluster.decisions for each in one.candidates for name in each["measures"]}
    for name, policy in policies.items():
        if read.issuperset(name.split()[1:]):
            found[name] = partial(_decided, policy)
    return found


def product_policies(names: Iterable[str]) -> dict[str, GrowthPolicy]:
    """Return the product's own policies with their own thresholds; ``threshold`` once a measure."""
    catalogue = load_catalogue()

    def build(policy: str, **options: Any) -> GrowthPolicy:
        component = catalogue.get("policy", policy)
        return component.build(component.config(**options))

    found = {policy: build(policy) for policy in ("min", "affinity")}
    return found | {f"threshold {name}": build("threshold", measure=name) for name in names}


def candidate_from(entry: Mapping[str, Any]) -> CandidateEvidence:
    """Return the evidence on a set as a policy is told it, out of a record."""
    measures = {name: Measurement(**one) for name, one in entry["measures"].items()}
    return CandidateEvidence(**{**entry, "measures": measures})


def _decided(policy: GrowthPolicy, decision: Decision) -> Choice:
    chosen = policy.decide(
        Evidence(task=decision.task, candidates=tuple(map(candidate_from, decision.candidates))),
        np.random.default_rng(decision.task),
    )
    return GROW if isinstance(chosen, Grow) else chosen.set


# -- the page ------------------------------------------------------------------------------------------------


def summary(clusters: Sequence[Clustered]) -> dict[str, Any]:
    """Return all figures by name."""
    known = readings(clusters)
    policies = product_policies(name for name in known if not name.startswith("("))
    asked = [rules(cluster, policies) for cluster in clusters]

    def of_rule(figure: Callable[[Clustered, Rule], float | None], name: str) -> Figure:
        return over_clusters(
            figure(cluster, found[name])
            for cluster, found in zip(clusters, asked, strict=True)
            if name in found
        )

    return {
        "clusters": [cluster.name for cluster in clusters],
        "decisions": sum(len(cluster.decisions) for cluster in clusters),
        "tau of outcomes": over_clusters(map(ceiling, clusters)),
        "best set - new": over_clusters(_against_new(cluster, max) for cluster in clusters),
        "mean set - new": over_clusters(_against_new(cluster, np.mean) for cluster in clusters),
        "measures": {
            name: {
                "tau": over_clusters(mean_tau(cluster, reading) for cluster in clusters),
                "beyond rank": over_clusters(beyond_rank(cluster, reading) for cluster in clusters),
                "pick": over_clusters(pick(cluster, reading) for cluster in clusters),
                "AUC": Figure(auc(clusters, reading), None, len(clusters)),
            }
            for name, reading in known.items()
        },
        "rules": {
            name: {
                "gain": of_rule(gain, name),
                "regret": of_rule(regret, name),
                "best taken %": of_rule(agreement, name),
                "grows %": of_rule(_growth, name),
            }
            for name in dict.fromkeys(name for found in asked for name in found)
        },
    }


def _against_new(cluster: Clustered, of: Callable[[list[float]], Any]) -> float | None:
    found = [of([one.value(each) for each in one.sets]) - one.value(GROW) for one in cluster.decisions]
    return float(np.mean(found)) if found else None


def _growth(cluster: Clustered, rule: Rule) -> float | None:
    grown = [rule(one) == GROW for one in cluster.decisions]
    return 100 * float(np.mean(grown)) if grown else None


def page(found: Mapping[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = [f"{found['decisions']} decisions of {len(found['clusters'])} clusters.", ""]
    lines += [f"- {name}: {found[name]}" for name in ("tau of outcomes", "best set - new", "mean set - new")]
    for title in ("measures", "rules"):
        if rows := found[title]:
            columns = list(next(iter(rows.values())))
            lines += ["", f"| {title} | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
            lines += [
                f"| {name} | " + " | ".join(str(row[column]) for column in columns) + " |"
                for name, row in rows.items()
            ]
    return "\n".join(lines)


def drawn(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return as SVG what rules gain and how measures rank sets, with intervals: a mark for each group."""
    gains: dict[str, dict[str, Point]] = {}
    taus: dict[str, dict[str, Point]] = {}
    for group, figures in found.items():
        for name, row in figures["rules"].items():
            gains.setdefault(name, {}).update(_point(group, row["gain"]))
        for name, row in figures["measures"].items():
            taus.setdefault(name, {}).update(_point(group, row["tau"]))
        taus.setdefault("(another repetition)", {}).update(_point(group, figures["tau of outcomes"]))
    panels = [
        Panel("FAA less that of growing, points", gains, (-2.0, 2.0)),
        Panel("Kendall's tau with FAA", taus, (-1.0, 1.0)),
    ]
    return picture(list(found), panels, "What rules gain over growing, and how measures rank sets")


def _point(group: str, figure: Figure) -> dict[str, Point]:
    """Return the point of a figure under the name of its group; nothing where it has no value."""
    if figure.mean is None:
        return {}
    half = figure.half or 0.0
    return {group: Point(figure.mean, figure.mean - half, figure.mean + half)}


def main() -> None:
    """Print a table of each stream and baseline, and draw them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--routing", choices=("soft", "hard", "told", "within"), default="soft")
    parser.add_argument("--arm", default="protected")
    parser.add_argument("--only", default="", help="clusters whose names begin so")
    parser.add_argument("--format", choices=("md", "json"), default="md")
    parser.add_argument("--svg", type=Path, help="where a picture goes")
    arguments = parser.parse_args()
    groups: dict[str, list[Clustered]] = {}
    for file in sorted(arguments.directory.glob(f"{arguments.only}*/cluster.json")):
        cluster = read_cluster(file.parent, arguments.arm, arguments.routing)
        if cluster.decisions:
            groups.setdefault(cluster.name.rpartition("-")[0], []).append(cluster)
    found = {group: summary(clusters) for group, clusters in groups.items()}
    if arguments.format == "json":
        print(json.dumps(found, default=attrs.asdict, indent=1))
    else:
        print("\n\n".join(f"{group}: {page(each)}" for group, each in found.items()))
    if arguments.svg:
        arguments.svg.write_text(drawn(found))


if __name__ == "__main__":
    main()
