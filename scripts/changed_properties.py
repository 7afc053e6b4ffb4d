"""Name the test modules whose properties rest on packages that have changed since a commit, a line each.

    python scripts/changed_properties.py [COMMIT]      # all of them where COMMIT is missing or empty

A module rests on the layers of ``lw2g`` and the packages of ``plugins/`` that it imports itself, on its own
file, and on what all tests share.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_PROPERTY = ("@given", "RuleBasedStateMachine")
"""What a module with a property holds one of."""
_SHARED = ("tests/conftest.py", "tests/support")
"""What all tests share."""


def _package(path: str) -> str:
    """Return the layer or plugin that a file of the repository belongs to; a test stands for itself."""
    if path.startswith(_SHARED):
        return "shared"
    parts = Path(path).with_suffix("").parts
    if parts[0] == "lw2g":
        return ".".join(parts[:2])
    if parts[0] == "plugins" and len(parts) > 1:
        return parts[1]
    return path


def _imported(module: ast.Module) -> set[str]:
    """Return the layers and plugins that a module imports."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            depth = 2 if name.startswith("lw2g.") else 1
            found.add(".".join(name.split(".")[:depth]))
    return found


def changed_packages(commit: str) -> set[str]:
    """Return the layers, plugins and other files that differ from a commit."""
    command = ["git", "-C", str(ROOT), "diff", "--name-only", commit]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    return {_package(path) for path in listed.splitlines()}


def property_modules() -> dict[str, set[str]]:
    """Return what each module of tests with a property rests on, by its path in the repository."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if any(mark in text for mark in _PROPERTY):
            name = path.relative_to(ROOT).as_posix()
            found[name] = {name, "shared"} | _imported(ast.parse(text))
    return found


def chosen(commit: str) -> list[str]:
    """Return the modules that rest on something that has changed; all of them without a commit."""
    modules = property_modules()
    if not commit:
        return list(modules)
    changed = changed_packages(commit)
    return [name for name, rests_on in modules.items() if rests_on & changed]


def main() -> None:
    """Print the modules."""
    commit = sys.argv[1] if len(sys.argv) > 1 else ""
    for name in chosen(commit):
        print(name)


if __name__ == "__main__":
    main()
