"""Registers the low-rank baselines; their code is imported when one is built."""

from __future__ import annotations

from lw2g.blocks.presets import PresetFile
from lw2g.interfaces.component import BaselineComponent, lazy
from lw2g.interfaces.deviations import NEW_SETS_MERGED, UNSEEN_MASKED, Deviation
from lw2g.registry.markers import hookimpl
from lw2g_lora import options

__all__ = ["C_LORA", "HIDE_LORA", "INFLORA", "SD_LORA", "SLCA_PLUS_PLUS", "lw2g_baselines"]

_PRESETS = PresetFile("lw2g_lora")


C_LORA = BaselineComponent(
    name="c-lora",
    config=options.CLoraConfig,
    summary="low-rank updates that are summed, penalised where they meet earlier ones",
    citation="Smith et al., Continual Diffusion: Continual Customization with C-LoRA, TMLR 2024",
    build=lazy("lw2g_lora.c_lora:CLora"),
    presets=_PRESETS.official("c-lora"),
    tuned=_PRESETS.tuned("c-lora"),
)

HIDE_LORA = BaselineComponent(
    name="hide-lora",
    config=options.HideLoraConfig,
    summary="low-rank sets chosen per sample, with ensemble and contrastive term; heads corrected by replay",
    citation="Wang et al., HiDe-PET: Hierarchical Decomposition of Parameter-Efficient Tuning, TPAMI 2025",
    build=lazy("lw2g_lora.hide_lora:HideLora"),
    retrieval="lora-classifier",
    presets=_PRESETS.official("hide-lora"),
    tuned=_PRESETS.tuned("hide-lora"),
    deviations=(UNSEEN_MASKED, NEW_SETS_MERGED),
)

INFLORA = BaselineComponent(
    name="inflora",
    config=options.InfLoraConfig,
    summary="low-rank updates whose inputs are designed off those of old tasks",
    citation="Liang & Li, InfLoRA: Interference-Free Low-Rank Adaptation for Continual Learning, CVPR 2024",
    build=lazy("lw2g_lora.inflora:InfLora"),
    presets=_PRESETS.official("inflora"),
    tuned=_PRESETS.tuned("inflora"),
)

SD_LORA = BaselineComponent(
    name="sd-lora",
    config=options.SdLoraConfig,
    summary="low-rank updates that stay as directions; every task learns their magnitudes",
    citation="Wu et al., SD-LoRA: Scalable Decoupled Low-Rank Adaptation for CIL, ICLR 2025",
    build=lazy("lw2g_lora.sd_lora:SdLora"),
    presets=_PRESETS.official("sd-lora"),
    tuned=_PRESETS.tuned("sd-lora"),
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
    presets=_PRESETS.official("slca-plus-plus"),
    tuned=_PRESETS.tuned("slca-plus-plus"),
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
