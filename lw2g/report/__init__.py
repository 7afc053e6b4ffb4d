"""Runs that were made: finding them, and turning them into tables. Nothing here needs torch."""

from __future__ import annotations

MIXABLE = ("checkpoints", "splits", "protocols")
"""What runs of one table have in common, unless a user says otherwise."""
