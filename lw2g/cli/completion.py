"""Shell completion: the script a shell loads, and completion of component names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from lw2g.errors import Lw2gError
from lw2g.interfaces.component import KINDS, Kind

__all__ = ["complete_component", "complete_setting", "completion"]

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_component(*kinds: Kind, also: Sequence[str] = ()) -> Completer:
    """Return a completer for the names of components.

    Args:
        *kinds: Of which kinds; all where none is given.
        also: Further names.
    """

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        from lw2g.registry.catalogue import load_catalogue

        found = {
            entry.component.name: entry.component.summary
            for entry in load_catalogue().components()
            if entry.component.kind in (kinds or KINDS) and entry.component.name.startswith(begun)
        }
        found |= {name: "" for name in also if name.startswith(begun)}
        return [CompletionItem(name, help=summary) for name, summary in found.items()]

    return complete


def complete_setting(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete a key of ``--set`` by the options of the components that the command line names so far."""
    from lw2g.config.describe import describe_experiment
    from lw2g.config.resolve import resolve
    from lw2g.registry.catalogue import load_catalogue

    said = context.params
    names = {kind: said.get(kind) for kind in ("baseline", "policy", "retrieval", "benchmark", "backbone")}
    try:
        resolved = resolve(
            load_catalogue(),
            file=said.get("file"),
            constraints=said.get("constraint") or None,
            trackers=said.get("tracker") or (),
            **names,
        )
    except Lw2gError:  # half a command line need not make sense
        return []
    options = describe_experiment(resolved.config)
    return [
        CompletionItem(f"{key}=", help=option.sentence())
        for key, option in options.items()
        if key.startswith(begun)
    ]


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
