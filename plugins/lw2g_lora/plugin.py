"""Registers the low-rank baselines; their code is imported when one is built."""

from __future__ import annotations

from lw2g.plugin import (
    NEW_SETS_MERGED,
    UNSEEN_MASKED,
    BaselineComponent,
    Deviation,
    PresetFile,
    hookimpl,
    lazy,
)
from lw2g_lora import options

__all__ = [
    "C_LORA",
    "EWC",
    "FINETUNE",
    "HIDE_LORA",
    "INFLORA",
    "JOINT_LORA",
    "LWF",
    "REPLAY",
    "SD_LORA",
    "SLCA_PLUS_PLUS",
    "lw2g_baselines",
]

_PRESETS = PresetFile("lw2g_lora")


C_LORA = BaselineComponent(
    name="c-lora",
    config=options.CLoraConfig,
    summary="low-rank updates that are summed, penalised where they meet earlier ones",
    citation="Smith et al., Continual Diffusion: Continual Customization with C-LoRA, TMLR 2024",
    build=lazy("lw2g_lora.c_lora:CLora"),
    query_sites=False,
    presets=_PRESETS.official("c-lora"),
    tuned=_PRESETS.tuned("c-lora"),
)

HIDE_LORA = BaselineComponent(
    name="hide-lora",
    config=options.HideLoraConfig,
    summary="low-rank sets chosen per sample, with ensemble and contrastive term; heads corrected by replay",
    citation="Wang et al., HiDe-PET: Hierarchical Decomposition of Parameter-Efficient Tuning, TPAMI 2025",
    build=lazy("lw2g_lora.hide_lora:HideLora"),
    query_sites=False,
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
    query_sites=False,
    presets=_PRESETS.official("inflora"),
    tuned=_PRESETS.tuned("inflora"),
)

SD_LORA = BaselineComponent(
    name="sd-lora",
    config=options.SdLoraConfig,
    summary="low-rank updates that stay as directions; every task learns their magnitudes",
    citation="Wu et al., SD-LoRA: Scalable Decoupled Low-Rank Adaptation for CIL, ICLR 2025",
    build=lazy("lw2g_lora.sd_lora:SdLora"),
    query_sites=False,
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
    query_sites=False,
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

FINETUNE = BaselineComponent(
    name="finetune",
    config=options.FinetuneConfig,
    summary="control: one LoRA trained on, task after task, by an own-class loss; loss=seen: the lower bound",
    build=lazy("lw2g_lora.sequential:Finetune"),
    query_sites=False,
    growth="fixed",
    control=True,
    presets=_PRESETS.official("finetune"),
    tuned=_PRESETS.tuned("finetune"),
)

JOINT_LORA = BaselineComponent(
    name="joint-lora",
    config=options.SequentialConfig,
    summary="control: one LoRA and a head, trained on all tasks at once",
    build=lazy("lw2g_lora.sequential:Sequential"),
    query_sites=False,
    growth="fixed",
    control=True,
    joint=True,
    presets=_PRESETS.official("finetune"),
    tuned=_PRESETS.tuned("finetune"),
)

LWF = BaselineComponent(
    name="lwf",
    config=options.LwfConfig,
    summary="one LoRA trained on by an own-class loss, with old classes' logits distilled on new images",
    citation="Li & Hoiem, Learning without Forgetting, ECCV 2016",
    build=lazy("lw2g_lora.sequential:Lwf"),
    query_sites=False,
    growth="fixed",
    presets=_PRESETS.official("finetune"),
    tuned=_PRESETS.tuned("finetune"),
    deviations=(
        Deviation(
            topic="baseline.network",
            value="one LoRA and head, and one softmax over all old classes",
            published="all weights of a convolutional network, and a head and a softmax for each old task",
            note="classes of all tasks are told apart, and rows on the same LoRA are compared",
        ),
        Deviation(
            topic="baseline.warmup",
            value="none unless warmup_epochs says so",
            published="a new task trains its head alone until it converges, before everything is trained",
            note="rows on the same LoRA are compared after equally many epochs",
        ),
    ),
)

EWC = BaselineComponent(
    name="ewc",
    config=options.EwcConfig,
    summary="one LoRA a task on merged weights, by an own-class loss, kept off entries that old losses feel",
    citation="Zheng et al., Revisiting Weight Regularization for Low-Rank Continual Learning, ICLR 2026",
    build=lazy("lw2g_lora.ewc:Ewc"),
    has_sites=False,
    growth="fixed",
    presets=_PRESETS.official("ewc"),
    tuned=_PRESETS.tuned("ewc"),
)

REPLAY = BaselineComponent(
    name="replay",
    config=options.ReplayConfig,
    summary="control: one LoRA trained on, with kept images of old classes in every step",
    citation="Chaudhry et al., On Tiny Episodic Memories in Continual Learning, 2019",
    build=lazy("lw2g_lora.replaying:Replay"),
    query_sites=False,
    growth="fixed",
    control=True,
    presets=_PRESETS.official("finetune"),
    tuned=_PRESETS.tuned("finetune"),
    deviations=(
        Deviation(
            topic="baseline.exemplars",
            value="images of old tasks are kept, under the test transform",
            published="images of old tasks are kept, and augmented whenever they are used",
            note="every other method keeps no image; a baseline sees images after their transform alone",
        ),
    ),
)


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the low-rank baselines."""
    return [
        *(C_LORA, INFLORA, HIDE_LORA, SD_LORA, SLCA_PLUS_PLUS),
        *(FINETUNE, LWF, EWC, REPLAY, JOINT_LORA),
    ]
