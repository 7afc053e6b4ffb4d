"""The pluggy markers; plugins decorate their hooks with :data:`hookimpl`."""

from __future__ import annotations

import pluggy

__all__ = ["COMMANDS", "PROJECT", "hookimpl", "hookspec"]

PROJECT = "lw2g"
"""The pluggy project name, and the entry-point group of components."""
COMMANDS = "lw2g.commands"
"""The entry-point group of commands.

``lw2g --help`` imports what this group names and nothing else: the modules of all plugins would make it
several times slower, and one that waits for a network would hold up who has not even asked for it.
"""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks the functions of a plugin that return its records, such as ``lw2g_baselines``."""
