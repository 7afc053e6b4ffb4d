"""What a rehearsal goes through of a task: fewer of its images, and D_sub in the sizes that are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from lw2g.interfaces.batch import Batch
from lw2g.interfaces.context import TaskContext
from lw2g.training.costs.gauge import Gauge
from lw2g.training.costs.thinning import thinned
from lw2g.training.evidence.probe import Probe
from lw2g.training.images.image_set import ImageSet
from lw2g.training.session import Session

__all__ = ["First", "Probes", "Pulled", "image_sets", "thin"]


class First:
    """The first images of a set, as an image set."""

    def __init__(self, images: ImageSet, count: int) -> None:
        self._images, self._count = images, count

    def __len__(self) -> int:
        return self._count

    def batches(self, order: Sequence[Sequence[int]], *, seed: int | None = None) -> Iterator[Batch]:
        """Yield batches as the set does."""
        return self._images.batches(order, seed=seed)


class Probes:
    """A task's D_sub in the sizes that are measured, each made once for all uses, as in a run."""

    def __init__(self, session: Session, gauge: Gauge, index: int, *, careful: bool) -> None:
        growth = session.config.growth
        self._session, self._gauge = session, gauge
        self._index, self._made = index, dict[int, Probe]()
        self.full = min(len(session.stream.tasks[index].train), growth.images)
        passes = 2 + 2 * len(session.pool) if session.collects_evidence else 2
        least = min(2 * growth.groups, self.full)
        self.size = max(gauge.affordable(self.full, passes), least) if careful else least

    def of(self, count: int) -> Probe:
        """Return one of so many images."""
        if count not in self._made:
            session = self._session
            growth = attrs.evolve(session.config.growth, images=max(count, session.config.growth.groups))
            config = attrs.evolve(session.config, growth=growth)
            small = attrs.evolve(thin(session, count), config=config)
            still, _ = image_sets(small, self._index)
            self._made[count] = small.probe(self._index, still)
        return self._made[count]

    def know_queries(self) -> None:
        """Compute the queries of all samples."""
        for probe in self._made.values():
            for _ in probe.batches():
                pass

    def cost(self, work: Callable[[Probe], object]) -> float:
        """Return the seconds of work on the whole sample."""
        return self._gauge.cost(self.size, self.full, self.of, work)


class Pulled:
    """Counts the images that phases ask their context for."""

    def __init__(self) -> None:
        self.count = 0

    def watching(self, context: TaskContext) -> TaskContext:
        """Return the context, watched."""
        augmented = context.augmented
        return attrs.evolve(
            context,
            statistics=lambda size: self._counted(context.statistics(size)),
            augmented=None if augmented is None else lambda size, seed: self._counted(augmented(size, seed)),
        )

    def _counted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self.count += len(batch)
            yield batch


def image_sets(session: Session, index: int) -> tuple[ImageSet, ImageSet]:
    """Return a task's training images under the test and under the training transform."""
    train = session.stream.tasks[index].train
    still = session.image_set([train], train=False)
    if session.transforms.train_is_deterministic:
        return still, still
    return still, session.image_set([train], train=True)


def thin(session: Session, size: int) -> Session:
    """Return the session with so many training images a task."""
    return attrs.evolve(session, stream=thinned(session.stream, size, 1))
