"""What is looked at after a step of learning: found images, look-alikes, and what old classes lose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from lw2g.blocks.discriminants import Discriminant
from lw2g.blocks.expert import FrozenExpert
from lw2g.errors import counted
from lw2g.interfaces.classes import ClassMap
from lw2g.models.class_folders import ClassImages
from lw2g.models.manifest import Manifest
from lw2g.models.rejection import Gaussians, calibrated, left_out, moments_of
from lw2g.updates.solved import Solved
from lw2g.updates.steps import Saved, kept_of, names_of

__all__ = ["calibration_of", "look_alikes", "recall", "warnings_of"]

_TWIN = 0.1
"""Estimated rate of confusion from which two classes look alike."""
_SHOWN, _LEAST = 5, 2


def recall(solved: Solved, manifest: Manifest, images: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    """Return of each class how many of its images are found, and what the others are taken for."""
    classes, found = manifest.class_map, {}
    names = classes.target_names
    for name, rows in images.items():
        best = solved.named(rows.to(solved.device), classes.targets).tolist()
        wrong = [names[target] for target in best if names[target] != name]
        taken = sorted(set(wrong), key=lambda other: (-wrong.count(other), other))[:_SHOWN]
        recall = 100 * (1 - len(wrong) / len(best))
        found[name] = {"checked": len(best), "recall": recall, "taken_for": taken}
    return found


def look_alikes(gaussians: Gaussians | None, wrong: Tensor | None, manifest: Manifest) -> dict[str, Any]:
    """Return which classes of the last task look like others, and what old classes lose to the new ones.

    Args:
        gaussians: Of the model, for an estimate; None where its head keeps none.
        wrong: Images of each class that are taken for each one when they are left out, ``[C, C]``; None
            where nobody has looked.
        manifest: The model.
    """
    names, errors = names_of(manifest), None if gaussians is None else gaussians.errors()
    known = ClassMap.of(manifest.infos[:-1]).known
    touched = manifest.infos[-1].targets
    new = [target for target in touched if target not in known]
    rates = torch.zeros(len(names), len(names), dtype=torch.float64) if errors is None else errors.cpu()
    if wrong is not None:
        # two images are the least that say something
        share = wrong / wrong.sum(1, keepdim=True).clamp(min=1)
        rates = torch.maximum(rates, share.masked_fill(wrong < _LEAST, 0))
    rates = rates.clone().fill_diagonal_(0)
    twins, lost = [], rates[:, new].sum(1).clamp(max=1)
    for target in touched:
        error, other = torch.maximum(rates[target], rates[:, target]).max(0)
        if float(error) > _TWIN:
            twins.append({"class": names[target], "like": names[int(other)], "error": 100 * float(error)})
    losing = sorted(known, key=lambda target: -float(lost[target]))[:_SHOWN]
    estimated = None if errors is None else errors[:, new].sum(1).clamp(max=1)[known]
    return {
        "estimated_loss": None if estimated is None else 100 * float(estimated.sum()) / max(len(known), 1),
        "losing": [
            {"class": names[target], "loss": 100 * float(lost[target])}
            for target in losing
            if float(lost[target]) > _TWIN
        ],
        "twins": twins,
    }


def calibration_of(
    solved: Solved, saved: Saved, *, learned: bool = False
) -> tuple[dict[str, Tensor], dict[str, Any], Gaussians | None]:
    """Return what rejects unknown images, what left-out images say of the model, and its Gaussians.

    The head's features alone tell how known an image is. Beside an expert, whose posterior multiplies the
    head's, squared distances of both add up where a class is chosen.

    Args:
        solved: What of the model learns.
        saved: The model, with the features that it keeps.
        learned: Whether its last task may have cost the others accuracy.
    """
    infos, head = saved.manifest.infos, solved.head
    report: dict[str, Any] = {
        "loss": None,
        "left_out_accuracy": None,
        "temperature": None,
        "ece": None,
        "left_out": 0,
        "wrong": None,
    }
    gaussians, kept = moments_of(head, infos[-1].seen), kept_of(saved)
    if gaussians is None or not kept:
        return {}, report, gaussians
    rows, queries = solved.split(torch.cat([one for _, one in kept]).to(solved.device).double())
    labels = torch.cat([torch.full((len(one),), target) for target, one in kept]).to(rows.device)
    scores, distances, which = left_out(gaussians, head.lifted(rows), labels)
    if not len(which):
        return {}, report, gaussians
    own = isinstance(head, Discriminant)
    if solved.expert is not None and own:
        distances = distances / solved.expert.warmth + _beside(solved.expert, queries, labels, infos[-1].seen)
    labels = labels[which]
    found, error = calibrated(scores, distances, labels, own=own)
    report |= {"left_out": len(which), "ece": error}
    if own:
        best = distances.argmin(1)
        wrong = torch.zeros(distances.shape[1], distances.shape[1], dtype=torch.float64)
        wrong.index_put_((labels.cpu(), best.cpu()), torch.ones(1, dtype=torch.float64), accumulate=True)
        report["wrong"] = wrong
        right = best == labels
        report["left_out_accuracy"] = 100 * float(right.double().mean())
        report["temperature"] = float(found["temperature"])
        before = ClassMap.of(infos[:-1]).known if learned else []
        old = torch.isin(labels, torch.tensor(before, device=labels.device))
        if bool(old.any()):
            columns = torch.tensor(before, device=labels.device)
            then = columns[distances[old][:, columns].argmin(1)] == labels[old]
            report["loss"] = 100 * float(then.double().mean() - right[old].double().mean())
    return found, report, gaussians


def _beside(expert: FrozenExpert, queries: Tensor, labels: Tensor, seen: int) -> Tensor:
    """Return the distances of the same left-out images that an expert adds to the head's."""
    gaussians = moments_of(expert.lda, seen)
    assert gaussians is not None
    distances: Tensor = left_out(gaussians, queries, labels)[1]
    return distances


def warnings_of(report: Mapping[str, Any], images: Mapping[str, ClassImages], saved: Saved) -> Iterator[str]:
    """Yield what whoever teaches the model should know."""
    forgotten = set(saved.learning.names) - set(names_of(saved.manifest))
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
    for twin in report["twins"]:
        yield (
            f"{twin['class']} looks like {twin['like']} ({twin['error']:.0f} % confused): more "
            f"images of {twin['like']}?"
        )
    for entry in report["losing"]:
        yield f"{entry['class']} may lose {entry['loss']:.0f} % of its images to the new classes"
