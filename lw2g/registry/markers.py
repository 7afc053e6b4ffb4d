"""The pluggy markers; plugins decorate their hooks with :data:`hookimpl`."""

from __future__ import annotations

import pluggy

__all__ = ["PROJECT", "hookimpl", "hookspec"]

PROJECT = "lw2g"
"""The pluggy project name and the entry-point group."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks the functions of a plugin that return its records, such as ``lw2g_baselines``."""
