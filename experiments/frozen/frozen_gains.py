"""What training adds to the frozen answer, by images a class and by how near the images are.

    python experiments/frozen/frozen_gains.py

Prints the verdicts of ``surface.toml``; ``frozen_page.py`` writes the tables and the file that lw2g reads.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np
from frozen_claims import less
from frozen_results import (
    HERE,
    ROOT,
    Difference,
    Stream,
    Trained,
    interval,
    store,
    streams,
)
from frozen_results import trained as trained_runs

from lw2g_photos.training_gains import Gain

SURFACE = tomllib.loads((HERE / "surface.toml").read_text(encoding="utf-8"))
KNOWN = tomllib.loads((ROOT / "experiments" / "streams.toml").read_text(encoding="utf-8"))
FACTS = KNOWN["stream"]
FILE = "plugins/lw2g_photos/training_gains.json"
NAMES = {5: "five", 10: "ten", 20: "twenty"}
UNOPPOSED = "holds, on few test images"
"""What holds where no interval is against it, which few images make likely."""
FROZEN_ANSWER = "frozen-answer"
"""A run of the frozen answer, which chooses its head after each task, as a trained run may."""
METHOD, EVERY_TASK = "stopped-1", "recommended"
"""What `--trained` stands for, of which the file for lw2g tells, and the older method."""
BANDS = (70.0, 85.0)
"""Accuracies of `lda` on the last class token, in per cent, that part far, middling and near images."""
HARDNESS = (f"`lda` below {BANDS[0]:.0f}", f"{BANDS[0]:.0f} to {BANDS[1]:.0f}", f"from {BANDS[1]:.0f}")

Few = Mapping[tuple[str, int], Difference]


def frozen_cells() -> dict[str, Any]:
    """Return what ``surface.py`` has found, by set and images a class."""
    found: dict[str, Any] = json.loads((HERE / "surface.json").read_text(encoding="utf-8"))
    return found


def band_of(accuracy: float) -> int:
    """Return how near images are by the accuracy of `lda` in per cent: 0 far, 1 middling, 2 near."""
    return sum(accuracy >= edge for edge in BANDS)


def few(runs: Trained, method: str, right: str = FROZEN_ANSWER) -> dict[tuple[str, int], Difference]:
    """Return a trained row less a row that trains nothing, both runs of draw 0, by set and images a class."""
    found = {}
    for name in SURFACE["set"]:
        for count, word in NAMES.items():
            stream = f"few-{name}-{word}"
            own, frozen = (runs.get((stream, row), {}).get(0) for row in (method, right))
            if own is None or frozen is None:
                continue
            # the images of two runs of a stream are the same, in the same order
            part = (own.true == own.predicted).astype(np.float64) - (frozen.true == frozen.predicted)
            low, high = interval([part])
            mean = 100 * float(part.mean())
            found[name, count] = Difference(mean=mean, low=low, high=high, orders=1, images=len(part))
    return found


def gains(known: Mapping[str, Stream], runs: Trained, method: str) -> list[Gain]:
    """Return what a trained row has more than runs of the frozen answer, on every stream that has both."""
    rows = []
    for name, stream in known.items():
        own = less(known, runs, name, method, FROZEN_ANSWER)
        if own is not None:
            rows.append(_gain(name, FACTS[name]["train_per_class"], stream.accuracy("lda"), own))
    cells = frozen_cells()
    for (name, count), own in few(runs, method).items():
        lda = cells[name][str(count)]["accuracy"]["lda"][0]
        rows.append(_gain(f"few-{name}-{NAMES[count]}", count, lda, own))
    return sorted(rows, key=lambda row: (row.images, -row.lda))


def _gain(stream: str, images: int, lda: float, own: Difference) -> Gain:
    ends = {"gain": round(own.mean, 1), "low": round(own.low, 1), "high": round(own.high, 1)}
    chosen = ", ".join(chosen_on(stream))
    return Gain(stream=stream, images=images, lda=round(lda, 1), orders=own.orders, chosen_on=chosen, **ends)


def chosen_on(stream: str) -> list[str]:
    """Return the data sets of a stream on whose images the method of `--trained` was chosen."""
    sets = [KNOWN["set"][name] for name in FACTS[stream]["sets"]]
    return [facts["trained_chosen_on"] for facts in sets if "trained_chosen_on" in facts]


def written(known: Mapping[str, Stream], runs: Trained) -> str:
    """Return the file that lw2g reads."""
    lines = [json.dumps(attrs.asdict(row)) for row in gains(known, runs, METHOD)]
    return "[\n " + ",\n ".join(lines) + "\n]\n"


def table(known: Mapping[str, Stream], runs: Trained, method: str) -> Iterator[str]:
    """Yield what a row adds: a line for a number of images a class, a column for how hard images are."""
    rows = gains(known, runs, method)
    yield f"| images a class | {' | '.join(HARDNESS)} |"
    yield f"| --- |{' --- |' * len(HARDNESS)}"
    for least, most in ((1, 5), (6, 10), (11, 20), (21, 60), (61, 500)):
        own = [row for row in rows if least <= row.images <= most]
        cells = []
        for band in range(len(HARDNESS)):
            here = [row for row in own if band_of(row.lda) == band]
            cells.append("; ".join(_cell(row) for row in here) or "not run")
        if own:
            counts = sorted({row.images for row in own})
            shown = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
            yield f"| {shown} | {' | '.join(cells)} |"


def _cell(row: Gain) -> str:
    sure = "**" if row.low > 0 or row.high < 0 else ""
    return f"{row.stream} {sure}{row.gain:+.1f}{sure}"


def frozen_table() -> Iterator[str]:
    """Yield right answers of frozen heads by images a class: mean over draws, and their spread."""
    found = frozen_cells()
    counts = sorted(SURFACE["trained"])
    yield f"| set | head | {' | '.join(map(str, counts))} |"
    yield f"| --- | --- |{' ---: |' * len(counts)}"
    for name, cells in found.items():
        for row in SURFACE["rows"]:
            shown = []
            for count in counts:
                own = cells.get(str(count))
                shown.append("-" if own is None else _spread(own["accuracy"][row]))
            yield f"| {name} | `{row}` | {' | '.join(shown)} |"


def _spread(values: list[float]) -> str:
    if len(set(values)) == 1:
        return f"{values[0]:.1f}"
    return f"{np.mean(values):.1f}, sd {np.std(values, ddof=1):.1f}"


def words(known: Mapping[str, Stream], runs: Trained) -> Iterator[str]:
    """Yield in sentences what the rows come to, and what of it is the head."""
    sides = {method: _sides(gains(known, runs, method)) for method in (METHOD, EVERY_TASK)}
    for method, shown in ((METHOD, "Training on the first task"), (EVERY_TASK, "Training on every task")):
        yield (
            f"{shown} is below the frozen answer in {{below}} of the {{rows}} entries (in {{sure}} with its "
            "interval), and above it with its interval in {above}."
        ).format(**sides[method])
    yield (
        "Entries are not independent: `few-*` of one data set share test images, `cifar-second` and "
        "`cifar-whole` share images, and streams named `-first` are development streams, as `caltech`, "
        "`pacs-photo-cartoon` and `turns-small` are."
    )
    yield from _less_the_head_of_start(runs)
    over = {name: own.mean for name, own in few(runs, EVERY_TASK, "lda").items()}
    if over:
        yield (
            "Over `lda` on the last class token, by which it answers, training on every task has "
            f"{min(over.values()):+.1f} to {max(over.values()):+.1f} points on `few-*`; whether its head or "
            "its training is behind the frozen answer is not known."
        )


def _less_the_head_of_start(runs: Trained) -> Iterator[str]:
    """Yield what trained rows on five images are above the head that is chosen with all classes there."""
    cells, apart = frozen_cells(), []
    for name, own in cells.items():
        stream, at_once = f"few-{name}-{NAMES[5]}", own["5"]["accuracy"]["auto"][0]
        ended = [runs.get((stream, method), {}).get(0) for method in (METHOD, EVERY_TASK)]
        if None not in ended:
            less_start = [100 * float((run.true == run.predicted).mean()) - at_once for run in ended]
            apart.append(f"{stream} {', '.join(f'{round(each, 1) + 0.0:+.1f}' for each in less_start)}")
    if apart:
        yield (
            "With five images a class, points above the model of `start` (no intervals), first of training "
            f"on the first task, then of training on every task: {'; '.join(apart)}."
        )


def _sides(rows: Iterable[Gain]) -> dict[str, int]:
    """Return how many rows there are, below zero, surely below it, and surely above it."""
    own = list(rows)
    below = sum(row.gain < 0 for row in own)
    sure, above = sum(row.high < 0 for row in own), sum(row.low > 0 for row in own)
    return {"rows": len(own), "below": below, "sure": sure, "above": above}


def verdicts(runs: Trained) -> Iterator[str]:
    """Yield the verdicts of ``surface.toml``."""
    found = few(runs, EVERY_TASK)
    names = list(SURFACE["set"])
    five = {name: found[name, 5] for name in names if (name, 5) in found}
    above = [name for name, own in five.items() if own.low > 0]
    verdict = f"refuted on {', '.join(above)}" if above else UNOPPOSED
    yield _line("i", verdict, len(five), len(names), {name: str(own) for name, own in five.items()})
    both = {name: (five[name], found[name, 20]) for name in five if (name, 20) in found}
    falling = [name for name, (own, more) in both.items() if more.mean <= own.mean]
    verdict = f"refuted on {', '.join(falling)}" if falling else "holds"
    told = {name: f"{own.mean:+.1f} with 5, {more.mean:+.1f} with 20" for name, (own, more) in both.items()}
    yield _line("ii", verdict, len(both), len(names), told)
    first = {f"{name} with {count}": own for (name, count), own in few(runs, METHOD).items()}
    below = [cell for cell, own in first.items() if own.high < 0]
    verdict = f"refuted on {', '.join(below)}" if below else UNOPPOSED
    lowest = sorted(first, key=lambda cell: first[cell].mean)[:2]
    shown = {f"lowest on {cell}": str(first[cell]) for cell in lowest}
    yield _line("iii", verdict, len(first), len(names) * len(NAMES), shown, what="cells")


def _line(
    name: str, verdict: str, found: int, wanted: int, told: Mapping[str, str], what: str = "sets"
) -> str:
    if found < wanted:
        verdict = f"open ({found} of {wanted} {what})" + (f"; on these: {verdict}" if found else "")
    shown = "; ".join(f"{key}: {value}" for key, value in told.items())
    return f"- **({name})** {SURFACE[name]['claim']} **{verdict}**" + (f". {shown}" if shown else "")


def main() -> None:
    """Print tables and verdicts."""
    known, runs = streams(), trained_runs(store())
    tables = [*table(known, runs, METHOD), "", *table(known, runs, EVERY_TASK)]
    print("\n".join([*tables, "", *words(known, runs), "", *frozen_table(), "", *verdicts(runs)]))


if __name__ == "__main__":
    main()
