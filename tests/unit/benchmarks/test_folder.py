"""Benchmarks from image folders."""

from __future__ import annotations

import shutil
import unicodedata

import numpy as np
import pytest
from PIL import Image

from lw2g.errors import ConfigError, DataError
from lw2g_benchmarks.folder import FolderBenchmark
from lw2g_benchmarks.listed_images import FileSource, say_once
from lw2g_benchmarks.options import FolderConfig


def make_tree(root, classes=("ant", "bee", "cat"), train=4, test=2):
    """Write a tree of tiny images whose red value is unique within the tree; return its path."""
    red = 0
    for split, count in (("train", train), ("test", test)):
        for name in classes:
            folder = root / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                Image.new("RGB", (5, 4), (red, 10, 20)).save(folder / f"{i}.png")
                red += 1
    return root


@pytest.fixture
def tree(tmp_path):
    """A tree of three classes with four training and two test images each."""
    return make_tree(tmp_path / "insects")


def stream(root, **options):
    """Return the stream of a tree, one class per task unless told otherwise."""
    return FolderBenchmark(FolderConfig(root=root, **{"increment": 1, **options})).stream()


def test_tree_loads(tree):
    """Classes and images come sorted, ids relative to the root, pixels as stored; nothing is written."""
    there = sorted(tree.rglob("*"))
    made = stream(tree)
    assert made.class_names == ("ant", "bee", "cat")
    assert [len(task.train) for task in made.tasks] == [4, 4, 4]
    task = made.tasks[1]
    assert task.train.ids[0] == "insects/train/bee/0.png"
    assert task.test.labels.tolist() == [1, 1]
    image = task.train.source.image(task.train.indices[2])
    assert image.shape == (3, 4, 5)
    assert image[:, 0, 0].tolist() == [6, 10, 20]
    assert sorted(tree.rglob("*")) == there
    assert made.deviations == ()


@pytest.mark.parametrize("names", [("TRAIN", "TEST"), ("Train", "Test")])
def test_splits_may_be_capitalised(tree, names):
    """They are read as train/ and test/; what is found is named as it lies there."""
    for split, name in zip(("train", "test"), names, strict=True):
        (tree / split).rename(tree / f"{name}-")  # in two steps: a disk may not tell the cases apart
        (tree / f"{name}-").rename(tree / name)
    made = stream(tree)
    assert made.class_names == ("ant", "bee", "cat")
    assert [(len(task.train), len(task.test)) for task in made.tasks] == [(4, 2)] * 3
    assert made.tasks[1].train.ids[0] == f"insects/{names[0]}/bee/0.png"
    with pytest.raises(DataError, match=f"a split of '{tree}'"):
        stream(tree / names[0])
    with pytest.raises(DataError, match="so there is nothing to draw"):
        stream(tree, test_share=0.5)


@pytest.mark.parametrize("share", [None, 0.5])
def test_splits_of_other_names_are_no_classes(tree, share):
    """They are not learned as classes, neither drawn from nor advised to be."""
    (tree / "train").rename(tree / "Training")
    (tree / "test").rename(tree / "Val")
    remedy = f"draw the test images: benchmark.root={tree}/Training benchmark.test_share=0.2"
    with pytest.raises(DataError, match=f"holds Training/ and Val/ and no classes; .*{remedy}"):
        stream(tree, test_share=share)


def test_names_of_folders_cannot_steer_the_terminal(tmp_path, capsys):
    """Control characters of a class come out escaped, in what is said while images are read and in errors."""
    tree = make_tree(tmp_path / "\x1b[2Jinsects", ("\x1b[2Jant", "bee"))
    stream(tree)
    told = capsys.readouterr().err
    assert "training images of \\x1b[2Jinsects: " in told
    assert told.replace("\n", "").isprintable()


