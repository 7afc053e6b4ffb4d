"""Other components in place of the installed ones, wherever lw2g looks them up."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

import lw2g.api.plugins
import lw2g.cli.main  # the modules that look components up are imported with the true function  # noqa: F401
from lw2g.registry import catalogue


def load_instead(patch: pytest.MonkeyPatch, load: Callable[..., catalogue.Catalogue]) -> None:
    """Let every module of lw2g and its products that loads the catalogue call another function for it."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("lw2g.", "lw2g_")) and "load_catalogue" in vars(module):
            patch.setattr(module, "load_catalogue", load)
