"""The functions of lw2g for models of photographs: start, learn, unlearn, test, teach.

Importing this module imports neither torch nor a component.
"""

from __future__ import annotations

import math
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lw2g.api.arguments import as_plain, backbone_as_typed
from lw2g.api.given_objects import Locals, catalogue_of
from lw2g.api.models import at_home, load
from lw2g.api.recorded import holds_model
from lw2g.config.directory import MANIFEST
from lw2g.config.unknown import require_backbone_name
from lw2g.errors import ConfigError, DataError, no_folder, shown
from lw2g.ground.hub_address import is_hub_address
from lw2g.ground.notes import tell_note
from lw2g.ground.spelling import expands_paths
from lw2g.interfaces.defaults import CHOSEN_HEAD
from lw2g.pixels.found_images import is_feature_file
from lw2g.registry.catalogue import load_catalogue
from lw2g.runtime.importing import importing_torch
from lw2g.runtime.telling import shown_to_programs
from lw2g_photos import step_reports
from lw2g_photos.folder_checks import require_classes, require_photos
from lw2g_photos.step_reports import StepReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lw2g.model.trained import TrainedModel
    from lw2g.pixels.pictures import ImageLike, Labelled
    from lw2g_photos.labelled_images import LabelledImages

__all__ = ["learn", "start", "teach", "test", "unlearn"]


@expands_paths
@shown_to_programs()
def start(
    folder: str | Path | Labelled,
    out: str | Path,
    *,
    backbone: Any = None,
    weights: str | Path | None = None,
    image_size: int | None = None,
    head: str = CHOSEN_HEAD,
    settings: Mapping[str, Any] | None = None,
    test: str | Path | Labelled | None = None,
    boxes: str | Path | None = None,
    margin: float = 0.0,
    min_side: int = 0,
    square: bool = True,
    device: str | None = None,
    local: Mapping[str, Any] | None = None,
) -> tuple[TrainedModel, StepReport]:
    """Make a model of your photos, ``folder``/CLASS/IMAGE. Twenty photos a class are a good beginning.

    A backbone, trained by others, turns each photo into numbers, and lw2g chooses a formula that learns the
    classes from these: the head. Nothing else is trained. For photos give ``vit-tiny`` as ``backbone``; the
    default, ``micro``, comes with lw2g and knows small drawings alone.

    ``folder`` may be a file of stored features (``lw2g data features``); then there is no backbone to name.
    Files that are no images are left out, and a note names them.

    From Python, what takes long is counted on stderr, unless the program has set up ``logging``.

    Args:
        folder: ``CLASS/IMAGE``, or a file of stored features. Or images in memory, with a name or a number
            for the class of each: ``(images, labels)``, a list of ``(image, label)``, or a torch data set of
            such pairs, without random transforms. An image is what :meth:`TrainedModel.predict` takes, but
            floats are from 0 to 1. ``test`` may be such, too.
        out: The model, a new folder.
        backbone: For photos vit-tiny (23 MB, fetched once); or any timm model; None for micro.
        weights: The backbone's weights; None for those that are fetched once.
        image_size: Side of its input in pixels; None for its own.
        head: With auto lda or ridge, on the last layer or on several: the smallest within a standard error
            of the best on images that are left out of its sums; or a head whose scores do not depend on how
            images are cut into tasks: lda, ridge, cosine, mahalanobis, or one of your own that declares
            ``exact``.
        settings: Options of the backbone and the head by their dotted keys, such as ``backbone.pool=avg``,
            ``baseline.head_features=0``.
        test: Images, CLASS/*, that check the result; None for a fifth of each class (at most 10 images,
            learned afterwards), if these are 50 or more together, else all images, each left out in turn.
        boxes: Boxes in a file, or a folder, of COCO, YOLO, Pascal VOC or CSV, instead of class folders: each
            is an image of its own class, cut out of one in ``folder``.
        margin: With ``boxes``: the share of its sides that a box gets on each of them.
        min_side: With ``boxes``: leave boxes out that have a side of fewer pixels.
        square: With ``boxes``: whether the shorter side of each is made as long as the longer one.
        device: cpu, cuda, cuda:N or mps; None for a GPU if present.
        local: As for :func:`lw2g.resume`.

    Returns:
        The model, and the report of :func:`learn`; with auto ``choice`` says what was tried, and
        ``training`` what training added on streams of about as many images a class (or None).

    Raises:
        DataError: The folder, an image or the weights cannot be used.
        ConfigError: A name is unknown, or ``out`` is in use.
    """
    if isinstance(folder, str | PathLike) and holds_model(Path(folder)):
        photos = repr(str(out)) if Path(out).is_dir() else "FOLDER"
        raise ConfigError(f"{str(folder)!r} is a model", f"lw2g.learn({str(folder)!r}, {photos})")
    if isinstance(folder, str | PathLike) and boxes is None:
        named = backbone if isinstance(backbone, str) else None
        require_photos(Path(folder), Path(out), backbone_as_typed({"name": named, "weights": weights}))
    if local is None:
        _require_backbone_name(backbone)
    with importing_torch():
        from lw2g.api.box_answers import crops_of
        from lw2g_photos.starting import start as begin

        objects = Locals.of(local)
        if backbone is not None and not isinstance(backbone, str):
            # as if it had been given there: so the model is opened again with it
            local = {**(local or {}), "backbone": backbone}
            backbone = objects.name("backbone", backbone)
        catalogue = objects.catalogue()
    crops = crops_of(_images_of_boxes(folder, boxes), boxes, margin=margin, min_side=min_side, square=square)
    model, report = begin(
        _source(folder),
        Path(out),
        catalogue,
        backbone=backbone,
        weights=_path(weights),
        image_size=image_size,
        head=head,
        settings=as_plain(settings),
        test=None if test is None else _source(test, "test: "),
        device=device,
        crops=crops,
    )
    return _at_home(model, report, weights, device, local), step_reports.learned(
        report, has_old_classes=False
    )


