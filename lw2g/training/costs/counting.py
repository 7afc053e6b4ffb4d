"""The work of a backbone, counted in passes through its blocks and priced by what one of them takes.

Where a forward takes long, a rehearsal on the whole backbone would too. Then it goes through a hollow one
(``lw2g.vit.hollow``), a few measurements of a single block say what floating point operations cost here, and
a tally adds to the clock what each pass through a block would have taken: its operations at full size, by
the measured rate, forward alone or forward and backward.
"""

from __future__ import annotations

import statistics as stats
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import torch
from torch import Tensor

from lw2g.training.devices.engine import Engine
from lw2g.vit.backbone import Backbone
from lw2g.vit.hollow import Unmixed
from lw2g.vit.room import bytes_per_image

__all__ = ["BlockWork", "Rates", "Tally", "Uncounted", "measure"]

_SECONDS = 0.15
"""What one measured forward may take."""
_IMAGES, _ROUNDS = 32, 3


@attrs.frozen(kw_only=True)
class BlockWork:
    """The floating point operations of one block.

    Attributes:
        dim: Width.
        attention: Weights of its attention that multiply a token.
        mlp: The same for its MLP.
    """

    dim: int
    attention: int
    mlp: int

    @classmethod
    def of(cls, backbone: Backbone) -> BlockWork:
        """Read them off a backbone's first block."""
        block = backbone.model.blocks[0]
        return cls(dim=backbone.dim, attention=_weights(block.attn), mlp=_weights(block.mlp))

    def __call__(self, tokens: int, rows: int, *, backward: bool) -> float:
        """Return those of one image, backward included or not.

        The weights are frozen: a backward pass gives gradients to activations alone.

        Args:
            tokens: Rows of its stream.
            rows: How many of them the MLP sees.
            backward: Whether a backward pass follows.

        >>> BlockWork(dim=4, attention=64, mlp=128)(10, 10, backward=False)
        5440.0
        """
        linear = 2.0 * (tokens * self.attention + rows * self.mlp)
        attention = 4.0 * tokens**2 * self.dim
        return 2 * linear + 3 * attention if backward else linear + attention


@attrs.frozen(kw_only=True)
class Rates:
    """What passes through a block cost on this device.

    Attributes:
        forward: Seconds of an image's forward without gradients.
        step: Seconds of its forward and backward.
        kept: Bytes that its forward keeps for the backward.
        passing: Bytes that an image takes in a forward that keeps nothing.
    """

    forward: float
    step: float
    kept: float
    passing: float


def measure(backbone: Backbone, engine: Engine) -> Rates:
    """Measure a backbone's first block, at a moderate batch and in the engine's precision."""

    def stream(images: int) -> Tensor:
        return torch.randn(images, backbone.num_tokens, backbone.dim, generator=generator).to(engine.device)

    def forward(x: Tensor) -> None:
        with torch.no_grad(), engine.autocast():
            backbone.run_block(0, x)

    def step(x: Tensor) -> None:
        x = x.detach().requires_grad_()
        with torch.enable_grad(), engine.autocast():
            y = backbone.run_block(0, x)
        torch.autograd.grad(y, x, torch.ones_like(y))

    generator = torch.Generator().manual_seed(0)
    one = stream(1)
    forward(one)
    images = min(_IMAGES, max(1, int(_SECONDS / max(_seconds(engine, forward, one), 1e-6))))
    x = stream(images)
    return Rates(
        forward=_seconds(engine, forward, x) / images,
        step=_seconds(engine, step, x) / images,
        kept=_kept(backbone, engine, x) / images,
        passing=2.0 * bytes_per_image(backbone.model),
    )


def _seconds(engine: Engine, work: Callable[[Tensor], None], x: Tensor) -> float:
    """Return the median of a few repetitions, after one to warm up."""
    taken = []
    for _ in range(_ROUNDS + 1):
        engine.synchronize()
        began = time.perf_counter()
        work(x)
        engine.synchronize()
        taken.append(time.perf_counter() - began)
    return stats.median(taken[1:])


def _kept(backbone: Backbone, engine: Engine, x: Tensor) -> float:
    """Return the bytes that a forward through the block keeps, the frozen weights aside."""
    weights = {one.untyped_storage().data_ptr() for one in backbone.parameters()}
    found: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        found[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = x.detach().requires_grad_()
    with (
        torch.enable_grad(),
        engine.autocast(),
        torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor),
    ):
        y = backbone.run_block(0, x)  # alive until all is noted: no storage is used twice
    del y
    return float(sum(size for place, size in found.items() if place not in weights))


class Uncounted:
    """What is done in full: nothing is to be added to it.

    Attributes:
        seconds: What all that was left out so far would have taken.
        flops: Floating point operations of it.
        held: The most bytes of activations at once, since this was last set to 0.
        weights: Bytes of weights that are left out, on the run's device.
    """

    def __init__(self) -> None:
        self.seconds = self.flops = self.held = self.weights = 0.0


class Tally(Uncounted):
    """Counts the passes through a hollow backbone's blocks as passes through the whole one's.

    Args:
        whole: The backbone that is priced.
        hollow: The one that is gone through.
        rates: What passes through a block of the whole one cost.
    """

    def __init__(self, whole: Backbone, hollow: Backbone, rates: Rates) -> None:
        super().__init__()
        self.weights = float(_bytes(whole) - _bytes(hollow))
        self._rates, self._tokens = rates, whole.num_tokens
        self._more = whole.num_tokens - hollow.num_tokens
        self._work, self._done = BlockWork.of(whole), BlockWork.of(hollow)
        seconds = {False: rates.forward, True: rates.step}
        tokens = whole.num_tokens
        self._pace = {
            backward: taken / self._work(tokens, tokens, backward=backward)
            for backward, taken in seconds.items()
        }
        self._patches = 2.0 * self._more * whole.model.patch_embed.proj.weight.numel()
        self._rows, self._holding = 0, 0.0
        for index, block in enumerate(hollow.model.blocks):
            block.mlp.register_forward_pre_hook(self._note_rows)
            block.register_forward_hook(partial(self._count, index == 0))

    def _note_rows(self, mlp: object, arguments: tuple[Tensor, ...]) -> None:
        self._rows = arguments[0].shape[1]

    def _count(self, first: bool, block: object, arguments: Any, out: Tensor) -> None:
        images, tokens = out.shape[:2]
        backward = torch.is_grad_enabled() and out.requires_grad
        full = tokens + self._more
        work = self._work(full, self._rows if self._rows == 1 else full, backward=backward)
        self.seconds += images * work * self._pace[backward]
        self.flops += images * (work - self._done(tokens, self._rows, backward=backward))
        if first:
            self._holding = 0.0
            self.seconds += images * self._patches * self._pace[False]
            self.flops += images * self._patches
        size = images * full / self._tokens
        if backward:
            self._holding += size * self._rates.kept
        needed = size * (self._rates.kept if backward else self._rates.passing)
        self.held = max(self.held, self._holding + needed)


def _weights(module: torch.nn.Module) -> int:
    """Return how many weights multiply a token."""
    layers = (layer for layer in module.modules() if not isinstance(layer, Unmixed))
    own = (weight for layer in layers for weight in layer.parameters(recurse=False))
    return sum(weight.numel() for weight in own if weight.ndim > 1)


def _bytes(backbone: Backbone) -> int:
    return sum(weight.numel() * weight.element_size() for weight in backbone.parameters())
