"""Print the verdicts on ``hypotheses.toml`` from the cells, and what docs/carries.md shows of them.

    python experiments/carries/verdicts.py experiments/carries/cells

``scripts/tables.py`` writes them into the page.
"""

from __future__ import annotations

import argparse
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from results import Cell, Difference, chosen, less, load, mean_and_half
from scipy import stats
from sentences import WIDTH, at_least
from stream_tables import side_of_zero

from lw2g.blocks.motions import ALARMING
from lw2g.errors import counted

HYPOTHESES = Path(__file__).with_name("hypotheses.toml")


def margin(hypothesis: Mapping[str, Any], cells: Mapping[str, Sequence[Cell]]) -> tuple[str, list[str]]:
    """Return the verdict on a difference that is not to fall below a margin, and its lines: one a stream."""
    found, lines = {}, []
    for stream, own in cells.items():
        apart = [(right, less(own, hypothesis["left"], right)) for right in hypothesis["right"]]
        right, difference = min(apart, key=lambda pair: pair[1].mean)
        found[stream] = difference
        lines.append(f"{stream}: less {_name(right)} {difference}")
    return at_least(found, hypothesis["margin"]), lines


def correlation(hypothesis: Mapping[str, Any], cells: Mapping[str, Sequence[Cell]]) -> tuple[str, list[str]]:
    """Return the verdict on a rank correlation over steps, clustered by stream, and its lines."""
    found, lines = [], []
    for stream, orders in cells.items():
        own = [cell for cell in orders if lost_by_step(hypothesis, cell) is not None]
        if not own:
            continue
        lost = np.concatenate([lost_by_step(hypothesis, cell) for cell in own])
        ratio = np.concatenate([cell.step(hypothesis["of"]) for cell in own])
        rank = float(stats.spearmanr(ratio, lost).statistic)
        found.append(rank)
        lines.append(f"{stream}: {rank:+.2f} over {len(ratio)} steps of {len(own)} orders")
    if not found:
        return "open", ["no cell has it"]
    mean, half = mean_and_half(found)
    lines.append(f"mean over streams {mean:+.2f} ± {half:.2f}")
    word = "holds" if mean > half else "undecided"
    if mean <= 0:
        word = "refuted" if mean < -half else "refuted by the mean alone"
    return f"{word} (rank correlation {mean:+.2f} ± {half:.2f} over {counted(len(found), 'stream')})", lines


def lost_by_step(hypothesis: Mapping[str, Any], cell: Cell) -> np.ndarray | None:
    """Return what `affine` loses in each step as the hypothesis measures it; None: unknown."""
    if hypothesis["with"] == "old_stays less old_affine":
        return cell.step("old_stays") - cell.step("old_affine")
    return None if cell.left_out is None else cell.left_out - cell.faa("affine")


def _name(variant: Mapping[str, Any]) -> str:
    return str(variant["carry"]) + (" with the expert" if variant["expert"] else "")


def judged(plan: Mapping[str, Any], cells: Sequence[Cell]) -> Iterator[str]:
    """Yield the lines of all verdicts."""
    for name in ("i", "i-exploratory", "ii", "iii", "iv"):
        yield f"({name}) {plan[name]['claim']}"
        for method in (plan["main"], *plan["replications"]):
            for size in plan["sizes"]:
                told = judge(plan, plan[name], method, size, cells)
                if told is not None:
                    verdict, lines = told
                    yield f"  {method}, {size} px: {verdict}"
                    yield from (f"    {line}" for line in lines)


def judge(
    plan: Mapping[str, Any], hypothesis: Mapping[str, Any], method: str, size: int, cells: Sequence[Cell]
) -> tuple[str, list[str]] | None:
    """Return the verdict on a hypothesis for a method at a size, and its lines; None without any cell."""
    own = {stream: chosen(cells, stream, method, size) for stream in plan["streams"]}
    present = {stream: orders for stream, orders in own.items() if orders}
    if not present:
        return None
    of_kind = correlation if hypothesis["kind"] == "rank correlation" else margin
    verdict, lines = of_kind(hypothesis, present)
    missing = [f"{stream} {len(orders)}" for stream, orders in own.items() if len(orders) < plan["orders"]]
    if missing:
        verdict = f"open (orders so far: {', '.join(missing)}); on what there is: {verdict}"
    return verdict, lines


# -- page ------------------------------------------------------------------------------------------------


