"""What plugin authors test with: the contract kit, a tiny benchmark and backbone, and hypothesis strategies.

The strategies need the ``test`` extra: ``from lw2g.testing.strategies import gradients``.
"""

# imported for what they register
from lw2g.testing import (  # noqa: F401
    backbone_checks,
    baseline_checks,
    benchmark_checks,
    constraint_checks,
    evidence_checks,
    phase_checks,
    policy_checks,
    retrieval_checks,
    site_checks,
    tracker_checks,
    training_checks,
)
from lw2g.testing.kit import (
    CheckResult,
    ContractCase,
    ContractViolation,
    NotApplicable,
    Subject,
    check,
    contract_cases,
)
from lw2g.testing.simulated_device import simulated_device
from lw2g.testing.tiny import TinyPlugin, tiny_backbone, tiny_catalogue

__all__ = [
    "CheckResult",
    "ContractCase",
    "ContractViolation",
    "NotApplicable",
    "Subject",
    "TinyPlugin",
    "check",
    "contract_cases",
    "simulated_device",
    "tiny_backbone",
    "tiny_catalogue",
]
