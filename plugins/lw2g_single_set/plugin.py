"""Registers the baselines that never grow; their code is imported when one is built."""

from __future__ import annotations

from lw2g.plugin import Alias, BaselineComponent, Deviation, PresetFile, hookimpl, lazy
from lw2g_single_set import options

__all__ = [
    "APER_ADAPTER",
    "APER_VPT_DEEP",
    "JOINT",
    "NO_PROMPT",
    "ONE_PROMPT",
    "RANPAC",
    "SIMPLE_CIL",
    "SSIAT",
    "VPT_NSP2",
    "lw2g_baselines",
]

_PRESETS = PresetFile("lw2g_single_set")

_CITATION = "Zhou et al., Revisiting Class-Incremental Learning with Pre-Trained Models, IJCV 2024"


APER_VPT_DEEP = BaselineComponent(
    name="aper-vpt-deep",
    config=options.TokenOptions,
    summary="prompt tokens learned on the first task, then class means of frozen and adapted features",
    citation=_CITATION,
    build=lazy("lw2g_single_set.aper:Aper", adapt="vpt-deep"),
    growth="fixed",
    presets=_PRESETS.official("aper-vpt-deep"),
    tuned=_PRESETS.tuned("aper-vpt-deep"),
    has_sites=False,
    trains_once=True,
)

APER_ADAPTER = BaselineComponent(
    name="aper-adapter",
    config=options.AdapterOptions,
    summary="adapters learned on the first task, then class means of frozen and adapted features",
    citation=_CITATION,
    build=lazy("lw2g_single_set.aper:Aper", adapt="adapter"),
    growth="fixed",
    presets=_PRESETS.official("aper-adapter"),
    tuned=_PRESETS.tuned("aper-adapter"),
    has_sites=False,
    trains_once=True,
)

_SOLVED_EXACTLY = Deviation(
    topic="baseline.precision",
    value="float64, without penalties that are lost in rounding",
    published="float32, with all penalties",
    note="float32 loses penalties below about 10 in noise; of real images both choose 1e5 to 1e7",
)

RANPAC = BaselineComponent(
    name="ranpac",
    config=options.RanPacConfig,
    unread=options.RanPacConfig.unread,
    summary="ridge regression on random features of the backbone, which the first task may adapt",
    citation="McDonnell et al., RanPAC: Random Projections and Pre-trained Models, NeurIPS 2023",
    build=lazy("lw2g_single_set.ranpac:RanPac"),
    growth="fixed",
    presets=_PRESETS.official("ranpac"),
    tuned=_PRESETS.tuned("ranpac"),
    has_sites=False,
    trains_once=True,
    without_images={"adapt": "none"},
    deviations=(_SOLVED_EXACTLY,),
)

SIMPLE_CIL = BaselineComponent(
    name="simple-cil",
    config=options.SimpleCILConfig,
    summary="control: nearest class mean of frozen features, without training",
    citation="Zhou et al., Revisiting Class-Incremental Learning with Pre-Trained Models, IJCV 2024",
    build=lazy("lw2g_single_set.simple_cil:SimpleCIL"),
    growth="fixed",
    control=True,
    presets=_PRESETS.official("simple-cil"),
    without_images={},
)

NO_PROMPT = BaselineComponent(
    name="no-prompt",
    config=options.NoPromptConfig,
    summary="control: a linear head on frozen features, task after task",
    build=lazy("lw2g_single_set.no_prompt:NoPrompt"),
    growth="fixed",
    control=True,
    presets=_PRESETS.official("no-prompt"),
    tuned=_PRESETS.tuned("no-prompt"),
    without_images={},
)

JOINT = BaselineComponent(
    name="joint",
    config=options.JointConfig,
    summary="control: one prefix set and a head, trained on all tasks at once",
    build=lazy("lw2g_single_set.joint:Joint"),
    growth="fixed",
    control=True,
    joint=True,
    presets=_PRESETS.official("joint"),
    tuned=_PRESETS.tuned("joint"),
)

ONE_PROMPT = BaselineComponent(
    name="one-prompt",
    config=options.OnePromptConfig,
    summary="one prefix set that all tasks train in turn; OVOR with outliers",
    citation="Huang et al., OVOR: OnePrompt with Virtual Outlier Regularization, ICLR 2024",
    build=lazy("lw2g_single_set.one_prompt:OnePrompt"),
    growth="fixed",
    presets=_PRESETS.official("one-prompt"),
    tuned=_PRESETS.tuned("one-prompt"),
    aliases=(
        Alias(
            name="ovor",
            differs="with outliers around features at the boundary, as in the paper (the release's: shipped)",
            options=("baseline.outliers=paper",),
        ),
    ),
)

SSIAT = BaselineComponent(
    name="ssiat",
    config=options.SsiatConfig,
    summary="one adapter that goes on learning, and a cosine classifier aligned on Gaussians that follow it",
    citation="Tan et al., Semantically-Shifted Incremental Adapter-Tuning is A Continual ViTransformer, "
    "CVPR 2024",
    build=lazy("lw2g_single_set.ssiat:Ssiat"),
    query_sites=False,
    growth="fixed",
    presets=_PRESETS.official("ssiat"),
    tuned=_PRESETS.tuned("ssiat"),
    deviations=(
        Deviation(
            topic="baseline.shift",
            value="of the same images before and after the task, by a kernel as wide as they are apart",
            published="of two shuffled, augmented passes, by a kernel of constant width",
            note="the release pairs the features of different images",
        ),
        Deviation(
            topic="baseline.regularisation",
            value="1e-4 on the variances of a class, as all methods with replay have it; carries add none",
            published="1e-3 on the diagonal of its covariance",
            note="it only keeps the Cholesky factor of few images defined",
        ),
    ),
)

VPT_NSP2 = BaselineComponent(
    name="vpt-nsp2",
    config=options.VptNspConfig,
    summary="prompt tokens of all tasks, updated in the null space of what old tasks' attention meets",
    citation="Lu et al., Visual Prompt Tuning in Null Space for Continual Learning, NeurIPS 2024",
    build=lazy("lw2g_single_set.vpt_nsp2:VptNsp"),
    growth="fixed",
    presets=_PRESETS.official("vpt-nsp2"),
    tuned=_PRESETS.tuned("vpt-nsp2"),
    has_sites=False,
)


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the single-set methods and the control baselines."""
    return [APER_ADAPTER, APER_VPT_DEEP, JOINT, NO_PROMPT, ONE_PROMPT, RANPAC, SIMPLE_CIL, SSIAT, VPT_NSP2]
