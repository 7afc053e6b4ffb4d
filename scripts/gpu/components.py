"""Random ViTs by timm name and noise images as components, so that what is measured needs no data."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path

import attrs
import numpy as np
import torch

from lw2g.interfaces.component import BackboneComponent, BenchmarkComponent
from lw2g.interfaces.options import option
from lw2g.interfaces.stream import TaskStream
from lw2g.registry.markers import hookimpl
from lw2g.vit.backbone import Backbone
from lw2g.vit.loading import load_backbone
from lw2g_benchmarks.options import FolderConfig
from lw2g_benchmarks.tasks import ArraySource, LabelledImages, build_stream
from lw2g_benchmarks.transforms import TransformPair, make_transforms
from lw2g_testing.tiny import tiny_backbone


@attrs.frozen(kw_only=True)
class RandomConfig:
    """Options of the random ViT."""

    model: str = option("toy", "timm architecture, or toy")


@cache
def random_backbone(model: str, image_size: int | None = None) -> Backbone:
    """Return a ViT with random weights on the CPU, made once; to be copied, not changed."""
    if model == "toy":
        return tiny_backbone(image_size=image_size or 16)
    return load_backbone(model, random_seed=0, image_size=image_size)


def _build(config: RandomConfig, weights: Path | None, image_size: int | None) -> Backbone:
    return copy.deepcopy(random_backbone(config.model, image_size))


@attrs.frozen(kw_only=True)
class NoiseConfig:
    """Options of the noise benchmark."""

    tasks: int = option(2, "tasks, of two classes each")
    train: int = option(32, "training images of a task")
    last: int = option(32, "training images of the last task")
    test: int = option(16, "test images of a task")


@attrs.frozen
class NoiseBenchmark:
    """Noise of 32 x 32 pixels, as large as CIFAR's images and transformed like those of a folder."""

    config: NoiseConfig

    def stream(self) -> TaskStream:
        """Return the stream; the same on every call."""
        config = self.config
        sizes = [config.train] * (config.tasks - 1) + [config.last]
        classes = 2 * config.tasks
        return build_stream(
            name="noise",
            train=_noise(sizes, 1),
            test=_noise([config.test] * config.tasks, 2),
            class_names=[f"noise {number}" for number in range(classes)],
            order=range(classes),
            sizes=[2] * config.tasks,
        )

    def transforms(self, image_size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> TransformPair:
        """Return the folder benchmark's transforms."""
        return make_transforms(FolderConfig(), image_size=image_size, mean=mean, std=std)


def _noise(sizes: list[int], seed: int) -> LabelledImages:
    labels = np.concatenate([2 * task + np.arange(size) % 2 for task, size in enumerate(sizes)])
    shape = (len(labels), 3, 32, 32)
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return LabelledImages(
        source=ArraySource(images, [f"{seed}/{i}" for i in range(len(labels))]), labels=labels
    )


class LabPlugin:
    """A plugin object that registers both."""

    @hookimpl
    def lw2g_backbones(self) -> list[BackboneComponent]:
        """Return the random ViT."""
        return [
            BackboneComponent(
                name="random", config=RandomConfig, build=_build, summary="a random ViT to time"
            )
        ]

    @hookimpl
    def lw2g_benchmarks(self) -> list[BenchmarkComponent]:
        """Return the noise benchmark."""
        return [
            BenchmarkComponent(
                name="noise",
                family="noise",
                config=NoiseConfig,
                build=NoiseBenchmark,
                summary="noise to time",
            )
        ]
