"""The frozen backbone: an unmodified timm ViT that returns features, tokens and tapped activations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import attrs
import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from lw2g.errors import ConfigError
from lw2g.vit.graphs import Graphs
from lw2g.vit.injection import (
    Injection,
    attention_of,
    class_token_index,
    inject,
    num_tokens,
    require_plain_vit,
)
from lw2g.vit.prefix import last_row_alone
from lw2g.vit.products import OneDNNLinear
from lw2g.vit.room import bytes_per_image
from lw2g.vit.taps import Tap, capture
from lw2g.vit.weights import (
    create_model,
    described,
    file_sha256,
    load_weights,
    per_channel,
    require_loaded,
    resolve_name,
    seen_1k,
    state_sha256,
)

__all__ = ["Backbone", "BackboneFingerprint", "WeightSource", "load_backbone"]

WeightSource = Literal["timm hub tag", "file", "package", "random", "stored features"]
_HALF = (0.5, 0.5, 0.5)


@attrs.frozen(kw_only=True)
class BackboneFingerprint:
    """The identity of a backbone; results of runs with different fingerprints are not comparable.

    Attributes:
        timm_name: Architecture in timm, with the tag of the weights if there is one.
        source: Origin of the weights; ``random`` is for tests, ``stored features`` of what lies in a file.
        sha256: Hash of the weights file, or of the state dict (``state_sha256``) if there is no file.
        mean: Input mean per channel that the weights were trained with.
        std: Input standard deviation per channel that the weights were trained with.
        interpolation: How images are resized for these weights.
        image_size: Side of the input image in pixels.
        dim: Width of a token.
        depth: Number of blocks.
        heads: Attention heads per block.
        patch_size: Side of a patch in pixels.
        finetuned_on_1k: Whether the weights have seen ImageNet-1k labels; None if unknown.
        timm_version: Version of timm that built the model.
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


_COMPILATIONS = 64
"""Variants of a block that torch may compile: batch sizes, with and without prefix and gradients."""


def _forward(block: Any, x: Tensor) -> Any:
    return type(block).forward(block, x)


@cache
def _compiled_forward(backend: str) -> Callable[[Any, Tensor], Tensor]:
    return torch.compile(_forward, backend=backend, dynamic=False)


class _EnoughError(Exception):
    """Ends a forward once all taps have been read."""


class _Reading:
    """The taps of a call of :meth:`Backbone.read`, and their activations."""

    def __init__(self, taps: tuple[Tap, ...]) -> None:
        self.taps = taps
        self.seen: dict[Tap, Tensor] = {}


