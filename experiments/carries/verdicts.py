"""Print the verdicts on ``hypotheses.toml`` from the cells, and what pages show of them.

    python experiments/carries/verdicts.py experiments/carries/cells

``scripts/tables.py`` writes them into docs/carries.md and README.md, the archive of that page.
"""

from __future__ import annotations

import argparse
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from carries_picture import CELL, lengths
from results import Cell, Difference, chosen, less, less_by_orders, load, mean_and_half
from scipy import stats
from sentences import WIDTH, at_least
from stream_tables import side_of_zero

from lw2g.blocks.motions import ALARMING
from lw2g.errors import counted
from lw2g.results.run_draws import and_listed

HYPOTHESES = Path(__file__).with_name("hypotheses.toml")
JUDGED = ("i", "ii", "iii", "iv")
METHODS = {"lora": "LoRA", "prompt": "one prompt set", "ssiat": "`ssiat`"}
"""What replications are called in words."""
GAINS = {
    "`affine` minus `none`": {"": (("affine", False), ("none", False))},
    "Gate minus `none`": {
        "": (("gate", False), ("none", False)),
        "each with the expert": (("gate", True), ("none", True)),
    },
    "Gate minus `affine`": {
        "": (("gate", False), ("affine", False)),
        "of means only (exploratory)": (("gate", False), ("affine-means", False)),
    },
    "Expert minus no expert beside `none` (exploratory)": {
        "": (("none", True), ("none", False)),
        "beside the gate": (("gate", True), ("gate", False)),
    },
}
"""What is set against what, by points of a list: pairs of a carry and whether the expert stands beside it."""
Less = Callable[[Sequence[Cell], Mapping[str, Any], Mapping[str, Any]], Difference]
"""How a difference gets its interval: ``less`` or ``less_by_orders``."""


def margin(hypothesis: Mapping[str, Any], cells: Mapping[str, Sequence[Cell]]) -> tuple[str, list[str]]:
    """Return the verdict on a difference that is not to fall below a margin, and its lines: one a stream."""
    found = {stream: against_better(hypothesis, own) for stream, own in cells.items()}
    lines = [f"{stream}: less {_name(right)} {apart}" for stream, (right, apart) in found.items()]
    return at_least({stream: apart for stream, (_, apart) in found.items()}, hypothesis["margin"]), lines


def against_better(
    hypothesis: Mapping[str, Any], own: Sequence[Cell], by: Less = less
) -> tuple[Mapping[str, Any], Difference]:
    """Return which right side of a margin ends highest on a stream, and the difference from it."""
    apart = [(right, by(own, hypothesis["left"], right)) for right in hypothesis["right"]]
    return min(apart, key=lambda pair: pair[1].mean)


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
    for name in JUDGED:
        told = [judge(plan, plan[name], plan["main"], size, cells) for size in plan["sizes"]]
        shown = " | ".join("-" if one is None else one[0] for one in told)
        rows.append(f"| ({name}) {plan[name]['claim']} | {shown} |")
    rows.append("")
    rows += _point(other(plan, cells))
    rows += _point(of_all_sizes(plan, cells))
    rows += _point(first_orders(plan, cells))
    return {
        "carries-picture": [*caption(cells), "", *predicted(plan, cells)],
        "carries-gains": list(gains(plan, cells)),
        "carries-verdicts": rows,
        "carries-defaults": list(defaults(plan, cells)),
        "carries-warning": list(warning(plan, cells)),
        "carries-open": list(still_open(plan, cells)),
    }


def archive_parts(cells: Sequence[Cell]) -> dict[str, list[str]]:
    """Return what the archive in README.md shows between its marks, by their names."""
    plan = tomllib.loads(HYPOTHESES.read_text(encoding="utf-8"))
    return {
        "carries-plan": _point(by_orders(plan, cells)),
        "carries-replications": list(replications(plan, cells)),
    }


