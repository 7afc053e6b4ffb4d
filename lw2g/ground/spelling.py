"""How names and paths are written: names in one Unicode form, paths with ``~`` as the home folder."""

from __future__ import annotations

import inspect
import os
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from lw2g.errors import ConfigError, DataError, nearest, shown

__all__ = [
    "as_device",
    "composed",
    "composed_list",
    "composed_names",
    "device_name",
    "expanded",
    "expands_paths",
    "is_name",
    "is_web_address",
    "path_order",
    "require_path",
]

P = ParamSpec("P")
T = TypeVar("T")

_PATHS_ALONE = ("str | Path", "str | Path | None", "str | PathLike[str]")
"""Annotations of parameters that take nothing but paths."""
_A_PATH = "give the path of a file or a folder"
_WANTED = {"load": "give the folder of a run or of a model"}
"""What a function that opens both takes as ``run``; of others the argument's name says it."""
_IN_A_FILE = "write what it holds to a TOML file"
"""What is said of a mapping where options have no names of their own, as of a grid."""
_PLAIN: Mapping[str, tuple[type, str]] = {
    "Mapping[str, Any]": (Mapping, "a dict"),
    "bool": (bool, "True or False"),
    "float": (Real, "a number"),
    "int": (Integral, "a whole number"),
    "str": (str, "a text"),
}
"""Annotations, without a None that is added, of parameters that take such alone: its type and name."""
_PYTHONS: Mapping[str, type] = {"bool": bool, "float": float, "int": int, "str": str}
"""The types of Python that stand for numpy's."""
_ELSEWHERE: Mapping[tuple[str, str], str] = {
    **dict.fromkeys(
        (("report", "html"), ("report", "out")), "write a page: lw2g report RUNS --html page.html"
    ),
    ("report", "format"): 'a report has its texts: lw2g.report(RUNS).to_text("latex")',
}
"""Function and an argument that it does not have -> what does it; the command has options for it."""
_LONGEST_NAME = 255
"""The most bytes of a name of a file on the usual file systems."""
_LONGEST_PATH = 4095
"""The most bytes of a path."""
_NOT_IN_NAMES = ("Cc", "Cs", "Zl", "Zp")
"""Control characters, halves of letters, and ends of lines and paragraphs."""


def composed(name: str) -> str:
    """Return a name in Unicode's composed form (NFC), in which names are compared.

    A Mac's file systems and archives decompose names: ``é`` becomes ``e`` and an accent, and looks the same.

    >>> composed("cafe\\u0301") == "caf\\u00e9"
    True
    """
    # what is ASCII has one form; most names are, and a data set has a million
    return name if name.isascii() else unicodedata.normalize("NFC", name)


def composed_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return names in the form in which they are compared (:func:`composed`)."""
    return tuple(map(composed, names))


def composed_list(names: Iterable[str]) -> list[str]:
    """Return names as :func:`composed_names` does, where a file has them as a list."""
    return list(map(composed, names))


def is_name(text: str) -> bool:
    """Return whether a text that comes from outside may name something: one line without control characters.

    >>> is_name("caf\\u00e9 no.\\u00a01"), is_name("two\\nlines"), is_name("\\x1b[31mred")
    (True, False, False)
    """
    # the quick answer first: nearly every name is printable
    return text.isprintable() or not any(unicodedata.category(letter) in _NOT_IN_NAMES for letter in text)


def is_web_address(path: object) -> bool:
    """Return whether a text is an address of the web, which a ``Path`` would spoil.

    >>> is_web_address("https://x.org/dog.jpg"), is_web_address("photos/dog.jpg")
    (True, False)
    """
    return isinstance(path, str) and path.startswith(("http://", "https://"))


def device_name(given: Any) -> Any:
    """Return the name of a ``torch.device``, and anything else as it is."""
    kind = type(given)  # torch is not imported to ask it
    return str(given) if (kind.__module__, kind.__name__) == ("torch", "device") else given


def as_device(given: Any) -> Any:
    """Return the name of what stands for a device: a number is a GPU, as in torch; the rest stays as it is.

    >>> as_device(0), as_device("cpu"), as_device(True)
    ('cuda:0', 'cpu', True)
    """
    # numpy's own switch is no number
    if isinstance(given, Integral) and not isinstance(given, bool) and int(given) >= 0:
        return f"cuda:{int(given)}"
    return device_name(given)


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with the home folder in place of ``~``; without such a home it stays as it is.

    >>> expanded("photos/~")
    PosixPath('photos/~')

    Raises:
        DataError: It can be none (:func:`require_path`).
    """
    require_path(str(path))
    return Path(os.path.expanduser(path))


