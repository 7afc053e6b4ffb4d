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
        *kinds: The kinds to complete; all if none is given.
        also: Further names to complete.
    """

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        from lw2g.registry.catalogue import load_catalogue

        matches = {
            entry.component.name: entry.component.summary
            for entry in load_catalogue().components()
            if entry.component.kind in (kinds or KINDS) and entry.component.name.startswith(begun)
        }
        matches |= {name: "" for name in also if name.startswith(begun)}
        return [CompletionItem(name, help=summary) for name, summary in matches.items()]

    return complete


def complete_setting(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete a key of ``--set`` from the options of the components on the command line so far."""
    from lw2g.config.describe import describe_experiment
    from lw2g.config.resolve import resolve
    from lw2g.registry.catalogue import load_catalogue

    values = context.params
    names = {kind: values.get(kind) for kind in ("baseline", "policy", "retrieval", "benchmark", "backbone")}
    try:
        resolved = resolve(
            load_catalogue(),
            file=values.get("file"),
            constraints=values.get("constraint") or None,
            trackers=values.get("tracker") or (),
            **names,
        )
    except Lw2gError:  # an unfinished command line may not resolve
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
    completer = get_completion_class(shell)
    root: Any = context.find_root().command
    if completer is not None:
        click.echo(completer(root, {}, "lw2g", "_LW2G_COMPLETE").source())
