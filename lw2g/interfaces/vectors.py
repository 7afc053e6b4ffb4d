"""Stored features in place of images: what a benchmark of vectors provides, and what a backbone makes of it.

A *vector* is what a frozen backbone returned for an image under the test transform. A source of vectors is an
image source whose items are vectors: whatever takes items one by one (a loader, a model) works on both. What
reads many of them asks for :meth:`VectorSource.vectors`.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import attrs
from attrs.validators import ge
from torch import Tensor

from lw2g.vit.pool_words import Pool

__all__ = ["VectorFacts", "VectorSource"]


@attrs.frozen(kw_only=True)
class VectorFacts:
    """Where the vectors of a stream come from; empty strings where nobody says.

    Attributes:
        dim: Width of a vector.
        model: The backbone that made them, with the tag of its weights.
        sha256: SHA-256 of its weights.
        digest: SHA-256 of the vectors themselves.
        pool: How its output was pooled; None where nobody says.
        layers: Of how many of its last layers they are joined; None where nobody says.
    """

    dim: int = attrs.field(validator=ge(1))
    model: str = ""
    sha256: str = ""
    digest: str
    pool: Pool | None = None
    layers: int | None = None


@runtime_checkable
class VectorSource(Protocol):
    """An image source (:class:`~lw2g.interfaces.stream.ImageSource`) whose items are vectors ``[dim]``."""

    def vectors(self, indices: Any) -> Tensor:
        """Return vectors by number (int64 ``[n]``), ``[n, dim]`` float32: a copy in memory."""
        ...