@pytest.mark.parametrize(("count", "where"), [(3, "a, b, c"), (7, "7 folders")])
def test_images_of_several_domains_are_counted_as_such(tmp_path, capsys, count, where):
    """A number over all is not told of the first."""
    for name in "abcdefg"[:count]:
        make_tree(tmp_path / "root" / name)
    stream(tmp_path / "root", stream="domains")
    assert f"training images of {where}: {12 * count} images (" in capsys.readouterr().err


def test_a_folder_that_is_opened_again_is_summed_up_once(tree, capsys):
    """As by a dry run that fails and looks for what is missing, or of several kinds of cells."""
    say_once.cache_clear()
    stream(tree)
    stream(tree)
    assert capsys.readouterr().err.count("training images of insects: ") == 1


@pytest.mark.usefixtures("without_heic")
def test_what_is_no_image_is_told_before_the_run(tree):
    """A run learns from every file that it can read, and names the others."""
    Image.new("L", (5, 4)).save(tree / "train/ant/4.pgm")
    (tree / "train/ant/5.heic").touch()
    (tree / "test/cat/note.txt").touch()
    made = stream(tree)
    assert len(made.tasks[0].train) == 5
    assert [note.partition(":")[0] for note in made.notes] == ["insects/train/", "insects/test/"]
    assert "1 .heic; convert HEIC" in made.notes[0]
    assert "1 .txt" in made.notes[1]


def decomposed(tree, copy):
    """Return a copy of a tree as a Mac would unpack it."""
    for path in sorted(tree.rglob("*.png")):
        place = copy / unicodedata.normalize("NFD", path.relative_to(tree).as_posix())
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    return copy


def test_names_are_compared_in_one_unicode_form(tmp_path):
    """A decomposed copy is the same data set, and split, order and exclusion by either form mean the same."""
    cafe = "caf\u00e9"
    tree = make_tree(tmp_path / "insects", (cafe, "cafz", "cafa"))
    (tree / "train" / cafe / "0.png").rename(tree / "train" / cafe / f"{cafe}.png")
    copy = decomposed(tree, tmp_path / "copy" / "insects")
    first = stream(tree)
    assert first.class_names == ("cafa", "cafz", cafe)
    assert stream(copy).fingerprint == first.fingerprint
    shutil.rmtree(tree / "test")
    (copy / "test").rename(tree / "test")  # train composed, test not
    assert stream(tree).fingerprint == first.fingerprint
    order = (unicodedata.normalize("NFD", cafe), "cafa")
    assert stream(tree, class_order=order).class_names == (cafe, "cafa")
    left_out = unicodedata.normalize("NFD", f"insects/train/{cafe}/{cafe}.png")
    assert len(stream(tree, exclude=(left_out,)).tasks[2].train) == 3


def test_drawn_test_images_are_the_same_in_either_unicode_form(tmp_path):
    """The draw goes by composed names."""
    tree = make_tree(tmp_path / "one/insects", ("caf\u00e9", "bee"), train=8) / "train"
    copy = decomposed(tree, tmp_path / "two/train")
    made = [stream(root, test_share=0.3).fingerprint for root in (tree, copy)]
    assert made[0] == made[1]


def test_domains_are_named_in_either_unicode_form(tmp_path):
    """benchmark.domain_order finds a decomposed folder by its composed name; a domain is no root of such."""
    decomposed_name = unicodedata.normalize("NFD", "\u00e9t\u00e9")
    for domain in (decomposed_name, "art"):
        make_tree(tmp_path / "root" / domain, ("ant", "bee"))
    made = stream(tmp_path / "root", stream="domains", domain_order=("\u00e9t\u00e9", "art"), increment=2)
    assert [task.domain for task in made.tasks] == ["\u00e9t\u00e9", "art"]
    with pytest.raises(DataError, match=r"art' holds train/ and test/, so it is one domain; .*stream out$"):
        stream(tmp_path / "root" / "art", stream="domains")  # the root itself is what was given


