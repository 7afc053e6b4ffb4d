"""Task-identity inference: a class predicted from un-prompted features names the task (HiDe-Prompt's TII).

Wang et al., "Hierarchical Decomposition of Prompt-Based Continual Learning: Rethinking Obscured
Sub-optimality", NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    Batch,
    BuildContext,
    ClassRetrieval,
    ClassStatistics,
    ComputePhase,
    Gradients,
    ParameterGroup,
    Phase,
    StepOutput,
    TaskContext,
    TrainingPhase,
    linear_head,
    logit_gradient,
    mask_logits,
    replay_phase,
)
from lw2g_retrieval.options import ClassifierConfig, ClassPredictorOptions

__all__ = ["ClassPredictor", "Classifier", "ResidualMLP"]

_SAMPLES = 20
"""Samples of calibration from each cluster, up to a hundred clusters' worth in all."""


class ResidualMLP(nn.Module):
    """``LN(x + W2 GELU(W1 x))``: a small adapter between frozen features and a head.

    Args:
        dim: Width of the features.
        hidden: Width of the hidden layer.
    """

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(dim, hidden)
        self.contract = nn.Linear(hidden, dim)
        self.norm = nn.LayerNorm(dim)
        for layer in (self.expand, self.contract):
            # as the release's backbone initialises every layer within it
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map features ``[B, dim]`` to ``[B, dim]``."""
        return cast(Tensor, self.norm(x + self.contract(functional.gelu(self.expand(x)))))

    @torch.no_grad()
    def gradients(self, head: nn.Linear, x: Tensor, labels: Tensor, seen: int) -> list[Tensor]:
        """Return the gradients of the cross-entropy of a head on this network, by parameter of both.

        They are autograd's to the bit (:func:`lw2g.blocks.replay.logit_gradient`).

        Args:
            head: Maps what this network returns to logits; it has a bias.
            x: Features ``[B, dim]``.
            labels: ``[B]``.
            seen: The loss is over the first ``seen`` classes.
        """
        norm = self.norm
        shape = list(norm.normalized_shape)
        before = self.expand(x)
        hidden = functional.gelu(before)
        stream = x + self.contract(hidden)
        features, mean, scale = torch.native_layer_norm(stream, shape, norm.weight, norm.bias, norm.eps)
        errors = logit_gradient(head(features), labels, seen)
        # from here on gradients go backwards, layer by layer
        of_features = errors @ head.weight
        of_stream, of_gain, of_shift = torch.ops.aten.native_layer_norm_backward(
            of_features, stream, shape, mean, scale, norm.weight, norm.bias, [True, True, True]
        )
        of_before = torch.ops.aten.gelu_backward(of_stream @ self.contract.weight, before)
        # weight and bias of each layer, in the order in which parameters() has them
        of_expand = [of_before.T @ x, of_before.sum(dim=0)]
        of_contract = [of_stream.T @ hidden, of_stream.sum(dim=0)]
        of_norm = [of_gain, of_shift]
        of_head = [errors.T @ features, errors.sum(dim=0)]
        return of_expand + of_contract + of_norm + of_head


class ClassPredictor(ClassRetrieval):
    """A network on queries; the task of the class it predicts is retrieved.

    It is trained on the task's images, its class statistics are taken, and from the second task on it is
    retrained on samples of all seen classes. It never depends on any set: the same with and without growth.

    Args:
        network: Maps queries ``[B, dim]`` to logits over all classes.
        options: How it is trained.
        context: What is known before the first task.
    """

    learning_only = ("statistics",)

    def __init__(self, network: nn.Module, options: ClassPredictorOptions, context: BuildContext) -> None:
        super().__init__(context)
        self.options = options
        self.network = network
        # un-prompted features may be of several layers; a query of its own is trained on one
        backbone = context.backbone
        dim = backbone.dim if self.learned_query else backbone.width
        self.statistics = ClassStatistics.of(options, context, dim)
        self.to(context.device)

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return training, statistics and replay."""
        options = self.options
        train = TrainingPhase(
            name="retrieval",
            # the authors' rates are for 256 images a step
            groups=self.groups(context, options.lr * options.batch_size / 256),
            step=lambda batch: self._step(batch, context),
            epochs=options.epochs,
            batch_size=options.batch_size,
            clip_norm=options.clip_norm,
        )
        statistics = self.statistics.phase("retrieval-statistics", context, self.query)
        return (train, statistics, self.replay(context))

    def replay(self, context: TaskContext) -> ComputePhase:
        """Return the phase that retrains the network on samples of all seen classes."""
        options = self.options
        return replay_phase(
            "retrieval-replay",
            context,
            self.network,
            self.statistics,
            lr=options.replay_lr * options.replay_batch / 256,  # their rates are for 256 samples a step, too
            epochs=options.replay_epochs,
            per_centroid=options.replay_batch,
            gradients=self.gradients,
        )

    @property
    def gradients(self) -> Gradients | None:
        """Gradients of the network, written out for replay; None: autograd's."""
        return None

    def groups(self, context: TaskContext, lr: float) -> tuple[ParameterGroup, ...]:
        """Return what a task trains, at the given learning rate."""
        return (ParameterGroup(parameters=tuple(self.network.parameters()), lr=lr),)

    def class_scores(self, query: Tensor, classes: int) -> Tensor:
        """Return the logits of the first classes, ``[B, classes]``."""
        return cast(Tensor, self.network(query))[:, :classes]

    @torch.no_grad()
    def calibrate(self, context: TaskContext) -> None:
        """Fit the temperature to samples of all seen classes, since the network was trained on the images."""
        self.temperature.reset()
        generator = context.generator("retrieval-calibration")
        # of many clusters as many samples as of a hundred, drawn from all
        features, labels = self.statistics.sample(
            range(context.task.seen), _SAMPLES, generator, limit=_SAMPLES * 100
        )
        of_class = context.task_of_class()
        seen = [info.index for info in context.history]
        self.temperature.observe(self.scores(features, seen, of_class), of_class[labels])

    def _step(self, batch: Batch, context: TaskContext) -> StepOutput:
        # over the task's classes alone: the others are met by replay, which has samples of all of them
        logits = mask_logits(self.network(self.query(batch)), context.task.classes)
        return StepOutput(loss=functional.cross_entropy(logits, batch.labels))


class Classifier(ClassPredictor):
    """A residual MLP and a linear head on un-prompted features, which no set and no prompt can move."""

    def __init__(self, config: ClassifierConfig, context: BuildContext) -> None:
        dim = context.backbone.width
        network = nn.Sequential(ResidualMLP(dim, 2 * dim), linear_head(dim, context.num_classes))
        super().__init__(network, config, context)
        self.config = config

    @property
    def gradients(self) -> Gradients:
        """Gradients of the residual network and its head, written out."""
        adapter, head = cast(nn.Sequential, self.network)
        return partial(cast(ResidualMLP, adapter).gradients, cast(nn.Linear, head))
