"""Write docs/reference.md: the functions of ``lw2g``, the names of ``lw2g.sklearn`` and of ``lw2g.plugin``.

Nothing is imported.

python scripts/write_reference.py            # write it
python scripts/write_reference.py --check    # exit 1 where it is out of date
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from docstrings import inline

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "reference.md"

RETURNED = (
    "lw2g/api/tabular.py",
    "plugins/lw2g_page/reporting.py",
    "lw2g/model/trained.py",
    "lw2g/model/answers.py",
)
"""The modules whose classes the functions of the root return."""

ESTIMATORS = (
    "plugins/lw2g_sklearn/continual_classifier.py",
    "plugins/lw2g_sklearn/feature_extractor.py",
)
"""The modules of ``lw2g.sklearn``."""

CONTRACTS = ("lw2g.interfaces.", "lw2g.registry.")
"""How the names of modules begin whose classes are contracts, of which each method is listed."""

HEAD = """# Reference

Every public name in one line: how it is called, and the first sentence of its docstring. In Python
`help(NAME)` has the rest: types, shapes, units, errors, source, and the methods of parts. Programs `import
lw2g`, plugins `from lw2g.plugin import NAME`. How it fits together: [Python](howto/python.md), [writing a
plugin](plugins.md); what holds across releases: [compatibility](compatibility.md).

Rests on: the docstrings, from which `scripts/write_reference.py` writes this page.
"""

Definition = ast.FunctionDef | ast.ClassDef
Named = Definition | ast.Assign | ast.AnnAssign


@cache
def tree_of(path: str) -> ast.Module:
    """Return what a file of the repository says."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


@cache
def file_of(module: str) -> str:
    """Return the file of a module, below the root of the repository."""
    path = module.replace(".", "/")
    if path.startswith("lw2g_"):
        path = f"plugins/{path}"
    if (ROOT / path).is_dir():
        return f"{path}/__init__.py"
    return f"{path}.py"


def assigned(path: str, name: str) -> Any:
    """Return the value of a constant that a module writes out."""
    node = definitions(path)[name][0]
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    assert node.value is not None
    return ast.literal_eval(node.value)


def authors_names() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return the names of ``lw2g.plugin``, by part and by module."""
    names: Mapping[str, Mapping[str, tuple[str, ...]]] = assigned("lw2g/plugin.py", "NAMES")
    return names


@cache
def definitions(path: str) -> Mapping[str, tuple[Named, str]]:
    """Return the classes, functions and constants of a module, each with its docstring."""
    found: dict[str, tuple[Named, str]] = {}
    body = []
    for node in tree_of(path).body:
        # of a name that type checkers see otherwise: what Python itself reads
        body += node.orelse if isinstance(node, ast.If) else [node]
    for node, following in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(node, Definition):
            found[node.name] = (node, inspect.cleandoc(ast.get_docstring(node) or ""))
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            said = ""
            # of a constant: the text that stands below it
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                said = inspect.cleandoc(str(following.value.value))
            found[ast.unparse(target)] = (node, said)
    return found


def root_functions() -> Iterator[tuple[ast.FunctionDef, str]]:
    """Yield the functions of ``import lw2g``, from the modules that its table names."""
    homes: dict[str, str] = assigned("lw2g/__init__.py", "_HOMES")
    for name, module in homes.items():
        node, said = definitions(file_of(module))[name]
        assert isinstance(node, ast.FunctionDef)
        yield node, said


@cache
def component_defaults() -> dict[str, Any]:
    """Return the components that lw2g takes where nobody chooses, by the constants that name them."""
    path = "lw2g/interfaces/defaults.py"
    return {name: assigned(path, name) for name in definitions(path) if name.startswith("DEFAULT_")}


def _named_default(found: re.Match[str]) -> str:
    """Return the default that a constant names, or one entry of it."""
    name, place = found.groups()
    value = component_defaults()[name]
    return f"={value!r}" if place is None else f"={value[int(place)]!r}"


def signature(node: ast.FunctionDef) -> str:
    """Return ``name(arguments)`` without types, which ``help`` shows."""
    arguments = copy.deepcopy(node.args)
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            rest.annotation = None
    # a reader wants the name of the component, not that of the constant
    said = re.sub(r"=(DEFAULT_\w+)(?:\[(\d+)\])?", _named_default, ast.unparse(arguments))
    return f"{node.name}({said})"


def method(node: ast.FunctionDef) -> str:
    """Return how a method is called, or the name of a property."""
    if any(ast.unparse(one).endswith("property") for one in node.decorator_list):
        return node.name
    return re.sub(r"\((self|cls)(, )?", "(", signature(node), count=1)


def sentence(said: str) -> str:
    """Return the first sentence of a docstring as Markdown."""
    return inline(said.splitlines()[0])


def members(node: ast.ClassDef) -> Iterator[str]:
    """Yield one line for every public method and property."""
    for child in node.body:
        if isinstance(child, ast.FunctionDef) and not child.name.startswith("_"):
            yield f"  - `{method(child)}`: {sentence(ast.get_docstring(child) or '')}"


def form(node: Named) -> str:
    """Return how a name is called or written."""
    if isinstance(node, ast.FunctionDef):
        return signature(node)
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def entry(node: Named, said: str, *, listed: bool = True) -> Iterator[str]:
    """Yield one line for a name, and one for each method of a class whose methods are `listed`."""
    yield f"- `{form(node)}`: {sentence(said)}"
    if listed and isinstance(node, ast.ClassDef):
        yield from members(node)


def estimator_entry(node: Named, said: str) -> Iterator[str]:
    """Yield the lines of a class that programs make: how it is called, not what it derives from."""
    assert isinstance(node, ast.ClassDef)
    (made,) = (
        child for child in node.body if isinstance(child, ast.FunctionDef) and child.name == "__init__"
    )
    yield f"- `{node.name}{method(made).removeprefix('__init__')}`: {sentence(said)}"
    yield from members(node)


def reference() -> str:
    """Return the whole page."""
    lines = [HEAD, "## From Python", ""]
    for node, said in root_functions():
        lines += entry(node, said)
    lines += ["", "## What these functions return", ""]
    for path in RETURNED:
        for name in assigned(path, "__all__"):
            # beside the classes stand functions of the root, and what a class is built of
            node, said = definitions(path).get(name, (None, ""))
            if isinstance(node, ast.ClassDef):
                lines += entry(node, said)
    lines += [
        "",
        "## scikit-learn",
        "",
        "`from lw2g.sklearn import NAME` ([how to](howto/scikit-learn.md)).",
        "",
    ]
    for path in ESTIMATORS:
        for name in assigned(path, "__all__"):
            lines += estimator_entry(*definitions(path)[name])
    for title, modules in authors_names().items():
        lines += ["", f"## {title}", ""]
        for module, names in modules.items():
            for name in names:
                lines += entry(*definitions(file_of(module))[name], listed=module.startswith(CONTRACTS))
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Write the page, or check it."""
    text = reference()
    if "--check" in sys.argv[1:]:
        current = TARGET.read_text(encoding="utf-8") if TARGET.exists() else ""
        if current != text:
            print(f"{TARGET.name} is out of date; run python scripts/write_reference.py", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
