"""Whole runs: constraints compose with baselines of several kinds, and change nothing where they must not."""

from __future__ import annotations

import warnings
from functools import cache

import pytest
import torch

from listening import At, power_cut
from lw2g.disk.checkpoint import part
from lw2g.interfaces.tracker import EpochEnded
from lw2g.learning.session import open_session
from lw2g.lifecycle.runner import resume, start
from lw2g.maths.subspace import Subspace
from lw2g_prompts.cprompt import CPrompt
from runs import different, shortest, tensors


@pytest.fixture(scope="module")
def small(catalogue):
    """Resolve a run of two tasks and few steps, under policy always unless another is named."""

    def make(baseline, *constraints, policy="always", **overrides):
        few = {"benchmark.tasks": 2, "benchmark.train": 6, "benchmark.test": 3}
        if "lgcl" in constraints:
            few["constraints.lgcl.encoder"] = "hash"
        return shortest(
            catalogue, baseline, few | overrides, policy=policy, constraints=constraints or ["none"]
        )

    return make


def learned(state):
    """Return the learned part of a checkpoint."""
    kinds = ("baseline", "pool", "retrieval")
    return {key: value for key, value in state.items() if key.split("/")[0] in kinds}


def same(left, right):
    """Whether two checkpoints hold the same learned bits."""
    return different(learned(left), learned(right)) == []


@pytest.fixture(scope="module")
def plain(small, catalogue, tmp_path_factory):
    """Run a baseline without constraints, once."""

    @cache
    def run(baseline):
        directory = tmp_path_factory.mktemp("plain") / "run"
        start(small(baseline), catalogue, directory)
        return directory

    return run


# -- every kind of baseline ----------------------------------------------------------------------------------


def test_pgp_composes(small, plain, catalogue, tmp_path):
    """Task 1 is that of the baseline, bit for bit; there is a space per site, and none in the memory."""
    record = start(small("dual-prompt", "pgp"), catalogue, tmp_path / "run")
    assert same(tensors(tmp_path / "run", 0), tensors(plain("dual-prompt"), 0))
    last = len(record["accuracy_matrix"]) - 1
    spaces = part(tensors(tmp_path / "run", last), "constraint.pgp")
    assert spaces
    assert part(tensors(tmp_path / "run", last), "memory") == {}
    assert all(entry["ranks_after"] == {} for entry in record["decisions"])


