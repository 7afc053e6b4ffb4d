"""Write docs/reference.md: what ``lw2g`` and ``lw2g.sklearn`` offer, and the names of ``lw2g.plugin``.

For the site docs/conf.py writes a page for every part with whole docstrings. Nothing is imported.

python scripts/write_reference.py            # write it
python scripts/write_reference.py --check    # exit 1 where it is out of date
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from docstrings import inline, markdown

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "reference.md"

RETURNED = (
    "lw2g/api/tabular.py",
    "plugins/lw2g_page/reporting.py",
    "lw2g/model/trained.py",
    "lw2g/model/answers.py",
)
"""The modules whose classes the functions of the root return."""

READ = RETURNED[:2]
"""Those of them whose classes a program reads: the page names their members alone."""

ESTIMATORS = (
    "plugins/lw2g_sklearn/continual_classifier.py",
    "plugins/lw2g_sklearn/feature_extractor.py",
)
"""The modules of ``lw2g.sklearn``."""

OF_SCIKIT_LEARN = frozenset(
    ("fit", "transform", "predict", "predict_proba", "predict_log_proba", "decision_function")
)
"""Methods that every estimator has, of which the page tells nothing new."""

HEAD = """# Reference

What programs call, a line each; `...` stands for arguments by keyword. In Python `help(NAME)` has them and
the rest: types, shapes, units, errors, source. So has the site<!-- site: , [a page a
section](reference/index.md) -->. How it fits together: [Python](howto/python.md), [writing a
plugin](plugins.md); what holds across releases: [compatibility](compatibility.md).
"""
END = """\
Rests on: the docstrings, from which `scripts/write_reference.py` writes these pages.
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


def root_names() -> Iterator[tuple[Definition, str]]:
    """Yield the functions and errors of ``import lw2g``, from the modules that its table names."""
    homes: dict[str, str] = assigned("lw2g/__init__.py", "_HOMES")
    for name, module in homes.items():
        node, said = definitions(file_of(module))[name]
        assert isinstance(node, Definition)
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


def signature(node: ast.FunctionDef, *, typed: bool = False) -> str:
    """Return ``name(arguments)``, or ``name(argument: type) -> type``."""
    arguments = copy.deepcopy(node.args)
    each = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    for argument in each:
        if argument is not None and not typed:
            argument.annotation = None
    # a reader wants the name of the component, not that of the constant
    said = re.sub(r"=(DEFAULT_\w+)(?:\[(\d+)\])?", _named_default, ast.unparse(arguments))
    result = f" -> {ast.unparse(node.returns)}" if typed and node.returns is not None else ""
    return f"{node.name}({said}){result}"


def method(node: ast.FunctionDef, *, typed: bool = False) -> str:
    """Return how a method is called, or the name of a property."""
    if any(ast.unparse(one).endswith("property") for one in node.decorator_list):
        return node.name
    return re.sub(r"\((self|cls)(, )?", "(", signature(node, typed=typed), count=1)


def methods_of(node: Named) -> Iterator[tuple[ast.FunctionDef, str]]:
    """Yield the public methods and properties of a class, each with its docstring; none of anything else."""
    for child in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(child, ast.FunctionDef) and not child.name.startswith("_"):
            yield child, ast.get_docstring(child) or ""


