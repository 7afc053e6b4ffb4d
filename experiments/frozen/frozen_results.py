"""The cells of the study beside the packs of trained runs, and differences of their right answers."""

from __future__ import annotations

import json
import sys
import tomllib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from stream_tables import StreamRun, classes_of, runs_of  # noqa: E402

from lw2g.registry.catalogue import load_catalogue  # noqa: E402
from lw2g.results.bootstrap import over_gaps  # noqa: E402
from lw2g_store.stored import Stored, stored_runs  # noqa: E402

HERE = Path(__file__).resolve().parent
CELLS = HERE / "cells"
STORE = ROOT / "experiments" / "store"
PLAN = tomllib.loads((HERE / "hypotheses.toml").read_text(encoding="utf-8"))
METHODS = {
    "recommended": "slca-plus-plus_always_lda_gated_expert",
    "recommended-joined": "slca-plus-plus_always_lda_gated_expert_joined",
    "recommended-beside": "slca-plus-plus_always_lda_gated_beside_joined",
    "stopped-1": "slca-plus-plus_always_auto_first-1",
    "stopped-2": "slca-plus-plus_always_auto_first-2",
    "ranpac-joined": "ranpac_always_running_joined",
    "ranpac-adapted": "ranpac_always_running",
    "one-set": "dual-prompt_one_lda_key-cosine",
    "lda": "simple-cil_lda",
    "frozen-answer": "simple-cil_auto",
    "units-ridge": "simple-cil_ridge",
    "units-ranpac": "ranpac",
}
"""What the store's tables call rows that are runs; the last four train nothing, and have cells, too."""
BINS = 15
ECE_DRAWS = 1000

Hits = NDArray[np.float64]
"""Whether test images are answered rightly, 0 or 1."""


@attrs.frozen(eq=False)
class Cell:
    """The heads on a draw of classes.

    Attributes:
        facts: What was chosen, left-out accuracies, temperatures and seconds.
        values: The arrays of the file.
    """

    facts: Mapping[str, Any]
    values: Mapping[str, NDArray[Any]]

    def _row(self, name: str, key: str) -> NDArray[Any]:
        found: NDArray[Any] = self.values[key][self.values["rows"].tolist().index(name)]
        return found

    def hits(self, row: str) -> Hits:
        """Return whether each test image is answered rightly."""
        return (self._row(row, "answers") == self.values["labels"]).astype(np.float64)

    def surest(self, row: str) -> NDArray[np.float32]:
        """Return the largest probability of each test image."""
        return self._row(row, "surest")

    def losses(self, row: str) -> NDArray[np.float32]:
        """Return the log loss of each test image."""
        return -self._row(row, "of_true")

    def classes(self, order: int) -> NDArray[np.int16]:
        """Return the classes of an order as its tasks bring them; a draw of its own is numbered so."""
        found: NDArray[np.int16] = self.values["orders"][0 if self.facts["order"] is not None else order]
        return found

    def refused(self, row: str) -> tuple[float, float] | None:
        """Return the strangers that are refused by largest probability and by distance, in per cent.

        The threshold of each accepts 95 % of known test images. None where no class was kept out.
        """
        if f"known/{row}" not in self.values:
            return None
        known, strange = self.values[f"known/{row}"], self.values[f"strange/{row}"]
        thresholds = np.quantile(known, 1 - PLAN["iv-strangers"]["accepted"] / 100, axis=1, keepdims=True)
        by_probability, by_distance = 100 * (strange < thresholds).mean(1)
        return float(by_probability), float(by_distance)