@pytest.mark.parametrize(
    ("baseline", "warns"),
    [
        ("dual-prompt", False),  # keys of a strategy
        ("l2p", False),  # keys of a baseline
        ("coda-prompt", True),  # no keys
    ],
)
def test_lgcl_composes(baseline, warns, small, plain, catalogue, tmp_path):
    """It guides what the baseline trains, and says once where there are no keys to guide."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record = start(small(baseline, "lgcl"), catalogue, tmp_path / "run")
    last = len(record["accuracy_matrix"]) - 1
    assert not same(tensors(tmp_path / "run", last), tensors(plain(baseline), last))
    said = [str(one.message) for one in caught if "no learned prompt keys" in str(one.message)]
    assert len(said) == warns
    assert any(entry["option"] == "constraints.lgcl.encoder" for entry in record["deviations"])


# -- freeze -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", ["dual-prompt", "s-prompt-plus-plus", "inflora"])
def test_a_frozen_set_keeps_its_bits(baseline, small, catalogue, tmp_path):
    """A reused set stays as the first task left it, and old features are valid; heads go on learning."""
    record = start(small(baseline, "freeze", policy="one"), catalogue, tmp_path / "run")
    first, second = tensors(tmp_path / "run", 0), tensors(tmp_path / "run", 1)
    assert record["task_to_set"] == [0, 0]
    own, kept = part(second, "pool"), part(first, "pool")
    assert own.keys() == kept.keys()
    assert any(torch.is_floating_point(value) for value in own.values())
    for name, value in own.items():
        assert torch.equal(value, kept[name]), name
    assert not same(first, second)
    # the one's shared prompt moves, and of summed sets each task is taken to move all features
    assert bool(record["stale_classes"]["last"]) == (baseline in {"dual-prompt", "inflora"})


# -- lgcl ---------------------------------------------------------------------------------------------------


def test_the_host_draws_what_it_would_draw_alone(small, catalogue, tmp_path, monkeypatch):
    """At every draw of the host the generator stands where it stands without guidance."""
    states = {}
    draw = CPrompt.random_rows
    for constraints in ((), ("lgcl",)):
        seen = states.setdefault(constraints, [])

        def spy(self, context, batch, seen=seen):
            seen.append(torch.get_rng_state())
            return draw(self, context, batch)

        monkeypatch.setattr(CPrompt, "random_rows", spy)
        resolved = small("cprompt", *constraints, **{"benchmark.random_crops": True})
        start(resolved, catalogue, tmp_path / f"run{len(constraints)}")
    assert len(states[()]) == len(states["lgcl",]) > 4
    assert all(torch.equal(one, other) for one, other in zip(*states.values(), strict=True))
    assert not torch.equal(states[()][-2], states[()][-1])


def test_a_run_with_text_and_spaces_resumes_to_the_same_bits(small, catalogue, tmp_path):
    """Cut in the second task of three with lgcl and pgp, it ends as if nothing had happened."""
    overrides = {"baseline.epochs": 2, "benchmark.tasks": 3}
    resolved = small("dual-prompt", "lgcl", "pgp", **overrides)
    quiet = start(resolved, catalogue, tmp_path / "quiet")
    # the second epoch of the second task
    cut = At(lambda one: isinstance(one, EpochEnded) and (one.task, one.epoch) == (1, 1), power_cut)
    with pytest.raises(RuntimeError, match="power cut"):
        start(resolved, catalogue, tmp_path / "cut", [cut])
    assert resume(tmp_path / "cut", catalogue)["metrics"] == quiet["metrics"]
    assert same(tensors(tmp_path / "cut", 2), tensors(tmp_path / "quiet", 2))


# -- pgp ----------------------------------------------------------------------------------------------------


def moved(directory):
    """Return how task 2 moved shared and new prompt keys and values, from what they started from."""
    first, second = tensors(directory, 0), tensors(directory, 1)
    shared = [key for key in first if "shared_prompt" in key]
    found = {key.rsplit(".", 1)[1]: second[key] - first[key] for key in shared}
    own = part(first, "pool"), part(second, "pool")
    return found, {half: own[1][f"1.{half}"] - own[0][f"0.{half}"] for half in ("key", "value")}


def test_pgp_keeps_new_sets_and_shared_prompts_off_old_tasks(small, plain, catalogue, tmp_path):
    """What task 2 adds to prefix keys lies outside task 1's spaces; values, and a plain run, go anywhere."""
    directory = tmp_path / "run"
    start(small("dual-prompt", "pgp", **{"constraints.pgp.energy": 0.8}), catalogue, directory)
    parts = {}
    for key, value in part(tensors(directory, 0), "constraint.pgp").items():
        name, kind = key.rsplit("|", 1)
        parts.setdefault(name, {})[kind] = value
    spaces = {name: Subspace.from_state(state) for name, state in parts.items()}
    assert set(spaces) == {f"blocks.{block}.prefix_key" for block in range(5)}

    def inside(where, half):
        shares = []
        for owner, blocks in zip(moved(where), ((0, 1), (2, 3, 4)), strict=True):
            for block, change in zip(blocks, owner[half].double(), strict=True):
                space = spaces[f"blocks.{block}.prefix_key"]
                shares.append(float(space.on(change).norm() / change.norm()))
        return shares

    assert max(inside(directory, "key")) < 1e-4  # float32 values of size 1 that moved by little
    assert min(inside(directory, "value")) > 1e-2
    assert min(inside(plain("dual-prompt"), "key")) > 1e-2


# -- what is paid for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constraints", "memory", "spaces"),
    [
        ((), False, False),
        (("cpk",), False, False),
        (("lgcl",), False, False),
        (("pgp",), False, True),
        (("orthogonal",), True, True),
        (("orthogonal", "pgp"), True, True),
    ],
)
def test_spaces_are_built_for_those_who_want_them(constraints, memory, spaces, small, catalogue):
    """Without the policy's need, the memory is kept for readers, and own spaces for those that have them."""
    session = open_session(small("dual-prompt", *constraints).config, catalogue)
    assert (session.parts.keeps_memory, session.parts.builds_spaces) == (memory, spaces)
