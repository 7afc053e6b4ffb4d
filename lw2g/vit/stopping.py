"""Forwards that end early: at a block, or once all taps have been read.

A model cannot be run in part, and calling its blocks by hand would leave out what its own forward hands to
them (rotary embeddings, shared biases). So an exception, which only the caller sees, leaves its forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from lw2g.vit.injection import Injection
from lw2g.vit.taps import Tap

__all__ = ["NotRunError", "Reading", "output_of"]


class NotRunError(ValueError):
    """A forward that was to be read did not run the backbone."""


class _ReachedError(Exception):
    """Ends a model's forward at a block."""


class _EnoughError(Exception):
    """Ends a forward once all taps have been read."""


def output_of(block: nn.Module, forward: Callable[[], object]) -> Tensor:
    """Return the output of a block in a forward of its model, and end the forward there.

    The last hook of the block ends it, so that injections and taps have seen the block. Where torch traces
    the forward it runs to its end: the tracer keeps account of modules that are left, and an exception is not
    among the ways to leave one. What follows the block is then no part of the program.

    Raises:
        ValueError: The forward did not run the block.
    """
    outputs: list[Tensor] = []

    def stop(module: nn.Module, args: Any, output: Tensor) -> None:
        outputs.append(output)
        if not torch.compiler.is_compiling():
            raise _ReachedError

    with block.register_forward_hook(stop), suppress(_ReachedError):
        forward()
    if not outputs:
        raise ValueError("expected a forward through a block, but it was not run")
    return outputs[0]


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
            NotRunError: ``forward`` did not run the backbone.
        """
        try:
            forward()
        except _EnoughError:
            return self._seen
        raise NotRunError("expected a forward that runs the backbone, but it was not run")

    def stop(self, images: Tensor, injections: Sequence[Injection]) -> None:
        """Read the taps with the images and injections of a forward that has begun, and end it."""
        self._seen = self._activations(images, self._taps, injections)
        raise _EnoughError
