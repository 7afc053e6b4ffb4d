"""The functions of lw2g for trained models: load, predict, export.

Importing this module imports neither torch nor any plugin.
"""

from __future__ import annotations

from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lw2g.api.given_objects import catalogue_of
from lw2g.config.directory import CONFIG, holds_model
from lw2g.errors import ConfigError, DataError, as_word, no_image
from lw2g.ground.hub_address import is_hub_address, parsed_address
from lw2g.ground.spelling import expands_paths
from lw2g.runtime.importing import importing_torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lw2g.model.trained import TrainedModel

__all__ = ["at_home", "export", "folder_of", "load", "predict"]


@expands_paths
def load(
    run: str | Path,
    *,
    task: int | None = None,
    device: str | None = None,
    batch_size: int | None = None,
    weights: str | Path | None = None,
    local: Mapping[str, Any] | None = None,
) -> TrainedModel:
    """Open a saved run or an exported model: ``model(images)`` gives logits, ``model.predict(images)`` names.

    It needs neither the run's data nor its benchmark, policy and constraints. Images are paths, a folder,
    PIL images, arrays or tensors; the model's docstring says which.

    Args:
        run: The directory of the run or the export; or a model on the hub, ``hf://OWNER/NAME@REVISION``.
        task: The finished task, counted from 1, whose checkpoint to open; None for the newest.
        device: cpu, cuda, cuda:N or mps; None for a GPU if present (of a run: its own).
        batch_size: Images per forward, to which smaller batches are padded, so that an answer has the same
            bits whatever else is asked; None for what a call brings, at most as many as the run had.
        weights: The backbone's weights, if they have moved; None for their recorded source.
        local: As for :func:`lw2g.resume`.

    Raises:
        DataError: There is no such model, it is damaged, or its backbone is missing or a different one.
        ConfigError: The device does not exist.
    """
    file = None if weights is None else Path(weights)
    folder = folder_of(run)
    with importing_torch():
        from lw2g.model.saved import open_model

        # a run and an export say which plugins they need; others are not imported
        catalogue = catalogue_of(local, folder)
    model = open_model(folder, catalogue, task, device=device, batch_size=batch_size, weights=file)
    source = f"hf://{parsed_address(run)[0]}@{folder.name}" if is_hub_address(run) else fspath(run)
    return at_home(model, folder, source, {"device": device, "weights": weights, "local": local})


def at_home(model: TrainedModel, folder: Path, source: str, given: Mapping[str, Any]) -> TrainedModel:
    """Return a model that knows where it lies, so that its methods go on from there.

    Args:
        model: The model.
        folder: Its folder.
        source: What a user calls this place.
        given: What it was opened with: ``device``, ``weights`` and ``local``.
    """
    # the root names the functions of the products, which the core does not import
    from lw2g import learn, test, unlearn
    from lw2g.model.home import Home

    # one on the hub has to be copied first, which these functions say
    place = source if is_hub_address(source) else folder
    elsewhere = {name: value for name, value in given.items() if name != "device"}
    model.home = Home(
        source=source,
        folder=folder.absolute(),
        open=partial(load, folder.absolute(), **elsewhere),
        learn=partial(learn, place, **given),
        unlearn=partial(unlearn, place, **given),
        test=test,
    )
    return model


@expands_paths
def folder_of(model: str | Path) -> Path:
    """Return the folder of a model; of one on the hub, that of a copy in the cache of the hub's client.

    Raises:
        DataError: The hub does not give it.
    """
    if not is_hub_address(model):
        return Path(model)
    from lw2g import pull  # as above: a function of a product

    return pull(model)


@expands_paths
def predict(
    run: str | Path,
    images: str | Path | Sequence[str | Path],
    *,
    top_k: int = 1,
    task: int | None = None,
    device: str | None = None,
    batch_size: int | None = None,
    weights: str | Path | None = None,
    reject: float | None = None,
    boxes: str | Path | None = None,
    margin: float = 0.0,
    min_side: int = 0,
    square: bool = True,
    out: str | Path | None = None,
    local: Mapping[str, Any] | None = None,
) -> tuple[TrainedModel, list[dict[str, Any]]]:
    """Classify ``images``, files or folders, with a run or a model.

    ``hf://OWNER/NAME`` is a model on the hub.

    A model of stored features takes .npy files of vectors, or the test rows of files of stored features.

    Images that cannot be read get no answer, and the others do.

    Args:
        run: As for :func:`load`.
        images: The file or folder, or several; with ``boxes`` the one folder of their images.
        top_k: How many classes to name, the best first.
        task: As for :func:`load`.
        device: As for :func:`load`.
        batch_size: As for :func:`load`.
        weights: As for :func:`load`.
        reject: Call images unknown that are like no class. About this share of known images is called
            unknown, too (0.05: 5 %); strange images that look like a class mostly pass.
        boxes: Boxes in a file, or a folder, of COCO, YOLO, Pascal VOC or CSV: each is an image, PATH#NUMBER,
            cut out of one in the folder; their classes are not read.
        margin: With ``boxes``: the share of its sides that a box gets on each of them.
        min_side: With ``boxes``: leave boxes out that have a side of fewer pixels.
        square: With ``boxes``: whether the shorter side of each is made as long as the longer one.
        out: Write the boxes in the format of ``boxes`` with the class and its probability (``unknown`` where
            rejected) into this new file or folder.
        local: As for :func:`lw2g.resume`.

    Returns:
        The model, and its answers as :meth:`lw2g.model.trained.TrainedModel.predict` gives them in part.

    Raises:
        DataError: There is no such file or model, or no image can be read.
        ConfigError: The device does not exist, or the model cannot reject at this rate.
    """
    # refused before a model is loaded, which takes seconds; some of several have no answer, as damaged ones
    if isinstance(images, str | PathLike):
        images = [images]
    if not images:
        raise DataError("no image was given", "give at least one")
    _require_model_first(run, images)
    missing = [str(path) for path in images if not Path(path).exists()]
    if len(missing) == len(images):
        others = "".join(f", {path!r}" for path in missing[1:])
        raise DataError(f"{no_image(missing[0])}{others}", "check the paths")
    with importing_torch():
        from lw2g.api.box_answers import crops_of, require_place, write_answers

    require_place(images, boxes, out)
    folder = Path() if boxes is None else images[0]
    crops = crops_of(folder, boxes, margin=margin, min_side=min_side, square=square, named=False)
    model = load(run, task=task, device=device, batch_size=batch_size, weights=weights, local=local)
    if crops is None:
        return model, model.predict(images, top_k, reject, partial=True)
    crops.require_images(takes_vectors=model.backbone.takes_vectors)
    entries = model.predict(crops.crops, top_k, reject, partial=True)
    if out is not None:
        write_answers(crops, entries, model.known, Path(out))
    return model, entries


