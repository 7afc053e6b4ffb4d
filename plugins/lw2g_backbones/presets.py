"""The published checkpoints by short names, with the facts by which results can be told apart.

What papers call "Sup-21K", "IN21K" or "IN1K" are different files in the official repositories; here each has
a name of its own, and every record says which one was used. Numbers taken with different ones do not compare.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from lw2g.errors import DataError

if TYPE_CHECKING:
    from lw2g.vit.backbone import Backbone

__all__ = ["PAPERS", "PRESETS", "BackbonePreset", "KnownFile", "Paper", "PresetConfig", "facts_of"]

_HALF = (0.5, 0.5, 0.5)
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)
_CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
_BASE = "vit_base_patch16_224"


@attrs.frozen(kw_only=True)
class PresetConfig:
    """A preset has no options: it is one checkpoint."""


@attrs.frozen(kw_only=True)
class KnownFile:
    """A file of a checkpoint whose hash is known.

    Attributes:
        name: Its name, as its publisher gave it.
        sha256: All 64 digits in hexadecimal, or as many of the first as are known.
        size: Bytes, where known.
        confirmed: Whether the authors' own code or two independent mirrors say so.
    """

    name: str
    sha256: str = attrs.field(validator=attrs.validators.matches_re(r"[0-9a-f]{8,64}"))
    size: int | None = None
    confirmed: bool = False

    def require_same(self, path: Path) -> None:
        """Refuse a file of this name with another content, if the hash is confirmed.

        Raises:
            DataError: So it is.
        """
        if not self.confirmed or path.name != self.name:
            return
        from lw2g.vit.weights import file_sha256

        found = file_sha256(path)
        if not found.startswith(self.sha256):
            raise DataError(
                f"weights file {str(path)!r} is not the published {self.name!r}: its SHA-256 begins with "
                f"{found[:8]} instead of {self.sha256[:8]}; fetch it again, or rename what is another file"
            )

    def __str__(self) -> str:
        digits = self.sha256 if len(self.sha256) == 64 else f"begins with {self.sha256}"
        size = "" if self.size is None else f", {self.size:,} bytes"
        return f"{self.name}: sha256 {digits}{size} ({'confirmed' if self.confirmed else 'unconfirmed'})"


@attrs.frozen(kw_only=True)
class Paper:
    """Who calls a checkpoint what.

    Attributes:
        where: Methods or lines of code.
        called: The name there.
        loads: What their code asks timm 0.6 for, or the file.
        preset: Our name for it; empty where only the full timm tag names it.
    """

    where: str
    called: str
    loads: str
    preset: str


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
        image_size: Side of the input where a user names none and the model's own is not what papers use.
        files: Those whose hash is known; every record has the hash of what was loaded.
    """

    name: str
    timm_name: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    finetuned_on_1k: bool
    file: str
    page: str
    summary: str
    image_size: int | None = None
    files: tuple[KnownFile, ...] = ()

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
        for known in self.files:
            if weights is not None:
                known.require_same(weights)
        from lw2g.vit.backbone import load_backbone

        return load_backbone(
            self.timm_name,
            weights=weights,
            pretrained=weights is None,
            image_size=image_size or self.image_size,
            mean=self.mean,
            std=self.std,
            finetuned_on_1k=self.finetuned_on_1k,
        )

    def untrained(self, config: PresetConfig, image_size: int | None) -> Backbone:
        """Return the same architecture with random weights."""
        from lw2g.vit.backbone import load_backbone

        return load_backbone(
            self.timm_name,
            image_size=image_size or self.image_size,
            mean=self.mean,
            std=self.std,
            random_seed=0,
        )

    def _where(self) -> str:
        return f"get {self.file!r} ({self.page}) and pass it with --weights FILE"


_GOOGLE = "README of google-research/vision_transformer"
_AUGREG_BASE = "augreg/B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
_AUGREG_SMALL = "augreg/S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0"
_AUGREG_TINY = "augreg/Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"
_TO_1K = "--imagenet2012-steps_20k-lr_0.01-res_224.npz"
_TO_1K_SMALL = "--imagenet2012-steps_20k-lr_0.03-res_224.npz"


