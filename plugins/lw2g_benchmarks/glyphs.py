"""The embedded glyphs benchmark: procedural classes in five families that look visibly unlike each other.

Tasks of the default increment lie within one family and the families take turns, so a growth policy has
structure to find; ``TaskStream.planted_groups`` holds the family of each task.

Where tasks are domains, the families are these: class k is the k-th class of every family, which have nothing
in common but their number. Such a stream shows how domains are handled, and nothing about transfer.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import numpy as np
import torch

from lw2g.plugin import ConfigError, TaskStream
from lw2g_benchmarks.glyph_shapes import FAMILIES, render_classes
from lw2g_benchmarks.options import GlyphsConfig, TransformOptions
from lw2g_benchmarks.orders import ordered
from lw2g_benchmarks.recurrence import sizes_of
from lw2g_benchmarks.tasks import ArraySource, LabelledImages, build_stream
from lw2g_benchmarks.transforms import TransformPair, make_transforms

__all__ = ["NAMESPACE", "GlyphsBenchmark", "fresh_stream"]

_LARGEST = 2 << 30
"""Bytes of pixels that are drawn at most: a minute or two, which no bar shows."""
NAMESPACE = "benchmark"  # of the class keys; the micro ViT's training classes have another


@attrs.frozen
class GlyphsBenchmark:
    """Procedural glyphs, class-incremental; a default to learn and test with, never a result to publish."""

    config: GlyphsConfig = attrs.field(factory=GlyphsConfig)

    def stream(self) -> TaskStream:
        """Render the images and return the task stream; the same pixels on every platform.

        Raw labels count family by family. In the natural order, tasks of the families take turns where the
        increment divides the classes of a family, else the order is that of the raw labels.

        Raises:
            ConfigError: If the increment does not divide the number of classes, or the images are too many.
        """
        return self._stream("test")

    def _stream(self, test: str) -> TaskStream:
        """Return the stream whose test images are those of the split ``test``."""
        config = self.config
        _require_drawable(config)
        by_domain = config.stream in ("domains", "versatile")
        if by_domain:  # the families are the domains, and a class is a number
            names = _class_names(["glyph"], config.classes_per_family)
        else:
            names = _class_names(FAMILIES, config.classes_per_family)
        sizes = sizes_of(config, len(names))
        order = ordered(config, names)
        if (
            not by_domain
            and not config.class_order
            and config.order == "natural"
            and config.classes_per_family % config.increment == 0
        ):
            # tasks of whole families: classes [family, block of a family, class in the block], with the
            # first block of every family before the second
            blocks = np.arange(len(names)).reshape(len(FAMILIES), -1, config.increment)
            order = tuple(blocks.swapaxes(0, 1).ravel().tolist())
        return build_stream(
            name="glyphs",
            train=self._render("train", config.train_per_class),
            test=self._render(test, config.test_per_class),
            class_names=names,
            order=order,
            sizes=sizes,
            options=config,
            domains=tuple(FAMILIES) if by_domain else (),
            planted_groups=_families_of_tasks(order, config),
        )

    def transforms(self, image_size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> TransformPair:
        """Return resizing (where needed) and normalisation, the same for training and testing."""
        options = TransformOptions(
            normalise=self.config.normalise, train_transform="none", test_resize="squash"
        )
        return make_transforms(options, image_size=image_size, mean=mean, std=std)

    def _render(self, split: str, count: int) -> LabelledImages:
        """Draw the images of a split, ``count`` of each class of each family."""
        config = self.config
        names = _class_names(FAMILIES, config.classes_per_family)
        parts = []
        for family, painter in FAMILIES.items():
            images = render_classes(
                painter,
                family,
                range(config.classes_per_family),
                split,
                count,
                namespace=NAMESPACE,
                seed=config.seed,
                size=config.image_size,
            )
            parts.append(images)
        ids = []
        for name in names:
            for sample in range(count):
                ids.append(f"{split}/{name}/{sample}")
        source = ArraySource(torch.from_numpy(np.concatenate(parts)), ids)
        labels = np.repeat(np.arange(len(names), dtype=np.int64), count)
        if config.stream not in ("domains", "versatile"):
            return LabelledImages(source=source, labels=labels)
        # families become domains; glyphs of one number, one of each family, become a class
        domains, numbers = np.divmod(labels, config.classes_per_family)
        return LabelledImages(source=source, labels=numbers, domain=domains)


def _require_drawable(config: GlyphsConfig) -> None:
    """Refuse more images than memory and patience have room for: all of them are drawn at once.

    Raises:
        ConfigError: They are too many.
    """
    per_class = config.train_per_class + config.test_per_class
    pixels = len(FAMILIES) * config.classes_per_family * config.image_size**2
    most = _LARGEST // (3 * pixels)
    if per_class > most:
        size = 3 * pixels * per_class / 1e9
        raise ConfigError(
            f"benchmark: glyphs would draw {per_class:,} images of each class, {size:.0f} GB",
            f"train_per_class and test_per_class have room for {most:,} together, or make fewer classes, "
            "or a smaller image_size",
        )


def _class_names(families: Iterable[str], count: int) -> list[str]:
    names = []
    for family in families:
        for number in range(count):
            names.append(f"{family}-{number:02d}")
    return names


def fresh_stream(config: GlyphsConfig, seed: int) -> TaskStream:
    """Return the stream with other test images of its classes: those of a seed, drawn on demand."""
    return GlyphsBenchmark(config)._stream(f"fresh-{seed}")


def _families_of_tasks(order: tuple[int, ...], config: GlyphsConfig) -> tuple[int, ...] | None:
    """Return the family of each task, or None if a task mixes families, or tasks are no groups of classes."""
    if config.stream != "classes":
        return None
    # classes are numbered family by family; a line for each task
    families = (np.asarray(order) // config.classes_per_family).reshape(-1, config.increment)
    if (families != families[:, :1]).any():
        return None
    return tuple(families[:, 0].tolist())
