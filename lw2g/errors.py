"""The errors that lw2g raises for a user's or a plugin author's mistake (bugs keep their tracebacks)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "ComponentError",
    "ConfigError",
    "ContractError",
    "DataError",
    "Lw2gError",
    "PluginError",
    "UnknownComponentError",
    "nearest",
    "shown",
    "told",
]


class Lw2gError(Exception):
    """Base of all errors that the command line prints as one line.

    Attributes:
        exit_code: With which a command then ends.
    """

    exit_code = 2


class UnknownComponentError(Lw2gError):
    """A component name that no loaded plugin registers."""


class ConfigError(Lw2gError):
    """A configuration that cannot be used; the message lists every problem with its path."""


class PluginError(Lw2gError):
    """A plugin that cannot be loaded or registered; names plugin, distribution, version and remedy."""


class ContractError(Lw2gError):
    """A component that breaks a promise of its interface; names the component and the promise."""


class ComponentError(Lw2gError):
    """A component raised an error during a run; names plugin, component and method. The cause is attached."""

    exit_code = 1


class DataError(Lw2gError):
    """Data, weights or run files that are missing, incomplete or altered."""


_LONGEST = 200


def shown(value: object) -> str:
    """Return the ``repr`` of a value for a message, cut where it is long.

    >>> shown("joint"), shown(10**4999)
    ("'joint'", 'a number of 16607 bits')
    """
    if isinstance(value, int) and value.bit_length() > _LONGEST:
        return f"a number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits inside
        return f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}... ({len(text)} characters)"


def told(error: BaseException, kind: str = "") -> str:
    """Return an error of a component in one line: its class (or ``kind`` in its place) and what it says.

    >>> told(KeyError("x")), told(StopIteration())
    ("KeyError: 'x'", 'StopIteration')
    """
    try:
        text = " ".join(str(error).split())
    except Exception:  # a stranger's __str__
        text = "(its message cannot be read)"
    return ": ".join(filter(None, (kind or type(error).__name__, text)))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the closest known name, or an empty string.

    >>> nearest("hide-promt", ["hide-prompt", "dual-prompt"])
    " (did you mean 'hide-prompt'?)"
    """
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {found[0]!r}?)" if found else ""