@attrs.frozen(eq=False)
class Stream:
    """The cells of a stream: one, or one an order where orders have classes of their own."""

    name: str
    cells: Mapping[int | None, Cell]

    def cell(self, order: int) -> Cell:
        """Return the cell that an order belongs to."""
        return self.cells[order] if order in self.cells else self.cells[None]

    def images(self, order: int | None) -> Sequence[Hashable]:
        """Return what names the test images of an order in every order that has them."""
        if order not in self.cells or order is None:  # one cell for all orders, whose images have one place
            return range(len(self.cells[None].values["labels"]))
        cell = self.cells[order]
        of_label = dict(zip(cell.classes(order).tolist(), classes_of(self.name, order), strict=True))
        met: Counter[str] = Counter()
        names = []
        for label in cell.values["labels"].tolist():
            own = of_label[label]
            names.append((own, met[own]))
            met[own] += 1
        return names

    @property
    def every(self) -> list[Cell]:
        """All cells."""
        return list(self.cells.values())

    def accuracy(self, row: str) -> float:
        """Return the right answers of all test images in per cent."""
        return 100 * float(np.concatenate([cell.hits(row) for cell in self.every]).mean())

    def loss(self, row: str) -> float:
        """Return the mean log loss of test images."""
        return float(np.concatenate([cell.losses(row) for cell in self.every]).mean())

    def ece(self, row: str) -> float:
        """Return the expected calibration error over 15 bins, in per cent."""
        surest = np.concatenate([cell.surest(row) for cell in self.every]).astype(np.float64)
        right = np.concatenate([cell.hits(row) for cell in self.every])
        bins = np.minimum((surest * BINS).astype(int), BINS - 1)
        gaps = np.bincount(bins, weights=surest - right, minlength=BINS)
        return 100 * float(np.abs(gaps).sum()) / len(right)

    def ece_of_chance(self, row: str) -> float:
        """Return the calibration error that a row would show by chance, were its probabilities true."""
        surest = np.concatenate([cell.surest(row) for cell in self.every]).astype(np.float64)
        bins = np.minimum((surest * BINS).astype(int), BINS - 1)
        right = np.random.RandomState(0).random_sample((ECE_DRAWS, len(surest))) < surest
        gaps = np.stack([(surest - right)[:, bins == own].sum(1) for own in range(BINS)])
        return 100 * float(np.abs(gaps).sum(0).mean()) / len(surest)

    def ece_apart(self, left: str, right: str) -> tuple[float, float]:
        """Return the 95 % interval of a row's calibration error less another's, in points, over images."""
        named = [image for order in self.cells for image in self.images(order)]
        places = {image: place for place, image in enumerate(dict.fromkeys(named))}
        # an image that several orders have is drawn once for all of them
        of_image = np.array([places[image] for image in named])
        chance = np.full(len(places), 1 / len(places))
        times = np.random.RandomState(0).multinomial(len(places), chance, size=ECE_DRAWS)[:, of_image]
        errors = [self._drawn_ece(row, times) for row in (left, right)]
        low, high = np.percentile(errors[0] - errors[1], (2.5, 97.5))
        return float(low), float(high)

    def _drawn_ece(self, row: str, times: NDArray[Any]) -> NDArray[np.float64]:
        """Return the calibration error of each draw, ``[draws]``; ``times`` ``[draws, images]``."""
        surest = np.concatenate([cell.surest(row) for cell in self.every]).astype(np.float64)
        right = np.concatenate([cell.hits(row) for cell in self.every])
        bins = np.minimum((surest * BINS).astype(int), BINS - 1)
        gaps = np.stack([times[:, bins == own] @ (surest - right)[bins == own] for own in range(BINS)])
        return 100 * np.abs(gaps).sum(0) / times.sum(1)

    def refused(self, row: str) -> tuple[float, float] | None:
        """Return the mean over cells of refused strangers by probability and by distance, in per cent."""
        found = [seen for cell in self.every if (seen := cell.refused(row)) is not None]
        if not found:
            return None
        by_probability, by_distance = np.mean(found, axis=0)
        return float(by_probability), float(by_distance)


def streams() -> dict[str, Stream]:
    """Return the streams that have all their cells."""
    facts = tomllib.loads((ROOT / "experiments" / "streams.toml").read_text(encoding="utf-8"))["stream"]
    found: dict[str, dict[int | None, Cell]] = {}
    for file in sorted(CELLS.glob("*.npz")):
        with np.load(file) as stored:
            values = dict(stored)
        told = json.loads(str(values.pop("facts")))
        found.setdefault(told["stream"], {})[told["order"]] = Cell(told, values)
    whole = {}
    for name in (*PLAN["development"], *PLAN["report"], *PLAN["apart"]):
        cells = found.get(name, {})
        if len(cells) == len(facts[name]["sha256"]):
            whole[name] = Stream(name, cells)
    return whole


# -- trained runs ----------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Run:
    """A pack of a trained run: its place in tables, and its last answers.

    Attributes:
        told: What tables say of it.
        true: The classes of its test images, numbered by its order.
        predicted: What they are taken for.
    """

    told: StreamRun
    true: NDArray[Any]
    predicted: NDArray[Any]

    def hits(self, cell: Cell) -> Hits:
        """Return whether it answers each test image of a cell rightly, in the cell's order of images."""
        return laid_out(self.true, self.predicted, cell, self.told.order)


