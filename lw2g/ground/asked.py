"""Messages in words of whoever asks: of commands by their options, of a program by arguments and calls."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["as_asked", "typed_options"]

_typed = False
"""Whether a command line asks, and not a program."""
# a whole command becomes a call, if any, and of others the options become arguments
_COMMAND = r"`[^`]*`|\b(?:hf|lw2g|pip|ray) [^;,)]*"
_VALUE = r" (?=[A-Z]{2})|(?P<value> (?!out\b)[a-z0-9.-]+)(?=;| \(|$)"
_PAIR = r"""--[a-z][a-z-]* (?:'[^']*'|"[^"]*"|[^\s;'"])+"""
_ALONE = re.compile(rf"(?<=; ){_PAIR}(?: {_PAIR})*(?=;|$)")
"""Options that stand in place of a sentence."""
_CALLS = {
    "continue": ("continue_run", 1),
    "export": ("export", 2),
    "learn": ("learn", 2),
    "pull": ("pull", 2),
    "report": ("report", 1),
    "resume": ("resume", 1),
    "run": ("run", 1),
    "start": ("start", 2),
    "test": ("test", 2),
    "verify": ("verify", 1),
}
"""Commands that messages name: the function of lw2g, and how many arguments stand before the options."""
_OPTION = re.compile(rf"({_COMMAND})|(?<![^\s(])(?:--set |--([a-z][a-z-]*)({_VALUE})?)")


@contextmanager
def typed_options() -> Iterator[None]:
    """Word messages within the block for a command line: by its options."""
    global _typed
    before, _typed = _typed, True
    try:
        yield
    finally:
        _typed = before


def as_asked(text: str) -> str:
    """Return a message in words of whoever asks: commands are calls in Python, and options arguments.

    >>> as_asked("choose another --out, or: lw2g resume runs/first; lower --batch-size")
    "choose another out, or: lw2g.resume('runs/first'); lower batch_size"
    >>> as_asked("pass it with --weights FILE")
    'pass it with weights=FILE'
    >>> as_asked("for photos: --backbone vit-tiny (23 MB)")
    "for photos: backbone='vit-tiny' (23 MB)"
    >>> as_asked("let the last task be smaller; --set benchmark.uneven=true")
    "let the last task be smaller; give 'benchmark.uneven': True"
    >>> as_asked("write a page: lw2g report RUNS --html page.html")
    "write a page: lw2g.report(RUNS).save('page.html')"
    >>> as_asked("--html: 'page.pdf' would be a page and no .pdf")
    "out: 'page.pdf' would be a page and no .pdf"
    >>> as_asked("it is a head; --baseline simple-cil --set baseline.head=lda")
    "it is a head; give baseline='simple-cil', 'baseline.head': 'lda'"
    """
    if _typed:
        return text

    def in_python(found: re.Match[str]) -> str:
        command, option, has_value, value = found.groups()
        if command:
            return _as_call(command, found.string[: found.start()])
        argument = _as_argument(option or "")
        if value is not None:
            value = value.strip()
            return f"{argument}={value}" if value.isdecimal() else f"{argument}={value!r}"
        return f"{argument}=" if has_value else argument

    # an argument of every function: the device of a model is of no run
    text = re.sub(r"^run\.device: ", "device: ", text)
    return _OPTION.sub(in_python, _ALONE.sub(_as_sentence, text))


def _as_sentence(found: re.Match[str]) -> str:
    """Return which arguments to give for options that stand alone; those of ``--set`` as items of a dict."""
    words = iter(shlex.split(found[0]))
    given = []
    for option, value in zip(words, words, strict=True):
        if option == "--set":
            given.append(_as_item(value))
        else:
            given.append(f"{_as_argument(option[2:])}={_as_value(value)}")
    return f"give {', '.join(given)}"


def _as_call(command: str, before: str) -> str:
    """Return the call of lw2g that does what a command does; the command where none does, or in a sentence.

    Args:
        command: The command, in backquotes or without.
        before: What stands before it; without backquotes, a colon introduces it.
    """
    quote = "`" if command.startswith("`") else ""
    try:
        _, verb, *words = shlex.split(command.strip("`"))
        name, count = _CALLS[verb]
    except (KeyError, ValueError):  # no function, no command, or a quote that is not closed
        return command
    num_first = next((place for place, word in enumerate(words) if word.startswith("--")), len(words))
    is_apart = bool(quote) or before.endswith(": ")
    is_sentence = num_first != count or "..." in command or "(" in command
    if not is_apart or is_sentence or (verb == "run" and not words[0].endswith(".toml")):
        return command
    arguments = list(map(_as_value, words[:num_first]))
    options = iter(words[num_first:])
    saved = ""
    for option in options:
        if option == "--learnable":
            arguments.append("learnable=True")
        elif option == "--html":  # the report that Python gets writes its page
            saved = f".save({_as_value(next(options, ''))})"
        elif option == "--set":
            arguments.append(f"settings={{{_as_item(next(options, ''))}}}")
        else:
            argument = _as_argument(option.removeprefix("--"))
            arguments.append(f"{argument}={_as_value(next(options, ''))}")
    return f"{quote}lw2g.{name}({', '.join(arguments)}){saved}{quote}"


def _as_argument(option: str) -> str:
    """Return the argument that an option is; what may be given several times takes a list."""
    others = {"html": "out", "set": "settings"}
    if option in others:
        return others[option]
    return re.sub("^(constraint|tracker)$", r"\1s", option.replace("-", "_"))


def _as_item(setting: str) -> str:
    """Return ``KEY=VALUE`` as an item of a dict of options."""
    key, _, value = setting.partition("=")
    return f"{key!r}: {_as_value(value)}"


def _as_value(word: str) -> str:
    """Return a word of a command as Python writes it; what stands for a value stays as it is."""
    if word in ("true", "false"):
        return word.title()
    return word if re.fullmatch(r"[0-9.]+|[A-Z]+|\[.*\]", word) else repr(word)
