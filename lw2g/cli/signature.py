"""Options and help of a command, from the function of ``lw2g.api`` that it calls.

What a parameter means and its default are declared there, once; how it is typed is declared by the command.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["help_of", "option_of", "options_of"]

F = TypeVar("F", bound=Callable[..., Any])

_BY_ANNOTATION: dict[str, dict[str, Any]] = {
    "bool": {"is_flag": True},
    "int": {"type": click.IntRange(min=1), "metavar": "N"},
    "str": {"metavar": "NAME"},
    "str | Path": {"type": click.Path(path_type=Path), "metavar": "FILE"},
}
"""How a parameter of each type is typed, unless the command says otherwise."""
_SECTION = re.compile(r"^(Args|Returns|Yields|Raises):$", re.MULTILINE)
_CODE = re.compile(r"(?::\w+:`|``)(.+?)``?")


def help_of(function: Callable[..., Any], *more: str) -> str:
    """Return the help of the command that calls a function: its docstring, down to the first section.

    Args:
        function: The function.
        *more: Paragraphs on what the command alone does, such as its exit code.
    """
    description = _SECTION.split(inspect.getdoc(function) or "")[0].strip()
    return "\n\n".join([_as_typed(description, function), *more])


def options_of(function: Callable[..., Any], *names: str) -> Callable[[F], F]:
    """Return a decorator that adds the options of several parameters in this order."""

    def decorate(command: F) -> F:
        # click lists first what is added last
        for name in reversed(names):
            command = option_of(function, name)(command)
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
    parameter = inspect.signature(function).parameters[name]
    kind = str(parameter.annotation).removesuffix(" | None")
    known: dict[str, Any] = {"help": _meaning_of(function, name)}
    if "type" not in settings:
        known |= _BY_ANNOTATION.get(kind, {})
    if parameter.default is not inspect.Parameter.empty:
        known["default"] = parameter.default
        # None and False are told in words, or go without saying
        known["show_default"] = parameter.default not in (None, False, (), "")
    spelled = flags or (f"--{name.replace('_', '-')}",)
    return click.option(*spelled, name, **{**known, **settings})


def _meaning_of(function: Callable[..., Any], name: str) -> str:
    """Return what a docstring says of a parameter, as the help of an option.

    "Whether to keep x" becomes "Keep x", "x; a list for several" becomes "x; repeatable", and "x; None for y"
    becomes "x. [default: y]".
    """
    arguments = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2]
    # the lines that continue an entry are indented more deeply than its first
    entry = re.search(rf"^    \**{name}: (.*(?:\n {{5,}}.*)*)", arguments, re.MULTILINE)
    if entry is None:
        raise LookupError(f"the docstring of {function.__name__} does not say what {name!r} is")
    text = " ".join(entry[1].split())
    text = re.sub(r"^Whether to (\w)", lambda found: found[1].upper(), text)
    text = text.replace("; a list for several", "; repeatable")
    text = re.sub(r"; None for (.+?)\.?$", r". [default: \1]", text)
    return _as_typed(text, function)


def _as_typed(text: str, function: Callable[..., Any]) -> str:
    """Return prose in which a function's parameters are called as on the command line."""
    parameters = inspect.signature(function).parameters

    def typed(code: re.Match[str]) -> str:
        parameter = parameters.get(code[1])
        if parameter is None:
            return f"`{code[1]}`"
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            return f"--{parameter.name.replace('_', '-')}"
        return parameter.name.upper()

    return _CODE.sub(typed, text)
