"""Heads on stored features of the streams: answers, how sure they are, and what they refuse.

    nice -n 19 python experiments/frozen/heads.py --streams caltech signs-first
        --data DATA --features FEATURES --out experiments/frozen/cells

A cell is a draw of classes of a stream: of most streams all orders have the same classes and images, and a
head on sums does not see their order. Everything that decides is lw2g's own: heads, left-out scores,
temperatures, the choice of `start --head auto`, and the Gaussians that refuse. A cell keeps answers,
probabilities and distances of test images (20 to 200 kB); features are not kept. Finished cells are passed
over.
"""

from __future__ import annotations

import argparse
import json
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lw2g.blocks.closed_form import ClosedForm, Cosine
from lw2g.blocks.discriminants import Discriminant, KernelDiscriminant
from lw2g.blocks.mahalanobis import Mahalanobis
from lw2g.blocks.ridge import Ridge
from lw2g.interfaces.context import derive_seed
from lw2g.maths.choosing import first_within_error
from lw2g.maths.normal_equations import best_penalty
from lw2g.model.left_out import left_out_places
from lw2g.model.rejection import Gaussians, moments_of, temperature_of

STREAMS = Path(__file__).resolve().parents[1] / "streams.toml"
SHRINKAGE = 0.01
"""Of `lda` and of the Gaussians that refuse, as in lw2g."""
UNITS = 2000
"""Random features of lw2g's presets for folders."""
COLUMNS = 384
"""Numbers of a layer: class token and mean of patches of ViT-Tiny."""
STRANGERS = range(3)
"""The draws of which a quarter of the classes is kept out."""


@attrs.frozen(eq=False)
class Images:
    """Features of the images of a draw.

    Attributes:
        own: Class tokens of the last layer by split, ``[n, 192]``.
        joined: Of twelve layers, ``[n, 4608]``.
        labels: Positions of classes by split.
    """

    own: Mapping[str, Tensor]
    joined: Mapping[str, Tensor]
    labels: Mapping[str, Tensor]

    def part(self, features: str, split: str) -> Tensor:
        """Return features by their name: ``own``, or the number of layers that are joined."""
        if features == "own":
            return self.own[split]
        return self.joined[split][:, -int(features) * COLUMNS :]

    @property
    def left_out(self) -> Tensor:
        """Which training images are left out: all, or of very many as many of each class as lw2g does."""
        return left_out_places(*self.joined["train"].shape)

    def of_classes(self, classes: Tensor) -> Images:
        """Return the images of some classes, numbered in the order in which they are given."""
        number = torch.full((int(max(each.max() for each in self.labels.values())) + 1,), -1)
        number[classes] = torch.arange(len(classes))
        chosen = {split: number[labels] >= 0 for split, labels in self.labels.items()}
        return Images(
            {split: rows[chosen[split]] for split, rows in self.own.items()},
            {split: rows[chosen[split]] for split, rows in self.joined.items()},
            {split: number[labels][chosen[split]] for split, labels in self.labels.items()},
        )


# -- reading ---------------------------------------------------------------------------------------------


def folders_of(root: Path) -> list[Path]:
    """Return the folders of the classes of a stream's order, as tasks bring them."""
    return [link.resolve() for link in sorted((root / "train").iterdir())]


def read(folders: Sequence[Path], features: Path, limits: Mapping[str, int]) -> Images:
    """Return the features of the first images of some classes.

    Args:
        folders: Those of the training images, ``SET/train/CLASS``.
        features: Where ``features.py`` has stored them.
        limits: The greatest number of images of a class by split.
    """
    sets = sorted({folder.parents[1].name for folder in folders})
    stored = {
        (name, layers): np.load(features / f"{name}.{layers}.npz") for name in sets for layers in (1, 12)
    }
    whole = {
        (key, entry): file[entry]
        for key, file in stored.items()
        for entry in ("train_x", "test_x", "train_y", "test_y", "train_id", "test_id", "class_names")
    }
    rows: dict[str, dict[int, list[Any]]] = {split: {1: [], 12: []} for split in limits}
    labels: dict[str, list[int]] = {split: [] for split in limits}
    for position, folder in enumerate(folders):
        for split, limit in limits.items():
            for layers in (1, 12):
                key = (folder.parents[1].name, layers)
                number = whole[key, "class_names"].tolist().index(folder.name)
                mine = np.flatnonzero(whole[key, f"{split}_y"] == number)
                mine = mine[np.argsort(whole[key, f"{split}_id"][mine])][:limit]
                rows[split][layers].append(whole[key, f"{split}_x"][mine])
            labels[split] += [position] * len(mine)
    joined = {split: {layers: np.concatenate(of) for layers, of in rows[split].items()} for split in rows}
    return Images(
        {split: torch.from_numpy(of[1]).double() for split, of in joined.items()},
        {split: torch.from_numpy(of[12]).double() for split, of in joined.items()},
        {split: torch.tensor(own) for split, own in labels.items()},
    )


