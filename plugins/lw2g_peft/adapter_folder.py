"""A LoRA set as an adapter folder of peft: ``adapter_config.json`` and ``adapter_model.safetensors``.

peft is not needed to write it. Its layout: https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors.torch import save
from torch import Tensor

from lw2g.errors import ConfigError, counted
from lw2g.interfaces.batch import Batch
from lw2g.interfaces.pool import Routing
from lw2g.model.parts import ModelParts
from lw2g.model.places import reserved, write_folder
from lw2g.model.trained import TrainedModel
from lw2g.vit.injection import Injection
from lw2g.vit.low_rank import LayerInjection, LayerUpdate, LowRankInjection, layer_updates
from lw2g.vit.used_injections import injections_of

__all__ = ["Adapter", "written"]

_CLOSE = 1e-3
"""Share of a feature by which low-rank updates alone may miss it; rounding of float32 is far below."""


@attrs.frozen(kw_only=True)
class Adapter:
    """What was written.

    Attributes:
        layers: Number of layers that are updated.
        rank: Rank of each update.
        model: timm's name of the model that the adapter is for.
        image_size: Side of its input in pixels.
    """

    layers: int
    rank: int
    model: str
    image_size: int


def written(run: Path, out: Path, set_id: int | None, load: Callable[[], TrainedModel]) -> Adapter:
    """Write the adapter as :func:`lw2g_peft.writing_adapters.write_adapter` says.

    Args:
        run: What the model is read from.
        out: The folder.
        set_id: The set.
        load: Opens the model; it is changed.
    """
    with reserved(out, inputs=(run,)) as place:
        parts = load().parts
        # rounding of bfloat16 is larger than an update may be: nothing could be compared
        parts.backbone.model.float()
        routing = _routing_to(parts, set_id)
        updates = _updates(parts, routing)
        rank = max(len(update.down) for update in updates)
        config = _config(parts, updates, rank)
        tensors = _tensors(parts, updates, rank)
        _require_equal(parts, routing, updates)
        files = {
            "adapter_config.json": (json.dumps(config, indent=2) + "\n").encode(),
            "adapter_model.safetensors": save(tensors, {"format": "pt"}),
        }
        write_folder(place, files)
    known = parts.backbone.fingerprint
    return Adapter(layers=len(updates), rank=rank, model=known.timm_name, image_size=known.image_size)


def _routing_to(parts: ModelParts, set_id: int | None) -> Routing:
    """Return the routing to the set that was asked for, or to all that are summed.

    Raises:
        ConfigError: There is no such set, or one has to be named.
    """
    ids = list(parts.pool.ids)
    scope = parts.baseline.scope
    if scope.each:
        raise ConfigError(
            f"{parts.names[0]} answers with every set in turn", "no single adapter is its model"
        )
    if not scope.choice:
        if set_id is not None:
            raise ConfigError(
                f"--set-id: {parts.names[0]} adds up all sets", "leave it out: their sum is written"
            )
        return scope.force(parts.pool, ids[0])
    if set_id is None and len(ids) > 1:
        raise ConfigError(
            f"{parts.names[0]} chooses one of {counted(len(ids), 'set')} for each image",
            f"name one: --set-id {ids[0]}, for example",
        )
    chosen = ids[0] if set_id is None else set_id
    if chosen not in ids:
        raise ConfigError(f"--set-id: there is no set {chosen}", f"the sets are {', '.join(map(str, ids))}")
    return scope.force(parts.pool, chosen)


def _batch_of(parts: ModelParts) -> Batch:
    """Return a batch of two drawn images, as the network takes them."""
    side = parts.backbone.image_size
    images = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    return Batch(
        labels=torch.zeros(2, dtype=torch.int64),
        samples=torch.arange(2),
        images=lambda: images,
        query=lambda: parts.backbone.features(images).float(),
    )


def _updates(parts: ModelParts, routing: Routing) -> list[LayerUpdate]:
    """Return the updates of layers, all that the method changes.

    Raises:
        ConfigError: It changes nothing, or other things.
    """
    batch = _batch_of(parts)
    with torch.no_grad():
        used = injections_of(parts.backbone, lambda: parts.baseline.features(batch, routing))
        if not used:
            raise ConfigError(
                f"{parts.names[0]} computes features with the frozen backbone alone",
                "there is no adapter to write",
            )
        return layer_updates(_only_low_rank(parts, used), parts.backbone.model)


def _only_low_rank(parts: ModelParts, used: Sequence[Injection]) -> LowRankInjection | LayerInjection:
    """Return the one injection of low-rank updates.

    Raises:
        ConfigError: There are others.
    """
    only = used[0]
    if len(used) > 1 or not isinstance(only, LowRankInjection | LayerInjection):
        kinds = ", ".join(type(one).__name__ for one in used)
        raise ConfigError(
            f"{parts.names[0]} changes more than low-rank updates ({kinds}), and an adapter holds no more",
            "take the whole model away: lw2g export",
        )
    return only


def _names(parts: ModelParts, updates: Sequence[LayerUpdate]) -> list[str]:
    """Return the name of each updated layer within the model."""
    names = {id(module): name for name, module in parts.backbone.model.named_modules()}
    return [names[id(update.layer)] for update in updates]


def _config(parts: ModelParts, updates: Sequence[LayerUpdate], rank: int) -> dict[str, Any]:
    """Return the content of ``adapter_config.json``."""
    return {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": parts.backbone.fingerprint.timm_name,
        "target_modules": _names(parts, updates),
        "r": rank,
        # peft multiplies by lora_alpha / r: the scale stands in the factors
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def _tensors(parts: ModelParts, updates: Sequence[LayerUpdate], rank: int) -> dict[str, Tensor]:
    """Return the factors by peft's names, all of one rank: zeros fill up what has fewer rows."""
    tensors = {}
    for name, update in zip(_names(parts, updates), updates, strict=True):
        missing = rank - len(update.down)
        down = torch.nn.functional.pad(update.down, (0, 0, 0, missing))
        up = torch.nn.functional.pad(update.up, (0, missing))
        tensors[f"base_model.model.{name}.lora_A.weight"] = down.contiguous()
        tensors[f"base_model.model.{name}.lora_B.weight"] = up.contiguous()
    return tensors


@torch.no_grad()
def _require_equal(parts: ModelParts, routing: Routing, updates: Sequence[LayerUpdate]) -> None:
    """Refuse a method that changes what no injection tells, such as a final norm of its own.

    The weights of the model are changed: it is not used afterwards.

    Raises:
        ConfigError: The model with the updates gives other features.
    """
    batch = _batch_of(parts)
    expected = parts.baseline.features(batch, routing)
    for update in updates:
        update.layer.weight += (update.up @ update.down).to(update.layer.weight)
    found = parts.backbone.features(batch.images)
    if found.shape != expected.shape or float((found - expected).norm() / expected.norm()) > _CLOSE:
        raise ConfigError(
            f"features by {parts.names[0]} rest on more than low-rank updates, and an adapter holds no more",
            "take the whole model away: lw2g export",
        )
