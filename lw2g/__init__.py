"""lw2g: continual learning on frozen pre-trained ViTs.

``lw2g.run`` and its neighbours are the commands from Python, under the same names (:mod:`lw2g.api`).
``except lw2g.Lw2gError`` catches what they refuse. Importing this package imports no other module of it: a
name is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from lw2g.api import continue_run, fork, resume, run
    from lw2g.api.models import export, load
    from lw2g.api.recorded import runs
    from lw2g.api.sweeps import sweep
    from lw2g.errors import ComponentError, ConfigError, ContractError, DataError, Lw2gError
    from lw2g_hub.hub_models import pull, push
    from lw2g_onnx.onnx_file import export_onnx
    from lw2g_page.reporting import report
    from lw2g_photos.photographs import learn, start, test, unlearn
    from lw2g_store.stores import verify
else:

    def __getattr__(name: str) -> object:
        """Import a function or an error of the package."""
        from importlib import import_module

        if name not in _HOMES:
            hint = f"; {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
            if not hint and not name.startswith("_"):
                hint = import_module("lw2g.errors").nearest(name, __all__)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
        if reason := import_module("lw2g.ground.platforms").why_not_here():
            raise ImportError(reason)
        found = getattr(import_module(_HOMES[name]), name)
        globals()[name] = found  # asked for once
        return found

    def __dir__() -> list[str]:
        """Return the names of the package, those too that have not been imported yet, and no other."""
        return sorted(__all__)


_HOMES = {
    "ComponentError": "lw2g.errors",
    "ConfigError": "lw2g.errors",
    "ContractError": "lw2g.errors",
    "DataError": "lw2g.errors",
    "Lw2gError": "lw2g.errors",
    "continue_run": "lw2g.api",
    "export": "lw2g.api.models",
    "export_onnx": "lw2g_onnx.onnx_file",
    "fork": "lw2g.api",
    "learn": "lw2g_photos.photographs",
    "load": "lw2g.api.models",
    "pull": "lw2g_hub.hub_models",
    "push": "lw2g_hub.hub_models",
    "report": "lw2g_page.reporting",
    "resume": "lw2g.api",
    "run": "lw2g.api",
    "runs": "lw2g.api.recorded",
    "start": "lw2g_photos.photographs",
    "sweep": "lw2g.api.sweeps",
    "test": "lw2g_photos.photographs",
    "unlearn": "lw2g_photos.photographs",
    "verify": "lw2g_store.stores",
}
"""Function or error -> the module that has it."""
_ELSEWHERE = {
    "predict": "a model has it: lw2g.load(MODEL).predict(IMAGES)",
    "save": "a model lies in the folder that start or learn was given, or in MODEL-2 and so on",
    "show": "print(lw2g.load(MODEL)) in Python, lw2g show MODEL on the command line",
    "teach": "lw2g.learn(MODEL, FOLDER) in Python, lw2g teach MODEL on the command line",
}
"""What is no function of the package, and what does it."""

__all__ = [
    "ComponentError",
    "ConfigError",
    "ContractError",
    "DataError",
    "Lw2gError",
    "__version__",
    "continue_run",
    "export",
    "export_onnx",
    "fork",
    "learn",
    "load",
    "pull",
    "push",
    "report",
    "resume",
    "run",
    "runs",
    "start",
    "sweep",
    "test",
    "unlearn",
    "verify",
]
