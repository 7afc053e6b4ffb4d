"""Whole runs on a GPU, where there is one: every registered component learns and predicts on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from lw2g.lifecycle.runner import start
from lw2g_testing import contract_cases
from lw2g_testing.tiny import tiny_catalogue
from runs import shortest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]

CATALOGUE = tiny_catalogue()
DEVICE = {"run.device": "cuda", "run.deterministic": True}
RUNS_LOOKED_AT = (
    "backbone_is_untouched",
    "cached_features_hold",
    "resumes_to_the_same_bits",
    "protection_holds",
)


@pytest.fixture(autouse=True)
def _kernels_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put back what a run chooses for the process."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield
    torch.use_deterministic_algorithms(False)


def require_whole_run(
    place: Path, name: str, options: dict[str, Any], policy: str, constraints: Sequence[str] | None
) -> None:
    """Make a short run on the device and ask that each of its tasks was learned and evaluated there."""
    chosen = shortest(CATALOGUE, name, DEVICE | options, policy=policy, constraints=constraints)
    record = start(chosen, CATALOGUE, place)
    assert record["environment"]["device"] == "cuda:0"
    assert len(record["task_to_set"]) == len(record["accuracy_matrix"])
    assert None not in (row[-1] for row in record["accuracy_matrix"])


@pytest.mark.parametrize("name", CATALOGUE.names("baseline"))
def test_baselines_run_on_a_device(name: str, tmp_path: Path) -> None:
    """All tasks end, with deterministic kernels alone."""
    grows = CATALOGUE.get("baseline", name).growth == "sets"
    policy, constraints = ("min", None) if grows else ("always", ["orthogonal"])
    require_whole_run(tmp_path / "run", name, {}, policy, constraints)


@pytest.mark.parametrize("name", CATALOGUE.names("retrieval"))
def test_retrieval_strategies_run_on_a_device(name: str, tmp_path: Path) -> None:
    """The same holds for every registered strategy, under a constraint with spaces of its own."""
    require_whole_run(tmp_path / "run", "s-prompt-plus-plus", {"retrieval.name": name}, "one", ["pgp"])


def test_the_contract_kit_makes_its_runs_on_a_device() -> None:
    """Whatever a check looks at in a run lies on the device that was asked for, and holds there."""
    cases = contract_cases("s-prompt-plus-plus", catalogue=CATALOGUE, device="cuda")
    looked_at = {case.check.name: case for case in cases if case.check.name in RUNS_LOOKED_AT}
    found = {name: case.result() for name, case in looked_at.items()}
    assert {name: (one.status, one.message) for name, one in found.items()} == dict.fromkeys(
        RUNS_LOOKED_AT, ("passed", "")
    )
