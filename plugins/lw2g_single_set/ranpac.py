"""RanPAC: ridge regression of labels on random features of a backbone that the first task may have adapted.

McDonnell et al., "RanPAC: Random Projections and Pre-trained Models for Continual Learning", NeurIPS 2023.
With features F of all images seen, their one-hot labels Y and a fixed random matrix R:

    H = relu(F R)                        random features, M of them
    G = H^T H,  Q = H^T Y                sums over images, which is all that is kept of them
    W = (G + lambda I)^-1 Q              solved after every task; logits are relu(f R) W

Sums do not care which task an image came with, so that the classifier is that of all tasks at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    BACKBONE,
    Baseline,
    Batch,
    BuildContext,
    ClosedForm,
    CosineClassifier,
    Phase,
    Routing,
    TaskContext,
    TaskInfo,
    derive_seed,
    factor,
    fitting_phase,
)
from lw2g_single_set.first_task import Adaptation, adaptation, first_classifier
from lw2g_single_set.options import RanPacConfig

__all__ = ["PENALTIES", "RanPac", "RandomFeatureRidge", "held_out_errors"]

PENALTIES = tuple(10.0**power for power in range(-8, 9))
"""Candidates for lambda."""

_FITTED = 0.8
"""Share of a task's images to which candidates are fitted; the others choose."""

_ROWS = 1024
"""Images projected at once: the random features of a whole task would take as much memory as the sums."""


class RandomFeatureRidge(ClosedForm):
    """The classifier: a random projection, two sums, and a solve. All of it is in float64.

    Args:
        dim: Width of the features.
        num_classes: Number of classes of the stream.
        width: Number M of random features; 0 for regression on the features themselves.
        seed: Draws the projection.
        running: Whether held-out errors of all tasks choose lambda; else those of the last task alone.

    Attributes:
        projection: R, ``[dim, M]``; None without one. It is drawn again from the seed, so a checkpoint has
            none.
        gram: G, ``[1, M, M]``; checkpoints have an axis for heads whose sums are kept apart by sets.
        cross: Q transposed, ``[num_classes, M]``.
        penalty: lambda; 1 until a task has chosen it.
        errors: The error of each candidate, summed over tasks; None unless ``running``.
    """

    projection: Tensor | None
    gram: Tensor
    cross: Tensor
    penalty: Tensor
    errors: Tensor | None

    def __init__(self, dim: int, num_classes: int, width: int, seed: int, *, running: bool) -> None:
        super().__init__(num_classes)
        projection = None
        if width:
            # its own generator: in the release R changes with the number of epochs before it
            generator = torch.Generator().manual_seed(seed)
            projection = torch.randn(dim, width, generator=generator, dtype=torch.float64)
        self.register_buffer("projection", projection, persistent=False)
        size = width or dim  # without a projection the features themselves
        self.register_buffer("gram", torch.zeros(1, size, size, dtype=torch.float64))
        self.register_buffer("cross", torch.zeros(num_classes, size, dtype=torch.float64))
        # lambda; 1 until a task chooses it
        self.register_buffer("penalty", torch.tensor(1.0, dtype=torch.float64))
        errors = None
        if running:
            errors = torch.zeros(len(PENALTIES), dtype=torch.float64)
        self.register_buffer("errors", errors)

    # -- random features -------------------------------------------------------------------------------

    def lifted(self, features: Tensor) -> Tensor:
        """Return random features H, ``[n, M]``, of features ``[n, dim]``."""
        if self.projection is None:
            return features
        return (features @ self.projection).relu_()

    # -- sums ------------------------------------------------------------------------------------------

    def add(self, features: Tensor, labels: Tensor, owner: int) -> None:
        """Add images to both sums."""
        for part, classes in zip(torch.split(features, _ROWS), torch.split(labels, _ROWS), strict=True):
            rows = self.lifted(part)
            targets = functional.one_hot(classes, len(self.cross)).to(rows)
            self.gram[0] += rows.T @ rows
            self.cross += targets.T @ rows

    def class_gaussians(self, classes: int, widest: int) -> tuple[Tensor, Tensor] | None:
        """Return means ``[classes, M]`` and scatter ``[M, M]`` of random features, which both sums hold."""
        if self.cross.shape[1] > widest:
            return None
        counts = self.count[:classes, None]
        means = self.cross[:classes] / counts
        return means, self.gram[0] - (means * counts).T @ means

    # -- lambda ----------------------------------------------------------------------------------------

    def learn(self, features: Tensor, labels: Tensor, generator: torch.Generator, owner: int = 0) -> None:
        """Add the images of a task, then choose lambda on a fifth of them.

        Candidates are fitted to the other four fifths of this task alone; the chosen one then applies to the
        sums of all tasks. A task with a single class chooses nothing, because its labels are constant.
        """
        # sums first: what lambda is chosen on is part of them, too
        self.update(features, labels, owner)
        fitted = int(_FITTED * len(labels))
        if not 0 < fitted < len(labels) or len(torch.unique(labels)) == 1:
            return
        # shuffled: images may come class by class, and the last fifth would be the last classes
        order = torch.randperm(len(labels), generator=generator).to(labels.device)
        rows = self.lifted(features[order].double())
        _, own_labels = torch.unique(labels[order], return_inverse=True)
        targets = functional.one_hot(own_labels).to(rows)
        errors = held_out_errors(rows, targets, fitted)
        if self.errors is not None:
            errors = self.errors.add_(errors)
        # smaller penalties are lost in rounding when the sums are solved; the least of the others fits alike
        lost = torch.finfo(rows.dtype).eps * float(self.gram[0].trace())
        usable = [number for number, penalty in enumerate(PENALTIES) if penalty > lost]
        if not usable:
            usable = [len(PENALTIES) - 1]
        best = usable[int(errors[usable].argmin())]
        self.penalty.fill_(PENALTIES[best])
        self._solved = None

    # -- solve -----------------------------------------------------------------------------------------

    def solve(self, seen: int) -> tuple[Tensor, ...]:
        """Return ``W = (G + lambda I)^-1 Q``, ``[M, targets]``, by a Cholesky factor."""
        regularised = self.gram[0].clone()
        regularised.diagonal().add_(self.penalty)
        # classes that stand for one target are one column
        cross_of_targets = self.pooled(self.cross[:seen]).T
        return (torch.cholesky_solve(cross_of_targets, factor(regularised)),)

    def score(self, features: Tensor, *solution: Tensor) -> Tensor:
        """Return the regressed labels, ``[n, targets]``."""
        (weights,) = solution
        return self.lifted(features) @ weights


