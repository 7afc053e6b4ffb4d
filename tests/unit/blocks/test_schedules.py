"""Schedules: their formulas, and the rates that the authors' schedulers give when run as the authors do."""

from __future__ import annotations

import pytest
import torch
from timm.scheduler import CosineLRScheduler, StepLRScheduler
from torch.optim.lr_scheduler import LambdaLR

from lw2g.blocks.options import ScheduleOptions
from lw2g.blocks.schedules import chosen_schedule, coda_cosine, cosine, late, steps, warmed_up

PROMPTS, HEAD = 2.8125e-3, 2.8125e-4


def factors(schedule, epochs, base=1.0):
    """Return the learning rates of all epochs over the base."""
    return [schedule(base, epoch, epochs) / base for epoch in range(epochs)]


def optimizer_of(*rates):
    """Return an optimizer with a group for each rate."""
    return torch.optim.SGD([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in rates])


def stepped_after(scheduler, optimizer, epochs):
    """Return all groups' rates, epoch by epoch, of a timm scheduler told about an epoch after it."""
    seen = []
    for epoch in range(epochs):
        seen.append([group["lr"] for group in optimizer.param_groups])
        scheduler.step(epoch)
    return seen


@pytest.mark.parametrize(
    ("epochs", "first", "last"),
    [
        (20, [1, 1, 0.9967, 0.9866, 0.9700], [0.1784, 0.0974]),
        (50, [1, 1, 0.9995], [0.1107, 0.0791, 0.0474]),
        (5, [1, 1, 0.9254, 0.7126, 0.3935], []),
        (4, [1, 1, 0.8686, 0.5090], []),
        (1, [1], []),
    ],
)
def test_late_coda_cosine_gives_the_released_factors(epochs, first, last):
    """Two epochs at the full rate; the end of the formula, cos(0.495 pi) = 0.0157, never occurs."""
    found = factors(late(coda_cosine), epochs)
    assert found[: len(first)] == pytest.approx(first, abs=5e-5)
    assert found[len(found) - len(last) :] == pytest.approx(last, abs=5e-5)


def test_coda_scheduler_with_its_counter_set_back_is_late():
    """A scheduler that steps once when it is built and then rewinds gives exactly the late cosine."""
    optimizer = optimizer_of(1.0)
    scheduler = LambdaLR(optimizer, lambda epoch: coda_cosine(1.0, epoch, 20))
    scheduler.last_epoch = -1
    seen = []
    for epoch in range(20):
        if epoch:
            optimizer.step()
            scheduler.step()
        seen.append(optimizer.param_groups[0]["lr"])
    assert factors(late(coda_cosine), 20) == pytest.approx(seen)
    assert factors(coda_cosine, 20)[-2:] == pytest.approx([0.0974, 0.0157], abs=5e-5)


@pytest.mark.parametrize(
    ("schedule", "build", "epochs"),
    [
        (steps(30), lambda o: StepLRScheduler(o, decay_t=30, decay_rate=0.1), 150),
        (cosine(1e-5), lambda o: CosineLRScheduler(o, t_initial=150, lr_min=1e-5), 150),
        (
            warmed_up(cosine(1e-5), 5, 1e-6),
            lambda o: CosineLRScheduler(o, t_initial=50, lr_min=1e-5, warmup_t=5, warmup_lr_init=1e-6),
            50,
        ),
    ],
)
def test_late_schedules_are_those_of_timm_stepped_after_the_epoch(schedule, build, epochs):
    """For prompts and for a head at a tenth of their rate, with a least rate that is the same for both."""
    optimizer = optimizer_of(PROMPTS, HEAD)
    seen = stepped_after(build(optimizer), optimizer, epochs)
    found = [[late(schedule)(base, epoch, epochs) for base in (PROMPTS, HEAD)] for epoch in range(epochs)]
    torch.testing.assert_close(torch.tensor(found), torch.tensor(seen), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("options", "task", "expected"),
    [
        ({}, 0, [1, 1, 1, 1, 1]),
        ({"schedule": "step", "decay_epochs": 2}, 3, [1, 1, 1, 0.1, 0.1]),
        ({"schedule": "step", "decay_epochs": 2, "stepping": "exact"}, 0, [1, 1, 0.1, 0.1, 0.01]),
        ({"schedule": "step", "decay_epochs": 2, "schedule_tasks": "first"}, 0, [1, 1, 1, 0.1, 0.1]),
        ({"schedule": "step", "decay_epochs": 2, "schedule_tasks": "first"}, 1, [1, 1, 1, 1, 1]),
        ({"schedule": "cosine", "stepping": "exact"}, 0, [1, 0.9045, 0.6545, 0.3455, 0.0955]),
        ({"schedule": "cosine", "warmup_epochs": 2}, 0, [1e-6, 1e-6, 0.5, 0.6545, 0.3455]),
        ({"warmup_epochs": 2}, 0, [1, 1, 1, 1, 1]),
    ],
)
def test_options_choose_the_schedule_of_a_task(options, task, expected):
    """Formula, warm-up, stepping and the tasks in which it acts; a constant rate knows none of them."""
    found = factors(chosen_schedule(ScheduleOptions(**options), task), 5)
    assert found == pytest.approx(expected, abs=6e-5)
