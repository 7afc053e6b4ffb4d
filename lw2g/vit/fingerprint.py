"""The identity of a backbone in records."""

from __future__ import annotations

from typing import Literal

import attrs

from lw2g.vit.pool_words import Pool

__all__ = ["BackboneFingerprint", "WeightSource"]

WeightSource = Literal["timm hub tag", "file", "package", "random", "object", "stored features"]


@attrs.frozen(kw_only=True)
class BackboneFingerprint:
    """The identity of a backbone; results of runs with different fingerprints are not comparable.

    Attributes:
        timm_name: Architecture in timm, with the tag of the weights if there is one.
        source: Origin of the weights; ``random`` is for tests, ``object`` is a model given from Python,
            ``stored features`` of what lies in a file.
        sha256: Hash of the weights file, or of the state dict (``state_sha256``) if there is no file.
        mean: Input mean per channel that the weights were trained with.
        std: Input standard deviation per channel that the weights were trained with.
        interpolation: How images are resized for these weights.
        image_size: Side of the input image in pixels.
        dim: Width of a token, and of the feature that is trained on; of stored features, their width.
        depth: Number of blocks of attention and MLP; 0 for a network of another kind.
        heads: Attention heads per block; 0 without blocks.
        patch_size: Side of a patch in pixels; 0 without patches.
        finetuned_on_1k: Whether the weights have seen ImageNet-1k labels; None if unknown.
        timm_version: Version of timm that is installed.
        pool: How a feature is made of the model's output: the class token, the mean of the patches, both, a
            pooling by attention, or ``default``: the model's own, which is none of these, or one that nobody
            names.
        layers: Of how many of the last layers.
        width: Width of a feature of all these layers.
    """

    timm_name: str
    source: WeightSource
    sha256: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: str
    image_size: int
    dim: int
    depth: int
    heads: int
    patch_size: int
    finetuned_on_1k: bool | None
    timm_version: str
    pool: Pool = "token"
    layers: int = 1
    width: int = attrs.field(default=attrs.Factory(lambda self: self.dim, takes_self=True))
