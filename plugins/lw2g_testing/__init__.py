"""Tools for tests of plugins: the contract kit, a tiny benchmark and backbone, and hypothesis strategies.

A plugin's tests import them from :mod:`lw2g.testing`. The strategies need the ``test`` extra:
``from lw2g_testing.strategies import gradients``. Importing this package imports neither torch nor a check.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.registry.command_set import load_commands
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
    "load_catalogue",
    "load_commands",
    "tiny_backbone",
    "tiny_catalogue",
]

_HOMES = {
    "TinyPlugin": "lw2g_testing.tiny",
    "load_catalogue": "lw2g.registry.catalogue",
    "load_commands": "lw2g.registry.command_set",
    "tiny_backbone": "lw2g_testing.tiny",
    "tiny_catalogue": "lw2g_testing.tiny",
}
"""The modules of what is not in the kit itself."""


def __getattr__(name: str) -> Any:
    """Return a tool; ``lw2g --help`` imports this package for its command, and must not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "lw2g_testing.kit")), name)
