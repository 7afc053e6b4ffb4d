"""Paths as arguments of commands."""

from __future__ import annotations

import os
from typing import Any

import click

from lw2g.errors import ConfigError, no_folder, shown
from lw2g.ground.spelling import expanded

__all__ = ["AnyPath"]


def _as(param: click.Parameter | None) -> str:
    """Return for what a value is given, as the help names it."""
    if param is None:
        return ""
    if isinstance(param, click.Option):
        return f" as {max(param.opts, key=len)}"
    return f" as {param.human_readable_name.strip('[]')}"


class AnyPath(click.Path):
    """A path, in which ``~`` stands for the home folder; without NUL characters."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return the path, or refuse one with NUL, which no file system allows."""
        if "\0" in str(value):
            raise ConfigError(f"no path can be called {shown(str(value))}", "leave the NUL character out")
        # a shell expands it only where it stands alone: not in --out=~/run
        if str(value).startswith("~"):
            value = str(expanded(value))
        if not self.file_okay and os.path.isfile(value):
            raise ConfigError(no_folder(value), f"give a folder{_as(param)}")
        return super().convert(value, param, ctx)
