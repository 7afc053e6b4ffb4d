"""What docstrings say, also where Python has dropped them (``python -OO``, ``PYTHONOPTIMIZE=2``).

Help, promises and ranges are said once, in docstrings. Without them they are read from the source.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ast

__all__ = ["docstring"]

_DROPPED = 2
"""The level of optimisation from which Python compiles without docstrings."""


def docstring(thing: Any) -> str:
    """Return the docstring of a module, a class or a function, without its indentation; empty if it has none.

    >>> docstring(docstring).partition(",")[0]
    'Return the docstring of a module'
    """
    text = inspect.getdoc(thing) or ""
    if text or sys.flags.optimize < _DROPPED:
        return text
    if isinstance(thing, ModuleType):
        return _in_source(thing.__name__).get("", "")
    name = getattr(thing, "__qualname__", "").replace("<locals>.", "")
    # a class has one of its own or none: that of its base describes the base
    return _in_source(getattr(thing, "__module__", "")).get(name, "")


@cache
def _in_source(module: str) -> Mapping[str, str]:
    """Return the docstrings in a module's source by qualified names, its own under the empty name."""
    import ast

    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, TypeError, OSError):  # there is no source: help is what can be spared
        return {}
    return {"": ast.get_docstring(tree) or ""} | dict(_below(tree, ""))


def _below(parent: ast.AST, place: str) -> Iterator[tuple[str, str]]:
    """Yield qualified name and docstring of every definition below a node of a syntax tree."""
    import ast

    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{place}{node.name}"
            yield name, ast.get_docstring(node) or ""
            yield from _below(node, f"{name}.")
        elif not isinstance(node, ast.expr):  # definitions stand among statements alone
            yield from _below(node, place)
