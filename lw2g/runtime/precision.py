"""Which precision a run computes in: ``run.precision = "auto"`` is settled once, when the run starts.

No clock decides: the same run on the same machine would else compute otherwise when the machine is busy. A
small backbone stays in float32 (a step is mostly overhead). Elsewhere bf16 is taken where the device is known
to be faster in it, and where it is *safe*: one training step is taken in both, the loss must agree within
5 %, and the gradient of the median image within 25 % (norm of the difference) of float32's. The sum over
images would not do: a few that saturate an attention have most of its norm.
"""

from __future__ import annotations

import copy
from typing import Literal

import attrs
import torch
import torch.nn.functional as F
from torch import Tensor

from lw2g.errors import ConfigError
from lw2g.ground.processor import Processor, read_processor
from lw2g.runtime.engine import BF16, FP32, Precision
from lw2g.vit.backbone import Backbone
from lw2g.vit.prefix import PrefixInjection

__all__ = ["PrecisionChoice", "Step", "choose_precision", "difference", "training_step"]

_SMALL = {"cpu": 10e6}
_SMALL_ELSEWHERE = 50e6
"""Multiplications per image and forward; the embedded micro ViT has 20 million, ViT-Tiny at 96 pixels 203."""
_LOSS = 0.05
"""The largest relative difference of the loss that is safe."""
_GRADIENT = 0.25
"""The largest relative difference of the median image's gradient that is safe."""
_UNSAFE = "bf16 is not safe here"
_FEWEST_IMAGES = 4
_MOST_IMAGES = 24
_CLASSES = 10
_LENGTH = 8
"""Tokens of the prefix."""
_STEP = 500e6
"""Multiplications of the step that is taken, forward, as far as the number of images allows."""
_WITH_BF16_UNITS = (8, 0)
"""The compute capability of the first NVIDIA GPUs that multiply bf16 matrices (Ampere)."""


@attrs.frozen(kw_only=True)
class PrecisionChoice:
    """A precision and why it was chosen.

    Attributes:
        used: ``"32-true"`` or ``"bf16-mixed"``.
        reason: For people, without a full stop.
        asked: The same, or ``"auto"``.
    """

    used: Precision
    reason: str
    asked: Literal["auto"] | Precision = "auto"

    @property
    def refused(self) -> bool:
        """Whether bf16 would be faster here and is not taken; files keep the reason alone."""
        return self.reason.startswith(_UNSAFE)

    def __str__(self) -> str:
        return f"precision {self.used} ({self.reason})"


@attrs.frozen(kw_only=True, eq=False)
class Step:
    """What one training step gave.

    Attributes:
        loss: Its loss.
        gradient: With respect to the prefix of each image, ``[B, 2, L, dim]`` float32.
    """

    loss: float
    gradient: Tensor


def choose_precision(backbone: Backbone) -> PrecisionChoice:
    """Choose for a backbone in float32 that lies on the run's device; no generator of torch is touched."""
    device = backbone.device
    if multiplications(backbone) < _SMALL.get(device.type, _SMALL_ELSEWHERE):
        return PrecisionChoice(used=FP32, reason="the backbone is small")
    choice = of_device(device)
    if choice.used == FP32:
        return choice
    if not _takes_prefixes(backbone):
        return PrecisionChoice(used=FP32, reason="bf16 is tried on prefixes, which have no place here")
    differs = difference(backbone)
    if differs is not None:
        return PrecisionChoice(used=FP32, reason=f"{_UNSAFE}: {differs}")
    return choice


def _takes_prefixes(backbone: Backbone) -> bool:
    try:
        backbone.require("prefixes", (0,))
    except ConfigError:
        return False
    return True


def multiplications(backbone: Backbone) -> float:
    """Return the multiplications of one image's forward through blocks whose MLP is four times as wide."""
    rows, dim = backbone.num_tokens, backbone.dim
    return float(backbone.depth * rows * (12 * dim**2 + 2 * rows * dim))


