"""One small random model per family of timm's vision models, for tests and for the page of backbones.

Random weights at width 48 and depth 2 show whether an injection acts and what it leaves behind. They say
nothing about accuracy, and nothing about any pre-trained file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import timm
import torch
from torch import Tensor, nn

from lw2g.vit.adapter import AdapterInjection
from lw2g.vit.anatomy import linears_of
from lw2g.vit.backbone import Backbone
from lw2g.vit.injection import Injection
from lw2g.vit.low_rank import LayerInjection, LowRank, LowRankInjection
from lw2g.vit.prefix import PrefixInjection
from lw2g.vit.tokens import TokenInjection

__all__ = ["FAMILIES", "RUNGS", "Family", "Probe", "build_family", "probes"]

_SMALL = {"embed_dim": 48, "depth": 2, "num_heads": 4}


@attrs.frozen(kw_only=True)
class Family:
    """A family of models and how a small one is built.

    Attributes:
        name: Name on the page.
        timm_name: An architecture of the family.
        image_size: Side of the small model's input in pixels.
        changes: Arguments of ``timm.create_model`` that make it small; empty for networks without blocks.
    """

    name: str
    timm_name: str
    image_size: int
    changes: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether the installed timm has the architecture."""
        return bool(timm.is_model(self.timm_name))


def _transformer(name: str, timm_name: str, image_size: int = 32, **changes: Any) -> Family:
    small = {**_SMALL, "img_size": image_size, **changes}
    return Family(name=name, timm_name=timm_name, image_size=image_size, changes=small)


def _naflex(name: str, timm_name: str) -> Family:
    # it takes images of any size, and no argument for one
    return Family(name=name, timm_name=timm_name, image_size=32, changes=_SMALL)


def _network(name: str, timm_name: str, image_size: int) -> Family:
    return Family(name=name, timm_name=timm_name, image_size=image_size)


FAMILIES: tuple[Family, ...] = (
    _transformer("ViT (augreg, DINO, MAE, DeiT)", "vit_tiny_patch16_224"),
    _transformer("DeiT III", "deit3_small_patch16_224"),
    _transformer("DINOv2", "vit_small_patch14_dinov2", 28),
    _transformer("DINOv2 with registers, giant", "vit_giant_patch14_reg4_dinov2", 28),
    _transformer("FlexiViT", "flexivit_small"),
    _transformer("CLIP", "vit_base_patch16_clip_quickgelu_224"),
    _transformer("hybrid (ResNet stem)", "vit_tiny_r_s16_p8_224", 64),
    _transformer("distilled DeiT", "deit_tiny_distilled_patch16_224"),
    _transformer("SigLIP, SigLIP 2", "vit_base_patch16_siglip_224"),
    _transformer("SigLIP, mean pooling", "vit_base_patch16_siglip_gap_224"),
    _transformer("BEiT-3", "beit3_base_patch16_224"),
    _transformer("AIMv2", "aimv2_large_patch14_224", 28),
    _transformer("TIPSv2", "vit_base_patch14_reg1_tipsv2", 28),
    _transformer("RADIO v3", "vit_base_patch16_radio_v3"),
    _transformer("DINOv3", "vit_small_patch16_dinov3"),
    _transformer("DINOv3 with bias", "vit_small_patch16_dinov3_qkvb"),
    _transformer("DINOv3 plus", "vit_small_plus_patch16_dinov3"),
    _transformer("LingBot", "vit_base_patch16_lingbot"),
    _transformer("RoPE ViT (sbb)", "vit_betwixt_patch16_rope_reg4_gap_256"),
    _transformer("RoPE ViT (naver)", "vit_small_patch16_rope_224"),
    _transformer("RoPE ViT, mixed", "vit_small_patch16_rope_mixed_224"),
    _transformer("PE core", "vit_pe_core_tiny_patch16_384"),
    _transformer("PE spatial, lang", "vit_pe_spatial_tiny_patch16_512"),
    _transformer("EVA-02 tiny, small", "eva02_tiny_patch14_224", 28),
    _transformer("EVA-02 base, large", "eva02_base_patch14_224", 28),
    _transformer("EVA-02 CLIP", "eva02_base_patch16_clip_224"),
    _transformer("EVA giant", "eva_giant_patch14_224", 28),
    _transformer("BEiT, BEiT v2", "beit_base_patch16_224"),
    _transformer("relative positions", "vit_relpos_small_patch16_224"),
    _naflex("NaFlex, mean pooling", "naflexvit_base_patch16_gap"),
    _naflex("NaFlex, attention pooling", "naflexvit_base_patch16_map"),
    _transformer("Sapiens 2", "vit_base_patch16_sapiens2", num_kv_heads=(2, 4)),
    _transformer("norm after the branch", "vit_base_patch16_rpn_224"),
    _transformer("parallel blocks, differential attention", "vit_dpwee_patch16_reg1_gap_256"),
    _network("ResNet", "resnet18", 32),
    _network("ConvNeXt", "convnext_atto", 32),
    _network("MobileNet v4", "mobilenetv4_conv_small", 32),
    _network("Swin", "swin_tiny_patch4_window7_224", 224),
    _network("Hiera", "hiera_tiny_224", 224),
    _network("CaiT", "cait_xxs24_224", 224),
)


