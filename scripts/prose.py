"""Numbers and verdicts in sentences: a script fills them from packs, or prose.toml lists them with a reason.

A page of prose.toml has no other digit, number in words or word of a verdict outside what is typed, links and
the marks of scripts. So a number that somebody changes by hand is found wherever it stands: between marks it
differs from the packs, elsewhere it is not on the list.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

LISTED = Path(__file__).with_name("prose.toml")
EVERYWHERE = "every page"
"""The section of what may stand on all pages."""
NUMBER_WORDS = re.compile(
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|(?:hundred|thousand|million|dozen)s?"
    r"|half|halves|thirds?|quarters?|fifths?|tenths?|twice|thrice|doubles?|doubled|halved)\b",
    re.IGNORECASE,
)
"""Numbers and sizes in words. "One" is none of them: it is nearly always a pronoun."""
VERDICT_WORDS = re.compile(
    r"\b(?:w[io]ns?|los(?:e|es|ing|t)|gain(?:s|ed|ing)?|beat(?:s|en|ing)?|better|best|worse|worst|pay(?:s|ing)?|paid"
    r"|buys?|bought|helps?|helped|hurts?|harms?|harmed|improve[sd]?|outperforms?|outperformed|exceeds?|exceeded"
    r"|costs?|brings|brought|expect(?:s|ed)?|collapses?|collapsed|undecided|holds|refuted|confirmed"
    r"|above|below|ahead|behind|higher|lower|end(?:s|ed)?\s+level|surely|none|nothing|everything|nowhere"
    r"|everywhere|never|always|more|less|fewer|only|alone"
    r"|most|least|furthest|farthest|nearest|fewest|greatest|smallest)\b",
    re.IGNORECASE,
)
"""Words by which a sentence says who wins. A denial stands beside such a word, and so on the list with it."""
TOLD = re.compile(rf"\d[\d,.]*\d|\d|{NUMBER_WORDS.pattern}|{VERDICT_WORDS.pattern}", re.IGNORECASE)
"""What a pack, or the list, has to bear."""
WHILE = re.compile(r"while (?P<study>\w+) (?P<field>\{[^}]+\}) is (?P<value>.+)")
"""A reason that the packs have to bear: what a field of a study's sentences (sentences.py) must say."""
_METHODS = re.compile(r"<summary>The methods</summary>.*?</details>", re.DOTALL)
"""Names and years, which test_readme.py compares."""
_FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"^(?: {4}|\t)(?! *- )(?P<code>[^\n]*\n(?:(?: {4}|\t)[^\n]*\n)*)", re.MULTILINE)
_COMMAND = re.compile(
    r"^\s*(?:lw2g|python|pytest|git|ln|cd|export|OMP_NUM_THREADS|--|\S+ = |\[|<|import |from )|.*\\$"
)
"""What begins a line that is typed, or goes on; any other line of a block is what a command printed."""
_COMMENT = re.compile(r"\s# .*$")
_OUTSIDE = re.compile(r"`[^`\n]*(?:\n[^`\n]+)?`|\]\([^)]*\)|<!--.*?-->", re.DOTALL)
"""Code within a line, targets of links and comments, in which no sentence stands."""
_TAG = re.compile(r"<[a-zA-Z/](?:[^>]*?(?P<alt>alt=\"[^\"]*\"))?[^>]*>", re.DOTALL)


@functools.cache
def listed() -> dict[str, dict[str, str]]:
    """Return what may stand in the sentences of each page, with the reason."""
    return tomllib.loads(LISTED.read_text(encoding="utf-8"))


def pages() -> tuple[str, ...]:
    """Return the pages whose sentences are looked at."""
    return tuple(page for page in listed() if page != EVERYWHERE)


def no_longer_so(fields: Callable[[str], Mapping[str, str]]) -> Iterator[str]:
    """Yield what stands on a page by hand while a field says a certain thing, and the field says another.

    Args:
        fields: The fields of a study by its name.
    """
    for page, entries in listed().items():
        for words, reason in entries.items():
            held = WHILE.fullmatch(reason)
            if held and (now := fields(held["study"])[held["field"]]) != held["value"]:
                yield f"{page}: {words!r} stands {reason}, which is {now}; write what the packs say now"


def _with_code(text: str, marked: re.Pattern[str]) -> str:
    """Return a page with all blank but what is said by hand, each where it stood.

    That is sentences with the names in code within them, tables, what commands print, comments behind them
    and descriptions of pictures.
    """
    text = _METHODS.sub(_blank, marked.sub(_blank, text))
    text = _INDENTED.sub(_typed, _FENCED.sub(_typed, text))
    return _TAG.sub(_but_alt, text)


def _typed(block: re.Match[str]) -> str:
    """Return a block of code without what is typed: outputs and comments stay."""
    lines = block[0].split("\n")
    programs = block.groupdict().get("language") in ("python", "toml")
    for number, line in enumerate(lines):
        comment = _COMMENT.search(line)
        if comment:
            lines[number] = " " * comment.start() + comment[0]
        elif programs or _COMMAND.match(line):
            lines[number] = " " * len(line)
    return "\n".join(lines)


def _but_alt(tag: re.Match[str]) -> str:
    """Return a tag of HTML as blanks, but for the description of a picture."""
    blank = _blank(tag)
    if not tag["alt"]:
        return blank
    begin, end = (place - tag.start() for place in tag.span("alt"))
    return blank[:begin] + tag["alt"] + blank[end:]


@functools.cache
def _patterns(page: str) -> Sequence[tuple[str, re.Pattern[str]]]:
    """Return what may stand on a page, longer ones first: one may be a part of another."""
    known = listed()
    found = []
    for own in sorted({**known[EVERYWHERE], **known[page]}, key=len, reverse=True):
        # words of a sentence may stand on two lines, and a number is not a part of a longer one
        spaced = r"\s+".join(map(re.escape, own.split()))
        found.append((own, re.compile(rf"(?<![\w.,]){spaced}(?!\w|[.,]\d)")))
    return found


def faults(text: str, marked: re.Pattern[str], page: str) -> Iterator[str]:
    """Yield what is wrong with the sentences of a page: what nothing bears, and a list that is too long.

    Args:
        text: The page.
        marked: What scripts write.
        page: Its name in prose.toml.
    """
    rest = _with_code(text, marked)
    for own, pattern in _patterns(page):
        rest, found = pattern.subn(_blank, rest)
        if not found and own in listed()[page]:
            yield f"{page}: {LISTED.name} lists {own!r}, which its sentences do not have"
    rest = _OUTSIDE.sub(_blank, rest)
    for told in TOLD.finditer(rest):
        at = rest.count("\n", 0, told.start()) + 1
        yield f"{page}:{at}: no pack bears {told[0]!r}; fill it by a script, or list it in {LISTED.name}"


_blank: Callable[[re.Match[str]], str] = lambda found: re.sub(r"[^\n]", " ", found[0])  # noqa: E731
"""Cut out, with lines and columns kept."""
