"""Tests of the simulated device: it refuses and allows what CUDA does, and counts what waits."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from simulated_device import DEVICE, simulated_device


@pytest.fixture
def account():
    """Run a test on the simulated device."""
    with simulated_device() as account:
        yield account


@pytest.fixture
def rows(account):
    """Return rows on the device."""
    return torch.arange(6.0, device="cuda").reshape(3, 2)


REFUSED = {
    "cat": lambda rows: torch.cat([rows, torch.zeros(3, 2)]),
    "add": lambda rows: rows + torch.zeros(3, 2),
    "mm": lambda rows: torch.ones(1, 3) @ rows,
    "stack of scalars": lambda rows: torch.stack([rows.sum(), torch.tensor(0.0)]),
    "in place into a CPU scalar": lambda rows: torch.zeros(()).add_(rows.sum()),
    "device positions into CPU rows": lambda rows: torch.ones(3)[torch.tensor([0], device=rows.device)],
    "CPU rows written at positions": lambda rows: rows.__setitem__(torch.tensor([0, 1]), torch.ones(2, 2)),
    "index_select": lambda rows: rows.index_select(0, torch.tensor([0])),
    "embedding": lambda rows: nn.functional.embedding(torch.tensor([0]), rows),
    "from numpy": lambda rows: rows * torch.from_numpy(np.ones((3, 2), dtype=np.float32)),
    "generator of another device": lambda rows: rows.normal_(generator=torch.Generator()),
    "factory with such a generator": lambda rows: torch.randn(2, device=DEVICE, generator=torch.Generator()),
    "module": lambda rows: nn.Linear(2, 2)(rows),
    "equal": lambda rows: torch.equal(rows, torch.zeros(3, 2)),
}


@pytest.mark.parametrize("work", REFUSED.values(), ids=REFUSED)
def test_refuses_what_cuda_refuses(rows, work):
    """Tensors of two devices in one operation, and generators of another one, are errors."""
    with pytest.raises(RuntimeError, match="device"):
        work(rows)


@pytest.mark.parametrize("read", [np.asarray, torch.Tensor.numpy], ids=["asarray", "numpy"])
def test_numpy_cannot_read_the_device(rows, read):
    """What numpy would read must be copied first."""
    with pytest.raises(TypeError, match="numpy"):
        read(rows)
    assert read(rows.cpu()).sum() == 15


ALLOWED = {
    "CPU scalar": lambda rows: rows * torch.tensor(2.0),
    "number": lambda rows: torch.where(rows > 1, rows, 0.0),
    "CPU positions": lambda rows: rows[torch.tensor([0, 2])],
    "slice written from the CPU": lambda rows: rows.__setitem__(slice(0, 1), torch.ones(1, 2)) or rows,
    "module": lambda rows: nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3)).to(rows.device)(rows),
    "like": lambda rows: torch.zeros_like(rows) + rows.new_ones(2) + torch.ones(2).to(rows),
    "copies": lambda rows: copy.deepcopy(rows) + rows.clone() + rows.detach() + rows.data,
    "float64": lambda rows: rows.double() + torch.zeros(2, dtype=torch.float64, device=rows.device),
}  # fmt: skip


@pytest.mark.parametrize("work", ALLOWED.values(), ids=ALLOWED)
def test_allows_what_cuda_allows(rows, work):
    """Results of work on the device are on the device."""
    assert work(rows).device == DEVICE
    assert work(rows).is_cuda


def test_moves_are_copies_and_gradients_cross_the_device(account):
    """A parameter on the device has its gradient there; what was copied over is another memory."""
    source = torch.ones(2)
    moved = source.to("cuda", non_blocking=True)
    moved.add_(1)
    assert source.tolist() == [1, 1]
    assert moved.cpu().tolist() == [2, 2]
    parameter = nn.Parameter(moved)
    (parameter * torch.tensor(3.0)).sum().backward()
    assert parameter.grad.device == DEVICE
    assert parameter.grad.cpu().tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="same device"):
        parameter.grad.add_(torch.zeros(2))


WAITS = {
    "item": lambda rows: rows.sum().item(),
    "float": lambda rows: float(rows[0, 0]),
    "bool": lambda rows: bool((rows > 0).any()),
    "tolist": lambda rows: rows.tolist(),
    "cpu": lambda rows: rows.cpu(),
    "to": lambda rows: rows.to("cpu"),
    "copy_": lambda rows: torch.zeros(3, 2).copy_(rows),
    "nonzero": lambda rows: rows.nonzero(),
    "mask": lambda rows: rows[rows > 1],
    "masked_select": lambda rows: rows.masked_select(rows > 1),
    "unique": lambda rows: rows.unique(),
    "equal": lambda rows: torch.equal(rows, rows),
    "eigh": lambda rows: torch.linalg.eigh(rows.mT @ rows),
}


@pytest.mark.parametrize("work", WAITS.values(), ids=WAITS)
def test_counts_what_is_read_back_with_its_line(account, rows, work):
    """Whatever the host must know is one read, at the line that asked for it."""
    before = len(account.waits)
    work(rows)
    (wait,) = account.waits[before:]
    assert wait.kind == "read"
    assert wait.line == f"base/test_simulated_device.py:{work.__code__.co_firstlineno}"


def test_work_that_stays_on_the_device_is_not_counted(account, rows):
    """Arithmetic, reductions, masks by value and optimizer steps wait for nothing."""
    parameter = nn.Parameter(rows.clone())
    optimizer = torch.optim.AdamW([parameter])
    for _ in range(3):
        optimizer.zero_grad()
        (parameter - rows.masked_fill(rows > 2, 0.0)).square().mean().backward()
        nn.utils.clip_grad_norm_([parameter], 1.0)
        optimizer.step()
    assert account.waits == []
    assert len(account.steps) == 3


def test_an_ordinary_step_is_told_from_the_end_of_an_epoch(account, rows):
    """What every step reads is named; what only every third one reads is not."""
    parameter = nn.Parameter(rows.clone())
    optimizer = torch.optim.SGD([parameter], lr=0.1)

    def steps(count, seldom, always):
        for number in range(count):
            parameter.sum().backward()
            optimizer.step()
            if always or number % 3 == seldom:
                parameter.sum().item()

    steps(9, seldom=1, always=False)
    assert account.every_step() == []
    assert 0 < account.mean() < 1
    steps(20, seldom=1, always=True)
    assert [wait.what for wait in account.every_step()] == ["item"]


def test_deterministic_kernels_are_demanded_as_cuda_does(rows):
    """An operation without a deterministic kernel is refused where those were chosen, else not."""
    rows.cumsum(0)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="deterministic"):
            rows.cumsum(0)
        rows.long().cumsum(0)
    finally:
        torch.use_deterministic_algorithms(False)
