"""What a user has written of an experiment: a file and single options, by section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lw2g.config.describe import hint_of_places, meant_elsewhere
from lw2g.config.layers import GOAL, NO_GOAL_IN_FILES, SECTIONS, SHORT, nest, table_of, written_out
from lw2g.config.structure import NONE
from lw2g.config.toml import flat
from lw2g.errors import as_word, nearest
from lw2g.interfaces.defaults import TIMM_BACKBONE
from lw2g.registry.catalogue import Catalogue
from lw2g.vit.hub_folder import architecture_of, folder_of, statistics_of
from lw2g.vit.names import is_timm_name

__all__ = ["Written"]

_PARTS_OF_GRIDS = ("base", "axes", "rows", "extends")


class Written:
    """The layers of a configuration that a user writes.

    Args:
        file: Content of a TOML file.
        explicit: Options by dotted keys, which override the file's; ``constraints`` has names in place of the
            file's.
        catalogue: Where components are looked up.
        problems: Receives what cannot be used.
        place: The TOML file; empty where its content came otherwise.

    Attributes:
        file: The tables of the file, by section.
        explicit: Those of the explicit options, likewise.
    """

    def __init__(
        self,
        file: Mapping[str, Any],
        explicit: Mapping[str, Any],
        catalogue: Catalogue,
        problems: list[str],
        place: str = "",
    ) -> None:
        self._place = place
        self._catalogue = catalogue
        self._problems = problems
        options = self._with_section(explicit)
        self._explicit_constraints: Sequence[str] | None = None
        if _are_names(options.get("constraints")):
            self._explicit_constraints = options.pop("constraints")
        self.explicit = nest(options, problems, behind="--set ")
        self._file_constraints: list[str] | None = None
        self.file = self._read_sections(file)
        for layer in (self.explicit, self.file):
            if layer.get("run", {}).pop(GOAL, None) is not None:
                problems.append(NO_GOAL_IN_FILES)

    def of(self, section: str) -> dict[str, Any]:
        """Return the values of a section; explicit options override the file."""
        return {**self.file.get(section, {}), **self.explicit.get(section, {})}

    def with_sources(self, problems: Sequence[str]) -> list[str]:
        """Return problems that begin with a key, each with the file where its value stands in one."""
        in_file = {key.removesuffix(".name") for key in flat(self.file).keys() - flat(self.explicit).keys()}
        told = []
        for problem in problems:
            key = problem.partition(":")[0]
            source = f" (in {self._place})" if self._place and key in in_file else ""
            told.append(problem + source)
        return told

    def adopt_timm_names(self) -> None:
        """Treat an unregistered backbone name that timm may know as a timm model, and a folder as its model.

        Raises:
            ConfigError: A folder does not tell its model.
            DataError: What a folder says cannot be read.
        """
        # each layer is read alone: a component may override a model that the file names, or the reverse
        for layer in (self.file, self.explicit):
            name = layer.get("backbone", {}).get("name")
            if not isinstance(name, str) or self._catalogue.find("backbone", name) is not None:
                continue
            # vit_tiny for vit-tiny: the catalogue names the one that was meant
            if self._catalogue.find("backbone", name.replace("_", "-").lower()) is not None:
                continue
            folder = folder_of(name)
            if folder is not None:
                layer["backbone"] = {**_model_in(folder), **layer["backbone"], "name": TIMM_BACKBONE}
            elif is_timm_name(name) and not self._is_misspelt(name):
                layer["backbone"] = {"model": name, **layer["backbone"], "name": TIMM_BACKBONE}

    def _is_misspelt(self, name: str) -> bool:
        """Whether a name that timm does not have is like that of a backbone: the catalogue says which."""
        known = [other for kind, other in self._catalogue.entries if kind == "backbone"]
        if not name.isidentifier() or not nearest(name, known):
            return False
        import timm
        from timm.models import get_deprecated_models

        return not timm.is_model(name) and name not in get_deprecated_models()

    @property
    def types_constraints(self) -> bool:
        """Whether constraints are named beside the file: what that names, an older run may have had."""
        return self._explicit_constraints is not None

    def constraints(self) -> list[str] | None:
        """Return the names of constraints: the explicit ones, else the file's; None where neither says."""
        if self._explicit_constraints is None:
            return self._file_constraints
        if self._explicit_constraints == NONE:
            return []
        names = list(dict.fromkeys(self._explicit_constraints))
        if NONE in names and len(names) > 1:
            self._problems.append(f"constraints: {NONE!r} cannot be combined with other constraints")
        return [name for name in names if name != NONE]

    def _read_sections(self, file: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return the tables of a file by section, and note what is in none."""
        sections: dict[str, dict[str, Any]] = {}
        for name, value in written_out(file).items():
            if name in _PARTS_OF_GRIDS:
                command = f"lw2g sweep {as_word(self._place)}" if self._place else "lw2g sweep"
                self._problems.append(f"this is a grid of runs; run it by `{command}`")
            elif name == GOAL:
                self._problems.append(NO_GOAL_IN_FILES)
            elif name not in SECTIONS:
                text = self._lost(name) or f"{name}: no such section{nearest(name, SECTIONS)}"
                self._problems.append(text)
            elif name == "constraints" and value == NONE:
                self._file_constraints = []
            else:
                sections[name] = table_of(value, name, self._problems)
        if "constraints" in sections:
            self._file_constraints = list(sections["constraints"])
        return sections

    def _with_section(self, explicit: Mapping[str, Any]) -> dict[str, Any]:
        """Remove options that lack their section, and report where they belong."""
        kept: dict[str, Any] = {}
        for key, value in explicit.items():
            problem = self._lost(key)
            if problem is None:
                kept[key] = value
            else:
                self._problems.append(problem)
        return kept

    def _lost(self, name: str) -> str | None:
        """Return the problem of an option without its section; None if no option has that name."""
        if "." in name or name in SECTIONS:
            return None
        if meant := meant_elsewhere(name, self._catalogue.whole):
            return f"{name}: no such option; {meant}"
        hint = hint_of_places(name, self._catalogue.whole, (*SECTIONS, *SHORT))
        return f"{name}: expected a key with its section{hint}" if hint else None


def _are_names(value: Any) -> bool:
    """Whether a value lists names, or is the word for none."""
    if isinstance(value, list | tuple):
        return all(isinstance(name, str) for name in value)
    return bool(value == NONE)


def _model_in(folder: Path) -> dict[str, Any]:
    """Return the options of the timm model whose weights lie in a folder, as a user would write them."""
    model, image_size = architecture_of(folder)
    statistics = statistics_of(folder)
    options = {
        "model": model,
        "weights": str(folder),
        "image_size": image_size,
        "mean": statistics.mean,
        "std": statistics.std,
    }
    return {key: value for key, value in options.items() if value is not None}