@expands_paths
@shown_to_programs()
def learn(
    model: str | PathLike[str],
    folder: str | Path | Labelled,
    out: str | Path | None = None,
    *,
    test: str | Path | Labelled | None = None,
    max_loss: float | None = None,
    boxes: str | Path | None = None,
    margin: float = 0.0,
    min_side: int = 0,
    square: bool = True,
    weights: str | Path | None = None,
    device: str | None = None,
    local: Mapping[str, Any] | None = None,
) -> tuple[TrainedModel, StepReport]:
    """Let ``model`` learn the images in ``folder``/CLASS; the result goes into a new folder.

    A known name adds images to that class, any other name is a new class. No old image is read. With most
    heads the result equals that of learning all images at once. A head that ``start`` chose is chosen again
    from all images so far, while these are few (with vit-tiny up to 4,096). A model of stored features learns
    from the training rows of a file of these (``test``: from its test rows).

    To train a run on new classes: ``lw2g continue RUN --benchmark folder``.

    Args:
        model: A model (of :func:`start`, or exported), which is not changed.
        folder: As for :func:`start`.
        out: The new folder; None for the next free MODEL-N.
        test: Images, CLASS/*, that check the result; None for a fifth of each class (at most 10 images,
            learned afterwards), if these are 50 or more together, else all images, each left out in turn.
        max_loss: Points of accuracy that the old classes may lose, measured or estimated, before the result
            is refused.
        boxes: As for :func:`start`.
        margin: As for :func:`start`.
        min_side: As for :func:`start`.
        square: As for :func:`start`.
        weights: The backbone's weights, if they have moved.
        device: cpu, cuda, cuda:N or mps; None for a GPU if present.
        local: As for :func:`lw2g.resume`.

    Returns:
        The new model, and the report as ``lw2g learn --json`` prints it; a prompt shows it in one line, and
        ``dict(report)`` whole. Shares are in percent, and what nothing tells is None:

        - ``out``, the folder, and ``seconds`` from reading images to the written model; ``learned_from``
          and ``tested_on``, the names of folders (the latter empty without ``test``);
        - ``classes``: of each its name (``class``), ``images``, whether it is ``new``, how many images of it
          were set apart or in ``test`` (``checked``), their ``recall``, what wrong ones are ``taken_for``;
        - ``accuracy`` that the command prints, with its ``interval`` (Wilson, 95 %), of so many images
          (``checked``): left out, or set apart (of which ``set_apart`` has the same). Where images were left
          out, ``checked`` is more than the sum over ``classes``, and ``left_out_classes`` has them by class;
        - ``near_copies``: how many of these ``images`` are ``near`` another of their class, as in a series;
        - ``left_out``: how many kept images were left out of the sums, one at a time; of them
          ``left_out_accuracy``, the ``temperature`` that calibrates probabilities, and their error ``ece``;
          ``left_out_classes``: of each class of the model how many were ``left_out``, their ``recall``, and
          what wrong ones are ``taken_for``, with counts;
        - ``old_classes``: how many of the old ``images``, each left out in turn, are found ``before`` the
          step (None if one class was known) and ``now``; ``loss`` in points; ``estimated_loss`` by Gaussians;
        - ``losing``: old classes of which more than 10 % (``loss``) of so many ``images`` go to new ones;
        - ``twins``: a ``class`` of the step and the one it is ``like``, of which ``error`` of ``images`` are
          confused; by Gaussians (``images`` is None) where none was left out;
        - ``choice`` where the head was chosen: what was ``tried``, and ``before`` if it was another;
        - ``unusable``: files that were left out, as they are no images; ``warnings``, a line each;
        - ``domains``: the warning that class folders look like domains, learned as classes; else empty.

    Raises:
        DataError: The model, the folder or an image cannot be used.
        ConfigError: The head cannot learn, ``out`` is in use, or the old classes lose too much.
    """
    if max_loss is not None and not 0 <= max_loss < math.inf:  # NaN is not, either
        raise ConfigError(f"--max-loss: expected points of accuracy from 0 but got {max_loss}", "such as 2.5")
    _require_model_first("learn", model, folder)
    if boxes is None:
        _require_classes_for(model, folder)
    with importing_torch():
        from lw2g.api.box_answers import crops_of
        from lw2g_photos.updating import learn as add

        catalogue = catalogue_of(local, Path(model))
    crops = crops_of(_images_of_boxes(folder, boxes), boxes, margin=margin, min_side=min_side, square=square)
    learned, report = add(
        Path(model),
        _source(folder),
        catalogue,
        out=_path(out),
        test=None if test is None else _source(test, "test: "),
        max_loss=max_loss,
        weights=_path(weights),
        device=device,
        crops=crops,
    )
    return _at_home(learned, report, weights, device, local), step_reports.learned(
        report, has_old_classes=True
    )


