"""The store of results: packs of runs, which anybody can check; packing and badges alone need torch."""

from __future__ import annotations

LICENCES = ("CC0-1.0", "CC-BY-4.0")
"""Terms under which a run can be given away."""
