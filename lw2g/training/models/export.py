"""An exported model: one safetensors file and a small JSON, all that predictions need of a run.

``model.json`` (sealed) says what the model is made of: components with the distribution and version that they
come from, their options, names of classes, the test transform, the backbone by its checksum, and the checksum
of ``model.safetensors``, which holds the learned state, and the backbone's weights where they were asked for.

Read again, it needs the code of its baseline, its retrieval strategy and its backbone, because weights carry
no code; no benchmark, policy, measure, constraint or tracker, no data and no run directory.
"""

from __future__ import annotations

import errno
import hashlib
import secrets
import shutil
from pathlib import Path
from typing import Any

import attrs
from safetensors.torch import save as save_tensors
from torch import Tensor

from lw2g import __version__
from lw2g.blocks.preprocessing import Preprocessing
from lw2g.config.directory import MANIFEST, UNFINISHED, WEIGHTS
from lw2g.config.model import BackboneChoice, Chosen
from lw2g.config.structure import unstructure
from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.component import Kind
from lw2g.registry.catalogue import Catalogue
from lw2g.training.files.checkpoint import part, under
from lw2g.training.files.sealed import seal_json, sync_entries, write_atomically
from lw2g.training.models.parts import lasting, tensors_of
from lw2g.training.session import Session
from lw2g.vit.backbone import Backbone
from lw2g.vit.weights import state_sha256

__all__ = ["FORMAT", "require_free", "untrained", "write_export"]

FORMAT = 1
_OF_THE_RUN = ("seed", "precision", "deterministic", "compile", "evaluation_batch")
"""What of the section ``run`` an answer depends on."""


def require_free(out: Path) -> None:
    """Refuse a folder that is in use.

    Raises:
        ConfigError: It is.
    """
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise ConfigError(f"{str(out)!r} is there already; choose another folder")


def write_export(session: Session, task: int, catalogue: Catalogue, out: Path, *, with_backbone: bool) -> int:
    """Write the model of a restored session into a new folder, and return its bytes.

    The folder is either whole or not there.

    Args:
        session: As it stood after the task.
        task: From 0.
        catalogue: Knows who offers its components.
        out: The folder.
        with_backbone: Whether the frozen weights are put inside.

    Raises:
        ConfigError: The folder is in use, or the backbone cannot be put inside.
    """
    require_free(out)
    tensors = _learned(session)
    if with_backbone:
        _require_rebuilt(session, catalogue)
        tensors |= under("backbone", session.backbone.model.state_dict())
    # copies: tensors of a file may not share memory
    content = save_tensors({name: value.detach().cpu().clone() for name, value in tensors.items()})
    told = _manifest(session, task, catalogue) | {
        "backbone_inside": with_backbone,
        "files": {WEIGHTS: hashlib.sha256(content).hexdigest()},
    }
    files = {WEIGHTS: content, MANIFEST: seal_json(told)}
    made = out.with_name(f".{out.name}.{secrets.token_hex(8)}{UNFINISHED}")
    made.mkdir(parents=True)
    try:
        for name, one in files.items():
            write_atomically(made / name, one)
        made.rename(out)
    except BaseException as error:
        shutil.rmtree(made, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            require_free(out)
        raise
    sync_entries(out.parent)
    return sum(map(len, files.values()))


def _learned(session: Session) -> dict[str, Tensor]:
    """Return the learned state that answers are made of."""
    found = tensors_of(session)
    for prefix, module in (("baseline", session.baseline), ("retrieval", session.retrieval)):
        if module is not None:
            kept = under(prefix, lasting(module, part(found, prefix)))
            found = {name: one for name, one in found.items() if not name.startswith(f"{prefix}/")} | kept
    return found


def _manifest(session: Session, task: int, catalogue: Catalogue) -> dict[str, Any]:
    config, context = session.config, session.baseline.context
    used: list[tuple[Kind, Chosen | BackboneChoice | None]] = [
        ("baseline", config.baseline),
        ("retrieval", config.retrieval),
        ("backbone", config.backbone),
    ]
    transform: dict[str, Any]
    if isinstance(session.still, Preprocessing):
        values = attrs.asdict(session.still, filter=lambda field, _: field.init)
        transform = {"preprocessing": values}
    else:
        used.append(("benchmark", config.benchmark))
        transform = {"benchmark": _section(config.benchmark)}
    return {
        "format": FORMAT,
        "lw2g": __version__,
        "components": [_origin(catalogue, kind, one.name) for kind, one in used if one is not None],
        "baseline": _section(config.baseline),
        "retrieval": None if config.retrieval is None else _section(config.retrieval),
        "backbone": _section(config.backbone) | {"image_size": config.backbone.image_size},
        "routing": unstructure(config.routing),
        "run": {name: getattr(config.run, name) for name in _OF_THE_RUN},
        "transform": transform,
        "num_tasks": context.num_tasks,
        "num_classes": context.num_classes,
        "task_to_set": list(session.pool.task_to_set),
        "tasks": [
            {"class_names": list(info.class_names), "num_images": info.num_images}
            for info in session.infos[: task + 1]
        ],
        "learned_from": {"name": session.stream.name, "fingerprint": session.stream.fingerprint},
        "fingerprint": attrs.asdict(session.backbone.fingerprint) | {"name": session.backbone.name},
        "state": state_sha256(session.backbone.model.state_dict()),
    }


def _section(chosen: Chosen | BackboneChoice) -> dict[str, Any]:
    return {"name": chosen.name, "options": unstructure(chosen.config)}


def _origin(catalogue: Catalogue, kind: Kind, name: str) -> dict[str, Any]:
    origin = catalogue.entries[kind, name].origin
    return {"kind": kind, "name": name, **attrs.asdict(origin)}


def _require_rebuilt(session: Session, catalogue: Catalogue) -> None:
    """Refuse to put weights inside that nobody could build the model around."""
    chosen = session.config.backbone
    try:
        state = untrained(chosen, catalogue).model.state_dict()
    except (ConfigError, DataError):
        state = {}
    held = session.backbone.model.state_dict()
    if {name: one.shape for name, one in state.items()} != {name: one.shape for name, one in held.items()}:
        raise ConfigError(
            f"backbone {chosen.name!r} cannot be built without its weights file, so that they cannot be put "
            "inside; leave out --with-backbone, and give the file to whoever uses the export"
        )


def untrained(chosen: BackboneChoice, catalogue: Catalogue) -> Backbone:
    """Return a backbone's architecture with weights that mean nothing.

    Raises:
        ConfigError: It has none without its weights.
    """
    component = catalogue.get("backbone", chosen.name)
    if component.untrained is None:
        raise ConfigError(f"backbone {chosen.name!r} has no architecture without weights")
    return component.untrained(chosen.config, chosen.image_size)
