"""What is looked at after a step of learning: found images, look-alikes, and what old classes lose."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor

from lw2g.api.arguments import backbone_as_typed
from lw2g.errors import DataError, counted, share_of
from lw2g.model.exported import Saved
from lw2g.model.left_out import kept_of, known_before
from lw2g.model.manifest import Manifest
from lw2g.model.rejection import Gaussians
from lw2g.model.solved import Solved
from lw2g.pixels.image_files import Crop
from lw2g.results.leading_check import LeadingCheck, leading_check
from lw2g.results.summaries import wilson
from lw2g_photos.class_folders import LEAST_CHECKED, ClassImages, note_of_domains, notes_of

__all__ = [
    "CELLS",
    "GO_BACK",
    "NEW_NUMBER",
    "TEACH_ANOTHER",
    "UNLEARN_FIRST",
    "accuracy_of",
    "domains_learned",
    "is_among",
    "learned_rows",
    "left_out_classes",
    "look_alikes",
    "missed_words",
    "misspelt",
    "not_learned",
    "recall",
    "shared_rows",
    "warnings_of",
]

TEACH_ANOTHER = "lw2g learn teaches it another"
"""What goes on with one class, in a terminal."""
UNLEARN_FIRST = "unlearn the class first"
"""What lets images of a class be learned as another, in a terminal."""
GO_BACK = "go back to the model before"
"""What undoes a step, in a terminal."""
NEW_NUMBER = ", and it gets a new number"
"""What becomes of a class that was forgotten, in a terminal, which shows numbers of classes."""
_TWIN = 0.1
"""Estimated rate of confusion from which two classes look alike."""
_SHOWN = 5
"""Classes that a list names at most."""
_SAME = 1e-3
"""Distance of the features of one image, over their length: how a batch is filled moves their last bits."""
CELLS = 2**24
"""Products of rows that are held at a time."""
_LEAST = 2
"""Images that say something: a single one may be an accident."""


def recall(solved: Solved, manifest: Manifest, images: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    """Return of each class how many of its images are found, and what the others are taken for.

    Args:
        solved: What of the model learns.
        manifest: The model.
        images: Rows of each class, as the model's ``features`` returns them.
    """
    classes = manifest.class_map
    names = classes.target_names
    found = {}
    for name, rows in images.items():
        predicted = solved.predicted_targets(rows.to(solved.device), classes.targets).tolist()
        taken = [names[target] for target in predicted]
        wrong = [other for other in taken if other != name]
        by_count = sorted(set(wrong), key=lambda other: (-wrong.count(other), other))
        found[name] = {
            "checked": len(taken),
            "recall": 100 * (1 - len(wrong) / len(taken)),
            "taken_for": by_count[:_SHOWN],
        }
    return found


def accuracy_of(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many images were ``checked``, their accuracy in percent and its interval; None of none.

    Args:
        found: What :func:`recall` returned.
    """
    total = 0
    right = 0.0
    for entry in found.values():
        if not entry["checked"]:  # a class of fewer than five images spares none, and has no recall
            continue
        total += entry["checked"]
        right += entry["checked"] * entry["recall"]
    if not total:
        return {"checked": 0, "accuracy": None, "interval": None}
    accuracy = right / total
    return {"checked": total, "accuracy": accuracy, "interval": wilson(accuracy, total)}


def left_out_classes(wrong: Tensor | None, manifest: Manifest) -> list[dict[str, Any]]:
    """Return of each class how many images are found without themselves, and what the others are taken for.

    Args:
        wrong: Images of each class that are taken for each one when they are left out, ``[C, C]``; None
            where nobody has looked.
        manifest: The model.
    """
    if wrong is None:
        return []
    names = manifest.class_map.target_names
    rows = []
    for target, counts in enumerate(wrong.int().tolist()):
        images = sum(counts)
        others = [other for other, count in enumerate(counts) if count and other != target]
        others.sort(key=lambda other: -counts[other])
        rows.append(
            {
                "class": names[target],
                "left_out": images,
                "recall": 100 * counts[target] / images if images else None,
                "taken_for": [[names[other], counts[other]] for other in others],
            }
        )
    return rows


