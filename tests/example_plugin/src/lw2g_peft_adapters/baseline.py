"""The baseline ``peft-lora``: one set of adapters per growth step, chosen per sample, and a linear head.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022; ``h = W x + (alpha / r) B A x``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from lw2g.plugin import (
    Activation,
    Baseline,
    Batch,
    BuildContext,
    ParameterGroup,
    Phase,
    Pool,
    Routing,
    Site,
    Tap,
    TaskContext,
    TrainingPhase,
    attention_of,
    block_at,
    linear_head,
)
from lw2g_peft_adapters.adapters import AdapterInjection, AdapterSet
from lw2g_peft_adapters.plugin import PeftLoraConfig

__all__ = ["PeftLora"]


class PeftLora(Baseline):
    """A set adapts the fused query, key and value projection of every chosen block; the head is shared."""

    def __init__(self, config: PeftLoraConfig, context: BuildContext) -> None:
        super().__init__(context)
        self.config = config
        backbone = context.backbone
        blocks = config.blocks or tuple(range(backbone.depth))
        self.blocks = backbone.check_blocks(blocks, "baseline.blocks")
        self.head = linear_head(backbone.dim, context.num_classes).to(context.device)

    # -- sets ------------------------------------------------------------------------------------------

    def new_set(self, source: nn.Module | None) -> AdapterSet:
        """Return a new set: a copy of ``source``, or one that changes nothing yet (``B = 0``)."""
        model = self.context.backbone.model
        made = AdapterSet(
            {block: attention_of(block_at(model, block)).qkv for block in self.blocks},
            rank=self.config.rank,
            alpha=self.config.alpha,
            init=self.config.init,
        ).to(self.context.device)
        if source is not None:
            made.load_state_dict(source.state_dict())
        return made

    def source_of(self, pool: Pool) -> nn.Module | None:
        """Return the most recently trained set where the options say so."""
        return pool.newest if self.config.init_from == "previous" else None

    # -- forward ---------------------------------------------------------------------------------------

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return the class token under each sample's adapters, ``[B, dim]``.

        Raises:
            ValueError: The routing chooses no set.
        """
        if routing.chosen is None:
            raise ValueError("expected a routing with a chosen set, but got one without")
        sets = [cast(AdapterSet, item) for item in routing.sets]
        injection = AdapterInjection(self.blocks, sets, routing.chosen)
        return self.context.backbone.features(batch.images, (injection,))

    def logits(self, features: Tensor) -> Tensor:
        """Return logits over all classes of the stream, ``[B, num_classes]``."""
        return cast(Tensor, self.head(features))

    # -- learning a task -------------------------------------------------------------------------------

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the one phase: both factors of the set and the head; constraints act on it (``host``)."""
        config = self.config
        trained = (*context.parameters.parameters(), *self.head.parameters())
        return (
            TrainingPhase(
                name="lora",
                groups=(ParameterGroup(parameters=trained, lr=config.lr),),
                step=lambda batch: self.step(batch, context),
                epochs=config.epochs,
                batch_size=config.batch_size,
                host=True,
            ),
        )

    # -- what can be measured and protected ------------------------------------------------------------

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return both factors at each block.

        A multiplies the input of qkv; its gradient is the evidence. B multiplies ``z = A x``, whose space is
        the image of that of x. Together they keep ``B A x`` for every x in the space: ``A x`` does not move,
        and B does not move on it. Angles among r directions do not compare with those among d: B is no
        evidence, and no soft rule acts on it.
        """
        own = cast(AdapterSet, parameters)
        sites: list[Site] = []
        for block, down, up in zip(self.blocks, own.down, own.up, strict=True):
            a, b = (cast(nn.Parameter, layer.weight) for layer in (down, up))
            tap = Tap(block=block, kind="attn_in")
            sites.append(Site(name=f"blocks.{block}.lora_a", parameter=a, activation=tap))
            sites.append(
                Site(
                    name=f"blocks.{block}.lora_b",
                    parameter=b,
                    activation=Activation(tap=tap, map=a.detach),
                    measured=False,
                    soft=False,
                )
            )
        return sites
