"""VPT-NSP2: prompt tokens that all tasks train, moved only where the attention of old tasks does not look.

Lu et al., "Visual Prompt Tuning in Null Space for Continual Learning", NeurIPS 2024. What the optimizer would
add to a block's tokens becomes ``B2 dP B1``: B1 keeps ``q W_k dP^T`` of old tasks as it was, B2 what their
attention takes from the values of the prompts. A loss holds each token's mean and spread, which the norm in
front of the attention divides by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    Backbone,
    Batch,
    BuildContext,
    ComputePhase,
    ConfigError,
    HeadedBaseline,
    ParameterGroup,
    Phase,
    Routing,
    StepOutput,
    Tap,
    TaskContext,
    TaskInfo,
    TokenInjection,
    TrainingPhase,
    attention_of,
    block_at,
    is_plain_attention,
    mask_logits,
    milestones,
)
from lw2g_single_set.first_task import DeepTokens
from lw2g_single_set.options import VptNspConfig

__all__ = ["VptNsp", "attended", "bend", "null_projection"]

_MANY = 128
"""From this many directions on, a spectrum is smoothed before its knee is sought."""
_SMOOTHING = 10
"""Deviation of that smoothing, in directions."""
_EDGES = 0.03
"""Share of the directions, at both ends together, in which no knee is sought."""

_DROPS = (0.4, 0.7)
"""Shares of the epochs after which the rate falls to a tenth: the release's milestones 5 and 8 of 10, which
timm's schedule reaches an epoch early."""


def null_projection(moment: Tensor, share: float, *, scaled: bool) -> Tensor:
    """Return ``share * B + (1 - share) * I`` with the projection B onto a moment's null space, float32.

    The null space begins where the spectrum bends most (its second differences).

    Args:
        moment: Symmetric second moment ``[n, n]`` float64, n >= 3.
        share: Between 0 (the identity) and 1.
        scaled: Whether B is divided by its Frobenius norm, as released.
    """
    values, vectors = torch.linalg.eigh(moment)
    # rounding may leave small negative ones; eigh has the smallest first, a spectrum the largest
    first = _knee(values.clamp(min=0).flip(0).cpu().numpy())
    null = vectors.flip(1)[:, first:]
    projection = null @ null.T
    if scaled:
        projection = projection / projection.norm()
    kept = torch.eye(len(moment), dtype=moment.dtype, device=moment.device)
    mixed: Tensor = share * projection + (1 - share) * kept
    return mixed.float()


def _knee(spectrum: np.ndarray[Any, Any]) -> int:
    """Return the place of the sharpest bend of a falling spectrum."""
    from scipy.ndimage import gaussian_filter1d

    edge = 0
    smooth = spectrum
    if len(spectrum) >= _MANY:
        smooth = gaussian_filter1d(spectrum, sigma=_SMOOTHING)
        # the filter bends a spectrum at its ends
        edge = int(len(spectrum) * _EDGES / 2)
    bends = np.diff(smooth, n=2)
    inner = bends[edge : len(bends) - edge]
    # a second difference stands for the value in its middle: it lacks one at each end, as at each edge
    return int(inner.argmax()) + (len(spectrum) - len(inner)) // 2


def bend(update: Tensor, queries: Tensor, attention: Tensor) -> Tensor:
    """Return ``B2 dP B1`` for the updates of all blocks.

    Args:
        update: dP, ``[depth, L, dim]``.
        queries: B1, ``[depth, dim, dim]``.
        attention: B2, ``[depth, L, L]``.
    """
    return attention @ update @ queries


def require_plain_attention(backbone: Backbone) -> None:
    """Refuse a backbone whose logits are not plain products of fused projections, as they are counted here.

    Raises:
        ConfigError: Queries are rotated, normalised or separate, or the logits have a bias.
    """
    for index, block in enumerate(backbone.model.blocks):
        attention = attention_of(block)
        if not is_plain_attention(attention) or backbone.key_tap(index).kind != "query":
            kind = type(attention).__name__
            raise ConfigError(
                f"this method counts logits of plain attention, and {kind!r} of block {index} changes "
                "queries, keys or logits",
                "use another method on prompt tokens, such as l2p or aper-vpt-deep",
            )


