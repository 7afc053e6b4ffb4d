"""Docstrings (Google style, Sphinx roles) as Markdown that reads alike on the site and in a checkout."""

from __future__ import annotations

import re
from collections.abc import Iterator

SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")


def inline(text: str) -> str:
    """Return a line of prose with code in single backticks and nothing that Markdown would read as markup."""
    text = re.sub(r":\w+:`~?([^`]+)`", lambda found: f"``{found[1].rpartition('.')[2]}``", text)
    pieces = re.split(r"``(.+?)``", text)
    pieces[::2] = [re.sub(r"([*<\[\]|`])", r"\\\1", prose) for prose in pieces[::2]]
    pieces[1::2] = [f"`{code}`" for code in pieces[1::2]]
    return "".join(pieces)


def markdown(text: str) -> Iterator[str]:
    """Yield the lines of a whole docstring whose common indentation is taken off."""
    for block in re.split(r"\n\n+", text):
        title, _, body = block.partition("\n")
        if title.endswith(":") and title[:-1] in SECTIONS:
            yield from _section(title[:-1], body)
        elif block.startswith(">>>"):
            yield from ("```pycon", *block.splitlines(), "```")
        elif block.startswith("    "):
            yield from ("```text", *(line[4:] for line in block.splitlines()), "```")
        else:
            yield inline(block)
        yield ""


def _section(title: str, body: str) -> Iterator[str]:
    """Yield a section: its name, then a list item for each ``name: what it is`` in it."""
    yield f"**{title}**"
    yield ""
    for item in re.split(r"\n    (?! )", "\n" + body.rstrip())[1:]:
        name, colon, rest = " ".join(item.split()).partition(": ")
        if colon and re.fullmatch(r"[*\w., ]+", name):
            yield f"- `{name}`: {inline(rest)}"
        else:
            yield ("" if title in ("Returns", "Yields") else "- ") + inline(name + colon + rest)
