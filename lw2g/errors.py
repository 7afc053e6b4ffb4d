"""The errors that lw2g raises for mistakes of users and plugin authors (bugs keep their tracebacks)."""

from __future__ import annotations

import difflib
import inspect
import os
import pkgutil
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

import attrs

__all__ = [
    "ComponentError",
    "ConfigError",
    "ContractError",
    "DataError",
    "EndedBySignal",
    "Interrupted",
    "Lw2gError",
    "PluginError",
    "UnknownComponentError",
    "as_word",
    "closest",
    "counted",
    "error_text",
    "first_line",
    "is_counted",
    "is_out_of_memory",
    "message_of",
    "misspelt",
    "near_name",
    "nearest",
    "no_folder",
    "no_image",
    "printable",
    "problems_in",
    "problems_of",
    "share_of",
    "shown",
    "with_remedy",
]


class Lw2gError(Exception):
    """Base of all errors; each is one line with a remedy.

    They are written with the options of commands; to a program they name arguments
    (:func:`lw2g.ground.asked.as_asked`).

    >>> str(DataError("no file 'x'", "check the path"))
    "no file 'x'; check the path"

    Attributes:
        what: What is wrong.
        remedy: What to do about it; may be empty.
        exit_code: The exit code of the command.
    """

    exit_code = 2

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        from lw2g.ground.asked import as_asked  # importing this module imports no other one of lw2g

        return as_asked(with_remedy(self.what, self.remedy))


class ConfigError(Lw2gError):
    """Arguments or options that cannot be used; each is named."""


class UnknownComponentError(ConfigError):
    """A component name that no loaded plugin registers."""


class PluginError(Lw2gError):
    """A plugin that cannot be loaded or registered; the message names its distribution and version."""


class ContractError(Lw2gError):
    """A component that breaks a promise of its interface; names the component and the promise.

    Attributes:
        component: Kind and name of the component, such as ``"policy 'min'"``; empty if unknown.
    """

    def __init__(self, what: str, remedy: str = "", component: str = "") -> None:
        super().__init__(what, remedy)
        self.component = component


class ComponentError(Lw2gError):
    """A component raised an error during a run; the message names plugin, component and method."""

    exit_code = 1


class DataError(Lw2gError):
    """Data, weights or run files that are missing, incomplete or altered."""


class EndedBySignal(BaseException):  # no error, as KeyboardInterrupt is none
    """A signal asked the process to end.

    Attributes:
        number: The signal's.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Interrupted(Exception):
    """A run was stopped on request and can be resumed.

    Attributes:
        directory: The run's directory.
        exit_code: The exit code of the command, as shells have it for Ctrl-C.
    """

    exit_code = 130

    def __init__(self, directory: Path) -> None:
        super().__init__(f"interrupted; resume with: lw2g resume {as_word(directory)}")
        self.directory = directory

    def __str__(self) -> str:
        from lw2g.ground.asked import as_asked  # as above

        return as_asked(super().__str__())


def with_remedy(what: str, remedy: str) -> str:
    """Return a problem and its remedy in one line."""
    if not remedy:
        return what
    return f"{what}; {remedy}"


_LONGEST = 200
"""The most letters of a value in a message, and the most bits of a number."""
_MISSING: dict[type[Exception], re.Pattern[str]] = {
    AttributeError: re.compile(
        r"(module '(?P<where>[\w.]+)'|'\w+' object) has no attribute '(?P<name>\w+)'$"
    ),
    ModuleNotFoundError: re.compile(r"No module named '(?P<where>[\w.]+)\.(?P<name>\w+)'$"),
    ImportError: re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<where>[\w.]+)'"),
    TypeError: re.compile(
        r"(?P<where>\w+)(\.__init__)?\(\) got an unexpected keyword argument '(?P<name>\w+)'$"
    ),
}
"""What Python says of a misspelt name: the name, and the module, class or function that lacks it."""
_NEAR = 0.65
"""How like a suggested name must be."""
_SHORTEST = 3
"""The length from which a name's beginning will do."""
_BEGUN = 0.4
"""The share of what was written that a name which begins it must be."""


def shown(value: object) -> str:
    """Return the ``repr`` of a value for a message, shortened if it is long.

    >>> shown("joint"), shown(10**4999)
    ("'joint'", 'a number of 16607 bits')
    """
    if isinstance(value, int) and value.bit_length() > _LONGEST:
        return f"a number of {value.bit_length()} bits"
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number with too many digits
        return f"a {type(value).__name__} that is too large to show"
    if "\n" in text:  # of a text there is none; a model's has three lines
        text = " ".join(text.split())
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST // 2]}... ({len(text)} characters)"


