"""Short runs on the tiny benchmark, for components that a baseline's options name."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from lw2g.config.resolve import resolve
from lw2g.lifecycle.runner import start
from lw2g.models.exporting import export_run
from lw2g.models.saved import open_model
from lw2g.testing.kit import ContractViolation, Subject
from lw2g.testing.world import QUICK, short_options

__all__ = ["require_run"]


def require_run(subject: Subject, options: Mapping[str, Any], baseline: str) -> None:
    """Run a baseline that names the component, export the model, and compare what both predict.

    Args:
        subject: The component.
        options: Options of the run, by dotted key.
        baseline: Name of the baseline.

    Raises:
        ContractViolation: Run and export predict otherwise.
    """
    kind, name = subject.component.kind, subject.component.name
    method = subject.catalogue.get("baseline", baseline)
    overrides = {
        **QUICK,
        "run.device": subject.device,
        **{f"baseline.{key}": value for key, value in short_options(method.config).items()},
        **{f"{kind}.{name}.{key}": value for key, value in subject.options.items()},
        **options,
    }
    resolved = resolve(
        subject.catalogue, overrides=overrides, baseline=baseline, benchmark="tiny", backbone="tiny"
    )
    images = torch.randint(0, 256, (12, 3, 16, 16), generator=torch.Generator().manual_seed(0)).byte()
    with tempfile.TemporaryDirectory() as folder:
        run, out = Path(folder) / "run", Path(folder) / "export"
        start(resolved, subject.catalogue, run)
        export_run(run, subject.catalogue, out)
        models = [open_model(place, subject.catalogue, device=subject.device) for place in (run, out)]
        answers = [model(list(images)) for model in models]
    if not torch.equal(*answers):
        raise ContractViolation("a run and its export predict otherwise; register as buffers what it needs")