Trained = Mapping[tuple[str, str], Mapping[int, Run]]
"""The packs of each stream and method, by order."""


def trained(stored: Stored, methods: Mapping[str, str] = METHODS) -> Trained:
    """Return the packs of the trained rows at 224 px."""
    names = {name: own for own, name in methods.items()}
    answers = {pack.path: pack.evaluations[-1] for pack, _ in stored.runs}
    found: dict[tuple[str, str], dict[int, Run]] = {}
    for run in runs_of(STORE, stored):
        if run.size == 224 and run.method in names:
            last = answers[run.path]
            own = Run(run, last["true"], last["predicted"])
            found.setdefault((run.stream, names[run.method]), {})[run.order] = own
    return found


def store() -> Stored:
    """Return the packs of the store."""
    return stored_runs(STORE, load_catalogue())


def laid_out(true: NDArray[Any], predicted: NDArray[Any], cell: Cell, order: int) -> Hits:
    """Return the right answers of a run in the order of images that a cell has."""
    right = (true == predicted).astype(np.float64)
    labels = cell.values["labels"]
    hits = np.full(len(labels), np.nan)
    for position, own in enumerate(cell.classes(order)):
        # within a class both go by the names of files
        hits[labels == own] = right[true == position]
    return hits


# -- differences -----------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Difference:
    """A paired difference of right answers in points.

    Attributes:
        mean: Over all images and orders.
        low: Lower end of the 95 % interval.
        high: Its upper end.
        orders: How many orders of training it rests on; 0 where neither side sees the order.
        images: Test images of an order.
    """

    mean: float
    low: float
    high: float
    orders: int
    images: int

    def turned(self) -> Difference:
        """Return the difference the other way round."""
        return attrs.evolve(self, mean=-self.mean, low=-self.high, high=-self.low)

    def __str__(self) -> str:
        if self.low == self.high == 0:
            return "the same"
        return f"{self.mean:+z.1f} ({self.low:+z.1f} to {self.high:+z.1f})"


def interval(
    parts: Sequence[Hits], images: Sequence[Sequence[Hashable]] | None = None
) -> tuple[float, float]:
    """Return the bootstrap interval of the mean of differences over orders and images, in points.

    Args:
        parts: Differences of test images, one array an order.
        images: What names the images of each order; None where all orders have the same ones in the same
            places.
    """
    if images is None:
        images = [range(len(parts[0]))] * len(parts)
    places = {image: place for place, image in enumerate(dict.fromkeys(chain.from_iterable(images)))}
    gaps = np.zeros((len(parts), len(places)))
    shares = np.zeros_like(gaps)
    for order, (part, names) in enumerate(zip(parts, images, strict=True)):
        own = [places[name] for name in names]
        gaps[order, own] = part / len(part)
        shares[order, own] = 1 / len(part)
    low, high, _ = over_gaps(gaps, shares)
    return low, high


def between(stream: Stream, left: str, right: str) -> Difference:
    """Return the difference of two heads."""
    parts = [cell.hits(left) - cell.hits(right) for cell in stream.every]
    low, high = interval(parts, [stream.images(order) for order in stream.cells])
    return Difference(
        mean=100 * float(np.concatenate(parts).mean()), low=low, high=high, orders=0, images=len(parts[0])
    )


def apart(stream: Stream, left: Mapping[int, Hits], right: str | Mapping[int, Hits]) -> Difference | None:
    """Return the difference of a trained row from a head or from another trained row, over common orders.

    None where there is no common order.
    """
    parts = {}
    for order, hits in sorted(left.items()):
        if isinstance(right, str):
            parts[order] = hits - stream.cell(order).hits(right)
        elif order in right:
            parts[order] = hits - right[order]
    if not parts:
        return None
    low, high = interval(list(parts.values()), [stream.images(order) for order in parts])
    return Difference(
        mean=100 * float(np.concatenate(list(parts.values())).mean()),
        low=low,
        high=high,
        orders=len(parts),
        images=len(next(iter(parts.values()))),
    )


def hits_by_order(stream: Stream, runs: Mapping[int, Run]) -> dict[int, Hits]:
    """Return the right answers of a trained row by order."""
    return {order: run.hits(stream.cell(order)) for order, run in runs.items()}
