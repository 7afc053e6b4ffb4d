"""Whole runs on a simulated device: every registered baseline grows, trains and predicts on it."""

import os

import attrs
import pytest
import torch

from lw2g.base import progress
from lw2g.config.resolve import resolve
from lw2g.kit.small_run import learned
from lw2g.kit.tiny import tiny_catalogue
from lw2g.lifecycle.runner import start
from lw2g.testing import contract_cases
from simulated_device import simulated_device

pytestmark = pytest.mark.slow

CATALOGUE = tiny_catalogue()
BATCH = 4
RUNS_LOOKED_AT = (
    "backbone_is_untouched",
    "cached_features_hold",
    "resumes_to_the_same_bits",
    "protection_holds",
)


@pytest.fixture(autouse=True)
def _progress_reads_seldom(monkeypatch):
    """Simulated steps are slower than the interval at which progress may read the loss."""
    monkeypatch.setattr(progress, "_INTERVAL", 3600.0)


@pytest.fixture(autouse=True)
def _kernels_as_they_were():
    """Put back what a run chooses for the process."""
    yield
    torch.use_deterministic_algorithms(False)
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


def quick(kind, name):
    """Return options that make a component's training short, in small batches, at few blocks."""
    found = {}
    for field in attrs.fields(CATALOGUE.get(kind, name).config):
        if field.name.endswith("epochs") and isinstance(field.default, int):
            found[f"{kind}.{field.name}"] = 2
        elif field.name == "batch_size":
            found[f"{kind}.{field.name}"] = BATCH
        elif field.name == "blocks":
            found[f"{kind}.{field.name}"] = (2, 3)  # the default of dual-prompt's shared blocks is 0 and 1
    return found


def run(name, directory, *, policy, retrieval=None, constraints=None, speed="exact"):
    """Run a baseline for three tasks and return its record."""
    used = retrieval or CATALOGUE.get("baseline", name).retrieval
    resolved = resolve(
        CATALOGUE,
        overrides={
            "run.evaluation_batch": 16,
            "run.deterministic": True,
            "run.precision": "32-true",
            "run.speed": speed,
            "run.graph": "auto",  # whatever is replayed has to come to the same end
            "run.workers": 0,  # a forked process would simulate a device of its own
            "growth.images": 16,
            "benchmark.random_crops": True,
            **quick("baseline", name),
            **(quick("retrieval", used) if used else {}),
        },
        baseline=name,
        policy=policy,
        retrieval=retrieval,
        constraints=constraints,
        benchmark="tiny",
        backbone="tiny",
    )
    return start(resolved, CATALOGUE, directory / "run")


def check(record, account):
    """Ask for a run that has come to its end on the device without a step that waited for it."""
    assert record["environment"]["device"] == "cuda:0"
    assert len(record["task_to_set"]) == len(record["accuracy_matrix"])
    assert None not in (row[-1] for row in record["accuracy_matrix"])
    assert account.every_step("read") == []
    assert account.every_step("upload") == []


@pytest.mark.parametrize("name", CATALOGUE.names("baseline"))
def test_baselines_run_on_a_device_and_no_step_waits_for_it(name, tmp_path):
    """Three tasks end, with deterministic kernels alone; an ordinary step reads nothing back."""
    grows = CATALOGUE.get("baseline", name).growth == "sets"
    how = {"policy": "min"} if grows else {"policy": "always", "constraints": ["orthogonal"]}
    with simulated_device() as account:
        record = run(name, tmp_path, **how)
    check(record, account)
    # steps were watched at all, but for the one method that takes none
    assert account.steps or name == "simple-cil"


def test_the_contract_kit_makes_its_runs_on_a_device():
    """Whatever a check looks at in a run lies on the device that was asked for, and holds there."""
    with simulated_device():
        cases = contract_cases("s-prompt-plus-plus", catalogue=CATALOGUE, device="cuda")
        looked_at = {case.check.name: case for case in cases if case.check.name in RUNS_LOOKED_AT}
        found = {name: case.result() for name, case in looked_at.items()}
        assert learned(cases[0].subject).session.parts.engine.device.type == "cuda"
    assert {name: (one.status, one.message) for name, one in found.items()} == dict.fromkeys(
        RUNS_LOOKED_AT, ("passed", "")
    )


@pytest.mark.parametrize("name", CATALOGUE.names("retrieval"))
def test_retrieval_strategies_run_on_a_device_and_no_step_waits_for_it(name, tmp_path):
    """The same holds for every registered strategy, under a constraint with spaces of its own."""
    with simulated_device() as account:
        record = run("s-prompt-plus-plus", tmp_path, policy="one", retrieval=name, constraints=["pgp"])
    check(record, account)


@pytest.mark.parametrize("speed", ["exact", "fast"])
def test_a_step_on_images_that_lie_on_the_device_hands_nothing_over(speed, tmp_path):
    """After the first epoch only its first step sends anything; augmented on the CPU, every step does."""
    with simulated_device() as account:
        record = run("s-prompt-plus-plus", tmp_path, policy="always", retrieval="oracle", speed=speed)
    check(record, account)
    assert record["config"]["run"]["speed"] == speed
    assert record["environment"]["graphs"] == "1 forwards"
    (intervals, *_) = account.between_steps("send").values()
    second = [len(sent) for sent in intervals[len(intervals) // 2 + 1 :]]
    assert second == [speed == "exact"] * max(len(second), 2)
