"""CODA-Prompt: prefixes are sums of components, weighed by a masked query; every set adds components.

Smith et al., "CODA-Prompt: COntinual Decomposed Attention-based Prompting for Rehearsal-Free Continual
Learning", CVPR 2023. A set is a block of components of its own size instead of a share of a fixed total,
because the number of sets is not known; for T sets of ``components`` each it is the released method with
M = T * components.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from lw2g.plugin import Batch, BuildContext, ComponentSet, WeightedPrefixBaseline
from lw2g_prompts.options import CodaPromptConfig

__all__ = ["CodaPrompt", "orthogonality"]


def orthogonality(rows: Tensor) -> Tensor:
    """Return how far rows ``[n, width]`` are from orthonormal: the mean entry of ``(B B^T - I)^2``.

    >>> orthogonality(torch.eye(2, 3)), orthogonality(torch.zeros(4, 3))
    (tensor(0.), tensor(0.2500))
    """
    return (rows @ rows.mT - torch.eye(len(rows)).to(rows)).square().mean()


class CodaPrompt(WeightedPrefixBaseline):
    """The query is the un-prompted feature under a learned mask: two forwards per image."""

    query_source = "feature"
    masked = True

    def __init__(self, config: CodaPromptConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config

    def regulariser(self, batch: Batch, sets: Sequence[nn.Module], seen: dict[int, Tensor]) -> Tensor | None:
        """Return the orthogonality of components, keys and masks over all live sets, frozen ones included."""
        # 0 is the authors' weight since new components start orthogonal to the old ones
        if not self.config.orthogonality:
            return None
        terms = []
        for position in range(len(self.blocks)):
            rows = [cast(ComponentSet, item).rows(position) for item in sets]
            # from (components, keys, masks) of each set to those of all sets together
            for kind in zip(*rows, strict=True):
                terms.append(orthogonality(torch.cat(kind)))
        return self.config.orthogonality * torch.stack(terms).sum()