def look_alikes(gaussians: Gaussians | None, wrong: Tensor | None, manifest: Manifest) -> dict[str, Any]:
    """Return which classes of the last task look like others, and what old classes lose to the new ones.

    Args:
        gaussians: Of the model, for an estimate; None where its head keeps none.
        wrong: Images of each class that are taken for each one when they are left out, ``[C, C]``; None
            where nobody has looked.
        manifest: The model.
    """
    names = manifest.class_map.target_names
    errors = None if gaussians is None else gaussians.errors()
    known = known_before(manifest)
    touched = manifest.infos[-1].targets
    new = [target for target in touched if target not in known]
    rates = _confusion_rates(errors, wrong, len(names))
    twins = []
    for target in touched:
        # in either direction
        error, other = torch.maximum(rates[target], rates[:, target]).max(0)
        if float(error) > _TWIN:
            asked = target if rates[target, other] == error else int(other)
            pair = {"class": names[target], "like": names[int(other)]}
            twins.append({**pair, "error": 100 * float(error), "images": _left_out_of(wrong, asked)})
    # rates of several new classes add up, and a class cannot lose more than all of its images
    lost = rates[:, new].sum(1).clamp(max=1)
    # a single class was the answer to every image: it had no accuracy to lose
    losers = known if len(known) > 1 else []
    losing = []
    for target in sorted(losers, key=lambda target: -float(lost[target]))[:_SHOWN]:
        if float(lost[target]) > _TWIN:
            loss = 100 * float(lost[target])
            losing.append({"class": names[target], "loss": loss, "images": _left_out_of(wrong, target)})
    estimated_loss = None
    if errors is not None and losers:
        estimated = errors[:, new].sum(1).clamp(max=1)[losers]
        estimated_loss = 100 * float(estimated.sum()) / len(losers)
    return {"estimated_loss": estimated_loss, "losing": losing, "twins": twins}


def _confusion_rates(errors: Tensor | None, wrong: Tensor | None, num_classes: int) -> Tensor:
    """Return how often images of each class pass for each other one, ``[C, C]``.

    Args:
        errors: As the Gaussians have it; None without them.
        wrong: As for :func:`look_alikes`.
        num_classes: The number of classes.
    """
    if wrong is not None:  # what was seen needs no estimate
        found = wrong / wrong.sum(1, keepdim=True).clamp(min=1)
        rates = found.masked_fill(wrong < _LEAST, 0)  # of fewer it may be chance
    elif errors is not None:
        rates = errors.cpu().clone()  # a copy: the estimate is read again
    else:
        rates = torch.zeros(num_classes, num_classes, dtype=torch.float64)
    return rates.fill_diagonal_(0)


def _left_out_of(wrong: Tensor | None, target: int) -> int | None:
    """Return how many images of a class were left out in turn; None where rates are estimates."""
    return None if wrong is None else int(wrong[target].sum())


def learned_rows(before: Saved, *, trained: bool) -> list[tuple[str, Tensor]]:
    """Return the features of the images that a model is known to have learned, with the name of their class.

    Args:
        before: The model.
        trained: Whether its features were trained: then what was kept beside them is of test images.
    """
    names = before.manifest.class_map.target_names
    if trained:
        others = {name: rows for name, rows in before.learned.items() if not name.startswith("kept/")}
        before = attrs.evolve(before, learned=others)
    return [(names[target], features) for target, features in kept_of(before)]


