"""A batch as a baseline sees it: labels, images and un-prompted features."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

__all__ = ["Batch"]


class Batch:
    """Samples of one task on the run's device; images and features are computed on first access.

    Args:
        labels: Positions of the classes in the class order, ``[B]`` int64.
        samples: Positions of the samples in their data set, ``[B]`` int64 on the CPU.
        images: Returns the transformed and normalised images, ``[B, 3, S, S]`` float.
        query: Returns the un-prompted features of those images, ``[B, dim]`` float32, without gradient: the
            class token after the final norm, or before it if the retrieval strategy has no ``query_norm``.
    """

    def __init__(
        self,
        *,
        labels: Tensor,
        samples: Tensor,
        images: Callable[[], Tensor],
        query: Callable[[], Tensor],
    ) -> None:
        self.labels = labels
        self.samples = samples
        self._make_images = images
        self._make_query = query
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

    def part(self, rows: slice) -> Batch:
        """Return some of the samples; their images and features are still computed on first access."""
        # all parts read what the whole batch makes once: its transform and its forward
        return Batch(
            labels=self.labels[rows],
            samples=self.samples[rows],
            images=lambda: self.images[rows],
            query=lambda: self.query[rows],
        )
