"""What images say of a model that has learned without them: how sure it may be, and how known they are.

Each image of which a model keeps features is left out of its sums in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
import torch
from torch import Tensor

from lw2g.blocks.closed_form import ClosedForm
from lw2g.blocks.expert import FrozenExpert, of_targets
from lw2g.disk.checkpoint import part
from lw2g.model.exported import Saved
from lw2g.model.manifest import Manifest
from lw2g.model.rejection import Gaussians, moments_of, scores_of, temperature_of
from lw2g.model.solved import Solved

__all__ = [
    "Calibration",
    "LeftOut",
    "answers_without_each",
    "calibration_of",
    "features_of",
    "kept_of",
    "known_before",
    "left_out_places",
]

_OPERATIONS = 2**36
"""Products of features, width by width, in which images are left out: about 10 s of one core."""
_FEWEST = 1000
"""Images that are left out at any width."""


def features_of(learned: Mapping[str, Tensor], number: int) -> list[Tensor]:
    """Return the features that a step has added, class by class."""
    rows: list[Tensor] = []
    # asked for by name: looking through all entries for each of n steps would take n squared
    while (own := learned.get(f"features/{number}/{len(rows)}")) is not None:
        rows.append(own)
    return rows


def kept_of(saved: Saved) -> list[tuple[int, Tensor]]:
    """Return targets and features of all images of which the model keeps features."""
    classes = saved.manifest.class_map
    base = {int(place): rows for place, rows in part(saved.learned, "kept").items()}
    kept = [(classes.target(place), base[place]) for place in sorted(base)]
    position = saved.manifest.num_base_classes
    # steps are counted by tasks: one that is being learned is in the history only once it has been checked
    for number in range(len(saved.manifest.tasks) - saved.manifest.history.tasks):
        for rows in features_of(saved.learned, number):
            kept.append((classes.target(position), rows))
            position += 1
    return kept


def known_before(manifest: Manifest) -> list[int]:
    """Return the targets that the tasks before the last one have brought."""
    known: set[int] = set()
    for info in manifest.infos[:-1]:
        known.update(info.targets)
    return sorted(known)


@attrs.frozen(eq=False)
class Calibration:
    """What rejects unknown images, and says how sure an answer may be.

    Attributes:
        known: Returns how known each left-out image is: it costs as much as all else, and of several models
            one rejects; None where nothing tells.
        temperature: Divides scores; None where nothing tells.
    """

    known: Callable[[], Tensor] | None = None
    temperature: float | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Return what a model keeps of it."""
        found = {}
        if self.known is not None:
            found["known"] = self.known().sort().values
        if self.temperature is not None:
            found["temperature"] = torch.tensor(self.temperature, dtype=torch.float64)
        return found


def calibration_of(solved: Solved, saved: Saved) -> tuple[Calibration, dict[str, Any], Gaussians | None]:
    """Return what rejects unknown images, what left-out images say of the model, and its Gaussians.

    Each image of which the model keeps features is left out of its sums, alone. The Gaussians of the head's
    features tell how known it is, and the head's scores (beside an expert the product of both) how sure an
    answer may be: their temperature is the one of least log loss on these images.

    Args:
        solved: What of the model learns.
        saved: The model, with the features that it keeps.

    Returns:
        The calibration; what images say, where ``wrong`` ``[C, C]`` counts what they are taken for, and
        ``right`` has of each image in the order of :func:`kept_of` 1, 0, or NaN if nothing is said of it;
        and the Gaussians.
    """
    head = solved.head
    seen = saved.manifest.infos[-1].seen
    report: dict[str, Any] = {
        "left_out_accuracy": None,
        "temperature": None,
        "ece": None,
        "left_out": 0,
        "right": None,
        "wrong": None,
    }
    gaussians = moments_of(head, seen)
    kept = kept_of(saved)
    if not kept:
        return Calibration(), report, gaussians
    targets: list[int] = []
    for target, features in kept:
        targets += [target] * len(features)
    rows = torch.cat([features for _, features in kept])
    labels = torch.tensor(targets, device=solved.device)
    held = _held_by_sums(solved, saved, len(rows))
    count = len(rows)
    chosen = left_out_places(count, rows.shape[1])
    if len(chosen) < len(rows):
        rows = rows[chosen]
        labels = labels[chosen.to(labels.device)]
        held = held[chosen.to(held.device)]
    # float64, as the Gaussians: rows are taken out of sums of many
    rows = rows.to(solved.device).double()
    left_out = answers_without_each(solved, gaussians, rows, labels, held, seen)
    labels = labels[left_out.which]
    report["left_out"] = len(labels)
    scores = left_out.scores
    if scores is not None and len(labels):
        # the scores of images that are left out tell which of them would be found
        best = scores.argmax(1)
        right = best == labels
        report["temperature"], report["ece"] = temperature_of(scores, labels)
        report["wrong"] = _counted(labels, best, scores.shape[1])
        report["left_out_accuracy"] = 100 * float(right.double().mean())
        report["right"] = torch.full((count,), torch.nan)
        report["right"][chosen[left_out.which.cpu()]] = right.cpu().float()
    return Calibration(left_out.known, report["temperature"]), report, gaussians