def require_path(text: str, whose: str = "") -> None:
    """Refuse a text that no file can be called, and an empty one, which would be this folder.

    Args:
        text: The path as it was given.
        whose: What takes it, for the message; empty where that says nothing.

    Raises:
        DataError: It is one.
    """
    where = f"{whose}: " if whose else ""
    if not text:
        raise DataError(f"{where}the path is empty", "give the path of a file or a folder")
    if "\0" in text:
        raise DataError(f"{where}no path can be called {shown(text)}", "leave the NUL character out")
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError as error:  # half a letter, as JSON may hold
        raise DataError(f"{where}no path can be called {shown(text)}", "write it in UTF-8") from error
    is_long = len(encoded) > _LONGEST_PATH or len(max(encoded.split(b"/"), key=len)) > _LONGEST_NAME
    # some file systems allow more
    if is_long and not os.path.lexists(text):
        raise DataError(
            f"{where}{shown(text)} is too long for a path",
            "shorten it; if it is an encoded image, decode it and give the bytes",
        )


def expands_paths(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function take paths that begin with ``~``: in each parameter whose annotation names ``Path``.

    A shell expands them only where they stand alone, as in ``--out ~/run``; not in ``--out=~/run``, and
    Python never does. Where a parameter takes paths, a number, a text, a switch or a dict alone, anything
    else is refused (:class:`ConfigError`), as are a keyword that is no parameter, an argument that is missing
    and one by position that has to be named; and what cannot be a path is (:func:`require_path`). A
    ``torch.device`` is a text, and so is a number as ``device``.
    """
    signature = inspect.signature(function)
    names = [name for name, one in signature.parameters.items() if "Path" in str(one.annotation)]
    kinds = [one.kind for one in signature.parameters.values()]
    options = "options go by their names: **options" if inspect.Parameter.VAR_KEYWORD in kinds else _IN_A_FILE
    alone = [name for name in names if signature.parameters[name].annotation in _PATHS_ALONE]
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    plain = [
        one for one in signature.parameters.values() if _kind_of(one) in _PLAIN and one.kind not in several
    ]

    @wraps(function)
    def with_paths(*args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function with ``~`` expanded in the arguments that are paths."""
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                _require_known(kwargs, signature.parameters, function.__name__)
            _require_named(signature, args)
            _require_given(signature, args, kwargs)
            return function(*args, **kwargs)  # it knows best which argument is wrong
        for name in alone:
            given = bound.arguments.get(name, "")
            if hasattr(given, function.__name__):  # an open model in place of its folder
                raise ConfigError(
                    f"{name}: expected a folder but got a {type(given).__name__}",
                    f"call its method: {name}.{function.__name__}(...)",
                )
            wanted = _WANTED.get(function.__name__, _A_PATH)
            _require_paths(name, signature.parameters[name], given, options, wanted)
        for one in plain:
            if one.name in bound.arguments:
                read = as_device if one.name == "device" else device_name
                given = bound.arguments[one.name] = read(bound.arguments[one.name])
                bound.arguments[one.name] = _require_plain(one, given)
        for name in names:
            if name in bound.arguments:
                given = bound.arguments[name]
                # a list may hold labels beside its paths
                for one in given if signature.parameters[name].kind in several else [given]:
                    if isinstance(one, str | os.PathLike):
                        require_path(str(one), name)
                bound.arguments[name] = _expanded_in(given)
        return function(*bound.args, **bound.kwargs)

    return with_paths


def _require_known(given: Iterable[str], parameters: Iterable[str], function: str) -> None:
    """Refuse a keyword argument that a function does not have.

    Raises:
        ConfigError: There is one.
    """
    known = [name for name in parameters if name != "self"]
    for name in given:
        if name not in known:
            if meant := _ELSEWHERE.get((function, name)):
                raise ConfigError(f"{name}: no such argument", meant)
            raise ConfigError(
                f"{name}: no such argument{nearest(name, known)}", f"it takes {', '.join(known)}"
            )


def _require_named(signature: inspect.Signature, args: Sequence[Any]) -> None:
    """Refuse arguments by position that a function takes by name alone.

    Raises:
        ConfigError: There is one.
    """
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    by_name = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    by_position = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    several = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    given = len(args) - ("self" in signature.parameters)
    if by_name and given > len(by_position) and not several:
        raise ConfigError(
            f"got {given} arguments by position, of which it takes {len(by_position)} "
            f"({', '.join(by_position)})",
            f"name the others: {', '.join(f'{name}=' for name in by_name)}",
        )


def _require_given(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a call without an argument that a function has to be given.

    Raises:
        ConfigError: One is missing.
    """
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError:  # too many arguments, or one twice
        return
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [one for one in signature.parameters.values() if one.default is one.empty]
    missing = [one.name for one in needed if one.kind not in variable and one.name not in given]
    if missing:
        raise ConfigError(f"{missing[0]}: the argument is missing", f"give {missing[0]}=...")


def _require_paths(name: str, parameter: inspect.Parameter, given: Any, mapped: str, wanted: str) -> None:
    """Refuse what is no path where a function takes paths alone.

    Args:
        name: The parameter's name.
        parameter: The parameter.
        given: What it was given.
        mapped: What to do with a mapping.
        wanted: What to give.

    Raises:
        ConfigError: It is none.
    """
    several = parameter.kind is inspect.Parameter.VAR_POSITIONAL
    for one in given if several and given else [given]:
        if isinstance(one, str | os.PathLike) or (one is None and "None" in parameter.annotation):
            continue
        remedy = wanted
        if several and isinstance(one, list | tuple) and one:  # an empty list has none to give
            remedy = f"give each as an argument of its own: *{name}"
        elif isinstance(one, Mapping):
            remedy += f"; {mapped}"
        raise ConfigError(f"{name}: expected a path but got {shown(one)}", remedy)


def _kind_of(parameter: inspect.Parameter) -> str:
    """Return the annotation of a parameter without a None that is added."""
    return str(parameter.annotation).removesuffix(" | None")


def _require_plain(parameter: inspect.Parameter, given: Any) -> Any:
    """Return a number, text, switch or dict that a function takes alone; numpy's numbers become Python's.

    Raises:
        ConfigError: It is none.
    """
    kind = _kind_of(parameter)
    if given is None and kind != parameter.annotation:
        return None
    type_, meant = _PLAIN[kind]
    is_switch = type(given).__name__ in ("bool", "bool_")  # numpy's, too: True is a number to Python
    if is_switch != (kind == "bool") or not (is_switch or isinstance(given, type_)):
        remedy = f"give {meant}"
        if parameter.default is None:
            remedy += ", or leave it out"
        elif parameter.default is not parameter.empty:
            remedy += f", as in {parameter.name}={parameter.default!r}"
        raise ConfigError(f"{parameter.name}: expected {meant} but got {shown(given)}", remedy)
    if type(given).__module__ == "numpy" and kind in _PYTHONS:
        return _PYTHONS[kind](given)  # files hold no others
    return given


def _expanded_in(given: Any) -> Any:
    """Return a path, or a list of them, expanded; anything else as it is.

    Raises:
        ConfigError: One is an address of the web.
    """
    if isinstance(given, list | tuple):
        return type(given)(map(_expanded_in, given))
    if is_web_address(given):
        raise ConfigError(f"{given!r} is an address", "download it first")
    if isinstance(given, str | os.PathLike) and str(given).startswith("~"):
        return expanded(given)
    return given


def path_order(path: Path) -> tuple[str, ...]:
    """Return by what paths are sorted: as paths are, whichever form their names have on this disk."""
    return tuple(map(composed, path.parts))
