"""Published data sets, on tiny trees of the same layouts."""

from __future__ import annotations

import hashlib
from pathlib import Path

import attrs
import pytest
import torch
from PIL import Image

from lw2g.config.structure import structure
from lw2g.errors import DataError
from lw2g.interfaces.dataset import ROOT_VARIABLE, HubRoute, RemoteFile, Split
from lw2g_benchmarks.data_set_facts import DATA_SETS
from lw2g_benchmarks.listings import file_list_sha256, from_lists
from lw2g_benchmarks.options import published_config
from lw2g_benchmarks.published import PublishedBenchmark
from lw2g_testing import contract_cases

CLASSES = ("n01", "n02", "n03")


def paint(path: Path) -> None:
    """Write a tiny image whose content depends on its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2), tuple(hashlib.sha256(path.name.encode()).digest()[:3])).save(path)


def small(name, **splits):
    """Return the facts of a data set, cut down to three classes and the given splits."""
    return attrs.evolve(DATA_SETS[name], num_classes=3, splits=splits)


def stream(data, root, **options):
    """Return the stream, one class a task."""
    return PublishedBenchmark(published_config(data, 1)(root=root, **options)).stream()


def ids(made, split):
    """Return all sample ids of a split, sorted."""
    return sorted(one for task in made.tasks for one in getattr(task, split).ids)


@pytest.fixture
def flat(tmp_path):
    """Three classes of five images, without a split; returns the root."""
    for name in CLASSES:
        for i in range(5):
            paint(tmp_path / "imagenet-r" / name / f"{name}_{i}.jpg")
    return tmp_path


@pytest.fixture
def split_tree(tmp_path):
    """Three classes of three training images and one or two test images; returns the root."""
    for number, name in enumerate(CLASSES):
        for i in range(3):
            paint(tmp_path / "omnibenchmark" / "train" / name / f"{i}.jpg")
        for i in range(1 + (number == 2)):
            paint(tmp_path / "omnibenchmark" / "test" / name / f"t{i}.jpg")
    return tmp_path


FOLDERS = Split(reader="folders", train=9, test=4, test_sizes=(1, 1, 2))


@pytest.mark.parametrize("data", DATA_SETS.values(), ids=DATA_SETS)
def test_facts_agree_with_themselves(data):
    """Groups of classes add up to the test images, pins are whole, and each record says what to know."""
    assert data.page
    assert data.terms
    assert data.routes
    for split in data.splits.values():
        assert not split.test_sizes or sum(split.test_sizes) == split.test
        assert data.num_classes % max(1, len(split.test_sizes)) == 0
        assert (split.reader == "lists") == bool(split.train_lists and split.test_lists)
        assert {split.train is None, split.test is None} in ({True}, {False})
        if split.train is None:
            assert any("counts" in one for one in data.unconfirmed)
    for route in data.routes:
        if isinstance(route, HubRoute) and route.revision is None:
            assert "revision" in data.unconfirmed


def test_a_split_is_chosen_by_its_name():
    """``random:<seed>`` stands beside the published names; others are refused with all names."""
    config = published_config(DATA_SETS["imagenet-r"], 20)
    assert (config().split, config(split="random:7").split) == ("coda", "random:7")
    _, problems = structure(config, {"split": "hide"})
    assert problems == [("split", "expected one of coda, folders, random:42, random:<seed> but got 'hide'")]
    assert structure(published_config(DATA_SETS["vtab"], 10), {"split": "random:1"})[1]


def test_folders_are_read_and_counted(split_tree):
    """Class folders give labels in sorted order, ids with the split, and exactly the published counts."""
    made = stream(small("omnibenchmark", folders=FOLDERS), split_tree)
    assert made.class_names == CLASSES
    assert made.tasks[1].train.ids == ("train/n02/0.jpg", "train/n02/1.jpg", "train/n02/2.jpg")
    assert (made.name, made.deviations) == ("omnibenchmark", ())


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"train": 10}, "expected 10 train images but found 9"),
        ({"test_sizes": (2, 1, 1)}, "expected 2 test images in group 1 of 3 groups of classes but found 1"),
        ({"test_sha256": "0" * 64}, "the list of test files has sha256 .*, not 000000000000"),
    ],
)
def test_what_is_not_the_published_split_is_refused(split_tree, facts, message):
    """Counts, counts by class and file lists are compared; going on all the same is recorded."""
    data = small("omnibenchmark", folders=attrs.evolve(FOLDERS, **facts))
    with pytest.raises(DataError, match=message):
        stream(data, split_tree)
    made = stream(data, split_tree, allow_incomplete=True)
    assert len(made.deviations) == 1


def test_half_a_tree_is_refused(split_tree):
    """A missing split, and classes that are in one split only or too few, are named."""
    data = small("omnibenchmark", folders=FOLDERS)
    with pytest.raises(DataError, match="expected 4 classes but found 3"):
        stream(attrs.evolve(data, num_classes=4), split_tree, allow_incomplete=True)
    (split_tree / "omnibenchmark" / "test" / "n02" / "t0.jpg").unlink()
    (split_tree / "omnibenchmark" / "test" / "n02").rmdir()
    with pytest.raises(DataError, match=r"3 classes in train/ and 2 in test/ .*only \['n02'\]"):
        stream(data, split_tree)
    (split_tree / "omnibenchmark" / "test").rename(split_tree / "omnibenchmark" / "val")
    with pytest.raises(DataError, match=r"lacks test/ \(found 'train', 'val'\)"):
        stream(data, split_tree)


def test_a_random_split_is_hides_and_moves_nothing(flat):
    """Four fifths of the sorted files by torch's permutation, the same wherever the files have been moved."""
    data = small("imagenet-r", random=Split(reader="random", train=12, test=3))
    before = sorted(flat.rglob("*"))
    made = stream(data, flat, split="random:42")
    assert sorted(flat.rglob("*")) == before
    names = sorted(f"{name}/{name}_{i}.jpg" for name in CLASSES for i in range(5))
    chosen = torch.randperm(15, generator=torch.Generator().manual_seed(42)).tolist()
    assert ids(made, "test") == sorted(names[i] for i in chosen[12:])
    folder = flat / "imagenet-r"
    (folder / "train").mkdir()
    (folder / "test").mkdir()
    with pytest.raises(DataError, match="class folders, first 'n01', beside 'train/'"):
        stream(data, flat, split="random:42")
    for number, name in enumerate(CLASSES):
        (folder / name).rename(folder / ("test" if number == 1 else "train") / name)
    assert stream(data, flat, split="random:42").fingerprint == made.fingerprint
    paint(folder / "train" / "n02" / "n02_0.jpg")
    with pytest.raises(DataError, match=r"'n02/n02_0.jpg' lies in train/ and in test/"):
        stream(data, flat, split="random:42")