@pytest.mark.parametrize("layout", ["drawn", "split"])
def test_a_root_one_level_too_high_is_told(tmp_path, layout):
    """Where class folders look like domains, a note says what else to give; the run may go on."""
    for domain in ("Art", "Real"):
        make_tree(tmp_path / domain, ("bed", "clock"), train=3)
    if layout == "drawn":
        root = tmp_path / "root"
        for domain in ("Art", "Real"):
            shutil.move(tmp_path / domain / "train", root / domain)
        (note,) = stream(root, test_share=0.3).notes
        one = f"for one of them --set benchmark.root={root}/Art"
        every = "if so, --set benchmark.stream=domains, or"
    else:
        root = tmp_path / "root"
        for domain in ("Art", "Real"):
            for split in ("train", "test"):
                shutil.move(tmp_path / domain / split, root / split / domain)
        (note,) = stream(root).notes
        one = f"for one of them --set benchmark.root={root}/train/Art --set benchmark.test_share=0.2"
        domains = "--set benchmark.stream=domains --set benchmark.test_share=0.2"
        every = f"if so, --set benchmark.root={root}/train {domains}, or"
    assert note.endswith(f"('bed', 'clock'): {every} {one}")
    domains = stream(
        root / "train" if layout == "split" else root, test_share=0.3, stream="domains", increment=2
    )
    assert domains.notes == ()
    assert [task.domain for task in domains.tasks] == ["Art", "Real"]


def test_fingerprint_sees_content_and_names_not_place(tree, tmp_path):
    """A copy elsewhere has the same fingerprint; a changed pixel or a renamed file has another."""
    first = stream(tree).fingerprint
    copy = tmp_path / "other" / "insects"
    shutil.copytree(tree, copy)
    assert stream(copy).fingerprint == first
    Image.new("RGB", (5, 4), (99, 0, 0)).save(copy / "test" / "cat" / "1.png")
    assert stream(copy).fingerprint != first
    (tree / "train" / "ant" / "3.png").rename(tree / "train" / "ant" / "4.png")
    assert stream(tree).fingerprint != first


def test_the_first_task_can_be_larger(tree):
    """It has the classes of the base, and the others those of the increment."""
    made = stream(tree, base=2)
    assert [len(task.classes) for task in made.tasks] == [2, 1]


def test_limits_take_the_first_and_are_recorded(tree):
    """A limit keeps the first images by sorted path and is named as a deviation."""
    made = stream(tree, train_per_class=2)
    assert made.tasks[0].train.ids == ("insects/train/ant/0.png", "insects/train/ant/1.png")
    assert len(made.tasks[0].test) == 2
    assert made.deviations == ("train limited to the first 2 images of each class",)


def test_explicit_class_order_over_merged_roots(tree, tmp_path):
    """Roots merge, clashing names get the root's name, and an explicit order interleaves or leaves out."""
    other = make_tree(tmp_path / "sketches", classes=("bee", "dog"))
    both = stream(tree, more_roots=(other,))
    assert both.class_names == ("ant", "cat", "dog", "insects/bee", "sketches/bee")
    chosen = stream(tree, more_roots=(other,), class_order=("sketches/bee", "ant", "dog"))
    assert chosen.class_names == ("sketches/bee", "ant", "dog")
    assert chosen.class_order == (4, 0, 2)
    assert chosen.tasks[0].train.ids[0] == "sketches/train/bee/0.png"
    assert chosen.deviations == ("2 of 5 classes left out",)
    assert "class_order leaves out 2 of 5 classes: cat, insects/bee" in chosen.notes
    told = "class_order leaves out 2 of 5 classes: cat, .*; benchmark.* 2 does not split 3 classes evenly"
    with pytest.raises(ConfigError, match=told):
        stream(tree, more_roots=(other,), class_order=("sketches/bee", "ant", "dog"), increment=2)


