"""The backbones that runs are priced with: whole where that is quick, else hollow ones and a tally."""

from __future__ import annotations

import copy
import json
import time

import attrs
import torch

from lw2g.config.model import ExperimentConfig
from lw2g.config.toml import to_mapping
from lw2g.interfaces.component import BackboneComponent
from lw2g.registry.catalogue import Catalogue
from lw2g.training.costs.counting import Rates, Tally, measure
from lw2g.training.costs.stand_ins import Missing, stand_in_weights
from lw2g.training.devices.engine import BF16, FP32, Engine, Precision, open_engine
from lw2g.training.devices.precision import choose_precision
from lw2g.vit.backbone import Backbone
from lw2g.vit.hollow import first_blocks, hollowed
from lw2g.vit.room import usable_memory

__all__ = ["Model", "Models"]

_SAMPLE = 2
"""Blocks that are measured: the last one of a forward leaves part of its work out."""
_BATCH = 128
"""Images of a training step where the baseline does not say."""


@attrs.frozen(kw_only=True, eq=False)
class Model:
    """A backbone to price runs with.

    Attributes:
        backbone: Whole or hollow.
        missing: The weights, where they are not here.
        seconds: What building the whole one has taken, 0 where the weights are missing.
        tally: What counts for the whole one; None where it is that.
        precision: That of the tally.
    """

    backbone: Backbone
    missing: Missing | None
    seconds: float
    tally: Tally | None = None
    precision: Precision = FP32

    def component(self, known: BackboneComponent) -> BackboneComponent:
        """Return the component that gives this backbone; a whole one is copied, for it may be changed."""

        def build(config: object, weights: object, image_size: object) -> Backbone:
            return copy.deepcopy(self.backbone) if self.tally is None else self.backbone

        return attrs.evolve(known, build=build)

    def config(self, config: ExperimentConfig) -> ExperimentConfig:
        """Return a configuration as it is priced: blocks that are counted are not compiled."""
        if self.tally is None:
            return config
        return attrs.evolve(config, run=attrs.evolve(config.run, precision=self.precision, compile=False))


@attrs.frozen(kw_only=True, eq=False)
class _Whole:
    """A backbone that was built and measured."""

    model: Model
    rates: Rates
    engine: Engine


class Models:
    """Builds and measures each backbone once for all runs that use it.

    Args:
        catalogue: Where components come from.
        patience: Seconds that an image's forward may take for a run to be rehearsed on the whole backbone.
    """

    def __init__(self, catalogue: Catalogue, patience: float) -> None:
        self._catalogue, self._patience = catalogue, patience
        self._whole: dict[str, _Whole] = {}
        self._hollow: dict[str, Model] = {}

    def __call__(self, config: ExperimentConfig, *, counted: bool = False) -> Model:
        """Return the backbone that a run is priced with.

        Args:
            config: The run.
            counted: Whether it is to be a hollow one though the whole one is quick.

        Raises:
            ConfigError: The backbone cannot be built as configured.
            DataError: Weights are missing that have no stand-in.
        """
        run = config.run
        key = json.dumps([to_mapping(config)["backbone"], run.device, run.precision], default=str)
        if key not in self._whole:
            self._whole[key] = self._built(config)
        whole = self._whole[key]
        if not counted and self._is_quick(whole, config):
            return whole.model
        if key not in self._hollow:
            self._hollow[key] = _hollow(whole, config)
        return self._hollow[key]

    def _built(self, config: ExperimentConfig) -> _Whole:
        run = config.run
        began = time.perf_counter()
        component = self._catalogue.get("backbone", config.backbone.name)
        missing, backbone = stand_in_weights(config.backbone, component)
        seconds = 0.0 if missing else time.perf_counter() - began
        engine = open_engine(run.device, FP32 if run.precision == "auto" else run.precision)
        rates = measure(_sample(backbone, engine), engine)
        return _Whole(
            model=Model(backbone=backbone, missing=missing, seconds=seconds), rates=rates, engine=engine
        )

    def _is_quick(self, whole: _Whole, config: ExperimentConfig) -> bool:
        """Whether a few images can be gone through in good time, and a batch of them fits."""
        backbone, device = whole.model.backbone, whole.engine.device
        if device.type == "cuda":
            room: int | None = torch.cuda.get_device_properties(device).total_memory
        else:
            room = usable_memory()
        batch = getattr(config.baseline.config, "batch_size", _BATCH)
        needed = batch * backbone.depth * whole.rates.kept
        return backbone.depth * whole.rates.forward <= self._patience and (room is None or needed <= room)


def _sample(backbone: Backbone, engine: Engine) -> Backbone:
    """Return what of a backbone is measured, on the device and in the precision of an engine."""
    sample = first_blocks(backbone, _SAMPLE).to(engine.device)
    return sample.to_bf16() if engine.precision == BF16 else sample


def _hollow(whole: _Whole, config: ExperimentConfig) -> Model:
    """Return the hollow one of a backbone, in the precision that a run settles on."""
    backbone, engine, rates = whole.model.backbone, whole.engine, whole.rates
    precision: Precision = FP32 if config.run.precision == "auto" else config.run.precision
    if config.run.precision == "auto":
        sample = first_blocks(backbone, _SAMPLE).to(engine.device)
        precision = choose_precision(backbone, sample).used
        if precision != engine.precision:
            engine = open_engine(config.run.device, precision)
            rates = measure(_sample(backbone, engine), engine)
    hollow = hollowed(backbone).to(engine.device)
    return attrs.evolve(
        whole.model, backbone=hollow, tally=Tally(backbone, hollow, rates), precision=precision
    )
