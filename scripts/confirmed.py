"""The text of pages that somebody has read against its sources: confirmed.toml has a hash of each.

A list of numbers and words does not see a negation, a swapped name or another picture. The hash sees any
change. Whoever has read the change against its source renews it: ``scripts/tables.py --confirm``.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Collection, Iterator
from pathlib import Path

LISTED = Path(__file__).with_name("confirmed.toml")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_WITHIN_PROSE = re.compile(r"\n {0,3}(?=[^\s|])")
"""A line break of a sentence; those of commands, tables and paragraphs are others."""
_HEAD = (
    "# A hash of the text of each page outside the marks of scripts, as it was read against its sources.\n"
    "# Written by `python scripts/tables.py --confirm PAGE` after reading what changed.\n\n"
)


def listed() -> dict[str, str]:
    """Return the hash of each page as it was read."""
    return tomllib.loads(LISTED.read_text(encoding="utf-8"))


def hash_of(text: str, marked: re.Pattern[str]) -> str:
    """Return the hash of a page: all but what scripts write between marks, the marks themselves included.

    A sentence may be wrapped anew; a line of commands or of a table may not.
    """
    text = _FENCED.sub(lambda found: found[0].replace("\n", "\n    "), emptied(text, marked))
    unwrapped = _WITHIN_PROSE.sub(" ", text)
    return hashlib.sha256(re.sub(" +", " ", unwrapped).encode()).hexdigest()[:16]


def emptied(text: str, marked: re.Pattern[str]) -> str:
    """Return a page with nothing between its marks."""
    return marked.sub(lambda found: found["begin"] + found["end"], text)


def faults(root: Path, pages: Collection[str], marked: re.Pattern[str]) -> Iterator[str]:
    """Yield the pages whose text is another one than what was read."""
    known = listed()
    for page in pages:
        if known.get(page) != hash_of((root / page).read_text(encoding="utf-8"), marked):
            yield (
                f"{page}: its text differs from the one that was read; "
                f"read what changed against its source, then python scripts/tables.py --confirm {page}"
            )


def confirm(root: Path, pages: Collection[str], marked: re.Pattern[str]) -> None:
    """Write that the text of these pages was read; other pages keep what they have."""
    known = listed()
    for page in pages:
        known[page] = hash_of((root / page).read_text(encoding="utf-8"), marked)
    lines = [f'"{page}" = "{known[page]}"\n' for page in sorted(known)]
    LISTED.write_text(_HEAD + "".join(lines), encoding="utf-8")