@pytest.mark.parametrize("share", [None, 0.2])
def test_domains_in_the_place_of_classes_are_told_where_the_tasks_do_not_fit(tmp_path, share):
    """The number of classes alone says nothing to whoever has more of them, a folder further down."""
    splits = ("train", "test") if share is None else (".",)
    for place in splits:
        for domain in ("art", "photo"):
            make_flat(tmp_path / place / domain, count=2)
    told = r"share their names \('ant', 'bee'\): if so, .*=domains.*; benchmark.* 10 .*classes, 2; choose 2"
    with pytest.raises(ConfigError, match=told):
        stream(tmp_path, increment=10, test_share=share)


def test_bad_class_orders_are_refused(tree):
    """Unknown names are refused with the nearest one, repeated names by name."""
    with pytest.raises(ConfigError, match=r"names 1 unknown class, first 'bees' \(did you mean 'bee'\?\)"):
        stream(tree, class_order=("bees",))
    with pytest.raises(ConfigError, match="repeats 'ant'"):
        stream(tree, class_order=("ant", "ant"))


def test_missing_root_names_path_and_layout(tmp_path):
    """A root that does not exist is an error with the path tried and the layout expected."""
    with pytest.raises(DataError, match=r"no folder '.*nowhere'; expected .*nowhere/train/<class>/<image>"):
        stream(tmp_path / "nowhere")
    for name, below in (("classes", ""), ("domains", "<domain>/")):
        with pytest.raises(DataError, match=f"no folder '.*nowhere'; expected .*nowhere/{below}<class>/<im"):
            stream(tmp_path / "nowhere", stream=name, test_share=0.2)
    with pytest.raises(ConfigError, match=r"expected ROOT/train.*, or ROOT/<class>.*test_share=0\.2"):
        stream(None)


def test_roots_of_one_name_are_refused(tree):
    """Two roots with the same folder name cannot be told apart in ids."""
    with pytest.raises(ConfigError, match="roots share the name 'insects'"):
        stream(tree, more_roots=(tree,))


def make_flat(root, classes=("ant", "bee"), count=10):
    """Write a tree of class folders without train/ and test/; return its path."""
    for red, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (5, 4), (red, number, 20)).save(root / name / f"{number}.png")
    return root


def test_test_images_are_drawn_from_flat_folders(tmp_path):
    """Each class gives its share, by path: another class, image or class order moves none."""
    root = make_flat(tmp_path / "photos")
    made = stream(root, test_share=0.2)
    assert [(len(task.train), len(task.test)) for task in made.tasks] == [(8, 2), (8, 2)]
    drawn = set(made.tasks[0].test.ids)
    assert drawn.isdisjoint(made.tasks[0].train.ids)
    assert all(name.startswith("photos/ant/") for name in drawn)
    assert made.deviations == ("test images are a share of 0.2 of each class, drawn (42)",)
    # drawn by the hash of seed and path: those of runs before split_seed, whose order_seed was 42
    assert sorted(drawn) == ["photos/ant/6.png", "photos/ant/7.png"]
    for seed in (1, 2):
        order = stream(root, test_share=0.2, order="seeded", order_seed=seed)
        of_order = set().union(*(task.test.ids for task in order.tasks))
        assert of_order == set().union(*(task.test.ids for task in made.tasks))
    other = stream(root, test_share=0.2, split_seed=1)
    assert (set(other.tasks[0].test.ids) != drawn, other.notes) == (True, ())
    make_flat(root, ("cow",))
    assert set(stream(root, test_share=0.2).tasks[0].test.ids) == drawn


def test_an_image_that_is_left_out_is_not_drawn(tmp_path):
    """Another one tests where the only test image of a class is damaged."""
    root = make_flat(tmp_path / "photos", count=3)
    (drawn,) = stream(root, test_share=0.2).tasks[0].test.ids
    (other,) = stream(root, test_share=0.2, exclude=(drawn,)).tasks[0].test.ids
    assert other != drawn
    with pytest.raises(ConfigError, match="leaves no image of class 'ant'"):
        stream(root, test_share=0.2, exclude=tuple(f"photos/ant/{place}.png" for place in range(3)))