def attended(block: nn.Module, rows: Tensor, prompts: Tensor) -> tuple[Tensor, Tensor]:
    """Return second moments of what a block's prompts meet: of ``q W_k`` and of the attention paid to them.

    Args:
        block: The timm block.
        rows: What enters its attention, after its norm, ``[B, N, dim]`` float32.
        prompts: The tokens that join the stream there, ``[L, dim]``.

    Returns:
        Sums over images, heads and the N tokens, ``[dim, dim]`` and ``[L, L]`` float64.
    """
    attention: Any = attention_of(block)
    heads = attention.num_heads
    dim = rows.shape[-1]
    qkv = attention.qkv
    weight = qkv.weight.float()
    bias = None
    if qkv.bias is not None:
        bias = qkv.bias.float()
    # prompts join the stream in front of the norm, rows were read behind it
    normed = cast(Any, block).norm1(prompts.to(qkv.weight.dtype)).float()

    def split(projected: Tensor) -> Tensor:
        """Return rows ``[..., tokens, dim]`` head by head, ``[..., heads, tokens, dim / heads]``."""
        return projected.reshape(*projected.shape[:-1], heads, dim // heads).transpose(-3, -2)

    projected = functional.linear(rows, weight, bias).chunk(3, dim=-1)
    query = split(projected[0])
    key = split(projected[1])
    extra = split(functional.linear(normed, weight, bias).chunk(3, dim=-1)[1])
    keys = torch.cat([key, extra.expand(len(rows), -1, -1, -1)], dim=2)
    # a softmax over all keys, of which the share that goes to the prompts is wanted
    shares = (query @ keys.mT * attention.scale).softmax(dim=-1)
    paid = shares[..., key.shape[2] :].flatten(0, 2).double()
    # W_k' (sum q q') W_k, head by head: the rows q W_k themselves would be [B, heads, N, dim]
    of_heads = query.transpose(0, 1).flatten(1, 2)
    to_key = weight.chunk(3)[1].reshape(heads, dim // heads, dim).double()
    queries = (to_key.mT @ (of_heads.mT @ of_heads).double() @ to_key).sum(dim=0)
    return queries, paid.T @ paid


class VptNsp(HeadedBaseline):
    """One set of deep prompt tokens and a head, trained in every task.

    Attributes:
        queries: Second moments of ``q W_k`` over all tasks so far, ``[depth, dim, dim]`` float64.
        attention: Those of the attention paid to the prompts, ``[depth, L, L]`` float64.
        anchor: The tokens as the last task left them, ``[depth, L, dim]``.
    """

    learning_only = ("queries", "attention", "anchor")

    queries: Tensor
    attention: Tensor
    anchor: Tensor

    def __init__(self, config: VptNspConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        context.backbone.require("prompt tokens")
        require_plain_attention(context.backbone)
        depth = context.backbone.depth
        dim = context.backbone.dim
        length = config.length
        self.register_buffer("queries", torch.zeros(depth, dim, dim, dtype=torch.float64))
        self.register_buffer("attention", torch.zeros(depth, length, length, dtype=torch.float64))
        self.register_buffer("anchor", torch.zeros(depth, length, dim))
        self.to(context.device)

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return tokens from U(-1, 1) for every block."""
        backbone = self.context.backbone
        tokens = DeepTokens(backbone.depth, self.config.length, backbone.dim)
        nn.init.uniform_(tokens.token, -1, 1)
        return tokens.to(self.context.device)

    def injection(self, tokens: Tensor) -> TokenInjection:
        """Return the tokens ``[depth, L, dim]``, in and out at every block."""
        return TokenInjection(dict(enumerate(tokens)), keep=False)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return prompted features ``[B, dim]``: one forward, without query."""
        tokens = cast(DeepTokens, routing.sets[0]).token
        return self.context.backbone.features(batch.images, (self.injection(tokens),))

    def class_loss(self, features: Tensor, batch: Batch, task: TaskInfo) -> Tensor:
        """Return the head's cross-entropy over the task's classes, at the temperature of the training."""
        logits = mask_logits(self.head(features) / self.config.temperature, task.classes)
        return functional.cross_entropy(logits, batch.labels)

    def decay(self, own: Tensor) -> Tensor:
        """Return the L2 loss of the rows of the head that ``own`` marks by 1; Adam's would shrink all."""
        squares = self.head.weight.square().sum(dim=1) + self.head.bias.square()
        return squares @ own * (self.config.weight_decay / 2)

    def norm_loss(self, tokens: Tensor) -> Tensor:
        """Return how far means and spreads of the tokens are from the last task's: L1, summed over blocks."""
        means = (tokens.mean(dim=-1) - self.anchor.mean(dim=-1)).abs()
        spreads = (tokens.std(dim=-1, correction=0) - self.anchor.std(dim=-1, correction=0)).abs()
        return means.mean(dim=-1).sum() + spreads.mean(dim=-1).sum()

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the training of tokens and head, and the statistics of the task's attention."""
        config = self.config
        tokens = cast(DeepTokens, context.parameters).token
        last = tokens.detach().clone()
        own = torch.zeros_like(self.head.bias.detach())
        own[list(context.task.classes)] = 1

        @cache
        def projections() -> tuple[Tensor, Tensor]:
            """Return the projections on both sides of a step, computed once: no moment changes meanwhile."""
            return self._projections(self.queries), self._projections(self.attention)

        def step(batch: Batch) -> StepOutput:
            last.copy_(tokens.detach())
            features = self.features(batch, context.pool.force(context.set_id))
            loss = self.class_loss(features, batch, context.task) + self.decay(own)
            if context.task.index:
                loss = loss + self.norm_loss(tokens)
            return StepOutput(loss=loss, features=features)

        def project() -> None:
            # the step, not the gradient: what the momentum of Adam adds is bent, too
            tokens.copy_(last + bend(tokens - last, *projections()))

        adjust = None
        if context.task.index:  # before the first task nothing is to be kept
            adjust = project
        training = TrainingPhase(
            name="prompts",
            groups=(
                ParameterGroup(parameters=(tokens,), lr=config.lr, weight_decay=config.weight_decay),
                ParameterGroup(parameters=tuple(self.head.parameters()), lr=config.lr),
            ),
            step=step,
            epochs=config.epochs,
            batch_size=config.batch_size,
            schedule=milestones([round(share * config.epochs) for share in _DROPS], 0.1),
            host=True,
            adjust=adjust,
        )
        statistics = ComputePhase(name="activations", run=lambda progress: self.remember(context, progress))
        return self.with_head(context, training, statistics)

    def _projections(self, moments: Tensor) -> Tensor:
        config = self.config
        scaled = config.projector == "official"
        by_block = [null_projection(moment, config.projected, scaled=scaled) for moment in moments]
        return torch.stack(by_block)

    @torch.no_grad()
    def remember(self, context: TaskContext, progress: Callable[[int, int], None]) -> None:
        """Add what the finished task's attention meets to the moments, under the finished tokens."""
        backbone = self.context.backbone
        tokens = cast(DeepTokens, context.parameters).token.detach()
        taps = [Tap(block=block, kind="attn_in") for block in range(backbone.depth)]

        task_queries = torch.zeros_like(self.queries)
        task_attention = torch.zeros_like(self.attention)
        done = 0
        for batch in context.statistics(64):  # sums are the same for any size, up to rounding
            seen = backbone.activations(batch.images, taps, (self.injection(tokens),))
            for block, tap in enumerate(taps):
                of_queries, of_attention = attended(block_at(backbone.model, block), seen[tap], tokens[block])
                task_queries[block] += of_queries
                task_attention[block] += of_attention
            done += len(batch)
            progress(done, context.task.num_images)
        # at the end: a run that was stopped on the way has taken in nothing twice
        self.queries += task_queries
        self.attention += task_attention
        self.anchor.copy_(tokens)