def of_device(device: torch.device) -> PrecisionChoice:
    """Choose by what a device is known to be fast in."""
    if device.type == "cpu":
        return of_processor(read_processor())
    if device.type != "cuda":
        return PrecisionChoice(used=FP32, reason=f"bf16 is not tried on {device.type}")
    if torch.cuda.get_device_capability(device) >= _WITH_BF16_UNITS:
        return PrecisionChoice(used=BF16, reason="the GPU computes in bf16")
    return PrecisionChoice(used=FP32, reason="the GPU has no bf16 units")


def of_processor(processor: Processor | None) -> PrecisionChoice:
    """Choose by the instructions of a CPU; None: the system does not tell them."""
    if processor is None:
        return PrecisionChoice(used=FP32, reason="the system does not tell what the CPU can do")
    if "amx_bf16" in processor.flags:
        return PrecisionChoice(used=BF16, reason="the CPU has amx_bf16")
    if "avx512_bf16" not in processor.flags:
        # other instructions, such as ARM's, are not known to be faster in training
        return PrecisionChoice(used=FP32, reason="the CPU has neither amx_bf16 nor avx512_bf16")
    if processor.maker == "AuthenticAMD":
        return PrecisionChoice(used=BF16, reason="the CPU is AMD's and has avx512_bf16")
    # on Intel's CPUs without AMX a step in bf16 was slower than in float32
    return PrecisionChoice(used=FP32, reason="avx512_bf16 is known to be faster on AMD's CPUs alone")


def difference(backbone: Backbone) -> str | None:
    """Return by how much a training step in bf16 differs from float32's; None if bf16 is safe.

    The number of images follows from the backbone, and they, prefix and head are drawn from generators of
    their own, so that the answer is the same at every call.
    """
    size = backbone.image_size
    count = int(_STEP / multiplications(backbone))
    count = min(max(count, _FEWEST_IMAGES), _MOST_IMAGES)
    images = torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))
    images = images.to(backbone.device)
    exact = training_step(backbone, images)
    reduced = training_step(copy.deepcopy(backbone).to_bf16(), images)
    return compared(exact, reduced)


def compared(exact: Step, reduced: Step) -> str | None:
    """Return by how much a step in bf16 differs from the same step in float32; None if little enough."""
    loss = abs(reduced.loss - exact.loss) / max(abs(exact.loss), 1e-12)  # never divided by 0
    errors = (reduced.gradient - exact.gradient).flatten(1).norm(dim=1)
    norms = exact.gradient.flatten(1).norm(dim=1)
    gradient = float((errors / norms).median())  # over images
    if loss <= _LOSS and gradient <= _GRADIENT:
        return None
    return f"loss by {loss:.1%}, gradient by {gradient:.1%}"  # not a number is not safe either


def training_step(backbone: Backbone, images: Tensor) -> Step:
    """Take one step of prompt tuning, without its optimizer: forward, cross-entropy, backward to a prefix.

    Prefix and head are drawn from a generator of their own, the same at every call. The step is that of any
    method whose parameters enter at the first block.

    Args:
        backbone: In the precision of the step.
        images: Normalised images ``[B, 3, S, S]`` on its device.
    """
    generator = torch.Generator().manual_seed(0)
    # keys and values; each image gets a copy, and so a gradient of its own, [B, 2, length, dim]
    drawn = torch.rand(2, _LENGTH, backbone.dim, generator=generator).to(images.device)
    drawn = drawn.repeat(len(images), 1, 1, 1)
    # logits of the features' own scale, whatever the width
    head = (torch.randn(backbone.dim, _CLASSES, generator=generator) / backbone.dim**0.5).to(images.device)
    labels = torch.arange(len(images), device=images.device) % _CLASSES
    with torch.enable_grad():
        prefix = drawn.requires_grad_()
        features = backbone.features(images, [PrefixInjection({0: (prefix[:, 0], prefix[:, 1])})])
        loss = F.cross_entropy(features @ head, labels)
        (gradient,) = torch.autograd.grad(loss, [prefix])
    return Step(loss=float(loss.detach()), gradient=gradient)