def caption(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield what stands below the picture: how far its lines lie apart."""
    stream, order, method, size = CELL.split(".")[:4]
    shown = next(
        cell for cell in chosen(cells, stream, method, int(size)) if cell.facts["order"] == int(order)
    )
    new, old, by_gate = lengths(shown.steps).values()
    ratios = new / old
    far = int(ratios.argmax())
    rest = np.delete(ratios, far)
    short = (by_gate < old).sum()
    meaning = ": here it mostly moves old classes too little" if 2 * short > len(old) else ""
    text = (
        f"*How far class means move in each task of `{stream}` (order {order}, {size} px), on test images: "
        f"new classes {rest.min():.1f} to {rest.max():.1f} times as far as old ones, {ratios[far]:.1f} times "
        f"in task {far + 2}. The gate's line, its mean weight times the motion of new classes, lies "
        f"below that of old classes in {short} of {len(old)} tasks{meaning}.*"
    )
    yield from textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def predicted(plan: Mapping[str, Any], cells: Sequence[Cell]) -> Iterator[str]:
    """Yield whether `affine` loses where new classes move far, in a sentence: whether (i) holds."""
    told = [judge(plan, plan["i"], plan["main"], size, cells) for size in plan["sizes"]]
    shown = all(one[0].startswith("holds") for one in told if one is not None)
    text = (
        "Does `affine` lose most in steps where new classes move most, compared with old ones? "
        f"{'Yes' if shown else 'Not shown'}: [claim (i)](#verdicts)."
    )
    yield from textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def gains(plan: Mapping[str, Any], cells: Sequence[Cell]) -> Iterator[str]:
    """Yield what `affine`, the gate and the frozen expert gain."""
    size = max(plan["sizes"])
    yield f"At {size} px, by the 95 % intervals of the table below:"
    yield ""
    others = []
    for whose, pairs in GAINS.items():
        told = []
        for how, pair in pairs.items():
            sides, foreseen = (_sides(_gained(plan, cells, pair, by)) for by in (less, less_by_orders))
            told.append(f"{how}: {sides}" if how else sides)
            if foreseen != "undecided on all":
                decided = foreseen.partition(", else undecided")[0]
                others.append(f"{whose[0].lower()}{whose[1:]}{f', {how},' if how else ''} is {decided}")
        yield from _point(f"{whose}: {'; '.join(told)}.")
    rest = f"{'; '.join(others)}; all else is undecided" if others else "all are undecided"
    yield from _point(f"By the t intervals over orders that the study foresaw, {rest}.")


def _gained(
    plan: Mapping[str, Any], cells: Sequence[Cell], pair: tuple[tuple[str, bool], tuple[str, bool]], by: Less
) -> dict[str, Difference]:
    """Return a difference of :data:`GAINS` by stream, at the largest size, with intervals of a kind."""
    left, right = ({"carry": carry, "expert": expert} for carry, expert in pair)
    return {
        stream: by(chosen(cells, stream, plan["main"], max(plan["sizes"])), left, right)
        for stream in plan["streams"]
    }


def _point(text: str) -> list[str]:
    """Return the lines of a point of a list; none of an empty one."""
    return textwrap.wrap(f"- {text}", WIDTH, break_on_hyphens=False, subsequent_indent="  ") if text else []


def _sides(apart: Mapping[str, Difference]) -> str:
    """Return on which streams an interval is above 0, below it, or has it within."""
    named = []
    for side, word in ((1, "above"), (-1, "below"), (0, "undecided")):
        own = [f"`{stream}`" for stream, each in apart.items() if side_of_zero(each.low, each.high) == side]
        if own:
            rest = "else undecided" if not side and named else ""
            named.append(rest or f"{word} on {'all' if len(own) == len(apart) else ', '.join(own)}")
    return ", ".join(named)


def by_orders(plan: Mapping[str, Any], cells: Sequence[Cell]) -> str:
    """Return where the foreseen t intervals say of other streams that the mean alone meets a margin."""
    changed: dict[bool, list[str]] = {True: [], False: []}
    for size in plan["sizes"]:
        for name in [name for name in JUDGED if plan[name]["kind"] == "margin"]:
            for stream in plan["streams"]:
                own = chosen(cells, stream, plan["main"], size)
                before, after = (_by_mean(plan[name], own, by) for by in (less, less_by_orders))
                if before != after:
                    changed[after].append(f"({name}) on `{stream}` at {size} px")
    also, gone = (and_listed(changed[after]) if changed[after] else "none" for after in (True, False))
    return (
        "Foreseen were t intervals over orders. They change no verdict. *By the mean alone* is then also "
        f"{also}; no longer {gone}."
    )


def _by_mean(hypothesis: Mapping[str, Any], own: Sequence[Cell], by: Less) -> bool:
    """Return whether the margin is in the interval on a stream; False without cells."""
    if not own:
        return False
    apart = against_better(hypothesis, own, by)[1]
    least = hypothesis["margin"]
    return apart.low < least if apart.mean >= least else apart.high >= least


def first_orders(plan: Mapping[str, Any], cells: Sequence[Cell]) -> str:
    """Return which verdicts would differ had every stream the orders of the plan alone."""
    first = [
        cell
        for size in plan["sizes"]
        for stream in plan["streams"]
        for cell in chosen(cells, stream, plan["main"], size)[: plan["orders"]]
    ]
    changed = []
    for name in JUDGED:
        for size in plan["sizes"]:
            of_first, of_all = (judge(plan, plan[name], plan["main"], size, own) for own in (first, cells))
            if of_first and of_all and of_first[0].split()[0] != of_all[0].split()[0]:
                missed = _missed(plan, name, size, first, cells)
                changed.append(f"({name}) is at {size} px {of_first[0].partition(';')[0]}{missed}")
    return (
        f"Planned were {plan['orders']} orders a stream; on the first {plan['orders']} "
        f"{'; '.join(changed) or 'every verdict stays'}."
    )


def _missed(
    plan: Mapping[str, Any], name: str, size: int, first: Sequence[Cell], cells: Sequence[Cell]
) -> str:
    """Return the means below a margin on the first orders, each beside that of all orders."""
    if plan[name]["kind"] != "margin":
        return ""
    told = []
    for stream in plan["streams"]:
        early, every = (chosen(own, stream, plan["main"], size) for own in (first, cells))
        own = against_better(plan[name], early)[1].mean
        if own < plan[name]["margin"]:
            whole = against_better(plan[name], every)[1].mean
            least = plan[name]["margin"]
            told.append(f"{own:+.2f}, margin {least:+g}; on all {len(every)} orders {whole:+.2f}")
    return f" ({'; '.join(told)})" if told else ""


def defaults(plan: Mapping[str, Any], cells: Sequence[Cell]) -> Iterator[str]:
    """Yield why gate and expert are no defaults: how many methods tell of them, and what each adds."""
    gate, expert = (
        _sides(_gained(plan, cells, GAINS[whose][how], less))
        for whose, how in (
            ("Gate minus `none`", "each with the expert"),
            ("Expert minus no expert beside `none` (exploratory)", "beside the gate"),
        )
    )
    whole = [
        f"`{method}`"
        for method in (plan["main"], *plan["replications"])
        if all(chosen(cells, stream, method, max(plan["sizes"])) for stream in plan["streams"])
    ]
    text = (
        f"The defaults of `head_carry` and `routing.expert` stay `none`: only {and_listed(whole)} ran on all "
        f"{counted(len(plan['streams']), 'stream')}. There, at {max(plan['sizes'])} px, gate minus `none` "
        f"beside the expert is {gate}; expert minus no expert beside the gate is {expert}, for a forward an "
        "image."
    )
    yield from textwrap.wrap(text, WIDTH, break_on_hyphens=False)


def still_open(plan: Mapping[str, Any], cells: Sequence[Cell]) -> Iterator[str]:
    """Yield how far the foreseen replications ran, and their verdicts that are others than the main ones."""
    size = max(plan["sizes"])
    main = {stream: chosen(cells, stream, plan["main"], size) for stream in plan["streams"]}
    yield f"Foreseen replications at {size} px lack streams; verdicts so far that differ from those above:"
    yield ""
    for method in plan["replications"]:
        every = {stream: chosen(cells, stream, method, size) for stream in plan["streams"]}
        own = {stream: found for stream, found in every.items() if found}
        judged_so = {name: _so_far(plan[name], own) for name in JUDGED} if own else {}
        others = [
            f"({name}) {verdict.partition(';')[0]}"
            for name, verdict in judged_so.items()
            if verdict.split()[0].strip(";") != _so_far(plan[name], main).split()[0].strip(";")
        ]
        ran = f" on {and_listed([f'`{stream}`' for stream in own])}" if own else ""
        told = "; ".join(others) or ("none" if own else "not run")
        name = METHODS[method]
        yield from _point(f"{name[0].upper()}{name[1:]}{ran}: {told}.")


def replications(plan: Mapping[str, Any], cells: Sequence[Cell]) -> Iterator[str]:
    """Yield what the cells of the other methods say so far, a row a method and size."""
    rows, without = [], []
    for method in plan["replications"]:
        found = [row for size in plan["sizes"] if (row := _replication(plan, cells, method, size))]
        rows += found
        without += [] if found else [METHODS[method]]
    missing = f"; those of {and_listed(without)} were not run" if without else ""
    yield f"Foreseen replications, open as they lack streams{missing}; on what there is:"
    yield ""
    yield f"| | {' | '.join(f'({name})' for name in JUDGED)} | gate minus `affine` |"
    yield "| --- |" + " --- |" * (len(JUDGED) + 1)
    yield from rows


def _replication(plan: Mapping[str, Any], cells: Sequence[Cell], method: str, size: int) -> str:
    """Return the row of a method at a size; empty without cells."""
    every = {stream: chosen(cells, stream, method, size) for stream in plan["streams"]}
    own = {stream: found for stream, found in every.items() if found}
    if not own:
        return ""
    gate, affine = ({"carry": carry, "expert": False} for carry in ("gate", "affine"))
    orders = ", ".join(f"{stream} ({counted(len(found), 'order')})" for stream, found in own.items())
    ahead = ", ".join(less(found, gate, affine).interval() for found in own.values())
    verdicts = " | ".join(_so_far(plan[name], own) for name in JUDGED)
    return f"| {METHODS[method]}, {size} px: {orders} | {verdicts} | {ahead} |"


def _so_far(hypothesis: Mapping[str, Any], own: Mapping[str, Sequence[Cell]]) -> str:
    """Return the verdict on what cells there are, with the means that are below a margin."""
    if hypothesis["kind"] != "margin":
        return correlation(hypothesis, own)[0].partition(" (")[0]
    means = [against_better(hypothesis, found)[1].mean for found in own.values()]
    below = [f"{mean:+.2f}" for mean in means if mean < hypothesis["margin"]]
    missed, _, rest = margin(hypothesis, own)[0].partition(";")
    return missed + (f" ({', '.join(below)})" if below else "") + (f";{rest}" if rest else "")


def other(plan: Mapping[str, Any], cells: Sequence[Cell]) -> str:
    """Return what the measure of (i) misses, and the verdict by the one added to it; empty without cells."""
    told = {size: judge(plan, plan["i-exploratory"], plan["main"], size, cells) for size in plan["sizes"]}
    verdicts = {size: one[0] for size, one in told.items() if one is not None}
    found = [f"at {size} px {own.replace('rank correlation ', '')}" for size, own in verdicts.items()]
    if not found:
        return ""
    return (
        "(i) counts what old classes lose among themselves, before new ones enter; this proved blind to a "
        "common motion. With new classes counted (exploratory: the FAA that `affine` gains where one step is "
        f"not carried), (i) is {', '.join(found)}."
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
        f"{sum(each >= ALARMING for each in own)} of {len(own)} of `{stream}`"
        for stream, own in found.items()
    )
    text = (
        f"A run warns, and `show` and the report mark it, where new classes move at least {ALARMING:g} times "
        f"the median motion of earlier tasks (the most in {len(calm)} steps on development streams at "
        f"{min(plan['sizes'])} px: {max(calm):.1f} times). Steps of report streams at {size} px in which it "
        f"warns: {spoken}; (i) did not show that old classes then lose."
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