class Backbone(nn.Module):
    """A frozen timm ViT that is never trained, never in train mode, and plain outside a call.

    Build it with ``load_backbone``, or with ``Backbone.wrap`` around a model of your own.

    Attributes:
        model: The timm ``VisionTransformer``, without gradients.
        name: Name in messages: the timm name, with the weights file if there is one.
        fingerprint: Identity in records.
        graphs: CUDA graphs of :meth:`features`; None where each forward is launched kernel by kernel.
        takes_vectors: Whether its input is vectors ``[B, dim]`` (:mod:`lw2g.vit.stored`), not images.
    """

    takes_vectors: ClassVar[bool] = False

    def __init__(self, model: VisionTransformer, *, name: str, fingerprint: BackboneFingerprint) -> None:
        super().__init__()
        self.model = model.requires_grad_(False)
        self.name = name
        self.fingerprint = fingerprint
        self.num_tokens = num_tokens(model)
        self._reading: _Reading | None = None
        self._compiled: frozenset[int] = frozenset()
        self._backend = ""
        self.graphs: Graphs | None = None
        self.eval()

    @classmethod
    def wrap(
        cls,
        model: VisionTransformer,
        *,
        name: str,
        timm_name: str | None = None,
        source: WeightSource = "random",
        sha256: str | None = None,
        mean: Sequence[float] = _HALF,
        std: Sequence[float] = _HALF,
        interpolation: str = "bicubic",
        finetuned_on_1k: bool | None = None,
    ) -> Self:
        """Freeze a model and return it as a backbone.

        Args:
            model: A plain timm ``VisionTransformer``, see ``require_plain_vit``.
            name: Name in messages.
            timm_name: Name in the fingerprint; ``name`` by default.
            source: Origin of the weights; all but ``random`` claim that they are trained.
            sha256: Hash of the weights file; by default computed from the state dict.
            mean: Input mean per channel.
            std: Input standard deviation per channel.
            interpolation: How images are resized.
            finetuned_on_1k: Whether the weights have seen ImageNet-1k labels; None if unknown.

        Raises:
            ConfigError: The model is no plain ViT.
            DataError: The weights should be trained but look untrained.

        >>> size = dict(img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=4, num_classes=0)
        >>> backbone = Backbone.wrap(VisionTransformer(**size), name="tiny random ViT")
        >>> backbone.features(torch.zeros(5, 3, 32, 32)).shape
        torch.Size([5, 48])
        """
        require_plain_vit(model)
        if source != "random":
            require_loaded(model, name)
        fingerprint = BackboneFingerprint(
            timm_name=timm_name or name,
            source=source,
            sha256=sha256 or state_sha256(model.state_dict()),
            mean=per_channel(mean, "mean"),
            std=per_channel(std, "std"),
            interpolation=interpolation,
            image_size=model.patch_embed.img_size[0],
            dim=model.embed_dim,
            depth=len(model.blocks),
            heads=model.blocks[0].attn.num_heads,
            patch_size=model.patch_embed.patch_size[0],
            finetuned_on_1k=finetuned_on_1k,
            timm_version=timm.__version__,
        )
        return cls(model, name=name, fingerprint=fingerprint)

    @property
    def dim(self) -> int:
        """Width of a token and of the features."""
        return self.fingerprint.dim

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.fingerprint.depth

    @property
    def heads(self) -> int:
        """Attention heads per block."""
        return self.fingerprint.heads

    @property
    def image_size(self) -> int:
        """Side of the input image in pixels."""
        return self.fingerprint.image_size

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self._patch_weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype in which Linear and Conv weights are stored: float32, or bfloat16 after ``to_bf16``."""
        return self._patch_weight.dtype

    @property
    def bytes_per_image(self) -> int:
        """A lower bound of an image's bytes in a forward."""
        return bytes_per_image(self.model)

    def blank(self) -> Tensor:
        """Return an input that any model on this backbone answers: a black image, uint8 [3, S, S]."""
        return torch.zeros(3, self.image_size, self.image_size, dtype=torch.uint8)

    @property
    def _patch_weight(self) -> Tensor:
        weight: Tensor = self.model.patch_embed.proj.weight
        return weight

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: a frozen backbone has no training mode."""
        return super().train(False)

    def to_bf16(self) -> Self:
        """Store Linear and Conv weights in bfloat16, in place, and compute under bf16 autocast from now on.

        Norms, class token and position embeddings stay float32, so every result equals that of autocast over
        float32 weights, bit for bit. Autocast would cast the same weights in every forward, because it caches
        casts of trainable weights only. Parameters of injections may stay float32.
        """
        for module in self.model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                module.to(torch.bfloat16)
        return self

    def to_onednn(self) -> Self:
        """Let oneDNN take the products of the blocks' linear layers on a CPU, in place.

        In bf16 nothing changes but time; float32 differs in its last bits (:mod:`lw2g.vit.products`).
        """
        for module in self.model.blocks.modules():
            if type(module) is nn.Linear:
                module.__class__ = OneDNNLinear
        return self

    def compile_blocks(self, batch_sizes: Iterable[int], *, backend: str = "inductor") -> Self:
        """Compile the blocks' forwards for some batch sizes; batches of other sizes run uncompiled.

        The size alone decides, so that a resumed run computes the same bits. One compilation serves all
        blocks, tasks and sets: prefixes are tensor arguments. A block with other hooks runs uncompiled.

        Args:
            batch_sizes: Each is compiled once for every combination of prefix and gradient that occurs.
            backend: Backend of ``torch.compile``.
        """
        limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
        setattr(torch._dynamo.config, limit, max(getattr(torch._dynamo.config, limit), _COMPILATIONS))
        self._compiled, self._backend = frozenset(batch_sizes), backend
        return self

    def features(self, images: Tensor, injections: Sequence[Injection] = (), *, norm: bool = True) -> Tensor:
        """Return the class token of each image: float32 [B, dim].

        Args:
            images: Normalised images [B, 3, S, S] on the backbone's device.
            injections: Active within this call only.
            norm: Whether to take it after the final norm (False: before it, as in CPrompt).

        Raises:
            ValueError: The images have another shape.
        """
        self._stop_if_read(images, injections)
        forward = partial(self._features, norm=norm)
        if self.graphs is None:
            return forward(images, injections)
        return self.graphs(forward, images, injections, norm)

    def _features(self, images: Tensor, injections: Sequence[Injection], *, norm: bool) -> Tensor:
        with last_row_alone(self.model, injections, self.plain_attention), self._computing(injections):
            x = self._run(images, self.depth)
            # a view would keep all tokens in memory
            row = x[:, class_token_index(injections, x.shape[1], self.num_tokens)].clone()
            out: Tensor = self.model.norm(row) if norm else row
        return out.float()

    def tokens(self, images: Tensor, injections: Sequence[Injection] = ()) -> Tensor:
        """Return all R tokens after the final norm, prompt tokens included: float32 [B, R, dim]."""
        self._stop_if_read(images, injections)
        with self._computing(injections):
            out: Tensor = self.model.norm(self._run(images, self.depth))
        return out.float()

    def run_block(self, index: int, x: Tensor) -> Tensor:
        """Return the output of one block for a token stream [B, num_tokens, dim]."""
        with self._computing(()):
            out: Tensor = self.model.blocks[index](x)
        return out

    @torch.no_grad()
    def activations(
        self, images: Tensor, taps: Iterable[Tap], injections: Sequence[Injection] = ()
    ) -> dict[Tap, Tensor]:
        """Return the activations at taps, without gradients: float32 [B, num_tokens, dim].

        A feature tap gives [B, dim]. The forward ends after the deepest tapped block.

        Args:
            images: Normalised images [B, 3, S, S] on the backbone's device.
            taps: Where to read.
            injections: Active within this call only.

        Raises:
            ConfigError: A tap names a block that the model does not have.
            ValueError: The images have another shape.
        """
        taps = tuple(taps)
        whole = any(tap.kind == "feature" for tap in taps)
        blocks = self.depth if whole else max((tap.block + 1 for tap in taps), default=0)
        with self._computing(injections), capture(self.model, taps, injections) as seen:
            x = self._run(images, blocks)
            if whole:
                self.model.norm(x)
        return seen

    @torch.no_grad()
    def read(self, taps: Iterable[Tap], forward: Callable[[], object]) -> dict[Tap, Tensor]:
        """Return the activations at taps while ``forward`` runs this backbone with its own injections.

        It reads the first forward outside :meth:`unread`, and ends ``forward`` after the deepest tap.

        Args:
            taps: Where to read.
            forward: Calls ``features`` or ``tokens``, directly or through a baseline.

        Raises:
            ConfigError: A tap names a block that the model does not have.
            ValueError: ``forward`` did not run the backbone.
        """
        self._reading = _Reading(tuple(taps))
        try:
            forward()
        except _EnoughError:
            return self._reading.seen
        finally:
            self._reading = None
        raise ValueError("expected a forward that runs the backbone, but it was not run")

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Exempt forwards within the context from a :meth:`read` under way (un-prompted queries)."""
        reading, self._reading = self._reading, None
        try:
            yield
        finally:
            self._reading = reading

    def _stop_if_read(self, images: Tensor, injections: Sequence[Injection]) -> None:
        """Read the taps and end the forward if it runs within :meth:`read`."""
        if (reading := self._reading) is not None:
            reading.seen = self.activations(images, reading.taps, injections)
            raise _EnoughError

    @contextmanager
    def _computing(self, injections: Sequence[Injection]) -> Iterator[None]:
        # autocast(enabled=False) for float32 would switch off the caller's autocast
        stored = self.dtype == torch.bfloat16
        reduced = torch.autocast(self.device.type, dtype=torch.bfloat16) if stored else nullcontext()
        with inject(self.model, injections), reduced, self._attention():
            yield

    @property
    def plain_attention(self) -> bool:
        """Whether attention is plain (product, softmax, product) here and now: in bf16 on a CPU.

        timm's choice, fused attention, is slower there with gradients and without (``benchmarks/README.md``).
        """
        return (
            self.device.type == "cpu"
            and (self.dtype == torch.bfloat16 or torch.is_autocast_enabled("cpu"))
            and torch.get_autocast_dtype("cpu") == torch.bfloat16
        )

    @contextmanager
    def _attention(self) -> Iterator[None]:
        attentions = [attention_of(block) for block in self.model.blocks] if self.plain_attention else []
        fused = [attention for attention in attentions if attention.fused_attn]
        for attention in fused:
            attention.fused_attn = False
        try:
            yield
        finally:
            for attention in fused:
                attention.fused_attn = True

    def _run(self, images: Tensor, blocks: int) -> Tensor:
        """Embed the images and run the first ``blocks`` blocks, as timm's ``forward_features`` does."""
        model = self.model
        expected = (model.patch_embed.proj.in_channels, *model.patch_embed.img_size)
        if images.ndim != 4 or tuple(images.shape[1:]) != expected:
            shape = ", ".join(map(str, expected))
            raise ValueError(f"expected images [B, {shape}] but got {list(images.shape)}")
        x: Tensor = model.norm_pre(model.patch_drop(model._pos_embed(model.patch_embed(images))))
        for i in range(blocks):
            with self._forward_of(model.blocks[i], len(images)):
                x = model.blocks[i](x)
        return x

    @contextmanager
    def _forward_of(self, block: Any, batch: int) -> Iterator[None]:
        """Let a block run its compiled forward, if the batch size has one and its modules have no hooks."""
        inner = (module for module in block.modules() if module is not block)
        hooked = any(module._forward_hooks or module._forward_pre_hooks for module in inner)
        if batch not in self._compiled or hooked:
            yield
            return
        # not its __call__: the block's own hooks, which differ between calls, stay outside
        block.forward = partial(_compiled_forward(self._backend), block)
        try:
            yield
        finally:
            del block.forward


