"""One finder of image files: what it takes, what it calls classes, and what it says that it left out."""

from __future__ import annotations

import unicodedata

import pytest
from PIL import Image

from lw2g.errors import DataError
from lw2g.pixels.found_images import (
    EXTENSIONS,
    domains_below,
    find_classes,
    find_images,
    image_ending,
    is_split,
    passed_over,
    split_folder,
    splits_in,
)
from lw2g.pixels.image_files import FORMATS, examine_image, read_image

CAFE = "caf\u00e9"
DECOMPOSED = unicodedata.normalize("NFD", CAFE)


def touch(root, *names):
    """Make empty files below a folder, with the folders in between."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_endings_are_those_that_pillow_gives_the_formats():
    """A file of a format that is decoded is found by any of its endings; floats have no known range."""
    Image.init()
    of_pillow = {ending for ending, format in Image.registered_extensions().items() if format in FORMATS}
    assert of_pillow - {".apng", ".pfm", ".dib"} == EXTENSIONS


@pytest.mark.parametrize("ending", sorted(EXTENSIONS))
def test_every_ending_is_one_that_is_read(tmp_path, ending):
    """What is found is decoded, too."""
    path = tmp_path / f"x{ending.upper()}"
    mode = {".pbm": "1", ".pgm": "L"}.get(ending, "RGB")
    Image.new(mode, (4, 3)).save(path)
    assert find_images(tmp_path).paths == (path,)
    assert examine_image(path).size == (4, 3)
    assert read_image(path).shape == (3, 3, 4)


def test_links_are_followed_and_none_is_lost(tmp_path):
    """A link to a folder is a folder, one that leads back is left out, and one to nothing is told."""
    Image.new("RGB", (2, 2)).save(tmp_path / "elsewhere.png")
    (tmp_path / "there").mkdir()
    Image.new("RGB", (2, 2)).save(tmp_path / "there/0.png")
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / "linked").symlink_to(tmp_path / "there")
    (folder / "below/up").symlink_to(folder)
    (folder / "one.png").symlink_to(tmp_path / "elsewhere.png")
    assert find_images(folder).paths == (folder / "linked/0.png", folder / "one.png")
    (folder / "below/gone.png").symlink_to(tmp_path / "gone.png")
    assert find_images(folder).paths[0] == folder / "below/gone.png"
    with pytest.raises(DataError, match=r"gone\.png': there is no such image"):
        examine_image(folder / "below/gone.png")


@pytest.mark.usefixtures("without_heic")
def test_what_is_passed_over_is_counted_by_ending(tmp_path):
    """Pictures of other formats are named with the way out; what a system keeps for itself is not."""
    touch(tmp_path, "ant/a.png", "ant/b.HEIC", "ant/deep/c.heic", "ant/d.avif", "bee/e.jpg", "bee/notes")
    # an empty one, too: it would be a class without an image
    for name in ("@eaDir", "#recycle", "@Recycle", "lost+found", "$RECYCLE.BIN", "System Volume Information"):
        (tmp_path / name).mkdir()
    touch(tmp_path, "@eaDir/ant/a.jpg", "bee/@eaDir/e.jpg/thumb.jpg")
    touch(tmp_path, "bee/.DS_Store", "bee/._e.jpg", "__MACOSX/ant/._a.png", "bee/.cache/f.heic")
    classes = find_classes(tmp_path)
    assert list(classes) == ["ant", "bee"]
    assert passed_over(classes.values()) == (
        "files of no known image format were passed over: 1 .avif, 2 .heic, 1 notes; "
        "convert AVIF and HEIC to JPEG or PNG, or for HEIC pip install pillow-heif"
    )
    assert passed_over([]) == ""


@pytest.mark.usefixtures("without_heic")
def test_a_class_of_pictures_that_nobody_reads_says_so(tmp_path):
    """A class of HEIC alone is refused, with what its files are."""
    touch(tmp_path, "ant/a.png", "bee/b.heic", "bee/c.heic")
    with pytest.raises(
        DataError,
        match=r"first 'bee' \(.*2 \.heic; convert HEIC to JPEG or PNG, or for HEIC pip install ",
    ):
        find_classes(tmp_path)
    with pytest.raises(DataError, match=r"'b\.heic' is of the format HEIC; convert HEIC"):
        image_ending("b.heic")


def test_folders_whose_names_look_the_same_are_one_class(tmp_path):
    """A Mac's decomposed name and a composed one are one name; classes are sorted by it."""
    touch(tmp_path, f"{CAFE}/a.png", f"{DECOMPOSED}/b.png", "cafz/c.png")
    assert {name: len(found.paths) for name, found in find_classes(tmp_path).items()} == {"cafz": 1, CAFE: 2}


