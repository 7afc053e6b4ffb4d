"""A model that is taught from a page: where it is now, and what learning, trying and undoing do to it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from lw2g.api.recorded import words_of_change
from lw2g.cli.shared_options import can_reject
from lw2g.errors import ConfigError, DataError, Lw2gError, counted, shown
from lw2g.ground.notes import tell_note
from lw2g.ground.spelling import composed
from lw2g.model.exported import Saved, read_export
from lw2g.model.left_out import calibration_of
from lw2g.model.live import live_model
from lw2g.model.places import is_left_behind, leave_unmade
from lw2g.model.rejection import TooFewImages
from lw2g.model.solved import solved_of
from lw2g.model.trained import TrainedModel
from lw2g.pixels.found_images import OF_A_SYSTEM, image_endings, ways_out
from lw2g.registry.catalogue import Catalogue
from lw2g.results.leading_check import LeadingCheck, leading_check
from lw2g_photos.class_folders import OTHER_FILES
from lw2g_photos.later_models import session_of, sessions_like
from lw2g_photos.starting import require_backbone, start
from lw2g_photos.step_checks import GO_BACK, NEW_NUMBER, TEACH_ANOTHER, UNLEARN_FIRST
from lw2g_photos.step_words import as_typed, old_classes_words, words_of_near_copies
from lw2g_photos.updating import learn, unlearn
from lw2g_photos.uploads import Content, Upload

__all__ = ["MOST_BYTES", "MOST_FILES", "Busy", "Classroom"]

MOST_BYTES = 100 * 2**20
"""The most bytes of an upload."""
MOST_FILES = 500
"""The most files of an upload."""
_CHUNK = 2**20
"""Bytes that are written at once."""
_TOP = 5
"""Classes that are shown for an image."""
_PAGE = "lw2g teach"
"""What a step names as the folder of what was sent."""
_NEW = "model"
"""What the first model of a session without one is called after."""
_RATES = (0.01, 0.05, 0.1)
"""Shares of known images that may be called unknown, as the page offers them."""
_NO_CLASS = "the model knows no class yet"
_TEACH_ONE = "teach it one: drop a folder of images"
_ONE_CLASS = "Unknown images can be told from two classes on: drop a folder of another class."
_ON_PAGE = {
    TEACH_ANOTHER: "drop a folder of another class",
    UNLEARN_FIRST: "forget the class first (its ×)",
    GO_BACK: "undo the last step",
    OTHER_FILES: "choose other images",
    NEW_NUMBER: " before",
}
"""What the page calls that which a terminal has commands for."""
_NOTHING: dict[str, Any] = {
    "folder": "no model yet: the first class makes one",
    "classes": [],
    "steps": 0,
    "undo": False,
    "forgot": False,
    "anew": False,
    "check": None,
    "total": "",
    "told": "",
    "cost": "",
    "confusion": None,
    "use": "",
    "rates": {},
}
"""What the page shows before there is a model."""


class Busy(Lw2gError):
    """A step is being made."""


class Classroom:
    """A model that is taught step by step.

    The steps of a session are the models ``1``, ``2``, ... in one folder next to the first model,
    ``MODEL-taught`` or the next, ``MODEL-taught-2``. The first step makes the folder. Without a model it
    makes the first one, too, in ``model-taught``.

    Args:
        directory: The exported model; None where the first step makes one.
        catalogue: Where its components come from.
        backbone: Of the first model; None where there is one.
        options: ``device`` and ``weights`` of :func:`lw2g.load`.

    Raises:
        DataError: There is no such model, or the weights of the backbone cannot be had.
        ConfigError: It cannot learn; there is neither model nor backbone, or both.
    """

    def __init__(
        self, directory: Path | None, catalogue: Catalogue, *, backbone: str | None = None, **options: Any
    ) -> None:
        self._directory = directory
        self._catalogue = catalogue
        self._backbone = backbone
        self._options: dict[str, Any] = {"device": None, "weights": None, **options}
        self._step = Lock()  # one step at a time changes the model
        self._forward = Lock()  # one image at a time passes through it
        self._writing = Lock()  # nothing is written while what was sent is being removed
        self._closed = False
        self._doing: tuple[str, float] | None = None
        self._session = session_of(Path(_NEW) if directory is None else directory)
        self._steps = 0
        self._has_session = False
        # of each step of the session the model to go back to; None of one that learned, which is unlearned
        self._left: list[Path | None] = []
        self._model: TrainedModel | None = None
        self._shown = dict(_NOTHING)
        if directory is not None:
            if backbone is not None:
                raise ConfigError("backbone: the model has one", "leave it out, or leave the model out")
            saved = read_export(directory, whole=True)
            model = live_model(saved, catalogue, **options)
            solved_of(model.parts)  # what cannot learn is refused before anything is made
            if model.backbone.takes_vectors:
                raise ConfigError(
                    f"{str(directory)!r} is on stored features, and the page teaches images",
                    "teach it by a file of such: lw2g learn MODEL FILE",
                )
            self._take(directory, saved, model, report=None)
        elif backbone is None:
            raise ConfigError(
                "without a model the page makes one, on a backbone",
                "name it, as in --backbone vit-tiny (23 MB)",
            )
        else:
            require_backbone(catalogue, backbone, **self._options)
        # last: what is refused above leaves no folder behind
        self._received = TemporaryDirectory(prefix="lw2g-", ignore_cleanup_errors=True)

    @property
    def newest(self) -> Path | None:
        """The folder of the model as it is now: every step has one of its own; None where there is none."""
        return None if self._directory is None else self._directory.absolute()

    def state(self) -> dict[str, Any]:
        """Return all that the page shows."""
        busy = None
        doing = self._doing  # read once: another thread may end it in between
        if doing is not None:
            what, began = doing
            busy = {"what": what, "seconds": round(time.monotonic() - began)}
        limits = {
            "bytes": MOST_BYTES,
            "files": MOST_FILES,
            "extensions": sorted(image_endings()),
            "ways": ways_out(),
            "hidden": sorted(OF_A_SYSTEM),
        }
        return self._shown | {"busy": busy, "limits": limits}

    def learn(self, uploads: Sequence[Upload], content: Content) -> None:
        """Learn from files whose bytes follow each other.

        Raises:
            DataError: A file or a name cannot be used.
            Busy: Another step is being made.
        """
        if self._step.locked():  # it need not be sent in vain
            raise _busy()
        with TemporaryDirectory(dir=self._received.name) as made:
            root = Path(made) / _PAGE
            names = {}
            for number, upload in enumerate(uploads):
                path = upload.below(root) / f"{number:04d}{upload.ending}"
                path.parent.mkdir(parents=True, exist_ok=True)
                self._save(content, path, upload.size)
                names[str(path)] = shown("/".join([*upload.folders, upload.name]))
            names[str(root)] = "the folder"
            with self._busy(f"learning from {counted(len(uploads), 'image')}"), _named(names):
                with self._next() as out:
                    model, report = self._learned(root, out)
                said = [_as_sent(warning, names) for warning in report["warnings"]]
                if changed := words_of_change(report.get("choice", {})):
                    said.append(changed)
                self._left.append(None)
                self._take(out, read_export(out, whole=True), model, report | {"warnings": said})

    def undo(self, at: str = "") -> None:
        """Take the last step back: learning by a new model, forgetting by going back to the model before.

        Args:
            at: The folder of the model that whoever asks has before their eyes; empty where nobody says.

        Raises:
            DataError: There is none.
            Busy: Another step is being made, or was made since.
        """
        with self._busy("undoing the last step"):
            self._require_seen(at)
            before = self._left[-1] if self._left else None
            if before is None:
                self._unlearn(None)
                return
            saved = read_export(before, whole=True)
            model = live_model(saved, self._catalogue, **self._options)
            self._left.pop()
            self._take(before, saved, model, report=None)

    def forget(self, name: str, at: str = "") -> None:
        """Take a class back, whichever step it came with.

        Args:
            name: The class.
            at: As for :meth:`undo`.

        Raises:
            DataError: There is none of this name.
            ConfigError: The head's sums do not tell it from others, or it is the only one.
            Busy: Another step is being made, or was made since.
        """
        with self._busy(f"forgetting {name}"):
            self._require_seen(at)
            self._unlearn(composed(name))

    def _require_seen(self, at: str) -> None:
        """Refuse to take back what somebody has not seen: another window may have gone on.

        Raises:
            Busy: The model is another one by now.
        """
        if at not in ("", self._shown["folder"]):
            raise Busy("another window has changed the model", "look at it as it is now, and ask again")

    def _learned(self, folder: Path, out: Path) -> tuple[TrainedModel, dict[str, Any]]:
        """Return the model that has learned from a folder, and the report; without a model the first one."""
        if self._directory is None:
            return start(folder, out, self._catalogue, backbone=self._backbone, **self._options)
        return learn(self._directory, folder, self._catalogue, out=out, **self._options)

    def _unlearn(self, name: str | None) -> None:
        """Take a class back, or the last step."""
        if self._directory is None:
            raise DataError(_NO_CLASS, _TEACH_ONE)
        with self._next() as out:
            model, _ = unlearn(self._directory, name, self._catalogue, out=out, **self._options)
        if name is not None:
            self._left.append(self._directory)
        elif self._left:
            self._left.pop()
        self._take(out, read_export(out, whole=True), model, None, forgotten=name)

    def predict(self, upload: Upload, content: Content, reject: float) -> dict[str, Any]:
        """Return what ``lw2g predict --json`` says of an image.

        Raises:
            DataError: It is no image.
        """
        # received before the model is asked for: an upload that drips keeps nobody else waiting
        with TemporaryDirectory(dir=self._received.name) as made:
            path = Path(made) / f"image{upload.ending}"
            self._save(content, path, upload.size)
            with self._forward, _named({str(path): shown(upload.name)}):
                model = self._model
                if model is None:
                    raise DataError(_NO_CLASS, _TEACH_ONE)
                try:
                    answer = model.predict(path, _TOP, reject)[0]
                except ConfigError:  # it takes all as known; the page says why beside the rate
                    answer = model.predict(path, _TOP)[0]
        return answer | {"name": upload.name, "path": upload.name}

    def close(self) -> None:
        """Wait until the step that is being made has ended, begin none any more, and remove what was sent.

        Whoever does not wait for the step leaves nothing of it behind.
        """
        with self._writing:
            self._closed = True
        doing = self._doing
        try:
            # within the block: whoever has read this may press Ctrl-C before the next line
            if doing is not None:
                once_more = "Ctrl-C once more leaves the step out"
                tell_note(f"{doing[0]}: the page ends when this is done; {once_more}")
            self._step.acquire()
            self._forward.acquire()
        except BaseException:  # Ctrl-C once more, or another signal that ends the process
            leave_unmade(self._session)
            self._leave_session()
            raise
        finally:
            self._received.cleanup()

    @contextmanager
    def _busy(self, what: str) -> Iterator[None]:
        """Hold the model for one step within the context; refuse if another step holds it."""
        if not self._step.acquire(blocking=False):
            raise _busy()
        try:
            self._doing = (what, time.monotonic())
            yield
        finally:
            self._doing = None
            self._step.release()

    @contextmanager
    def _next(self) -> Iterator[Path]:
        """Yield the folder of the next step; the session's folder goes if its first step fails."""
        if not self._has_session:
            self._session = _made(self._session)
        try:
            yield self._session / str(self._steps + 1)
        except BaseException:
            self._leave_session()
            raise
        self._has_session = True
        self._steps += 1

    def _leave_session(self) -> None:
        """Remove the session's folder if no step lies in it."""
        if not self._has_session:
            with suppress(OSError):  # not made yet, or not empty
                self._session.rmdir()

    def _save(self, content: Content, path: Path, size: int) -> None:
        """Write the next bytes that are sent into a file.

        Raises:
            DataError: There are fewer.
            Busy: The page is closed.
        """
        with path.open("wb") as file:
            while size > 0:
                part = content.read(min(size, _CHUNK))
                if not part:
                    raise DataError("the upload ended early", "send it again")
                with self._writing:  # nothing is written once what was sent is being removed
                    if self._closed:
                        raise Busy("the page is closed", "start lw2g teach again")
                    file.write(part)
                size -= len(part)

    def _take(
        self,
        directory: Path,
        saved: Saved,
        model: TrainedModel,
        report: Mapping[str, Any] | None,
        forgotten: str | None = None,
    ) -> None:
        """Go on with another model, and compute what the page shows of it.

        Args:
            directory: Where it lies.
            saved: What lies there.
            model: The same, as it computes.
            report: Of the step that made it; None where it was not learned just now.
            forgotten: The class that was taken back just now, if one was.
        """
        manifest = saved.manifest
        names = manifest.class_map.target_names
        solved = solved_of(model.parts)
        images = [0] * len(names)
        for entry in manifest.class_map:
            images[entry.target] += int(solved.head.count[entry.position])
        classes = [{"name": name, "images": count} for name, count in zip(names, images, strict=True)]
        measures = calibration_of(solved, saved)[1]
        wrong = measures["wrong"]
        steps = manifest.history.steps
        check = report
        forgot = bool(forgotten)
        if not report and steps:  # none was made just now
            check = {"classes": []} | steps[-1].checks
            forgot = forgot or "forgotten_since" in steps[-1].checks
        total = ""
        lead = None
        if check:
            lead = leading_check({**check, **measures}, has_old_classes=len(steps) > 1)
        if check and lead is not None:
            # of what is known now: a class may have been forgotten since
            total = lead.words
            rows = check["classes"]
            # after a class is forgotten all are asked again, not those of the last step alone
            if forgot and lead.leaves_out:
                rows = [{"class": one["name"], "images": one["images"], "new": False} for one in classes]
            check = {**check, "classes": _as_told(rows, lead)}
        cost = ""
        has_old_classes = len(manifest.tasks) > 1 and len(names) > 1
        # an earlier lw2g has not noted how many were found before
        if check and "old_classes" in check and has_old_classes and not forgot:
            cost = old_classes_words(check["old_classes"], check["estimated_loss"])
        place = as_typed(str(directory.absolute()))
        told = ""
        series = words_of_near_copies(check.get("near_copies"), place) if check else ""
        if lead is not None and not lead.knows_one_class:
            doubt = ", with a series (see the last check)" if series else ""
            told = f"accuracy {lead.in_short.partition(' (95 %')[0]}{doubt}"
        if check and series and not report:
            check = {**check, "warnings": [series]}
        if check and forgotten:
            before = self._shown["folder"]
            still = f"{before} still knows {forgotten}: to go back to it, undo the last step"
            check = {**check, "warnings": [still, *check.get("warnings", ())]}
        goes_back = bool(self._left) and self._left[-1] is not None
        self._directory = directory
        self._model = model
        self._shown = {
            "folder": place,
            "classes": classes,
            "steps": len(steps),
            # where a class was forgotten before, the last step that learned would go, which nobody expects
            "undo": goes_back or (len(steps) > 0 and len(manifest.tasks) > 1 and not forgot),
            "forgot": forgot,
            # images that were set apart were asked when the step was learned, those left out just now
            "anew": lead is not None and lead.leaves_out,
            "check": check,
            "total": total,
            "told": told,
            "cost": cost,
            "confusion": None if wrong is None else wrong.int().tolist(),
            "use": f"In a terminal: lw2g predict {shlex.quote(place)} PHOTO",
            "rates": {str(rate): _why_none_is_unknown(model, rate) for rate in _RATES},
        }