@pytest.mark.parametrize(("share", "count", "tested"), [(0.01, 2, 1), (0.99, 3, 2), (0.5, 4, 2)])
def test_a_class_keeps_an_image_to_train_and_one_to_test(tmp_path, share, count, tested):
    """However small or large the share is."""
    made = stream(make_flat(tmp_path / "photos", count=count), test_share=share)
    assert [len(task.test) for task in made.tasks] == [tested, tested]


def test_what_cannot_be_drawn_from_is_refused(tree, tmp_path):
    """Folders that are split already, and a class of one image."""
    with pytest.raises(DataError, match=r"has train/ and test/.*leave benchmark\.test_share out"):
        stream(tree, test_share=0.2)
    with pytest.raises(DataError, match="class 'ant' has one image"):
        stream(make_flat(tmp_path / "photos", count=1), test_share=0.2)


def test_a_wrong_folder_names_its_command(tree, tmp_path):
    """Class folders without a split, and folders that have one each."""
    flat = make_flat(tmp_path / "photos")
    # a benchmark knows of no backbone, and names none that the user has not chosen
    start = r"`lw2g\.start\('.*', MODEL\)` with the same backbone and weights"
    with pytest.raises(DataError, match=rf"holds 2 folders of images.*benchmark\.test_share=0\.2.*{start}"):
        stream(flat)
    make_tree(tmp_path / "both" / "sketches")
    with pytest.raises(DataError, match=r"each of its 1 folders has both.*benchmark\.stream=domains"):
        stream(tmp_path / "both")
    for share in (None, 0.2):
        with pytest.raises(DataError, match=r"holds images alone, as a class.*leave benchmark\.stream out"):
            stream(flat, stream="domains", test_share=share)
    make_flat(tmp_path / "domains" / "photo")
    with pytest.raises(DataError, match=r"holds 2 folders of images.*benchmark\.test_share=0\.2"):
        stream(tmp_path / "domains", stream="domains")


def test_half_a_tree_is_refused(tree):
    """A missing split, differing class sets and an empty class are errors that say what was found."""
    (tree / "test" / "cat" / "0.png").unlink()
    (tree / "test" / "cat" / "1.png").unlink()
    with pytest.raises(DataError, match=r"1 of 3 classes in '.*test' holds no image, first 'cat'"):
        stream(tree)
    with pytest.raises(DataError, match=f"a split of '{tree}'; give 'benchmark.root': '{tree}'$"):
        stream(tree / "train")  # whose images are no data set to draw test images from
    (tree.parent / "all").mkdir()
    shutil.copytree(tree, tree.parent / "all/photo/0")
    with pytest.raises(
        DataError, match=f"'photo/0' ...*; name one of them: benchmark.root={tree.parent}/all/photo/0$"
    ):
        stream(tree.parent / "all")
    shutil.rmtree(tree / "test" / "cat")
    with pytest.raises(DataError, match=r"3 in train, 2 in test, in one only \['cat'\]"):
        stream(tree)
    shutil.rmtree(tree / "test")
    with pytest.raises(DataError, match=r"lacks test/ \(found 'train'\)"):
        stream(tree)
    shutil.rmtree(tree / "train" / "ant")
    (tree / "test").mkdir()
    with pytest.raises(DataError, match=r"no class folders in '.*test'"):
        stream(tree)


