"""Adaptation on the first task alone: what Aper and RanPAC share before they classify.

A set is learned with a classifier of its own while the first task is there; then nothing is trained any more,
so the result depends on which classes come first.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.blocks.schedules import cosine
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import BuildContext, TaskContext, TaskInfo
from lw2g.interfaces.phase import ParameterGroup, StepOutput, TrainingPhase
from lw2g.vit.adapter import AdapterInjection
from lw2g.vit.injection import Injection
from lw2g.vit.tokens import TokenInjection
from lw2g_single_set.options import AdapterOptions, FirstTaskOptions, TokenOptions

__all__ = ["Adapter", "AdapterSets", "CosineClassifier", "DeepTokens", "FirstTask", "TokenSets"]

_SCALE, _DROPOUT = 0.1, 0.1
"""Factor on an adapter's branch, and the dropout between its layers in training."""


class CosineClassifier(nn.Module):
    """What the first task is trained with, and then thrown away.

    Attributes:
        weight: ``[classes, dim]``, uniform within ``1 / sqrt(dim)``.
        sigma: Learned factor on the cosines, 1 at the start.
    """

    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, dim).uniform_(-(dim**-0.5), dim**-0.5))
        self.sigma = nn.Parameter(torch.ones(1))

    def forward(self, features: Tensor) -> Tensor:
        """Return ``sigma * cos(features, weight)``, ``[B, classes]``."""
        cosines = functional.normalize(features, dim=-1) @ functional.normalize(self.weight, dim=-1).T
        return self.sigma * cosines


class FirstTask(Baseline):
    """Its one set is learned in the first task; how it adapts the backbone, subclasses say.

    Attributes:
        classifier: Only while the first task is learned and evaluated, else None.
    """

    # Of the set's tensors: evaluation sees that they no longer change.
    feature_scope = "set"
    classifier: CosineClassifier | None
    options: FirstTaskOptions

    def __init__(self, config: FirstTaskOptions, context: BuildContext) -> None:
        super().__init__(context)
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

    options: TokenOptions

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return zero tokens for every block."""
        backbone = self.context.backbone
        return DeepTokens(backbone.depth, self.options.length, backbone.dim).to(self.context.device)

    def injection(self, parameters: nn.Module, *, training: bool) -> Injection:
        """Return the tokens, in and out at every block."""
        return TokenInjection(dict(enumerate(cast(DeepTokens, parameters).token)), keep=False)


class Adapter(nn.Module):
    """A bottleneck: ``0.1 * (up(relu(down(h))))``; no branch at all at the start, where ``up`` is zero.

    Args:
        dim: Width of the backbone.
        bottleneck: Inner width.
    """

    def __init__(self, dim: int, bottleneck: int) -> None:
        super().__init__()
        self.down = nn.Linear(dim, bottleneck)
        self.up = nn.Linear(bottleneck, dim)
        nn.init.kaiming_uniform_(self.down.weight, a=5**0.5)
        for zero in (self.down.bias, self.up.weight, self.up.bias):
            nn.init.zeros_(zero)

    def branch(self, stream: Tensor, *, training: bool) -> Tensor:
        """Return what is added to the stream ``[B, N, dim]``; dropout is for training alone."""
        inner = functional.dropout(functional.relu(self.down(stream)), _DROPOUT, training)
        return _SCALE * cast(Tensor, self.up(inner))


class AdapterSets(FirstTask):
    """Adapts by bottlenecks parallel to the MLP of every block (AdaptFormer)."""

    options: AdapterOptions

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return an adapter for every block."""
        backbone = self.context.backbone
        blocks = [Adapter(backbone.dim, self.options.bottleneck) for _ in range(backbone.depth)]
        return nn.ModuleList(blocks).to(self.context.device)

    def injection(self, parameters: nn.Module, *, training: bool) -> Injection:
        """Return the branches of all blocks."""
        adapters = enumerate(cast(Sequence[Adapter], parameters))
        return AdapterInjection({i: partial(one.branch, training=training) for i, one in adapters})
