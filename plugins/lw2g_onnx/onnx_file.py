"""The function of lw2g that writes a trained model as an ONNX file.

Importing this module imports neither torch nor a component.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from lw2g import __version__
from lw2g.api.given_objects import catalogue_of
from lw2g.config.directory import require_outside
from lw2g.disk.sealed import write_once
from lw2g.errors import ConfigError, DataError
from lw2g.ground.notes import tell_note
from lw2g.ground.spelling import expands_paths
from lw2g.runtime.collector import collector_waits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lw2g.model.exported import Saved
    from lw2g.model.trained import TrainedModel

__all__ = ["OnnxFile", "export_onnx"]

_TOLERANCE = 1e-4
"""How far a probability may be from that of torch."""


@attrs.frozen(kw_only=True)
class OnnxFile:
    """An ONNX file that was written.

    Attributes:
        path: Where.
        size: Its bytes.
        opset: The version of ONNX's operators.
        classes: The names of the columns of its probabilities.
        calibrated: Whether these are at a temperature that was fitted to images set apart.
        difference: The largest difference of a probability between onnxruntime and torch on drawn images.
    """

    path: Path
    size: int
    opset: int
    classes: tuple[str, ...]
    calibrated: bool
    difference: float


@expands_paths
def export_onnx(
    run: str | Path,
    out: str | Path,
    *,
    task: int | None = None,
    weights: str | Path | None = None,
    local: Mapping[str, Any] | None = None,
) -> OnnxFile:
    """Write the model in the directory ``run`` as the new ONNX file ``out``, for programs without lw2g.

    The file takes normalised images and gives probabilities of the classes that the model knows. Its metadata
    have the names of the classes, and how an image is prepared. One set and a head in closed form can be
    written so: frozen backbones, and adapted ones, whose updates are added to the weights.

    Args:
        run: The directory of the run or the export.
        out: The file.
        task: The finished task, counted from 1, whose model to export; None for the newest.
        weights: The backbone's weights, if they have moved; None for their recorded source.
        local: As for :func:`lw2g.resume`.

    Returns:
        What was written.

    Raises:
        DataError: There is no such run, model or task, or onnxruntime computes something else.
        ConfigError: The file is there already, a library of the extra ``onnx`` is missing, or the model
            answers in a way that cannot be exported.
    """
    run = Path(run)
    out = Path(out)
    _require_new(out, run)
    with collector_waits():
        from lw2g.model.live import live_model
        from lw2g.model.saved import saved_in
        from lw2g_onnx.onnx_program import require_exporter
        from lw2g_onnx.probabilities import require_exportable

        require_exporter()
        catalogue = catalogue_of(local, run)
    saved = _in_float32(saved_in(run, task))
    file = None if weights is None else Path(weights)
    model = live_model(saved, catalogue, device="cpu", weights=file)
    require_exportable(model)
    history = saved.manifest.history
    # a forgotten class keeps its number, and no probability
    return _written(out, model, tuple(history.names[number] for number in history.numbers))


def _written(out: Path, model: TrainedModel, classes: tuple[str, ...]) -> OnnxFile:
    """Write the file of an exportable model whose probabilities have these names.

    Raises:
        DataError: onnxruntime computes something else.
        ConfigError: torch cannot write what it computes.
    """
    from lw2g_onnx.onnx_program import OPSET, onnx_bytes, onnx_differences
    from lw2g_onnx.probabilities import Probabilities

    if model.temperature is None:
        tell_note(
            "nothing calibrates this model: its probabilities are as sure as its scores (a run with "
            "run.probabilities=true fits a temperature, and so does lw2g start)"
        )
    module = Probabilities(model)
    size = model.backbone.image_size
    content = onnx_bytes(module, size, _metadata(model, classes, OPSET))
    difference = onnx_differences(content, module, size)
    if not difference <= _TOLERANCE:  # NaN is not, either
        raise DataError(
            f"onnxruntime's probabilities differ by {difference:.1g} from torch's, where {_TOLERANCE:g} is "
            "allowed",
            "install other releases of torch and onnxruntime",
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_once(out, content)
    return OnnxFile(
        path=out,
        size=len(content),
        opset=OPSET,
        classes=classes,
        calibrated=model.temperature is not None,
        difference=difference,
    )


def _require_new(out: Path, run: Path) -> None:
    """Refuse a file that is there, that nobody may write, or that would be taken for a part of the model.

    Raises:
        ConfigError: It is one.
    """
    require_outside(out, run)
    if out.is_symlink() or out.exists():
        raise ConfigError(f"{str(out)!r} is there already", "choose another file")
    above = next(folder for folder in out.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise ConfigError(f"nothing can be written into {str(above)!r}", "choose another folder")


def _in_float32(saved: Saved) -> Saved:
    """Return a model that computes in float32 and by torch's own products, which are what can be traced."""
    from lw2g.runtime.engine import BF16, FP32

    manifest = saved.manifest
    if manifest.run.get("precision") == BF16:
        tell_note("the file computes in float32, the model in bf16: probabilities may differ by hundredths")
    options = {**manifest.run, "precision": FP32, "speed": "exact", "compile": False}
    return attrs.evolve(saved, manifest=attrs.evolve(manifest, run=options))


def _metadata(model: TrainedModel, classes: tuple[str, ...], opset: int) -> dict[str, str]:
    """Return what a file says of itself: each value is text, and what has parts is JSON."""
    from lw2g.pixels.preprocessing import Preprocessing

    still = model.parts.still
    assert isinstance(still, Preprocessing)  # an exportable model
    calibrated = model.temperature is not None
    preprocessing = {
        "channels": "RGB",
        "resize": still.resize,
        # of the shorter side, from which the centre is cut
        "resize_to": still.before_crop if still.resize == "crop" else still.size,
        "size": still.size,
        "interpolation": still.interpolation,
        "antialias": True,
        "scale": 1 / 255,
        "mean": list(still.mean),
        "std": list(still.std),
    }
    return {
        "class_names": json.dumps(classes, ensure_ascii=False),
        "preprocessing": json.dumps(preprocessing),
        "calibrated": json.dumps(calibrated),
        "temperature": json.dumps(model.temperature if calibrated else 1.0),
        "backbone": model.backbone.fingerprint.timm_name,
        "lw2g_version": __version__,
        "opset": str(opset),
    }
