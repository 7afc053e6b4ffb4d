"""The commands that installed packages offer, found without importing what they do."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import attrs
import click

from lw2g.errors import PluginError
from lw2g.interfaces.command import Command
from lw2g.registry.kinds import COMMAND_HOOK
from lw2g.registry.manager import (
    Origin,
    Problem,
    clashes,
    disabled_plugins,
    load_plugins,
    own_name,
    records_of,
)
from lw2g.registry.markers import COMMANDS

__all__ = ["CommandSet", "RegisteredCommand", "load_commands"]


@attrs.frozen(kw_only=True)
class RegisteredCommand:
    """A command and its origin."""

    command: Command
    origin: Origin

    def load(self) -> click.Command:
        """Import the command.

        Raises:
            PluginError: It cannot be imported, or is no command of click.
        """
        module, _, name = self.command.target.partition(":")
        try:
            code = getattr(import_module(module), name)
        # code of a package may raise anything, even SystemExit
        except (Exception, SystemExit) as error:
            problem = Problem.raised(self.origin, f"cannot import its command {self.command.name!r}", error)
            raise PluginError(problem.text, problem.remedy) from error
        if not isinstance(code, click.Command):
            what = f"names {self.command.target!r} as its command {self.command.name!r}, no command of click"
            problem = Problem.of(self.origin, what, "decorate the function with click.command()")
            raise PluginError(problem.text, problem.remedy)
        return code


@attrs.frozen(kw_only=True)
class CommandSet:
    """The commands of installed packages.

    Attributes:
        entries: The usable commands, by what is typed.
        refused: Commands that exist but cannot be used, with the reason.
        problems: All problems with packages that offer commands; the other packages keep working.
        disabled: Plugins that the user disabled.
    """

    entries: Mapping[str, RegisteredCommand]
    refused: Mapping[str, Problem]
    problems: tuple[Problem, ...]
    disabled: tuple[str, ...]

    def find(self, name: str) -> RegisteredCommand | None:
        """Return the command of this name; None without one.

        Raises:
            PluginError: A package offers it, or has its name, and cannot be used.
        """
        entry = self.entries.get(name)
        if entry is not None:
            return entry
        if name in self.refused:
            problem = self.refused[name]
            raise PluginError(f"command {name!r} cannot be used: {problem.text}", problem.remedy)
        for problem in self.problems:
            if problem.is_of(name):  # what a module offers is not known where it cannot be imported
                what = f"no command is called {name!r}: {problem.text}"
                raise PluginError(what, problem.remedy) from problem.error
        return None


def load_commands(*, third_party: bool = True) -> CommandSet:
    """Import the modules of the entry-point group ``lw2g.commands`` and collect their commands.

    Args:
        third_party: Whether to look at the packages of others, too. Without them nothing depends on what else
            is installed.
    """
    wanted = None if third_party else _is_first_party
    loaded = load_plugins(group=COMMANDS, disabled=disabled_plugins(), wanted=wanted)
    problems = list(loaded.problems)
    found = list(records_of(loaded, COMMAND_HOOK, Command, problems))
    ours = {command.name for command, origin in found if origin.first_party}
    by_name: dict[str, list[RegisteredCommand]] = {}
    for command, origin in found:
        name = command.name
        if name in ours and not origin.first_party:
            name, problem = own_name("command", name, origin)
            problems.append(problem)
        by_name.setdefault(name, []).append(RegisteredCommand(command=command, origin=origin))
    entries: dict[str, RegisteredCommand] = {}
    refused: dict[str, Problem] = {}
    for name, rivals in by_name.items():
        if len(rivals) == 1:
            entries[name] = rivals[0]
        else:  # no order of installation decides which one is meant
            clash = clashes("command", name, [entry.origin for entry in rivals])
            refused[name] = clash[0]
            problems.extend(clash)
    return CommandSet(entries=entries, refused=refused, problems=tuple(problems), disabled=loaded.disabled)


def _is_first_party(origin: Origin) -> bool:
    return origin.first_party
