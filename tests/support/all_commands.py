"""Every command of a group, those that are imported when they are called, too."""

from __future__ import annotations

from collections.abc import Iterator

import click

__all__ = ["commands_of"]


def commands_of(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Yield name and command."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield name, command
