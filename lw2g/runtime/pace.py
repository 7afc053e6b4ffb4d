"""How long a run still takes, judged by the pace of what it has done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["Pace"]


class Pace:
    """Estimates the seconds that a run still needs; it reads no clock.

    The pace of a phase is its latest seconds per training image of its task. A planned training phase that
    has not run yet counts as many seconds per image and epoch as those that have; other work counts nothing
    until it has run once.

    Args:
        sizes: Training images of each task.
        trained: How many tasks, from the first on, train; None: all.
    """

    def __init__(self, sizes: Sequence[int], trained: int | None = None) -> None:
        self._sizes = list(sizes)
        self._trained = len(self._sizes) if trained is None else trained
        self._finished: dict[str, float] = {}
        self._pace: dict[str, float] = {}
        self._epochs: dict[str, int] = {}
        self._around: set[str] = set()
        self._begun: set[str] = set()

    def begin(self, phase: str, *, first: bool) -> None:
        """Note that a phase begins; ``first`` says that its task does, too."""
        if first:
            self._begun.clear()
        self._begun.add(phase)
        if phase not in self._epochs:
            self._around.add(phase)

    def plan(self, epochs: Mapping[str, int]) -> None:
        """Note the epochs of the phases that a task trains through, 0 for those that have none."""
        self._epochs = dict(epochs)

    def finish(self, task: int, phase: str, seconds: float) -> None:
        """Note how long a phase took from its beginning to its end."""
        self._finished[phase] = self._pace[phase] = seconds / self._sizes[task]

    def remaining(self, task: int, phase: str, seconds: float, share: float) -> float:
        """Return the seconds to the end of the run.

        Args:
            task: The current task.
            phase: The current phase.
            seconds: What the whole phase takes at its present pace. The first steps are slow (images are
                decoded, kernels chosen), so the pace of earlier tasks counts as well, less and less.
            share: How much of the phase is done, 0 to 1.
        """
        size = self._sizes[task]
        now = seconds / size
        self._pace[phase] = share * now + (1 - share) * self._finished.get(phase, now)
        phases = {*self._epochs, *self._around}
        # a pace is in seconds for each unit of a task's size
        training = {name for name, epochs in self._epochs.items() if epochs > 0}
        of_training = sum(self._pace_of(name) for name in training)
        of_others = sum(self._pace_of(name) for name in phases - training)
        later_phases = sum(self._pace_of(name) for name in phases - self._begun)
        this_phase = self._pace[phase] * (1 - share)
        seconds = (this_phase + later_phases) * size
        seconds += of_training * sum(self._sizes[task + 1 : self._trained])
        return seconds + of_others * sum(self._sizes[task + 1 :])

    def _pace_of(self, phase: str) -> float:
        """Return the pace of a phase, guessed from others where it has not run yet."""
        if phase in self._pace:
            return self._pace[phase]
        seconds = 0.0
        epochs = 0
        for name, count in self._epochs.items():
            if count > 0 and name in self._pace:
                seconds += self._pace[name]
                epochs += count
        # as many seconds per epoch as the training phases that have run; around them nothing is foreseen
        return self._epochs.get(phase, 0) * seconds / max(epochs, 1)
