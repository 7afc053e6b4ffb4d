"""CODA-Prompt: prefixes are sums of components, weighed by a masked query; every set adds components.

Smith et al., "CODA-Prompt: COntinual Decomposed Attention-based Prompting for Rehearsal-Free Continual
Learning", CVPR 2023. A set is a block of components of its own size instead of a share of a fixed total,
because the number of sets is not known; for T sets of ``components`` each it is the released method with
M = T * components.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs
import torch
from attrs.validators import ge
from torch import Tensor, nn

from lw2g.blocks.weighted_prefixes import ComponentSet, WeightedPrefixBaseline, WeightedPrefixOptions
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.component import BaselineComponent
from lw2g.interfaces.context import BuildContext
from lw2g.interfaces.options import option

__all__ = ["CODA_PROMPT", "CodaPrompt", "CodaPromptConfig", "orthogonality"]


@attrs.frozen(kw_only=True)
class CodaPromptConfig(WeightedPrefixOptions):
    """Options of ``coda-prompt``."""

    orthogonality: float = option(
        0.0,
        "weight of the orthogonality penalty; the release gave it up (0) for an orthogonal start",
        validator=ge(0),
        published=0.0,
    )


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
        if not self.config.orthogonality:
            return None
        owned = [cast(ComponentSet, item) for item in sets]
        terms = [
            orthogonality(torch.cat(kind))
            for position in range(len(self.blocks))
            for kind in zip(*(item.rows(position) for item in owned), strict=True)
        ]
        return self.config.orthogonality * torch.stack(terms).sum()


# Components are the release's 100 over the number of tasks. LW2G published neither energies nor phi.
_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "cifar100": {"baseline.epochs": 20, "baseline.components": 10},
    "imagenet-r": {"baseline.epochs": 50, "baseline.components": 10},
    "domainnet": {"baseline.epochs": 5, "baseline.components": 20},
}

_QUICK: Mapping[str, Any] = {"baseline.epochs": 5, "baseline.batch_size": 32, "baseline.lr": 0.005}

CODA_PROMPT = BaselineComponent(
    name="coda-prompt",
    config=CodaPromptConfig,
    summary="sums of components weighed by a masked query; every set adds components",
    citation="Smith et al., CODA-Prompt: Continual Decomposed Attention-based Prompting, CVPR 2023",
    build=CodaPrompt,
    presets=_PRESETS,
    tuned={"digits": _QUICK, "glyphs": _QUICK, "folder": _QUICK},
)