# -- rows ------------------------------------------------------------------------------------------------

HEADS = {
    "lda": ("lda", "own"),
    "cosine": ("cosine", "own"),
    "mahalanobis": ("mahalanobis", "own"),
    "klda": ("klda", "own"),
    "ridge": ("ridge", "own"),
    "units": ("units", "own"),
    "ridge-6": ("ridge", "6"),
    "ridge-12": ("ridge", "12"),
    "lda-6": ("lda", "6"),
    "lda-12": ("lda", "12"),
}
"""Rows that one head answers: its kind and its features."""
OF_STRANGERS = ("lda", "ridge-12", "lda-12")
"""The heads that the chosen rows are made of."""


def built(kind: str, dim: int, classes: int) -> ClosedForm:
    """Return a head that has learned nothing."""
    seed = derive_seed(0, "frozen answer", kind)
    if kind == "lda":
        return Discriminant(dim, classes)
    if kind == "cosine":
        return Cosine(dim, classes)
    if kind == "mahalanobis":
        return Mahalanobis(dim, classes)
    if kind == "klda":
        return KernelDiscriminant(dim, classes, UNITS, seed)
    return Ridge(dim, classes, UNITS if kind == "units" else 0, seed, choice="gcv")


@attrs.frozen(eq=False)
class Row:
    """What a head, or a product of two, says.

    Attributes:
        scores: Of test images, ``[n, classes]``.
        left_out: Of training images by a head without each; None where there is no formula.
        temperature: Of least log loss on these; 1 without them.
        accuracy: Right answers of them in per cent; None likewise.
    """

    scores: Tensor
    left_out: Tensor | None
    temperature: float
    accuracy: float | None

    @property
    def log_posterior(self) -> Tensor:
        """Of test images, at the temperature."""
        return (self.scores / self.temperature).log_softmax(1)


def row_of(scores: Tensor, left_out: Tensor | None, labels: Tensor) -> Row:
    """Return a row with the temperature that its left-out images give it."""
    if left_out is None:
        return Row(scores, None, 1.0, None)
    temperature, _ = temperature_of(left_out, labels)
    return Row(scores, left_out, temperature, 100 * float((left_out.argmax(1) == labels).double().mean()))


def learned_lda(rows: Tensor, labels: Tensor) -> ClosedForm:
    """Return an `lda` that has learned some rows."""
    head = built("lda", rows.shape[1], int(labels.max()) + 1)
    head.update(rows, labels)
    return head


@attrs.frozen(eq=False)
class Learned:
    """A head that has learned.

    Attributes:
        head: It.
        turn: What features are multiplied with before they reach it, ``[width, dim]``; None for nothing.
        scale: What its scores are multiplied with.
    """

    head: ClosedForm
    turn: Tensor | None = None
    scale: float = 1.0

    def scores(self, rows: Tensor, classes: int) -> Tensor:
        """Return the scores of images."""
        return self.scale * self.head.scores(rows if self.turn is None else rows @ self.turn, classes)

    def known(self, rows: Tensor, classes: int) -> Tensor:
        """Return how known images are by an `lda`: its relative Mahalanobis distance, negated."""
        gaussians = moments_of(self.head, classes)
        assert gaussians is not None
        if self.turn is None:
            return gaussians.scores(rows)
        return _known_beyond(gaussians, rows, self.turn)


def learned(name: str, images: Images, classes: int) -> tuple[Learned, Row]:
    """Return a head that has learned all images, and what it says.

    Fewer images than features span a space in which the head is solved: weights and means lie in it, so that
    scores are those of the whole width to rounding, in a tenth of the time. What counts in mean eigenvalues
    of the whole width, penalties and shrinkage, is kept at it.
    """
    kind, features = HEADS[name]
    rows, labels = images.part(features, "train"), images.labels["train"]
    width = rows.shape[1]
    own = Learned(built(kind, width, classes))
    if kind in ("ridge", "lda") and len(rows) < width:
        turn, _ = torch.linalg.qr(rows.T)
        rows = rows @ turn
        if kind == "ridge":
            penalty = _penalty_of(rows, labels, classes, width)
            own = Learned(Ridge(len(turn.T), classes, 0, 0, penalty, choice="fixed"), turn)
        else:
            ratio = SHRINKAGE / (1 - SHRINKAGE) * len(turn.T) / width
            share = ratio / (1 + ratio)
            own = Learned(Discriminant(len(turn.T), classes, share), turn, (1 - share) / (1 - SHRINKAGE))
    own.head.learn(rows, labels, torch.Generator().manual_seed(0))
    chosen = images.left_out
    left_out = own.head.without_each(rows[chosen], labels[chosen], classes)
    if left_out is not None:
        left_out = own.scale * left_out
    return own, row_of(own.scores(images.part(features, "test"), classes), left_out, labels[chosen])


