"""What to say of a name that no component has, and of an option that a component lacks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from lw2g.config.layers import NAMED_BY
from lw2g.config.other_names import method_of_others
from lw2g.errors import ConfigError, UnknownComponentError, nearest, no_folder
from lw2g.interfaces.component import Component, Kind, NoOptions
from lw2g.registry.catalogue import LOCAL, Catalogue
from lw2g.registry.kinds import SINGLE
from lw2g.vit.hub_folder import folder_of
from lw2g.vit.names import can_be_timm_name

__all__ = ["require_backbone_name", "require_file", "unknown_name", "whose_options"]

_TIMM = [f"vit_{size}_patch16_224.augreg_in21k_ft_in1k" for size in ("tiny", "small", "base", "large")]
_FOLDER_OPTION = "a folder of images is --benchmark folder --set benchmark.root="
_TYPED: Mapping[str, str] = {
    **{kind: f"--{kind} {{}}" for kind in (*SINGLE, "constraint", "tracker")},
    **{kind: f"--set {option}={{}}" for kind, option in NAMED_BY.items()},
}
"""How a component of a kind is named for a run; measures and metrics are not."""


def unknown_name(kind: Kind | Literal["component"], name: str, error: UnknownComponentError) -> str:
    """Return the message of a name that no component has.

    Args:
        kind: Of which kind the component was to be; ``component`` for any.
        name: The name.
        error: What the catalogue says of it.
    """
    if f"did you mean {name.replace('_', '-')!r}" in str(error):  # another spelling: nothing else is meant
        return str(error)
    if kind in ("constraint", "tracker") and "," in name:
        each = ", ".join(repr(part.strip()) for part in name.split(","))
        return f"no {kind} is called {name!r}; name each by itself: {each}"
    if kind == "backbone":
        meant = nearest(name.replace("-", "_"), _TIMM) or f", such as {_TIMM[0]} or resnet18.a1_in1k"
        return f"{error}; or a model of timm with its tag{meant}"
    if kind in ("baseline", "component") and (meant := method_of_others(name)):
        return f"no {kind} is called {name!r}; {meant}; `lw2g plugins baseline` lists all"
    if kind != "benchmark":
        return str(error)
    if os.path.isdir(name):  # False also of a name that no system takes
        return f"no benchmark is called {name!r}; {_FOLDER_OPTION}{name}"
    if os.sep in name:
        return f"{no_folder(name)}; {_FOLDER_OPTION}FOLDER"
    missing = no_folder(name)
    # a folder whose name is not like it was hardly meant
    return f"{error}; {missing}" if "did you mean" in missing else str(error)


def whose_options(component: Component, host: Component | None) -> str:
    """Return whose options are meant, as the refusal of an unknown one names it.

    Args:
        component: The component.
        host: The baseline that it comes with; None where the user has named it.
    """
    whose = component.name
    if component.name.startswith(LOCAL) and component.config is NoOptions:
        whose += ", whose class has no class Config, as @attrs.frozen with lw2g.plugin.option makes one"
    if host is not None:
        whose += f", which comes with {host.name}"
    return whose


def require_file(path: Path, catalogue: Catalogue) -> None:
    """Refuse the name of a component where a run's TOML file is expected.

    Raises:
        ConfigError: There is no such file, but a component that an option names.
    """
    if os.path.lexists(path):
        return
    for entry in catalogue.components():
        kind, name = entry.key
        if name == str(path) and kind in _TYPED:
            raise ConfigError(f"{name!r} is no file but a {kind}", f"name it: {_TYPED[kind].format(name)}")


def require_backbone_name(name: str, catalogue: Catalogue) -> None:
    """Refuse a name that no backbone can have, before torch and timm are imported to look for it.

    Raises:
        ConfigError: No component has it, and timm cannot have it.
    """
    try:
        catalogue.get("backbone", name)
    except UnknownComponentError as error:
        problem = unknown_name("backbone", name, error)
        is_other_spelling = problem == str(error)
        if is_other_spelling or not (can_be_timm_name(name) or folder_of(name)):
            raise ConfigError(f"backbone: {problem}") from error