def takes_vectors(model: Path) -> bool:
    """Return whether an exported model is of stored features, and takes no images."""
    from lw2g.model.exported import read_manifest

    name = read_manifest(model).backbone.name
    return catalogue_of(None, model).get("backbone", name).fit_vectors is not None


def calibrating(
    model: TrainedModel, run: Path, *, task: int | None = None, weights: Path | None = None
) -> str:
    """Return the command that makes a run's model anew with calibrated probabilities.

    It is empty where they are or cannot be (:attr:`~lw2g.model.parts.ModelParts.can_be_calibrated`), of
    models that are no run, and where a task was chosen.

    Args:
        model: The model.
        run: Where it was opened.
        task: As for :func:`load`.
        weights: Likewise.
    """
    if task is not None or model.temperature is not None or not model.parts.can_be_calibrated:
        return ""
    if not (run / CONFIG).is_file():
        return ""
    moved = "" if weights is None else f" --weights {as_word(weights)}"
    return f"lw2g export {as_word(run)} MODEL --learnable{moved}"


def _require_model_first(model: str | Path, images: Sequence[str | Path]) -> None:
    """Refuse a model that stands behind the images.

    Raises:
        ConfigError: The first path is no model, and that of an image is.
    """
    behind = [str(path) for path in images if holds_model(Path(path))]
    if behind and not is_hub_address(model) and not holds_model(Path(model)):
        raise ConfigError(
            f"{str(model)!r} is no model and no run",
            f"the model comes first: lw2g.load({behind[0]!r}).predict({str(model)!r})",
        )


@expands_paths
def export(
    run: str | Path,
    out: str | Path,
    *,
    task: int | None = None,
    with_backbone: bool = False,
    weights: str | Path | None = None,
    learnable: bool = False,
    local: Mapping[str, Any] | None = None,
) -> int:
    """Write the model of the run in the directory ``run`` into the new folder ``out``.

    With ``with_backbone``, ``run`` may be a model itself: the new one has its frozen weights inside.

    ``lw2g predict`` and ``lw2g.load`` use ``out`` like a run, with the same predictions. They need neither
    the run nor its data, only the installed baseline, retrieval strategy and backbone: ``out`` contains no
    code.

    Args:
        run: The directory of the run, or of an exported model.
        out: The folder.
        task: The finished task, counted from 1, whose model to export; None for the newest.
        with_backbone: Whether to include the frozen weights, and not only their checksum.
        weights: The backbone's weights, if they have moved; None for their recorded source.
        learnable: Whether to keep features of up to 20 images a class (test images where features were
            trained), for the checks of ``lw2g learn``, probabilities and to tell unknown images; this reads
            the run's data.
        local: As for :func:`lw2g.resume`.

    Returns:
        The size of the export in bytes.

    Raises:
        DataError: There is no such run or task, or its data are gone.
        ConfigError: The folder is in use, or the run has no model to export; or there is a model already, and
            nothing to add to it.
    """
    from lw2g.model.exported import is_export
    from lw2g.model.exporting import export_run, with_backbone_inside
    from lw2g.model.learnable_export import export_learnable

    file = None if weights is None else Path(weights)
    catalogue = catalogue_of(local, run)
    if is_export(Path(run)):
        if not with_backbone or learnable or task is not None:
            raise ConfigError(
                f"{str(run)!r} holds an exported model and no run",
                "copy the folder, or give --with-backbone alone, which puts its backbone inside",
            )
        return with_backbone_inside(Path(run), catalogue, Path(out), weights=file)
    write = export_learnable if learnable else export_run
    return write(Path(run), catalogue, Path(out), task, with_backbone=with_backbone, weights=file)
