"""The parts of a run that a prediction needs, and how they are built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import torch
from torch import Tensor, nn

from lw2g.config.settings import ModelConfig
from lw2g.disk.checkpoint import part, under
from lw2g.disk.settled import settle
from lw2g.errors import ConfigError
from lw2g.ground.free_memory import require_memory
from lw2g.ground.notes import tell_note_once
from lw2g.interfaces.baseline import Baseline
from lw2g.interfaces.context import BuildContext, Maker, TaskInfo, derive_seed
from lw2g.interfaces.head import ClosedForm, heads_within
from lw2g.interfaces.options import batch_size_of
from lw2g.interfaces.pool import Pool
from lw2g.interfaces.retrieval import RetrievalStrategy
from lw2g.interfaces.stream import ImageTransform
from lw2g.model.frozen_expert import add_expert
from lw2g.model.layer_sizes import layer_notes, require_layers_read, with_room
from lw2g.model.mixing import Mixer
from lw2g.registry.catalogue import Catalogue
from lw2g.runtime.boundary import build
from lw2g.runtime.engine import (
    BF16,
    FP32,
    Engine,
    find_device,
    open_engine,
    require_compiler,
    suited_device,
)
from lw2g.runtime.precision import PrecisionChoice
from lw2g.runtime.returned import require_set
from lw2g.runtime.threads import has_small_products
from lw2g.vit.backbone import Backbone
from lw2g.vit.products import has_faster_products, has_packed_products

__all__ = [
    "ModelParts",
    "build_methods",
    "device_of",
    "fill",
    "lasting",
    "mixer_of",
    "names_of",
    "open_backbone",
    "tensors_of",
    "widened",
]

Config = TypeVar("Config", bound=ModelConfig)


@attrs.frozen(kw_only=True, eq=False)
class ModelParts:
    """The parts of a model that predict. The learned state lies in baseline, retrieval, pool and mixer.

    Attributes:
        config: In which ``run.precision`` is settled.
        engine: Device and precision.
        backbone: The frozen backbone.
        baseline: The method.
        retrieval: None where the baseline makes no hard choice of a set.
        pool: The sets and the map from tasks to them.
        mixer: Combines the answers where several sets answer for an image; else None.
        still: The test transform.
        infos: What is known of each task before it is learned.
    """

    config: ModelConfig
    engine: Engine
    backbone: Backbone
    baseline: Baseline
    retrieval: RetrievalStrategy | None
    pool: Pool
    mixer: Mixer | None
    still: ImageTransform
    infos: tuple[TaskInfo, ...]

    @property
    def names(self) -> tuple[str, str]:
        """Baseline and retrieval strategy as messages name them."""
        return names_of(self.config)

    @property
    def named_head(self) -> str:
        """The head that predicts as messages name it; empty if it is the baseline's own."""
        if self.baseline.closed_form is None or len(self.config.head) != 1:
            return ""
        return f"head {self.config.head[0].name!r}"

    def layer_notes(self, images: int) -> tuple[list[str], list[str]]:
        """Return what to know of features of several layers, and details of what they cost.

        Args:
            images: As for :func:`~lw2g.model.layer_sizes.layer_notes`.
        """
        return layer_notes(self.backbone, self.baseline, self.retrieval, self.names[0], images)

    @property
    def unsolved(self) -> str:
        """Why no sums in closed form answer alone, in words; empty where they do."""
        if self.baseline.closed_form is None:
            return f"the head of {self.names[0]} is trained"
        if self.retrieval is not None or self.mixer is not None or self.baseline.scope.each:
            return f"{self.names[0]} chooses among sets"
        return ""

    @property
    def can_be_calibrated(self) -> bool:
        """Whether the head alone answers, and knows its answer without an image, which fits a temperature."""
        head = self.baseline.closed_form
        knows = head is not None and type(head).without_each is not ClosedForm.without_each
        return knows and not self.unsolved

    def new_set(self, source: nn.Module | None) -> nn.Module:
        """Return a new parameter set on the run's device, without gradients.

        Raises:
            ContractError: The baseline returns something else, or the source itself.
        """
        made = require_set(self.baseline.new_set(source), source, self.names[0])
        return made.to(self.engine.device).requires_grad_(False).eval()

    def begin_task(self, index: int) -> None:
        """Let the baseline make room for a task; its draws depend on the task alone."""
        task = self.infos[index]
        self.engine.seed(self.seed_of(index, "begin"))
        self.baseline.begin_task(task)
        for head in heads_within(self.baseline):
            head.begin_task(task)
        self.baseline.to(self.engine.device).requires_grad_(False).eval()

    def seed_of(self, index: int, purpose: str) -> int:
        """Return the seed of one purpose within a task."""
        return derive_seed(self.config.run.seed, "task", index, purpose)


