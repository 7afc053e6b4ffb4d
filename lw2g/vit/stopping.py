"""Forwards that end early: at a block, or once all taps have been read.

A model cannot be run in part, and calling its blocks by hand would leave out what its own forward hands to
them (rotary embeddings, shared biases). So an exception, which only the caller sees, leaves its forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from lw2g.vit.injection import Injection
from lw2g.vit.taps import Tap

__all__ = ["Reading", "output_of"]


class _ReachedError(Exception):
    """Ends a model's forward at a block, with that block's output."""

    def __init__(self, output: Tensor) -> None:
        self.output = output


class _EnoughError(Exception):
    """Ends a forward once all taps have been read."""


def output_of(block: nn.Module, forward: Callable[[], object]) -> Tensor:
    """Return the output of a block in a forward of its model, and end the forward there.

    The last hook of the block ends it, so that injections and taps have seen the block.

    Raises:
        ValueError: The forward did not run the block.
    """

    def stop(module: nn.Module, args: Any, output: Tensor) -> None:
        raise _ReachedError(output)

    with block.register_forward_hook(stop):
        try:
            forward()
        except _ReachedError as reached:
            return reached.output
    raise ValueError("expected a forward through a block, but it was not run")


class Reading:
    """Taps that the first forward of a backbone within :meth:`of` is read at.

    Args:
        taps: Where to read.
        activations: Computes activations from images, taps and injections.
    """

    def __init__(self, taps: tuple[Tap, ...], activations: Callable[..., dict[Tap, Tensor]]) -> None:
        self._taps = taps
        self._activations = activations
        self._seen: dict[Tap, Tensor] = {}

    def of(self, forward: Callable[[], object]) -> dict[Tap, Tensor]:
        """Return the activations at the taps.

        Args:
            forward: Runs the backbone, which calls :meth:`stop`.

        Raises:
            ValueError: ``forward`` did not run the backbone.
        """
        try:
            forward()
        except _EnoughError:
            return self._seen
        raise ValueError("expected a forward that runs the backbone, but it was not run")

    def stop(self, images: Tensor, injections: Sequence[Injection]) -> None:
        """Read the taps with the images and injections of a forward that has begun, and end it."""
        self._seen = self._activations(images, self._taps, injections)
        raise _EnoughError