def test_the_permutation_of_30000_is_the_published_one():
    """HiDe's split with seed 42 starts as the released runs do, whatever the global generator holds."""
    torch.manual_seed(3)
    order = torch.randperm(30_000, generator=torch.Generator().manual_seed(42)).tolist()
    assert order[:4] == [7542, 10109, 19114, 5209]


@pytest.fixture
def listed(flat):
    """Facts with two lists in ``splits/`` of the root: class n03 is label 0, and n01 label 2."""
    lines = {"train": [], "test": []}
    for label, name in enumerate(reversed(CLASSES)):
        for i in range(5):
            lines["test" if i == 4 else "train"].append((f"data/imagenet-r/{name}/{name}_{i}.jpg", label))
    (flat / "splits").mkdir()
    files = {}
    for split, entries in lines.items():
        paths = "".join(f"- {path}\n" for path, _ in entries)
        labels = "".join(f"- {label}\n" for _, label in entries)
        text = f"data:\n{paths}targets:\n{labels}" if split == "train" else ""
        text = text or "".join(f"{path} {label}\n" for path, label in entries)
        name = f"{split}.{'yaml' if split == 'train' else 'txt'}"
        (flat / "splits" / name).write_text(text)
        checksum = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        files[f"{split}_lists"] = (RemoteFile(name=name, url="http://x/y", checksum=checksum),)
    hashes = {
        f"{split}_sha256": file_list_sha256(path.removeprefix("data/imagenet-r/") for path, _ in entries)
        for split, entries in lines.items()
    }
    return small("imagenet-r", coda=Split(reader="lists", train=12, test=3, **files, **hashes))