def load_backbone(
    timm_name: str,
    *,
    weights: Path | None = None,
    pretrained: bool = False,
    image_size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    device: torch.device | str | None = None,
    random_seed: int | None = None,
    finetuned_on_1k: bool | None = None,
) -> Backbone:
    """Build a backbone from a timm name and exactly one source of weights.

    Args:
        timm_name: ``architecture.tag``; the bare architecture suffices for a file or random weights.
        weights: Checkpoint file (see ``load_weights``); takes precedence over ``pretrained``.
        pretrained: Whether to fetch the tag's weights from the hub that timm uses.
        image_size: Side of the input in pixels; by default the tag's, else positions are resampled.
        mean: Input mean per channel; by default the tag's, required for a bare name with a file.
        std: Input standard deviation per channel, likewise.
        device: Device of the backbone; the CPU by default.
        random_seed: Seed of *random* weights, for tests only.
        finetuned_on_1k: Whether the weights have seen ImageNet-1k labels; by default read off the tag.

    Raises:
        ConfigError: The name or the combination of arguments is not usable.
        DataError: The weights cannot be fetched or do not fit.
    """
    if [weights is not None or pretrained, random_seed is not None].count(True) != 1:
        raise ConfigError(
            f"backbone {timm_name!r} needs one source of weights", "give a file, the hub or (in tests) a seed"
        )
    source: WeightSource = "file" if weights else "timm hub tag" if pretrained else "random"
    tagged = resolve_name(timm_name, needs_tag=source == "timm hub tag")
    config = timm.get_pretrained_cfg(timm_name) if tagged else None
    if source == "file" and config is None and (mean is None or std is None):
        raise ConfigError(
            f"bare architecture {timm_name!r} does not say how inputs are normalised",
            "state mean and std, as in backbone.mean=[0.5,0.5,0.5], or give the name with its tag",
        )
    model = create_model(
        timm_name, from_hub=source == "timm hub tag", image_size=image_size, seed=random_seed or 0
    )
    require_plain_vit(model)
    if weights is not None:
        load_weights(model, weights)
    backbone = Backbone.wrap(
        model,
        name=described(timm_name, weights, random_seed),
        timm_name=timm_name,
        source=source,
        sha256=file_sha256(weights) if weights else None,
        mean=mean if mean is not None else config.mean if config else _HALF,
        std=std if std is not None else config.std if config else _HALF,
        interpolation=config.interpolation if config else "bicubic",
        finetuned_on_1k=seen_1k(config) if finetuned_on_1k is None else finetuned_on_1k,
    )
    return backbone.to(device) if device is not None else backbone
