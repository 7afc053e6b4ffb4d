"""``import lw2g`` costs nothing: each function comes when it is asked for."""

from __future__ import annotations

import ast
import json
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import lw2g


def loaded(code: str) -> set[str]:
    """Return the modules that a new process has imported after some code."""
    code += "\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def of_lw2g(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "lw2g"}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import lw2g", {"lw2g"}),
        ("import lw2g.errors", {"lw2g", "lw2g.errors"}),
        ("import lw2g\nassert 'run' in dir(lw2g)", {"lw2g"}),
        ("from lw2g import __version__", {"lw2g"}),
    ],
)
def test_a_module_is_imported_alone(code, expected):
    """Neither the root nor ``lw2g.errors`` imports another module of lw2g."""
    assert of_lw2g(loaded(code)) == expected


def test_a_function_of_the_root_imports_neither_torch_nor_a_plugin():
    """Not even all of them."""
    imported = loaded("from lw2g import *\nassert callable(run) and callable(learn)")
    assert "torch" not in imported
    packages = {name.partition(".")[0] for name in imported if name.startswith("lw2g_")}
    assert packages == {
        "lw2g_hub",
        "lw2g_onnx",
        "lw2g_page",
        "lw2g_photos",
        "lw2g_store",
    }  # products; no component


def test_a_star_imports_all_names_of_authors():
    """Not those alone that happen to be loaded."""
    loaded("from lw2g.plugin import *\nassert issubclass(Baseline, object) and option and hookimpl")


def test_every_promised_name_is_the_function_of_that_name():
    """The table, ``__all__``, ``dir`` and what type checkers read agree."""
    names = set(lw2g.__all__) - {"__version__"}
    assert names == set(lw2g._HOMES)
    assert {*names, "__version__"} == set(dir(lw2g))
    for name in names:
        assert getattr(lw2g, name).__name__ == name
    tree = ast.parse(Path(lw2g.__file__).read_text())
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    homes = {}
    for node in typed.body:
        assert isinstance(node, ast.ImportFrom)
        homes |= {alias.name: node.module for alias in node.names}
    assert homes == lw2g._HOMES


def test_help_lists_the_functions():
    """As ``help(lw2g)`` in Python prints them."""
    text = pydoc.plain(pydoc.render_doc(lw2g))
    assert all(f"    {name}(" in text or f"class {name}(" in text for name in lw2g._HOMES)


def test_a_name_that_is_none_is_told_as_python_does():
    """An AttributeError, so that ``hasattr`` works; ``from lw2g import`` makes it an ImportError."""
    with pytest.raises(AttributeError, match="module 'lw2g' has no attribute 'rnu'"):
        lw2g.rnu  # noqa: B018
    with pytest.raises(AttributeError, match=r"'predict'; a model has it: lw2g\.load\(MODEL\)\.predict"):
        lw2g.predict  # noqa: B018
    with pytest.raises(AttributeError, match=r"'show'; print\(lw2g\.load\(MODEL\)\) in Python, lw2g show"):
        lw2g.show  # noqa: B018
    with pytest.raises(AttributeError, match=r"'laod' \(did you mean 'load'\?\)"):
        lw2g.laod  # noqa: B018
    assert not hasattr(lw2g, "__path_of__")
    with pytest.raises(ImportError, match="rnu"):
        exec("from lw2g import rnu")
