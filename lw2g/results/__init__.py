"""What runs have left: found, recomputed, verified, and turned into tables. Nothing here imports torch."""

from __future__ import annotations

MIXABLE = ("checkpoints", "splits", "protocols")
"""What the runs of a table must have in common, unless the user allows mixing."""
