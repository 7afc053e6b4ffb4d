"""Names of timm's models as people write them. Importing it imports neither torch nor timm."""

from __future__ import annotations

from lw2g.errors import ConfigError

__all__ = ["can_be_timm_name", "is_timm_name", "plain_name"]

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


def can_be_timm_name(name: str) -> bool:
    """Whether a name may be one of timm's, whose architectures are functions of Python.

    >>> can_be_timm_name("resnet18.a1_in1k"), can_be_timm_name("vit-tinny")
    (True, False)
    """
    return _looks_like_timm(name) or name.partition(".")[0].isidentifier()


def is_timm_name(name: str) -> bool:
    """Whether a name that is no component's is to be looked up in timm."""
    if _looks_like_timm(name) or not can_be_timm_name(name):
        return _looks_like_timm(name)
    # few of timm's names have no underscore (resnet18), and it takes a second to import: only now
    import timm

    return bool(timm.is_model(name.partition(".")[0]))


def _looks_like_timm(name: str) -> bool:
    return "_" in name or name.startswith((*_HUBS, _OWNER))
