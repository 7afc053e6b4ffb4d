"""Counting seconds and steps, and judging how long a run still takes."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Any

import pytest

from lw2g.interfaces.tracker import Event, Stepped
from lw2g.lifecycle.runner import start
from lw2g.runtime.pace import Pace
from lw2g.runtime.progress import Reporter, Steps, stop_on_interrupt


class Heard:
    """Keeps the steps of a run."""

    def __init__(self) -> None:
        self.steps: list[Stepped] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, Stepped):
            self.steps.append(event)

    def close(self) -> None:
        """Nothing to close."""


def test_the_first_phase_foretells_those_that_are_planned() -> None:
    """Three tasks of 10, 20 and 10 images, two epochs now and four later: the pace of the first holds."""
    estimate = Pace([10, 20, 10])
    estimate.plan({"adapt": 2, "prompts": 4})
    estimate.begin("adapt", first=True)
    # 5 s for 2 epochs of 10 images; half done: 2.5 s of it, 10 s of prompts, and 15 s for each 10 images
    assert estimate.remaining(0, "adapt", seconds=5.0, share=0.5) == pytest.approx(2.5 + 10 + 30 + 15)


@pytest.mark.parametrize(("trained", "seconds"), [(None, 2.5 + 15 + 3), (2, 2.5 + 10 + 3), (1, 2.5 + 3)])
def test_tasks_that_do_not_train_cost_no_training(trained: int | None, seconds: float) -> None:
    """Where the first tasks alone train, later ones take what is around the training."""
    estimate = Pace([10, 20, 10], trained)
    estimate.plan({"adapt": 1, "features": 0})
    estimate.begin("features", first=True)
    estimate.finish(0, "features", 1.0)
    estimate.begin("adapt", first=False)
    assert estimate.remaining(0, "adapt", seconds=5.0, share=0.5) == pytest.approx(seconds)


def test_evaluation_counts_once_it_was_seen() -> None:
    """Work that is not training is known from the first task on, and the last task ends at zero."""
    estimate = Pace([10, 10])
    estimate.plan({"prompts": 1})
    estimate.begin("prompts", first=True)
    estimate.finish(0, "prompts", 4.0)
    estimate.begin("evaluation", first=False)
    estimate.finish(0, "evaluation", 1.0)
    estimate.begin("prompts", first=True)
    assert estimate.remaining(1, "prompts", seconds=4.0, share=0.0) == pytest.approx(5.0)
    estimate.begin("evaluation", first=False)
    assert estimate.remaining(1, "evaluation", seconds=1.0, share=1.0) == 0.0


def test_slow_first_steps_do_not_frighten() -> None:
    """The pace of earlier tasks weighs as much as is not done yet."""
    estimate = Pace([10, 10])
    estimate.begin("prompts", first=True)
    estimate.finish(0, "prompts", 4.0)
    estimate.begin("prompts", first=True)
    assert estimate.remaining(1, "prompts", seconds=100.0, share=0.0) == pytest.approx(4.0)
    assert estimate.remaining(1, "prompts", seconds=8.0, share=0.5) == pytest.approx(3.0)


def test_a_resumed_run_goes_on_with_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elapsed seconds include those before the resume; what was done before does not quicken the pace."""
    heard, now = Heard(), [50.0]
    monkeypatch.setattr("lw2g.runtime.progress.time.perf_counter", lambda: now[0])
    reporter = Reporter([heard], [10])
    reporter.resume({"total": 3600.0, "training": 7.0})
    reporter.begin(0, "prompts", share=0.5)
    now[0] += 2.0
    reporter.advance(5, 5, epoch=2, epochs=4)
    (step,) = heard.steps
    assert step.elapsed == 3602.0
    assert step.remaining == pytest.approx(2.0)  # a quarter took two seconds, and a quarter is left
    assert reporter.seconds["training"] == 7.0


def test_a_loss_is_read_only_when_it_is_passed_on() -> None:
    """Reading a loss waits for the device, so it is not done for steps that nobody hears of."""
    heard, read = Heard(), []
    reporter = Reporter([heard], [10])
    reporter.begin(0, "prompts")
    for done in range(1, 101):
        reporter.advance(done, 100, loss=lambda: read.append(0.5) or 0.5)
    assert len(read) == len(heard.steps) < 100
    assert {step.loss for step in heard.steps} == {0.5}


def test_evidence_and_spaces_are_counted_to_their_end(catalogue: Any, quick: Any, tmp_path: Any) -> None:
    """A run counts the images of evidence, spaces and training up to all of them, and reports every loss."""
    heard = Heard()
    start(quick(policy="min"), catalogue, tmp_path / "run", [heard])
    last = {(step.task, step.phase): step for step in heard.steps}
    for task, phase in ((1, "evidence"), (0, "spaces"), (1, "spaces"), (0, "evaluation")):
        step = last[task, phase]
        assert (step.done, step.unit) == (step.total, "images")
        assert step.images_per_second > 0
    sizes = {step.task: step.total for step in heard.steps if step.phase == "prompts"}
    assert last[1, "prompts"].done == sizes[1] > 1
    assert all(step.loss is not None for step in heard.steps if step.phase == "prompts")
    assert all(step.remaining is not None and step.remaining >= 0 for step in heard.steps)


def test_steps_count_up() -> None:
    """Every call counts some of the known number."""
    seen: list[tuple[int, int]] = []
    step = Steps(5, lambda done, total: seen.append((done, total)))
    step(3)
    step(2)
    assert seen == [(3, 5), (5, 5)]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU]
)
def test_a_request_waits_for_the_batch(number: signal.Signals) -> None:
    """What was learned is saved first, also when the terminal is closed or a scheduler ends the job."""
    with stop_on_interrupt() as stop, stop.after_batch():
        signal.raise_signal(number)
        assert stop.wanted


def test_an_ignored_signal_stays_ignored() -> None:
    """`nohup lw2g run` goes on when the terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_interrupt() as stop, stop.after_batch():
            signal.raise_signal(signal.SIGHUP)
            assert not stop.wanted
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_is_not_told_as_the_error_that_a_library_makes_of_it(number: signal.Signals) -> None:
    """A run that is stopped while its weights are read stops, and blames no file and no component."""

    def read() -> None:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        raise RuntimeError("invalid header")

    with pytest.raises(KeyboardInterrupt), stop_on_interrupt():
        read()