def not_learned(
    rows: Mapping[str, Tensor], images: Mapping[str, ClassImages], learned: Sequence[tuple[str, Tensor]]
) -> dict[str, Tensor]:
    """Return which images the model has not learned before, bool ``[n]`` of each class.

    It keeps no image, but features of those that it has learned; another image has others.

    Args:
        rows: The features of a step, by class.
        images: Their images.
        learned: As :func:`learned_rows` returns it.

    Raises:
        DataError: One was learned as another class.
    """
    new = {}
    twice: list[str] = []
    for name, rows_of_class in rows.items():
        mine = [features for known, features in learned if known == name]
        known = is_among(rows_of_class, torch.cat(mine)) if mine else torch.zeros(len(rows_of_class)).bool()
        new[name] = ~known
        found: dict[int, str] = {}
        for other, features in learned:
            if other != name:
                same = is_among(rows_of_class, features) & ~known
                found |= dict.fromkeys(same.nonzero().flatten().tolist(), other)
        for position, other in sorted(found.items()):
            twice.append(f"{_called(images[name].paths[position], position, name)} as {other!r}")
    if twice:
        raise DataError(
            f"{counted(len(twice), 'image')} learned before as another class, first {twice[0]}",
            f"keep each in one of the two: leave it out, or {UNLEARN_FIRST}",
        )
    return new


def _called(place: object, position: int, name: str) -> str:
    """Return what an image of a step is called: by its file, or its place in its class."""
    if isinstance(place, Path | Crop):
        return repr(str(place))
    kind = "row" if isinstance(place, Tensor) and place.ndim == 1 else "image"
    return f"{kind} {position} of {name!r}"


def shared_rows(rows: Sequence[Tensor], tested: Mapping[str, Tensor]) -> int:
    """Return how many images that test a model are learned, in whatever encoding, by features of each."""
    learned = torch.cat(list(rows))
    return sum(int(is_among(rows_of_class, learned).sum()) for rows_of_class in tested.values())


