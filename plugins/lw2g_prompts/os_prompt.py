"""OS-Prompt and OS-Prompt++: weighted components whose query is read on the way, in one forward.

Kim, Li and Panda, "One-stage Prompt-based Continual Learning", ECCV 2024. The class token entering a block is
that block's query; at the first block it is the same for all images, so the first prefix is a static one.
OS-Prompt++ adds, in training alone, a term that pulls the weights towards those of a reference query: the
un-prompted feature of the same frozen backbone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import Batch, BuildContext, ComponentSet, WeightedPrefixBaseline
from lw2g_prompts.options import OsPromptConfig

__all__ = ["OsPrompt", "query_pool_distance"]


def query_pool_distance(query: Tensor, reference: Tensor, key: Tensor) -> Tensor:
    """Return the mean over samples of ``||softmax(cos(K, query)) - softmax(cos(K, reference))||^2``.

    Args:
        query: ``[B, dim]``.
        reference: ``[B, dim]``.
        key: The visible keys of a block, ``[M, dim]``.
    """
    similarity = _cosines(query, key).softmax(dim=1)
    # with gradient, too: both weights are of the same keys, which the task trains
    wanted = _cosines(reference, key).softmax(dim=1)
    return (similarity - wanted).square().sum(dim=1).mean()


def _cosines(queries: Tensor, keys: Tensor) -> Tensor:
    """Return the cosines of queries ``[B, dim]`` with keys ``[M, dim]``, ``[B, M]``."""
    return functional.normalize(queries, dim=-1) @ functional.normalize(keys, dim=-1).mT


class OsPrompt(WeightedPrefixBaseline):
    """The query of a block is the class token that enters it; there is no mask.

    Only the reference term needs the un-prompted feature, so OS-Prompt costs one forward per image
    and OS-Prompt++ a second one in training. Evidence is cross-entropy alone.
    """

    query_source = "block"
    masked = False

    def __init__(self, config: OsPromptConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config

    def regulariser(self, batch: Batch, sets: Sequence[nn.Module], seen: dict[int, Tensor]) -> Tensor | None:
        """Return the reference term of OS-Prompt++, summed over blocks."""
        if self.config.variant == "os" or not self.config.reference_weight:
            return None
        terms = []
        for position, query in seen.items():
            if self.config.qr == "code":
                # the release compares the queries themselves, and no key takes part
                terms.append((query - batch.query).square().mean())
            else:
                keys = torch.cat([cast(ComponentSet, item).key[position] for item in sets])
                terms.append(query_pool_distance(query, batch.query, keys))
        return self.config.reference_weight * torch.stack(terms).sum()
