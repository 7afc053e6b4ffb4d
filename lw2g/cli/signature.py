"""Options and help of a command, from the function that it calls (for lw2g's own, one of ``lw2g.api``).

What a parameter means, its default and its choices are declared there, once; how it is typed is declared by
the command. What a docstring says for programs alone begins with "From Python", as a paragraph or as the end
of an entry, and is left out.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click

from lw2g.cli.paths import AnyPath
from lw2g.ground.docstrings import docstring

__all__ = [
    "Further",
    "LongCommand",
    "choices_of",
    "documented",
    "field_option",
    "help_of",
    "meaning_of",
    "option_of",
    "options_of",
]

F = TypeVar("F", bound=Callable[..., Any])
_ALL = "lw2g.help_all"
"""Whether the help that is being written shows all options, among what click's context keeps."""

_BY_ANNOTATION: dict[str, dict[str, Any]] = {
    "bool": {"is_flag": True},
    "int": {"type": click.IntRange(min=1), "metavar": "N"},
    "str": {"metavar": "NAME"},
    "str | Path": {"type": AnyPath(path_type=Path), "metavar": "FILE"},
}
"""How a parameter of each type is typed, unless the command says otherwise."""
_SECTION = re.compile(r"^(Args|Returns|Yields|Raises):$", re.MULTILINE)
_CODE = re.compile(r"(?::\w+:`|``)(.+?)``?")
# an entry of "Args:"; the lines that continue it are indented more deeply than its first
_ENTRY = re.compile(r"^    \**(\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)
_FOR_PROGRAMS = "From Python"


class Further(click.Option):
    """An option that a first user does without: ``--help-all`` shows it, and ``--help`` does not.

    So are marked, in commands of many options, those whose default suits whoever does not know them yet. The
    command is a :class:`LongCommand`.
    """

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return how the option is spelled and what it means, if all options are shown."""
        if not ctx.meta.get(_ALL):
            return None
        return super().get_help_record(ctx)


class LongCommand(click.Command):
    """A command with further options: the last line of its short help names ``--help-all``."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        count = sum(isinstance(parameter, Further) for parameter in self.params)
        self._help_all = _HelpAll(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help=f"Show {count} further options, too, and exit.",
        )

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all parameters, the two of the help at the end."""
        return [*super().get_params(ctx), self._help_all]


class _HelpAll(click.Option):
    """The option that shows all options; where they are shown it has nothing to add."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return how it is spelled and what it means, if some options are left out."""
        return None if ctx.meta.get(_ALL) else super().get_help_record(ctx)


def _show_all(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    """Print the help with all options, and end the command."""
    if not asked or context.resilient_parsing:
        return
    context.meta[_ALL] = True
    click.echo(context.get_help(), color=context.color)
    context.exit()


def help_of(function: Callable[..., Any], *more: str) -> str:
    """Return the help of the command that calls a function: its docstring, down to the first section.

    Args:
        function: The function.
        *more: Paragraphs on what the command alone does, such as its exit code.
    """
    description = _SECTION.split(docstring(function))[0].strip()
    paragraphs = []
    for paragraph in _as_typed(description, function).split("\n\n"):
        if not paragraph.startswith(_FOR_PROGRAMS):
            paragraphs.append(paragraph)
    return "\n\n".join([*paragraphs, *more])


def documented(command: F) -> F:
    """Return the function of a command with its docstring, which is its help, wherever that is kept."""
    command.__doc__ = docstring(command)
    return command


def options_of(function: Callable[..., Any], *names: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator that adds the options of several parameters in this order.

    Args:
        function: As for :func:`option_of`.
        *names: The parameters.
        **settings: As for :func:`option_of`, the same for all of them.
    """

    def decorate(command: F) -> F:
        # click lists first what is added last
        for name in reversed(names):
            command = option_of(function, name, **settings)(command)
        return command

    return decorate


def option_of(function: Callable[..., Any], name: str, *flags: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator that adds the option of a parameter.

    Args:
        function: The function that has the parameter.
        name: The parameter.
        *flags: How the option is spelled; by default like the parameter.
        **settings: What :func:`click.option` takes, in place of what follows from the annotation.
    """
    parameter = _parameters(function)[name]
    known: dict[str, Any] = {"help": meaning_of(function, name)}
    if "type" not in settings:
        known |= _settings_for(parameter.annotation)
    if parameter.default is not inspect.Parameter.empty:
        known["default"] = parameter.default
        # None and False are told in words, or go without saying
        known["show_default"] = parameter.default not in (None, False, (), "")
    spelled = flags or (f"--{name.replace('_', '-')}",)
    return click.option(*spelled, name, **{**known, **settings})


def field_option(config: type[Any], name: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator that adds an option of a config class; unless it is given, files and presets decide.

    Its help is the first clause of what the config class says.

    Args:
        config: The config class.
        name: The option.
        **settings: What :func:`click.option` takes, in place of what follows from the annotation.
    """
    clause = attrs.fields_dict(config)[name].metadata["help"].partition(";")[0]
    known: dict[str, Any] = {"help": f"{clause[0].upper()}{clause[1:]}."}
    if "type" not in settings:
        known |= _settings_for(config.__annotations__[name])
    return click.option(f"--{name}", **{**known, **settings})


def choices_of(annotation: str) -> list[str]:
    """Return the texts that a ``Literal`` names, or nothing for another annotation."""
    kind = annotation.removesuffix(" | None")
    if not kind.startswith("Literal["):
        return []
    # what stands in the brackets is read as a list
    choices: list[str] = ast.literal_eval(kind.removeprefix("Literal"))
    return choices


def _settings_for(annotation: str) -> Mapping[str, Any]:
    """Return what :func:`click.option` takes for a parameter of this type."""
    choices = choices_of(annotation)
    if choices:
        return {"type": click.Choice(choices)}
    return _BY_ANNOTATION.get(annotation.removesuffix(" | None"), {})


def meaning_of(function: Callable[..., Any], name: str) -> str:
    """Return what a docstring says of a parameter, as the help of an option.

    "Whether to keep x" becomes "Keep x", "x; a list for several" becomes "x; repeatable", and "x; None for y"
    becomes "x. [default: y]".

    Raises:
        LookupError: It says nothing.
    """
    entries = _entries(function)
    if not docstring(function):  # dropped, with its source
        return ""
    if name not in entries:
        raise LookupError(f"the docstring of {function.__name__} does not say what {name!r} is")
    text = " ".join(entries[name].split()).partition(f" {_FOR_PROGRAMS}")[0]
    # "Whether to fetch it" of a parameter is "Fetch it" of a flag
    text = re.sub(r"^Whether to (\w)", lambda found: found[1].upper(), text)
    text = text.replace("; a list for several", "; repeatable")
    # on a command line nobody can give None
    text = re.sub(r"; None for (.+?)\.?$", r". [default: \1]", text)
    return _as_typed(text, function)


# every start of lw2g asks these two for each option of all commands, some ten times a function


@cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function by name."""
    return inspect.signature(function).parameters


@cache
def _entries(function: Callable[..., Any]) -> Mapping[str, str]:
    """Return what a docstring says of each parameter, by name."""
    arguments = docstring(function).partition("\nArgs:\n")[2]
    return dict(_ENTRY.findall(arguments))


def _as_typed(text: str, function: Callable[..., Any]) -> str:
    """Return prose in which a function's parameters are called as on the command line."""
    parameters = _parameters(function)

    def typed(code: re.Match[str]) -> str:
        """Return a name between backquotes as it is typed: an option, an argument, or the same."""
        parameter = parameters.get(code[1])
        if parameter is None:
            return f"`{code[1]}`"
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            return f"--{parameter.name.replace('_', '-')}"
        return parameter.name.upper()

    return _CODE.sub(typed, text)
