"""An experiment as TOML with a comment on every option."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from lw2g.config.describe import describe_experiment
from lw2g.config.settings import Resolved
from lw2g.config.toml import dump_resolved

__all__ = ["explain_resolved"]

_WIDTH = 110


def explain_resolved(resolved: Resolved) -> str:
    """Return an experiment's TOML; a comment above each option gives its meaning, range and default."""
    return "".join(_explained(resolved))


def _explained(resolved: Resolved) -> Iterator[str]:
    """Yield the lines of a configuration, each option below a comment with what it means."""
    options = describe_experiment(resolved.config)
    section = ""
    for line in dump_resolved(resolved).splitlines(keepends=True):
        header = re.match(r"\[(.+)\]$", line)
        if header:
            section = header[1].replace('"', "")
        entry = re.match(r"([\w-]+) = ", line)
        if entry and f"{section}.{entry[1]}" in options:
            text = options[f"{section}.{entry[1]}"].sentence()
            # two columns less, for the "# " before each line
            comment = textwrap.fill(text, _WIDTH - 2, subsequent_indent="  ", break_on_hyphens=False)
            yield textwrap.indent(comment, "# ") + "\n"
        yield line
