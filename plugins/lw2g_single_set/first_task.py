"""Adaptation on the first task alone: what Aper and RanPAC share before they classify.

The one set is learned in the first task with a classifier of its own. Afterwards nothing is trained, so the
result depends on which classes come first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    AdapterInjection,
    AdapterSet,
    Batch,
    BuildContext,
    CosineClassifier,
    Injection,
    ParameterGroup,
    Routing,
    Rung,
    StepOutput,
    TaskContext,
    TaskInfo,
    TokenInjection,
    TrainingPhase,
    bottlenecks,
    cosine,
)
from lw2g_single_set.options import AdapterOptions, FirstTaskOptions, TokenOptions

__all__ = ["Adaptation", "DeepTokens", "adaptation", "first_classifier"]


class Adaptation(ABC):
    """How the set of the first task adapts the backbone, and how it is learned.

    Attributes:
        rung: The kind of injection, which the backbone has to offer.
    """

    rung: ClassVar[Rung]

    def __init__(self, context: BuildContext) -> None:
        context.backbone.require(self.rung)
        self.backbone = context.backbone
        self.device = context.device

    @abstractmethod
    def new_set(self) -> nn.Module:
        """Return the set, before it is learned."""

    @abstractmethod
    def injection(self, parameters: nn.Module, *, training: bool) -> Injection:
        """Return what adapts the backbone, given the set."""

    def features(self, images: Tensor, parameters: nn.Module, *, training: bool = False) -> Tensor:
        """Return adapted features ``[B, dim]``."""
        return self.backbone.features(images, (self.injection(parameters, training=training),))

    def phase(
        self, config: FirstTaskOptions, context: TaskContext, classifier: CosineClassifier
    ) -> TrainingPhase:
        """Return the phase that learns the set together with the classifier of the first task."""

        def step(batch: Batch) -> StepOutput:
            features = self.features(batch.images, context.parameters, training=True)
            loss = functional.cross_entropy(classifier(features), batch.labels)
            return StepOutput(loss=loss, features=features)

        # the classifier's scale is decayed like everything else, as in the authors' code
        trained = (*context.parameters.parameters(), *classifier.parameters())
        return TrainingPhase(
            name="adaptation",
            groups=(ParameterGroup(parameters=trained, lr=config.lr, weight_decay=config.weight_decay),),
            step=step,
            epochs=config.epochs,
            batch_size=config.batch_size,
            optimizer="sgd",
            momentum=0.9,
            schedule=cosine(),
            host=True,
        )


class DeepTokens(nn.Module):
    """Prompt tokens of their own for every block, zero at the start.

    Zero tokens are no no-op: a norm maps them to its bias. Its slope there is 1000, so first gradients are
    large; they are neither clipped nor avoided by another start, which would be another method.

    Attributes:
        token: ``[depth, length, dim]``.
    """

    def __init__(self, depth: int, length: int, dim: int) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(depth, length, dim))


class _ByTokens(Adaptation):
    """Adapts by prompt tokens that join the stream for one block each (VPT-deep)."""

    rung = "prompt tokens"

    def __init__(self, config: TokenOptions, context: BuildContext) -> None:
        super().__init__(context)
        self.length = config.length

    def new_set(self) -> DeepTokens:
        """Return zero tokens for every block."""
        return DeepTokens(self.backbone.depth, self.length, self.backbone.dim).to(self.device)

    def injection(self, parameters: nn.Module, *, training: bool) -> TokenInjection:
        """Return the tokens, in and out at every block."""
        return TokenInjection(dict(enumerate(cast(DeepTokens, parameters).token)), keep=False)


class _ByAdapters(Adaptation):
    """Adapts by bottlenecks parallel to the MLP of every block (AdaptFormer)."""

    rung = "adapters"

    def __init__(self, config: AdapterOptions, context: BuildContext) -> None:
        super().__init__(context)
        self.bottleneck = config.bottleneck

    def new_set(self) -> AdapterSet:
        """Return an adapter for every block."""
        return AdapterSet(self.backbone.depth, self.backbone.dim, self.bottleneck).to(self.device)

    def injection(self, parameters: nn.Module, *, training: bool) -> AdapterInjection:
        """Return the branches of all blocks; dropout is for training alone."""
        routing = Routing(sets=(parameters,), chosen=0)
        dropout = 0.0
        if training:
            dropout = AdapterSet.DROPOUT
        branches = bottlenecks(routing, self.backbone.depth, dropout=dropout)
        return AdapterInjection(dict(enumerate(branches)))


def adaptation(
    by: Literal["adapter", "vpt-deep"], config: FirstTaskOptions, context: BuildContext
) -> Adaptation:
    """Return the adaptation of that name.

    Args:
        by: ``adapter`` needs :class:`AdapterOptions`, ``vpt-deep`` :class:`TokenOptions`.
        config: The options of the baseline.
        context: What is known before the first task.

    Raises:
        ConfigError: The backbone does not offer the injection.
    """
    if by == "adapter":
        return _ByAdapters(cast(AdapterOptions, config), context)
    return _ByTokens(cast(TokenOptions, config), context)


def first_classifier(task: TaskInfo, dim: int) -> CosineClassifier | None:
    """Return the classifier that the first task is learned with; None for later tasks, which drop it."""
    if task.index:
        return None
    return CosineClassifier(len(task.classes), dim)