def _why_none_is_unknown(model: TrainedModel, rate: float) -> str:
    """Return why a model calls no image unknown at a rate; empty where it calls some so."""
    if len(model.known) == 1:
        return _ONE_CLASS
    try:
        model.threshold(rate)
    except TooFewImages as few:
        which = f"Too few images to call any unknown at {100 * rate:g} %"
        higher = [f"choose {100 * other:g} %, or " for other in _RATES if can_reject(model, other)]
        remedy = f"{higher[0] if higher else ''}teach more"
        return f"{which}: {few.images} of the {few.needed} needed; {remedy}"
    except ConfigError as error:
        return _as_sent(str(error), {})
    return ""


def _as_told(entries: Sequence[Mapping[str, Any]], lead: LeadingCheck) -> list[dict[str, Any]]:
    """Return what a step reports of its classes, by the images of which the accuracy is told."""
    asked = {row.name: row for row in lead.classes}
    told = []
    for entry in entries:
        row = asked.get(entry["class"])
        found = (
            {} if row is None else {"checked": row.images, "recall": row.found, "taken_for": row.taken_for}
        )
        told.append({**entry, **found})
    return told


def _made(folder: Path) -> Path:
    """Make a folder, or the next one with a number after its name, and return it.

    The number is above all others, as the last session is found by it. One in which a killed process was
    making its first step is free.
    """
    while True:
        others = sessions_like(folder)
        for other in others.values():
            if is_left_behind(other):
                return other
        made = folder.with_name(f"{folder.name}-{max(others) + 1}") if others else folder
        with suppress(FileExistsError):  # another process may have made it just now
            made.mkdir()
            return made


def _busy() -> Busy:
    return Busy("the model is learning", "wait until it is done")


@contextmanager
def _named(names: Mapping[str, str]) -> Iterator[None]:
    """Tell of an error in the words of the page."""
    try:
        yield
    except Lw2gError as error:
        raise type(error)(_as_sent(error.what, names), _as_sent(error.remedy, names)) from error


def _as_sent(text: str, names: Mapping[str, str]) -> str:
    """Return a text in the words of the page, which tells of files by the names that they were sent under."""
    for in_terminal, on_page in _ON_PAGE.items():
        text = text.replace(in_terminal, on_page)
    for path, name in names.items():
        text = text.replace(repr(path), name).replace(f"{path}/", "")
    return text
