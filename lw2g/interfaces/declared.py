"""What a class declares by name: a misspelt declaration is an attribute that nothing reads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from lw2g.errors import closest

__all__ = ["misspelt_in", "require_declared"]


def misspelt_in(owner: Any, known: Collection[str], unset: Collection[str]) -> tuple[str, str] | None:
    """Return a value of a class or a function with nearly the name of one that it does not set, and that one.

    Methods are its own affair, and so is what begins with an underscore or has a word more or less than the
    name that is known (``growth_rate``).

    Args:
        owner: The class or function.
        known: Names that are read of it.
        unset: Those of them that it does not set.
    """
    inherited = {name for base in getattr(owner, "__mro__", ())[1:] for name in dir(base)}
    for name, value in getattr(owner, "__dict__", {}).items():  # a function in C has none
        is_method = callable(value) or hasattr(value, "__get__")
        if name.startswith("_") or is_method or name in {*known, *inherited}:
            continue
        meant = closest(name, unset, near=0.7)
        if meant is not None and not name.startswith(f"{meant}_") and not meant.startswith(f"{name}_"):
            return name, meant
    return None


def require_declared(owner: type, known: Collection[str]) -> None:
    """Refuse a class with a value whose name is nearly that of a declaration that it leaves out.

    Raises:
        TypeError: It has one.
    """
    unset = [name for name in known if name not in vars(owner)]
    misspelt = misspelt_in(owner, known, unset)
    if misspelt is not None:
        name, meant = misspelt
        raise TypeError(
            f"{owner.__name__}: {name!r} is not read (did you mean {meant!r}?); "
            f"rename it; an attribute of your own may be called {'_' + name!r}"
        )
