"""Verdicts on ``hypotheses.toml``, from cross tables and packs; nothing is judged by hand.

python experiments/growth_score/score_pages.py --print
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any

import attrs
from score_results import METHODS, Cross, Mean, Run, chosen, joins, less
from sentences import at_least
from stream_tables import side_of_zero, with_interval

from lw2g.results.summaries import Difference

READING = "all|0.95"
"""Tokens and energy of all criteria on cross tables."""
OPEN = "open"
OF_TABLES = ("share", "own", "found", "beside")
"""Kinds of criteria on cross tables, which are of each method."""
PACS = ("sketch-first", "photo-first")


@attrs.frozen(kw_only=True)
class Verdict:
    """What became of a hypothesis.

    Attributes:
        name: Its name in ``hypotheses.toml``.
        claim: What it says.
        verdict: ``holds``, ``refuted``, ``undecided`` or ``open``, with a reason where there is one.
        found: What was measured.
    """

    name: str
    claim: str
    verdict: str
    found: str


def judged(plan: Mapping[str, Any], crosses: Sequence[Cross], runs: Sequence[Run]) -> Iterator[Verdict]:
    """Yield the verdict on every hypothesis."""
    judges = {
        "share": lambda one: shares(one, crosses),
        "own": lambda one: own(one, crosses),
        "found": lambda one: finds(one, crosses),
        "beside": lambda one: beside(one, crosses),
        "second task": lambda one: second_task(one, plan["pacs"]["seeds"], runs),
        "joins": lambda one: like_joins_like(plan["pacs"]["seeds"], runs),
        "spread": lambda one: spread(one, plan["pacs"], runs),
        "sets": lambda one: fewer_sets(one, plan[one.get("of", "keep")], runs),
        "less": lambda one: not_below(one, plan[one.get("of", "keep")], runs),
        "best": lambda one: buys(one, plan[one.get("of", "keep")], runs),
        "order": lambda one: by_order(one, plan["keep"], runs),
    }
    missing = [
        METHODS[name] for name in plan["tables"]["methods"] if name not in {one.method for one in crosses}
    ]
    for name, one in plan.items():
        if "kind" in one:
            verdict, found = judges[one["kind"]](one)
            if one["kind"] in OF_TABLES and missing:
                verdict += f"; open for {', '.join(missing)}"
            yield Verdict(name=name, claim=one["claim"], verdict=verdict, found=found)


def _by_method(holds: Mapping[str, bool]) -> str:
    """Return the verdict on a criterion of cross tables, which is judged for each method."""
    words = {True: "holds", False: "refuted"}
    named = {word: [name for name, held in holds.items() if held is which] for which, word in words.items()}
    parts = {word: names for word, names in named.items() if names}
    if len(parts) < 2:
        return next(iter(parts), OPEN)
    return "; ".join(f"{word} for {', '.join(names)}" for word, names in parts.items())


def _all(holds: Sequence[bool]) -> str:
    """Return the verdict where a criterion has to hold of each."""
    if not holds:
        return OPEN
    if all(holds):
        return "holds"
    return "refuted" if not any(holds) else "refuted in part"


# -- cross tables ----------------------------------------------------------------------------------------


def shares(one: Mapping[str, Any], crosses: Sequence[Cross]) -> tuple[str, str]:
    """Judge a share of the variance, of each method."""
    values = {cross.words: cross.shares(f"{one['tap']}|{READING}")[one["part"]] for cross in crosses}
    least, most = one.get("least", 0.0), one.get("most", 100.0)
    held = {name: least <= value <= most for name, value in values.items()}
    return _by_method(held), _told(values, "{:.1f} %")


def own(one: Mapping[str, Any], crosses: Sequence[Cross]) -> tuple[str, str]:
    """Judge a task's own space beside those of others, of each method."""
    values = {cross.words: cross.own(f"{one['tap']}|{READING}") for cross in crosses}
    held = {name: abs(value.mean) <= one["within"] for name, value in values.items()}
    told = [f"{name} {value.mean:+.2f} ± {value.half:.2f}" for name, value in values.items()]
    return _by_method(held), ", ".join(told)


