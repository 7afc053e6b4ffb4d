"""The functions of lw2g for plugins.

Importing this module imports neither torch nor any plugin.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lw2g.interfaces.component import Kind

__all__ = ["new_plugin"]


def new_plugin(name: str, *, kind: Kind, out: str | Path | None = None) -> tuple[list[Path], list[str]]:
    """Write an installable package with a small working component called ``name``, and its tests.

    ``name`` is kebab-case, such as my-method. It names the component, the distribution and the folder.

    Args:
        name: The component's name.
        kind: What the plugin offers.
        out: The package's folder; None for ./NAME.

    Returns:
        The files, and the commands that install, test and use the package.

    Raises:
        ConfigError: The name cannot be used, or the folder is in use.
    """
    from lw2g.registry.catalogue import load_catalogue
    from lw2g.scaffold.package import Scaffold, check_name, write_package

    check_name(name, load_catalogue())
    scaffold = Scaffold(name=name, kind=kind)
    directory = Path(out or name)
    files = list(write_package(scaffold, directory))
    install = f'python -m pip install -e "{directory}[test]"'
    test = f"python -m pytest -q {directory}"
    return files, [install, test, *scaffold.next_steps(directory)]
