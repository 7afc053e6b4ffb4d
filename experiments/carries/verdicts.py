"""Print the verdicts on ``hypotheses.toml`` from the cells.

python experiments/carries/verdicts.py experiments/carries/cells
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from results import Cell, chosen, less, load, mean_and_half
from scipy import stats

HYPOTHESES = Path(__file__).with_name("hypotheses.toml")


def margin(hypothesis: Mapping[str, Any], cells: Mapping[str, Sequence[Cell]]) -> tuple[str, list[str]]:
    """Return the verdict on a difference that is not to fall below a margin, and its lines: one a stream."""
    least = hypothesis["margin"]
    lines, below, beyond = [], [], []
    for stream, own in cells.items():
        apart = [(right, less(own, hypothesis["left"], right)) for right in hypothesis["right"]]
        right, difference = min(apart, key=lambda pair: pair[1].mean)
        lines.append(f"{stream}: less {_name(right)} {difference}")
        if difference.mean < least:
            below.append(stream)
        if difference.high < least:
            beyond.append(stream)
    if not below:
        return "holds", lines
    sure = f"; beyond its interval on {', '.join(beyond)}" if beyond else "; within its interval"
    return f"refuted on {', '.join(below)}{sure}", lines


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
    if mean <= 0:
        return "refuted", lines
    return ("holds" if mean > half else "undecided"), lines


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
        hypothesis = plan[name]
        judge = correlation if hypothesis["kind"] == "rank correlation" else margin
        yield f"({name}) {hypothesis['claim']}"
        for method in (plan["main"], *plan["replications"]):
            for size in plan["sizes"]:
                own = {stream: chosen(cells, stream, method, size) for stream in plan["streams"]}
                present = {stream: orders for stream, orders in own.items() if orders}
                if not present:
                    continue
                verdict, lines = judge(hypothesis, present)
                missing = [
                    f"{stream} {len(orders)}"
                    for stream, orders in own.items()
                    if len(orders) < plan["orders"]
                ]
                if missing:
                    verdict = f"open (orders so far: {', '.join(missing)}); on what there is: {verdict}"
                yield f"  {method}, {size} px: {verdict}"
                yield from (f"    {line}" for line in lines)


def main() -> None:
    """Print the verdicts on the cells of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cells", type=Path, help="folder of the cells")
    plan = tomllib.loads(HYPOTHESES.read_text())
    print("\n".join(judged(plan, load(parser.parse_args().cells))))


if __name__ == "__main__":
    main()
