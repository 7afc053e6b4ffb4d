"""Checks of what an author has written, before anything runs."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from lw2g.interfaces.component import Lazy
from lw2g_testing.cases import NOT_THE_AUTHOR_S, RaisedError, Subject, check, methods_of

_NEAR = 0.85
"""How like a method's name must be to one of the interface to be taken for it."""
_PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
"""Kinds of arguments that can be given by their position."""


# the first: other checks meet what it finds
@check("baseline", "benchmark", "carry", "constraint", "evidence", "head", "policy", "retrieval", "tracker")
def check_overrides_what_it_means(subject: Subject) -> None:
    """The methods of its class have the names and the arguments by which lw2g calls them."""
    made = subject.component.build
    if isinstance(made, Lazy):
        try:
            made = made.load()
        except Exception:  # a plugin's code may raise anything: another check reports it
            return
    made = inspect.unwrap(made)
    if not isinstance(made, type):  # a function builds it
        return
    _require_names(made)
    for name, asked in _methods_of_interface(subject.component.interface.load()):
        written = inspect.getattr_static(made, name, None)
        if not isinstance(written, FunctionType) or _package(written) in NOT_THE_AUTHOR_S:
            continue
        taken = inspect.signature(written)
        if not _takes(taken, asked):
            raise RaisedError(f"{methods_of(made, name)} takes {_shown(taken)}; let it take {_shown(asked)}")


def _require_names(made: type) -> None:
    """Refuse a public method that has nearly the name of one that the class inherits from lw2g."""
    own: set[str] = set()
    inherited: set[str] = set()
    of_lw2g: set[str] = set()
    for base in made.__mro__:
        methods = {name for name, value in vars(base).items() if inspect.isfunction(value) and name[0] != "_"}
        package = _package(base)
        (inherited if package in NOT_THE_AUTHOR_S else own).update(methods)
        if package == "lw2g":
            of_lw2g |= methods
    for name in sorted(own - inherited):
        for meant in difflib.get_close_matches(name, of_lw2g - own, n=1, cutoff=_NEAR):
            raise RaisedError(
                f"lw2g never calls {methods_of(made, name)}, but {meant}; rename it, or begin the name of a "
                "helper with _"
            )


def _methods_of_interface(interface: type) -> Iterator[tuple[str, inspect.Signature]]:
    """Yield the public methods of a kind's class or protocol, without those of torch, and their arguments."""
    for base in interface.__mro__:
        if _package(base) != "lw2g":
            continue
        for name, method in vars(base).items():
            if inspect.isfunction(method) and name[0] != "_":
                yield name, inspect.signature(method)


def _takes(taken: inspect.Signature, asked: inspect.Signature) -> bool:
    """Whether arguments can be given as asked: all of them, and those alone that have no default.

    Where any number is asked, such as what a head's own ``solve`` returns, the class may name its own.
    """
    parameters = [one for one in asked.parameters.values() if one.kind is not one.VAR_POSITIONAL]
    if len(parameters) < len(asked.parameters):
        names = (one for one in taken.parameters.values() if one.kind in _PLACED)
        parameters += list(names)[len(parameters) :]
    for given in (parameters, [one for one in parameters if one.default is one.empty]):
        named = {one.name: None for one in given if one.kind is one.KEYWORD_ONLY}
        placed = [None for one in given if one.name not in named]
        try:
            taken.bind(*placed, **named)
        except TypeError:
            return False
    return True


def _shown(signature: inspect.Signature) -> str:
    """Return arguments as they are written, without types."""
    arguments = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    return str(inspect.Signature(arguments))


def _package(made: Any) -> str:
    return str(made.__module__).partition(".")[0]
