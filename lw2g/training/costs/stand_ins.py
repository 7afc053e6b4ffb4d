"""Stand-ins for data and weights that are not here, so that the cost of a run can still be measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import torch
from torch import Tensor

from lw2g.config.model import BackboneChoice, ExperimentConfig
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.component import BackboneComponent, BenchmarkComponent
from lw2g.interfaces.dataset import Outline
from lw2g.interfaces.stream import Benchmark, Task, TaskData, TaskStream, Transforms
from lw2g.registry.catalogue import Catalogue
from lw2g.vit.backbone import Backbone
from lw2g.vit.offline import without_network

__all__ = ["Missing", "stand_in_data", "stand_in_weights"]

_SIDE = 256


@attrs.frozen(kw_only=True)
class Missing:
    """What a run lacks here.

    Attributes:
        what: In words.
        remedy: What to do.
    """

    what: str
    remedy: str


def stand_in_data(config: ExperimentConfig, catalogue: Catalogue) -> tuple[Missing, Catalogue] | None:
    """Return what data are missing, and the catalogue with noise in their place; None if they are here.

    Raises:
        ConfigError: The benchmark cannot be built as configured.
        DataError: Data are missing that have no stand-in.
    """
    benchmark = catalogue.get("benchmark", config.benchmark.name)
    try:
        benchmark.build(config.benchmark.config).stream()
    except (ConfigError, DataError) as error:
        if benchmark.outline is None:
            raise
        return _missing(error), catalogue.with_component(_noise_benchmark(benchmark))
    return None


def stand_in_weights(chosen: BackboneChoice, component: BackboneComponent) -> tuple[Missing | None, Backbone]:
    """Return what weights are missing here, and the backbone, with random weights in their place if so.

    The network is not asked: what is not on this machine is missing.

    Raises:
        ConfigError: The backbone cannot be built as configured.
        DataError: Weights are missing, and without them nobody knows the architecture.
    """
    try:
        with without_network():
            return None, component.build(chosen.config, chosen.weights, chosen.image_size)
    except (ConfigError, DataError) as error:
        if component.untrained is None:
            raise
        return _missing(error), component.untrained(chosen.config, chosen.image_size)


def _missing(error: ConfigError | DataError) -> Missing:
    what, _, remedy = str(error).partition("; ")
    return Missing(what=what, remedy=remedy)


def _noise_benchmark(component: BenchmarkComponent) -> BenchmarkComponent:
    def build(config: Any) -> Benchmark:
        if component.outline is None:
            raise ValueError("expected a benchmark with an outline")
        return _Noise(component.build(config), component.outline(config), component.name)

    return attrs.evolve(component, build=build)


class _Source:
    """One image of noise under many ids."""

    def __init__(self, count: int) -> None:
        self.ids: Sequence[str] = [str(number) for number in range(count)]
        self._image = torch.randint(0, 256, (3, _SIDE, _SIDE), dtype=torch.uint8, generator=torch.Generator())

    def __len__(self) -> int:
        return len(self.ids)

    def image(self, index: int) -> Tensor:
        return self._image


class _Noise:
    """A benchmark of the published size without its images."""

    def __init__(self, real: Benchmark, outline: Outline, name: str) -> None:
        self._real, self._outline, self._name = real, outline, name

    def transforms(self, image_size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> Transforms:
        return self._real.transforms(image_size, mean, std)

    def stream(self) -> TaskStream:
        outline = self._outline
        classes = sum(outline.classes)
        names = tuple(f"class {number}" for number in range(classes))
        train, test = (_spread(count, classes) for count in (outline.train, outline.test))
        tasks, start = [], 0
        for index, size in enumerate(outline.classes):
            own = range(start, start + size)
            start += size
            tasks.append(
                Task(
                    index=index,
                    classes=tuple(own),
                    class_names=names[own.start : own.stop],
                    train=_of(train, own),
                    test=_of(test, own),
                )
            )
        return TaskStream(
            name=self._name,
            tasks=tuple(tasks),
            class_order=tuple(range(classes)),
            class_names=names,
            fingerprint="",
        )


def _spread(count: int, classes: int) -> tuple[_Source, Any]:
    return _Source(count), np.arange(count) % classes


def _of(part: tuple[_Source, Any], classes: range) -> TaskData:
    source, labels = part
    where = np.flatnonzero((labels >= classes.start) & (labels < classes.stop))
    return TaskData(source=source, indices=where, labels=labels[where])
