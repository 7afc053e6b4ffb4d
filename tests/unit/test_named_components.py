"""lw2g asks components what they declare, and never what they are called."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache
from pathlib import Path

import attrs
import pytest

from lw2g.registry.catalogue import load_catalogue

ROOT = Path(__file__).resolve().parents[2]
ONE_PLACE = ROOT / "lw2g" / "interfaces" / "defaults.py"
"""The module that names what lw2g takes where nobody chooses."""
WORDS = frozenset(
    {
        *(
            "affine",
            "always",
            "auto",
            "classifier",
            "confusion",
            "cosine",
            "digits",
            "features",
            "fixed",
            "folder",
        ),
        *("freeze", "gated", "joint", "none", "one", "oracle", "outcome", "projection", "replay", "shift"),
        *("text", "threshold", "timm", "trial"),
    }
)
"""Names of components that are words of other things, too: values of options, keys of files, libraries.

They may stand anywhere but where a component's name stands. All other names may stand in ``ONE_PLACE`` alone.
"""


@cache
def registered() -> Mapping[str, Set[str]]:
    """Return the names of all components, and the kinds that have one of that name."""
    kinds: dict[str, set[str]] = {}
    for entry in load_catalogue().components():
        kinds.setdefault(entry.component.name, set()).add(entry.component.kind)
    return kinds


@cache
def naming() -> Mapping[str, str]:
    """Return the words after which a component's name stands, each with the kind: sections, options."""
    words = {}
    for entry in load_catalogue().components():
        component = entry.component
        words |= {component.kind: component.kind, component.section: component.kind}
        for field in attrs.fields(component.config):
            if field.metadata.get("names"):
                words[field.name] = field.metadata["names"]
    words.pop("", None)
    return words


def kind_told(text: str) -> str | None:
    """Return the kind that the last word of a piece of code or of a key tells; ``"any"`` for a plain name."""
    last = re.search(r"(\w+)['\"\])]*$", text)
    if last is None:
        return None
    return "any" if last[1] == "name" else naming().get(last[1].lower())


def neighbours(node: ast.AST) -> Iterator[tuple[ast.AST | str, ast.expr]]:
    """Yield values of a statement or expression, each with what says what it is."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for one, other in itertools.permutations(sides, 2):
            listed = other.elts if isinstance(other, ast.Tuple | ast.List | ast.Set) else [other]
            yield from ((one, value) for value in listed)
    elif isinstance(node, ast.Match):
        patterns = [case.pattern for case in node.cases]
        yield from ((node.subject, one.value) for one in patterns if isinstance(one, ast.MatchValue))
    elif isinstance(node, ast.keyword):
        yield node.arg or "", node.value
    elif isinstance(node, ast.Dict):
        yield from ((key, value) for key, value in zip(node.keys, node.values, strict=True) if key)
    elif isinstance(node, ast.Assign):
        choice = node.value
        choices = [choice.body, choice.orelse] if isinstance(choice, ast.IfExp) else [choice]
        yield from itertools.product(node.targets, choices)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("catalogue.get"):
        yield from itertools.pairwise(node.args)
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        yield from (("name", value) for value in node.value.elts[:1])
    elif isinstance(node, ast.arguments):
        positional = [*node.posonlyargs, *node.args]
        with_default = positional[len(positional) - len(node.defaults) :]
        yield from ((one.arg, value) for one, value in zip(with_default, node.defaults, strict=True))
        keyword_only = zip(node.kwonlyargs, node.kw_defaults, strict=True)
        yield from ((one.arg, value) for one, value in keyword_only if value)


def branches(nodes: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """Yield the literals that stand where a component's name stands."""
    for node in nodes:
        for teller, value in neighbours(node):
            kinds = registered().get(str(getattr(value, "value", "")), set())
            if not kinds:
                continue
            told = kind_told(teller if isinstance(teller, str) else ast.unparse(teller))
            if told == "any" or told in kinds:
                yield value


def constants(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield what a module calls by a name of its own and what is the name of one component in use."""
    single = {"baseline", "benchmark", "backbone", "policy", "retrieval"}
    for node in tree.body:
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Constant) and registered().get(str(value.value), set()) & single:
            yield value


def names_in(source: str) -> set[str]:
    """Return the names of components in a module, but for words that stand for something else."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    told = {node.value for node in (*branches(nodes), *constants(tree)) if isinstance(node, ast.Constant)}
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            told |= {node.value} & (registered().keys() - WORDS)
    return {str(name) for name in told}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('if method == "anything": pass\n"simple-cil"\n', set()),
        ('baseline = "simple-cil"\n', {"simple-cil"}),
        ('if run.options["benchmark.name"] == "folder": pass', {"folder"}),
        ('if config.benchmark.name in ("folder", "x"): pass', {"folder"}),
        ('OWN_DATA = "folder"', {"folder"}),
        ('_HEADS = {"lda": 1, "ridge": 2}', {"lda", "ridge"}),
        ('match policy:\n    case "always":\n        pass\n', {"always"}),
        ('resolve(benchmark="features")', {"features"}),
        ('catalogue.get("carry", "affine")', {"affine"}),
        ('if options.head_gated != "affine": pass', {"affine"}),
        ('def start(head="cosine"): pass', {"cosine"}),
        ('{"baseline.head": "text"}', {"text"}),
        ('def place(): return "folder", {"benchmark.root": here}', {"folder"}),
        ('benchmark = "features" if stored else "folder"', {"features", "folder"}),
        ('if component.growth == "fixed" or asked == "auto": pass', set()),
        ('schedule = "cosine"\nmode = option("none")\nversion("timm")', set()),
    ],
)
def test_a_branch_on_a_name_is_found(source: str, found: set[str]) -> None:
    """In every form in which one stood in lw2g, and words of other things are left alone."""
    assert names_in(source) == found


def test_no_room_names_a_component() -> None:
    """But for the one place with the defaults: what holds for some components, these declare."""
    assert names_in(ONE_PLACE.read_text(encoding="utf-8")) > {"simple-cil", "folder"}
    found = {}
    for path in sorted((ROOT / "lw2g").rglob("*.py")):
        names = names_in(path.read_text(encoding="utf-8"))
        if names and path != ONE_PLACE:
            found[str(path.relative_to(ROOT))] = sorted(names)
    assert found == {}


def test_only_words_in_use_are_excused() -> None:
    """A word that is the name of no component excuses nothing."""
    assert registered().keys() >= WORDS