def build_family(family: Family, pool: Any = "default") -> Backbone:
    """Return a small model of a family with random weights that are far from any initialisation.

    Norms and biases are not at one and zero, so that attention is uneven and nothing cancels.

    Args:
        family: Known to the installed timm.
        pool: How features are pooled.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = timm.create_model(family.timm_name, num_classes=0, **family.changes)
        if family.changes:
            for name, parameter in model.named_parameters():
                plain = parameter.ndim != 1
                nn.init.normal_(parameter, mean=0.0 if plain else 0.3, std=0.1 if "table" in name else 0.2)
    return Backbone.wrap(model, name=family.timm_name, image_size=family.image_size, pool=pool)


@attrs.frozen(kw_only=True)
class Probe:
    """An injection at every block whose parameters are not zero.

    Attributes:
        parameters: Its parameters, each of which takes part in the forward.
        injection: The injection of these.
    """

    parameters: tuple[Tensor, ...]
    injection: Injection


def probes(backbone: Backbone) -> dict[str, Callable[[], Probe]]:
    """Return how the probes of a backbone are made, by the column of the page that they stand for."""
    generator = torch.Generator().manual_seed(11)
    blocks, dim = range(max(backbone.depth, 1)), backbone.dim

    def drawn(*shape: int) -> Tensor:
        return (torch.randn(*shape, generator=generator) / 4).requires_grad_()

    def low_rank() -> Probe:
        factors = {
            index: {target: (drawn(2, dim), drawn(dim, 2)) for target in ("q", "k", "v")} for index in blocks
        }
        updates: Any = {
            index: {target: LowRank(down=down, up=up) for target, (down, up) in own.items()}
            for index, own in factors.items()
        }
        parameters = [part for own in factors.values() for pair in own.values() for part in pair]
        return Probe(parameters=tuple(parameters), injection=LowRankInjection(updates))

    def linears() -> Probe:
        parameters: list[Tensor] = []
        updates: dict[int, Any] = {}
        for index in blocks:
            backbone.require("low-rank updates", ())
            updates[index] = {}
            for name, layer in linears_of(backbone.model.blocks[index]).items():
                down, up = drawn(2, layer.in_features), drawn(layer.out_features, 2)
                parameters += [down, up]
                updates[index][name] = LowRank(down=down, up=up)
        return Probe(parameters=tuple(parameters), injection=LayerInjection(updates))

    def adapters() -> Probe:
        matrices = {index: drawn(dim, dim) for index in blocks}
        branches = {index: _Dense(matrix) for index, matrix in matrices.items()}
        return Probe(parameters=tuple(matrices.values()), injection=AdapterInjection(branches))

    def prefixes() -> Probe:
        pairs = {index: (drawn(3, dim), drawn(3, dim)) for index in blocks}
        parameters = tuple(part for pair in pairs.values() for part in pair)
        return Probe(parameters=parameters, injection=PrefixInjection(pairs))

    def tokens() -> Probe:
        rows = {index: drawn(3, dim) for index in blocks}
        return Probe(parameters=tuple(rows.values()), injection=TokenInjection(rows, keep=True))

    made = (low_rank, linears, adapters, prefixes, tokens)
    return dict(zip(RUNGS, made, strict=True))


RUNGS = ("low-rank q, k, v", "low-rank, any linear layer", "adapters", "prefixes", "prompt tokens")
"""The columns of the page that are injections."""


@attrs.frozen(eq=False)
class _Dense:
    """A branch of one matrix."""

    matrix: Tensor

    def __call__(self, stream: Tensor) -> Tensor:
        return stream @ self.matrix
