"""A batch as a baseline sees it: images and un-prompted features, each made only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

__all__ = ["Batch", "Cut"]


class Cut(Protocol):
    """How a batch was cut from a larger one, whose other images are in other processes."""

    @property
    def total(self) -> int:
        """Number of all images."""
        ...

    def whole(self, rows: Tensor) -> Tensor:
        """Return rows of all images, given those of the images here."""
        ...

    def draw(self, make: Callable[[int], Tensor]) -> Tensor:
        """Return rows of the images here, out of those drawn for all images."""
        ...


class Batch:
    """Some samples of one task on the run's device.

    Args:
        labels: Positions of the classes in the class order, ``[B]`` int64.
        samples: Positions of the samples in their data set, ``[B]`` int64 on the CPU.
        images: Gives the transformed and normalised images, ``[B, 3, S, S]`` float.
        query: Gives the un-prompted features of those images, ``[B, dim]`` float32, without gradient: CLS
            after the final norm, or before it where the run's retrieval strategy says ``query_norm = False``.
        cut: How it was cut from a training batch that several processes share; None where it is whole.
    """

    def __init__(
        self,
        *,
        labels: Tensor,
        samples: Tensor,
        images: Callable[[], Tensor],
        query: Callable[[], Tensor],
        cut: Cut | None = None,
    ) -> None:
        self.labels = labels
        self.samples = samples
        self._make_images, self._make_query, self._cut = images, query, cut
        self._images: Tensor | None = None
        self._query: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def images(self) -> Tensor:
        """Transformed, normalised images ``[B, 3, S, S]``."""
        if self._images is None:
            self._images = self._make_images()
        return self._images

    @property
    def query(self) -> Tensor:
        """Un-prompted features ``[B, dim]`` float32, without gradient."""
        if self._query is None:
            self._query = self._make_query()
        return self._query

    @property
    def total(self) -> int:
        """Images of the whole training batch, of which a process of several sees a part."""
        return len(self) if self._cut is None else self._cut.total

    def whole(self, rows: Tensor) -> Tensor:
        """Return rows of the whole training batch, of which a process of several sees a part.

        A loss that is no mean over images (a contrastive term) is taken of these, and is then the same in
        every process, as are its gradients. Where the batch is whole these are the rows themselves.

        Args:
            rows: Of the images here, ``[B, ...]``, with or without gradient.
        """
        return rows if self._cut is None else self._cut.whole(rows)

    def draw(self, make: Callable[[int], Tensor]) -> Tensor:
        """Return random numbers of the images here, the same whatever part of a batch they are.

        Args:
            make: Draws for so many images, ``[n, ...]``, from torch's generator of the CPU.
        """
        return make(len(self)) if self._cut is None else self._cut.draw(make)

    def within(self, cut: Cut) -> Batch:
        """Return the same images as a part of a larger batch."""
        return Batch(
            labels=self.labels,
            samples=self.samples,
            images=lambda: self.images,
            query=lambda: self.query,
            cut=cut,
        )

    def part(self, rows: slice) -> Batch:
        """Return some of the samples; images and query are still made only when they are asked for."""
        return Batch(
            labels=self.labels[rows],
            samples=self.samples[rows],
            images=lambda: self.images[rows],
            query=lambda: self.query[rows],
        )