def left_out_places(count: int, width: int) -> Tensor:
    """Return which of so many images are left out, ``[n]``: all, or of very many some of each class.

    Args:
        count: Number of images, which lie class by class.
        width: Width of their features.
    """
    side = min(count, width)  # of few rows, sums are of their number
    most_rows = max(_FEWEST, _OPERATIONS // side**2)
    if count <= most_rows:
        return torch.arange(count)
    return torch.linspace(0, count - 1, most_rows).long()


@attrs.frozen(kw_only=True, eq=False)
class LeftOut:
    """What a model without each image says of it.

    Attributes:
        which: The images, ``[n]``: one that is alone in its class says nothing.
        known: Returns how known each is; None where the head keeps no Gaussians.
        scores: Of each target, ``[n, C]``; None where the head has no way to leave an image out.
    """

    which: Tensor
    known: Callable[[], Tensor] | None
    scores: Tensor | None


def answers_without_each(
    solved: Solved, gaussians: Gaussians | None, rows: Tensor, labels: Tensor, held: Tensor, seen: int
) -> LeftOut:
    """Return what the model without each image says of it.

    Args:
        solved: What of the model learns.
        gaussians: Of its head; None where it keeps none, or where nobody asks how known an image is and
            distances to them are not the head's scores.
        rows: Features of the images, float64.
        labels: Their targets, ``[N]``.
        held: Whether the sums hold each image, ``[N]``: of the others nothing is taken out.
        seen: Number of classes that the model has learned.
    """
    head = solved.head
    features, queries = solved.split(rows)
    # Gaussians say how known an image is; they give its scores too, if the head predicts the nearest one
    known: Callable[[], Tensor] | None = None
    scores = None
    which = _several(head, labels, held, seen)
    if gaussians is not None and len(which) and head.nearest_gaussian:
        unknown = scores_of(gaussians, head.lifted(features), labels, held)
        known, which = unknown.scores, unknown.which
        scores = -unknown.distances / 2
    elif gaussians is not None and len(which):
        lifted = head.lifted(features)
        known = partial(_scores_of, gaussians, lifted, labels, held)
    if not head.nearest_gaussian and len(which):
        scores = _scores_without_each(head, features[which], labels[which], held[which], seen)
    if scores is not None and solved.expert is not None:
        # log posteriors add up
        of_expert = _expert_scores(solved.expert, queries, labels, held, which, seen)
        scores = scores / solved.expert.warmth + of_expert
    return LeftOut(which=which, known=known, scores=scores)


def _scores_of(gaussians: Gaussians, rows: Tensor, labels: Tensor, held: Tensor) -> Tensor:
    """Return how known images are that Gaussians do not know."""
    return scores_of(gaussians, rows, labels, held).scores()


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


def _held_by_sums(solved: Solved, saved: Saved, count: int) -> Tensor:
    """Return whether the sums hold each image of which a model keeps features, ``[count]`` bool.

    They hold all images that were learned under features that stay as they are; of a run whose features were
    trained, images are kept that it has not learned, and they stand first.
    """
    held = torch.ones(count, dtype=torch.bool, device=solved.device)
    if solved.trained:
        held[: sum(len(rows) for rows in part(saved.learned, "kept").values())] = False
    return held


def _expert_scores(
    expert: FrozenExpert, queries: Tensor, labels: Tensor, held: Tensor, which: Tensor, seen: int
) -> Tensor:
    """Return what an expert adds to the log posterior of the head, for the images ``which``."""
    classifier = expert.classifier
    if not classifier.nearest_gaussian:
        scores = _scores_without_each(classifier, queries[which], labels[which], held[which], seen)
        assert scores is not None
        temperature = classifier.temperature
        return scores if temperature is None else scores / temperature.value
    gaussians = moments_of(classifier, seen)
    assert gaussians is not None
    # minus half a squared distance
    return -scores_of(gaussians, queries, labels, held).distances / 2
