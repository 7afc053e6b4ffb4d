"""OnePrompt and OVOR: one prefix set that all tasks train, and a head that meets virtual outliers.

Huang et al., "OVOR: OnePrompt with Virtual Outlier Regularization for Rehearsal-Free Class-Incremental
Learning", ICLR 2024. OnePrompt is DualPrompt without pool, keys and query; OVOR is OnePrompt with
``outliers = "paper"``, where the last epochs of a task train the head alone against virtual outliers (section
3.2), made as in non-parametric outlier synthesis (Tao et al., ICLR 2023).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import cast

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    Baseline,
    Batch,
    BuildContext,
    ComputePhase,
    ConfigError,
    ParameterGroup,
    Phase,
    PrefixSet,
    Routing,
    Site,
    TaskContext,
    TrainingPhase,
    coda_cosine,
    collect_features,
    inject_prefixes,
    stepped,
)
from lw2g_single_set.options import OnePromptConfig

__all__ = [
    "OnePrompt",
    "TwoLengths",
    "around_origin",
    "energy",
    "near_boundary",
    "neighbour_distance",
    "outlier_loss",
]

_PER_CLASS = 40
"""Outliers per class of the task."""

_NEIGHBOURS = 50
"""How lonely a point is: its distance to the neighbour of this number."""
_BOUNDARY = 50
"""Loneliest features that get noisy copies."""
_DRAWS = 600
"""Copies of each."""
_NOISE = 0.1
"""Deviation of the noise."""
_ROWS_AT_ONCE = 4096
"""Rows whose distances are computed at once, so that a task of any size fits in memory."""


class TwoLengths(nn.Module):
    """A short prefix for shallow blocks and a long one for deeper ones, drawn from U(0, 1).

    The mean of 0.5 is the release's; a centred start would be another method.

    Attributes:
        shallow: Prefixes of the shallow blocks.
        deep: Prefixes of the deep blocks.
    """

    def __init__(self, shallow: PrefixSet, deep: PrefixSet) -> None:
        super().__init__()
        self.shallow = shallow
        self.deep = deep
        for parameter in self.parameters():
            nn.init.uniform_(parameter)


@attrs.frozen(kw_only=True, eq=False)
class ContinuedPhase(TrainingPhase):
    """A training phase whose optimizer state the next phase takes over, after a resume as well.

    Attributes:
        built: The optimizer, once the phase has begun.
    """

    built: list[torch.optim.Optimizer] = attrs.field(factory=list)

    def build_optimizer(self) -> torch.optim.Optimizer:
        """Return a fresh optimizer over the groups and remember it."""
        self.built[:] = [super().build_optimizer()]
        return self.built[0]


class OnePrompt(Baseline):
    """Its one set and the head are trained in every task; old rows of the head are left by masking."""

    several_classes = True

    def __init__(self, config: OnePromptConfig, context: BuildContext) -> None:
        super().__init__(context)
        backbone = context.backbone
        backbone.require("prefixes")
        self.config = config
        self.shallow_blocks = backbone.check_blocks(config.shallow_blocks, "baseline.shallow_blocks")
        self.deep_blocks = backbone.check_blocks(config.deep_blocks, "baseline.deep_blocks")
        both = sorted(set(self.shallow_blocks) & set(self.deep_blocks))
        if both:
            raise ConfigError(
                f"baseline.deep_blocks: block {both[0]!r} is in baseline.shallow_blocks too",
                "give each block one prefix",
            )
        # torch's own start, as in the release
        self.head = nn.Linear(context.backbone.dim, context.num_classes).to(context.device)

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return the prefixes."""
        config = self.config
        dim = self.context.backbone.dim
        shallow = PrefixSet(len(self.shallow_blocks), config.shallow_length, dim)
        deep = PrefixSet(len(self.deep_blocks), config.deep_length, dim)
        return TwoLengths(shallow, deep).to(self.context.device)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return prompted features ``[B, dim]``: one forward, without query."""
        prefixes = cast(TwoLengths, routing.sets[0])
        injections = (
            inject_prefixes(self.shallow_blocks, prefixes.shallow.key, prefixes.shallow.value),
            inject_prefixes(self.deep_blocks, prefixes.deep.key, prefixes.deep.value),
        )
        return self.context.backbone.features(batch.images, injections)

    def logits(self, features: Tensor) -> Tensor:
        """Return logits of the linear head, ``[B, num_classes]``."""
        return cast(Tensor, self.head(features))

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the key half of every block's prefix."""
        prefixes = cast(TwoLengths, parameters)
        tap = self.context.backbone.key_tap
        return (
            *prefixes.shallow.sites(self.shallow_blocks, tap=tap),
            *prefixes.deep.sites(self.deep_blocks, tap=tap),
        )

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the training of prefixes and head; with outliers, then of the head alone."""
        config = self.config
        trained = (*context.parameters.parameters(), *self.head.parameters())
        prompts = ContinuedPhase(
            name="prompts",
            groups=(ParameterGroup(parameters=trained, lr=config.lr),),
            step=lambda batch: self.step(batch, context),
            epochs=config.epochs - config.head_epochs,
            batch_size=config.batch_size,
            schedule=self.schedule,
            host=True,
        )
        if config.head_epochs == 0:
            return (prompts,)
        return (
            prompts,
            ComputePhase(
                name="outliers",
                run=lambda progress: self.doubt(context, prompts.built, progress),
                counts="epochs",
            ),
        )

    def schedule(self, base: float, epoch: int, epochs: int) -> float:
        """Return the rate of an epoch counted over both phases; ``epochs`` are those of one of them."""
        return stepped(coda_cosine, self.config.stepping)(base, epoch, self.config.epochs)

    def doubt(
        self,
        context: TaskContext,
        before: Sequence[torch.optim.Optimizer],
        progress: Callable[[int, int], None],
    ) -> None:
        """Train the head on features of the task's images and on outliers, drawn again in every epoch.

        As released, each epoch begins with the features of newly augmented images under the finished
        prefixes, and Adam goes on from the phase before; all steps of an epoch then read features alone.

        Args:
            context: The task.
            before: The optimizer of the phase before, if there was one.
            progress: Called with the number of epochs done and their total.
        """
        config = self.config
        classes = context.task.classes
        generator = context.generator("outliers")
        synthesise = around_origin  # "shipped"; with "none" there is no such phase
        if config.outliers == "paper":
            synthesise = near_boundary
        # a copy, and an optimizer over it alone: the momentum of Adam would go on moving the prefixes
        head = copy.deepcopy(self.head).requires_grad_(True)
        optimizer = torch.optim.Adam(head.parameters(), lr=config.lr)
        for old in before:
            _carry_on(old, self.head, optimizer, head)
        for done in range(config.head_epochs):
            epoch = config.epochs - config.head_epochs + done
            optimizer.param_groups[0]["lr"] = self.schedule(config.lr, epoch, config.head_epochs)
            # without augmentation the features of the first epoch are those of all epochs
            if done == 0 or context.augmented is not None:
                features, labels = self._stored(context, epoch)
            outliers = synthesise(features, _PER_CLASS * len(classes), generator)
            for rows, others in self._pairs(len(features), len(outliers), generator):
                # the task's own logits: an energy over masked ones would hold infinities
                known = head(features[rows])[:, list(classes)]
                unknown = head(outliers[others])[:, list(classes)]
                # among the task's own logits a class is counted from the task's first one
                loss = functional.cross_entropy(known, labels[rows] - classes[0])
                loss = loss + config.outlier_weight * outlier_loss(
                    known, unknown, known_energy=config.known_energy, outlier_energy=config.outlier_energy
                )
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
            progress(done + 1, config.head_epochs)
        self.head.load_state_dict(head.state_dict())

    def _stored(self, context: TaskContext, epoch: int) -> tuple[Tensor, Tensor]:
        """Return features ``[n, dim]`` and labels ``[n]`` of the task's images as an epoch augments them."""
        routing = context.pool.force(context.set_id)
        return collect_features(
            context, lambda batch: self.features(batch, routing), augmented=f"outliers-{epoch}"
        )

    def _pairs(
        self, features: int, outliers: int, generator: torch.Generator
    ) -> Sequence[tuple[Tensor, Tensor]]:
        """Return shuffled positions batch by batch: of features, and an equal part of the outliers each."""
        steps = math.ceil(features / self.config.batch_size)
        width = max(1, outliers // steps)
        rows = torch.split(torch.randperm(features, generator=generator), self.config.batch_size)
        others = torch.randperm(outliers, generator=generator)
        pairs = []
        for step, part in enumerate(rows):
            # more steps than outliers: start over
            places = torch.arange(step * width, (step + 1) * width) % outliers
            pairs.append((part, others[places]))
        return pairs


def _carry_on(
    old: torch.optim.Optimizer, trained: nn.Module, new: torch.optim.Optimizer, copied: nn.Module
) -> None:
    """Copy the state of an optimizer to one over a copy of its module."""
    for source, target in zip(trained.parameters(), copied.parameters(), strict=True):
        if source in old.state:
            new.state[target] = copy.deepcopy(old.state[source])


# -- virtual outliers: points in feature space that no class should claim, and the loss that says so ---------


def neighbour_distance(points: Tensor, index: Tensor, neighbours: int) -> Tensor:
    """Return the squared distance of each point to its ``neighbours``-th nearest row, ``[n]``.

    A point that is a row itself counts as its own first neighbour.

    Args:
        points: ``[n, d]``.
        index: ``[m, d]``.
        neighbours: From 1 to m.

    >>> neighbour_distance(torch.tensor([[0.0]]), torch.tensor([[0.0], [2.0], [3.0]]), 2)
    tensor([4.])
    """
    farthest = []
    for part in torch.split(points, _ROWS_AT_ONCE):
        # not kthvalue, which is not deterministic on CUDA
        nearest = torch.cdist(part, index).topk(neighbours, dim=1, largest=False).values
        farthest.append(nearest[:, -1])
    return torch.cat(farthest).square()


def near_boundary(features: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw outliers around the features that lie farthest from the others (the paper's rule).

    The 50 features with the most distant 50th neighbour get 600 noisy copies each; the copies farthest from
    all features are kept. Distances are between directions, outliers keep their length.

    Args:
        features: All features of the task, ``[n, d]``.
        count: Number of outliers; at most 600 per boundary feature.
        generator: On the CPU.

    Returns:
        ``[count, d]``.
    """
    index = functional.normalize(features, dim=1)
    neighbours = min(_NEIGHBOURS, len(index))
    isolation = neighbour_distance(index, index, neighbours)
    boundary = features[isolation.topk(min(_BOUNDARY, len(index))).indices]
    noise = torch.randn(len(boundary), _DRAWS, features.shape[1], generator=generator).to(features)
    candidates = (boundary[:, None] + _NOISE * noise).flatten(0, 1)
    # of length 1 like the rows that they are compared with; the head gets them as they are
    isolation = neighbour_distance(functional.normalize(candidates, dim=1), index, neighbours)
    return candidates[isolation.topk(min(count, len(candidates))).indices]


def around_origin(features: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw outliers as the released code does: noise around the origin, the farthest of 600 many times over.

    The release selects boundary features too, but uses them only to repeat its draws; so at most one in 50
    outliers is distinct. Arguments and result as for :func:`near_boundary`.
    """
    index = functional.normalize(features, dim=1)
    draws = _NOISE * torch.randn(_DRAWS, features.shape[1], generator=generator).to(features)
    # not normalised: the release compares them as they are with rows of length 1
    isolation = neighbour_distance(draws, index, min(_NEIGHBOURS, len(index)))
    copies = min(_BOUNDARY, len(index))
    return draws[isolation.argsort(descending=True)].repeat_interleave(copies, dim=0)[:count]


def energy(logits: Tensor) -> Tensor:
    """Return ``-logsumexp`` of each row, in float32 at least: low where some class is sure.

    >>> energy(torch.zeros(1, 10))
    tensor([-2.3026])
    """
    return -torch.logsumexp(logits.float(), dim=1)


def outlier_loss(known: Tensor, outliers: Tensor, *, known_energy: float, outlier_energy: float) -> Tensor:
    """Return how far energies are on the wrong side of their bounds, by Huber's loss (delta 1).

    Args:
        known: Logits of real features over the task's classes, ``[n, c]``.
        outliers: Logits of outliers over the same classes, ``[m, c]``.
        known_energy: Real features should have at most this energy.
        outlier_energy: Outliers should have at least this energy.
    """
    above = functional.relu(energy(known) - known_energy)
    below = functional.relu(outlier_energy - energy(outliers))
    zero = torch.zeros_like
    return functional.huber_loss(above, zero(above)) + functional.huber_loss(below, zero(below))
