"""Adaptation on the first task alone: what Aper and RanPAC share before they classify.

The set is learned in the first task with a classifier of its own. Afterwards nothing is trained, so the
result depends on which classes come first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.adapters import DROPOUT, AdapterSet, bottlenecks
from lw2g.blocks.heads import CosineClassifier
from lw2g.blocks.schedules import cosine
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.phase import ParameterGroup, StepOutput, TrainingPhase
from lw2g.interfaces.pool import Routing
from lw2g.vit.adapter import AdapterInjection
from lw2g.vit.anatomy import Rung
from lw2g.vit.injection import Injection
from lw2g.vit.tokens import TokenInjection
from lw2g_single_set.options import AdapterOptions, FirstTaskOptions, TokenOptions

__all__ = ["AdapterSets", "DeepTokens", "FirstTask", "TokenSets"]


class FirstTask(Baseline):
    """Its one set is learned in the first task; subclasses say how it adapts the backbone.

    Attributes:
        rung: The kind of injection, of which the backbone is asked.
        classifier: Only while the first task is learned and evaluated, else None.
    """

    rung: ClassVar[Rung]
    classifier: CosineClassifier | None
    options: FirstTaskOptions

    def __init__(self, config: FirstTaskOptions, context: BuildContext) -> None:
        super().__init__(context)
        context.backbone.require(self.rung)
        self.options = config
        self.register_module("classifier", None)

    @abstractmethod
    def injection(self, parameters: nn.Module, *, training: bool) -> Injection:
        """Return what adapts the backbone, given the set."""

    def adapted(self, images: Tensor, parameters: nn.Module, *, training: bool = False) -> Tensor:
        """Return adapted features ``[B, dim]``."""
        return self.context.backbone.features(images, (self.injection(parameters, training=training),))

    def begin_task(self, task: TaskInfo) -> None:
        """Make the classifier of the first task, and drop it afterwards."""
        first = task.index == 0
        self.classifier = CosineClassifier(len(task.classes), self.context.backbone.dim) if first else None

    def adaptation(self, context: TaskContext) -> Sequence[TrainingPhase]:
        """Return the phase that learns the set in the first task; none afterwards."""
        config, classifier = self.options, self.classifier
        if classifier is None:
            return ()

        def step(batch: Batch) -> StepOutput:
            features = self.adapted(batch.images, context.parameters, training=True)
            loss = functional.cross_entropy(classifier(features), batch.labels)
            return StepOutput(loss=loss, features=features)

        trained = (*context.parameters.parameters(), *classifier.parameters())
        phase = TrainingPhase(
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
        return (phase,)


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


class TokenSets(FirstTask):
    """Adapts by prompt tokens that join the stream for one block each."""

    rung = "prompt tokens"
    options: TokenOptions

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return zero tokens for every block."""
        backbone = self.context.backbone
        return DeepTokens(backbone.depth, self.options.length, backbone.dim).to(self.context.device)

    def injection(self, parameters: nn.Module, *, training: bool) -> Injection:
        """Return the tokens, in and out at every block."""
        return TokenInjection(dict(enumerate(cast(DeepTokens, parameters).token)), keep=False)


class AdapterSets(FirstTask):
    """Adapts by bottlenecks parallel to the MLP of every block (AdaptFormer)."""

    rung = "adapters"
    options: AdapterOptions

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return an adapter for every block."""
        backbone = self.context.backbone
        return AdapterSet(backbone.depth, backbone.dim, self.options.bottleneck).to(self.context.device)

    def injection(self, parameters: nn.Module, *, training: bool) -> Injection:
        """Return the branches of all blocks; dropout is for training alone."""
        routing = Routing(sets=(parameters,), chosen=0)
        dropout = DROPOUT if training else 0.0
        branches = bottlenecks(routing, self.context.backbone.depth, dropout=dropout)
        return AdapterInjection(dict(enumerate(branches)))
