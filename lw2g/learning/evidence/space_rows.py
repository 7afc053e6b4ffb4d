"""Rows: which activations span a space, that of a finished task and that of the un-prompted backbone.

LW2G takes "the input of layer l" and names neither tokens nor a number of images. What a space says of a
gradient depends on both: few rows make a small space, whatever they show.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

from lw2g.config.settings import GrowthConfig, RowTap, RowTokens
from lw2g.errors import ConfigError
from lw2g.vit.backbone import Backbone
from lw2g.vit.taps import Tap, TapKind, capture

__all__ = ["Rows", "require_rows"]

_KINDS: dict[RowTap, TapKind] = {
    "block-input": "block_in",
    "after-norm": "attn_in",
    "block-output": "block_out",
}
_OWN_WIDTH: tuple[TapKind, ...] = ("mlp_hidden", "published", "feature")
"""Activations of another width than a token, or of an image: no others can stand in for them."""


@attrs.frozen(kw_only=True)
class Rows:
    """The rows of a space.

    Attributes:
        tap: Which activations stand for those that a parameter multiplies.
        tokens: Which of an image's rows count.
    """

    tap: RowTap = "site"
    tokens: RowTokens = "all"

    @classmethod
    def of_finished(cls, options: GrowthConfig) -> Rows:
        """Return the rows of a finished task's space."""
        return cls(tap=options.tap, tokens=options.tokens)

    @classmethod
    def of_pretrained(cls, options: GrowthConfig) -> Rows:
        """Return the rows of a new task's pre-trained space."""
        return cls(tap=options.tap_pre or options.tap, tokens=options.tokens_pre or options.tokens)

    def read_at(self, tap: Tap, backbone: Backbone) -> Tap:
        """Return where the rows are read that stand for the activations at a site's tap."""
        if self.tap == "site" or tap.kind in _OWN_WIDTH:
            return tap
        if self.tap == "queries":
            return backbone.key_tap(tap.block)
        if self.tap == "last-queries":
            return backbone.key_tap(backbone.depth - 1)
        return Tap(tap.block, _KINDS[self.tap])

    def chosen(self, seen: Tensor, places: Tensor) -> Tensor:
        """Return the rows of each image, ``[B, rows, d]``.

        Args:
            seen: All tokens, ``[B, tokens, d]``; a pooled feature ``[B, d]`` is its image's only row.
            places: The token that was drawn for each image, ``[B]`` int64.
        """
        if self.tokens == "all" or seen.ndim == 2:
            return seen
        if self.tokens == "class":
            return seen[:, :1]
        if self.tokens == "mean":
            return seen.mean(dim=1, keepdim=True)
        # "one": that which was drawn for the image
        images = torch.arange(len(seen), device=seen.device)
        return seen[images, places.to(seen.device)][:, None]


def require_rows(options: GrowthConfig, backbone: Backbone, images: Sequence[int]) -> None:
    """Refuse rows that the backbone or a task does not have, before anything is learned.

    Args:
        options: Which rows are asked for.
        backbone: The backbone.
        images: Training images of each task.

    Raises:
        ConfigError: There are fewer images, no class token, or nothing to read there.
    """
    wanted = options.space_images
    if wanted is not None:
        if wanted > options.images:
            raise ConfigError(
                f"growth.space_images: {wanted} of the {options.images} images of growth.images",
                "name no more than these, or raise growth.images",
            )
        fewest = min(range(len(images)), key=images.__getitem__)
        if wanted > images[fewest]:
            raise ConfigError(
                f"growth.space_images: {wanted} images, and task {fewest + 1} has {images[fewest]}",
                f"name {images[fewest]} at most",
            )
    for rows, ending in ((Rows.of_finished(options), ""), (Rows.of_pretrained(options), "_pre")):
        if rows.tokens == "class":
            backbone.require_class_token(f"the row of growth.tokens{ending}=class")
        if rows.tap == "site":
            continue
        # a site's own tap is known once there is a set; what stands for it is in every block, or in none
        every = [rows.read_at(Tap(block, "block_in"), backbone) for block in range(backbone.depth)]
        with capture(backbone.model, every):
            pass
