"""EASE: an adapter per task, class prototypes in the subspace of each, old ones synthesised in new subspaces.

Zhou et al., "Expandable Subspace Ensemble for Pre-Trained Model-Based Class-Incremental Learning", CVPR 2024.
When a new adapter is trained, no image of an old class is left. Its prototype in the new subspace is
estimated from the classes that resemble it in its own subspace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    AdapterBaseline,
    AdapterSet,
    Batch,
    BuildContext,
    ComputePhase,
    CosineClassifier,
    Phase,
    Routing,
    StepOutput,
    TaskContext,
    TaskInfo,
    collect_features,
)
from lw2g_adapters.options import EaseConfig

__all__ = ["Ease", "Subspace", "synthesise"]


class Subspace(nn.Module):
    """Class prototypes under one set.

    Attributes:
        prototype: ``[num_classes, dim]``: means of features where ``measured``, synthesised ones elsewhere.
        measured: Whether a prototype was measured on images of the class, ``[num_classes]`` bool.
    """

    prototype: Tensor
    measured: Tensor

    def __init__(self, num_classes: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("prototype", torch.zeros(num_classes, dim))
        self.register_buffer("measured", torch.zeros(num_classes, dtype=torch.bool))


def synthesise(old: Tensor, known: Tensor, known_here: Tensor) -> Tensor:
    """Return estimated prototypes of old classes in a new subspace, ``[n, dim]``.

    Each is a mean of the known classes, weighted by a softmax over their cosines to it in its own subspace.
    Cosines differ by 2 at most, so no weight is more than e^2 = 7.4 times another.

    Args:
        old: Prototypes of the old classes in their own subspace, ``[n, dim]``.
        known: Prototypes in that subspace of the classes that both subspaces know, ``[m, dim]``.
        known_here: Prototypes of the same classes in the new subspace, ``[m, dim]``.

    >>> here = torch.tensor([[2.0, 0.0]])
    >>> synthesise(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), here)
    tensor([[2., 0.]])
    """
    # over the known classes, as the released code normalises
    weights = (_unit(old) @ _unit(known).T).softmax(dim=1)
    return weights @ known_here


def _unit(rows: Tensor) -> Tensor:
    return functional.normalize(rows, dim=-1)


class Ease(AdapterBaseline):
    """Every set scores classes by cosines to its prototypes; a class's own set has the largest weight.

    A subspace belongs to a set: under a policy that shares sets, a class's own subspace is that of the set
    its task trained, and the class is synthesised under later sets. Where a later task goes on training a
    set, prototypes measured under it before are stale: no image is left to measure them again.

    Attributes:
        subspaces: One for each possible set.
        plain: The subspace of un-adapted features.
        owner: The set of each class, ``[num_classes]`` int64.
        classifier: The classifier that the task's set is trained with.
    """

    owner: Tensor

    def __init__(self, config: EaseConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        sizes = (context.num_classes, context.backbone.dim)
        self.subspaces = nn.ModuleList(Subspace(*sizes) for _ in range(context.num_tasks))
        self.plain = Subspace(*sizes)
        self._beside: tuple[nn.Module, ...] = ()
        if config.plain_weight:
            # adapters that change nothing: the plain backbone answers under them
            identity = AdapterSet(context.backbone.depth, context.backbone.dim, config.bottleneck)
            self._beside = (identity.as_buffers(zero=True).to(context.device),)
        self.register_buffer("owner", torch.zeros(context.num_classes, dtype=torch.long))
        self.classifier: CosineClassifier | None = None
        self.to(context.device)

    def begin_task(self, task: TaskInfo) -> None:
        """Make the classifier that the task's set is trained with."""
        classifier = CosineClassifier(len(task.classes), self.context.backbone.dim)
        self.classifier = classifier.to(self.context.device)

    def beside(self) -> tuple[nn.Module, ...]:
        """Return adapters that change nothing if un-adapted features take part."""
        return self._beside

    # -- prediction ------------------------------------------------------------------------------------

    def logits(self, features: Tensor) -> Tensor:
        """Return weighted sums of cosines in all subspaces, ``[B, num_classes]``."""
        config = self.config
        plain = len(self.beside())
        sets = features.shape[1] - plain
        # a class has weight 1 in the subspace of its own set, and this in each other one
        other_weight = config.other_weight
        if config.other_share == "together":  # the code divides by the number of other sets, the paper not
            other_weight = config.other_weight / max(1, sets - 1)
        total = torch.zeros(len(features), self.context.num_classes, device=features.device)
        for position in range(sets):
            # cosines subspace by subspace: in one long vector, those with long features would count more
            cosines = _unit(features[:, position]) @ _unit(self._subspace(position).prototype).T
            total = total + cosines * torch.where(self.owner == position, 1.0, other_weight)
        if plain:  # un-prompted features stand behind those of the sets
            cosines = _unit(features[:, -1]) @ _unit(self.plain.prototype).T
            total = total + config.plain_weight * cosines
        return total

    def _subspace(self, set_id: int) -> Subspace:
        return cast(Subspace, self.subspaces[set_id])

    # -- learning --------------------------------------------------------------------------------------

    def probe_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the cross-entropy of the classifier that the task would begin with."""
        classifier = cast(CosineClassifier, self.classifier)
        return functional.cross_entropy(classifier(features), batch.labels - task.classes[0])

    def draw_head(self, task: TaskInfo) -> None:
        """Draw the task's classifier anew."""
        cast(CosineClassifier, self.classifier).draw()

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return two phases: adapters and their classifier, then the prototypes of all subspaces."""

        def step(batch: Batch) -> StepOutput:
            features = self.training_features(batch, context)
            return StepOutput(loss=self.probe_loss(features, batch, context.task), features=features)

        trained = (*self.trained(context), *cast(CosineClassifier, self.classifier).parameters())
        return (
            self.adapters_phase([self.group(trained)], step),
            ComputePhase(name="prototypes", run=lambda progress: self.measure(context, progress)),
        )

    def measure(self, context: TaskContext, progress: Callable[[int, int], None]) -> None:
        """Measure the task's classes in all subspaces, and synthesise the others again."""
        classes = list(context.task.classes)
        pool = context.pool
        self.owner[classes] = context.set_id
        spaces = [(self._subspace(set_id), pool.force(set_id)) for set_id in pool.ids]
        if self.beside():
            spaces.append((self.plain, Routing(sets=self.beside(), chosen=0)))
        for number, (space, routing) in enumerate(spaces):

            def tell(done: int, total: int, number: int = number) -> None:
                """Report the images of all subspaces."""
                progress(number * total + done, len(spaces) * total)

            # prototypes are of raw features: they are averaged again when others are synthesised from them
            rows, labels = collect_features(context, partial(self.features, routing=routing), tell)
            for label in classes:
                # float64, so that the mean does not depend on how the images were batched
                space.prototype[label] = rows[labels == label].double().mean(0).float()
            space.measured[classes] = True
        # all missing prototypes, not those of the new set alone: every task brings classes to estimate from
        self.synthesise(context.task.seen, pool.ids)

    def synthesise(self, seen: int, sets: Sequence[int]) -> None:
        """Synthesise the prototypes of seen classes that were not measured under some sets."""
        for subspace in map(self._subspace, sets):
            known = subspace.measured[:seen].nonzero()[:, 0]
            missing = ~subspace.measured[:seen]
            # by the set that measured them: likeness is read there, where the old classes are known
            for set_id in sorted(set(self.owner[:seen][missing].tolist())):
                rows = (missing & (self.owner[:seen] == set_id)).nonzero()[:, 0]
                prototypes = self._subspace(set_id).prototype
                subspace.prototype[rows] = synthesise(
                    prototypes[rows], prototypes[known], subspace.prototype[known]
                )
