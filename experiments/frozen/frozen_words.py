"""Sentences whose numbers come from cells and packs together, and fields for those of tables.toml."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import frozen_fewer
import frozen_gains
import frozen_images
import machines
import numpy as np
import shoot_pages
from frozen_claims import ROLES, Streams, less, less_by_stream, less_floors, names_of, sides
from frozen_gains import FACTS, chosen_on
from frozen_results import PLAN, Difference, Trained, streams, trained
from frozen_trained import TRAINED
from frozen_verdicts import judged
from frozen_whole import WHOLE as APART
from stream_tables import side_of_zero

from lw2g.disk.contents import read_record
from lw2g.results.run_draws import and_listed


def short(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield what the tables of report streams come to, in three lines."""
    names = [name for name in names_of("report") if name in known]
    floors = [less_floors(known, runs, name) for name in names]
    over_lda, over_units = (_surely_above(names, own) for own in zip(*floors, strict=True))
    below = [name for name, own in zip(names, floors, strict=True) if min(each.high for each in own) < 0]
    yield (
        "- The frozen answer is above `lda` ([shrinkage not tuned]"
        f"(frozen_tables.md#how-an-image-becomes-a-square)), with its interval, on {over_lda}; above "
        f"random units on {over_units}; below either on {', '.join(below) or 'none'}. Its layers were "
        "[chosen](leaderboard.md#what-choices-have-seen) on all of these, on turns through shared images."
    )
    above, below = sides(known, runs, TRAINED, "report")
    above_apart, below_apart = sides(known, runs, TRAINED, "development")
    yield (
        f"- `--trained` ends above it on {_with_parts(above)}, below it on "
        f"{', '.join(below) or 'none'} (development streams: above on {', '.join(above_apart) or 'none'}, "
        f"below on {', '.join(below_apart) or 'none'}); elsewhere the interval has 0 in it."
    )
    rows = ("auto", "lda at temperature 1", "lda")
    errors = {row: {name: known[name].ece(row) for name in names} for row in rows}
    own, before, tempered = (
        f"{min(each.values()):.1f} to {max(each.values()):.1f}" for each in errors.values()
    )
    apart = {name: known[name].ece_apart("auto", "lda") for name in names}
    nearer = [name for name, (low, _) in apart.items() if round(low, 1) > 0]
    further = [name for name, (_, high) in apart.items() if round(high, 1) < 0]
    by_chance = [known[name].ece_of_chance("auto") for name in names]
    yield (
        f"- [Calibration error](howto/learn.md#probabilities) of the frozen answer: {own} points, of `lda` "
        f"{tempered} (uncalibrated {before}); a perfectly calibrated model would measure "
        f"{min(by_chance):.1f} to {max(by_chance):.1f}, as the images are few. The error of `lda` is lower, "
        f"with its interval, on {', '.join(nearer) or 'none'}, higher on {', '.join(further) or 'none'}."
    )
    # of a hypothesis on several heads the last one, `auto`, is the frozen answer
    verdicts = {name.partition(",")[0]: verdict for name, verdict, _ in judged(known, runs)}
    held = sum(verdict.startswith("holds") for verdict in verdicts.values())
    refuted = [verdict for verdict in verdicts.values() if verdict.startswith("refuted")]
    # without a stream whose interval lies below the margin
    by_mean = sum("refuted on" not in verdict and "by the mean alone" in verdict for verdict in refuted)
    alone = f" ({by_mean} of them by the mean alone)" if by_mean else ""
    yield (
        f"- Of {len(verdicts)} [hypotheses](frozen_tables.md#verdicts), committed before, {held} hold, "
        f"{len(refuted)} are refuted{alone}. When they were committed, figures of most streams were known, "
        "and training results on four of them."
    )


def _with_parts(names: Sequence[str]) -> str:
    """Return streams, and which of them are parts of another: no independent evidence."""
    parts = ", ".join(_parts(names))
    told = [f"{name} (which contains {parts})" if name == APART and parts else name for name in names]
    return ", ".join(told) or "none"


def _parts(names: Sequence[str]) -> list[str]:
    """Return those of some streams that the one apart contains: all their images are of its data sets."""
    sets = {*FACTS[APART]["sets"]}
    return [name for name in names if name != APART and {*FACTS[name]["sets"]} <= sets]


