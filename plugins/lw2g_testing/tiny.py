"""A tiny benchmark and backbone as real components; a whole run takes a second.

``tiny_catalogue()`` holds all installed plugins and the two components named ``tiny``; give it further
plugin objects of your own.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import attrs
import numpy as np
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from lw2g.blocks.options import layers_option, pool_option
from lw2g.interfaces.component import BackboneComponent, BenchmarkComponent
from lw2g.interfaces.options import option
from lw2g.interfaces.stream import ImageTransform, IndexArray, RandomTransform, Task, TaskData, TaskStream
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g.registry.markers import hookimpl
from lw2g.vit.backbone import Backbone
from lw2g.vit.pool_words import Layers, PoolWord
from lw2g_testing.chosen_checks import TINY

__all__ = ["TinyPlugin", "tiny_backbone", "tiny_catalogue"]

M = TypeVar("M", bound=nn.Module)


@attrs.frozen(kw_only=True)
class TinyBackboneConfig:
    """Options of the tiny backbone."""

    depth: int = option(6, "blocks")
    dim: int = option(32, "width")
    spread: float = option(0.0, "how far all weights are moved at random, so that features differ")
    pool: PoolWord = pool_option()
    layers: Layers = layers_option()


def tiny_backbone(depth: int = 6, dim: int = 32, image_size: int = 16, spread: float = 0.0) -> Backbone:
    """Return a random ViT with 4 heads and 8-pixel patches, the same in every process.

    With timm's initial weights all images have nearly the same feature; a ``spread`` of 0.1 separates them.
    """
    # drawing the weights takes longer than copying them; whoever gets a copy may change it
    return _copied(_drawn(depth, dim, image_size, spread))


def _copied(module: M) -> M:
    """Return what ``copy.deepcopy`` does, which spends nearly all its time on empty tables of hooks."""
    twin = type(module).__new__(type(module))
    for name, value in vars(module).items():
        if isinstance(value, dict | list | set):
            value = type(value)(value)
        vars(twin)[name] = value
    tables: tuple[dict[str, Any], ...] = (twin._parameters, twin._buffers)
    for table in tables:
        for name, tensor in table.items():
            table[name] = copy.deepcopy(tensor)
    for name, child in twin._modules.items():
        twin._modules[name] = None if child is None else _copied(child)
    return twin


@cache
def _drawn(depth: int, dim: int, image_size: int, spread: float) -> Backbone:
    """Return the random ViT; see :func:`tiny_backbone`."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(7)
        model = VisionTransformer(
            img_size=image_size, patch_size=8, embed_dim=dim, depth=depth, num_heads=4, num_classes=0
        )
        if spread:
            for weight in model.parameters():
                weight.add_(spread * torch.randn_like(weight))
    return Backbone.wrap(model, name="tiny random ViT")


def _build_backbone(config: TinyBackboneConfig, weights: Path | None, image_size: int | None) -> Backbone:
    made = tiny_backbone(config.depth, config.dim, image_size or 16, config.spread)
    return Backbone.wrap(made.model, name=made.name, pool=config.pool, layers=config.layers)


# a function of the module, and no lambda: records of two catalogues must be equal
def _untrained_backbone(config: TinyBackboneConfig, image_size: int | None) -> Backbone:
    return _build_backbone(config, None, image_size)


@attrs.frozen(kw_only=True)
class TinyBenchmarkConfig:
    """Options of the tiny benchmark, whose tasks and classes differ in size as those of real streams do."""

    tasks: int = option(3, "tasks")
    increment: int = option(2, "classes of the first task; every second task has one more")
    train: int = option(12, "training images of the first class; of three classes in turn 0, 1, 2 more")
    test: int = option(6, "test images of the first class; likewise")
    random_crops: bool = option(False, "whether the training transform is random")


@attrs.frozen(kw_only=True, eq=False)
class _Source:
    """Images in memory."""

    images: Tensor
    ids: Sequence[str]

    def __len__(self) -> int:
        return len(self.images)

    def image(self, index: int) -> Tensor:
        return self.images[index]


def _scale(image: Tensor) -> Tensor:
    return image.float() / 127.5 - 1


def _shift(image: Tensor) -> Tensor:
    return torch.roll(_scale(image), int(torch.randint(-2, 3, ()).item()), dims=2)


