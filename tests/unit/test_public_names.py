"""What authors import is one namespace, ``lw2g.plugin``; all of it exists, is documented and is used."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lw2g.plugin
from lw2g.interfaces.command import INSTALLATION
from lw2g.plugin import NAMES
from lw2g.registry.command_set import load_commands

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "write_reference.py"
MOST_NAMES = 230
PAGES = ("plugins.md", "howto/porting.md", "howto/python.md", "howto/backbone.md")
"""The pages from which authors copy."""
PRODUCTS = {
    "lw2g_datasets",
    "lw2g_hub",
    "lw2g_onnx",
    "lw2g_page",
    "lw2g_peft",
    "lw2g_photos",
    "lw2g_sklearn",
    "lw2g_store",
    "lw2g_testing",
}
"""Packages that are used as they are, which may import all of lw2g."""

if not SCRIPT.exists():
    pytest.skip("needs the source tree", allow_module_level=True)

WHERE = {name: module for part in NAMES.values() for module, names in part.items() for name in names}


@pytest.fixture(scope="module")
def script() -> Iterator[dict[str, Any]]:
    """The script's names, with its neighbours importable meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        yield runpy.run_path(str(SCRIPT))


def authors_files() -> list[Path]:
    """Return what is written as an author would: first-party packages, the templates and the example."""
    templates = (ROOT / "lw2g" / "api" / "scaffold" / "templates").rglob("*.py.tmpl")
    packages = [path for path in (ROOT / "plugins").rglob("*.py") if not PRODUCTS & set(path.parts)]
    example = (ROOT / "tests" / "example_plugin" / "src").rglob("*.py")
    return sorted([*templates, *packages, *example])


def imports_of(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the modules of lw2g that a text imports from, with the names; a template is no Python yet."""
    for module, names in re.findall(r"^\s*from (lw2g[\w.]*) import (\([^)]*\)|.+)$", text, re.MULTILINE):
        yield module, re.findall(r"\w+", re.sub(r"#.*", "", names))
    for module in re.findall(r"^\s*import (lw2g[\w.]*)", text, re.MULTILINE):
        yield module, []


def undocumented(name: str, thing: Any) -> Iterator[str]:
    """Yield a class or function, or the public methods of a class, that have no docstring of their own."""
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return
    if not (thing.__doc__ or "").strip() or (inspect.isclass(thing) and "__doc__" not in vars(thing)):
        yield name
    for attribute, value in vars(thing).items() if inspect.isclass(thing) else ():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not attribute.startswith("_") and inspect.isfunction(function) and not function.__doc__:
            yield f"{name}.{attribute}"


def unexplained(name: str, thing: Any) -> Iterator[str]:
    """Yield what an ``Args`` section names that the function does not take."""
    if not inspect.isfunction(thing) or "Args:\n" not in (thing.__doc__ or ""):
        return
    section = inspect.cleandoc(thing.__doc__).split("Args:\n", 1)[1].split("\n\n")[0]
    for line in section.splitlines():
        if line.startswith("    ") and not line.startswith("     "):
            named = {one.strip().lstrip("*") for one in line.partition(":")[0].split(",")}
            yield from (f"{name}: {one}" for one in named - set(inspect.signature(thing).parameters))


def test_every_name_exists_and_is_documented(script: dict[str, Any]) -> None:
    """Each name is defined in the module that the table names, with a docstring; so are its methods."""
    faults = []
    for name, module in WHERE.items():
        thing = getattr(lw2g.plugin, name)
        assert thing is getattr(importlib.import_module(module), name)
        _, said = script["definitions"](script["file_of"](module))[name]
        if not said:
            faults.append(name)
        faults += [*undocumented(name, thing), *unexplained(name, thing)]
    assert faults == []


def test_the_names_are_few_and_each_has_one_place() -> None:
    """A name stands once in the table, and their number grows by decision alone."""
    listed = [name for part in NAMES.values() for names in part.values() for name in names]
    assert sorted(listed) == sorted(set(listed)) == dir(lw2g.plugin)
    assert len(listed) <= MOST_NAMES


def test_type_checkers_see_the_same_names() -> None:
    """What is imported for type checkers is what the table says, each exported under its own name."""
    tree = ast.parse(Path(lw2g.plugin.__file__).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(guarded.test) == "TYPE_CHECKING"
    seen = {}
    for node in guarded.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name
            seen[alias.name] = node.module
    assert seen == WHERE


def test_another_name_is_refused_as_of_any_module() -> None:
    """A misspelt name is an ``AttributeError``, and an ``ImportError`` where it is imported."""
    with pytest.raises(AttributeError, match=r"module 'lw2g\.plugin' has no attribute 'Basline'"):
        lw2g.plugin.Basline  # noqa: B018
    with pytest.raises(ImportError, match=r"cannot import name 'Basline' from 'lw2g\.plugin'"):
        exec("from lw2g.plugin import Basline")


def test_the_namespace_is_lazy() -> None:
    """It imports nothing beyond what ``import lw2g`` does, and what a record needs imports no torch."""
    code = (
        "import sys, lw2g; before = set(sys.modules); import lw2g.plugin; "
        "print(*sorted(name for name in set(sys.modules) - before if name.startswith('lw2g'))); "
        "from lw2g.plugin import BaselineComponent, PresetFile, hookimpl, lazy, option; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["lw2g.plugin", "False"]


def test_authors_import_from_the_namespace_alone() -> None:
    """First-party packages, templates and the example have nothing of lw2g that a stranger would not have.

    The generated test takes its checks from ``lw2g.testing``, a command its options from
    ``lw2g.cli.authoring``.
    """
    beyond = []
    for path in authors_files():
        allowed = ["lw2g", "lw2g.plugin"]
        if path.name.startswith("test_"):
            allowed += ["lw2g.testing", "lw2g.cli.main"]
        if path.name == "command.py.tmpl":
            allowed.append("lw2g.cli.authoring")
        for module, names in imports_of(path.read_text(encoding="utf-8")):
            if module.split(".")[0] == "lw2g" and module not in allowed:
                beyond.append(f"{path.relative_to(ROOT)}: {module} {names}")
    assert beyond == []


def test_every_name_is_used_by_an_author() -> None:
    """No name is promised that no package, template or page for authors uses, and they use no other."""
    used = set()
    for path in authors_files():
        for module, names in imports_of(path.read_text(encoding="utf-8")):
            if module == "lw2g.plugin":
                used |= set(names)
    # what a template's placeholder stands for is the record of its kind
    assert used - WHERE.keys() == {"record"}
    pages = "\n".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES)
    unused = [name for name in WHERE if name not in used and not re.search(rf"`{name}\b", pages)]
    assert unused == []


def test_the_page_of_python_names_the_commands_without_a_function() -> None:
    """All of them: those outside one group by name, and none of that group has one."""
    text = (ROOT / "docs" / "howto" / "python.md").read_text(encoding="utf-8").replace("\n", " ")
    group = rf"and the group \*{INSTALLATION}\* of `lw2g --help` have no function"
    said = re.search(rf"((?:`\w+`,? )+){group}", text)
    assert said is not None
    entries = load_commands(third_party=False).entries
    functions = {*lw2g.__all__, "continue", "predict"}  # the one is a word of Python, the other a method
    lacking = {name: entry.command.group for name, entry in entries.items() if name not in functions}
    named = re.findall(r"\w+", said[1])
    assert set(named) == {name for name, group in lacking.items() if group != INSTALLATION}
    assert all(name in lacking for name, entry in entries.items() if entry.command.group == INSTALLATION)
