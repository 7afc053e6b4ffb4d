"""Registers the low-rank baselines; their code is imported when one is built."""

from __future__ import annotations

from lw2g.blocks import rows
from lw2g.interfaces.component import BaselineComponent, lazy
from lw2g.interfaces.deviations import UNSEEN_MASKED, Deviation
from lw2g.registry.markers import hookimpl
from lw2g_lora import options, presets

__all__ = [
    "C_LORA",
    "HIDE_LORA",
    "INFLORA",
    "SD_LORA",
    "SLCA_PLUS_PLUS",
    "lw2g_baselines",
]

_INFLORA = {**rows.NATURAL, "backbone.name": "sup21k-augreg"}
_HIDE = {**rows.NATURAL, "backbone.name": "sup21k-ft1k"}
_HIDE_ROWS = {"cifar100": rows.HIDE_CIFAR, "imagenet-r": {**rows.CODA, **rows.HIDE_SPLIT}}
_SLCA = {**rows.SEED_1993, "backbone.name": "sup21k-augreg"}
# Off CIFAR-100 the crop has torchvision's least share, and pixels ImageNet's mean. On birds and cars the
# authors resize to 300 and cut 224 out of that: the nearest there is here is a crop of at least that share.
_SLCA_CROP = {**rows.HIDE, "benchmark.train_scale": 0.08, "benchmark.normalise": "imagenet"}
_SLCA_ROWS = {
    "cifar100": rows.HIDE_CIFAR,
    "imagenet-r": {**_SLCA_CROP, **rows.HIDE_SPLIT},
    "cub200": {**_SLCA_CROP, "benchmark.train_scale": 0.56},
    "stanford-cars": {**_SLCA_CROP, "benchmark.train_scale": 0.56},
}
_SD = {**rows.SEED_1993, "backbone.name": "sup21k-ft1k"}
_SD_R = {"imagenet-r": {**rows.HIDE, **rows.LAMDA_FOLDERS, "benchmark.order_seed": 1995}}

_NO_MERGE = Deviation(
    topic="baseline.ensemble",
    value="new sets alone, with the other live sets",
    published="the set of every task, with those of all earlier tasks",
    note="mixing would carry a reused set into the space of its old tasks",
    when="reuse",
)

C_LORA = BaselineComponent(
    name="c-lora",
    config=options.CLoraConfig,
    summary="low-rank updates that are summed, penalised where they meet earlier ones",
    citation="Smith et al., Continual Diffusion: Continual Customization with C-LoRA, TMLR 2024",
    build=lazy("lw2g_lora.c_lora:CLora"),
    presets=rows.with_rows(presets.C_LORA_OFFICIAL, _INFLORA, rows.CODA, rows.CODA_ROWS),
    tuned=presets.C_LORA_TUNED,
)

HIDE_LORA = BaselineComponent(
    name="hide-lora",
    config=options.HideLoraConfig,
    summary="low-rank sets chosen per sample, with ensemble and contrastive term; heads corrected by replay",
    citation="Wang et al., HiDe-PET: Hierarchical Decomposition of Parameter-Efficient Tuning, TPAMI 2025",
    build=lazy("lw2g_lora.hide_lora:HideLora"),
    retrieval="lora-classifier",
    presets=rows.with_rows(presets.HIDE_OFFICIAL, _HIDE, rows.CODA, _HIDE_ROWS),
    tuned=presets.HIDE_TUNED,
    deviations=(UNSEEN_MASKED, _NO_MERGE),
)

INFLORA = BaselineComponent(
    name="inflora",
    config=options.InfLoraConfig,
    summary="low-rank updates whose inputs are designed off those of old tasks",
    citation="Liang & Li, InfLoRA: Interference-Free Low-Rank Adaptation for Continual Learning, CVPR 2024",
    build=lazy("lw2g_lora.inflora:InfLora"),
    presets=rows.with_rows(presets.INFLORA_OFFICIAL, _INFLORA, rows.CODA, rows.CODA_ROWS),
    tuned=presets.INFLORA_TUNED,
)

SD_LORA = BaselineComponent(
    name="sd-lora",
    config=options.SdLoraConfig,
    summary="low-rank updates that stay as directions, whose magnitudes every task learns anew",
    citation="Wu et al., SD-LoRA: Scalable Decoupled Low-Rank Adaptation for CIL, ICLR 2025",
    build=lazy("lw2g_lora.sd_lora:SdLora"),
    presets=rows.with_rows(presets.SD_LORA_OFFICIAL, _SD, rows.HIDE, _SD_R),
    tuned=presets.SD_LORA_TUNED,
    deviations=(
        Deviation(
            topic="baseline.randomness",
            value="drawn once for a set",
            published="48 layers drawn and thrown away in every forward",
            note="the released code moves the order of the data by it",
        ),
    ),
)

SLCA_PLUS_PLUS = BaselineComponent(
    name="slca-plus-plus",
    config=options.SlcaConfig,
    summary="one slowly trained low-rank update with norms and biases, and a classifier aligned by replay",
    citation="Zhang et al., SLCA++: Unleash the Power of Sequential Fine-tuning for Continual Learning, 2024",
    build=lazy("lw2g_lora.slca:SlcaPlusPlus"),
    growth="fixed",
    presets=rows.with_rows(presets.SLCA_OFFICIAL, _SLCA, {}, _SLCA_ROWS),
    tuned=presets.SLCA_TUNED,
    deviations=(
        Deviation(
            topic="baseline.tasks",
            value="the task that a class came with",
            published="its number over the size of the newest task",
            note="the released division is wrong once a task has another size (stanford-cars)",
        ),
    ),
)


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the low-rank baselines."""
    return [C_LORA, INFLORA, HIDE_LORA, SD_LORA, SLCA_PLUS_PLUS]
