"""Options of the carries. Nothing here imports torch, so that listing stays quick."""

from __future__ import annotations

import attrs

__all__ = ["NoOptions"]


@attrs.frozen(kw_only=True)
class NoOptions:
    """The options of a carry whose candidates are fixed: none."""
