"""What tests of plugins import: the contract kit, and a tiny benchmark and backbone.

They are defined in the package ``lw2g_testing``, whose modules may move; this name stays.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lw2g_testing import (
        CheckResult,
        ContractCase,
        ContractViolation,
        NotApplicable,
        Subject,
        TinyPlugin,
        check,
        contract_cases,
        load_catalogue,
        load_commands,
        tiny_backbone,
        tiny_catalogue,
    )

__all__ = [
    "CheckResult",
    "ContractCase",
    "ContractViolation",
    "NotApplicable",
    "Subject",
    "TinyPlugin",
    "check",
    "contract_cases",
    "load_catalogue",
    "load_commands",
    "tiny_backbone",
    "tiny_catalogue",
]


if not TYPE_CHECKING:  # type checkers would take any name for one that exists

    def __getattr__(name: str) -> object:
        """Return a tool of the kit."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module("lw2g_testing"), name)
