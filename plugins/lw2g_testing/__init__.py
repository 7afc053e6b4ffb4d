"""Tools for tests of plugins: the contract kit, a tiny benchmark and backbone, and hypothesis strategies.

The strategies need the ``test`` extra: ``from lw2g_testing.strategies import gradients``.

What checks stand on is :mod:`lw2g_testing`.
"""

# imported because they register checks
from lw2g.registry.catalogue import load_catalogue
from lw2g_testing import (  # noqa: F401
    backbone_checks,
    baseline_checks,
    benchmark_checks,
    carry_checks,
    constraint_checks,
    evidence_checks,
    head_checks,
    lasting_checks,
    metric_checks,
    policy_checks,
    retrieval_checks,
    site_checks,
    tracker_checks,
)
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
    "tiny_backbone",
    "tiny_catalogue",
]
