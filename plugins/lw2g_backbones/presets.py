"""The published ViT-B/16 checkpoints by the short names that papers confuse.

What is called "Sup-21K" is four different files in the official repositories; here each has a name of its
own, and every record says which one was used. Numbers taken with different ones are not comparable.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from lw2g.errors import DataError

if TYPE_CHECKING:
    from lw2g.vit.backbone import Backbone

__all__ = ["PRESETS", "BackbonePreset", "PresetConfig"]

_HALF = (0.5, 0.5, 0.5)
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)
_BASE = "vit_base_patch16_224"


@attrs.frozen(kw_only=True)
class PresetConfig:
    """A preset has no options: it is one checkpoint."""


@attrs.frozen(kw_only=True)
class BackbonePreset:
    """One published checkpoint.

    Attributes:
        name: Our short name.
        timm_name: timm model, with the exact tag where timm can fetch the weights.
        mean: Input mean per channel the weights were trained with.
        std: Input standard deviation per channel.
        finetuned_on_1k: Whether the weights have seen ImageNet-1k labels.
        file: The official file.
        page: Where the authors publish it.
        summary: One line.
    """

    name: str
    timm_name: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    finetuned_on_1k: bool
    file: str
    page: str
    summary: str

    @property
    def fetched_by_timm(self) -> bool:
        """Whether timm can fetch the weights itself; the other files a user has to bring."""
        return "." in self.timm_name

    def build(self, config: PresetConfig, weights: Path | None, image_size: int | None) -> Backbone:
        """Return the backbone, from the file where one is given.

        Raises:
            DataError: The file is missing, or the preset needs one and none is given.
        """
        if weights is None and not self.fetched_by_timm:
            raise DataError(f"backbone {self.name!r} needs a weights file; {self._where()}")
        if weights is not None and not weights.is_file():
            raise DataError(f"backbone {self.name!r}: no weights file {str(weights)!r}; {self._where()}")
        from lw2g.vit.backbone import load_backbone

        return load_backbone(
            self.timm_name,
            weights=weights,
            pretrained=weights is None,
            image_size=image_size,
            mean=self.mean,
            std=self.std,
            finetuned_on_1k=self.finetuned_on_1k,
        )

    def _where(self) -> str:
        return f"get {self.file!r} ({self.page}) and pass it with --weights FILE"


def _google(name: str, tag: str, file: str, summary: str, *, finetuned: bool = False) -> BackbonePreset:
    return BackbonePreset(
        name=name,
        timm_name=f"{_BASE}.{tag}",
        mean=_HALF,
        std=_HALF,
        finetuned_on_1k=finetuned,
        file=file,
        page="README of google-research/vision_transformer",
        summary=summary,
    )


def _self_supervised(
    name: str, file: str, page: str, summary: str, *, timm_name: str = _BASE
) -> BackbonePreset:
    return BackbonePreset(
        name=name,
        timm_name=timm_name,
        mean=_IMAGENET_MEAN,
        std=_IMAGENET_STD,
        finetuned_on_1k=False,
        file=file,
        page=page,
        summary=summary,
    )


_AUGREG = "augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"

PRESETS: tuple[BackbonePreset, ...] = (
    _google(
        "sup21k",
        "orig_in21k",
        "imagenet21k/ViT-B_16.npz",
        "ViT-B/16, ImageNet-21k labels, original recipe (LW2G, HiDe-Prompt, PGP)",
    ),
    _google(
        "sup21k-augreg",
        "augreg_in21k",
        f"{_AUGREG}.npz",
        "ViT-B/16, ImageNet-21k labels, AugReg recipe (Aper, InfLoRA)",
    ),
    _google(
        "sup21k-ft1k",
        "augreg_in21k_ft_in1k",
        f"{_AUGREG}--imagenet2012-steps_20k-lr_0.01-res_224.npz",
        "ViT-B/16, ImageNet-21k then 1k labels (OVOR, CODA-Prompt, CPrompt): unfair on ImageNet-R",
        finetuned=True,
    ),
    _self_supervised(
        "ibot21k",
        "vitb_16_pt22k/checkpoint.pth",
        'README of bytedance/ibot, ImageNet-22K "full ckpt"',
        "ViT-B/16, iBOT on ImageNet-22k, teacher (file needed)",
    ),
    _self_supervised(
        "ibot1k",
        "vitb_16/checkpoint_teacher.pth",
        'README of bytedance/ibot, ViT-B/16 block mask, "backbone (t)"',
        "ViT-B/16, iBOT on ImageNet-1k without labels, teacher (file needed)",
    ),
    _self_supervised(
        "dino1k",
        "dino_vitbase16_pretrain.pth",
        'README of facebookresearch/dino, ViT-B/16 "backbone only"',
        "ViT-B/16, DINO on ImageNet-1k without labels",
        timm_name=f"{_BASE}.dino",
    ),
    _self_supervised(
        "mocov3-1k",
        "vit-b-300ep.pth.tar",
        "README of facebookresearch/moco-v3, ViT-B 300 epochs",
        "ViT-B/16, MoCo-v3 on ImageNet-1k without labels (file needed)",
    ),
)