def _penalty_of(rows: Tensor, labels: Tensor, classes: int, width: int) -> float:
    """Return the penalty of ``gcv`` for rows in their span, of features of a width."""
    cross = rows.T @ torch.nn.functional.one_hot(labels, classes).double()
    return best_penalty(rows.T @ rows, cross, len(rows), len(rows), width=width)


def _known_beyond(gaussians: Gaussians, rows: Tensor, turn: Tensor) -> Tensor:
    """Return how known images are by Gaussians in a span; beyond it a covariance is its added diagonal."""
    inside = rows @ turn
    beyond = rows.square().sum(1) - inside.square().sum(1)
    counts = gaussians.counts.double()
    centre = counts @ gaussians.means / counts.sum()
    away = (gaussians.means - centre) * counts.sqrt()[:, None]
    total = (gaussians.within + away.T @ away) / (counts.sum() - 1)
    squares = []
    for covariance, means in ((total, centre[None]), (gaussians.within / gaussians.freedom, gaussians.means)):
        added = SHRINKAGE * float(covariance.trace()) / len(turn)
        lower = torch.linalg.cholesky(
            (1 - SHRINKAGE) * covariance + added * torch.eye(len(covariance)).double()
        )
        white, centres = (
            torch.linalg.solve_triangular(lower, (each - centre).T, upper=False).T for each in (inside, means)
        )
        squares.append(torch.cdist(white, centres).square().amin(1) + beyond / added)
    return squares[0] - squares[1]


def product(one: Row, other: Row, labels: Tensor) -> Row:
    """Return the product of two posteriors, each at its temperature."""
    assert one.left_out is not None
    assert other.left_out is not None
    left_out = [(row.left_out / row.temperature).log_softmax(1) for row in (one, other)]
    return row_of(one.log_posterior + other.log_posterior, left_out[0] + left_out[1], labels)


def choices(rows: Mapping[str, Row], images: int) -> dict[str, str]:
    """Return which row `chosen` and `auto` stand for."""
    tried = ("lda", "ridge-12", "product")
    offered = ("lda", "ridge-12", "lda-12")
    return {
        "chosen": max(tried, key=lambda name: rows[name].accuracy or 0.0),
        "auto": offered[first_within_error([rows[name].accuracy for name in offered], images)],
    }


# -- cells -----------------------------------------------------------------------------------------------


def measured(images: Images) -> tuple[dict[str, Row], dict[str, Any]]:
    """Return all rows of a draw, and facts about them."""
    classes = int(images.labels["train"].max()) + 1
    rows, seconds = {}, {}
    for name in HEADS:
        began = time.monotonic()
        _, rows[name] = learned(name, images, classes)
        seconds[name] = round(time.monotonic() - began, 2)
    labels = images.labels["train"][images.left_out]
    rows["product"] = product(rows["lda"], rows["ridge-12"], labels)
    stands = choices(rows, len(labels))
    facts = {
        "stands": stands,
        "left_out": {name: row.accuracy for name, row in rows.items()},
        "temperature": {name: row.temperature for name, row in rows.items()},
        "seconds": seconds,
    }
    # the posterior of lda as it was, before it had a temperature
    rows["lda at temperature 1"] = attrs.evolve(rows["lda"], temperature=1.0)
    for name, other in stands.items():
        rows[name] = rows[other]
    return rows, facts