def error_text(error: BaseException, kind: str = "") -> str:
    """Return a component's error in one line: its class (or ``kind`` instead) and its message.

    >>> error_text(KeyError("x")), error_text(StopIteration())
    ("KeyError: 'x'", 'StopIteration')
    """
    try:
        text = " ".join(message_of(error).split())
    except Exception:  # raised by a plugin's __str__
        text = "(its message cannot be read)"
    kind = kind or type(error).__name__
    if not text:
        return kind
    return f"{kind}: {text}"


def message_of(error: BaseException) -> str:
    """Return an error's message; of a value that attrs refuses, without the description of its field.

    A misspelt import, attribute or keyword is told with the one that is meant.

    >>> message_of(ValueError("too small")), message_of(KeyError("x"))
    ('too small', "'x'")
    """
    if len(error.args) < 2 or not isinstance(error.args[1], attrs.Attribute):
        return _with_meant(str(error), error)
    said, field, *about = error.args
    if isinstance(error, ValueError) and len(about) == 2 and isinstance(about[1], str):
        known, given = about
        if not isinstance(known, str | re.Pattern):  # the values of which it has to be one
            names = [str(name) for name in known]
            listed = ", ".join(names)
            return f"{field.name} {given!r} is none of its values{nearest(given, names)}: {listed}"
    return str(said)


_TOO_FEW_COLUMNS = re.compile(r"Target \d+ is out of bounds\.")
"""What torch says of a label beyond the columns of the logits that a loss gets."""
_A_COLUMN_EACH = "a column for each class of the stream"


def _with_meant(text: str, error: BaseException) -> str:
    """Return an error's message, with the name that is meant where one is misspelt and another is near.

    >>> _with_meant("Target 2 is out of bounds.", IndexError())
    'Target 2 is out of bounds: logits have to be [B, num_classes], a column for each class of the stream'
    """
    if isinstance(error, IndexError) and _TOO_FEW_COLUMNS.fullmatch(text):
        return f"{text.removesuffix('.')}: logits have to be [B, num_classes], {_A_COLUMN_EACH}"
    for kind, pattern in _MISSING.items():
        missing = pattern.match(text)
        if isinstance(error, kind) and missing is not None:
            if missing["where"] is None:
                return text + near_name(missing["name"], getattr(error, "obj", None))
            hint = nearest(missing["name"], _names_of(missing["where"]))
            # behind the name, and not behind the path of the module
            return f"{missing[0]}{hint}" if hint else text
    return text


