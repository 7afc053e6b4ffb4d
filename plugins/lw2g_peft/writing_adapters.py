"""Writing the LoRA of a model as an adapter of peft.

Importing this module imports neither torch nor peft.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lw2g.ground.spelling import expands_paths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lw2g_peft.adapter_folder import Adapter

__all__ = ["write_adapter"]


@expands_paths
def write_adapter(
    run: str | Path,
    out: str | Path,
    *,
    set_id: int | None = None,
    task: int | None = None,
    weights: str | Path | None = None,
    local: Mapping[str, Any] | None = None,
) -> Adapter:
    """Write the LoRA of the run or model ``run`` into the new folder ``out``, as peft has adapters.

    ``PeftModel.from_pretrained(timm.create_model(NAME, num_classes=0), out)`` then gives the features that
    the model's head is fed. The head stays behind: ``lw2g export`` takes it away.

    Methods that add up all sets have one LoRA, their sum. Of methods that choose a set for each image, each
    set is an adapter of its own.

    Args:
        run: The directory of the run or the export.
        out: The folder.
        set_id: Which set, from 0, where the method chooses one for each image; None for the only one.
        task: The finished task, counted from 1, after which the LoRA is taken; None for the newest.
        weights: The backbone's weights, if they have moved; None for their recorded source.
        local: As for :func:`lw2g.resume`.

    Raises:
        DataError: There is no such model.
        ConfigError: The method changes more or other things than low-rank updates, a set has to be named, or
            the folder is in use.
    """
    # torch and the model are imported here, so that the command's help need not wait for them
    from lw2g.api.models import load
    from lw2g_peft.adapter_folder import written

    # on the CPU: a set has the same factors wherever it was trained
    open_model = partial(load, run, task=task, device="cpu", weights=weights, local=local)
    return written(Path(run), Path(out), set_id, open_model)
