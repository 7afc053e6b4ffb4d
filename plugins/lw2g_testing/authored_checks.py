"""Checks of what an author has written, before anything runs."""

from __future__ import annotations

import difflib
import inspect

from lw2g.interfaces.component import Lazy
from lw2g_testing.cases import NOT_THE_AUTHOR_S, RaisedError, Subject, check, methods_of

_NEAR = 0.85
"""How like a method's name must be to one of the interface to be taken for it."""


@check("baseline", "carry", "constraint", "head", "retrieval")  # the first: other checks meet what it finds
def check_overrides_what_it_means(subject: Subject) -> None:
    """No public method of its class has nearly the name of one that the class inherits from lw2g."""
    made = subject.component.build
    if isinstance(made, Lazy):
        try:
            made = made.load()
        except Exception:  # a plugin's code may raise anything: another check reports it
            return
    if not isinstance(made, type):  # a function builds it
        return
    own: set[str] = set()
    inherited: set[str] = set()
    of_lw2g: set[str] = set()
    for base in made.__mro__:
        methods = {name for name, value in vars(base).items() if inspect.isfunction(value) and name[0] != "_"}
        package = base.__module__.partition(".")[0]
        (inherited if package in NOT_THE_AUTHOR_S else own).update(methods)
        if package == "lw2g":
            of_lw2g |= methods
    for name in sorted(own - inherited):
        for meant in difflib.get_close_matches(name, of_lw2g - own, n=1, cutoff=_NEAR):
            raise RaisedError(
                f"lw2g never calls {methods_of(made, name)}, but {meant}; rename it, or begin the name of a "
                "helper with _"
            )
