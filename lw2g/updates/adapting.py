"""Learning that trains: a copy of a run goes on with a folder of new classes, as any run goes on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from lw2g.config.directory import LOCK
from lw2g.config.model import Chosen
from lw2g.config.resolve import load_resolved
from lw2g.config.sources import resolve_source
from lw2g.errors import ConfigError, DataError
from lw2g.files.checkpoint import CheckpointStore
from lw2g.files.record import RunDirectory
from lw2g.models.class_folders import ClassImages, read_class_folders
from lw2g.models.exported import is_export
from lw2g.models.places import part_of, require_free, reserved
from lw2g.registry.catalogue import Catalogue

__all__ = ["taken_over"]


def taken_over(
    directory: Path, folder: Path, catalogue: Catalogue, out: Path, test: Path | None = None
) -> Chosen:
    """Copy a run into a new folder, with links to new images, and return the benchmark that it goes on with.

    Args:
        directory: The run, which stays as it is.
        folder: ``CLASS/IMAGE``, new classes alone.
        catalogue: Where components come from.
        out: The new run's directory.
        test: Images of the same classes to evaluate with; None for a fifth of the new ones, which are not
            trained on then.

    Raises:
        ConfigError: It is an export, its head does not carry its sums, or ``out`` is in use.
        DataError: There is no such run, or a folder or an image cannot be used.
    """
    if is_export(directory):
        raise ConfigError(
            f"adapt: the export {str(directory)!r} lacks what training needs",
            f"name the run that it was taken from: lw2g learn RUN {folder} --adapt",
        )
    require_free(out)
    files = RunDirectory(directory)
    files.require_run()
    options = load_resolved(files.config, catalogue).config.baseline.config
    if getattr(options, "head", "trained") == "trained" or getattr(options, "head_carry", "none") == "none":
        raise ConfigError(
            "adapt: the run does not carry the sums of old classes, whose features training moves",
            "use a run with baseline.head=lda and baseline.head_carry=affine",
        )
    newest, _ = CheckpointStore(files.checkpoints).newest()
    ledger = {} if newest is None else newest.ledger
    known = {name for task in ledger.get("tasks", ()) for name in task["class_names"]}
    splits = _splits(read_class_folders(folder), None if test is None else read_class_folders(test))
    if taken := sorted(known & splits["train"].keys()):
        raise DataError(f"adapt: the run knows class {taken[0]!r}", "give images of new classes alone")
    if len(splits["train"]) == 1:
        raise DataError(
            "adapt: a loss over one class teaches nothing",
            "give two new classes or more, or learn without --adapt",
        )
    images = f"images-{len(known)}"
    with reserved(out):
        _copy(directory, out, images, splits)
    given = {"benchmark.root": str(out.absolute() / images), "benchmark.increment": len(splits["train"])}
    return resolve_source(catalogue, "folder", given)


def _copy(
    directory: Path, out: Path, images: str, splits: Mapping[str, Mapping[str, Sequence[Path]]]
) -> None:
    """Copy a run with links to images, ``IMAGES/SPLIT/CLASS``; the copy is either whole or not there."""
    made = part_of(out)
    try:
        shutil.copytree(directory, made, symlinks=True, ignore=shutil.ignore_patterns(LOCK))
        for split, classes in splits.items():
            for name, paths in classes.items():
                place = made / images / split / name
                place.mkdir(parents=True)
                for number, path in enumerate(paths):
                    (place / f"{number:06d}{path.suffix}").symlink_to(path.absolute())
        made.rename(out)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _splits(
    images: dict[str, ClassImages], tested: dict[str, ClassImages] | None
) -> dict[str, dict[str, list[Path]]]:
    """Return the files of each class to train on and to evaluate with.

    Raises:
        DataError: A class has none to evaluate with.
    """
    train = {name: [*one.paths] for name, one in images.items()}
    test = {name: [*one.paths] for name, one in (tested or {}).items()}
    if tested is None:
        for name, one in images.items():
            apart = [*zip(one.paths, one.held_out, strict=True)]
            train[name] = [path for path, held in apart if not held]
            test[name] = [path for path, held in apart if held]
    every = train.keys() | test.keys()
    if lacking := sorted(name for name in every if not (train.get(name) and test.get(name))):
        raise DataError(
            f"adapt: class {lacking[0]!r} lacks images to train on or to evaluate with",
            "give 5 images or more of each class, or the same classes in --test",
        )
    return {"train": train, "test": test}
