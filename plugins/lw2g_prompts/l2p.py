"""L2P: one pool of small prompts for all tasks, of which every image selects a few by their keys.

Wang et al., "Learning to Prompt for Continual Learning", CVPR 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    POOL,
    Activation,
    Baseline,
    Batch,
    BuildContext,
    ConfigError,
    ParameterGroup,
    Phase,
    Routing,
    Site,
    StepOutput,
    Tap,
    TaskContext,
    TokenInjection,
    TrainingPhase,
    chosen_schedule,
    linear_head,
    mask_logits,
)
from lw2g_prompts.options import L2PConfig

__all__ = ["L2P", "PromptPool"]


class PromptPool(nn.Module):
    """Prompts and their keys, drawn from U(-1, 1).

    Args:
        size: Number of prompts.
        length: Tokens per prompt.
        dim: Width of the backbone.

    Attributes:
        prompt: ``[size, length, dim]``.
        key: ``[size, dim]``.
    """

    def __init__(self, size: int, length: int, dim: int) -> None:
        super().__init__()
        self.prompt = nn.Parameter(torch.empty(size, length, dim).uniform_(-1, 1))
        self.key = nn.Parameter(torch.empty(size, dim).uniform_(-1, 1))

    def match(self, query: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return cosines ``[B, size]`` of queries ``[B, dim]`` and keys, and the nearest ``[B, count]``."""
        # not a matrix product: it would round differently in batches of another size, or in bfloat16
        cosines = functional.cosine_similarity(query[:, None], self.key[None], dim=-1)
        return cosines, cosines.topk(count, dim=1).indices


class L2P(Baseline):
    """The pool of prompts is the only set: entries are not owned by tasks, so nothing can grow.

    Images select prompts by their un-prompted features, in training as in testing. Prompts enter in front of
    the class token, without position embedding.
    """

    scope = POOL
    several_classes = True

    def __init__(self, config: L2PConfig, context: BuildContext) -> None:
        super().__init__(context)
        context.backbone.require("prompt tokens")
        context.backbone.require_one_layer("a key of a prompt")
        if config.top_k > config.pool_size:
            raise ConfigError(
                f"baseline.top_k: {config.top_k!r} prompts cannot be selected out of {config.pool_size!r}",
                "lower it or raise baseline.pool_size",
            )
        self.config = config
        self.head = linear_head(context.backbone.dim, context.num_classes).to(context.device)

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return the pool of prompts."""
        config = self.config
        return PromptPool(config.pool_size, config.length, self.context.backbone.dim).to(self.context.device)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return what the head is fed under the selected prompts, ``[B, dim]``."""
        prompts = cast(PromptPool, routing.sets[0])
        _, chosen = self.select(batch.query, prompts)
        rows = prompts.prompt[chosen].flatten(1, 2)  # [B, top_k * length, dim]
        injection = TokenInjection({0: rows}, position="before-cls", keep=True)
        if self.config.pool == "class-token":
            return self.context.backbone.features(batch.images, (injection,))
        # "prompt-mean": of what comes out at the prompts, as the paper's head is fed
        tokens = self.context.backbone.tokens(batch.images, (injection,))
        return tokens[:, : rows.shape[1]].mean(dim=1)

    def select(self, query: Tensor, prompts: PromptPool) -> tuple[Tensor, Tensor]:
        """Return cosines ``[B, pool_size]`` and selected prompts ``[B, top_k]`` of queries ``[B, dim]``."""
        cosines, chosen = prompts.match(query, self.config.top_k)
        if self.config.vote == "batch":
            # as some releases do; in a test whose batches are of one task it tells that task
            votes = torch.bincount(chosen.flatten(), minlength=self.config.pool_size)
            chosen = votes.topk(self.config.top_k).indices.expand_as(chosen)
        return cosines, chosen

    def logits(self, features: Tensor) -> Tensor:
        """Return logits of the linear head, ``[B, num_classes]``."""
        return cast(Tensor, self.head(features))

    def step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return cross-entropy over the task's classes and the pull of the selected keys."""
        features = self.features(batch, context.pool.force(context.set_id))
        logits = mask_logits(self.logits(features), context.task.classes)
        prompts = cast(PromptPool, context.parameters)
        cosines, chosen = self.select(batch.query, prompts)
        # the choice has no gradient, the cosines have: this term alone moves the keys
        pull = cosines.gather(1, chosen).sum(dim=1).mean()
        loss = functional.cross_entropy(logits, batch.labels) - self.config.pull * pull
        return StepOutput(loss=loss, features=features, keys=prompts.key[chosen])

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase: prompts, keys and head together."""
        config = self.config
        trained = (*context.parameters.parameters(), *self.head.parameters())
        phase = TrainingPhase(
            name="prompts",
            # the authors' rates are for 256 images a step
            groups=(ParameterGroup(parameters=trained, lr=config.lr * config.batch_size / 256),),
            step=lambda batch: self.step(batch, context),
            epochs=config.epochs,
            batch_size=config.batch_size,
            schedule=chosen_schedule(config, context.task.index),
            clip_norm=config.clip_norm,
            host=True,
        )
        return (phase,)

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the rows of all prompts against the image tokens that they join; keys are no site."""
        prompt = cast(PromptPool, parameters).prompt
        return (
            Site(
                name="blocks.0.tokens",
                parameter=prompt,
                activation=Activation(tap=Tap(block=0, kind="block_in"), exact=False),
            ),
        )
