"""How many of the images that say an accuracy have a near copy among those that were learned: a series.

Twenty pictures of one cup are one image twenty times over. Each that is left out is found by the others, and
the accuracy says nothing of another cup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lw2g.model.exported import Saved
from lw2g.model.solved import solved_of
from lw2g.model.trained import TrainedModel
from lw2g.results.leading_check import leading_check
from lw2g_photos.step_checks import CELLS, learned_rows

__all__ = ["near_copies", "near_copies_told"]

_NEAR = 0.25
"""Distance of two near copies, over the distance of images of different classes."""
_MOST = 0.5
"""Share of the images of a step from which on they are told apart from old ones."""
# Per cent of the images that have one this near, left out in turn, by twelve layers | by the last one:
#   distinct, 28 to 144 a class: TrashNet 0 | 0, PACS 0 | 0, Caltech-101 0 | 0 (ViT-Tiny);
#   glyphs 11 | 14, digits 11 | 19 (micro)
#   four photos a class, five crops of each, moved by up to 3 %: TrashNet 99 | 89, PACS 91 | 77,
#   Caltech 100 | 97; by up to 8 %: TrashNet 81 | 58, PACS 57 | 36, Caltech 93 | 80
#   one photo a class, twenty crops of other brightness: TrashNet 99 | 88, PACS 100 | 85, Caltech 100 | 99
#   of single classes: photos 0 to 7, series of a photo 95 to 100 | 55 to 100, glyphs 0 to 88 | 0 to 100


def near_copies_told(
    checks: Mapping[str, Any],
    saved: Saved,
    model: TrainedModel,
    held_out: Mapping[str, Sequence[bool]],
    *,
    drawings: bool,
) -> dict[str, int] | None:
    """Return what :func:`near_copies` says of the images that say the told accuracy.

    None where these are of ``--test`` or there are none, of a model of one class, and where the features may
    lie as near for another reason: trained ones, and those of a file, of which nobody knows the backbone.

    Args:
        checks: What the step reports.
        saved: The model after it, with features of all that it keeps.
        model: The same, as it computes.
        held_out: Which images of each class of the step were set apart, as
            :attr:`~lw2g_photos.class_folders.ClassImages.held_out` has it.
        drawings: Whether the backbone is one for small drawings, of which all of a class may be near.

    Returns:
        The counts; where each image is left out in turn, those of the classes of the step alone if most of
        these are near: among many old images they would not show.
    """
    lead = leading_check(checks, has_old_classes=False)
    trained = solved_of(model.parts).trained
    if lead is None or trained or model.backbone.takes_vectors:
        return None
    kept: dict[str, Tensor] = {}
    for name, rows in learned_rows(saved, trained=trained):
        kept[name] = torch.cat([kept[name], rows]) if name in kept else rows
    if len(kept) < 2:
        return None
    if lead.leaves_out:
        counts = near_copies(kept, None)
        latest = {name: kept[name] for name in held_out if name in kept}
        if drawings or len(latest) in (0, len(kept)):
            return counts
        own = _counted(latest, None, _NEAR * _between(kept))
        if own["near"] < _MOST * own["images"]:
            return counts
        shows_more = own["near"] / own["images"] > counts["near"] / counts["images"]
        return own if shows_more else counts
    if checks["tested_on"]:
        return None
    asked = {}
    others = {}
    for name, rows in kept.items():
        is_apart = torch.zeros(len(rows), dtype=torch.bool)
        of_step = torch.tensor(held_out.get(name, ()), dtype=torch.bool)
        is_apart[len(rows) - len(of_step) :] = of_step  # the last step's come last
        if is_apart.any():
            asked[name] = rows[is_apart]
        others[name] = rows[~is_apart]
    return near_copies(asked, others)


def near_copies(asked: Mapping[str, Tensor], others: Mapping[str, Tensor] | None) -> dict[str, int]:
    """Return how many ``images`` are asked, and how many of them are ``near`` another of their class.

    Two images are near if the distance of their features is at most a quarter of that between images of
    different classes (its root mean square, each pair of classes alike). So it depends neither on the scale
    of a backbone's features nor on their number. Measured with ViT-Tiny on TrashNet, PACS and Caltech-101,
    where no image is so near another, and on series cut from these, where 36 % and more are; and with the
    embedded backbone on its drawings, where up to 19 % are.

    Args:
        asked: Features of the images that say the accuracy, ``[n, F]`` of each class, of two classes or more.
        others: Of those that the model has learned when it is asked; None where these are the same, each
            left out in turn.
    """
    every = dict(asked)
    for name, rows in (others or {}).items():
        every[name] = torch.cat([every[name], rows]) if name in every else rows
    return _counted(asked, others, _NEAR * _between(every))


def _counted(asked: Mapping[str, Tensor], others: Mapping[str, Tensor] | None, near: float) -> dict[str, int]:
    """Return what :func:`near_copies` does, for the distance of near images."""
    found = 0
    for name, rows in asked.items():
        known = rows if others is None else others.get(name, rows[:0])
        found += int((_nearest(rows, known, leaves_out=others is None) <= near).sum())
    return {"images": sum(map(len, asked.values())), "near": found}


def _between(images: Mapping[str, Tensor]) -> float:
    """Return the root mean square distance of images of different classes, each pair of classes alike."""
    means = torch.stack([rows.double().mean(0) for rows in images.values()])
    spreads = [float((rows - rows.mean(0)).square().sum(1).mean()) for rows in images.values()]
    apart = float((means - means.mean(0)).square().sum()) / (len(means) - 1)
    # |x - y|^2 of two classes is on average both spreads and the distance of the means
    return float((2 * (sum(spreads) / len(spreads) + apart)) ** 0.5)


def _nearest(rows: Tensor, others: Tensor, *, leaves_out: bool) -> Tensor:
    """Return the distance of each row to the nearest other one, ``[n]``; infinite where there is none."""
    if len(others) <= leaves_out:
        return torch.full((len(rows),), torch.inf)
    center = others.mean(0)  # around it, products cancel less
    others = others - center
    squares = others.square().sum(1)
    found = []
    start = 0
    for own in torch.split(rows - center, max(1, CELLS // len(others))):
        distances = own.square().sum(1, keepdim=True) + squares - 2 * own @ others.T
        if leaves_out:
            places = torch.arange(len(own))
            distances[places, start + places] = torch.inf
        start += len(own)
        found.append(distances.min(1).values.clamp(min=0).sqrt())
    return torch.cat(found)
