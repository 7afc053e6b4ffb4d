"""The backbone of a saved model: inside of its export, or with weights from where they are said to be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from lw2g.config.settings import BackboneChoice, ModelConfig
from lw2g.errors import ConfigError, DataError
from lw2g.model.manifest import Manifest
from lw2g.registry.catalogue import Catalogue
from lw2g.vit.backbone import Backbone
from lw2g.vit.weights import state_sha256

__all__ = ["backbone_inside", "backbone_outside", "require_rebuilt", "require_same"]


def backbone_inside(
    manifest: Manifest, state: Mapping[str, Tensor], config: ModelConfig, catalogue: Catalogue
) -> Backbone:
    """Return the backbone whose weights an export brings along."""
    plain = _untrained(config.backbone, catalogue)
    # the weights went along as they computed
    if config.run.precision == "bf16-mixed":
        plain.to_bf16()
    plain.model.load_state_dict(state)
    return Backbone(plain.model, name=manifest.weights_name, fingerprint=manifest.fingerprint)


def backbone_outside(manifest: Manifest, config: ModelConfig, catalogue: Catalogue) -> Backbone:
    """Return the backbone with its weights from where they were, or from where they are said to be."""
    chosen = config.backbone
    try:
        if chosen.weights is not None and not (chosen.weights.is_file() or chosen.weights.is_dir()):
            raise DataError(f"no weights file {str(chosen.weights)!r}")
        return catalogue.get("backbone", chosen.name).build(chosen.config, chosen.weights, chosen.image_size)
    except (ConfigError, DataError) as error:
        raise DataError(error.what, _wanted(manifest)) from error


def require_same(manifest: Manifest, backbone: Backbone, weights: Path | None) -> None:
    """Refuse another backbone than the model was trained on; the same numbers in another file will do."""
    if backbone.fingerprint.sha256 == manifest.fingerprint.sha256:
        return
    # a fingerprint is of the file: the same weights may come in another one
    if state_sha256(backbone.model.state_dict()) != manifest.state:
        whose = "" if weights is None else f" of {str(weights)!r}"
        raise DataError(
            f"the weights{whose} have SHA-256 {backbone.fingerprint.sha256} and are not those that the model "
            f"was trained on",
            _wanted(manifest),
        )


def _wanted(manifest: Manifest) -> str:
    return (
        f"give the weights of {manifest.weights_name!r} with SHA-256 {manifest.fingerprint.sha256} as "
        "--weights FILE, or an export that has them inside (--with-backbone)"
    )


def require_rebuilt(chosen: BackboneChoice, weights: Mapping[str, Tensor], catalogue: Catalogue) -> None:
    """Refuse to put weights into an export that could not build its model without their file."""
    try:
        state = _untrained(chosen, catalogue).model.state_dict()
    except (ConfigError, DataError):
        state = {}  # not built at all: it fits no weights
    if _shapes(state) != _shapes(weights):
        raise ConfigError(
            f"backbone {chosen.name!r} cannot be built without its weights file, so that they cannot be put "
            "inside",
            "leave out --with-backbone, and give the file to whoever uses the export",
        )


def _shapes(state: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: value.shape for name, value in state.items()}


def _untrained(chosen: BackboneChoice, catalogue: Catalogue) -> Backbone:
    component = catalogue.get("backbone", chosen.name)
    if component.untrained is None:
        raise ConfigError(f"backbone {chosen.name!r} has no architecture without weights")
    return component.untrained(chosen.config, chosen.image_size)