def tensors_of(parts: ModelParts, sets: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Return all learned state by name: ``baseline/...``, ``pool/...``, ``retrieval/...``, ``routing/...``.

    Args:
        parts: What has learned.
        sets: The state of all sets, ``pool/...``, where it is known; None reads it from the pool.
    """
    if sets is None:
        sets = under("pool", parts.pool.state_dict())
    tensors = {**under("baseline", parts.baseline.state_dict()), **sets}
    if parts.retrieval is not None:
        tensors |= under("retrieval", parts.retrieval.state_dict())
    if parts.mixer is not None:
        tensors |= under("routing", parts.mixer.state_dict())
    return tensors


def fill(
    parts: ModelParts,
    tensors: Mapping[str, Tensor],
    task_to_set: Sequence[int],
    adapt: Callable[[dict[str, Tensor], nn.Module, str], dict[str, Tensor]] = lambda state, *_: state,
) -> None:
    """Put learned state into parts that have begun as many tasks.

    Args:
        parts: Where to.
        tensors: What :func:`tensors_of` returned.
        task_to_set: The map of the pool.
        adapt: Makes the state of a module fit: it takes the state, the module, and whose it is.
    """
    state = part(tensors, "baseline")
    parts.baseline.load_state_dict(adapt(state, parts.baseline, parts.names[0]))
    parts.pool.restore(task_to_set, part(tensors, "pool"), lambda: parts.new_set(None))
    if parts.retrieval is not None:
        state = part(tensors, "retrieval")
        parts.retrieval.load_state_dict(adapt(state, parts.retrieval, parts.names[1]))
    if parts.mixer is not None:
        parts.mixer.load_state_dict(part(tensors, "routing"))


def lasting(module: Baseline | RetrievalStrategy, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the part of a module's state that predictions need."""
    dropped = module.learning_only
    inside = tuple(f"{prefix}." for prefix in dropped)
    return {
        name: value for name, value in state.items() if name not in dropped and not name.startswith(inside)
    }


def names_of(config: ModelConfig) -> tuple[str, str]:
    """Return baseline and retrieval strategy as messages name them."""
    retrieval = "none" if config.retrieval is None else config.retrieval.name
    return f"baseline {config.baseline.name!r}", f"retrieval {retrieval!r}"


def device_of(config: ModelConfig, backbone: Backbone) -> torch.device:
    """Return the device of a run or a model, which is not opened yet.

    Raises:
        ConfigError: The device is not there.
    """
    run = config.run
    # several processes were placed before (:func:`lw2g.runtime.ranks.on_its_device`)
    return suited_device(run.device, small=run.devices == 1 and has_small_products(backbone))


def open_backbone(
    config: Config, build: Callable[[], Backbone], settled: Path | None = None
) -> tuple[Config, Engine, PrecisionChoice, Backbone]:
    """Return configuration with its precision settled, engine, how precision was chosen, and the backbone.

    Args:
        config: The configuration.
        build: Builds the backbone.
        settled: Where runs that belong together keep what ``auto`` settled on; None: nowhere.

    Raises:
        ConfigError: The device is not there, or it cannot compute as configured.
        DataError: Its weights are missing.
    """
    run = config.run
    found = find_device(run.device)  # before weights are read
    backbone = build()
    device = device_of(config, backbone)
    if device != found:
        tell_note_once(
            f"computed on the CPU: the network is too small for {found.type} to be faster (--device "
            f"{found.type} computes there all the same)"
        )
    # float32 until it is known what bf16 costs in accuracy, which is measured where the run computes
    wanted = FP32 if run.precision == "auto" else run.precision
    engine = open_engine(str(device), wanted, deterministic=run.deterministic)
    backbone.to(engine.device)
    if run.precision == "auto":
        choice = settle(backbone, run.device, settled)
        engine = attrs.evolve(engine, precision=choice.used)
        config = attrs.evolve(config, run=attrs.evolve(run, precision=choice.used))
    else:
        choice = PrecisionChoice(asked=run.precision, used=run.precision, reason="as configured")
    reduced = choice.used == BF16
    if reduced:
        backbone.to_bf16()
    # products in bf16 are the same bits either way; in float32 they are not, so that one has to ask for them
    faster = has_packed_products() if reduced else run.speed == "fast" and has_faster_products()
    if faster and not run.compile and engine.device.type == "cpu":
        backbone.to_onednn()
    # the configured sizes, so that a batch runs alike wherever a run was resumed
    configured = [run.evaluation_batch]
    for part_of_run in (config.baseline, config.retrieval):
        if part_of_run is not None:
            configured.append(batch_size_of(part_of_run.config) or run.evaluation_batch)
    sizes = frozenset(configured)
    if run.compile:
        require_compiler(engine.device)
        backbone.compile_blocks(sizes)
    require_memory(
        run.evaluation_batch * backbone.bytes_per_image,
        f"run.evaluation_batch: {run.evaluation_batch} images",
        "lower it",
        engine.device,
    )
    return config, engine, choice, backbone


def build_methods(
    config: ModelConfig, catalogue: Catalogue, context: BuildContext
) -> tuple[Baseline, RetrievalStrategy | None]:
    """Return baseline and retrieval strategy; what they draw depends on the run's seed alone.

    Raises:
        ConfigError: They cannot be built as configured.
    """
    seed = context.seed
    device = context.device
    # a method builds the heads and carries that its options name, once it knows how wide they are
    heads = {}
    for chosen in config.head:
        heads[chosen.name] = Maker(build=partial(build, catalogue, "head", chosen))
    carries = {}
    for chosen in config.carry:
        wraps = catalogue.get("carry", chosen.name).wraps
        carries[chosen.name] = Maker(build=partial(build, catalogue, "carry", chosen), wraps=wraps)
    context = attrs.evolve(context, heads=heads, carries=carries)
    # a seed each: what one of them draws must not move the draws of the other
    torch.manual_seed(derive_seed(seed, "build"))
    name, _ = names_of(config)
    with with_room(context.backbone, name):
        baseline = build(catalogue, "baseline", config.baseline, context)
        add_expert(baseline, config, context)
        if config.run.probabilities and baseline.closed_form is not None:
            baseline.closed_form.fit_temperature()
        baseline.to(device).requires_grad_(False)
        retrieval: Any = None
        if config.retrieval is not None:
            torch.manual_seed(derive_seed(seed, "build retrieval"))
            retrieval = build(catalogue, "retrieval", config.retrieval, context)
            retrieval = retrieval.to(device).requires_grad_(False).eval()
    require_layers_read(context.backbone, baseline, retrieval, name)
    return baseline, retrieval


def mixer_of(config: ModelConfig, engine: Engine) -> Mixer | None:
    """Return the mixer of several sets' answers; None where one set answers."""
    return None if config.routing.mix == 1 else Mixer(config.routing).to(engine.device)


def widened(state: Mapping[str, Tensor], fresh: Mapping[str, Tensor], whose: str) -> dict[str, Tensor]:
    """Return the state of a module with room for more classes and tasks.

    A class or a task owns a row of a tensor or a whole tensor. Those of old ones are taken over, those of
    new ones stay as the module was built. A buffer that has grown with the sets keeps all its rows.

    Args:
        state: What was learned.
        fresh: The state of the larger module as built.
        whose: Whose module it is, for messages.

    Raises:
        ConfigError: Something else has changed its shape.
    """
    completed = dict(state)
    for name, new in fresh.items():
        old = state.get(name)
        if old is None:
            completed[name] = new
        elif old.shape != new.shape:
            if old.ndim != new.ndim or old.shape[1:] != new.shape[1:]:
                raise ConfigError(
                    f"{whose} takes no more classes than it was built for: its {name!r} of "
                    f"{list(old.shape)} would become {list(new.shape)}",
                    "run it on all classes from the beginning",
                )
            completed[name] = torch.cat([old, new[len(old) :].to(old)])
    return completed