@expands_paths
def unlearn(
    model: str | PathLike[str],
    name: str | int | None = None,
    out: str | Path | None = None,
    *,
    last: bool = False,
    weights: str | Path | None = None,
    device: str | None = None,
    local: Mapping[str, Any] | None = None,
) -> tuple[TrainedModel, StepReport]:
    """Take back a class or the last step of ``model``, and write the result into a new folder.

    The new model has the same bits as if the class or step had never been learned, and a head that was chosen
    is chosen again. The numbers of other classes stay.

    Args:
        model: A model (of :func:`start`, or exported), which is not changed.
        name: The class, or its number where labels were numbers; None with ``last``.
        out: The new folder; None for the next free MODEL-N.
        last: Whether to take the last step of ``lw2g learn`` back.
        weights: The backbone's weights, if they have moved.
        device: cpu, cuda, cuda:N or mps; None for a GPU if present.
        local: As for :func:`lw2g.resume`.

    Returns:
        The new model, and what was forgotten, what of it may remain, and what the kept images say of the
        rest, each left out in turn: ``left_out_accuracy`` and its like, as :func:`learn` reports it.

    Raises:
        DataError: There is no such class or step.
        ConfigError: There is neither a class nor ``last``, or both; or the head's sums do not tell the class
            from others.
    """
    if (name is None) != last:
        what = "a class and last" if last else "neither a class nor last"
        raise ConfigError(f"unlearn: got {what}", "name a class, or give last=True for the last step")
    _require_model_first("unlearn", model, None)
    with importing_torch():
        from lw2g_photos.updating import unlearn as remove

        catalogue = catalogue_of(local, Path(model))
    reduced, report = remove(
        Path(model), name, catalogue, out=_path(out), weights=_path(weights), device=device
    )
    return _at_home(reduced, report, weights, device, local), step_reports.unlearned(report)


