"""The documentation site: sphinx-build -W docs FOLDER (what `tox -e docs` does)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "scripts"))

import write_components  # noqa: E402
import write_reference  # noqa: E402
from site_pictures import for_the_site  # noqa: E402

import lw2g  # noqa: E402
from lw2g.interfaces.metric import DEFINITIONS  # noqa: E402

write_components.write(HERE / "components")
write_reference.write(HERE / "reference")

project, author = "lw2g", "The lw2g authors"
version = release = lw2g.__version__
extensions = ["myst_nb"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_show_copyright = False
html_title = f"lw2g {release}"
html_static_path = ["_static"]
html_css_files = ["outputs.css"]
html_js_files = ["sort.js"]
smartquotes = False
myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks keep their outputs: scripts/run_notebooks.py

GLOSSARY = {
    "FAA": DEFINITIONS["faa"],
    "CAA": DEFINITIONS["caa"],
    "FFM": DEFINITIONS["ffm"],
    "BWT": DEFINITIONS["bwt"],
    "PRA": DEFINITIONS["pra"],
    "SSP": DEFINITIONS["ssp"],
    "LW2G": "Learning Whether to Grow: a set of parameters is added where old ones would hinder the new task",
    "LDA": "linear discriminant analysis: class means and one common covariance of features",
    "LoRA": "low-rank updates of frozen weight matrices",
    "HFC": "hindrance of the forward pass of a task by an old space, an angle in degrees",
}
"""Words that pages show the meaning of where the pointer rests on them."""
SHOWN = {
    (HERE / beside).resolve(): page.name
    for page in HERE.glob("*.md")
    for beside in re.findall(r"^```\{include\} (\S+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
}
"""Files outside this folder, and the pages of the site that show them."""
_SITE = re.compile(r"<!-- site: (.*?) -->", re.DOTALL)
_OUTSIDE = re.compile(r"\]\(((?:\.\./)+[^)#\s]+\.md)")
_WHOLE = re.compile(
    r"[(\[][-+][\d.]+(?: to |, )[-+][\d.]+[)\]]|\(\d+ orders?\)"
    r"|[-+]?[\d.]+ (?:to|±) [-+]?[\d.]+|[\d.]+ \([\d.]+\)"
)
"""Intervals, spreads and numbers of orders in a table: none is broken in two lines."""
_WORDS = {"long": 60, "words": 20}
"""Classes of a table's cells by the least number of their letters; such columns are wide enough to read.

A shorter one at the left is a name, which no hyphen breaks.
"""
_TERM = re.compile(rf"\b({'|'.join(GLOSSARY)})\b")


def explain_terms(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make each term's first appearance on a page an abbreviation with its meaning."""
    met: set[str] = set()
    for text in list(doctree.findall(nodes.Text)):
        parent = text.parent
        if not isinstance(parent, nodes.paragraph | nodes.strong | nodes.emphasis):
            continue
        parts: list[nodes.Node] = []
        rest = 0
        for found in _TERM.finditer(text):
            term = found[1]
            if term in met:
                continue
            met.add(term)
            parts += [
                nodes.Text(text[rest : found.start()]),
                nodes.abbreviation(term, term, explanation=GLOSSARY[term]),
            ]
            rest = found.end()
        if parts:
            parent.replace(text, [*parts, nodes.Text(text[rest:])])


def shape_cells(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Let cells of tables break beside an interval, not within it, and mark those that hold words."""
    for row in doctree.findall(nodes.row):
        first = row.next_node(nodes.entry)
        if first is not None and len(first.astext()) < min(_WORDS.values()):
            first["classes"].append("name")
    for cell in list(doctree.findall(nodes.entry)):
        letters = len(cell.astext())
        cell["classes"] += [name for name, least in _WORDS.items() if letters >= least][:1]
        for text in list(cell.findall(nodes.Text)):
            whole = _WHOLE.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
            if whole != text:
                text.parent.replace(text, nodes.Text(whole))


def mark_command_lines(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Give each line of a block of commands an element: a long one then wraps with its rest moved in."""
    for number, block in enumerate(doctree.findall(nodes.literal_block)):
        if block.get("language", "none") in ("none", "sh"):
            block["highlight_args"] = {**block.get("highlight_args", {}), "linespans": f"code-{number}"}


def lead_within_the_site(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links to a file that a page shows lead to that page, and uncover what stands for the site alone.

    In a checkout links lead to files of the repository. What only the site has, such as a page for each
    component, is linked within ``<!-- site: ... -->``.
    """
    folder = (HERE / docname).parent

    def on_site(link: re.Match[str]) -> str:
        """Return the beginning of a link to the page that shows a file."""
        page = SHOWN.get((folder / link[1]).resolve())
        return f"](/{page}" if page else link[0]

    source[0] = _OUTSIDE.sub(on_site, _SITE.sub(r"\1", for_the_site(source[0])))


def setup(app: Sphinx) -> None:
    """Register what the pages need beside their text."""
    app.connect("source-read", lead_within_the_site)
    app.connect("doctree-resolved", explain_terms)
    app.connect("doctree-resolved", shape_cells)
    app.connect("doctree-resolved", mark_command_lines)