def test_bad_images_are_named_before_anything_is_trained(tree, capsys):
    """All files are examined up front; what cannot be used is told at once, with the way to leave it out."""
    (tree / "train" / "ant" / "1.png").write_bytes(b"no image")
    whole = (tree / "train" / "bee" / "0.png").read_bytes()
    (tree / "train" / "bee" / "0.png").write_bytes(whole[:-20])
    Image.new("F", (3, 3)).save(tree / "train" / "cat" / "real.tiff")
    (tree / "test" / "cat" / "1.png").write_bytes(b"no image")
    left_out = "insects/train/ant/0.png"
    with pytest.raises(DataError) as caught:
        stream(tree, exclude=(left_out,))
    bad = [left_out, "insects/train/ant/1.png", "insects/train/bee/0.png", "insects/train/cat/real.tiff"]
    bad.append("insects/test/cat/1.png")
    listed = ", ".join(f'"{name}"' for name in bad)
    assert str(caught.value).startswith("4 of 18 images cannot be used, first '")
    assert str(caught.value).endswith(f": 'benchmark.exclude=[{listed}]'")
    say_once.cache_clear()
    made = stream(tree, exclude=tuple(bad))
    assert [len(task.train) for task in made.tasks] == [2, 3, 4]
    assert "insects/train/ant/1.png" not in made.tasks[0].train.ids
    assert made.deviations == (f"5 images excluded, first {left_out}",)
    assert "training images of insects: 9 images (9 RGB), 5x4 pixels\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        ("insects/train/ant/7.png", "unknown images, first 'insects/train/ant/7.png'"),
        ("insects/train/ent/1.png", r"did you mean 'insects/train/ant/1\.png'"),
        (tuple(f"insects/test/bee/{i}.png" for i in range(2)), "leaves no test image of class 'bee'"),
    ],
)
def test_what_cannot_be_excluded(tree, exclude, message):
    """Unknown images and whole classes are refused."""
    with pytest.raises(ConfigError, match=message):
        stream(tree, exclude=exclude)


def test_an_image_that_goes_bad_later_names_its_file(tree):
    """A file that is damaged while a run reads it raises with its path."""
    data = stream(tree).tasks[0].train
    (tree / "train" / "ant" / "1.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"ant/1\.png': it is no image of the formats"):
        data.source.image(1)


def test_grey_and_transparent_images_become_rgb(tmp_path):
    """Every mode is converted to three channels."""
    paths = [tmp_path / "grey.png", tmp_path / "alpha.png"]
    Image.new("L", (2, 2), 7).save(paths[0])
    Image.new("RGBA", (2, 2), (1, 2, 3, 0)).save(paths[1])
    source = FileSource(paths, ["a", "b"])
    assert source.image(0)[:, 0, 0].tolist() == [7, 7, 7]
    assert source.image(1)[:, 0, 0].tolist() == [1, 2, 3]


def test_default_augments_and_options_reach_the_transforms(tree):
    """The default is the random resized crop; 'none' makes training features cacheable."""
    config = FolderConfig(root=tree)
    statistics = (0.5,) * 3, (0.5,) * 3
    assert not FolderBenchmark(config).transforms(16, *statistics).train_is_deterministic
    plain = FolderConfig(root=tree, train_transform="none", test_resize="squash", normalise="unit")
    pair = FolderBenchmark(plain).transforms(16, *statistics)
    assert pair.train_is_deterministic
    image = stream(tree).tasks[0].train.source.image(3)
    assert np.allclose(pair.test(image)[:, 0, 0].numpy(), np.array([3, 10, 20]) / 255)


def test_relative_roots_mean_the_same_from_another_folder(tree, tmp_path, monkeypatch):
    """A configuration holds absolute paths, so that a run can be gone on with from anywhere."""
    from lw2g.config.resolve import resolve
    from lw2g.config.toml import to_mapping
    from lw2g.registry.catalogue import load_catalogue

    monkeypatch.chdir(tree.parent)
    settings = {"benchmark.root": tree.name, "benchmark.more_roots": ["more"]}
    found = to_mapping(resolve(load_catalogue(), benchmark="folder", overrides=settings).config)["benchmark"]
    assert (found["root"], found["more_roots"]) == (str(tree), [str(tree.parent / "more")])
