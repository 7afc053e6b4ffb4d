"""Names of timm's models as people write them. Importing it imports neither torch nor timm."""

from __future__ import annotations

from lw2g.errors import ConfigError

__all__ = ["is_timm_name", "plain_name"]

_HUBS = ("hf-hub:", "hf_hub:")
_OWNER = "timm/"


def plain_name(name: str) -> str:
    """Return a name without the hub and the organisation timm in front: one model has one name.

    Raises:
        ConfigError: It names another organisation, whose architecture only its configuration tells.

    >>> plain_name("hf-hub:timm/vit_tiny_patch16_224.augreg_in21k")
    'vit_tiny_patch16_224.augreg_in21k'
    """
    plain = name
    for hub in _HUBS:
        plain = plain.removeprefix(hub)
    plain = plain.removeprefix(_OWNER)
    if "/" in plain or ":" in plain:
        raise ConfigError(
            f"backbone {name!r} is no name of timm's own models, and does not tell its architecture",
            "download it and name its folder: --backbone local-dir:FOLDER; or name the architecture, and "
            "give the file with --weights FILE",
        )
    return plain


def is_timm_name(name: str) -> bool:
    """Whether a name that is no component's is to be looked up in timm."""
    if "_" in name or name.startswith((*_HUBS, _OWNER)):
        return True
    # few of timm's names have no underscore (resnet18), and it takes a second to import: only now
    import timm

    return bool(timm.is_model(name.partition(".")[0]))
