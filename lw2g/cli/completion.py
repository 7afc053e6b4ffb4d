"""Shell completion: the script a shell loads, and completion of component names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from lw2g.api.plugins import names_of
from lw2g.cli.signature import documented

if TYPE_CHECKING:
    from lw2g.interfaces.component import Kind

__all__ = ["complete_component", "completion"]

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_component(*kinds: Kind, also: Sequence[str] = ()) -> Completer:
    """Return a completer for the names of components.

    Args:
        *kinds: The kinds to complete; all if none is given.
        also: Further names to complete.
    """

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        offered = names_of(*kinds) | dict.fromkeys(also, "")
        return [
            CompletionItem(name, help=summary) for name, summary in offered.items() if name.startswith(begun)
        ]

    return complete


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
@documented
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
      bash   eval "$(lw2g completion bash)"      in ~/.bashrc
      zsh    eval "$(lw2g completion zsh)"       in ~/.zshrc
      fish   lw2g completion fish | source       in ~/.config/fish/config.fish
    """
    completer = get_completion_class(shell)
    root: Any = context.find_root().command
    if completer is not None:
        click.echo(completer(root, {}, "lw2g", "_LW2G_COMPLETE").source())