def aside(above: Sequence[str]) -> str:
    """Return why streams on which training is above are no independent evidence, to stand behind their list.

    One may contain others, and the method may have been chosen on their images.
    """
    told = []
    parts = _parts(above)
    if parts and APART in above:
        told.append("one contains the other" if len(above) == 2 else f"the last contains {_listed(parts)}")
    chosen = [name for name in above if chosen_on(name)]
    if chosen:
        where = "there" if len(chosen) == len(above) else f"on images of {_listed(chosen)}"
        told.append(f"the method was chosen {where}")
    return f" ({'; '.join(told)})" if told else ""


def _surely_above(names: Sequence[str], differences: Sequence[Difference]) -> str:
    """Return the streams on which a difference is above 0 with its interval."""
    above = [name for name, own in zip(names, differences, strict=True) if round(own.low, 1) > 0]
    return ", ".join(above) or "none"


def worth(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield where training on the first task ends above the frozen answer and below it, from all streams."""
    rows = [row for row in frozen_gains.gains(known, runs, TRAINED) if row.stream in known]
    told = []
    for role in ROLES:
        own = [row for row in rows if row.stream in names_of(role)]
        above = ", ".join(row.stream for row in own if row.low > 0) or "none"
        below = ", ".join(row.stream for row in own if row.high < 0) or "none"
        told.append(f"above on {above}, below on {below} ({role} streams)")
    yield (
        "In short: against `--recommended`, by 95 % intervals, training on the first task ends "
        f"{'; '.join(told)}; elsewhere undecided."
    )
    for name in above_runs_alone(known, runs):
        over_run = next(row.gain for row in rows if row.stream == name)
        over_start = less(known, runs, name, TRAINED, "auto")
        yield (
            f"On {name} it has {over_run:+.1f} points over `--recommended`, {over_start} over `start`'s "
            "model."
        )
    fewer = frozen_fewer.differences(known, runs, TRAINED, frozen_fewer.FROZEN_ANSWER)
    if fewer:
        means = [own.mean for own in fewer.values()]
        yield (
            f"On CIFAR-100, where its method was chosen, it has {min(means):+.1f} to {max(means):+.1f} "
            f"points (above, with its interval, at {frozen_fewer.images_on(fewer, 1)} images a class)."
        )
    every = list(frozen_gains.gains(known, runs, frozen_gains.EVERY_TASK))
    surely_below = [row for row in every if row.high < 0]
    on_fewer = frozen_fewer.differences(known, runs, frozen_gains.EVERY_TASK, frozen_fewer.FROZEN_ANSWER)
    gains, costs = (frozen_fewer.images_on(on_fewer, side) for side in (1, -1))
    of_one = sum(row.orders == 1 for row in surely_below)
    yield (
        f"On CIFAR-100 training on every task is above `--recommended` at {gains}, below at {costs}; in the "
        "[second table](#by-the-number-of-images-a-class) above on "
        f"{sum(row.low > 0 for row in every)} of {len(every)} rows, below on {len(surely_below)} "
        f"({of_one} of one order)."
    )


def strangers(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield how many strangers are refused by distance and by the probability, on report streams."""
    refused = {name: seen for name in names_of("report") if (seen := known[name].refused("auto"))}
    shares = [round(by_distance) for _, by_distance in refused.values()]
    fewer = [name for name, (probability, distance) in refused.items() if distance < probability]
    missing = [f"`{name}`" for name in names_of("report") if name not in refused]
    not_run = f" ({', '.join(missing)} not run)" if missing else ""
    yield (
        f"- `--reject` judges that by the distance from what was learned. We held back a quarter of the "
        f"classes: where 95 % of the known test images pass, it refuses {min(shares)} to {max(shares)} % of "
        f"images of the quarter. The probability would refuse more on {len(fewer)} of {len(refused)} "
        f"streams{not_run}, by the mean; that depends on [the quarter](frozen_tables.md#how-sure-it-is)."
    )


def forwards_of(runs: Trained, method: str, names: Sequence[str]) -> str:
    """Return the least and the greatest forwards of a row for each training image, over streams."""
    every = [
        np.mean([run.told.forwards for run in runs[name, method].values()])
        for name in names
        if (name, method) in runs
    ]
    return f"{min(every):.1f} to {max(every):.1f}"


def _forwards_of_first_task(runs: Trained) -> str:
    """Return the forwards for each image of the task that trains; an image of another task takes one."""
    every = []
    for name in names_of("report"):
        facts = FACTS[name]
        classes = facts.get("classes", facts["tasks"] * facts["increment"])
        for run in runs.get((name, TRAINED), {}).values():
            beyond = (run.told.forwards - 1) * classes / facts["increment"]
            every.append(round(1 + beyond))
    return " to ".join(map(str, sorted({min(every), max(every)})))


APART_BY = 1.0
"""Points beyond which a run is said to end far from `start`."""


def as_runs(known: Streams, runs: Trained) -> Iterator[str]:
    """Yield a table of where `--recommended`, which chooses after each task, ends elsewhere than `start`.

    `start` chooses with all classes there, on the same orders. Streams on which both end alike stand below.
    """
    ended = list(chain(*(_ended(known, runs, name) for name in names_of("report"))))
    few = list(_few_ended(runs))
    apart = [own for own in ended if own[1] != own[2]]
    few_apart = [own for own in few if abs(own[1] - own[2]) > APART_BY]
    yield "| | run | `start` |"
    yield "| --- | ---: | ---: |"
    for name, right, start in [*apart, *few_apart]:
        yield f"| {name} | {right:.1f} | {start:.1f} |"
    yield ""
    alike = ", ".join(name for name, right, start in ended if right == start) or "none"
    far = ", ".join(name for name, right, start in ended if abs(right - start) > APART_BY) or "none"
    yield (
        f"A run ends as `start` does on {alike}, and more than a point apart on {far} and on those "
        f"{len(few_apart)} of {len(few)} `few-*`{_why_few_apart()}."
    )


def _why_few_apart() -> str:
    """Return why runs on five images a class end elsewhere: which head `start` took, by draw."""
    taken = [cells["5"]["takes"] for cells in frozen_gains.frozen_cells().values()]
    if {own[0] for own in taken} != {"lda"}:
        return ""
    # a whole binomial standard error is wide on few images, and the head that is named first is within it
    reason = (
        "five images a class: with all classes there `lda` is within one standard error of the best, so "
        "`start` took it; a run has the same rule, but judged earlier images among fewer classes"
    )
    others = {head for own in taken for head in own[1:]}
    return f" ({reason}; other draws differ)" if others != {"lda"} else f" ({reason})"


def above_runs_alone(known: Streams, runs: Trained) -> list[str]:
    """Return the report streams on which training is above runs, with its interval, but not above `start`."""
    above_runs = [row.stream for row in frozen_gains.gains(known, runs, TRAINED) if row.low > 0]
    above_start, _ = sides(known, runs, TRAINED, "report")
    return [name for name in names_of("report") if name in above_runs and name not in above_start]


def _ended(known: Streams, runs: Trained, name: str) -> Iterator[tuple[str, float, float]]:
    """Yield where the runs on a stream and `start` on the same orders end; nothing without a run."""
    if own := runs.get((name, "frozen-answer")):
        cells = {order: known[name].cell(order) for order in own}
        right = 100 * np.mean([run.hits(cells[order]).mean() for order, run in own.items()])
        start = 100 * np.mean([cell.hits("auto").mean() for cell in cells.values()])
        yield name, round(float(right), 1), round(float(start), 1)


def _few_ended(runs: Trained) -> Iterator[tuple[str, float, float]]:
    """Yield where the runs on few images and the head of all at once end."""
    for name, cells in frozen_gains.frozen_cells().items():
        for count, word in frozen_gains.NAMES.items():
            stream = f"few-{name}-{word}"
            run = runs.get((stream, "frozen-answer"), {}).get(0)
            if run is None or str(count) not in cells:
                continue
            right = 100 * float((run.true == run.predicted).mean())
            at_once = cells[str(count)]["accuracy"]["auto"][0]
            yield stream, round(right, 1), round(float(at_once), 1)


def told(stored: Any) -> dict[str, str]:
    """Return what stands for fields of sentences that no single row answers.

    On which streams training ends above and below the frozen answer, what it costs on all of them, what
    the streams are, and what the picture of the README shows.
    """
    known, runs = streams(), trained(stored)
    fields = {
        f"{{trained/{role}/{side}-frozen}}": _listed(names)
        for role in ROLES
        for side, names in zip(("above", "below"), sides(known, runs, TRAINED, role), strict=True)
    }
    for role in ROLES:
        above, below = sides(known, runs, TRAINED, role)
        fields[f"{{trained/{role}/number-above}}"] = str(len(above))
        fields[f"{{trained/{role}/number-below}}"] = str(len(below)) if below else "none"
        number = len([name for name in names_of(role) if name in known])
        fields[f"{{streams/{role}/number}}"] = str(number)
        fields[f"{{trained/{role}/above-aside}}"] = aside(above)
        fields[f"{{trained/{role}/below-too}}"] = f", below on {_listed(below)}" if below else ""
        fields[f"{{trained/{role}/number-undecided}}"] = str(number - len(above) - len(below))
    for method in ("one-set", "recommended", "ranpac-joined"):
        fields[f"{{{method}/frozen/sides}}"] = _sides_told(known, runs, method)
    fields["{recommended/frozen/figures}"] = _figures_told(known, runs, "recommended")
    above_runs = [row.stream for row in frozen_gains.gains(known, runs, TRAINED) if row.low > 0]
    fields["{trained/report/number-above-runs}"] = str(
        len([n for n in names_of("report") if n in above_runs])
    )
    fields["{trained/report/above-runs}"] = _listed(above_runs_alone(known, runs))
    right = [round(known[name].accuracy("auto")) for name in names_of("report")]
    fields["{frozen/report/right}"] = f"{min(right)} to {max(right)}"
    moved = [each.mean for role in ROLES for each in frozen_images.middles(role).values()]
    fields["{frozen/every/by-middle}"] = f"{min(moved):+.1f} to {max(moved):+.1f}"
    errors = [known[name].ece("auto") for name in names_of("report")]
    fields["{frozen/report/calibration}"] = f"{min(errors):.1f} to {max(errors):.1f}"
    refused = [round(seen[1]) for name in names_of("report") if (seen := known[name].refused("auto"))]
    fields["{frozen/report/strangers}"] = f"{min(refused)} to {max(refused)}"
    floors = {name: less_floors(known, runs, name) for name in names_of("report")}
    less_lda = [of_lda for of_lda, _ in floors.values()]
    fields["{lda/frozen/most-below}"] = f"{max(own.mean for own in less_lda):.0f}"
    behind = [side_of_zero(own.low, own.high) for own in less_lda]
    for side, sign in (("below", 1), ("above", -1)):
        fields[f"{{lda/frozen/number-{side}}}"] = str(behind.count(sign) or "none")
    signs = {name: [side_of_zero(own.low, own.high) for own in both] for name, both in floors.items()}
    above_units = [name for name, (_, side) in signs.items() if side == 1]
    fields["{frozen/report/number-above-units}"] = str(len(above_units) or "none")
    fields["{frozen/report/below-floors}"] = _listed([name for name, both in signs.items() if -1 in both])
    fields["{trained/every/forwards}"] = forwards_of(runs, TRAINED, [*known])
    fields["{trained/report/forwards}"] = forwards_of(runs, TRAINED, names_of("report"))
    fields["{trained/report/first-task}"] = _forwards_of_first_task(runs)
    for short, method in (("trained", TRAINED), ("run", "frozen-answer")):
        for what, value in _on_cpu(runs, "cifar-second", method).items():
            fields[f"{{{short}/cifar-second/{what}}}"] = value
    for method in machines.ROWS:
        fields[f"{{machines/{method}/most}}"] = f"{machines.most(runs, method):.1f}"
    _, fields["{lda/development/shrinkage}"], gains = frozen_images.by_shrinkage()
    fields["{lda/development/by-shrinkage}"] = f"{min(gains.values()):+.1f} to {max(gains.values()):+.1f}"
    counts = [FACTS[name]["train_per_class"] for name in PLAN["report"]]
    fields["{streams/report/images}"] = f"{min(counts)} to {max(counts)}"
    orders = [len(runs[name, TRAINED]) for name in names_of("report") if (name, TRAINED) in runs]
    fields["{trained/report/orders}"] = f"{min(orders)} to {max(orders)}"
    tested = [len(known[name].images(0)) for name in names_of("report")]
    fields["{streams/report/tested}"] = f"{min(tested):,} to {max(tested):,}"
    first = [FACTS[name]["increment"] for name in names_of("report")]
    fields["{streams/report/classes-a-task}"] = f"{min(first)} to {max(first)}"
    fields["{streams/apart/images}"] = str(FACTS[APART]["train_per_class"])
    return fields | _of_the_picture(runs)


def _on_cpu(runs: Trained, name: str, method: str) -> dict[str, str]:
    """Return the training images of a stream, those of its first task, and how long a row took on a core.

    The seconds are of the wall clock, from the least to the most, with the evaluation after each task.

    Raises:
        SystemExit: A run on a CPU had more than one thread, so that "one core" is wrong.
    """
    facts = FACTS[name]
    records = [read_record(run.told.path) for run in runs[name, method].values()]
    on_cpu = [own for own in records if own["environment"]["device"] == "cpu"]
    if any(own["environment"]["threads"] > 1 for own in on_cpu):
        raise SystemExit(f"{name}: a run on a CPU has several threads; the page says one core")
    seconds = [math.ceil(own["seconds"]["total"]) for own in on_cpu]
    first = facts["increment"] * facts["train_per_class"]
    return {
        "images": f"{facts['tasks'] * first:,}",
        "first-images": f"{first:,}",
        "seconds": f"{min(seconds)} to {max(seconds)}",
        "on-cpu": str(len(seconds)),
    }


def _sides_told(known: Streams, runs: Trained, method: str) -> str:
    """Return on which of the report streams that it ran on a row is above the frozen answer, or below it."""
    number = len([name for name in names_of("report") if name in known and (name, method) in runs])
    above, below = sides(known, runs, method, "report")
    told = [f"{side} on {_listed(names)}" for side, names in (("above", above), ("below", below)) if names]
    undecided = number - len(above) - len(below)
    part = f"all {number}" if undecided == number else f"{undecided} of {number}"
    ran = "" if number == len(names_of("report")) else " that it ran on"
    told.append(f"undecided on {part}{ran}")
    return ", ".join(told)


def _figures_told(known: Streams, runs: Trained, method: str) -> str:
    """Return what a row has over the frozen answer on each report stream, by the side of zero."""
    found = less_by_stream(known, runs, names_of("report"), method, "auto")
    told = []
    for side, word in ((1, "above"), (-1, "below"), (0, "undecided")):
        own = [
            f"`{name}` {apart.mean:+z.1f} [{apart.low:+z.1f}, {apart.high:+z.1f}]"
            for name, apart in found.items()
            if side_of_zero(apart.low, apart.high) == side
        ]
        if own:
            told.append(f"{word} on {', '.join(own)}")
    return "; ".join(told)


def _listed(names: Sequence[str]) -> str:
    return and_listed([f"`{name}`" for name in names]) if names else "none"


def _of_the_picture(runs: Trained) -> dict[str, str]:
    """Return where training ends in the first order, which the README's report shows, and in the others.

    Raises:
        SystemExit: The report is not of the first order, so that somebody chose it.
    """
    stream, order, _ = shoot_pages.PACKS.name.split(".")
    own = runs[stream, TRAINED]
    if order != "0" or own[0].told.path != shoot_pages.PACKS / shoot_pages.ROWS[shoot_pages.TRAINED]:
        raise SystemExit("scripts/shoot_pages.py: its packs are not those of the stream's first order")
    others = [run.told.faa for number, run in own.items() if number]
    return {
        "{picture/trained/here}": f"{own[0].told.faa:.1f}",
        "{picture/trained/others}": f"{min(others):.1f} to {max(others):.1f}",
        "{picture/trained/orders}": str(len(own)),
        "{picture/trained/place}": "best" if own[0].told.faa > max(others) else "first",
    }
