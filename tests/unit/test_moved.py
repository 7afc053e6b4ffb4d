"""Old names of public modules: importable for one minor version, with a warning that names the heir."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from lw2g.moved import MOVED, MOVED_NAMES

CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """No old name has been imported yet, and none stays."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name in MOVED or name.startswith("lw2g.training"):
            del sys.modules[name]


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_is_importable_and_names_its_heir(old: str) -> None:
    """What the heir promises is found under the old name: the same objects, after a warning at the import."""
    heir = import_module(MOVED[old])
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old]}"):
        module = import_module(old)
    for name in heir.__all__:
        assert getattr(module, name) is getattr(heir, name)


@pytest.mark.parametrize("old", MOVED_NAMES)
def test_a_name_that_left_its_module_is_importable_and_names_its_heir(old: str) -> None:
    """The import gives the heir after a warning at its line; a name that never was stays an ImportError."""
    place, _, name = old.rpartition(".")
    found: dict[str, object] = {}
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED_NAMES[old]}") as caught:
        exec(compile(f"from {place} import {name}", "theirs.py", "exec"), found)
    assert caught[0].filename == "theirs.py"
    heir_place, _, heir = MOVED_NAMES[old].rpartition(".")
    assert found[name] is getattr(import_module(heir_place), heir)
    with pytest.raises(ImportError, match="Nonsense"):
        exec(f"from {place} import Nonsense")


def test_the_warning_is_of_the_line_that_imports() -> None:
    """The warning stands at the import statement, so that its author sees it."""
    with pytest.warns(DeprecationWarning, match="is now") as caught:
        exec(compile("from lw2g.blocks.preprocessing import Preprocessing", "theirs.py", "exec"), {})
    assert caught[0].filename == "theirs.py"


def test_no_other_old_name_is_found() -> None:
    """A module that was never public has no heir, and a wrong name stays a plain ImportError."""
    for name in ("lw2g.training.session", "lw2g.blocks.nonsense"):
        with pytest.raises(ModuleNotFoundError, match=name):
            import_module(name)


def test_the_changelog_names_every_heir() -> None:
    """The table of the changelog has a row for each module that has moved."""
    text = CHANGELOG.read_text(encoding="utf-8")
    for old, new in (MOVED | MOVED_NAMES).items():
        assert f"| `{old}` | `{new}` |" in text
