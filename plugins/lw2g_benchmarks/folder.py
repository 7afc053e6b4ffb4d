"""A benchmark from image folders, ``ROOT/train/<class>/*`` and ``ROOT/test/<class>/*``.

With ``test_share`` the root holds ``<class>/*``, and the test images are drawn from each class. Where tasks
are domains, these lie below a folder for each, ``ROOT/<domain>/train/<class>/*``. Otherwise several roots
merge into one stream, and an explicit class order can interleave them. Files are only read, never moved or
written.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs
import numpy as np

from lw2g.plugin import (
    ConfigError,
    Crop,
    Cutting,
    DataError,
    FoundImages,
    TaskStream,
    composed,
    counted,
    domains_below,
    find_classes,
    find_images,
    named_folders,
    nearest,
    no_folder,
    passed_over,
    read_crops,
    split_folder,
    splits_in,
)
from lw2g_benchmarks.folder_crops import SPLIT_FOLDERS, UNDRAWN, ClassFiles, crops_by_class
from lw2g_benchmarks.folder_roots import as_root, has_splits, holding_splits, lacking, layout_of
from lw2g_benchmarks.listed_images import IMAGES_OF, Examined, FileSource, ImageFile, file_of
from lw2g_benchmarks.options import FolderConfig
from lw2g_benchmarks.orders import ordered, unnamed
from lw2g_benchmarks.recurrence import sizes_of
from lw2g_benchmarks.tasks import LabelledImages, build_stream
from lw2g_benchmarks.transforms import ConfiguredTransforms

__all__ = ["FolderBenchmark"]

_Notes: TypeAlias = list[str]
"""What a user should know of the folders; whoever looks at one adds to it."""


@attrs.frozen
class FolderBenchmark(ConfiguredTransforms):
    """Image folders, by class or by domain."""

    config: FolderConfig

    def stream(self) -> TaskStream:
        """Scan the folders and return the task stream; raw labels count the sorted class names.

        Raises:
            ConfigError: If no root is set, the roots or the class order do not fit, or the split is uneven.
            DataError: If a root or split is missing, the splits hold different classes, or one is empty.
        """
        config = self.config
        domains = self._domains()
        draw = None
        if config.test_share is not None:
            draw = _Draw(config.test_share, config.split_seed)
        notes: _Notes = []
        drawn = draw is not None
        if domains:
            classes = _without(_by_domain(domains, notes, drawn=drawn), config.exclude)
            # a class of several domains is one class
            names = sorted({_class_of(key) for key in classes})
        else:
            classes = _without(self._classes(notes, drawn=drawn), config.exclude)
            names = sorted(classes)
        if draw is not None:  # from what is left
            for name, (root, files) in classes.items():
                classes[name] = (root, draw.split(root, name, files[UNDRAWN]))
        order = ordered(config, names, some=True)
        # Raw labels stay those of the full set, so that a subset keeps the numbers of its classes.
        limits = {"train": config.train_per_class, "test": config.test_per_class}
        deviations = []
        for split, limit in limits.items():
            if limit:
                deviations.append(f"{split} limited to the first {limit} images of each class")
        if draw is not None:
            deviations.append(f"test images are a share of {draw.share:g} of each class, drawn ({draw.seed})")
        if config.exclude:
            deviations.append(f"{counted(len(config.exclude), 'image')} excluded, first {config.exclude[0]}")
        if len(order) < len(names):
            deviations.append(f"{len(names) - len(order)} of {len(names)} classes left out")
            notes.append(f"class_order leaves out {unnamed(order, names)}")
        try:
            sizes = sizes_of(config, len(order))
        except ConfigError as error:
            # what was found may say why: classes are left out, or domains are in their place
            raise ConfigError("; ".join([*notes, error.what]), error.remedy) from error
        beside = Examined(config.exclude)
        return build_stream(
            name="folder",
            train=self._images("train", limits["train"], classes, names, order, tuple(domains), beside),
            test=self._images("test", limits["test"], classes, names, order, tuple(domains), beside),
            class_names=names,
            order=order,
            sizes=sizes,
            options=config,
            domains=tuple(domains),
            deviations=deviations,
            notes=notes,
        )

    def _classes(self, notes: _Notes, *, drawn: bool) -> dict[str, ClassFiles]:
        """Return the classes of all roots, or of a file of boxes.

        Raises:
            ConfigError: There are boxes and several roots, or options of boxes and none.
        """
        config = self.config
        cutting = Cutting(margin=config.margin, min_side=config.min_side, square=config.square)
        if config.boxes is None:
            cutting.require_default()
            return _merge(self._roots(), notes, drawn=drawn)
        if config.more_roots:
            raise ConfigError("benchmark.more_roots: boxes are of images below one root", "leave it out")
        (root,) = self._roots()
        crops = read_crops(config.boxes, root, cutting)
        notes += crops.notes
        return crops_by_class(root, zip(crops.crops, crops.names, strict=True), notes, drawn=drawn)

    def _roots(self) -> list[Path]:
        """Return the root folders; each gives its name to the ids of its images, so the names must differ."""
        if self.config.root is None:
            raise ConfigError(
                "benchmark 'folder' needs --set benchmark.root=ROOT",
                layout_of("ROOT", drawn=False)
                + ", or ROOT/<class>/<image> with --set benchmark.test_share=0.2",
            )
        roots = [self.config.root, *self.config.more_roots]
        counts = Counter(root.resolve().name for root in roots)
        repeated = [name for name, count in counts.items() if count > 1]
        if repeated:
            raise ConfigError(
                f"roots share the name {repeated[0]!r}", "give each root folder a name of its own"
            )
        return roots

    def _domains(self) -> dict[str, Path]:
        """Return the folder of each domain, in order; none where tasks are no domains.

        Raises:
            ConfigError: There are several roots, or a wanted domain is not there.
            DataError: The root is missing or holds no folders.
        """
        config = self.config
        if config.stream not in ("domains", "versatile"):
            if config.domain_order:
                raise ConfigError(
                    f"benchmark.domain_order: the stream {config.stream!r} has no domains",
                    "set benchmark.stream = 'domains' or 'versatile'",
                )
            return {}
        root = self._roots()[0]
        if config.more_roots:
            raise ConfigError("benchmark.more_roots: domains lie below one root", "leave more_roots out")
        if config.boxes is not None:
            raise ConfigError("benchmark.boxes: boxes have classes and no domains", "leave one of both out")
        layout = layout_of(f"{root}/<domain>", drawn=config.test_share is not None)
        if not root.is_dir():
            raise DataError(no_folder(root), layout)
        if has_splits(root) and not config.domain_order:
            raise DataError(
                f"{str(root)!r} holds train/ and test/, so it is one domain",
                f"{layout}; or leave benchmark.stream out",
            )
        there = {}
        for name, (folder, *twins) in named_folders(root).items():
            if twins:
                raise DataError(
                    f"two folders of {str(root)!r} are called {name!r} in two Unicode forms", "merge them"
                )
            there[name] = folder
        wanted = tuple(map(composed, config.domain_order or there))
        if not wanted:
            raise DataError(f"{str(root.absolute())!r} holds no domain", layout)
        for name in wanted:
            if name not in there:
                raise ConfigError(
                    f"benchmark.domain_order: no domain {name!r} in {str(root)!r}{nearest(name, there)}",
                    f"there are {', '.join(map(repr, there)) or 'none'}",
                )
        if len(set(wanted)) < len(wanted):
            raise ConfigError(f"benchmark.domain_order repeats one of {wanted}", "name each domain once")
        return {name: there[name] for name in wanted}

    def _images(
        self,
        split: str,
        limit: int | None,
        classes: Mapping[str, ClassFiles],
        names: list[str],
        order: tuple[int, ...],
        domains: tuple[str, ...],
        beside: Examined,
    ) -> LabelledImages:
        """Return the images of a split: by label, in a label by domain, in a domain by path.

        Args:
            split: ``train`` or ``test``.
            limit: At most so many images of each class, or of each class in a domain; None for all.
            classes: Root and files of each class, ``<class>`` or ``<domain>/<class>``.
            names: Class names by label.
            order: The labels in use.
            domains: Names of the domains in the wanted order; empty where the data has none.
            beside: The images with which they are examined.
        """
        paths: list[ImageFile] = []
        ids: list[str] = []
        labels: list[int] = []
        of_domain: list[int] = []
        # by label, whatever the order of classes: the images of two orders have the same numbers
        for label in sorted(order):
            name = names[label]
            keys = [f"{domain}/{name}" for domain in domains] if domains else [name]
            for number, key in enumerate(keys):
                if key not in classes:  # a domain need not have every class
                    continue
                root, files = classes[key]
                chosen = files[split][:limit]
                paths += chosen
                ids += _ids(root, chosen)
                labels += [label] * len(chosen)
                of_domain += [number] * len(chosen)
        source = FileSource(paths, ids, what=IMAGES_OF[split], beside=beside)
        numbers = np.array(labels, dtype=np.int64)
        if not domains:
            return LabelledImages(source=source, labels=numbers)
        return LabelledImages(source=source, labels=numbers, domain=np.array(of_domain, dtype=np.int64))


def _ids(root: Path, images: Iterable[ImageFile]) -> list[str]:
    name = root.resolve().name
    ids = []
    for image in images:
        box = f"#{image.number}" if isinstance(image, Crop) else ""
        ids.append(f"{name}/{file_of(image).relative_to(root).as_posix()}{box}")
    return ids


def _without(classes: Mapping[str, ClassFiles], exclude: tuple[str, ...]) -> dict[str, ClassFiles]:
    """Return the classes without the images of the given ids.

    Raises:
        ConfigError: If there is no image of an id, or a class has none left.
    """
    if not exclude:
        return dict(classes)
    left_out = set(map(composed, exclude))
    known: set[str] = set()
    kept: dict[str, ClassFiles] = {}
    for name, (root, splits) in classes.items():
        files = {}
        for split, paths in splits.items():
            ids = tuple(map(composed, _ids(root, paths)))
            known.update(ids)
            files[split] = tuple(
                path for image, path in zip(ids, paths, strict=True) if image not in left_out
            )
            if not files[split]:
                which = "image" if split == UNDRAWN else f"{split} image"
                raise ConfigError(
                    f"benchmark.exclude leaves no {which} of class {name!r}",
                    "keep one, or leave the class out with benchmark.class_order",
                )
        kept[name] = (root, files)
    unknown = sorted(left_out - known)
    if unknown:
        # near names are sought letter by letter, so among the few images of the same file name
        name = Path(unknown[0]).name
        alike = [image for image in sorted(known) if image.endswith(name)][:1000]
        raise ConfigError(
            f"benchmark.exclude names {len(unknown)} unknown images, first "
            f"{unknown[0]!r}{nearest(unknown[0], alike)}",
            f"write them like {min(known)!r}",
        )
    return kept


@attrs.frozen
class _Draw:
    """How test images are drawn from class folders that have no train/ and test/."""

    share: float
    seed: int

    def split(self, root: Path, name: str, images: Sequence[ImageFile]) -> dict[str, tuple[ImageFile, ...]]:
        """Return training and test images of a class, at least one of each.

        A path decides where its image goes, so that a new class or image moves hardly any other; boxes of one
        image go the same way.

        Raises:
            DataError: The class has one image.
        """
        by_file: dict[Path, list[ImageFile]] = {}
        for image in images:
            by_file.setdefault(file_of(image), []).append(image)
        if len(by_file) < 2:
            raise DataError(
                f"class {name!r} has one image, and benchmark.test_share needs two: one to test with",
                "add images, or remove the folder",
            )

        def place(path: Path) -> bytes:
            text = f"{self.seed}/{composed(path.relative_to(root).as_posix())}"
            # surrogateescape: the name of a file need not be UTF-8
            return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()

        # the share of a small class rounds to none or to all of it
        count = min(max(round(self.share * len(images)), 1), len(images) - 1)
        drawn: set[Path] = set()
        num_drawn = 0
        for file in sorted(by_file, key=place)[:-1]:
            if num_drawn >= count:
                break
            drawn.add(file)
            num_drawn += len(by_file[file])
        splits: dict[str, list[ImageFile]] = {"train": [], "test": []}
        for image in images:
            splits["test" if file_of(image) in drawn else "train"].append(image)
        return {"train": tuple(splits["train"]), "test": tuple(splits["test"])}


def _scan_root(root: Path, notes: _Notes, *, drawn: bool) -> dict[str, ClassFiles]:
    """Return class name -> files of one root.

    Raises:
        DataError: See FolderBenchmark.stream.
    """
    if not root.is_dir():
        raise DataError(no_folder(root), layout_of(root, drawn=drawn))
    folders = {split: split_folder(root, split) for split in SPLIT_FOLDERS}
    missing = [split for split, folder in folders.items() if not folder.is_dir()]
    if drawn:
        if not missing:
            raise DataError(
                f"{str(root.absolute())!r} has train/ and test/, so there is nothing to draw",
                "leave benchmark.test_share out",
            )
        if splits := splits_in(root):
            raise holding_splits(splits, f"{str(root.absolute())!r}")
        classes: dict[str, ClassFiles] = {}
        found = find_classes(root)
        _note(found, root, "", notes)
        for name, images in found.items():
            classes[name] = (root, {UNDRAWN: images.paths})
        return classes
    if missing:
        raise lacking(root, missing)
    train = find_classes(folders["train"])
    test = find_classes(folders["test"])
    differing = sorted(train.keys() ^ test.keys())
    if differing:
        raise DataError(
            f"train and test of {str(root)!r} hold different classes: {len(train)} in train, "
            f"{len(test)} in test, in one only {differing[:5]!r}",
            "make the class folders match",
        )
    _note(train, root, "train/", notes)
    _note(test, root, "test/", notes, domains=False)
    scanned: dict[str, ClassFiles] = {}
    for name in train:
        scanned[name] = (root, {"train": train[name].paths, "test": test[name].paths})
    return scanned


def _note(
    classes: Mapping[str, FoundImages], root: Path, split: str, notes: _Notes, *, domains: bool = True
) -> None:
    """Add what a user should know of class folders to the notes.

    Args:
        classes: What was found.
        root: Where.
        split: The folder of the split, as it is written behind the root; empty for none.
        notes: The notes.
        domains: Whether to say so if the classes look like domains.
    """
    left_out = passed_over(classes.values())
    if left_out:
        notes.append(f"{root.name}/{split}: {left_out}")
    found = domains_below(classes) if domains else None
    if found is None:
        return
    one = as_root(found.first)
    every = "--set benchmark.stream=domains"
    if split:  # else the root is theirs, and the images to test are drawn already
        one += found.drawing
        every = f"{as_root(found.first.parent)} {found.options}"
    notes.append(f"{found}: if so, {every}, or for one of them {one}")


def _merge(roots: list[Path], notes: _Notes, *, drawn: bool) -> dict[str, ClassFiles]:
    """Return the classes of all roots; names found in several roots get the root's name in front."""
    scans = {}
    counts: Counter[str] = Counter()
    for root in roots:
        scan = _scan_root(root, notes, drawn=drawn)
        scans[root.resolve().name] = scan
        counts.update(scan.keys())
    merged: dict[str, ClassFiles] = {}
    for prefix, scan in scans.items():
        for name, files in scan.items():
            # nobody has said that two classes of one name are one class
            key = f"{prefix}/{name}" if counts[name] > 1 else name
            merged[key] = files
    return merged


def _by_domain(domains: Mapping[str, Path], notes: _Notes, *, drawn: bool) -> dict[str, ClassFiles]:
    """Return the classes of all domains as ``<domain>/<class>``."""
    classes: dict[str, ClassFiles] = {}
    for domain, root in domains.items():
        if not has_splits(root) and find_images(root).subfolders.keys() == {""}:
            raise DataError(
                f"{str(root.absolute())!r} holds images alone, as a class does",
                "if these folders are classes, leave benchmark.stream out",
            )
        for name, files in _scan_root(root, notes, drawn=drawn).items():
            classes[f"{domain}/{name}"] = files
    return classes


def _class_of(key: str) -> str:
    """Return the class of ``<domain>/<class>``."""
    return key.partition("/")[2]