@expands_paths
@shown_to_programs()
def test(
    model: str | Path | TrainedModel,
    folder: str | Path | Labelled,
    *,
    strangers: str | Path | Sequence[ImageLike] | None = None,
    reject: float = 0.05,
    boxes: str | Path | None = None,
    margin: float = 0.0,
    min_side: int = 0,
    square: bool = True,
    device: str | None = None,
    weights: str | Path | None = None,
    local: Mapping[str, Any] | None = None,
) -> StepReport:
    """Classify the images in ``folder``/CLASS with the run or model ``model``, and count the right answers.

    Classes of the model may be missing in ``folder``. Copies of an image count once. From 200 images on there
    is the expected calibration error (ECE): how far probabilities are from shares of right answers.

    Args:
        model: The directory of the run or the export; or a model that is open, which stays where it is.
        folder: ``CLASS/IMAGE``, or images in memory as for :func:`start`, where ``strangers`` may be a list;
            for a model of stored features a file of these, whose test rows count.
        strangers: Images of classes that the model does not know, in and below a folder, or such a file:
            counts how many of them are called unknown.
        reject: With ``strangers``: about the share of known images that are called unknown; strange images
            that look like a class mostly pass.
        boxes: As for :func:`start`.
        margin: As for :func:`start`.
        min_side: As for :func:`start`.
        square: As for :func:`start`.
        device: cpu, cuda, cuda:N or mps; None for a GPU if present (of a run: its own).
        weights: The backbone's weights, if they have moved; None for their recorded source.
        local: As for :func:`lw2g.resume`.

    Returns:
        ``accuracy`` in percent over all ``images`` with its ``interval`` (Wilson, 95 %); how many of them the
        model is known to have ``learned``, by the features that it keeps; for each of ``classes`` its name,
        number of images, ``recall`` in percent and ``taken_for``, the wrong answers with their counts, most
        frequent first; whether probabilities are ``calibrated``, and their ``ece`` in percent (in 15 equal
        bins of the best class's probability the gap between share of right answers and mean probability,
        averaged over images), None below 200 images. With ``strangers`` their number of ``images``, and in
        percent how many of them are ``refused`` and how many of the known images (``known_refused``), at the
        rate ``reject``; and ``taken_for``.

    Raises:
        DataError: There is no such model, a folder's name is no class of it, a stranger's is one, or an image
            cannot be read.
        ConfigError: There are strangers, and the model cannot tell unknown images at this rate.
    """
    _require_model_first("test", model, folder)
    if boxes is None:
        _require_classes_for(model, folder)
    with importing_torch():
        from lw2g.api.box_answers import crops_of
        from lw2g_photos.scoring import score as count

    crops = crops_of(_images_of_boxes(folder, boxes), boxes, margin=margin, min_side=min_side, square=square)
    if isinstance(model, str | PathLike):
        opened = load(model, device=device, weights=weights, local=local)
    elif hasattr(model, "predict"):
        opened = model
    else:
        raise ConfigError(
            f"model: expected a folder or a model but got {shown(model)}", "lw2g.load opens one"
        )
    if isinstance(strangers, str):
        strangers = Path(strangers)
    return step_reports.tested(count(opened, _source(folder), strangers, reject, crops))


test.__test__ = False  # type: ignore[attr-defined]  # by its name pytest would take it for a test


