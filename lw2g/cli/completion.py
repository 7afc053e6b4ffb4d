"""Shell completion: the script a shell loads, and completion of component names."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

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


class _Bash(BashComplete):
    """Bash, which splits words at ``=`` and replaces only what follows it; no space follows ``KEY=``."""

    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)", "COMPREPLY+=($value)\n            [[ $value == *= ]] && compopt -o nospace"
    )
    _kept = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the current one, and the beginning of this one, joined at ``=``."""
        words = split_arg_string(os.environ["COMP_WORDS"])
        current = int(os.environ["COMP_CWORD"])
        joined: list[str] = []
        # without "lw2g" itself, and without what stands behind the cursor
        for word in words[1 : current + 1]:
            if joined and (word == "=" or joined[-1].endswith("=")):
                joined[-1] += word
                self._kept = joined[-1].rpartition("=")[0] + "="
            else:
                joined.append(word)
                self._kept = ""
        if current >= len(words):
            # a new word has been begun and has no letter yet: bash counts it and does not list it
            joined.append("")
            self._kept = ""
        return joined[:-1], joined[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Return a completion without what the shell keeps."""
        item.value = item.value.removeprefix(self._kept)
        return super().format_completion(item)


add_completion_class(_Bash)


@click.command(short_help="Print the completion script of a shell.")
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
