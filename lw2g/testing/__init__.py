"""Tools for tests of plugins: the contract kit, a tiny benchmark and backbone, and hypothesis strategies.

The strategies need the ``test`` extra: ``from lw2g.testing.strategies import gradients``.

Checks stand on five modules: ``tiny`` (data and backbone), ``small_run`` (a run on them), ``moved_session``
(what a forward is checked with after it), ``changes`` (what is compared before and after) and ``guards``
(around a component's code: no network, seeded generators, errors with a remedy).
"""

# imported because they register checks
from lw2g.testing import (  # noqa: F401
    backbone_checks,
    baseline_checks,
    benchmark_checks,
    carry_checks,
    constraint_checks,
    evidence_checks,
    head_checks,
    metric_checks,
    policy_checks,
    retrieval_checks,
    site_checks,
    tracker_checks,
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
    "tiny_backbone",
    "tiny_catalogue",
]
