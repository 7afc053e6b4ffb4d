"""Write pages about components from their records.

python scripts/write_components.py docs/components.md     # the list of all names and where they come from

For the site docs/conf.py writes a page for every component: options, presets, what differs from the paper.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from docstrings import inline

from lw2g.api.plugins import summary_of
from lw2g.config.describe import describe_options, plain
from lw2g.config.facts import aliases, differences, traits
from lw2g.config.settings import OWN_SECTIONS
from lw2g.interfaces.component import (
    KINDS,
    BackboneComponent,
    BaselineComponent,
    BenchmarkComponent,
    Component,
    ConstraintComponent,
    EvidenceComponent,
    Kind,
    PolicyComponent,
    RetrievalComponent,
    TrackerComponent,
)
from lw2g.registry.catalogue import load_catalogue
from lw2g_datasets.datasets import facts_of

PLURALS: Mapping[Kind, str] = {
    kind: {"policy": "policies", "carry": "carries"}.get(
        kind, kind if kind in ("retrieval", "evidence") else f"{kind}s"
    )
    for kind in KINDS
}
TITLES: Mapping[Kind, str] = {
    "head": "Heads",
    "carry": "Carries",
    "policy": "Growth policies",
    "evidence": "Evidence",
    "retrieval": "Retrieval",
    "constraint": "Constraints",
    "benchmark": "Benchmarks",
    "backbone": "Backbones",
    "tracker": "Trackers",
}
LIST = """\
# All components

What there is to choose from. `lw2g plugins NAME`, or its page on the
site<!-- site:  ([all](components/index.md)) -->, tells options, paper and what differs from it; a record
tells what differed in its run (`deviations`).

A method that *grows* composes with every growth policy. One with *other heads* takes
`--set baseline.head=NAME` in place of its own.
"""
END = """\
No metric ships as a component: every record has the [built-in ones](records.md). A plugin adds its own.

Rests on: the records that plugins register, from which `scripts/write_components.py` writes this page.
"""
HEAD = "# Components\n\nOne page each, written from the records that plugins register.\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a Markdown table and an empty line."""
    for row in (head, ["---"] * len(head), *rows):
        yield "| " + " | ".join(row) + " |"
    yield ""


def code(value: Any) -> str:
    """Return a value as code within a table."""
    text = plain(value)
    return "`" + text.replace("|", "\\|") + "`" if text else "(empty)"


def options(config: type[Any]) -> Iterator[str]:
    """Yield the table of a class's options, and the literal variants among their values."""
    found = describe_options(config)
    if not found:
        yield from ("No options.", "")
        return
    rows = [
        (
            f"`{one.name}`",
            inline(f"{one.type}, {one.range}" if one.range else one.type),
            code(one.default),
            "" if one.published is None else code(one.published),
            inline(one.help),
        )
        for one in found
    ]
    yield from table(("option", "takes", "default", "published", "what it is"), rows)
    literal = [
        f"- `{field.name} = {plain(value)}`: {inline(reason)}"
        for field in attrs.fields(config)
        for value, reason in field.metadata.get("literal", {}).items()
    ]
    if literal:
        yield from (
            "Values that follow a paper or a release to the letter; a record lists them:",
            "",
        )
        yield from (*literal, "")


