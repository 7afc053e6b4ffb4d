"""How dense the code of each package is: a table per 1,000 lines of code, as docs/architecture.md quotes it.

    python scripts/density.py [TREE] [--packages NAME...] [--worst N]

Lines of code leave out docstrings, comments and blanks. A package is a folder of ``lw2g`` or of
``plugins``. ``--worst`` names the functions that hold the most instead: where to begin.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import attrs

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@attrs.define
class Count:
    """What was counted in some files.

    Attributes:
        code: Lines that hold code.
        comments: Comments, directives to tools left out.
        comprehensions: List, set and dictionary comprehensions, and generator expressions.
        conditionals: Conditional expressions.
        pairs: Assignments such as ``a, b = x, y``.
        functions: Lines of each function, docstring left out.
    """

    code: int = 0
    comments: int = 0
    comprehensions: int = 0
    conditionals: int = 0
    pairs: int = 0
    functions: list[int] = attrs.field(factory=list)

    def add(self, path: Path) -> None:
        """Count a file."""
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        code = self._lines(text) - set(_docstrings(tree))
        self.code += len(code)
        for node in ast.walk(tree):
            self.count(node)
            if isinstance(node, _FUNCTIONS):
                assert node.end_lineno is not None
                self.functions.append(len(code & set(range(node.lineno, node.end_lineno + 1))))

    def count(self, node: ast.AST) -> None:
        """Count one node of a syntax tree."""
        self.comprehensions += isinstance(node, _COMPREHENSIONS)
        self.conditionals += isinstance(node, ast.IfExp)
        self.pairs += _is_pair(node)

    def _lines(self, text: str) -> set[int]:
        """Return the numbers of the lines that hold code or a docstring, and count comments on the way."""
        lines = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                self.comments += not token.string.startswith(("# noqa", "# type:", "# pragma"))
            elif token.type not in _NO_CODE:
                lines |= set(range(token.start[0], token.end[0] + 1))
        return lines

    def row(self) -> list[str]:
        """Return the cells of the table."""
        kilo = max(self.code, 1) / 1000
        ordered = sorted(self.functions) or [0]
        last = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
        return [
            f"{self.code:,}",
            f"{self.comprehensions / kilo:.0f}",
            f"{self.conditionals / kilo:.0f}",
            f"{self.pairs / kilo:.1f}",
            f"{self.comments / kilo / 10:.1f} %",
            f"{statistics.median(ordered):.0f} / {last}",
        ]


def _docstrings(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of docstrings, and of strings that document an attribute."""
    for node in ast.walk(tree):
        body = node.body if isinstance(node, _DOCUMENTED) else ()
        for statement in body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                assert statement.end_lineno is not None
                yield from range(statement.lineno, statement.end_lineno + 1)


def _is_pair(node: ast.AST) -> bool:
    """Whether a statement assigns several values to several names at once."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
    )


def package_of(path: Path) -> str:
    """Return the package of a module, by its path within the tree."""
    parts = path.parts
    if parts[0] == "plugins":
        return parts[1]
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def counted(tree: Path) -> dict[str, Count]:
    """Return the counts by package, and those of all."""
    packages: dict[str, Count] = defaultdict(Count)
    for folder in ("lw2g", "plugins"):
        for path in sorted((tree / folder).rglob("*.py")):
            packages[package_of(path.relative_to(tree))].add(path)
            packages[f"{folder}, all"].add(path)
    return dict(sorted(packages.items()))


def worst(tree: Path, packages: list[str] | None, number: int) -> list[str]:
    """Return a line for each of the functions that hold the most expressions, the fullest first."""
    lines: list[tuple[int, str]] = []
    for folder in ("lw2g", "plugins"):
        for path in sorted((tree / folder).rglob("*.py")):
            place = path.relative_to(tree)
            if packages and package_of(place) not in packages:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, _FUNCTIONS):
                    continue
                count = Count()
                for inner in ast.walk(node):
                    count.count(inner)
                found = count.comprehensions + count.conditionals + count.pairs
                text = f"{place}:{node.lineno} {node.name}: {count.comprehensions} comprehensions, "
                text += f"{count.conditionals} conditional expressions, {count.pairs} pairs"
                lines.append((found, text))
    lines.sort(key=lambda line: -line[0])
    return [text for _, text in lines[:number]]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--packages", nargs="*", help="these alone")
    parser.add_argument("--worst", type=int, metavar="N", help="name N functions that hold the most instead")
    chosen = parser.parse_args()
    if chosen.worst:
        print("\n".join(worst(chosen.tree.resolve(), chosen.packages, chosen.worst)))
        return
    titles = ["package", "code", "comprehensions", "conditional expressions", "`a, b = x, y`"]
    titles += ["comments / code", "function lines, median / p90"]
    print(f"| {' | '.join(titles)} |\n| --- |{' ---: |' * (len(titles) - 1)}")
    for package, count in counted(chosen.tree.resolve()).items():
        if not chosen.packages or package in chosen.packages:
            print(f"| {package} | {' | '.join(count.row())} |")


if __name__ == "__main__":
    main()