def test_lists_choose_files_and_labels(flat, listed):
    """YAML and plain lists name files and their labels; labels keep the lists' own numbers."""
    made = stream(listed, flat)
    assert made.class_names == ("n03", "n02", "n01")
    assert made.tasks[0].test.ids == ("n03/n03_4.jpg",)
    assert made.deviations == ()
    folder = flat / "imagenet-r"
    (folder / "train").mkdir()
    for name in CLASSES:
        (folder / name).rename(folder / "train" / name)
    assert stream(listed, flat).fingerprint == made.fingerprint


def test_lists_are_the_published_ones_and_whole(flat, listed):
    """A lost image, an edited list, one that leads elsewhere and a missing one are told apart."""
    (flat / "imagenet-r" / "n02" / "n02_1.jpg").unlink()
    with pytest.raises(DataError, match=r"1 of 15 listed images are not in .*first \['n02/n02_1.jpg'\]"):
        stream(listed, flat)
    path = flat / "splits" / "test.txt"
    path.write_text(path.read_text().replace("n01_4", "n01_3"))
    with pytest.raises(DataError, match=r"test.txt' is not the published one"):
        stream(listed, flat)
    unknown = attrs.evolve(listed.splits["coda"].test_lists[0], checksum=None)
    free = small("imagenet-r", coda=attrs.evolve(listed.splits["coda"], test_lists=(unknown,)))
    for text, message in (
        ("../../secret.png 0\n", r"line 1: expected the path of an image below the data set but got '\.\./"),
        ("no label\n", "line 1: expected a number from 0 but got 'label'"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            stream(free, flat)
    path.unlink()
    with pytest.raises(DataError, match=r"no list .*`lw2g data get imagenet-r`, save http://x/y there, or"):
        stream(listed, flat)


def test_cubs_tables_are_read(tmp_path):
    """Numbers join images, classes and the official split; labels count from 0."""
    folder = tmp_path / "CUB_200_2011"
    images, labels, training = [], [], []
    for number in range(6):
        name = f"00{number // 2 + 1}.Bird{number // 2}/{number}.jpg"
        paint(folder / "images" / name)
        images.append(f"{number + 1} {name}")
        labels.append(f"{number + 1} {number // 2 + 1}")
        training.append(f"{number + 1} {(number + 1) % 2}")
    (folder / "images.txt").write_text("\n".join(images))
    (folder / "image_class_labels.txt").write_text("\n".join(labels))
    (folder / "train_test_split.txt").write_text("\n".join(training))
    data = small("cub200", official=Split(reader="index", train=3, test=3, test_sizes=(1, 1, 1)))
    made = stream(data, tmp_path)
    assert made.class_names == ("001.Bird0", "002.Bird1", "003.Bird2")
    assert made.tasks[1].train.ids == ("002.Bird1/2.jpg",)
    (folder / "images" / "003.Bird2" / "5.jpg").unlink()
    with pytest.raises(DataError, match=r"1 of 6 images are not in .*\['003.Bird2/5.jpg'\]"):
        stream(data, tmp_path)
    (folder / "train_test_split.txt").write_text("\n".join(training[:5]))
    with pytest.raises(DataError, match="number other images"):
        stream(data, tmp_path)
    (folder / "images.txt").unlink()
    with pytest.raises(DataError, match=r"cannot read .*images.txt"):
        stream(data, tmp_path)


BROKEN = [
    ("images.txt", "2", "expected the path of an image below the data set but got ''"),
    ("images.txt", "2 ../../etc/passwd.jpg", "expected the path of an image below the data set but got '../"),
    ("images.txt", "1 001.Bird0/0.jpg", "expected each image once but got number 1 again"),
    ("image_class_labels.txt", "2 one", "expected a number from 1 but got 'one'"),
    ("image_class_labels.txt", "2 0", "expected a number from 1 but got 0"),
    ("image_class_labels.txt", "x 1", "expected a number from 1 but got 'x'"),
    ("train_test_split.txt", "2 2", "expected a number from 0 to 1 but got 2"),
    ("train_test_split.txt", "2 \u0661", "expected a number from 0 to 1 but got '\u0661'"),
]


@pytest.mark.parametrize(("name", "line", "told"), BROKEN)
def test_a_broken_row_of_cubs_tables_is_named_with_its_line(tmp_path, name, line, told):
    """Nothing of a row is guessed, and whoever mends the table need not search."""
    folder = tmp_path / "CUB_200_2011"
    rows = {
        "images.txt": ["1 001.Bird0/0.jpg", "2 001.Bird0/1.jpg"],
        "image_class_labels.txt": ["1 1", "2 1"],
        "train_test_split.txt": ["1 1", "2 0"],
    }
    paint(folder / "images/001.Bird0/0.jpg")
    paint(folder / "images/001.Bird0/1.jpg")
    for table, lines in rows.items():
        lines[1] = line if table == name else lines[1]
        (folder / table).write_text("\n".join(lines), encoding="utf-8")
    data = small("cub200", official=Split(reader="index", train=1, test=1))
    with pytest.raises(DataError) as refused:
        stream(data, tmp_path)
    assert f"{str(folder / name)!r}, line 2: {told}" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("x.txt", "a/0.png 0\na/1.png\n", ", line 2: expected a number from 0 but got 'a/1.png'"),
        ("x.txt", "a/0.png 0\na/1.png x\n", ", line 2: expected a number from 0 but got 'x'"),
        (
            "x.txt",
            "a/0.png 0\n/a/1.png 0\n",
            ", line 2: expected the path of an image below the data set but",
        ),
        (
            "x.yaml",
            "data: [a/0.png, a/1.png]\ntargets: [0, -1]",
            ", entry 2: expected a number from 0 but got",
        ),
        (
            "x.yaml",
            "data: [a/0.png, ../1.png]\ntargets: [0, 1]",
            ", entry 2: expected the path of an image below",
        ),
        ("x.yaml", "data: [a/0.png]\ntargets: [0, 1]", "1 paths in data and 2 labels in targets"),
        ("x.yaml", "data: [\n - a", "is not understood"),
    ],
)
def test_a_broken_row_of_a_list_is_named_with_its_line(tmp_path, name, text, told):
    """In lists of paths as in tables; of YAML the number of the entry."""
    (tmp_path / "splits").mkdir()
    (tmp_path / "splits" / name).write_text(text)
    (tmp_path / "imagenet-r").mkdir()
    file = RemoteFile(name=name, url="https://example.org/list")
    split = Split(reader="lists", train=2, test=2, train_lists=(file,), test_lists=(file,))
    with pytest.raises(DataError) as refused:
        from_lists(small("imagenet-r", official=split), split, tmp_path)
    assert f"{tmp_path / 'splits' / name}'" in str(refused.value)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_published_data_set_keeps_the_contract_of_benchmarks(tmp_path):
    """What every benchmark promises holds for images that are there, and for what is not all of them."""
    for label in range(50):
        paint(tmp_path / "vtab" / "train" / f"c{label:02}" / f"{label}.png")
        paint(tmp_path / "vtab" / "test" / f"c{label:02}" / f"{label}t.png")
    options = {"root": tmp_path, "allow_incomplete": True}
    results = [case.result() for case in contract_cases("vtab", options=options)]
    assert {result.check: result.message for result in results if result.status != "passed"} == {}


@pytest.mark.parametrize("name", DATA_SETS)
def test_missing_data_are_told_in_one_line(name, tmp_path, monkeypatch):
    """In the default folder, and in one of the environment that lacks the data, the user reads what to do."""
    from lw2g.registry.catalogue import load_catalogue

    component = load_catalogue().get("benchmark", name)
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(DataError) as without:
        component.build(component.config()).stream()
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    with pytest.raises(DataError) as elsewhere:
        component.build(component.config()).stream()
    for message in (str(without.value), str(elsewhere.value)):
        assert f"`lw2g data get {name}`" in message
        assert "\n" not in message
    assert ROOT_VARIABLE in str(without.value)
