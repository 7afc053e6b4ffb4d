"""The cells of one experiment with several seeds and class orders: ``lw2g run --seeds --orders``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from lw2g.errors import ConfigError
from lw2g.sweeps.grid import Cell, Settings, settings_of

__all__ = ["cells_of_draws"]

_ORDER = "benchmark.order"
_ORDER_SEED = "benchmark.order_seed"
_CLASS_ORDER = "benchmark.class_order"
_NATURAL = "natural"
_FIXED_STREAM = "domains"


def cells_of_draws(
    configuration: Mapping[str, Any], seeds: Sequence[int], orders: Sequence[int]
) -> list[Cell]:
    """Return the cells of one configuration with several seeds and class orders: a grid of two axes.

    Args:
        configuration: Its tables.
        seeds: Those of the runs; none for that of the configuration.
        orders: Those of the class orders; none for the order of the configuration.

    Raises:
        ConfigError: A key is not one of a configuration, or nothing draws its class order.
    """
    settings = settings_of(configuration, "run")
    if orders:
        _require_order(settings)
        if settings.get(_ORDER) == _NATURAL:  # the order of the data, which no seed draws
            settings[_ORDER] = "seeded"
    of_orders = [({_ORDER_SEED: order}, f"order_seed {order}") for order in orders]
    of_seeds = [({"run.seed": seed}, f"seed {seed}") for seed in seeds]
    cells = []
    for chosen in product(of_orders or [({}, "")], of_seeds or [({}, "")]):
        own: Settings = {}
        for setting, _ in chosen:
            own |= setting
        label = ", ".join(word for _, word in chosen if word)
        cells.append(Cell(settings=settings | own, label=label))
    return cells


def _require_order(settings: Settings) -> None:
    """Refuse several class orders where no seed draws one."""
    name = settings["benchmark.name"]
    if _ORDER_SEED not in settings:
        raise ConfigError(f"--orders: benchmark {name!r} has no option order_seed", "leave --orders out")
    if settings.get(_CLASS_ORDER):
        raise ConfigError(f"--orders: {_CLASS_ORDER} says the class order", "leave one of both out")
    if settings.get("benchmark.stream") == _FIXED_STREAM:
        raise ConfigError(
            "--orders: with benchmark.stream='domains' each task has all classes",
            "for several runs: --seeds; for another order of domains: benchmark.domain_order",
        )