def _names_of(where: str) -> Iterable[str]:
    """Return the names in a module, or the arguments of what authors of plugins import and call."""
    if where in sys.modules:
        module = sys.modules[where]
        files = [part.name for part in pkgutil.iter_modules(getattr(module, "__path__", []))]
        return [*dir(module), *files]
    called = getattr(sys.modules.get("lw2g.plugin"), where, None)
    return () if called is None else inspect.signature(called).parameters


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; its class where it has none."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error reports that no memory is left."""
    if isinstance(error, MemoryError):
        return True
    # torch's own by its name, because this module must not import torch
    if any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__):
        return True
    return "can't allocate memory" in str(error)  # its CPU allocator raises a plain RuntimeError


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the right form.

    >>> counted(1, "image"), counted(0, "training class"), counted(2, "copy")
    ('1 image', '0 training classes', '2 copies')
    """
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{number} {noun[:-1]}ies"
    if noun.endswith(("s", "x")):
        return f"{number} {noun}es"
    return f"{number} {noun}s"


def is_counted(images: int) -> bool:
    """Return whether images are so few that a per cent says more than they do."""
    return images < 10


def share_of(percent: float, images: int, digits: int = 0) -> str:
    """Return how many of some images, in per cent or, of fewer than ten, counted.

    >>> share_of(66.67, 3), share_of(66.67, 30), share_of(66.67, 30, digits=1)
    ('2 of 3', '67 %', '66.7 %')
    """
    if is_counted(images):
        return f"{round(percent * images / 100)} of {images}"
    return f"{percent:.{digits}f} %"


def as_word(path: object) -> str:
    """Return a path as one word of a command line, in quotes where a shell needs them.

    >>> as_word("runs/first"), as_word("my runs")
    ('runs/first', "'my runs'")
    """
    return shlex.quote(str(path))


def nearest(name: str, known: Iterable[str], near: float = _NEAR) -> str:
    """Return ``" (did you mean 'x'?)"`` for a known name that is close, begins so or begins what was written.

    Of none it is an empty string.

    Args:
        name: What was written.
        known: The names that there are.
        near: How alike a close one must be, from 0 to 1.

    >>> nearest("hide-promt", ["hide-prompt", "dual-prompt"]), nearest("der", ["hide-lora"])
    (" (did you mean 'hide-prompt'?)", '')
    >>> nearest("LDA", ["lda", "ridge"]), nearest("ant", ["ANT"])
    (" (did you mean 'lda'?)", " (did you mean 'ANT'?)")
    >>> nearest("minimum", ["max", "min"]), nearest("mini-imagenet", ["max", "min"])
    (" (did you mean 'min'?)", '')
    """
    match = closest(name, known, near)
    if match is None:
        return ""
    return f" (did you mean {match!r}?)"


def near_name(name: str, owner: object) -> str:
    """Return ``"; it has 'x'"`` for what an object has of nearly a name that it lacks, or nothing."""
    names = [one for one in dir(owner) if not one.startswith("__")]
    match = closest(name, names)
    return "" if match is None else f"; it has {match!r}"


def closest(name: str, known: Iterable[str], near: float = _NEAR) -> str | None:
    """Return the name that is most alike, else one that begins with what was written, or that begins it."""
    names = {other.lower(): other for other in known}
    lowered = name.lower()
    alike = difflib.get_close_matches(lowered, names, n=1, cutoff=near)
    if alike:
        return names[alike[0]]
    if len(name) >= _SHORTEST:
        for other in names:
            if other.startswith(lowered):
                return names[other]
    begun = [other for other in names if len(other) >= _SHORTEST and lowered.startswith(other)]
    longest = max(begun, key=len, default="")
    # a short name that begins a much longer one says little: "min" is meant by minimum, not by mini-imagenet
    return names[longest] if len(longest) >= _BEGUN * len(name) and longest else None


def problems_in(where: str, problems: Iterable[str]) -> str:
    """Return all problems, each once and on its own line.

    >>> problems_in("the cells", ["a", "a"])
    'a'
    """
    lines = list(dict.fromkeys(problems))
    if len(lines) == 1:
        return lines[0]
    return "\n  ".join([f"{len(lines)} problems in {where}:", *lines])


def problems_of(text: str) -> list[str]:
    """Return the problems that :func:`problems_in` has put together; of any other text that alone.

    >>> problems_of(problems_in("the cells", ["a", "b"])), problems_of("a")
    (['a', 'b'], ['a'])
    """
    first, *others = text.split("\n  ")
    return others if others and first.endswith(":") and " problems in " in first else [text]


def no_image(path: str | Path) -> str:
    """Return that there is no such file or folder of images, or which one in its place has a name like it.

    >>> no_image("photographs/dgo.jpg")
    "no image file at 'photographs/dgo.jpg'"
    """
    return f"no image file at {str(path)!r}{misspelt(Path(path), folders=False)}"


def no_folder(path: str | Path) -> str:
    """Return that there is no such folder, but a file, or which one in its place has a name like it."""
    missing = Path(path)
    if os.path.isfile(missing):
        return f"{str(path)!r} is a file and no folder"
    return f"no folder {str(path)!r}{misspelt(missing, folders=True)}"


def misspelt(missing: Path, *, folders: bool) -> str:
    """Return ``" (did you mean 'x'?)"`` for a folder, or what else, with a name like one that is missing."""
    # of a place that does not exist, the part that does not is the misspelt one
    while not os.path.isdir(missing.parent):  # of a name that no system takes, too: then it is False
        missing = missing.parent
    try:
        names = [child.name for child in os.scandir(missing.parent) if child.is_dir() or not folders]
    except OSError:  # a folder that may not be listed
        names = []
    near = closest(missing.name, names)
    return "" if near is None else f" (did you mean {str(missing.parent / near)!r}?)"


def printable(text: str, *, lines: bool = False) -> str:
    """Return text with control characters escaped; ``lines`` keeps line ends.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    escaped = []
    for letter in text:
        if letter.isprintable() or (lines and letter == "\n"):
            escaped.append(letter)
        else:  # an escape sequence from a stranger's file would command the terminal
            escaped.append(letter.encode("unicode_escape").decode("ascii"))
    return "".join(escaped)
