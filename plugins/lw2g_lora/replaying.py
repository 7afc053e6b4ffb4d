"""Experience replay on one LoRA: steps see kept images of old classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lw2g.plugin import (
    POOL,
    Batch,
    BuildContext,
    ComputePhase,
    HeadedBaseline,
    LowRankInjection,
    LowRankSet,
    LowRankSets,
    Phase,
    Routing,
    Site,
    StepOutput,
    TaskContext,
    TaskInfo,
)
from lw2g_lora.options import ReplayConfig
from lw2g_lora.sequential import trained_together, training

__all__ = ["Replay", "from_bytes", "to_bytes"]


def to_bytes(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return images ``[B, C, H, W]`` as bytes, and least value and step of each channel, ``[B, C, 2]``.

    The 256 levels lie between the least and the greatest value of an image's channel, so that whatever the
    normalisation, an image comes back to within half a grey level of the file's.
    """
    least = images.amin(dim=(-2, -1))
    largest = images.amax(dim=(-2, -1))
    # a channel of one value has no step
    step = ((largest - least) / 255).clamp(min=torch.finfo(torch.float32).tiny)
    levels = (images - least[..., None, None]) / step[..., None, None]
    return levels.round().to(torch.uint8), torch.stack([least, step], dim=-1)


def from_bytes(pixels: Tensor, scales: Tensor) -> Tensor:
    """Return the images of which :func:`to_bytes` made these values."""
    least, step = scales[..., None, None].unbind(dim=2)
    return least + step * pixels


class Replay(HeadedBaseline):
    """Experience replay: each step sees as many kept images of old classes as new ones. Not exemplar-free.

    Chaudhry et al., "On Tiny Episodic Memories in Continual Learning", 2019. The loss is over all classes
    seen. A class with fewer images than are to be kept has some of them several times.

    Attributes:
        pixels: Images kept, ``[classes * exemplars, 3, S, S]`` uint8, under the test transform.
        scales: Least value and step of each channel, ``[classes * exemplars, 3, 2]``.
        owners: Their classes, ``[classes * exemplars]`` int64.
    """

    scope = POOL
    learning_only = ("pixels", "scales", "owners")

    pixels: Tensor
    scales: Tensor
    owners: Tensor

    def __init__(self, config: ReplayConfig, context: BuildContext) -> None:
        super().__init__(config, context)
        self.config = config
        self.updates = LowRankSets(config, context)
        for name, value in self.room(0).items():
            self.register_buffer(name, value)

    def room(self, count: int) -> dict[str, Tensor]:
        """Return empty room for so many images."""
        size = self.context.backbone.fingerprint.image_size
        device = self.context.device
        return {
            "pixels": torch.zeros(count, 3, size, size, dtype=torch.uint8, device=device),
            "scales": torch.zeros(count, 3, 2, device=device),
            "owners": torch.zeros(count, dtype=torch.int64, device=device),
        }

    def begin_task(self, task: TaskInfo) -> None:
        """Make room for the task's images."""
        for name, value in self.room(self.config.exemplars * len(task.classes)).items():
            setattr(self, name, torch.cat([getattr(self, name), value]))

    def new_set(self, source: nn.Module | None) -> LowRankSet:
        """Return the LoRA, which changes nothing yet."""
        return self.updates.new_set(source)

    def injection(self, routing: Routing) -> LowRankInjection:
        """Return the LoRA's updates."""
        return self.updates.summed(routing)

    def features(self, batch: Batch, routing: Routing) -> Tensor:
        """Return features of the updated network, ``[B, dim]``."""
        return self.context.backbone.features(batch.images, (self.injection(routing),))

    def sites(self, parameters: nn.Module) -> Sequence[Site]:
        """Return the down factors, measured, and the up factors behind them."""
        return self.updates.sites(parameters, "project")

    def phases(self, context: TaskContext) -> Sequence[Phase]:
        """Return the training of LoRA and head, and the phase that keeps images."""
        groups = trained_together(self.updates, self.head, self.config, context)
        train = training(groups, self.config, lambda batch: self.step(batch, context))
        keep = ComputePhase(name="exemplars", run=lambda progress: self.keep(context))
        return self.with_head(context, train, keep)

    def old(self, task: TaskInfo) -> int:
        """Return how many of the images are of tasks before the newest one."""
        return len(self.owners) - self.config.exemplars * len(task.classes)

    @torch.no_grad()
    def keep(self, context: TaskContext) -> None:
        """Draw images of each of the task's classes and keep them."""
        # two passes, so that no more images are held than are kept: the first one reads labels alone
        chosen = self.drawn_images(context)
        first = 0  # the number of the batch's first image
        for batch in context.statistics(self.config.batch_size):
            in_batch = (first <= chosen) & (chosen < first + len(batch))
            if in_batch.any():
                places = self.old(context.task) + in_batch.nonzero().flatten()
                rows = chosen[in_batch] - first
                self.pixels[places], self.scales[places] = to_bytes(batch.images[rows].float())
                self.owners[places] = batch.labels[rows]
            first += len(batch)

    def drawn_images(self, context: TaskContext) -> Tensor:
        """Return the numbers of the images to keep among the task's, class after class, ``[room]``."""
        config = self.config
        classes = context.task.classes
        generator = context.generator("exemplars")
        labels = torch.cat([batch.labels for batch in context.statistics(config.batch_size)]).cpu()
        drawn: list[int] = []
        for label in classes:
            positions = (labels == label).nonzero().flatten()
            order = torch.randperm(len(positions), generator=generator)
            drawn += positions[order[: config.exemplars]].tolist()
        # the room is for equally many of every class: where one has fewer, drawn images are kept again
        room = config.exemplars * len(classes)
        return torch.tensor(list(islice(cycle(drawn), room)))

    def step(self, batch: Batch, context: TaskContext) -> StepOutput:
        """Return the loss over all classes seen, of new images and as many old ones."""
        old = self.old(context.task)
        if not old:
            return super().step(batch, context)
        drawn = torch.randint(old, (len(batch),), device=self.owners.device)
        images = torch.cat([batch.images, from_bytes(self.pixels[drawn], self.scales[drawn])])
        routing = context.pool.force(context.set_id)
        features = self.context.backbone.features(images, (self.injection(routing),))
        logits = self.head(features)[:, : context.task.seen]
        loss = functional.cross_entropy(logits, torch.cat([batch.labels, self.owners[drawn]]))
        return StepOutput(loss=loss, features=features[: len(batch)])

    def findings(self) -> Mapping[str, Any]:
        """Return the number of images kept, and the bytes of their pixels."""
        return {
            **super().findings(),
            "exemplars": len(self.owners),
            "exemplar_bytes": self.pixels.numel(),
        }
