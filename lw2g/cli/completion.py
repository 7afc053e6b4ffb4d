"""Shell completion: the script a shell loads, and completion of component names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from lw2g.interfaces.component import KINDS, Kind

__all__ = ["complete_component", "completion"]

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_component(*kinds: Kind) -> Completer:
    """Return a completer for the names of all components of some kinds (all kinds where none is given)."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        from lw2g.registry.catalogue import load_catalogue

        found = {
            entry.component.name: entry.component.summary
            for entry in load_catalogue().components()
            if entry.component.kind in (kinds or KINDS) and entry.component.name.startswith(begun)
        }
        return [CompletionItem(name, help=summary) for name, summary in found.items()]

    return complete


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
      bash   eval "$(lw2g completion bash)"      in ~/.bashrc
      zsh    eval "$(lw2g completion zsh)"       in ~/.zshrc
      fish   lw2g completion fish | source       in ~/.config/fish/config.fish
    """
    found = get_completion_class(shell)
    root: Any = context.find_root().command
    if found is not None:
        click.echo(found(root, {}, "lw2g", "_LW2G_COMPLETE").source())
