"""The data sets of the table, and the settings of a run of it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
HEADS: Mapping[str, Mapping[str, Any]] = tomllib.loads((FOLDER / "heads.toml").read_text(encoding="utf-8"))
ORDERS = range(5)
FEATURES = 1000
"""Random features of every head that takes some."""
DOMAINS = (
    ("photo", "cartoon", "art_painting", "sketch"),
    ("sketch", "art_painting", "cartoon", "photo"),
    ("cartoon", "photo", "sketch", "art_painting"),
    ("art_painting", "sketch", "photo", "cartoon"),
    ("photo", "sketch", "cartoon", "art_painting"),
)
"""The orders of PACS's domains."""
SETS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "caltech": ("Caltech-101", {"increment": 10}),
    "pacs": ("PACS, domains", {"stream": "domains"}),
    "tiny": ("Tiny-ImageNet", {"increment": 20}),
    "cifar100": ("CIFAR-100", {"increment": 10}),
}
"""By the name of the file of features: the title, and how it is cut into tasks."""


def settings(head: str, name: str, order: int, file: Path) -> dict[str, Any]:
    """Return the options of a run, by their dotted keys.

    Args:
        head: A row of the table.
        name: The data set.
        order: The order of its classes or domains, and the run's seed.
        file: Its features.
    """
    chosen: dict[str, Any] = {"baseline.head_features": FEATURES, **HEADS[head]["set"], "run.seed": order}
    chosen |= {f"benchmark.{option}": value for option, value in SETS[name][1].items()}
    if name == "pacs":
        chosen["benchmark.domain_order"] = list(DOMAINS[order])
    else:
        chosen |= {"benchmark.order": "seeded", "benchmark.order_seed": order}
    return {**chosen, "benchmark.file": str(file)}
