"""Registers the baselines that never grow; their code is imported when one is built."""

from __future__ import annotations

from lw2g.blocks import rows
from lw2g.interfaces.component import BaselineComponent, lazy
from lw2g.interfaces.deviations import Deviation
from lw2g.registry.markers import hookimpl
from lw2g_single_set import options, presets

__all__ = [
    "APER_ADAPTER",
    "APER_VPT_DEEP",
    "JOINT",
    "NO_PROMPT",
    "ONE_PROMPT",
    "RANPAC",
    "SIMPLE_CIL",
    "VPT_NSP2",
    "lw2g_baselines",
]

_CITATION = "Zhou et al., Revisiting Class-Incremental Learning with Pre-Trained Models, IJCV 2024"

_PILOT = {**rows.HIDE, "backbone.name": "sup21k-ft1k"}
_REVISITING = {**rows.HIDE, "backbone.name": "sup21k-augreg"}
_APER = {"cifar100": _PILOT, "imagenet-r": {**_PILOT, **rows.LAMDA_FOLDERS}}
_NO_TRAINING = {**_REVISITING, "benchmark.train_transform": "none"}
_NO_TRAINING_ROWS = {"imagenet-r": {**_NO_TRAINING, **rows.LAMDA_FOLDERS}}
_FT1K = {**rows.SEED_1993, **rows.HIDE, "backbone.name": "sup21k-ft1k"}
_AUGREG = {**_FT1K, "backbone.name": "sup21k-augreg"}
_RANPAC = {
    "cifar100": {**_AUGREG, "benchmark.test_resize": "squash"},
    "imagenet-r": {**_FT1K, **rows.LAMDA_FOLDERS},
    "omnibenchmark": _AUGREG,
    "vtab": {**rows.NATURAL, **rows.HIDE, "backbone.name": "sup21k-ft1k"},
    "stanford-cars": {**_AUGREG, "benchmark.base": 16, "benchmark.increment": 20},
}
_VPT_NSP = {
    "benchmark.order": "seeded",
    "benchmark.order_seed": 2024,
    **rows.HIDE,
    "benchmark.train_scale": 0.08,
    "benchmark.train_interpolation": "bicubic",
    "benchmark.flip": False,
    "benchmark.normalise": "native",
    "benchmark.test_resize": "squash",
    "backbone.name": "sup21k-augreg",
}
_CONTROLS = {**rows.NATURAL, "backbone.name": "sup21k"}  # those of the prompt methods they stand beside

APER_VPT_DEEP = BaselineComponent(
    name="aper-vpt-deep",
    config=options.TokenOptions,
    summary="prompt tokens learned on the first task, then class means of frozen and adapted features",
    citation=_CITATION,
    build=lazy("lw2g_single_set.aper:AperVptDeep"),
    growth="fixed",
    presets=rows.with_rows(presets.APER_VPT_DEEP_OFFICIAL, rows.SEED_1993, _REVISITING, _APER),
    tuned=presets.APER_TUNED,
)

APER_ADAPTER = BaselineComponent(
    name="aper-adapter",
    config=options.AdapterOptions,
    summary="adapters learned on the first task, then class means of frozen and adapted features",
    citation=_CITATION,
    build=lazy("lw2g_single_set.aper:AperAdapter"),
    growth="fixed",
    presets=rows.with_rows(presets.APER_ADAPTER_OFFICIAL, rows.SEED_1993, _REVISITING, _APER),
    tuned=presets.APER_TUNED,
)

_SOLVED_EXACTLY = Deviation(
    topic="baseline.precision",
    value="float64, without penalties that are lost in rounding",
    published="float32, with all of them",
    note="float32 loses penalties below about 10 in noise; of real images both choose 1e5 to 1e7",
)

RANPAC = BaselineComponent(
    name="ranpac",
    config=options.RanPacConfig,
    summary="ridge regression on random features of the backbone, which the first task may adapt",
    citation="McDonnell et al., RanPAC: Random Projections and Pre-trained Models, NeurIPS 2023",
    build=lazy("lw2g_single_set.ranpac:ranpac"),
    growth="fixed",
    presets=rows.with_rows(presets.RANPAC_OFFICIAL, {}, _FT1K, _RANPAC),
    tuned=presets.RANPAC_TUNED,
    deviations=(_SOLVED_EXACTLY,),
)

SIMPLE_CIL = BaselineComponent(
    name="simple-cil",
    config=options.SimpleCILConfig,
    summary="control: nearest class mean of frozen features, without training",
    citation="Zhou et al., Revisiting Class-Incremental Learning with Pre-Trained Models, IJCV 2024",
    build=lazy("lw2g_single_set.controls:SimpleCIL"),
    growth="fixed",
    control=True,
    presets=rows.with_rows(presets.CONTROLS, rows.SEED_1993, _NO_TRAINING, _NO_TRAINING_ROWS),
)

NO_PROMPT = BaselineComponent(
    name="no-prompt",
    config=options.NoPromptConfig,
    summary="control: a linear head on frozen features, task after task",
    build=lazy("lw2g_single_set.controls:NoPrompt"),
    growth="fixed",
    control=True,
    presets=rows.with_rows(presets.CONTROLS, _CONTROLS, rows.HIDE, rows.HIDE_ROWS),
    tuned=presets.CONTROLS_TUNED,
)

JOINT = BaselineComponent(
    name="joint",
    config=options.JointConfig,
    summary="control: one prefix set and a head, trained on all tasks at once",
    build=lazy("lw2g_single_set.controls:Joint"),
    growth="fixed",
    control=True,
    joint=True,
    presets=rows.with_rows(presets.CONTROLS, _CONTROLS, rows.HIDE, rows.HIDE_ROWS),
    tuned=presets.CONTROLS_TUNED,
)

ONE_PROMPT = BaselineComponent(
    name="one-prompt",
    config=options.OnePromptConfig,
    summary="one prefix set that every task goes on training; OVOR with outliers",
    citation="Huang et al., OVOR: OnePrompt with Virtual Outlier Regularization, ICLR 2024",
    build=lazy("lw2g_single_set.one_prompt:OnePrompt"),
    growth="fixed",
    presets=rows.with_rows(
        presets.ONE_PROMPT_OFFICIAL,
        {**rows.NATURAL, "backbone.name": "sup21k-ft1k"},
        rows.CODA,
        rows.CODA_ROWS,
    ),
    tuned=presets.ONE_PROMPT_TUNED,
)

VPT_NSP2 = BaselineComponent(
    name="vpt-nsp2",
    config=options.VptNspConfig,
    summary="prompt tokens of all tasks, updated in the null space of what old tasks' attention meets",
    citation="Lu et al., Visual Prompt Tuning in Null Space for Continual Learning, NeurIPS 2024",
    build=lazy("lw2g_single_set.null_space:VptNsp"),
    growth="fixed",
    presets=rows.with_rows(presets.VPT_NSP_OFFICIAL, {}, _VPT_NSP, {}),
    tuned=presets.VPT_NSP_TUNED,
)


@hookimpl
def lw2g_baselines() -> list[BaselineComponent]:
    """Return the single-set methods and the control baselines."""
    return [APER_ADAPTER, APER_VPT_DEEP, JOINT, NO_PROMPT, ONE_PROMPT, RANPAC, SIMPLE_CIL, VPT_NSP2]
