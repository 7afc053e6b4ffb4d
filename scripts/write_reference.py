"""Write docs/reference.md from the docstrings of the public modules; nothing is imported.

python scripts/write_reference.py            # write it
python scripts/write_reference.py --check    # exit 1 where it is out of date
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from docstrings import inline, markdown

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "reference.md"

WHOLE = {
    "From Python": [
        "lw2g/api/__init__.py",
        "lw2g/api/models.py",
        "lw2g_photos/photographs.py",
        "lw2g/api/reading.py",
    ],
    "What a plugin offers": [
        *(
            f"lw2g/interfaces/{name}.py"
            for name in ["component", "options", "tables", "deviations", "dataset"]
        ),
        "lw2g/registry/markers.py",
    ],
    "Contracts": [
        f"lw2g/interfaces/{name}.py"
        for name in [
            "baseline",
            "phase",
            "batch",
            "context",
            "pool",
            "memory",
            "site",
            "scope",
            "head",
            "carry",
            "retrieval",
            "calibration",
            "growth",
            "evidence",
            "constraint",
            "stream",
            "vectors",
            "metric",
        ]
    ],
    "Testing": [
        "lw2g_testing/kit.py",
        *(f"plugins/lw2g_testing/{name}.py" for name in ["cases", "tiny", "evidence"]),
    ],
}
"""Parts with whole docstrings."""

BRIEF = {
    "Building blocks of baselines": [
        f"lw2g/blocks/{name}.py"
        for name in [
            "heads",
            "closed_form",
            "discriminants",
            "ridge",
            "spectrum",
            "random_maps",
            "carrying",
            "motions",
            "expert",
            "options",
            "schedules",
            "prefixes",
            "weighted_prefixes",
            "lora",
            "merging",
            "adapters",
            "statistics",
            "replay",
            "contrastive",
            "set_measures",
        ]
    ],
    "Building blocks of measures": ["lw2g/maths/comparisons.py"],
    "Building blocks of benchmarks": [
        "lw2g/blocks/presets.py",
        *(
            f"lw2g/pixels/{name}.py"
            for name in [
                "preprocessing",
                "resampling",
                "augmentation",
                "found_images",
                "image_files",
                "feature_files",
                "text_vectors",
            ]
        ),
    ],
    "The backbone and what is injected": [
        f"lw2g/vit/{name}.py"
        for name in [
            "backbone",
            "loading",
            "fingerprint",
            "anatomy",
            "pooling",
            "taps",
            "injection",
            "prefix",
            "tokens",
            "lora",
            "adapter",
            "parameters",
        ]
    ],
    "Geometry and metrics": [
        "lw2g/maths/moments.py",
        "lw2g/maths/subspace.py",
        "lw2g/maths/hindrance.py",
        "lw2g/maths/metrics.py",
    ],
    "Hypothesis strategies": ["lw2g_testing/strategies.py"],
    "Further functions of the commands": [
        f"lw2g/api/{name}.py"
        for name in ["check", "datasets", "doctor", "experiment", "plugins", "recorded", "teaching"]
    ],
    "What the functions return": ["lw2g/api/tabular.py"],
    "A trained model": ["lw2g/model/trained.py", "lw2g/model/answers.py"],
    "What a run would cost": ["lw2g/lifecycle/estimate.py"],
    "The classes of tasks": ["lw2g/interfaces/classes.py"],
    "Events of a run": ["lw2g/interfaces/tracker.py"],
    "Errors": ["lw2g/errors.py"],
}
"""Parts with one line for everything; ``help(...)`` has the rest."""

PUBLIC = tuple(path for parts in (WHOLE, BRIEF) for paths in parts.values() for path in paths)
"""The modules whose ``__all__`` is the public interface: what the deprecation policy covers."""

INTERNAL = (
    "lw2g/maths/normal_equations.py",
    "lw2g/pixels/feature_containers.py",
    "lw2g/pixels/stamps.py",
    "lw2g/pixels/stored_arrays.py",
    "lw2g/interfaces/defaults.py",
    *(
        f"lw2g/vit/{name}.py"
        for name in [
            "attention",
            "compiling",
            "layouts",
            "names",
            "plain",
            "products",
            "sizes",
            "stopping",
            "storage",
            "timm_models",
            "transformers_layouts",
            "weights",
        ]
    ),
)
"""Modules of the public packages that are nobody's to rely on."""