class _ShiftBatch:
    """The same shifts for whole batches."""

    draws = 1

    def pixels(self, image: Tensor) -> Tensor:
        return image.permute(1, 2, 0)

    def __call__(self, images: Tensor, shapes: Tensor, draws: Tensor) -> Tensor:
        width = images.shape[2]
        shift = (draws * 5).floor().long() - 2  # -2 to 2, as in _shift
        # torch.roll takes one shift for all: each image reads its columns from where they come
        columns = (torch.arange(width, device=images.device) - shift) % width
        number = torch.arange(len(images), device=images.device)
        by_column = images.permute(0, 2, 1, 3)
        shifted = by_column[number[:, None], columns]  # [B, W, H, 3]
        return _scale(shifted.permute(0, 3, 2, 1))


@attrs.frozen(kw_only=True)
class _Transforms:
    train: ImageTransform
    test: ImageTransform = _scale
    train_is_deterministic: bool = True


class TinyBenchmark:
    """Noisy patterns of 16 x 16 pixels, one pattern per class; tasks and classes of unequal size."""

    def __init__(self, config: TinyBenchmarkConfig) -> None:
        self._config = config

    def stream(self) -> TaskStream:
        """Return the stream; the same on every call."""
        config = self._config
        sizes = [config.increment + index % 2 for index in range(config.tasks)]
        starts = np.cumsum([0, *sizes])
        names = tuple(f"pattern {position}" for position in range(sum(sizes)))
        train = _split("train", len(names), config.train)
        test = _split("test", len(names), config.test)
        tasks = []
        for index, (first, end) in enumerate(pairwise(starts.tolist())):
            tasks.append(
                Task(
                    index=index,
                    classes=tuple(range(first, end)),
                    class_names=names[first:end],
                    train=_part(*train, first, end),
                    test=_part(*test, first, end),
                )
            )
        return TaskStream(
            name="tiny",
            tasks=tuple(tasks),
            class_order=tuple(range(len(names))),
            class_names=names,
            fingerprint=f"tiny-{config}",
        )

    def transforms(self, image_size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> _Transforms:
        """Return scaling to [-1, 1], with random shifts in training if ``random_crops`` is set."""
        if self._config.random_crops:
            shift = RandomTransform(image=_shift, batch=_ShiftBatch())
            return _Transforms(train=shift, train_is_deterministic=False)
        return _Transforms(train=_scale)


def _split(split: str, classes: int, least: int) -> tuple[_Source, IndexArray]:
    """Return the images of a split, class by class, and their labels: ``least`` per class, or 1 or 2 more."""
    labels = np.repeat(np.arange(classes), least + np.arange(classes) % 3)
    generator = torch.Generator().manual_seed(11)
    patterns = torch.randint(0, 256, (classes, 3, 4, 4), generator=generator)
    patterns = patterns.repeat_interleave(4, dim=2).repeat_interleave(4, dim=3)
    # the patterns are those of both splits, the noise is not
    generator.manual_seed(13 if split == "train" else 17)
    noise = torch.randint(-60, 61, (len(labels), 3, 16, 16), generator=generator)
    images = (patterns[torch.from_numpy(labels)] + noise).clamp(0, 255).to(torch.uint8)
    return _Source(images=images, ids=[f"{split}/{number}" for number in range(len(images))]), labels


def _part(source: _Source, labels: IndexArray, first: int, end: int) -> TaskData:
    """Return the samples of a split in the classes from ``first`` to before ``end``."""
    indices = np.flatnonzero((first <= labels) & (labels < end))
    return TaskData(source=source, indices=indices, labels=labels[indices])


class TinyPlugin:
    """A plugin object that registers the components under the name ``tiny``."""

    @hookimpl
    def lw2g_benchmarks(self) -> list[BenchmarkComponent]:
        """Return the tiny benchmark."""
        return [
            BenchmarkComponent(
                name=TINY,
                family="tiny",
                config=TinyBenchmarkConfig,
                build=TinyBenchmark,
                embedded=True,
                summary="noisy patterns, for tests",
            )
        ]

    @hookimpl
    def lw2g_backbones(self) -> list[BackboneComponent]:
        """Return the tiny backbone."""
        return [
            BackboneComponent(
                name=TINY,
                config=TinyBackboneConfig,
                build=_build_backbone,
                untrained=_untrained_backbone,
                embedded=True,
                summary="a random ViT, for tests",
            )
        ]


def tiny_catalogue(*plugins: object) -> Catalogue:
    """Return a catalogue of all installed plugins, the tiny components, and the given plugins."""
    return load_catalogue(plugins=[TinyPlugin(), *plugins])