def form(node: Named, *, typed: bool = False) -> str:
    """Return how a name is called or written: an estimator as programs make it, another class by its name."""
    if isinstance(node, ast.FunctionDef):
        return signature(node, typed=typed)
    if isinstance(node, ast.ClassDef):
        made = [child for child in node.body if getattr(child, "name", "") == "__init__"]
        if node.name in estimators():
            assert isinstance(made[0], ast.FunctionDef)
            called = method(made[0], typed=typed).removeprefix("__init__").removesuffix(" -> None")
            return f"{node.name}{called}"
        return f"class {node.name}"
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def brief(node: Named, said: str) -> Iterator[str]:
    """Yield one line for a name, and one for each method of a class that is its own."""
    told_of = f"- `{short(form(node))}`: {inline(said.splitlines()[0])}"
    if any((node, said) in definitions(path).values() for path in READ):
        members = ", ".join(f"`{short(method(child))}`" for child, _ in methods_of(node))
        yield f"{told_of} Members: {members}." if members else told_of
        return
    yield told_of
    known = OF_SCIKIT_LEARN if node in [own for own, _ in estimators().values()] else ()
    for child, told in methods_of(node):
        if child.name not in known:
            yield f"  - `{short(method(child))}`: {inline(told.splitlines()[0])}"


def short(called: str) -> str:
    """Return a call with three dots for the arguments that are given by keyword alone."""
    return re.sub(r"(\(|, )\*, .*\)$", r"\1...)", called)


def whole(name: str, node: Named, said: str) -> Iterator[str]:
    """Yield the lines of one name with its whole docstring, and those of each method of a class."""
    yield from (f"## {name}", "")
    if (shown := form(node, typed=True)) not in (name, f"class {name}"):
        yield from (f"`{shown}`", "")
    yield from markdown(said)
    for child, told in methods_of(node):
        yield from (f"### {name}.{child.name}", "")
        if (shown := method(child, typed=True)) != child.name:
            yield from (f"`{shown}`", "")
        yield from markdown(told)


@cache
def estimators() -> Mapping[str, tuple[Named, str]]:
    """Return the classes of ``lw2g.sklearn``."""
    return {name: definitions(path)[name] for path in ESTIMATORS for name in assigned(path, "__all__")}


def returned() -> Mapping[str, tuple[Named, str]]:
    """Return the classes that the functions of the root return."""
    # beside these stand functions of the root, and what a class is built of
    found = {name: definitions(path).get(name) for path in RETURNED for name in assigned(path, "__all__")}
    return {name: it for name, it in found.items() if it is not None and isinstance(it[0], ast.ClassDef)}


def parts_of_programs() -> Mapping[str, Mapping[str, tuple[Named, str]]]:
    """Return what programs call and get, by section."""
    return {
        "From Python": {node.name: (node, said) for node, said in root_names()},
        "What these functions return": returned(),
        "scikit-learn": estimators(),
    }


def parts_of_authors() -> Mapping[str, Mapping[str, tuple[Named, str]]]:
    """Return the names of ``lw2g.plugin``, by section."""
    return {
        title: {name: definitions(file_of(module))[name] for module, names in part.items() for name in names}
        for title, part in authors_names().items()
    }


def page_of(title: str) -> str:
    """Return the name of a section's page, as of its heading."""
    return re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))


def reference() -> str:
    """Return the whole committed page."""
    lines = [HEAD]
    for title, part in parts_of_programs().items():
        lines += [f"## {title}", ""]
        for node, said in part.values():
            lines += brief(node, said)
        lines.append("")
    lines += ["From here on: `from lw2g.plugin import NAME`.", ""]
    for title, part in authors_names().items():
        lines += [f"## {title}", ""]
        links = (f"[`{name}`](../{file_of(module)})" for module, names in part.items() for name in names)
        lines += [", ".join(links), ""]
    return "\n".join([*lines, END])


def write(folder: Path) -> None:
    """Write the pages with whole docstrings, and an index, into a folder that is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    index = ["# Docstrings", "", "Of every public name, by section.", "", "```{toctree}", ":maxdepth: 1", ""]
    for title, part in (parts_of_programs() | parts_of_authors()).items():
        lines = [f"# {title}", ""]
        for name, (node, said) in part.items():
            lines += whole(name, node, said)
        (folder / f"{page_of(title)}.md").write_text("\n".join(lines), encoding="utf-8")
        index.append(page_of(title))
    (folder / "index.md").write_text("\n".join([*index, "```", ""]), encoding="utf-8")


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