def finds(one: Mapping[str, Any], crosses: Sequence[Cross]) -> tuple[str, str]:
    """Judge how often a score finds the kind, of each method on all taps of the criterion."""
    least, most = one.get("least", 0.0), one.get("most", 100.0)
    taps = one.get("taps", [one.get("tap")])
    held, told = {}, []
    for cross in crosses:
        values = [cross.found(one["score"], f"{tap}|{READING}") for tap in taps]
        held[cross.words] = all(least <= value.mean <= most for value in values)
        told.append(f"{cross.words} {' and '.join(_per_cent(value) for value in values)} %")
    return _by_method(held), ", ".join(told)


def beside(one: Mapping[str, Any], crosses: Sequence[Cross]) -> tuple[str, str]:
    """Judge one score beside another, of each method."""
    reading = f"{one['tap']}|{READING}"
    pairs = {
        cross.words: [cross.found(one[score], reading) for score in ("score", "than")] for cross in crosses
    }
    held = {name: ours.mean >= theirs.mean for name, (ours, theirs) in pairs.items()}
    told = [f"{name} {ours.mean:.1f} and {theirs.mean:.1f} %" for name, (ours, theirs) in pairs.items()]
    return _by_method(held), ", ".join(told)


def _told(values: Mapping[str, float], form: str) -> str:
    return ", ".join(f"{name} {form.format(value)}" for name, value in values.items())


def _per_cent(value: Mean) -> str:
    # no interval where every draw ends alike
    return f"{value.mean:.1f} ± {value.half:.1f}" if value.half >= 0.05 else f"{value.mean:.1f}"


# -- sketches and photographs ----------------------------------------------------------------------------


def second_task(one: Mapping[str, Any], seeds: int, runs: Sequence[Run]) -> tuple[str, str]:
    """Judge what ``min`` does with the second task in either order."""
    shared = {stream: _second_shared(runs, stream) for stream in PACS}
    told = [f"{stream}: shared in {sum(own)} of {len(own)} seeds" for stream, own in shared.items()]
    sketch, photo = (shared[stream] for stream in PACS)
    # of fewer seeds as large a part
    least = one["least"] / seeds
    held = sum(sketch) >= least * len(sketch) and len(photo) - sum(photo) >= least * len(photo)
    return _complete("holds" if held else "refuted", shared, seeds), "; ".join(told)


def _second_shared(runs: Sequence[Run], stream: str) -> list[bool]:
    return [run.record["task_to_set"][1] == 0 for run in chosen(runs, stream, "min").values()]


def like_joins_like(seeds: int, runs: Sequence[Run]) -> tuple[str, str]:
    """Judge whether ``affinity`` puts tasks with their domain at least as often as ``min``."""
    rates, told = {}, []
    for row in ("affinity", "min"):
        shared, own = (sum(part) for part in zip(*(joins(runs, stream, row) for stream in PACS), strict=True))
        rates[row] = own / shared if shared else 0.0
        told.append(f"`{row}` {own} of {shared} that share")
    verdict = "holds" if rates["affinity"] >= rates["min"] else "refuted"
    parts = {stream: chosen(runs, stream, "affinity") for stream in PACS}
    return _complete(verdict, parts, seeds), ", ".join(told)


def spread(one: Mapping[str, Any], plan: Mapping[str, Any], runs: Sequence[Run]) -> tuple[str, str]:
    """Judge how far the policies' mean accuracies lie apart."""
    told, held, parts = [], [], {}
    for stream in PACS:
        by_row = {row: chosen(runs, stream, row) for row in plan["policies"]}
        common = set.intersection(*(set(own) for own in by_row.values()))
        if not common:
            return OPEN, "no run"
        means = [statistics.fmean(own[order].faa for order in common) for own in by_row.values()]
        apart = max(means) - min(means)
        told.append(f"{stream}: {apart:.1f} points")
        held.append(apart <= one["most"])
        parts[stream] = common
    return _complete(_all(held), parts, plan["seeds"]), ", ".join(told)


