"""Tools for tests of plugins: the contract kit, a tiny benchmark and backbone, and hypothesis strategies.

A plugin's tests import them from :mod:`lw2g.testing`. The strategies need the ``test`` extra:
``from lw2g_testing.strategies import gradients``. Importing this package imports neither torch nor a check.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lw2g_testing.kit import (
        CheckResult,
        ContractCase,
        ContractViolation,
        NotApplicable,
        Subject,
        check,
        contract_cases,
    )
    from lw2g_testing.tiny import TinyPlugin, tiny_backbone, tiny_catalogue

__all__ = [
    "CheckResult",
    "ContractCase",
    "ContractViolation",
    "NotApplicable",
    "Subject",
    "TinyPlugin",
    "check",
    "contract_cases",
    "tiny_backbone",
    "tiny_catalogue",
]

_TINY = ("TinyPlugin", "tiny_backbone", "tiny_catalogue")


def __getattr__(name: str) -> Any:
    """Return a tool; ``lw2g --help`` imports this package for its command, and must not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "lw2g_testing.tiny" if name in _TINY else "lw2g_testing.kit"
    return getattr(import_module(module), name)