def matrix(columns: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a table of values: a row per key, a column per name."""
    keys = dict.fromkeys(key for values in columns.values() for key in values)
    rows = [
        (f"`{key}`", *(code(values[key]) if key in values else "" for values in columns.values()))
        for key in keys
    ]
    yield from table(("", *columns), rows)


def example(component: Component) -> str:
    """Return a command that uses the component."""
    match component:
        case BaselineComponent(growth="fixed"):
            return f"lw2g run --baseline {component.name}"
        case BaselineComponent():
            return f"lw2g run --baseline {component.name} --policy min"
        case PolicyComponent():
            return f"lw2g run --baseline hide-prompt --policy {component.name}"
        case EvidenceComponent():
            return f"lw2g run --baseline hide-prompt --policy threshold --set policy.measure={component.name}"
        case RetrievalComponent():
            return f"lw2g run --baseline hide-prompt --retrieval {component.name}"
        case ConstraintComponent():
            return f"lw2g run --baseline dual-prompt --policy always --constraint {component.name}"
        case BenchmarkComponent() | TrackerComponent():
            return f"lw2g run --baseline hide-prompt --policy min --{component.kind} {component.name}"
        case BackboneComponent():
            return f"lw2g run --baseline hide-prompt --benchmark cifar100 --backbone {component.name}"
        case _:
            return f"lw2g plugins {component.name}"


def page(component: Component, origin: str) -> Iterator[str]:
    """Yield the lines of a component's page."""
    yield from (
        f"# `{component.name}`",
        "",
        f"{inline(component.summary[:1].upper() + component.summary[1:])}.",
        "",
    )
    yield from (f"- {component.kind} of {inline(origin)}",)
    if component.citation:
        yield f"- published in {inline(component.citation)}"
    yield from (f"- {inline(line)}" for line in (*traits(component), *aliases(component)))
    yield from ("", "```sh", example(component), "```", "", "## Options", "")
    yield from options(component.config)
    if isinstance(component, BaselineComponent):
        for title, presets in (
            ("Official values: what the authors used, by benchmark", component.presets),
            ("Our own values for benchmarks that the authors never ran", component.tuned),
        ):
            if presets:
                yield from (f"## {title}", "")
                yield from matrix(presets)
    if isinstance(component, BenchmarkComponent):
        if component.data is not None:
            yield from ("## The data", "", *(f"- {inline(line)}" for line in facts_of(component.data)), "")
        if component.like_for_like:
            yield from ("## What the protocol like-for-like holds equal", "")
            yield from matrix({"value": component.like_for_like})
    differs = [f"- {inline(line.partition(': ')[2])}" for line in differences(component)]
    if differs:
        yield from ("## What differs from the paper", "", *differs, "")


def published(citation: str) -> str:
    """Return where and when a component was published; empty without a citation.

    >>> published("Wang et al., Learning to Prompt, CVPR 2022")
    'CVPR 2022'
    """
    dated = re.fullmatch(r".*, ((?:[^\d,]+ )?\d{4})", citation)
    return dated[1] if dated else citation


def listing() -> str:
    """Return the page that names all components of lw2g itself: methods in a table, other kinds in a line."""
    there = [
        entry.component for entry in load_catalogue(disabled=()).components() if entry.origin.first_party
    ]
    rows = []
    for one in there:
        if isinstance(one, BaselineComponent):
            other_heads = any(field.name == "head" for field in attrs.fields(one.config))
            told = (f"`{one.name}`", inline(summary_of(one)), inline(published(one.citation)))
            rows.append((*told, "yes" if one.growth == "sets" else "", "yes" if other_heads else ""))
    lines = [LIST, *table(("method", "what it is", "published", "grows", "other heads"), rows)]
    for kind, title in TITLES.items():
        named = ", ".join(f"`{one.name}`" for one in there if one.kind == kind)
        pages = f"<!-- site:  ([each](components/{PLURALS[kind]}.md)) -->"
        lines += [f"## {title}", "", f"`lw2g plugins {kind}`{pages}: {named}", ""]
    return "\n".join([*lines, END])


def write(folder: Path) -> None:
    """Write all pages, and an index of each kind, into a folder that is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    entries = load_catalogue(disabled=()).components()
    home = [HEAD, "```{toctree}", ":maxdepth: 1", ""]
    for kind in KINDS:
        there = [entry for entry in entries if entry.component.kind == kind]
        place = folder / PLURALS[kind]
        place.mkdir(parents=True)
        for entry in there:
            lines = page(entry.component, str(entry.origin))
            (place / f"{entry.component.name}.md").write_text("\n".join(lines), encoding="utf-8")
        rows = [
            (
                f"[`{one.component.name}`]({PLURALS[kind]}/{one.component.name}.md)",
                inline(one.component.summary),
            )
            for one in there
        ]
        names = [f"{PLURALS[kind]}/{one.component.name}" for one in there]
        lines = [f"# {PLURALS[kind].capitalize()}", "", *table(("name", "what it is"), rows)]
        lines += ["```{toctree}", ":hidden:", "", *names, "```", ""]
        (folder / f"{PLURALS[kind]}.md").write_text("\n".join(lines), encoding="utf-8")
        home.append(PLURALS[kind])
    for name, config in OWN_SECTIONS.items():
        summary = str(config.__doc__).partition("\n")[0]
        lines = [
            f"# Options of `{name}`",
            "",
            f"{inline(summary)} They belong to no component.",
            "",
            *options(config),
        ]
        (folder / f"section-{name}.md").write_text("\n".join(lines), encoding="utf-8")
        home.append(f"section-{name}")
    (folder / "index.md").write_text("\n".join([*home, "```", ""]), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, help="is written anew")
    parser.parse_args().page.write_text(listing(), encoding="utf-8")
