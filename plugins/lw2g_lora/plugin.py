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
    "lw2g_baselines",
]

_INFLORA = {**rows.NATURAL, "backbone.name": "sup21k-augreg"}
_HIDE = {**rows.NATURAL, "backbone.name": "sup21k-ft1k"}
_HIDE_ROWS = {"cifar100": rows.HIDE_CIFAR, "imagenet-r": {**rows.CODA, **rows.HIDE_SPLIT}}

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


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the low-rank baselines."""
    return [C_LORA, INFLORA, HIDE_LORA]
