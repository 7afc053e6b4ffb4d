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

Few = Mapping[tuple[str, int], Difference]


def frozen_cells() -> dict[str, Any]:
    """Return what ``surface.py`` has found, by set and images a class."""
    found: dict[str, Any] = json.loads((HERE / "surface.json").read_text(encoding="utf-8"))
    return found


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


def table(known: Mapping[str, Stream], runs: Trained) -> Iterator[str]:
    """Yield what both trainings have more than `--recommended`, a line a stream, by images a class."""
    every = {row.stream: row for row in gains(known, runs, EVERY_TASK)}
    yield (
        "| stream | images a class | `lda` | first-task training minus `--recommended` | "
        "every-task training minus `--recommended` |"
    )
    yield "| --- | ---: | ---: | ---: | ---: |"
    for row in gains(known, runs, METHOD):
        other = every.get(row.stream)
        cells = [_cell(row), "-" if other is None else _cell(other)]
        name = row.stream if FACTS[row.stream]["role"] == "report" else f"*{row.stream}*"
        yield f"| {name} | {row.images} | {row.lda:.1f} | {' | '.join(cells)} |"


def _cell(row: Gain) -> str:
    if row.low == row.high == 0:
        return "the same"
    interval = f"[{row.low:+z.1f}, {row.high:+z.1f}]"
    orders = f", n={row.orders}" if row.orders > 1 else ""
    sure = "**" if row.low > 0 or row.high < 0 else ""
    return f"{sure}{row.gain:+z.1f}{sure} {interval}{orders}"


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
    first = _sides(gains(known, runs, METHOD))
    yield (
        "Of {rows} rows training on the first task is above `--recommended` in {above} ({surely_above} with "
        "its interval), below in {below} ({surely_below})."
    ).format(**first)
    yield (
        "Rows are not independent: `few-*` of one data set share test images, `cifar-second` and "
        "`cifar-whole` share images."
    )
    over = {name: own.mean for name, own in few(runs, EVERY_TASK, "lda").items()}
    if over:
        yield (
            "Over `lda` on the last class token, by which it answers, training on every task has "
            f"{min(over.values()):+.1f} to {max(over.values()):+.1f} points on `few-*`; whether head or "
            "training explains the gap to `--recommended` is not known."
        )


def _sides(rows: Iterable[Gain]) -> dict[str, int]:
    """Return how many rows there are, and how many are above zero and below it, also with their interval."""
    own = list(rows)
    return {
        "rows": len(own),
        "above": sum(row.gain > 0 for row in own),
        "surely_above": sum(row.low > 0 for row in own),
        "below": sum(row.gain < 0 for row in own),
        "surely_below": sum(row.high < 0 for row in own),
    }


def verdicts(runs: Trained) -> Iterator[str]:
    """Yield the verdicts of ``surface.toml``; docs/worth.md has the differences that they rest on."""
    found = few(runs, EVERY_TASK)
    names = list(SURFACE["set"])
    five = {name: found[name, 5] for name in names if (name, 5) in found}
    above = [name for name, own in five.items() if own.low > 0]
    verdict = f"refuted on {', '.join(above)}" if above else UNOPPOSED
    yield _line("i", verdict, len(five), len(names))
    both = {name: (five[name], found[name, 20]) for name in five if (name, 20) in found}
    falling = [name for name, (own, more) in both.items() if more.mean <= own.mean]
    verdict = f"refuted on {', '.join(falling)}" if falling else "holds"
    yield _line("ii", verdict, len(both), len(names))
    first = {f"{name} with {count}": own for (name, count), own in few(runs, METHOD).items()}
    below = [cell for cell, own in first.items() if own.high < 0]
    verdict = f"refuted on {', '.join(below)}" if below else UNOPPOSED
    yield _line("iii", verdict, len(first), len(names) * len(NAMES), what="cells")


def _line(name: str, verdict: str, found: int, wanted: int, what: str = "sets") -> str:
    if found < wanted:
        verdict = f"open ({found} of {wanted} {what})" + (f"; on these: {verdict}" if found else "")
    return f"- **({name})** {SURFACE[name]['claim']} **{verdict}**"


def main() -> None:
    """Print tables and verdicts."""
    known, runs = streams(), trained_runs(store())
    print("\n".join([*table(known, runs), "", *words(known, runs), "", *frozen_table(), "", *verdicts(runs)]))


if __name__ == "__main__":
    main()