HEAD = """# Reference

Written by `scripts/write_reference.py` from the docstrings; change those, not this page. What stands here is
public: programs and plugins may rely on it as [compatibility](compatibility.md) says.
`help(NAME)` in Python says more of what has one line. How it fits together: [writing a plugin](plugins.md).
"""

Definition = ast.FunctionDef | ast.ClassDef


def public_names(tree: ast.Module) -> list[str]:
    """Return a module's ``__all__``."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


@cache
def component_defaults() -> dict[str, Any]:
    """Return the components that lw2g takes where nobody chooses, by the constants that name them."""
    tree = ast.parse((ROOT / "lw2g" / "interfaces" / "defaults.py").read_text(encoding="utf-8"))
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0])
            if name.startswith("DEFAULT_"):
                found[name] = ast.literal_eval(node.value)
    return found


def _named_default(found: re.Match[str]) -> str:
    """Return the default that a constant names, or one entry of it."""
    name, place = found.groups()
    value = component_defaults()[name]
    return f"={value!r}" if place is None else f"={value[int(place)]!r}"


def signature(node: ast.FunctionDef) -> str:
    """Return ``name(arguments) -> result`` without ``self``."""
    # a reader wants the name of the component, not that of the constant
    arguments = re.sub(r"=(DEFAULT_\w+)(?:\[(\d+)\])?", _named_default, ast.unparse(node.args))
    for first in ("self, ", "cls, "):
        arguments = arguments.removeprefix(first)
    arguments = "" if arguments in ("self", "cls") else arguments
    result = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"{node.name}({arguments}){result}"


def is_property(node: ast.FunctionDef) -> bool:
    """Whether a method is read like an attribute."""
    return any(ast.unparse(one).endswith("property") for one in node.decorator_list)


def docstring(node: Definition | ast.Module) -> str:
    """Return the docstring, indentation taken off."""
    return inspect.cleandoc(ast.get_docstring(node) or "")


def members(node: ast.ClassDef) -> Iterator[str]:
    """Yield one line for every public method and property."""
    for child in node.body:
        if isinstance(child, ast.FunctionDef) and not child.name.startswith("_"):
            shown = f"{child.name}" if is_property(child) else signature(child)
            yield f"- `{shown}`: {inline(docstring(child).splitlines()[0])}"


def entry(node: Definition) -> Iterator[str]:
    """Yield the lines of one class or function."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        yield f"#### class {node.name}" + (f"({bases})" if bases else "")
    else:
        yield f"#### {node.name}"
        yield ""
        yield f"`{signature(node)}`"
    yield ""
    yield from markdown(docstring(node))
    if isinstance(node, ast.ClassDef):
        listed = list(members(node))
        if listed:
            yield from (*listed, "")


def brief_entry(node: Definition) -> Iterator[str]:
    """Yield one line for a class or function, and one for each method."""
    shown = f"class {node.name}" if isinstance(node, ast.ClassDef) else signature(node)
    yield f"- `{shown}`: {inline(docstring(node).splitlines()[0])}"
    if isinstance(node, ast.ClassDef):
        yield from (f"  {line}" for line in members(node))


def module_section(path: str, *, whole: bool) -> Iterator[str]:
    """Yield the lines of one module."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    name = path.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
    yield f"### {name}"
    yield ""
    yield inline(docstring(tree).partition("\n\n")[0])
    yield ""
    public = set(public_names(tree))
    for node in tree.body:
        if isinstance(node, Definition) and node.name in public:
            yield from entry(node) if whole else brief_entry(node)
    if not whole:
        yield ""


def reference() -> str:
    """Return the whole page."""
    lines = [HEAD]
    for parts, whole in ((WHOLE, True), (BRIEF, False)):
        for title, paths in parts.items():
            lines += [f"## {title}", ""]
            for path in paths:
                lines += module_section(path, whole=whole)
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
