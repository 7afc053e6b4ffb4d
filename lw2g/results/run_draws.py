"""The draws of runs in words: seeds and class orders, over which rows are means and by which runs pair."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import TypeAlias

from lw2g.errors import counted
from lw2g.results.found_runs import ReportedRun

__all__ = [
    "EITHER",
    "ORDERS",
    "SEEDS",
    "Draw",
    "and_listed",
    "by_draw",
    "draw_of",
    "drawn_in_words",
    "draws_in_words",
    "named_draws",
    "named_orders",
    "named_seeds",
    "number_of_draws",
    "order_draws_tests",
    "spread_in_words",
    "unit_of",
    "varied_in_words",
    "varied_units",
]

Draw: TypeAlias = tuple[int, tuple[int, ...]]
"""What pairs runs of two rows: the seed and the class order."""
ORDERS = "class orders"
SEEDS = "seeds of one class order"
EITHER = "class orders, or the seeds of one"
"""What rows of one table vary in, where some have several orders and others one."""
_LISTED = 5
"""The largest number of seeds or class orders that are listed."""


def draw_of(run: ReportedRun) -> Draw:
    """Return the draw of a run."""
    return int(run.record["seed"]), tuple(run.record["class_order"])


def unit_of(draws: Collection[Draw]) -> Callable[[Draw], Hashable]:
    """Return what tells which of some draws count as one: those of a class order, or, of one order, a seed.

    Seeds of one order share its tasks: two of them are no two orders, and tell nothing of a third one.
    """
    is_one_order = len({order for _, order in draws}) < 2

    def unit(draw: Draw) -> Hashable:
        seed, order = draw
        return seed if is_one_order else order

    return unit


def spread_in_words(draws: Collection[Draw], drawn_images: str = "") -> str:
    """Return what deviations of runs are over.

    Args:
        draws: Those of the runs.
        drawn_images: Which images each class order draws anew; empty where all orders have the same.

    >>> spread_in_words({(0, (1, 2)), (1, (1, 2))}), spread_in_words({(4, (1, 2)), (4, (2, 1))})
    ('the seeds of one class order', 'class orders')
    """
    orders = {order for _, order in draws}
    if len(orders) < 2:
        return "the seeds of one class order"
    drawn = f" (each draws its own {drawn_images})" if drawn_images else ""
    seeds = "" if len(orders) == len(set(draws)) else ", each the mean of its seeds"
    return f"class orders{drawn}{seeds}"


def varied_units(of_rows: Iterable[Collection[Draw]]) -> set[str]:
    """Return what the runs of rows vary in: :data:`ORDERS`, :data:`SEEDS` or both; single runs in neither."""
    units = set()
    for draws in of_rows:
        if len(draws) > 1:  # a single run is one of either
            units.add(ORDERS if len({order for _, order in draws}) > 1 else SEEDS)
    return units


def number_of_draws(draws: Collection[Draw], *, named: bool = False) -> str:
    """Return how many draws there are; of several seeds in several orders how many of each.

    Args:
        draws: The draws.
        named: Whether to say of which there are several, where it is one of the two.

    >>> number_of_draws({(0, (1, 2)), (0, (2, 1))})
    '2'
    >>> number_of_draws({(seed, order) for seed in (0, 1) for order in ((1, 2), (2, 1))})
    '2 orders x 2 seeds'
    >>> number_of_draws({(0, (1, 2)), (0, (2, 1))}, named=True)
    '2 orders'
    """
    seeds = Counter(order for _, order in draws)
    if len(seeds) in (1, len(draws)):
        number = str(len(draws))
        if named and len(draws) > 1:
            number += " seeds" if len(seeds) == 1 else " orders"
        return number
    if len(set(seeds.values())) > 1:
        return f"{len(seeds)} orders, {len(draws)} runs"
    return f"{len(seeds)} orders x {len(draws) // len(seeds)} seeds"


def order_draws_tests(run: ReportedRun) -> bool:
    """Whether the seed of a run's class order drew its test images, as it did before ``split_seed``."""
    has_share = bool(run.options.get("benchmark.test_share"))
    return has_share and "benchmark.split_seed" not in run.options


