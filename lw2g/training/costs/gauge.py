"""The clock and the scales of a rehearsal: how much of a work is gone through, and what all of it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from lw2g.training.costs.counting import Tally, Uncounted
from lw2g.training.costs.thinning import on_a_line, part_of
from lw2g.training.devices.peak import PeakMemory
from lw2g.training.session import Session

__all__ = ["Gauge"]

_SECONDS, _COUNTED_SECONDS = 0.5, 0.05
"""What one measurement may take, by the pace of a plain forward: of a whole backbone, of a hollow one."""
T = TypeVar("T")


class Gauge:
    """Measures work on a session, with what a hollow backbone leaves out of it.

    Args:
        session: Whose device the work is done on, and whose backbone sets the pace.
        tally: What the backbone leaves out, where it is a hollow one.
        shared: What was measured once and for all so far, on whatever sessions; added to.

    Attributes:
        tally: That, or one that counts nothing.
        patience: Seconds that one measurement may take.
        machine_bytes: The most that the process has held, with batches of full size.
        device_bytes: The most that tensors have held on an accelerator, likewise; None without one.
    """

    def __init__(
        self, session: Session, tally: Tally | None, shared: dict[Hashable, float] | None = None
    ) -> None:
        self._session, self._counts = session, tally is not None
        self._shared = {} if shared is None else shared
        self.tally: Uncounted = Uncounted() if tally is None else tally
        self.patience = _SECONDS if tally is None else _COUNTED_SECONDS
        self.machine_bytes = 0.0
        self.device_bytes = None if PeakMemory(session.engine.device).device is None else 0.0
        self._pace = self.once("pace", self._seconds_per_image)

    def _seconds_per_image(self) -> float:
        """Return the pace of a plain forward, after one to warm up."""
        task = self._session.stream.tasks[0]
        images = self._session.image_set([part_of(task.test, 2)], train=False)
        batch = next(iter(images.batches([list(range(len(images)))])))
        taken = []
        for _ in range(3):
            began, counted = self.now(), self.tally.seconds
            with torch.no_grad(), self._session.engine.autocast():
                self._session.backbone.features(batch.images)
            taken.append((self.now() - began - (self.tally.seconds - counted)) / len(images))
        return max(min(taken), 1e-6)

    def once(self, what: Hashable, measure: Callable[[], float]) -> float:
        """Return what was measured of the same thing on an equal backbone, or measure it now."""
        run, backbone = self._session.config.run, self._session.backbone
        key = (what, backbone.fingerprint, self._counts, run.device, run.precision)
        if key not in self._shared:
            self._shared[key] = measure()
        return self._shared[key]

    def affordable(self, wanted: int, passes: float = 1.0) -> int:
        """Return how many of some images may be gone through, at so many forwards each."""
        return min(wanted, max(1, int(self.patience / (passes * self._pace))))

    def now(self) -> float:
        """Return the time, with what has been counted beyond what was done."""
        self._session.engine.synchronize()
        return time.perf_counter() + self.tally.seconds

    def timed(self, work: Callable[[], object]) -> float:
        """Return the seconds of some work."""
        began = self.now()
        work()
        return self.now() - began

    def cost(self, size: int, full: int, of: Callable[[int], T], work: Callable[[T], object]) -> float:
        """Return the seconds of work on so many images: on a line, or by what is counted of it.

        Args:
            size: How many are affordable.
            full: How many there are.
            of: Makes what is worked on, of so many; not timed.
            work: The work.
        """
        if not self._counts:
            return on_a_line(size, full, lambda count: self._timed_on(of(count), work))
        before = self.tally.seconds
        taken = self._timed_on(of(size), work)
        return taken + (self.tally.seconds - before) * (max(full, 1) / max(size, 1) - 1)

    def _timed_on(self, material: T, work: Callable[[T], object]) -> float:
        return self.timed(lambda: work(material))

    @contextmanager
    def holding(self, share: float = 1.0) -> Iterator[None]:
        """Note what the block holds at most, if what it takes beyond what there was grew by a factor."""
        peak = PeakMemory(self._session.engine.device)
        before, tally = (peak.machine, peak.device), self.tally
        tally.held = 0.0
        yield
        more = float(peak.machine - before[0])
        if before[1] is None or peak.device is None:
            more += tally.held
        else:
            device = before[1] + tally.weights + share * (peak.device - before[1] + tally.held)
            self.device_bytes = max(self.device_bytes or 0.0, device)
        self.machine_bytes = max(self.machine_bytes, before[0] + share * more)
