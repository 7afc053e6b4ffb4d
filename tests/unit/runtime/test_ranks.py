"""Where ranks are placed, what each takes of a batch, and how one that has come apart is told."""

import attrs
import pytest
import torch

from lw2g.errors import ConfigError, ContractError
from lw2g.runtime import ranks
from lw2g.runtime.ranks import on_its_device, require_agreement, share


@pytest.fixture
def two_gpus(monkeypatch):
    """Let torch see two GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def on(quick, device):
    """A configuration that names a device."""
    config = quick().config
    return attrs.evolve(config, run=attrs.evolve(config.run, device=device))


@pytest.mark.parametrize(
    ("device", "count", "complaint"),
    [
        ("cpu", 1000, "run.devices: 1000 is too many for the cores here; use at most 2"),
        ("auto", 3, "run.devices: 3 is too many for the GPUs here; use at most 2"),
        ("cuda:1", 2, "device: 'cuda:1' is one device, and 2 processes need one each"),
        ("mps", 2, "device: 'mps' is one device"),
    ],
)
def test_more_ranks_than_cores_or_gpus_are_refused(monkeypatch, two_gpus, quick, device, count, complaint):
    """Before anything is started."""
    monkeypatch.setattr(ranks.os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
    with pytest.raises(ConfigError, match=complaint):
        on_its_device(on(quick, device), count)


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_each_rank_has_a_gpu_and_the_same_kernels(two_gpus, quick, device):
    """What rank 0 writes down can be resumed anywhere: it names no GPU."""
    runs = [on_its_device(on(quick, device), 2, rank).run for rank in (0, 1)]
    assert [run.device for run in runs] == [device, "cuda:1"]
    assert all(run.deterministic and run.devices == 2 for run in runs)
    assert not on_its_device(on(quick, device), 1).run.deterministic


@pytest.mark.parametrize(("count", "size"), [(7, 3), (8, 2), (1, 2), (5, 1)])
def test_slices_make_up_the_batch(monkeypatch, count, size):
    """One after the other, each with its share; a rank without images has one that counts for nothing."""
    found, total = [], 0.0
    for rank in range(size):
        monkeypatch.setattr(ranks, "_here", {"rank": rank, "size": size})
        own, weight = share(range(count))
        assert len(own) == max(1, round(weight * count))
        found += own if weight else []
        total += weight
    assert found == list(range(count))
    assert total == pytest.approx(1)


def test_ranks_that_have_come_apart_are_told_by_a_tensor(monkeypatch):
    """Same bits pass, other bits do not."""
    monkeypatch.setattr(ranks, "_here", {"rank": 0, "size": 2})
    state, other = {"head.weight": torch.ones(3)}, [{}]

    def gather(found, own):
        found[:] = [own, own | other[0]]

    monkeypatch.setattr(ranks.distributed, "all_gather_object", gather)
    require_agreement(state, "after task 1")
    other[0] = {"head.weight": 0}
    with pytest.raises(ContractError, match=r"have come apart after task 1 \(in 'head.weight'\)"):
        require_agreement(state, "after task 1")
