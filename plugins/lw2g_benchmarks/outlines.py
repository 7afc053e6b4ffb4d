"""The sizes of published benchmarks, from their facts alone."""

from __future__ import annotations

from lw2g.errors import DataError
from lw2g.interfaces.dataset import Outline
from lw2g_benchmarks.options import PublishedConfig
from lw2g_benchmarks.orders import task_sizes

__all__ = ["outline"]


def outline(config: PublishedConfig) -> Outline:
    """Return the size of the stream that a configuration names.

    Raises:
        ConfigError: If the classes do not split as asked.
        DataError: If the published counts are not known.
    """
    data = config.data
    split = data.split(config.split)
    if split.train is None or split.test is None:
        raise DataError(
            f"benchmark {data.name!r}: how many images it has is not known without them; run "
            f"`lw2g data get {data.name}`"
        )
    sizes = task_sizes(data.num_classes, config.increment, config.uneven, config.base)
    return Outline(classes=tuple(sizes), train=split.train, test=split.test)
