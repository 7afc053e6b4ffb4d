"""Scripts of the repository as modules, which are gone again after the test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

__all__ = ["importing"]

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def importing(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[Callable[[str], ModuleType]]:
    """Yield what imports a script of a folder by name; others that it imports go with it."""
    before = set(sys.modules)
    patch.syspath_prepend(str(folder))
    yield importlib.import_module
    for name in sys.modules.keys() - before:
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file.startswith((f"{ROOT / 'experiments'}/", f"{ROOT / 'scripts'}/")):
            del sys.modules[name]
