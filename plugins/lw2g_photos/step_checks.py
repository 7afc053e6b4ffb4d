"""What is looked at after a step of learning: found images, look-alikes, and what old classes lose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from torch import Tensor

from lw2g.blocks.closed_form import ClosedForm
from lw2g.blocks.expert import FrozenExpert, of_targets
from lw2g.disk.checkpoint import part
from lw2g.errors import counted
from lw2g.model.exported import Saved
from lw2g.model.manifest import Manifest
from lw2g.model.rejection import Gaussians, moments_of, scores_of, temperature_of
from lw2g.model.solved import Solved
from lw2g_photos.class_folders import ClassImages, notes_of
from lw2g_photos.steps import kept_of

__all__ = ["calibration_of", "learned_twice", "look_alikes", "recall", "shared_rows", "warnings_of"]

_TWIN = 0.1
"""Estimated rate of confusion from which two classes look alike."""
_SHOWN = 5
"""Classes that a list names at most."""
_SAME = 1e-3
"""Distance of the features of one image, over their length: how a batch is filled moves their last bits."""
_CELLS = 2**24
"""Products of rows that are held at a time."""
_OPERATIONS = 2**36
"""Products of features, width by width, in which images are left out: about 10 s of one core."""
_FEWEST = 1000
"""Images that are left out at any width."""
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
    known = _known_before(manifest)
    touched = manifest.infos[-1].targets
    new = [target for target in touched if target not in known]
    rates = _confusion_rates(errors, wrong, len(names))
    twins = []
    for target in touched:
        error, other = torch.maximum(rates[target], rates[:, target]).max(0)
        if float(error) > _TWIN:
            twins.append({"class": names[target], "like": names[int(other)], "error": 100 * float(error)})
    # rates of several new classes add up, and a class cannot lose more than all of its images
    lost = rates[:, new].sum(1).clamp(max=1)
    losing = []
    for target in sorted(known, key=lambda target: -float(lost[target]))[:_SHOWN]:
        if float(lost[target]) > _TWIN:
            losing.append({"class": names[target], "loss": 100 * float(lost[target])})
    estimated_loss = None
    if errors is not None:
        estimated = errors[:, new].sum(1).clamp(max=1)[known]
        estimated_loss = 100 * float(estimated.sum()) / max(len(known), 1)
    return {"estimated_loss": estimated_loss, "losing": losing, "twins": twins}


def _known_before(manifest: Manifest) -> list[int]:
    """Return the targets that the tasks before the last one have brought."""
    known: set[int] = set()
    for info in manifest.infos[:-1]:
        known.update(info.targets)
    return sorted(known)


def _confusion_rates(errors: Tensor | None, wrong: Tensor | None, num_classes: int) -> Tensor:
    """Return how often images of each class pass for each other one, ``[C, C]``.

    Args:
        errors: As the Gaussians have it; None without them.
        wrong: As for :func:`look_alikes`.
        num_classes: The number of classes.
    """
    rates = torch.zeros(num_classes, num_classes, dtype=torch.float64) if errors is None else errors.cpu()
    if wrong is not None:
        share = wrong / wrong.sum(1, keepdim=True).clamp(min=1)
        rates = torch.maximum(rates, share.masked_fill(wrong < _LEAST, 0))
    return rates.clone().fill_diagonal_(0)  # a copy: the estimate is read again


def calibration_of(
    solved: Solved, saved: Saved, *, learned: bool = False
) -> tuple[dict[str, Tensor], dict[str, Any], Gaussians | None]:
    """Return what rejects unknown images, what left-out images say of the model, and its Gaussians.

    Each image of which the model keeps features is left out of its sums, alone. The Gaussians of the head's
    features tell how known it is, and the head's scores (beside an expert the product of both) how sure an
    answer may be: their temperature is the one of least log loss on these images.

    Args:
        solved: What of the model learns.
        saved: The model, with the features that it keeps.
        learned: Whether its last task may have cost the others accuracy.
    """
    head = solved.head
    seen = saved.manifest.infos[-1].seen
    report: dict[str, Any] = {
        "loss": None,
        "left_out_accuracy": None,
        "temperature": None,
        "ece": None,
        "left_out": 0,
        "wrong": None,
    }
    gaussians = moments_of(head, seen)
    found: dict[str, Tensor] = {}
    kept = kept_of(saved)
    if not kept:
        return found, report, gaussians
    targets: list[int] = []
    for target, features in kept:
        targets += [target] * len(features)
    rows = torch.cat([features for _, features in kept])
    labels = torch.tensor(targets, device=solved.device)
    held = _held_by_sums(solved, saved, len(rows))
    if len(rows) > (most := max(_FEWEST, _OPERATIONS // rows.shape[1] ** 2)):
        some = torch.linspace(0, len(rows) - 1, most).long()  # of every class, which lie together
        rows = rows[some]
        labels = labels[some.to(labels.device)]
        held = held[some.to(held.device)]
    # float64, as the Gaussians: rows are taken out of sums of many
    rows = rows.to(solved.device).double()
    left_out = _left_out(solved, gaussians, rows, labels, held, seen)
    if left_out.known is not None and len(left_out.known):
        found["known"] = left_out.known.sort().values
    labels = labels[left_out.which]
    report["left_out"] = len(labels)
    scores = left_out.scores
    if scores is not None and len(labels):
        # the scores of images that are left out tell which of them would be found
        best = scores.argmax(1)
        right = best == labels
        temperature, report["ece"] = temperature_of(scores, labels)
        found["temperature"] = torch.tensor(temperature, dtype=torch.float64)
        report["wrong"] = _counted(labels, best, scores.shape[1])
        report["left_out_accuracy"] = 100 * float(right.double().mean())
        report["temperature"] = temperature
        if learned:
            report["loss"] = _loss_of(_known_before(saved.manifest), scores, labels, right)
    return found, report, gaussians


@attrs.frozen(kw_only=True, eq=False)
class _LeftOut:
    """What a model without each image says of it.

    Attributes:
        which: The images, ``[n]``: one that is alone in its class says nothing.
        known: How known each is; None where the head keeps no Gaussians.
        scores: Of each target, ``[n, C]``; None where the head has no way to leave an image out.
    """

    which: Tensor
    known: Tensor | None
    scores: Tensor | None


def _left_out(
    solved: Solved, gaussians: Gaussians | None, rows: Tensor, labels: Tensor, held: Tensor, seen: int
) -> _LeftOut:
    """Return what the model without each image says of it.

    Args:
        solved: What of the model learns.
        gaussians: Of its head.
        rows: Features of the images.
        labels: Their targets, ``[N]``.
        held: Whether the sums hold each image, ``[N]``: of the others nothing is taken out.
        seen: Number of classes that the model has learned.
    """
    head = solved.head
    features, queries = solved.split(rows)
    known = scores = None
    which = _several(head, labels, held, seen)
    if gaussians is not None and len(which):
        known, distances, which = scores_of(gaussians, head.lifted(features), labels, held)
        if head.nearest_gaussian:
            scores = -distances / 2
    if not head.nearest_gaussian and len(which):
        scores = _scores_without_each(head, features[which], labels[which], held[which], seen)
    if scores is not None and solved.expert is not None:
        of_expert = _expert_distances(solved.expert, queries, labels, held, seen)
        scores = scores / solved.expert.warmth - of_expert / 2
    return _LeftOut(which=which, known=known, scores=scores)


def _several(head: ClosedForm, labels: Tensor, held: Tensor, seen: int) -> Tensor:
    """Return the images that sums do not hold, then those whose class has others, as ``scores_of`` does."""
    counts = head.pooled(head.count[:seen])
    inside = held & (counts[labels] > 1)
    return torch.cat([(~held).nonzero()[:, 0], inside.nonzero()[:, 0]])


def _scores_without_each(
    head: ClosedForm, features: Tensor, labels: Tensor, held: Tensor, seen: int
) -> Tensor | None:
    """Return the scores of targets by the head without each image; of those that it does not hold, as it is.

    Args:
        head: The head.
        features: Of the images, those that the sums do not hold first.
        labels: Their targets.
        held: Whether the sums hold each.
        seen: Number of classes that the head has learned.
    """
    targets = head.targets[:seen]
    # a class of the target stands for it: what is taken out of the target's sums is the same
    first = torch.tensor([targets.index(label) for label in labels.tolist()], device=labels.device)
    without = head.without_each(features[held], first[held], seen)
    if without is None:
        return None
    whole = of_targets(head.scores(features[~held], seen), targets)
    return torch.cat([whole, without])


def _counted(labels: Tensor, taken: Tensor, num_classes: int) -> Tensor:
    """Return how many images of each class are taken for each one, ``[C, C]`` float64."""
    counts = torch.zeros(num_classes, num_classes, dtype=torch.float64)
    one = torch.ones(1, dtype=torch.float64)
    return counts.index_put_((labels.cpu(), taken.cpu()), one, accumulate=True)


def _loss_of(known: Sequence[int], scores: Tensor, labels: Tensor, right: Tensor) -> float | None:
    """Return the points of accuracy that old classes lose to new ones; None where no image tells.

    Args:
        known: The old classes.
        scores: Of each class for each image, ``[n, C]``.
        labels: The class of each image, ``[n]``.
        right: Whether it is found among all classes, ``[n]``.
    """
    columns = torch.tensor(known, device=labels.device)
    old = torch.isin(labels, columns)
    if not bool(old.any()):
        return None
    # before the new classes came, an image had the choice among the old ones alone
    then = columns[scores[old][:, columns].argmax(1)] == labels[old]
    return 100 * float(then.double().mean() - right[old].double().mean())


def _held_by_sums(solved: Solved, saved: Saved, count: int) -> Tensor:
    """Return whether the sums hold each image of which a model keeps features, ``[count]`` bool.

    They hold all images that were learned under features that stay as they are; of a run whose features were
    trained, images are kept that it has not learned, and they stand first.
    """
    held = torch.ones(count, dtype=torch.bool, device=solved.device)
    if solved.trained:
        held[: sum(len(rows) for rows in part(saved.learned, "kept").values())] = False
    return held


def _expert_distances(
    expert: FrozenExpert, queries: Tensor, labels: Tensor, held: Tensor, seen: int
) -> Tensor:
    """Return the distances that an expert adds to those of the head, for the same images."""
    gaussians = moments_of(expert.lda, seen)
    assert gaussians is not None
    _, distances, _ = scores_of(gaussians, queries, labels, held)
    return distances


def learned_twice(
    rows: Mapping[str, Tensor], images: Mapping[str, ClassImages], before: Saved
) -> Iterator[str]:
    """Yield which images the model has learned before under another name.

    It keeps no image, but features of those that it has learned; another image has others.

    Args:
        rows: The features of a step, by class.
        images: Their images.
        before: The model before the step.
    """
    names = before.manifest.class_map.target_names
    kept = kept_of(before)
    for name, own in rows.items():
        found: dict[int, str] = {}
        for target, features in kept:
            if names[target] != name:
                same = _are_in(own, features).nonzero().flatten()
                found |= dict.fromkeys(same.tolist(), names[target])
        if found:
            place, other = min(found.items())
            first = images[name].paths[place]
            called = repr(str(first)) if isinstance(first, Path) else f"row {place}"
            yield (
                f"{name}: {counted(len(found), 'image')} learned before as another class, first {called} as "
                f"{other}; keep each in one of the two"
            )


def shared_rows(rows: Mapping[str, Tensor], tested: Mapping[str, Tensor]) -> int:
    """Return how many images that test a model are learned, in whatever encoding, by features of each."""
    learned = torch.cat(list(rows.values()))
    return sum(int(_are_in(own, learned).sum()) for own in tested.values())


def _are_in(rows: Tensor, others: Tensor) -> Tensor:
    """Return which rows are among others, but for their last bits, ``[n]`` bool."""
    if not len(others):
        return torch.zeros(len(rows), dtype=torch.bool)
    found = []
    others = others.to(rows)
    squares = others.square().sum(1)
    for own in torch.split(rows, max(1, _CELLS // len(others))):
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
    forgotten = set(manifest.history.names) - set(manifest.class_map.target_names)
    for entry in report["classes"]:
        name = entry["class"]
        if not entry["checked"]:
            yield f"{name}: not checked, {counted(entry['images'], 'image')} cannot spare any"
        elif entry["recall"] < 50:
            others = ", ".join(entry["taken_for"])
            yield f"{name}: {entry['recall']:.0f} % of its images are found; others pass for {others}"
        if name in forgotten:
            yield f"{name}: a class of this name was forgotten; this one has a new number"
        if images[name].copies:
            yield f"{name}: {counted(images[name].copies, 'copy')} of other files, counted once"
    yield from notes_of(images)
    for twin in report["twins"]:
        yield (
            f"{twin['class']} looks like {twin['like']} ({twin['error']:.0f} % confused): more "
            f"images of {twin['like']}?"
        )
    for entry in report["losing"]:
        yield f"{entry['class']} may lose {entry['loss']:.0f} % of its images to the new classes"
