"""Files of ``torch.save``, read without running anything that is in them.

torch's own reader makes tensors and refuses every other object. A training checkpoint holds many of them
among its arguments (a number of numpy, a path, a namespace), and they are of no use here: each becomes an
empty stand-in, so that no class of the file is imported or called, whatever it is.
"""

from __future__ import annotations

import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch

from lw2g.errors import first_line

__all__ = ["load_pickled"]

_PICKLES = 4
"""Of a file older than torch 1.6: a mark, a version, facts of the system, and the object."""
_BUILTINS = {"__builtin__": "builtins"}
_REFUSED = re.compile(r"GLOBAL ([\w.]+)|<class '([\w.]+)'>|'(\w+)' object does not support")
"""How torch names what it refuses; the last is how those before 2.6 do of a table that is no plain dict."""


class _StandIn:
    """An object of a checkpoint that is not read."""

    def __new__(cls, *_: Any, **__: Any) -> _StandIn:
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, _state: object) -> None:
        pass


def load_pickled(path: Path) -> Any:
    """Return what a file of ``torch.save`` holds, on the CPU; objects that are no tensors are stand-ins.

    Args:
        path: The file.

    Raises:
        ValueError: It cannot be read; the message says why in one line.
        OSError: The system refuses it.
    """
    if _is_torchscript(path):
        raise ValueError("it is a TorchScript archive")
    stand_ins: list[Any] = []
    for module, name in _named_in(path):
        # torch knows an object by these two; its own come before those that are given here
        stand_ins.append(type(name, (_StandIn,), {"__module__": module, "__qualname__": name}))
    try:
        with torch.serialization.safe_globals(stand_ins), warnings.catch_warnings(), path.open("rb") as file:
            warnings.simplefilter("ignore")  # of old protocols
            # given a path in place of a file, torch would look at its suffix
            return torch.load(file, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # given text or noise, an unpickler may raise anything
        raise ValueError(_reason(error)) from error


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _named_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield module and name of each function and class in a file, each once, without opening them."""
    found = set()
    # of a damaged file torch.load, which comes next, says what is wrong
    with path.open("rb") as file, suppress(ValueError, zipfile.BadZipFile):
        for pickled in _pickles(file):
            for operation, argument, _ in pickletools.genops(pickled):
                # torch.save writes protocol 2, which names by GLOBAL alone
                if operation.name == "GLOBAL":
                    module, _, name = str(argument).partition(" ")
                    found.add((_BUILTINS.get(module, module), name))
    yield from sorted(found)


def _pickles(file: BinaryIO) -> Iterator[Any]:
    """Yield the pickles of a file, to be read one after the other."""
    if not zipfile.is_zipfile(file):
        file.seek(0)
        for _ in range(_PICKLES):
            yield file
        return
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            if name.endswith("/data.pkl"):
                with archive.open(name) as member:
                    yield member


def _reason(error: Exception) -> str:
    """Return why a file cannot be read, without torch's advice to read it all the same."""
    text = str(error)
    refused = _REFUSED.search(text)
    if refused:
        name = next(filter(None, refused.groups()))  # that of the alternative that fits
        return f"it holds {name!r}, which is not read from a file"
    if isinstance(error, pickle.UnpicklingError) or "weights_only" in text:
        return "it is damaged, or nothing that torch reads without running code of it"
    return first_line(error)
