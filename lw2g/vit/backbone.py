"""The frozen backbone: a model of timm, or a plain ViT with timm's bits, and what is read out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from lw2g.errors import ConfigError
from lw2g.vit.anatomy import (
    Rung,
    attention_of,
    blocks_of,
    checked_blocks,
    has_blocks,
    model_name,
    num_tokens,
    require_rung,
    rotates_or_norms,
)
from lw2g.vit.attention import Attention, attention_now, fuses_forwards, without_fused_attention
from lw2g.vit.compiling import allow_compilations, compiled, tell_uncompiled
from lw2g.vit.fingerprint import BackboneFingerprint, WeightSource
from lw2g.vit.injection import Injection, class_token_index, inject, real_tokens
from lw2g.vit.joined import JoinedLayers, joined_stages
from lw2g.vit.pool_words import Layers, Pool
from lw2g.vit.pooling import is_joined, joined_width, pooled, resolve_layers, resolve_pool
from lw2g.vit.prefix import last_row_alone
from lw2g.vit.sizes import Sizes, bytes_per_image, require_frozen_features, sizes_of
from lw2g.vit.stopping import Reading, output_of
from lw2g.vit.storage import reference_weight, store_in_bf16, take_onednn
from lw2g.vit.taps import Tap, capture
from lw2g.vit.weights import per_channel, require_loaded, state_sha256

__all__ = ["Backbone", "BackboneFingerprint", "WeightSource"]

_HALF = (0.5, 0.5, 0.5)
_CHANNELS = 3


class Backbone(nn.Module):
    """A frozen timm model that is never trained, never in train mode, and plain outside a call.

    Build it with :func:`lw2g.vit.loading.load_backbone`, or by ``Backbone.wrap`` from a model of your own.

    Attributes:
        model: The timm model, without gradients.
        name: Name in messages: the timm name, with the weights file if there is one.
        fingerprint: Identity in records.
        takes_vectors: Whether its input is vectors ``[B, dim]``, not images (stored features).
    """

    takes_vectors: ClassVar[bool] = False
    _joining = False

    def __init__(self, model: nn.Module, *, name: str, fingerprint: BackboneFingerprint) -> None:
        super().__init__()
        self.model: Any = model.requires_grad_(False)
        self.name = name
        self.fingerprint = fingerprint
        self.num_tokens = sizes_of(model, fingerprint.image_size).num_tokens
        self._has_blocks = has_blocks(model)
        self._fuses_forwards = fuses_forwards(self.num_tokens)
        self._pool = fingerprint.pool
        if self.joins:  # what is trained by gradients has the model's own feature
            self._pool = resolve_pool(model, "default")
        self._reading: Reading | None = None
        self._compiled: frozenset[int] = frozenset()
        self._backend = ""
        self.eval()

    @classmethod
    def wrap(
        cls,
        model: nn.Module,
        *,
        name: str,
        timm_name: str | None = None,
        source: WeightSource = "random",
        sha256: str | None = None,
        mean: Sequence[float] = _HALF,
        std: Sequence[float] = _HALF,
        interpolation: str = "bicubic",
        finetuned_on_1k: bool | None = None,
        image_size: int | None = None,
        pool: Pool = "default",
        layers: Layers = 1,
    ) -> Self:
        """Freeze a model and return it as a backbone.

        Args:
            model: A timm model without a classifier, see ``require_frozen_features``.
            name: Name in messages.
            timm_name: Name in the fingerprint; ``name`` by default.
            source: Origin of the weights; all but ``random`` claim that they are trained.
            sha256: Hash of the weights file; by default computed from the state dict.
            mean: Input mean per channel.
            std: Input standard deviation per channel.
            interpolation: How images are resized.
            finetuned_on_1k: Whether the weights have seen ImageNet-1k labels; None if unknown.
            image_size: Side of the input in pixels, for a model that is not built for one.
            pool: How features are pooled.
            layers: Of how many of the last layers features are joined (:mod:`lw2g.vit.joined`).

        Raises:
            ConfigError: The model gives no features, or does not offer this pooling or as many layers.
            DataError: The weights should be trained but look untrained.

        >>> from timm.models.vision_transformer import VisionTransformer
        >>> size = dict(img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=4, num_classes=0)
        >>> backbone = Backbone.wrap(VisionTransformer(**size), name="tiny random ViT")
        >>> backbone.features(torch.zeros(5, 3, 32, 32)).shape
        torch.Size([5, 48])
        """
        require_frozen_features(model)
        if source not in ("random", "object"):
            require_loaded(model, name)
        sizes: Sizes = sizes_of(model, image_size)
        layers = resolve_layers(model, layers, pool)
        pool = resolve_pool(model, pool, layers)
        fingerprint = BackboneFingerprint(
            timm_name=timm_name or name,
            source=source,
            sha256=sha256 or state_sha256(model.state_dict()),
            mean=per_channel(mean, "mean"),
            std=per_channel(std, "std"),
            interpolation=interpolation,
            image_size=sizes.image_size,
            dim=sizes.dim,
            depth=sizes.depth,
            heads=sizes.heads,
            patch_size=sizes.patch_size,
            finetuned_on_1k=finetuned_on_1k,
            timm_version=version("timm"),
            pool=pool,
            layers=layers,
            width=joined_width(model, sizes.dim, layers, pool),
        )
        return cls(model, name=name, fingerprint=fingerprint)

    @property
    def dim(self) -> int:
        """Width of a token, and of a feature outside :meth:`joining`."""
        return self.fingerprint.dim

    @property
    def width(self) -> int:
        """Width of a feature within :meth:`joining`."""
        return self.fingerprint.width

    @property
    def joins(self) -> bool:
        """Whether features within :meth:`joining` are of several parts."""
        return is_joined(self.fingerprint.layers, self.fingerprint.pool)

    @property
    def depth(self) -> int:
        """Number of blocks of attention and MLP; 0 for a network of another kind."""
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
        return reference_weight(self.model).device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype in which Linear and Conv weights are stored: float32, or bfloat16 after ``to_bf16``."""
        return reference_weight(self.model).dtype

    def blank(self) -> Tensor:
        """Return an input that any model on this backbone answers: a black image, uint8 [3, S, S]."""
        return torch.zeros(3, self.image_size, self.image_size, dtype=torch.uint8)

    @property
    def bytes_per_image(self) -> int:
        """A lower bound of an image's bytes in a forward."""
        return bytes_per_image(self.model, sizes_of(self.model, self.image_size))

    def require(self, rung: Rung, blocks: Iterable[int] | None = None) -> None:
        """Refuse an injection that has no place in this backbone, before anything is trained.

        Args:
            rung: Its kind.
            blocks: Where it is to be; None for all blocks.

        Raises:
            ConfigError: A block lacks what the injection needs.
        """
        require_rung(self.model, rung, blocks)

    def check_blocks(self, blocks: Sequence[int], path: str, rung: Rung | None = None) -> tuple[int, ...]:
        """Return the blocks that an option names, after checking that they are there.

        Args:
            blocks: Block indices from 0.
            path: Name of the option, for the message.
            rung: The kind of injection that needs a place at them; None for any.

        Raises:
            ConfigError: A block is repeated or missing, or lacks what the injection needs.
        """
        return checked_blocks(self.model, self.depth, blocks, path, rung)

    def require_class_token(self, what: str) -> None:
        """Refuse what reads the class token where features are pooled in another way.

        Args:
            what: Who reads it, for the message.

        Raises:
            ConfigError: Features are not the class token.
        """
        if not self._has_blocks or self._pool != "token":
            raise ConfigError(
                f"{what} is a class token, and backbone {model_name(self.model)} pools by {self._pool!r}",
                "use another method, or set backbone.pool=token where the model has one",
            )

    def key_tap(self, block: int) -> Tap:
        """Return where to read what meets the keys of a block, which the gradient of a prefix key is made of.

        Without normalised or rotated queries it is the output of their projection.
        """
        attention = attention_of(self.model.blocks[block])
        if rotates_or_norms(self.model, attention):
            return Tap(block, "query_used")
        return Tap(block, "query")

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: a frozen backbone has no training mode."""
        return super().train(False)

    def to_bf16(self) -> Self:
        """Store Linear and Conv weights in bfloat16, in place, and compute under bf16 autocast from now on.

        Norms, class token and position embeddings stay float32, so every result equals that of autocast over
        float32 weights, bit for bit (:mod:`lw2g.vit.storage`). Parameters of injections may stay float32.
        """
        store_in_bf16(self.model)
        return self

    def to_onednn(self) -> Self:
        """Let oneDNN take the products of the blocks' linear layers on a CPU, in place.

        In bf16 nothing changes but time; float32 differs in its last bits (:mod:`lw2g.vit.products`).
        """
        # the embedding of patches and the last norm are too small to gain
        take_onednn(self.model.blocks if self._has_blocks else self.model)
        return self

    def compile_blocks(self, batch_sizes: Iterable[int], *, backend: str = "inductor") -> Self:
        """Compile the blocks' forwards for some batch sizes; batches of other sizes run uncompiled.

        The size alone decides, so that a resumed run computes the same bits. One compilation serves all
        blocks, tasks and sets: prefixes are tensor arguments. A block with other hooks runs uncompiled.

        Args:
            batch_sizes: Each is compiled once for every combination of prefix and gradient that occurs.
            backend: Backend of ``torch.compile``.
        """
        allow_compilations()
        self._compiled = frozenset(batch_sizes)
        self._backend = backend
        return self

    def require_one_layer(self, what: str) -> None:
        """Refuse ``what`` is compared with un-prompted features where these are of several layers.

        Raises:
            ConfigError: They are.
        """
        if self.joins:
            raise ConfigError(
                f"{what} is a token, and un-prompted features are joined from several layers or poolings",
                "set backbone.layers=1 and leave backbone.pool out, or use a method with a closed-form head",
            )

    @contextmanager
    def joining(self) -> Iterator[None]:
        """Let :meth:`features` return those of all layers, ``[B, width]``, within the context.

        Outside of it they are of the last layer: what is trained by gradients has the features of its paper.
        """
        before = self._joining
        self._joining = self.joins
        try:
            yield
        finally:
            self._joining = before

    def features(
        self, images: Tensor, injections: Sequence[Injection] = (), *, norm: bool | nn.Module = True
    ) -> Tensor:
        """Return the pooled feature of each image: float32 [B, dim], or [B, width] within :meth:`joining`.

        Rows that injections added are left out before pooling.

        Args:
            images: Normalised images [B, 3, S, S] on the backbone's device.
            injections: Active within this call only.
            norm: Whether to take it after the final norm (False: before it, as in CPrompt), or the norm that
                stands in its place.

        Raises:
            ConfigError: An injection has no place in the model, or a feature before the final norm none.
            ValueError: The images have another shape.
        """
        self._stop_if_read(images, injections)
        own_norm = norm if isinstance(norm, nn.Module) else None
        if self._joining and norm:
            return self._joined(images, injections, own_norm)
        if self._has_blocks and self._pool == "token" and not self._joining:
            row = self._class_token(images, injections, norm=norm is True)
            # the norm runs in the precision of the caller, as a layer of its own
            return row if own_norm is None else own_norm(row).float()
        if norm is not True:
            raise ConfigError(
                f"features before the final norm are class tokens, and {self.name!r} pools by "
                f"{self.fingerprint.pool!r}",
                "set backbone.pool=token where the model has one",
            )
        with self._computing(injections):
            out = self._pooled(self._whole(images), injections)
        return out.float()

    def _class_token(self, images: Tensor, injections: Sequence[Injection], *, norm: bool) -> Tensor:
        """Return the class token after the last block, ``[B, dim]`` float32, without the other tokens."""
        with self._one_row(injections), self._computing(injections):
            x = self._run(images, self.depth)
            # a view would keep all tokens in memory
            row: Tensor = x[:, class_token_index(injections, x.shape[1], num_tokens(self.model))].clone()
            if norm:
                row = self.model.fc_norm(self.model.norm(row))
        return row.float()

    def _joined(self, images: Tensor, injections: Sequence[Injection], own_norm: nn.Module | None) -> Tensor:
        if not self._has_blocks:
            self._require_shape(images)
            with self._computing(injections):
                return joined_stages(self.model, images, self.fingerprint.layers)
        joined = JoinedLayers(self.model, self.fingerprint.layers, self.fingerprint.pool, injections)
        one_row = self._one_row(injections) if joined.read_one_row else nullcontext()
        with one_row, self._computing(injections), joined.gathering():
            return joined.features(self._run(images, self.depth), own_norm)

    def _one_row(self, injections: Sequence[Injection]) -> AbstractContextManager[None]:
        """Compute one row of the last block within the context."""
        # float32 would change in its last bits
        return last_row_alone(self.model, injections, attention=self.attention != "timm's")

    def _pooled(self, x: Tensor, injections: Sequence[Injection]) -> Tensor:
        """Return the feature of what ``forward_features`` returned."""
        if self._has_blocks:
            tokens = num_tokens(self.model)
            x = real_tokens(x, tokens, class_token_index(injections, x.shape[1], tokens))
        return pooled(self.model, x, self._pool)

    def tokens(self, images: Tensor, injections: Sequence[Injection] = ()) -> Tensor:
        """Return all R tokens after the final norm, prompt tokens included: float32 [B, R, dim].

        Raises:
            ConfigError: The model has no tokens.
        """
        if not self._has_blocks:
            raise ConfigError(f"backbone {model_name(self.model)} has no tokens", "use features, or a ViT")
        self._stop_if_read(images, injections)
        with self._computing(injections):
            return self._whole(images).float()

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

        A feature tap gives [B, dim], a tap inside the MLP its width. The forward ends after the deepest
        tapped block.

        Args:
            images: Normalised images [B, 3, S, S] on the backbone's device.
            taps: Where to read.
            injections: Active within this call only.

        Raises:
            ConfigError: A tap names a block that the model does not have.
            ValueError: The images have another shape.
        """
        taps = tuple(taps)
        features = [tap for tap in taps if tap.kind == "feature"]
        inner = [tap for tap in taps if tap.kind != "feature"]
        with self._computing(injections), capture(self.model, inner, injections) as seen:
            if features:
                feature = self._pooled(self._whole(images), injections).float()
                # a view would keep all tokens in memory
                seen.update(dict.fromkeys(features, feature.clone()))
            elif inner:
                self._run(images, max(tap.block for tap in inner) + 1)
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
            NotRunError: ``forward`` did not run the backbone.
        """
        self._reading = Reading(tuple(taps), self.activations)
        try:
            return self._reading.of(forward)
        finally:
            self._reading = None

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
        if self._reading is not None:
            self._reading.stop(images, injections)

    @contextmanager
    def _computing(self, injections: Sequence[Injection]) -> Iterator[None]:
        """Compute with injections, in the weights' type and the chosen attention, within the context."""
        tell_uncompiled(injections if self._compiled else ())
        # autocast(enabled=False) for float32 would switch off the caller's autocast
        stored = self.dtype == torch.bfloat16
        reduced = torch.autocast(self.device.type, dtype=torch.bfloat16) if stored else nullcontext()
        with inject(self.model, injections), reduced:
            # asked for within autocast, which decides it
            plain = self._has_blocks and self.plain_attention
            with without_fused_attention(self.model.blocks) if plain else nullcontext():
                yield

    @property
    def attention(self) -> Attention:
        """Which attention is computed here and now, for a record."""
        return attention_now(self.device.type, self.dtype, fuses=self._fuses_forwards)

    @property
    def plain_attention(self) -> bool:
        """Whether attention is plain (product, softmax, product) here and now."""
        attention = self.attention
        return attention == "plain" or (attention == "fused without gradients" and torch.is_grad_enabled())

    def _whole(self, images: Tensor) -> Tensor:
        """Run timm's ``forward_features``."""
        self._require_shape(images)
        with ExitStack() as stack:
            if self._compiled and self._has_blocks and len(images) in self._compiled:
                for block in self.model.blocks:
                    stack.enter_context(compiled(block, self._backend))
            out: Tensor = self.model.forward_features(images)
        return out

    def _run(self, images: Tensor, blocks: int) -> Tensor:
        """Run ``forward_features`` up to the end of the first ``blocks`` blocks; return the stream there."""
        # timm's own forward carries rotary embeddings, shared biases and whatever else blocks are handed
        last = blocks_of(self.model)[blocks - 1]
        return output_of(last, partial(self._whole, images))

    def _require_shape(self, images: Tensor) -> None:
        side = self.image_size
        if images.ndim != 4 or tuple(images.shape[1:]) != (_CHANNELS, side, side):
            expected = f"{_CHANNELS}, {side}, {side}"
            raise ValueError(f"expected images [B, {expected}] but got {list(images.shape)}")
