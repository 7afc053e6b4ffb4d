"""Public modules and names that have moved.

Their old names stay importable for one minor version, with a warning that names the heir.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["MOVED", "MOVED_NAMES", "find_old_names", "moved_name"]

MOVED = {
    "lw2g.blocks.anacp": "lw2g_heads.anacp",
    "lw2g.blocks.augmentation": "lw2g.inputs.augmentation",
    "lw2g.blocks.comparisons": "lw2g.geometry.comparisons",
    "lw2g.blocks.image_files": "lw2g.inputs.image_files",
    "lw2g.blocks.preprocessing": "lw2g.inputs.preprocessing",
    "lw2g.blocks.text_head": "lw2g_heads.text_head",
    "lw2g.testing.evidence": "lw2g.kit.evidence",
    "lw2g.testing.tiny": "lw2g.kit.tiny",
    "lw2g.training.estimate": "lw2g.estimate.estimate",
    "lw2g.training.models.answers": "lw2g.models.answers",
    "lw2g.training.models.model": "lw2g.models.model",
    "lw2g.vit.stored": "lw2g_backbones.stored_features",
}
"""Old name to new name, of every module that has moved since the last minor version."""

MOVED_NAMES = {
    "lw2g.blocks.lora.LowRankBaseline": "lw2g.blocks.bases.LowRankBaseline",
    "lw2g.blocks.prefixes.PrefixBaseline": "lw2g.blocks.bases.PrefixBaseline",
    "lw2g.interfaces.context.kinds_of": "lw2g.interfaces.context.class_domain_ids",
    "lw2g.vit.backbone.load_backbone": "lw2g.vit.loading.load_backbone",
}
"""Old place to new place, of every public name that has left a module which is still there."""


class _Old(MetaPathFinder, Loader):
    """Finds old names. It is asked last, so it never stands before a module that exists."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in MOVED:
            return ModuleSpec(fullname, self)
        # The packages above an old module are imported before it, and some are gone.
        if any(old.startswith(f"{fullname}.") for old in MOVED):
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        heir = MOVED.get(module.__name__)
        if heir is None:
            return
        # Level 2 is the import statement: warnings leave out the frames of importlib.
        warnings.warn(f"{module.__name__} is now {heir}", DeprecationWarning, stacklevel=2)
        for name, value in vars(import_module(heir)).items():
            if not name.startswith("__"):  # the old module keeps its own name and place
                setattr(module, name, value)


def moved_name(module: str, name: str) -> Any:
    """Return what a module had under a name that has moved; its ``__getattr__`` calls this.

    Raises:
        AttributeError: The module never had it.
    """
    heir = MOVED_NAMES.get(f"{module}.{name}")
    if heir is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    # Level 3 is the import statement: this function and the module's own stand in between.
    warnings.warn(f"{module}.{name} is now {heir}", DeprecationWarning, stacklevel=3)
    place, _, own = heir.rpartition(".")
    return getattr(import_module(place), own)


def find_old_names() -> None:
    """Make the old names importable in this process."""
    sys.meta_path.append(_Old())
