"""What the author of a command imports: options from a function's docstring, shared options, and output.

The functions are those of lw2g's own commands; each is described where it is defined.
"""

from __future__ import annotations

from lw2g.cli.bars import Bars
from lw2g.cli.completion import complete_component
from lw2g.cli.paths import AnyPath
from lw2g.cli.shared_options import (
    FiniteRange,
    component_option,
    constraint_option,
    json_option,
    settings_option,
)
from lw2g.cli.signature import documented, help_of, option_of, options_of
from lw2g.runtime.console import console, in_units, note, number, printable, table

__all__ = [
    "AnyPath",
    "Bars",
    "FiniteRange",
    "complete_component",
    "component_option",
    "console",
    "constraint_option",
    "documented",
    "help_of",
    "in_units",
    "json_option",
    "note",
    "number",
    "option_of",
    "options_of",
    "printable",
    "settings_option",
    "table",
]
