"""Sweeps: grids of runs; each run has its own process and directory. Nothing here imports torch."""

from __future__ import annotations

EXECUTORS = {"local": "", "ray": "sweep", "slurm": "slurm"}
"""The executors by name, each with the extra of lw2g that installs its package."""
