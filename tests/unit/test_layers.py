"""The layers of the package: what may import what, and that every test says what it promises."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The layers of lw2g, from the ground up: each may import only itself and those before it.
LAYERS = (
    "ground",  # with the module lw2g/errors.py
    "maths",
    "vit",
    "interfaces",
    "blocks",
    "registry",
    "config",
    "runtime",
    "pixels",
    "disk",
    "model",
    "learning",
    "lifecycle",
    "results",
    "sweeps",
    "api",
    "cli",
)
LEVEL = {name: level for level, name in enumerate(LAYERS)} | {"errors": 0}
DOORS = ("__init__", "__main__", "plugin", "sklearn", "testing")
"""Modules beside the layers, by which programs, the shell and plugins come in; no layer imports them."""
PRODUCTS = (
    "lw2g_sklearn",
    "lw2g_peft",
    "lw2g_testing",
    "lw2g_datasets",
    "lw2g_store",
    "lw2g_page",
    "lw2g_photos",
    "lw2g_onnx",
    "lw2g_hub",
)
"""Packages under plugins that are used as they are: each may import the core and those before it."""
FOR_COMMANDS = (
    "lw2g.errors",
    "lw2g.ground",
    "lw2g.runtime.console",
    "lw2g.runtime.progress_display",
    "lw2g.runtime.telling",
    "lw2g.api",
)
"""What a command may import beside its own package."""
FINDS_COMMANDS = ("main.py", "own_commands.py")
"""Modules of ``cli`` that find commands: they import the record, and what looks for installed packages."""


def modules(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.py") if "__pycache__" not in path.parts]


def statements(tree: ast.AST, is_guarded: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Yield all statements below a node, each with whether it is for type checkers alone.

    Expressions are most of a tree, and hold no statement.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue
        is_inner = is_guarded
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            is_inner = True
        yield node, is_inner
        yield from statements(node, is_inner)


@cache
def read_imports(path: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return what :func:`imported` and :func:`mentioned` return."""
    at_run_time = set()
    from_anywhere = set()
    for node, is_guarded in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import) and not is_guarded:
            at_run_time |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            from_anywhere.add(node.module)
            if not is_guarded:
                at_run_time.add(node.module)
    return frozenset(at_run_time), frozenset(from_anywhere)


def imported(path: Path) -> frozenset[str]:
    """Return the full names that a module imports outside TYPE_CHECKING blocks."""
    return read_imports(path)[0]


def mentioned(path: Path) -> frozenset[str]:
    """Return the full names of all modules that a module imports from, for type checkers alone too."""
    return read_imports(path)[1]


@pytest.mark.parametrize("path", modules(ROOT / "lw2g"), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_lower_layers(path: Path) -> None:
    """The direction is that of LAYERS, for type checkers too."""
    parts = path.relative_to(ROOT / "lw2g").with_suffix("").parts
    if parts[0] in DOORS:
        return
    own = LEVEL[parts[0]]
    for name in imported(path) | mentioned(path):
        if name.startswith("lw2g."):
            layer = name.split(".")[1]
            assert layer not in DOORS, f"{path.name} imports {name}"
            assert LEVEL[layer] <= own, f"{path.name} imports {name}"


def test_commands_call_the_functions_of_the_api_alone() -> None:
    """A command parses, calls and prints: it imports nothing of what makes up the functions that it calls.

    For type checkers it may name the types of what they return.
    """
    of_products = [path for name in PRODUCTS for path in (ROOT / "plugins" / name).glob("*_command*.py")]
    for path in [*modules(ROOT / "lw2g" / "cli"), *of_products]:
        may = (*FOR_COMMANDS, "lw2g.cli")
        if path.name in FINDS_COMMANDS:
            may += ("lw2g.interfaces", "lw2g.registry")
        for name in imported(path):
            if name.startswith("lw2g."):
                assert name.startswith(may), f"{path.name} imports {name}"


def test_no_modules_import_each_other() -> None:
    """There is no circle of imports, not even one that only type checkers would see."""
    graph = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): mentioned(path)
        for folder in ("lw2g", "plugins")
        for path in modules(ROOT / folder)
        if path.name != "__init__.py"
    }
    graph = {name.removeprefix("plugins."): names for name, names in graph.items()}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("path", modules(ROOT / "plugins"), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_plugin_imports_no_other(path: Path) -> None:
    """First-party plugins are third parties; test_public_names.py says what components import of lw2g.

    A product may use the products before it.
    """
    own = path.relative_to(ROOT / "plugins").parts[0]
    may: tuple[str, ...] = (own,)
    if own in PRODUCTS:
        may = PRODUCTS[: PRODUCTS.index(own) + 1]
    for name in imported(path):
        head = name.split(".")[0]
        assert not head.startswith("lw2g_") or head in may, f"{path.name} imports {name}"


def test_the_core_imports_no_plugin() -> None:
    """lw2g never imports a plugin, not even as a default; its doors alone name the products' functions."""
    for path in modules(ROOT / "lw2g"):
        if path.stem in DOORS and path.parent.name == "lw2g":
            continue
        assert not any(name.startswith("lw2g_") for name in imported(path) | mentioned(path)), path


def test_there_are_at_most_seventeen_layers() -> None:
    """Every folder of lw2g is a layer, and a stranger can learn them."""
    folders = {
        path.name for path in (ROOT / "lw2g").iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert folders == set(LAYERS)
    assert len(LAYERS) <= 17


def test_a_name_of_a_file_stands_once() -> None:
    """Whoever reads the name of a module knows where it lies; options and plugin are in every plugin."""
    everywhere = {"__init__.py", "__main__.py", "plugin.py", "options.py"}
    found = Counter(path.name for folder in ("lw2g", "plugins") for path in modules(ROOT / folder))
    twice = {name for name, number in found.items() if number > 1}
    assert twice <= everywhere


def test_modules_stay_short() -> None:
    """No module is longer than 500 lines."""
    for folder in ("lw2g", "plugins"):
        for path in modules(ROOT / folder):
            assert len(path.read_text().splitlines()) <= 500, path


def test_every_test_says_what_it_promises() -> None:
    """Every test function has a docstring."""
    for path in modules(ROOT / "tests"):
        for node, _ in statements(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name}"


OPENING = ("open", "read_text", "write_text")


def _opens_text(call: ast.Call) -> bool:
    """Whether a call opens a text, of a path or of a file's name."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("read_text", "write_text"):
        return True
    is_builtin = isinstance(call.func, ast.Name) and call.func.id == "open"
    is_of_a_path = isinstance(call.func, ast.Attribute) and call.func.attr == "open"
    if not (is_builtin or is_of_a_path):
        return False
    places = call.args[1:2] if is_builtin else call.args[:1]
    modes = [*places, *(word.value for word in call.keywords if word.arg == "mode")]
    if not modes:
        return is_builtin
    mode = modes[0].value if isinstance(modes[0], ast.Constant) else None
    return isinstance(mode, str) and set(mode) <= set("rwaxt+")


@pytest.mark.parametrize("folder", ["lw2g", "plugins", "scripts", "tests/support"])
def test_every_text_that_is_opened_names_its_encoding(folder: str) -> None:
    """Without it a file means something else on a machine with another locale."""
    nameless = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not any(word in source for word in OPENING):
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call) or not _opens_text(node):
                continue
            # of a call with words in a table nobody can tell
            if not any(word.arg in ("encoding", None) for word in node.keywords):
                nameless.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert nameless == []