def test_files_come_in_one_order_in_either_form(tmp_path):
    """A copy that a Mac has made lists its files in the order of the original."""
    names = (f"{CAFE}.png", "cafz.png", "cafa.png")
    touch(tmp_path, *(f"one/{name}" for name in names))
    touch(tmp_path, *(f"two/{unicodedata.normalize('NFD', name)}" for name in names))
    one, two = (find_images(tmp_path / name).paths for name in ("one", "two"))
    assert [unicodedata.normalize("NFC", path.name) for path in two] == [path.name for path in one]


def test_class_folders_that_share_the_names_below_look_like_domains(tmp_path):
    """It takes two shared names with most of the images; a stray image above them changes nothing."""
    touch(tmp_path, "Art/Bed/0.png", "Art/Clock/0.png", "Real/Bed/0.png", "Real/Clock/0.png", "Art/x.png")
    found = domains_below(find_classes(tmp_path))
    assert found is not None
    assert (found.names, found.first, found.classes) == (("Bed", "Clock"), *[tmp_path / "Art"] * 2)
    assert found.options == "--set benchmark.stream=domains --set benchmark.test_share=0.2"
    assert "'Bed', 'Clock'" in str(found)


def test_domains_with_splits_of_their_own(tmp_path):
    """The classes of one domain lie a folder further down, and test images need not be drawn."""
    touch(
        tmp_path,
        *(f"{domain}/{split}/Bed/0.png" for domain in ("Art", "Real") for split in ("test", "train")),
    )
    found = domains_below(find_classes(tmp_path))
    assert found is not None
    assert found.classes == tmp_path / "Art/train"
    assert found.options == "--set benchmark.stream=domains"


@pytest.mark.parametrize(
    "names",
    [
        ("ant/images/0.png", "bee/images/0.png"),  # Tiny ImageNet
        ("bird/owl/0.png", "bird/hen/0.png", "cat/lynx/0.png", "cat/tom/0.png"),
        (
            "ant/0.png",
            "ant/1.png",
            "ant/old/0.png",
            "ant/new/1.png",
            "bee/0.png",
            "bee/old/0.png",
            "bee/new/0.png",
        ),
        ("ant/0.png", "bee/0.png"),
    ],
)
def test_other_layouts_are_no_domains(tmp_path, names):
    """One shared name, names of their own, or images beside the folders: the class folders are classes."""
    touch(tmp_path, *names, *(f"bee/{number}.png" for number in range(2, 5)))
    assert domains_below(find_classes(tmp_path)) is None


@pytest.mark.parametrize("write", [str.lower, str.upper, str.capitalize])
def test_splits_are_known_in_any_case(tmp_path, write):
    """Folders called Train and VAL are no classes, unless they hold images alone or lie beside classes."""
    names = [write(name) for name in ("test", "training", "val")]
    assert all(map(is_split, names))
    touch(tmp_path, *(f"{name}/ant/1.png" for name in names))
    assert [split.name for split in splits_in(tmp_path)] == [names[1], names[0], names[2]]
    assert split_folder(tmp_path, "test") == tmp_path / names[0]
    assert split_folder(tmp_path, "train") == tmp_path / "train", "there is none"
    touch(tmp_path, f"{write('train')}/1.png")
    assert splits_in(tmp_path) == ()
    touch(tmp_path, f"{write('train')}/ant/1.png", f".{write('seen')}/1.png")
    assert len(splits_in(tmp_path)) == 4
    touch(tmp_path, "dog/ant/1.png")
    assert splits_in(tmp_path) == ()


def test_the_split_as_it_is_written_goes_before_others(tmp_path):
    """Where train and Train are two folders."""
    touch(tmp_path, "Train/ant/1.png", "train/ant/1.png")
    assert split_folder(tmp_path, "train") == tmp_path / "train"
    assert split_folder(tmp_path / "nowhere", "train") == tmp_path / "nowhere/train"