def is_among(rows: Tensor, others: Tensor) -> Tensor:
    """Return which rows are among others, but for their last bits, ``[n]`` bool."""
    if not len(others):
        return torch.zeros(len(rows), dtype=torch.bool)
    found = []
    others = others.to(rows)
    squares = others.square().sum(1)
    for own in torch.split(rows, max(1, CELLS // len(others))):
        # the nearest by one product, whose distance is too rough to tell equal rows; then that one exactly
        nearest = others[(squares - 2 * own @ others.T).argmin(1)]
        found.append((own - nearest).norm(dim=1) <= _SAME * own.norm(dim=1))
    return torch.cat(found)


def warnings_of(
    report: Mapping[str, Any], images: Mapping[str, ClassImages], manifest: Manifest
) -> Iterator[str]:
    """Yield what whoever teaches the model should know.

    Args:
        report: Of the step.
        images: What it has learned, by class.
        manifest: The model before it.
    """
    yield from notes_of(images, _backbone_of(manifest))
    before = set(manifest.class_map.target_names)
    after = before.union(images)
    if len(after) == 1:
        yield f"the model knows one class, and calls every image {min(after)}: {TEACH_ANOTHER}"
    yield from misspelt(images, before)
    forgotten = set(manifest.history.names) - before
    yield from _of_classes(report, images, forgotten)
    yield from _of_look_alikes(report)


def domains_learned(images: Mapping[str, ClassImages], manifest: Manifest) -> str:
    """Return the one of the notes which says that domains were learned as classes; else nothing.

    Args:
        images: As for :func:`warnings_of`.
        manifest: Likewise.
    """
    return note_of_domains(images, _backbone_of(manifest))


def _backbone_of(manifest: Manifest) -> str:
    """Return the options of a model's backbone as one types them."""
    begun = manifest.backbone
    return backbone_as_typed({**begun.options, "name": begun.name, "weights": begun.weights})


def misspelt(names: Collection[str], known: Collection[str]) -> Iterator[str]:
    """Yield which new classes are called as others are, but for capitals and spaces.

    Args:
        names: Of the classes of the step.
        known: Of the classes before it.
    """
    spelled = {_spelling(name): name for name in known}
    for name in names:
        other = spelled.setdefault(_spelling(name), name)
        if other != name and name not in known:
            remedy = f"{GO_BACK} and teach it these as {other!r}"
            if other not in known:
                remedy = "join their folders and make the model again"
            yield f"{name!r} is a new class beside {other!r}: if both are one, {remedy}"


def _spelling(name: str) -> str:
    """Return what is left of a name without capitals and marks between words."""
    return "".join(letter for letter in name.casefold() if not (letter.isspace() or letter in "-_"))


def _of_classes(
    report: Mapping[str, Any], images: Mapping[str, ClassImages], forgotten: Collection[str]
) -> Iterator[str]:
    """Yield what the checks say of classes one by one, a line for each thing that is said.

    Args:
        report: Of the step.
        images: As for :func:`warnings_of`.
        forgotten: Names of classes that the model has forgotten.
    """
    images_of = {entry["class"]: entry["images"] for entry in report["classes"]}
    classes = list(images_of)
    check = leading_check(report, has_old_classes=False)
    asked = {} if check is None else {row.name: row for row in check.classes if row.images}
    unchecked = [name for name in classes if name not in asked]
    if check is None:
        leaves_out = all(images_of[name] == 1 for name in unchecked)
    else:
        leaves_out = check.leaves_out
    if leaves_out:
        why = "a single image cannot be left out"
    elif report["tested_on"]:
        why = f"{report['tested_on']} holds no image of these"
    else:
        why = f"none is set apart of fewer than {LEAST_CHECKED} images"
    if unchecked:
        yield f"not checked, as {why}: {_first(unchecked)}"
    if check is not None and (missed := missed_words(check)):
        yield missed
    again = [name for name in classes if name in forgotten]
    if again:
        yield f"a class of this name was forgotten{NEW_NUMBER}: {', '.join(again)}"
    copies = {name: of_class.copies for name, of_class in images.items() if of_class.copies}
    if copies:
        where = ", ".join(copies) if len(copies) <= _SHOWN else counted(len(copies), "class")
        yield f"{counted(sum(copies.values()), 'copy')} of other images, counted once, in {where}"


def missed_words(check: LeadingCheck) -> str:
    """Return of which classes fewer than half of the images are found; nothing where there is none."""
    missed = [f"{row.name} {share_of(row.found or 0.0, row.images)}" for row in check.missed]
    return f"fewer than half of the images are found: {_first(missed)}" if missed else ""


def _of_look_alikes(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield which classes are confused, the most confused first, and which old ones lose images."""
    pairs: dict[frozenset[str], str] = {}
    for twin in sorted(report["twins"], key=lambda twin: -twin["error"]):
        # each of two new classes names the other
        pair = frozenset((twin["class"], twin["like"]))
        confused = f"{_share_of(twin['error'], twin['images'])} confused"
        pairs.setdefault(pair, f"{twin['class']} and {twin['like']} ({confused})")
    # two spellings of a name are likely one class, which is said: more images of both would not help
    alike = [words for pair, words in pairs.items() if len(set(map(_spelling, pair))) > 1]
    if alike:
        which = _first(alike)
        yield f"{which} look alike: more images of both may tell them apart"
    named = frozenset().union(*pairs)  # what a class loses to one that it is said to look like is said
    losing = []
    for entry in report["losing"]:
        if entry["class"] not in named:
            losing.append(f"{_share_of(entry['loss'], entry['images'])} of {entry['class']}")
    if losing:
        yield f"may lose images to the new classes: {', '.join(losing)}"


def _share_of(percent: float, images: int | None) -> str:
    """Return a share of images; an estimate is of no images."""
    return f"{percent:.0f} %" if images is None else share_of(percent, images)


def _first(words: Sequence[str]) -> str:
    """Return some words, or the first of many and the command that shows all."""
    if len(words) <= _SHOWN + 1:  # to name one takes no more room than to count it
        return ", ".join(words)
    shown = ", ".join(words[:_SHOWN])
    return f"{shown} and {len(words) - _SHOWN} more (lw2g show MODEL --all prints all)"