@expands_paths
def teach(
    model: str | Path | None = None,
    *,
    backbone: str | None = None,
    port: int = 0,
    weights: str | Path | None = None,
    device: str | None = None,
    on_address: Callable[[str], None] = print,
) -> Path | None:
    """Serve a page on 127.0.0.1 that teaches ``model``, until Ctrl-C.

    Each step is what ``lw2g learn`` and ``lw2g unlearn`` do. A session leaves the models 1, 2, ... in the new
    folder MODEL-taught, the next in MODEL-taught-2; to go on later, give the one that it names at the end:
    from MODEL-taught/7 on, steps lie in MODEL-taught-2, too. ``model`` stays as it is. Without ``model`` the
    first images make one in model-taught, as ``lw2g start`` does.

    Args:
        model: Its folder, of :func:`start` or exported; None where the page makes the first model.
        backbone: That of a first model, without ``model``; such as vit-tiny.
        port: Port on 127.0.0.1; 0 for a free one.
        weights: The backbone's weights, if they have moved; None for their recorded source.
        device: cpu, cuda, cuda:N or mps; None for a GPU if present.
        on_address: Receives the page's address as soon as it is served.

    Returns:
        The folder of the model as it is at the end; None where none was made.

    Raises:
        DataError: The model or its weights cannot be used.
        ConfigError: The model's head is trained, the port cannot be had, or there is neither model nor
            backbone.
    """
    if not 0 <= port < 2**16:
        raise ConfigError(f"port: expected 0 to 65535 but got {port}", "0 takes a free one")
    _require_backbone_name(backbone)
    with importing_torch():
        from lw2g.disk.origins import made_with
        from lw2g_photos.classroom import Classroom
        from lw2g_photos.later_models import words_of_session
        from lw2g_photos.server import Server

    file = None if weights is None else Path(weights)
    directory = _path(model)
    catalogue = load_catalogue() if directory is None else load_catalogue(made_with=made_with(directory))
    classroom = Classroom(directory, catalogue, backbone=backbone, device=device, weights=file)
    if directory is not None and (ended := words_of_session(directory)):
        tell_note(ended)
    try:
        with Server(classroom, port) as server:
            on_address(server.address)
            server.until_interrupted()
    finally:  # SIGTERM, too, leaves no photo behind
        classroom.close()
    return classroom.newest


def _require_backbone_name(backbone: Any) -> None:
    """Refuse a mistyped name of a backbone before torch is imported; an object is no name.

    Raises:
        ConfigError: No backbone can have it.
    """
    if isinstance(backbone, str):
        require_backbone_name(backbone, load_catalogue())


def _require_model_first(function: str, model: Any, folder: Any) -> None:
    """Refuse a model that stands behind the images which the function is to look at.

    Raises:
        ConfigError: The first path is no model, and the second one is, or is an open one.
        DataError: There is nothing at the first one.
    """
    if not isinstance(model, str | PathLike) or holds_model(Path(model)):
        return
    call = ""
    if hasattr(folder, function):  # an open model
        call = f"model.{function}({str(model)!r})"
    elif isinstance(folder, str | PathLike) and holds_model(Path(folder)):
        call = f"lw2g.{function}({str(folder)!r}, {str(model)!r})"
    if call:
        raise ConfigError(f"{str(model)!r} is no model and no run", f"the model comes first: {call}")
    if not Path(model).exists() and not is_hub_address(model):  # before torch is imported
        kinds = "a run or a model" if function == "test" else "a model"
        raise DataError(no_folder(Path(model)), f"give the folder of {kinds}")


def _require_classes_for(model: Any, folder: Any) -> None:
    """Refuse a folder without classes for a model that is there, before torch is imported.

    Raises:
        DataError: It has none.
    """
    if not isinstance(folder, str | PathLike) or not isinstance(model, str | PathLike):
        return
    # of a run the command says first what makes a model of it
    if (Path(model) / MANIFEST).is_file() and not is_feature_file(Path(folder)):
        require_classes(Path(folder))


def _images_of_boxes(folder: Any, boxes: str | Path | None) -> str | Path:
    """Return the folder of the images of boxes.

    Raises:
        DataError: There are boxes, and the images are in memory.
    """
    if isinstance(folder, str | PathLike):
        return Path(folder)
    if boxes is not None:
        raise DataError("boxes: they are of images in a folder", "give the folder, or leave boxes out")
    return Path()


def _source(given: Any, where: str = "") -> Path | LabelledImages:
    """Return the path of a folder or a file, or labelled images; messages of these begin with ``where``."""
    from lw2g_photos.labelled_images import source_of

    return source_of(given, where)


def _path(given: str | Path | None) -> Path | None:
    if given is None:
        return None
    return Path(given)


def _at_home(
    model: TrainedModel,
    report: Mapping[str, Any],
    weights: str | Path | None,
    device: str | None,
    local: Mapping[str, Any] | None,
) -> TrainedModel:
    """Return a new model that knows the folder into which it was written."""
    given = {"device": device, "weights": weights, "local": local}
    return at_home(model, Path(report["out"]), report["out"], given)