@torch.no_grad()
def held_out_errors(rows: Tensor, targets: Tensor, fitted: int) -> Tensor:
    """Return the squared error of ridge regression on held-out rows for each candidate, ``[candidates]``.

    With ``H H^T = V diag(s) V^T`` of the fitted rows, predictions for held-out rows K at a penalty lambda are
    ``K H^T V diag(1 / (s + lambda)) V^T Y``: one eigendecomposition serves all candidates. With fewer random
    features than rows it is that of ``H^T H``, and predictions are ``K V diag(1 / (s + lambda)) V^T H^T Y``.

    Args:
        rows: Random features ``[n, M]`` float64.
        targets: One-hot labels ``[n, k]``.
        fitted: Number of leading rows to fit; the others are held out.
    """
    fitted_rows = rows[:fitted]
    left_out = rows[fitted:]
    own_targets = targets[:fitted]
    left_out_targets = targets[fitted:]
    if len(fitted_rows) < rows.shape[1]:
        product = fitted_rows @ fitted_rows.T
        left = left_out @ fitted_rows.T
        right = own_targets
    else:
        product = fitted_rows.T @ fitted_rows
        left = left_out
        right = fitted_rows.T @ own_targets
    values, vectors = torch.linalg.eigh(product)
    left = left @ vectors
    right = vectors.T @ right
    values = values.clamp(min=0)[:, None]  # rounding may leave small negative ones
    errors = []
    for penalty in PENALTIES:
        predicted = left @ (right / (values + penalty))
        errors.append((predicted - left_out_targets).square().sum())
    return torch.stack(errors)


class RanPac(Baseline):
    """The features: frozen ones, or those under the one set, which the first task learns.

    Attributes:
        adaptation: How the set adapts the backbone; None on frozen features.
        classifier: What the set is learned with; None after the first task.
        closed_form: The classifier that predicts.
    """

    trained_tasks = 1

    classifier: CosineClassifier | None
    closed_form: RandomFeatureRidge

    def __init__(self, config: RanPacConfig, context: BuildContext) -> None:
        super().__init__(context)
        self.config = config
        self.adaptation: Adaptation | None = None
        if config.adapt == "none":
            self.scope = BACKBONE  # no set changes features
            self.trained_tasks = 0
        else:
            self.adaptation = adaptation(config.adapt, config, context)
            self.several_classes = True  # it is trained by a loss over the first task's classes
        self.register_module("classifier", None)
        # neither what was adapted nor for how long changes the projection
        dim = context.backbone.width
        seed = derive_seed(context.seed, "ranpac", dim, config.features)
        ridge = RandomFeatureRidge(
            dim, context.num_classes, config.features, seed, running=config.penalty == "running"
        )
        self.closed_form = ridge.to(context.device)

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return the set, before the first task is learned; an empty one on frozen features."""
        if self.adaptation is None:
            return nn.Module()
        return self.adaptation.new_set()

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features F, ``[B, dim]``; frozen ones are computed once a run."""
        if self.adaptation is None:
            return batch.query
        return self.adaptation.features(batch.images, routing.sets[0])

    def logits(self, features: Tensor) -> Tensor:
        """Return the regressed labels, ``[B, num_classes]``; 0 for classes to come."""
        return self.closed_form.logits(features)

    def begin_task(self, task: TaskInfo) -> None:
        """Make the classifier of the first task, and drop it afterwards."""
        if self.adaptation is not None:
            self.classifier = first_classifier(task, self.context.backbone.dim)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the adaptation in the first task, and the ridge regression in every task."""
        routing = context.pool.force(context.set_id)
        ridge = fitting_phase(
            "ridge", context, self.closed_form, lambda batch: self.head_features(batch, routing)
        )
        if self.adaptation is None or self.classifier is None:
            return (ridge,)
        return (self.adaptation.phase(self.config, context, self.classifier), ridge)