def and_listed(words: Sequence[str]) -> str:
    """Return words as a sentence lists them.

    >>> and_listed(["0", "1", "2"])
    '0, 1 and 2'
    """
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def draws_in_words(draws: Iterable[Draw]) -> str:
    """Return which seeds and how many class orders there are: another seed is not another order.

    >>> draws_in_words([(0, (1, 2)), (1, (1, 2))]), draws_in_words([(4, (1, 2)), (4, (2, 1))])
    ('seeds 0 and 1 of one class order', 'seed 4, 2 class orders')
    """
    drawn = set(draws)
    orders = len({order for _, order in drawn})
    of = "one class order" if orders == 1 else counted(orders, "class order")
    seeds = {seed for seed, _ in drawn}
    return f"{named_seeds(seeds)}{' of' if len(seeds) > 1 else ','} {of}"


def named_seeds(seeds: Collection[int]) -> str:
    """Return seeds in words; of many, how many there are."""
    if len(seeds) > _LISTED:
        return f"{len(seeds)} seeds"
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {and_listed([str(seed) for seed in sorted(seeds)])}"


def varied_in_words(draws: Collection[Draw], *, averaged: bool = True) -> str:
    """Return what varies among pairs of runs, beside test images: seeds of one order, or class orders.

    Args:
        draws: The draws.
        averaged: Whether each order counts once, with the mean of its seeds; else each run counts.

    >>> varied_in_words({(0, (1, 2))}), varied_in_words({(0, (1, 2)), (1, (1, 2))})
    ('', '2 seeds of one class order')
    >>> varied_in_words({(seed, order) for seed in (0, 1) for order in ((1, 2), (2, 1))})
    '2 class orders (2 seeds averaged)'
    """
    if len(draws) < 2:
        return ""
    seeds = Counter(order for _, order in draws)
    if len(seeds) == 1:
        return f"{len(draws)} seeds of one class order"
    told = counted(len(seeds), "class order")
    if len(seeds) == len(draws):
        return told
    if not averaged:
        return number_of_draws(draws)
    of_each = set(seeds.values())
    return f"{told} ({f'{of_each.pop()} ' if len(of_each) == 1 else ''}seeds averaged)"


def by_draw(run: ReportedRun) -> tuple[float, int]:
    """Return what sorts runs of one configuration: the seeds of their class orders, then their own."""
    order_seed = run.options.get("benchmark.order_seed")
    return -1 if order_seed is None else order_seed, int(run.options.get("run.seed") or 0)


def drawn_in_words(run: ReportedRun, rivals: Sequence[ReportedRun]) -> str:
    """Return the draw of a run as a sweep names its cell, such as ``order_seed 1, seed 0``.

    Args:
        run: The run.
        rivals: All runs that it is told apart from; an order that all have is not named.
    """
    words = []
    for key in ("benchmark.order", "benchmark.order_seed"):
        if len({other.options.get(key) for other in rivals}) > 1:
            words.append(f"{key.removeprefix('benchmark.')} {run.options.get(key)}")
    return ", ".join([*words, f"seed {run.record['seed']}"])


def named_draws(runs: Sequence[ReportedRun]) -> str:
    """Return the seeds of runs, and the options that chose their class orders."""
    return f"{named_seeds({draw_of(run)[0] for run in runs})}, {named_orders(runs)}"


def named_orders(runs: Iterable[ReportedRun]) -> str:
    """Return the class orders of runs by the options that chose them, such as ``order seeded 1993``."""
    names = []
    for run in runs:
        name = run.options.get("benchmark.order", "of the data")
        seed = run.options.get("benchmark.order_seed")
        if run.options.get("benchmark.class_order"):
            name = "as given"
        elif name in ("seeded", "shuffled") and seed is not None:
            name = f"{name} {seed}"
        names.append(str(name))
    different = list(dict.fromkeys(names))
    if len(different) > _LISTED:
        return f"{len(different)} orders"
    return f"{'order' if len(different) == 1 else 'orders'} {and_listed(different)}"