def page_parts(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """Return what the page shows between its marks, by their names."""
    plan = tomllib.loads(HYPOTHESES.read_text(encoding="utf-8"))
    rows = [f"| hypothesis | {' | '.join(f'{size} px' for size in plan['sizes'])} |"]
    rows.append("| --- |" + " --- |" * len(plan["sizes"]))
    for name in ("i", "ii", "iii", "iv"):
        told = [judge(plan, plan[name], plan["main"], size, cells) for size in plan["sizes"]]
        shown = " | ".join("-" if one is None else one[0] for one in told)
        rows.append(f"| ({name}) {plan[name]['claim']} | {shown} |")
    text = f"{other(plan, cells)} {of_all_sizes(plan, cells)}".strip()
    rows += ["", *textwrap.wrap(text, WIDTH, break_on_hyphens=False)]
    return {
        "carries-gains": list(gains(plan, cells)),
        "carries-verdicts": rows,
        "carries-warning": list(warning(plan, cells)),
    }


def gains(plan: Mapping[str, Any], cells: Sequence[Cell]) -> Iterator[str]:
    """Yield what `affine` and the gate gain over no carry, the gate beside the frozen expert, too."""
    size = max(plan["sizes"])
    told = []
    for carry, expert in (("affine", False), ("gate", False), ("gate", True)):
        left, none = ({"carry": name, "expert": expert} for name in (carry, "none"))
        apart = {
            stream: less(chosen(cells, stream, plan["main"], size), left, none) for stream in plan["streams"]
        }
        told.append(_sides(apart))
    text = (
        f"Against no carry, at {size} px: `affine` is {told[0]}; the gate {told[1]}; "
        f"with the expert, the gate is {told[2]} ([table](#what-the-study-finds))."
    )
    yield from textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def _sides(apart: Mapping[str, Difference]) -> str:
    """Return on which streams an interval is above 0, below it, or has it within."""
    named = []
    for side, word in ((1, "above"), (-1, "below"), (0, "undecided")):
        own = [f"`{stream}`" for stream, each in apart.items() if side_of_zero(each.low, each.high) == side]
        if own:
            named.append(f"{word} on {'all' if len(own) == len(apart) else ', '.join(own)}")
    return ", ".join(named)


def other(plan: Mapping[str, Any], cells: Sequence[Cell]) -> str:
    """Return what the measure says that was added to (i) when cells had been seen; empty without cells."""
    told = {size: judge(plan, plan["i-exploratory"], plan["main"], size, cells) for size in plan["sizes"]}
    found = [f"at {size} px {verdict[0]}" for size, verdict in told.items() if verdict is not None]
    if not found:
        return ""
    leaning = ("undecided", "refuted by the mean alone")
    spread = all(verdict[0].startswith(leaning) for verdict in told.values() if verdict is not None)
    return (
        "(i) measures the loss among old classes alone, which a motion of all of them changes little; the "
        "loss may come where new classes, which a carry does not move, join old ones that it moved. So *left "
        "out* was added when cells had been seen (exploratory): the FAA that `affine` gains where this one "
        f"step is not carried. By it (i) is {', '.join(found)}."
        f"{' These intervals have 0 in them: it decides nothing.' if spread else ''}"
    )


def of_all_sizes(plan: Mapping[str, Any], cells: Sequence[Cell]) -> str:
    """Return the verdict on (iv), which claims all sizes at once: one that refutes it is enough."""
    told = [judge(plan, plan["iv"], plan["main"], size, cells) for size in plan["sizes"]]
    refuted = [verdict[0] for verdict in told if verdict is not None and verdict[0].startswith("refuted")]
    if not refuted:
        return ""
    by_means = all(verdict.startswith("refuted by the mean alone") for verdict in refuted)
    return f"(iv) claims both sizes at once: refuted{' by the mean alone' if by_means else ''}."


def motions(plan: Mapping[str, Any], cells: Sequence[Cell], size: int, streams: Sequence[str]) -> list[float]:
    """Return how far new classes move, in medians of earlier tasks', in each step that has earlier ones."""
    own = [cell for stream in streams for cell in chosen(cells, stream, plan["main"], size)]
    lengths = [cell.step("new_train") for cell in own]
    return [float(of[at] / np.median(of[:at])) for of in lengths for at in range(1, len(of))]


def warning(plan: Mapping[str, Any], cells: Sequence[Cell]) -> Iterator[str]:
    """Yield how often a run would have warned of what moves far, and from what that was chosen."""
    streams = {cell.facts["stream"] for cell in cells} - set(plan["streams"])
    calm = motions(plan, cells, min(plan["sizes"]), sorted(streams))
    size = max(plan["sizes"])
    found = {stream: motions(plan, cells, size, [stream]) for stream in plan["streams"]}
    spoken = ", ".join(
        f"`{stream}` {sum(each >= ALARMING for each in own)} of {len(own)}" for stream, own in found.items()
    )
    text = (
        f"A run warns, and `show` and the report mark, where new classes move {ALARMING:g} times the median "
        f"motion of earlier tasks or more: the next whole number above the largest ratio, {max(calm):.1f}, "
        f"of {len(calm)} steps on development streams at {min(plan['sizes'])} px. Steps of report streams at "
        f"{size} px in which it speaks: {spoken}. It says that new classes moved "
        "more; (i) did not show that old ones then lose."
    )
    yield from textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def main() -> None:
    """Print the verdicts on the cells of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cells", type=Path, help="folder of the cells")
    plan = tomllib.loads(HYPOTHESES.read_text(encoding="utf-8"))
    cells = load(parser.parse_args().cells)
    print("\n".join([*judged(plan, cells), "", *page_parts(cells)["carries-warning"]]))


if __name__ == "__main__":
    main()