def kept_out(images: Images, last: Tensor) -> tuple[dict[str, NDArray[np.float32]], dict[str, Any]]:
    """Return how known and strange images look to models without some classes, by row.

    Args:
        images: Of all classes.
        last: The classes that are kept out.

    Returns:
        ``[2, n]`` for each row, known ones and strangers: largest probability and relative distance.
    """
    every = torch.arange(int(images.labels["train"].max()) + 1)
    known = every[~torch.isin(every, last)]
    taught, strange = images.of_classes(known), images.of_classes(last)
    rows, apart, distances = {}, {}, {}
    for name in OF_STRANGERS:
        own, rows[name] = learned(name, taught, len(known))
        kind, features = HEADS[name]
        unknown = torch.cat([strange.part(features, split) for split in ("train", "test")])
        apart[name] = own.scores(unknown, len(known))
        if kind == "lda":
            tested = taught.part(features, "test")
            distances[name] = (own.known(tested, len(known)), own.known(unknown, len(known)))
    # the sums of a ridge hold the same means and the same scatter
    distances["ridge-12"] = distances["lda-12"]
    labels = taught.labels["train"][taught.left_out]
    rows["product"] = product(rows["lda"], rows["ridge-12"], labels)
    of_strangers = {name: attrs.evolve(rows[name], scores=scores) for name, scores in apart.items()}
    of_strangers["product"] = attrs.evolve(
        rows["product"], scores=of_strangers["lda"].log_posterior + of_strangers["ridge-12"].log_posterior
    )
    # a product refuses by the features that it reads most of
    distances["product"] = distances["ridge-12"]
    stands = choices(rows, len(labels))
    told = {}
    for name in ("lda", *stands):
        own = stands.get(name, name)
        for kind, place, which in (("known", 0, rows[own]), ("strange", 1, of_strangers[own])):
            surest = which.log_posterior.amax(1).exp()
            told[f"{kind}/{name}"] = torch.stack([surest, distances[own][place]]).float().numpy()
    return told, {"stands": stands, "classes": last.tolist()}


def cell(
    stream: str, order: int | None, data: Path, features: Path, *, strangers: bool = True
) -> dict[str, Any]:
    """Return what is kept of a draw.

    Args:
        stream: The stream.
        order: Of a stream whose orders have classes of their own; None for one draw.
        data: Where the streams are laid out.
        features: Where features are stored.
        strangers: Whether classes are kept out as well, which takes as long again.
    """
    facts = tomllib.loads(STREAMS.read_text())["stream"][stream]
    limits = {"train": facts["train_per_class"], "test": facts["test_per_class"]}
    first = folders_of(data / stream / str(order or 0))
    natural = (
        sorted(first, key=lambda folder: (folder.parents[1].name, folder.name)) if order is None else first
    )
    orders = [first]
    if order is None:
        orders = [folders_of(folder) for folder in sorted((data / stream).iterdir())]
    images = read(natural, features, limits)
    rows, told = measured(images)
    told |= {"stream": stream, "order": order, "images": len(images.labels["train"])}
    labels = images.labels["test"]
    posteriors = [row.log_posterior for row in rows.values()]
    kept: dict[str, Any] = {
        "rows": np.array([*rows]),
        "labels": labels.numpy().astype(np.int16),
        # the classes of each order, so that answers of runs can be put beside these
        "orders": np.array([[natural.index(folder) for folder in own] for own in orders], np.int16),
        "answers": torch.stack([row.scores.argmax(1) for row in rows.values()]).numpy().astype(np.int16),
        "of_true": torch.stack([each.gather(1, labels[:, None])[:, 0] for each in posteriors])
        .float()
        .numpy(),
        "surest": torch.stack([each.amax(1).exp() for each in posteriors]).float().numpy(),
    }
    if strangers and (order is None or order in STRANGERS):
        last = torch.from_numpy(kept["orders"][0].astype(np.int64))[-max(1, len(natural) // 4) :]
        seen, told["strangers"] = kept_out(images, last)
        kept |= seen
    return {**kept, "facts": np.array(json.dumps(told))}


def main() -> None:
    """Compute what has not been computed yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", nargs="+", required=True)
    for name in ("--data", "--features", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--no-strangers", action="store_true", help="keep no class out, in half of the time")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    known = tomllib.loads(STREAMS.read_text())["stream"]
    for stream in arguments.streams:
        draws: list[int | None] = [None]
        if len(known[stream]["sha256"]) > 1:
            draws = [*range(len(known[stream]["sha256"]))]
        for order in draws:
            name = stream if order is None else f"{stream}.{order}"
            file = arguments.out / f"{name}.npz"
            if file.exists():
                continue
            began = time.monotonic()
            whole = not arguments.no_strangers
            kept = cell(stream, order, arguments.data, arguments.features, strangers=whole)
            np.savez_compressed(file, **kept)
            right = dict(
                zip(kept["rows"].tolist(), (kept["answers"] == kept["labels"]).mean(1) * 100, strict=True)
            )
            shown = ", ".join(f"{row} {value:.1f}" for row, value in right.items())
            print(f"{name}: {shown}; {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
