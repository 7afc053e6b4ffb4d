"""Who offers the components of a run or a model, noted so that opening it imports these plugins alone.

A run has the list in ``plugins.json``, an export in its manifest. Both may be of an older lw2g, or damaged:
then all plugins are imported, and what is damaged is told by whoever reads the rest of the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import attrs

from lw2g.config.directory import MANIFEST, PLUGINS
from lw2g.disk.contents import read_sealed, require_fit
from lw2g.errors import DataError
from lw2g.interfaces.component import Kind
from lw2g.registry.catalogue import Catalogue, Registered
from lw2g.registry.manager import Origin

__all__ = ["ComponentOrigin", "Origins", "made_with", "noted_origins", "origins_of"]


@attrs.frozen(kw_only=True)
class ComponentOrigin:
    """Who offers a component."""

    kind: str
    name: str
    plugin: str
    distribution: str | None
    version: str | None

    @classmethod
    def of(cls, entry: Registered) -> ComponentOrigin:
        """Return what is noted of a component."""
        kind, name = entry.key
        return cls(kind=kind, name=name, **attrs.asdict(entry.origin))


@attrs.frozen(kw_only=True)
class Origins:
    """What lw2g reads here of either file.

    Attributes:
        components: Who offers them.
        code: What a run has had of each stranger's distribution (:mod:`lw2g.disk.plugin_code`).
    """

    components: list[ComponentOrigin] = attrs.field(factory=list)
    code: dict[str, list[str]] = attrs.field(factory=dict)


def origins_of(catalogue: Catalogue, used: Iterable[tuple[Kind, str]]) -> list[ComponentOrigin]:
    """Return who offers some components, each once.

    Args:
        catalogue: Has them.
        used: Their kinds and names.
    """
    origins = []
    for kind, name in dict.fromkeys(used):
        entry = catalogue.find(kind, name)
        if entry is not None:
            origins.append(ComponentOrigin.of(entry))
    return origins


def noted_origins(directory: Path) -> Origins:
    """Return who offered the components of a run or an export; nothing where no intact file tells."""
    for path in (directory / PLUGINS, directory / MANIFEST):
        try:
            return require_fit(read_sealed(path, Origins), path, Origins)
        except DataError:
            continue
    return Origins()


def made_with(directory: Path) -> dict[tuple[Kind, str], Origin]:
    """Return the same by kind and name, as :func:`~lw2g.registry.catalogue.load_catalogue` takes it."""
    origins: dict[tuple[Kind, str], Origin] = {}
    for noted in noted_origins(directory).components:
        origin = Origin(plugin=noted.plugin, distribution=noted.distribution, version=noted.version)
        origins[cast("Kind", noted.kind), noted.name] = origin
    return origins
