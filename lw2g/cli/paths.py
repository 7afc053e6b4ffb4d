"""Paths as arguments of commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from lw2g.api.recorded import holds_model
from lw2g.errors import ConfigError, as_word, no_folder
from lw2g.ground.spelling import expanded, is_web_address, require_path

__all__ = ["AnyPath", "ModelPath", "require_model_first", "words_of_input"]


def _as(param: click.Parameter | None) -> str:
    """Return for what a value is given, as the help names it."""
    if param is None:
        return ""
    if isinstance(param, click.Option):
        return f" as {max(param.opts, key=len)}"
    return f" as {param.human_readable_name.strip('[]')}"


class AnyPath(click.Path):
    """A path, in which ``~`` stands for the home folder."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Return the path, or refuse what cannot be one."""
        require_path(str(value), _as(param).removeprefix(" as "))
        if is_web_address(value):
            raise ConfigError(f"{str(value)!r} is an address", "download it first")
        # a shell expands it only where it stands alone: not in --out=~/run
        if str(value).startswith("~"):
            value = str(expanded(value))
        if not self.file_okay and os.path.isfile(value):
            raise ConfigError(no_folder(value), f"give a folder{_as(param)}")
        return super().convert(value, param, ctx)


class ModelPath(AnyPath):
    """The folder of a model or a run; a file is refused by :func:`require_model_first`."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Let the shell complete folders."""
        return [CompletionItem(incomplete, type="dir")]


def require_model_first(model: Path, *others: Path) -> None:
    """Refuse a model that stands behind what it is to look at or is left out, and a file in its place.

    Raises:
        ConfigError: The first path is a file; or it is no model, and another one is, or there is no other.
    """
    if holds_model(model):
        return
    words: list[str] = []
    behind = next((other for other in others if holds_model(other)), None)
    if behind is not None:
        further = [other for other in others if other is not behind]
        words = [as_word(path) for path in (behind, model, *further)]
    elif not others and model.exists():
        words = ["MODEL", as_word(model)]
    if words:
        command = click.get_current_context().info_name
        raise ConfigError(
            f"{str(model)!r} is no model and no run",
            f"the model comes first: lw2g {command} {' '.join(words)}",
        )
    if model.is_file():
        raise ConfigError(no_folder(model), "give a folder as MODEL")


def words_of_input(*, takes_vectors: bool) -> tuple[str, str]:
    """Return what messages call that which ``lw2g predict`` and ``lw2g learn`` take.

    Args:
        takes_vectors: Whether the model is of stored features, which lie in files.
    """
    return ("FILE", "FILE") if takes_vectors else ("PHOTO", "FOLDER")
