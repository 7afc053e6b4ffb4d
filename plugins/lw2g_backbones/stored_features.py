"""A backbone of stored features: what it is given are vectors that another backbone has made of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from lw2g.plugin import Backbone, BackboneFingerprint, ConfigError, Injection, PoolWord, Rung, Tap

__all__ = ["StoredFeatures"]

_NO_NUMBERS = (0.0, 0.0, 0.0)


class StoredFeatures(Backbone):
    """Returns the vectors that it is given: there are no blocks, no weights and no images.

    Its fingerprint is that of the backbone that made the vectors, as far as it is known: results on vectors
    and on images compare where the weights are the same.

    Args:
        dim: Width of a vector.
        name: The backbone that made them.
        sha256: SHA-256 of its weights, or of the vectors where nobody says.
        pool: How its output was pooled; ``default`` where nobody says.
        layers: Of how many of its last layers they are joined.
    """

    takes_vectors = True

    def __init__(
        self, dim: int, *, name: str, sha256: str, pool: PoolWord = "default", layers: int = 1
    ) -> None:
        # past Backbone's own, which reads sizes off a model of timm
        nn.Module.__init__(self)
        self.name = name
        self.fingerprint = BackboneFingerprint(
            timm_name=name,
            source="stored features",
            sha256=sha256,
            mean=_NO_NUMBERS,
            std=_NO_NUMBERS,
            interpolation="none",
            image_size=0,
            dim=dim,
            depth=0,
            heads=0,
            patch_size=0,
            finetuned_on_1k=None,
            timm_version=version("timm"),
            pool=pool,
            layers=layers,
        )
        # whatever walks through a backbone's modules finds none
        self.model: Any = nn.Module()
        self.num_tokens = 0
        # without weights only a buffer follows ``to``, and tells the device
        self.register_buffer("place", torch.zeros(0), persistent=False)
        self.eval()

    @property
    def device(self) -> torch.device:
        """Where vectors lie."""
        return self.get_buffer("place").device

    @property
    def dtype(self) -> torch.dtype:
        """Vectors are float32."""
        return torch.float32

    @property
    def bytes_per_image(self) -> int:
        """Bytes of a vector."""
        return 4 * self.dim

    @property
    def attention(self) -> Literal["timm's"]:
        """There is none to change."""
        return "timm's"

    @property
    def plain_attention(self) -> bool:
        """There is no attention."""
        return False

    def blank(self) -> Tensor:
        """Return a vector of zeros."""
        return torch.zeros(self.dim)

    def to_bf16(self) -> Self:
        """Change nothing: there are no weights."""
        return self

    def to_onednn(self) -> Self:
        """Change nothing: there are no products."""
        return self

    def compile_blocks(self, batch_sizes: Iterable[int], *, backend: str = "inductor") -> Self:
        """Change nothing: there are no blocks."""
        return self

    def features(
        self, images: Tensor, injections: Sequence[Injection] = (), *, norm: bool | nn.Module = True
    ) -> Tensor:
        """Return the vectors themselves, ``[B, dim]`` float32.

        Args:
            images: The vectors ``[B, dim]``.
            injections: There must be none.
            norm: Not read: vectors are as they were stored.

        Raises:
            ConfigError: Something would be injected.
            ValueError: The vectors have another width.
        """
        if injections:
            raise _need_images("what is injected into a transformer")
        if images.ndim != 2 or images.shape[1] != self.dim:
            raise ValueError(f"expected vectors [B, {self.dim}] but got {list(images.shape)}")
        return images.float()

    def require(self, rung: Rung, blocks: Iterable[int] | None = None) -> None:
        """Refuse: there is no place for an injection.

        Raises:
            ConfigError: Always.
        """
        raise _need_images("what is injected into a transformer")

    def tokens(self, images: Tensor, injections: Sequence[Injection] = ()) -> Tensor:
        """Refuse: there are no tokens.

        Raises:
            ConfigError: Always.
        """
        raise _need_images("what reads tokens")

    def run_block(self, index: int, x: Tensor) -> Tensor:
        """Refuse: there are no blocks.

        Raises:
            ConfigError: Always.
        """
        raise _need_images("what reads blocks")

    def activations(
        self, images: Tensor, taps: Iterable[Tap], injections: Sequence[Injection] = ()
    ) -> dict[Tap, Tensor]:
        """Refuse: there are no activations.

        Raises:
            ConfigError: Always.
        """
        raise _need_images("what reads activations")

    def read(self, taps: Iterable[Tap], forward: Callable[[], object]) -> dict[Tap, Tensor]:
        """Refuse: there are no activations.

        Raises:
            ConfigError: Always.
        """
        raise _need_images("what reads activations")

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Do nothing: nothing is read."""
        yield


def _need_images(what: str) -> ConfigError:
    return ConfigError(
        f"stored features are no images, and {what} needs images",
        "use a method of frozen features, such as simple-cil, or a benchmark of images",
    )
