"""Building block: fixed random maps, which widen features before a head in closed form sees them.

``relu`` is RanPAC's (McDonnell et al., NeurIPS 2023), ``gelu`` AnaCP's (Momeni et al., NeurIPS 2025),
``top-k`` Fly-CL's (Zou et al., ICLR 2026). All are functions of the image alone: sums over their rows are
exact in a stream.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MapKind", "RandomMap"]

MapKind = Literal["relu", "gelu", "top-k", "none"]


class RandomMap(nn.Module):
    """Maps features ``[n, dim]`` to ``[n, width]`` by a random matrix R and what stands behind it.

    ``relu`` gives ``relu(z R)`` and ``gelu`` gives ``gelu(z R)``, with R ~ N(0, 1). ``top-k`` keeps the
    largest entries of ``z R``, with their signs, and sets the others to zero; R then has ``row_nonzeros``
    entries for each random feature, at random places. ``none`` gives ``z R``.

    ``relu``, ``top-k`` and ``none`` are positively homogeneous: scaled features give equally scaled rows, so
    that a ridge penalty scales by the square.

    Args:
        dim: Width of the features.
        width: Number of random features.
        seed: Draws R, which is not part of the state.
        kind: What stands behind R.
        row_nonzeros: Features that each random feature reads; 0, or more than there are, for all.
        kept: Share of the random features that ``top-k`` keeps.
    """

    def __init__(
        self,
        dim: int,
        width: int,
        seed: int,
        kind: MapKind = "relu",
        *,
        row_nonzeros: int = 0,
        kept: float = 0.3,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.num_kept = max(round(kept * width), 1)
        draw = torch.Generator().manual_seed(seed)
        matrix = torch.randn(dim, width, generator=draw, dtype=torch.float64)
        if 0 < row_nonzeros < dim:
            # the places of the smallest of dim uniform numbers are a random choice without repetition
            places = torch.rand(dim, width, generator=draw).argsort(dim=0)[row_nonzeros:]
            matrix.scatter_(0, places, 0.0)
        self.register_buffer("matrix", matrix, persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return random features ``[n, width]`` of float64 features."""
        rows: Tensor = features @ self.get_buffer("matrix")
        match self.kind:
            case "relu":
                return rows.relu_()
            case "gelu":
                return functional.gelu(rows)
            case "top-k":
                best = rows.topk(self.num_kept, dim=1)
                return torch.zeros_like(rows).scatter_(1, best.indices, best.values)
            case "none":
                return rows