def _complete(verdict: str, parts: Mapping[str, Sized], wanted: int) -> str:
    """Return a verdict; where streams have fewer runs than wanted, which these are and what is so so far."""
    short = [f"{stream} {len(part)} of {wanted}" for stream, part in parts.items() if len(part) < wanted]
    if not short:
        return verdict
    return f"open ({', '.join(short)}; so far {verdict})" if any(parts.values()) else OPEN


# -- keep ------------------------------------------------------------------------------------------------


def fewer_sets(one: Mapping[str, Any], plan: Mapping[str, Any], runs: Sequence[Run]) -> tuple[str, str]:
    """Judge how many sets ``keep`` makes of those of ``always``, on each stream."""
    values, parts = {}, {}
    for stream in plan["streams"]:
        own = parts[stream] = chosen(runs, stream, "keep")
        if own:
            tasks = [len(run.record["task_to_set"]) for run in own.values()]
            values[stream] = 100 * sum(run.sets for run in own.values()) / sum(tasks)
    held = [value <= one["most"] for value in values.values()]
    return _complete(_all(held), parts, plan["orders"]), _told(values, "{:.0f} %")


def _differences(
    than: str, plan: Mapping[str, Any], runs: Sequence[Run]
) -> tuple[dict[str, Difference], dict[str, set[int]]]:
    values, parts = {}, {}
    for stream in plan["streams"]:
        own, other = chosen(runs, stream, "keep"), chosen(runs, stream, than)
        parts[stream] = set(own) & set(other)
        apart = less(own, other)
        if apart is not None:
            values[stream] = apart
    return values, parts


def not_below(one: Mapping[str, Any], plan: Mapping[str, Any], runs: Sequence[Run]) -> tuple[str, str]:
    """Judge whether ``keep`` ends no lower than another rule by a margin, on each stream."""
    values, parts = _differences(one["than"], plan, runs)
    told = ", ".join(f"{name} {with_interval(value)}" for name, value in values.items())
    return _complete(at_least(values, one["least"]), parts, plan["orders"]), told


def buys(one: Mapping[str, Any], plan: Mapping[str, Any], runs: Sequence[Run]) -> tuple[str, str]:
    """Judge whether ``keep`` ends above the better of the rules that ask nothing."""
    told, found, parts = [], {}, {}
    for stream in plan["streams"]:
        both = [_differences(than, plan | {"streams": [stream]}, runs) for than in one["than"]]
        parts[stream] = set.intersection(*(part[stream] for _, part in both))
        if not all(values for values, _ in both):
            continue
        # less the better one is the smaller difference
        found[stream] = min((values[stream] for values, _ in both), key=lambda apart: apart.mean)
        told.append(f"{stream} {with_interval(found[stream])}")
    sides = {
        stream: 0 if own.low is None or own.high is None else side_of_zero(own.low, own.high)
        for stream, own in found.items()
    }
    verdict = "undecided"
    if found and all(own.mean > 0 for own in found.values()) and any(side > 0 for side in sides.values()):
        verdict = "holds"
    elif all(own.mean <= 0 for own in found.values()):
        verdict = "refuted"
    by_mean = [stream for stream, side in sides.items() if not side]
    if verdict != "undecided" and by_mean:
        alone = len(by_mean) == len(found)
        verdict += " by the mean alone" if alone else f"; {verdict} by the mean alone on {', '.join(by_mean)}"
    return _complete(verdict, parts, plan["orders"]), ", ".join(told)


def by_order(one: Mapping[str, Any], plan: Mapping[str, Any], runs: Sequence[Run]) -> tuple[str, str]:
    """Judge whether the number of sets varies over orders more than under another rule, on each stream."""
    told, held, parts = [], [], {}
    for stream in plan["streams"]:
        ours, theirs = chosen(runs, stream, "keep"), chosen(runs, stream, one["than"])
        parts[stream] = set(ours) & set(theirs)
        deviations = [
            statistics.stdev(run.sets for run in own.values()) for own in (ours, theirs) if len(own) > 1
        ]
        if len(deviations) == 2:
            told.append(f"{stream} {deviations[0]:.1f} and {deviations[1]:.1f}")
            held.append(deviations[0] > deviations[1])
    return _complete(_all(held), parts, plan["orders"]), ", ".join(told)
