"""The columns of a report: where a record has each quantity, and what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from lw2g.metrics import DEFINITIONS

__all__ = ["COLUMNS", "DEFAULT_COLUMNS", "Column"]


@attrs.frozen(kw_only=True)
class Column:
    """A quantity that a record has.

    Attributes:
        name: What users call it.
        path: Keys that lead to it in a record.
        meaning: What it is, in one line.
        digits: Decimals that are printed.
        scale: What it is multiplied by for printing.
    """

    name: str
    path: tuple[str, ...]
    meaning: str
    digits: int = 2
    scale: float = 1.0

    def of(self, record: Mapping[str, Any]) -> float | None:
        """Return its value, None where the record has none."""
        found: Any = record
        for key in self.path:
            found = (found or {}).get(key)
        return None if found is None else float(found) * self.scale


def _metric(name: str, digits: int = 2) -> Column:
    return Column(name=name, path=("metrics", name), meaning=DEFINITIONS[name], digits=digits)


_ALL = (
    _metric("faa"),
    _metric("faa_samples"),
    _metric("caa"),
    _metric("ffm"),
    _metric("ffm_code"),
    _metric("bwt"),
    _metric("pra"),
    _metric("chance_pra", 1),
    _metric("coverage_3"),
    _metric("task_accuracy"),
    _metric("faa_hard"),
    _metric("faa_told"),
    _metric("faa_within"),
    _metric("ssp", 1),
    Column(name="ari", path=("adjusted_rand_index",), meaning=DEFINITIONS["adjusted_rand_index"]),
    Column(
        name="stale",
        path=("stale_classes", "last"),
        meaning="percentage of classes whose features may have moved since the statistics of them were taken",
        digits=0,
        scale=100.0,
    ),
    *(
        Column(name=name, path=("storage", name), meaning=meaning, digits=0)
        for name, meaning in (
            ("prompt_vectors", "vectors of the backbone's width that all sets hold"),
            ("basis_vectors", "basis vectors of the spaces that are kept to protect old tasks"),
            ("parameters", "numbers that were added to the frozen backbone"),
            ("statistics", "numbers kept beside them: means, covariances, Gram matrices, bases"),
        )
    ),
    *(
        Column(name=name, path=("flops", f"{key}_per_image"), meaning=meaning, scale=1e-6)
        for name, key, meaning in (
            (
                "training_mflop",
                "training",
                "millions of floating point operations of a training step, per image",
            ),
            ("inference_mflop", "inference", "the same of a prediction, retrieval included"),
        )
    ),
    *(
        Column(name=f"{key}_s", path=("seconds", key), meaning=f"seconds of {what}", digits=0)
        for key, what in (
            ("evidence", "deciding on growth"),
            ("training", "the phases of baseline and retrieval"),
            ("subspace", "building spaces and rules"),
            ("evaluation", "predicting test samples"),
            ("total", "the whole run"),
        )
    ),
    Column(
        name="passes",
        path=("routing", "passes_per_image"),
        meaning="forwards through a set that a test image takes, beside the query's",
        digits=0,
    ),
    Column(
        name="test_ms",
        path=("seconds", "per_test_image"),
        meaning="milliseconds of these forwards, in batches",
        scale=1e3,
    ),
    Column(name="images_per_s", path=("images_per_second",), meaning="training images a second", digits=0),
)

COLUMNS: Mapping[str, Column] = {column.name: column for column in _ALL}
DEFAULT_COLUMNS = (
    "faa",
    "ffm",
    "ffm_code",
    "bwt",
    "pra",
    "chance_pra",
    "ssp",
    "ari",
    "evidence_s",
    "total_s",
)
