"""Which precision a run computes in: ``run.precision = "auto"`` is settled once, when the run starts.

What is known is not measured: a small backbone stays in float32 (a step is mostly overhead), a GPU computes
in bf16 where its hardware does, a CPU without bf16 instructions in float32. Elsewhere a few training steps
are taken in both; bf16 is chosen where it is faster and *safe*: the loss of the same step within 5 %, and
the gradient of the median image within 25 % (norm of the difference) of float32's. The sum over images would
not do: a few that saturate an attention have most of its norm.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import attrs
import torch
import torch.nn.functional as F
from torch import Tensor

from lw2g.training.devices.engine import BF16, FP32, Precision
from lw2g.vit.backbone import Backbone
from lw2g.vit.prefix import PrefixInjection

__all__ = ["PrecisionChoice", "Step", "choose_precision", "judge", "training_step"]

_SMALL = {"cpu": 10e6}
_SMALL_ELSEWHERE = 50e6
"""Multiplications per image and forward; the embedded micro ViT has 20 million, ViT-Tiny at 96 pixels 203."""
_WORTH_IT = 1.1
_LOSS, _GRADIENT = 0.05, 0.25
_IMAGES, _CLASSES, _LENGTH = range(4, 25), 10, 8
_STEP = 500e6
"""Multiplications of a step that is measured, forward, as far as the number of images allows."""
_ENOUGH, _ROUNDS = 1.0, 3
_CPU_INFO = Path("/proc/cpuinfo")


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

    def __str__(self) -> str:
        return f"precision {self.used} ({self.reason})"


@attrs.frozen(kw_only=True, eq=False)
class Step:
    """What one training step took and gave.

    Attributes:
        seconds: Of forward and backward.
        loss: Its loss.
        gradient: With respect to the prefix of each image, ``[B, 2, L, dim]`` float32.
    """

    seconds: float
    loss: float
    gradient: Tensor


def choose_precision(backbone: Backbone) -> PrecisionChoice:
    """Choose for a backbone in float32 that lies on the run's device; no generator of torch is touched."""
    return _known(backbone) or measured(backbone)


def _known(backbone: Backbone) -> PrecisionChoice | None:
    """Return the choice where it needs no measurement."""
    device = backbone.device
    if multiplications(backbone) < _SMALL.get(device.type, _SMALL_ELSEWHERE):
        return PrecisionChoice(used=FP32, reason="the backbone is small")
    if device.type == "cuda":
        if torch.cuda.get_device_capability(device) >= (8, 0):
            return PrecisionChoice(used=BF16, reason="the GPU computes in bf16")
        return PrecisionChoice(used=FP32, reason="the GPU has no bf16 units")
    if device.type != "cpu":
        return PrecisionChoice(used=FP32, reason=f"bf16 is not tried on {device.type}")
    if not has_bf16_instructions():
        return PrecisionChoice(used=FP32, reason="the CPU has no bf16 instructions")
    return None


def multiplications(backbone: Backbone) -> float:
    """Return the multiplications of one image's forward through blocks whose MLP is four times as wide."""
    rows, dim = backbone.num_tokens, backbone.dim
    return float(backbone.depth * rows * (12 * dim**2 + 2 * rows * dim))


def has_bf16_instructions(info: Path = _CPU_INFO) -> bool:
    """Whether the CPU multiplies in bf16 (avx512_bf16, amx_bf16, ARM's bf16); True where nobody says."""
    try:
        text = info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return flags is None or "bf16" in flags[1]


def measured(backbone: Backbone) -> PrecisionChoice:
    """Choose by training steps in both precisions, one after the other, so that a busy machine slows both."""
    models: dict[Precision, Backbone] = {FP32: backbone, BF16: copy.deepcopy(backbone).to_bf16()}
    size = backbone.image_size
    count = min(max(int(_STEP / multiplications(backbone)), _IMAGES[0]), _IMAGES[-1])
    images = torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(0))
    images = images.to(backbone.device)
    first = {name: training_step(model, images) for name, model in models.items()}  # kernels are chosen in it
    seconds: dict[Precision, list[float]] = {name: [] for name in models}
    began = time.perf_counter()
    while len(seconds[FP32]) < _ROUNDS and (not seconds[FP32] or time.perf_counter() - began < _ENOUGH):
        for name, model in models.items():
            seconds[name].append(training_step(model, images).seconds)
    return judge(first, {name: min(taken) for name, taken in seconds.items()})


def judge(steps: Mapping[Precision, Step], seconds: Mapping[Precision, float]) -> PrecisionChoice:
    """Choose between precisions by what the same step gave in both, and by what steps take.

    Args:
        steps: The step by precision.
        seconds: The same for what it takes.
    """
    exact, reduced = steps[FP32], steps[BF16]
    loss = abs(reduced.loss - exact.loss) / max(abs(exact.loss), 1e-12)
    apart, norms = (one.flatten(1).norm(dim=1) for one in (reduced.gradient - exact.gradient, exact.gradient))
    gradient = float((apart / norms).median())
    if not (loss <= _LOSS and gradient <= _GRADIENT):  # not a number is not safe either
        differs = f"loss by {loss:.1%}, gradient by {gradient:.1%}"
        return PrecisionChoice(used=FP32, reason=f"bf16 is not safe here: {differs}")
    ratio = seconds[FP32] / seconds[BF16]
    chosen = BF16 if ratio >= _WORTH_IT else FP32
    reason = f"measured: a step in bf16 is {ratio:.1f} times as fast as in fp32"
    return PrecisionChoice(used=chosen, reason=reason)


def training_step(backbone: Backbone, images: Tensor) -> Step:
    """Take one step of prompt tuning, without its optimizer: forward, cross-entropy, backward to a prefix.

    Prefix and head are drawn from a generator of their own, the same at every call. The step is that of any
    method whose parameters enter at the first block.

    Args:
        backbone: In the precision it is to be measured in.
        images: Normalised images ``[B, 3, S, S]`` on its device.
    """
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(2, _LENGTH, backbone.dim, generator=generator).to(images.device)
    drawn = drawn.repeat(len(images), 1, 1, 1)
    head = (torch.randn(backbone.dim, _CLASSES, generator=generator) / backbone.dim**0.5).to(images.device)
    labels = torch.arange(len(images), device=images.device) % _CLASSES
    _synchronize(images.device)
    began = time.perf_counter()
    with torch.enable_grad():
        prefix = drawn.requires_grad_()
        features = backbone.features(images, [PrefixInjection({0: (prefix[:, 0], prefix[:, 1])})])
        loss = F.cross_entropy(features @ head, labels)
        (gradient,) = torch.autograd.grad(loss, [prefix])
    _synchronize(images.device)
    seconds = time.perf_counter() - began
    return Step(seconds=seconds, loss=float(loss.detach()), gradient=gradient)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