def _google(
    name: str,
    timm_name: str,
    file: str,
    summary: str,
    *,
    finetuned: bool = False,
    files: tuple[KnownFile, ...] = (),
) -> BackbonePreset:
    return BackbonePreset(
        name=name,
        timm_name=timm_name,
        mean=_HALF,
        std=_HALF,
        finetuned_on_1k=finetuned,
        file=file,
        page=_GOOGLE,
        summary=summary,
        files=files,
    )


def _self_supervised(
    name: str,
    file: str,
    page: str,
    summary: str,
    *,
    timm_name: str = _BASE,
    image_size: int | None = None,
    files: tuple[KnownFile, ...] = (),
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
        image_size=image_size,
        files=files,
    )


PRESETS: tuple[BackbonePreset, ...] = (
    _google(
        "sup21k",
        f"{_BASE}.orig_in21k",
        "imagenet21k/ViT-B_16.npz",
        "ViT-B/16, ImageNet-21k labels, original recipe (LW2G, HiDe-Prompt, PGP)",
        files=(
            KnownFile(
                name="ViT-B_16.npz",
                sha256="ac7478131e1b77e5c2f0225849730bd19ee89cfffe600c2dfd2272b34a50a43d",
                size=412_815_506,
            ),
            KnownFile(name="jx_vit_base_patch16_224_in21k-e5005f0a.pth", sha256="e5005f0a", confirmed=True),
        ),
    ),
    _google(
        "sup21k-augreg",
        f"{_BASE}.augreg_in21k",
        f"{_AUGREG_BASE}.npz",
        "ViT-B/16, ImageNet-21k labels, AugReg recipe (Aper, InfLoRA)",
    ),
    _google(
        "sup21k-ft1k",
        f"{_BASE}.augreg_in21k_ft_in1k",
        f"{_AUGREG_BASE}{_TO_1K}",
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
        files=(
            KnownFile(
                name="dino_vitbase16_pretrain.pth",
                sha256="bf34ad0f424b9029b593e8dc3ed553bf26e88bcba0d32bf3e62a6209cb64c85e",
                size=343_242_485,
                confirmed=True,
            ),
        ),
    ),
    _self_supervised(
        "mocov3-1k",
        "vit-b-300ep.pth.tar",
        "README of facebookresearch/moco-v3, ViT-B 300 epochs",
        "ViT-B/16, MoCo-v3 on ImageNet-1k without labels (file needed)",
    ),
    _self_supervised(
        "mae-b16",
        "model.safetensors",
        "huggingface.co/timm/vit_base_patch16_224.mae",
        "ViT-B/16, MAE on ImageNet-1k without labels: weak class tokens; CC BY-NC 4.0",
        timm_name=f"{_BASE}.mae",
    ),
    _self_supervised(
        "dinov2-b14",
        "model.safetensors",
        "huggingface.co/timm/vit_base_patch14_dinov2.lvd142m",
        "ViT-B/14, DINOv2 on LVD-142M without labels, at 224 pixels (its own are 518)",
        timm_name="vit_base_patch14_dinov2.lvd142m",
        image_size=224,
    ),
    BackbonePreset(
        name="clip-b16",
        # exact GELU (vit_base_patch16_clip_224.openai) would load the same weights without a word
        timm_name="vit_base_patch16_clip_quickgelu_224.openai",
        mean=_CLIP_MEAN,
        std=_CLIP_STD,
        finetuned_on_1k=False,
        file="open_clip_model.safetensors",
        page="huggingface.co/timm/vit_base_patch16_clip_224.openai",
        summary="ViT-B/16, image half of OpenAI's CLIP, without the projection",
    ),
    _google(
        "vit-small",
        "vit_small_patch16_224.augreg_in21k",
        f"{_AUGREG_SMALL}.npz",
        "ViT-S/16, ImageNet-21k labels, AugReg recipe",
    ),
    _google(
        "vit-small-ft1k",
        "vit_small_patch16_224.augreg_in21k_ft_in1k",
        f"{_AUGREG_SMALL}{_TO_1K_SMALL}",
        "ViT-S/16, ImageNet-21k then 1k labels: unfair on ImageNet-R",
        finetuned=True,
    ),
    _google(
        "vit-tiny",
        "vit_tiny_patch16_224.augreg_in21k",
        f"{_AUGREG_TINY}.npz",
        "ViT-Ti/16, ImageNet-21k labels, AugReg recipe, for laptops",
    ),
    _google(
        "vit-tiny-ft1k",
        "vit_tiny_patch16_224.augreg_in21k_ft_in1k",
        f"{_AUGREG_TINY}{_TO_1K_SMALL}",
        "ViT-Ti/16, ImageNet-21k then 1k labels: unfair on ImageNet-R",
        finetuned=True,
    ),
)

_LAMDA = "RevisitingCIL (Aper), PILOT, EASE, MOS, TUNA, CaRE, SPIE, RanPAC"

PAPERS: tuple[Paper, ...] = (
    Paper(
        where="LW2G, HiDe-Prompt, PGP, LGCL, dualprompt-pytorch",
        called="Sup-21K",
        loads="ViT-B_16.npz by an address in their own model file",
        preset="sup21k",
    ),
    Paper(
        where=_LAMDA,
        called="ViT-B/16-IN21K, pretrained_vit_b16_224_in21k",
        loads="vit_base_patch16_224_in21k",
        preset="sup21k-augreg",
    ),
    Paper(
        where="InfLoRA",
        called="vit_base_patch16_224_in21k",
        loads="vit_base_patch16_224_in21k",
        preset="sup21k-augreg",
    ),
    Paper(
        where=f"{_LAMDA}, SEMA",
        called="ViT-B/16-IN1K, pretrained_vit_b16_224",
        loads="vit_base_patch16_224 (21k, then 1k: never 1k alone)",
        preset="sup21k-ft1k",
    ),
    Paper(
        where="CODA-Prompt, OS-Prompt, OVOR, CPrompt, SD-LoRA",
        called="ImageNet-21k pre-trained, or nothing",
        loads="vit_base_patch16_224",
        preset="sup21k-ft1k",
    ),
    Paper(
        where="HiDe-PET, and HiDe's own LoRA code",
        called="vit1k",
        loads="vit_base_patch16_224",
        preset="sup21k-ft1k",
    ),
    Paper(
        where="logs of SD-LoRA, and SEMA under timm 0.9 or later",
        called="vit_base_patch16_224",
        loads="the bare name, which since timm 0.9 is augreg2_in21k_ft_in1k",
        preset="",
    ),
    Paper(
        where="HiDe-Prompt, LW2G",
        called="iBOT-21K",
        loads="key 'teacher' of checkpoint.pth",
        preset="ibot21k",
    ),
    Paper(where="HiDe-Prompt", called="iBOT-1K", loads="ibot_vitbase16_pretrain.pth", preset="ibot1k"),
    Paper(where="HiDe-Prompt", called="DINO-1K", loads="dino_vitbase16_pretrain.pth", preset="dino1k"),
    Paper(
        where="HiDe-Prompt",
        called="MoCo-1K",
        loads="mocov3-vit-base-300ep.pth, with a fresh trained norm",
        preset="mocov3-1k",
    ),
)
"""Facts of released code; "IN21K" and "Sup-21K" are not one file."""


def facts_of(preset: BackbonePreset) -> tuple[str, ...]:
    """Return what `lw2g plugins` tells of a preset, one sentence each."""
    own = [one for one in PAPERS if one.preset == preset.name]
    used = [f"used by {one.where} as {one.called!r} ({one.loads})" for one in own]
    unknown = "sha256: none known; a record has that of what was loaded"
    hashes = [str(known) for known in preset.files] or [unknown]
    labels = "has seen" if preset.finetuned_on_1k else "has not been tuned on"
    return (
        f"weights: {preset.timm_name}; file {preset.file} ({preset.page})",
        *hashes,
        f"labels: {labels} those of ImageNet-1k",
        *used,
        "results with different checkpoints do not compare, whatever papers call them",
    )
