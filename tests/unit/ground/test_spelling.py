"""Names are compared in one Unicode form, and every path that somebody gives may begin with ``~``."""

from __future__ import annotations

import copy
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import lw2g
import lw2g.api
from all_commands import commands_of
from lw2g.api.sweeps import plan_of
from lw2g.cli.main import main
from lw2g.errors import ConfigError, DataError
from lw2g.ground.spelling import composed, expanded, expands_paths, require_path
from lw2g.interfaces.classes import ClassMap
from lw2g.model.manifest import TaskNote
from lw2g.pixels.feature_containers import strings_of
from lw2g.pixels.feature_files import open_features
from lw2g.pixels.pictures import as_list
from lw2g.pixels.text_vectors import read_text_vectors, write_vectors
from lw2g_photos.class_folders import read_class_folders
from written_images import write_images

CAFE = "caf\u00e9"
DECOMPOSED = "cafe\u0301"

OF_PRODUCTS = (
    "lw2g_datasets.datasets",
    "lw2g_hub.hub_models",
    "lw2g_page.reporting",
    "lw2g_photos.photographs",
    "lw2g_store.stores",
    "lw2g_testing.chosen_checks",
)
"""The modules with the functions of the products."""


def test_two_names_that_look_the_same_are_the_same() -> None:
    """Whoever gives the names of classes: streams, models on disk, files of features and of text vectors."""
    assert composed(DECOMPOSED) == CAFE
    assert ClassMap(targets=(0, 1), names=(DECOMPOSED, "tea")).by_name == {CAFE: 0, "tea": 1}
    assert TaskNote(class_names=[DECOMPOSED], num_images=1).class_names == [CAFE]


def test_names_in_files_of_features(tmp_path: Path) -> None:
    """A file whose two classes look the same is refused."""
    rows = {"train_x": np.ones((2, 3), dtype=np.float32), "train_y": np.arange(2)}
    rows |= {"test_x": rows["train_x"], "test_y": rows["train_y"]}
    np.savez(tmp_path / "one.npz", class_names=[DECOMPOSED, "tea"], **rows)
    assert open_features(tmp_path / "one.npz").class_names == (CAFE, "tea")
    np.savez(tmp_path / "two.npz", class_names=[DECOMPOSED, CAFE], **rows)
    with pytest.raises(DataError, match="class_names repeats a name"):
        open_features(tmp_path / "two.npz")


@pytest.mark.parametrize("classes", [(), (DECOMPOSED, "tea")])
def test_names_in_files_of_text_vectors(tmp_path: Path, classes: tuple[str, ...]) -> None:
    """A class finds its vector in either form, by its name or by its sentence."""
    file = tmp_path / "text.safetensors"
    write_vectors(file, torch.eye(2), [f"A photo of {DECOMPOSED}.", "tea"], "test", classes)
    vectors = read_text_vectors(file, "option")
    for name in (CAFE, DECOMPOSED):
        assert vectors.of_class(name).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("name", "sound"),
    [
        ("caf\u00e9 no.\u00a01", True),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", True),
        ("two\nlines", False),
        ("\x1b[31mred", False),
        ("caf\udce9", False),
    ],
)
def test_a_class_may_be_called_the_same_in_a_folder_and_in_a_file(
    tmp_path: Path, name: str, sound: bool
) -> None:
    """Fixed spaces and joined signs are names, control characters and broken UTF-8 are none, in both."""
    (tmp_path / name / "images").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / name / "images" / "0.png")
    if sound:
        assert list(read_class_folders(tmp_path)) == [name]
        assert strings_of(tmp_path, "class_names", [name]) == [name]
    else:
        with pytest.raises(DataError, match=r"no class can be called .*; rename its folder"):
            read_class_folders(tmp_path)
        with pytest.raises(DataError, match=r"class_names holds .*; leave control characters"):
            strings_of(tmp_path, "class_names", [name])


# -- paths ---------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder, and another folder as the working one."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home"


def test_a_path_of_nobodys_home_stays(home: Path) -> None:
    """A file may be called so; nothing is raised."""
    assert expanded("~/x") == home / "x"
    assert expanded("~nobody-is-called-so/x") == Path("~nobody-is-called-so/x")
    assert expanded("x/~") == Path("x/~")


def commands(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands by name, those of groups too."""
    for name, command in commands_of(group):
        if isinstance(command, click.Group):
            yield from ((f"{name} {below}", one) for below, one in commands(command))
        else:
            yield name, command


def test_every_path_of_every_command_may_begin_with_the_home(home: Path) -> None:
    """`--out=~/run` is no file called `~` in the working folder."""
    (home / "there").mkdir()
    seen = 0
    for name, command in commands(main):  # type: ignore[arg-type]
        for parameter in command.params:
            kind = copy.copy(parameter.type)  # it is changed below
            if isinstance(kind, click.Path):
                given = "~/there" if not kind.exists else "~/file"
                (home / "file").touch()
                kind.dir_okay = kind.file_okay = True
                told = f"{name}: {parameter.name}"
                assert Path(str(kind.convert(given, parameter, None))) == home / given[2:], told
                seen += 1
            else:
                assert not isinstance(kind, click.File), name
    assert seen > 40


def with_paths() -> Iterator[tuple[str, Any]]:
    """Yield the public functions and methods of lw2g.api and of the products that take a path of a user."""
    of_the_api = pkgutil.iter_modules(lw2g.api.__path__, "lw2g.api.")
    for place in [*(info.name for info in of_the_api if not info.ispkg), *OF_PRODUCTS]:
        module = importlib.import_module(place)
        for name in module.__all__:
            thing = getattr(module, name)
            members = vars(thing).items() if inspect.isclass(thing) else [(name, thing)]
            for member, function in members:
                if member.startswith("_") or not inspect.isfunction(function):
                    continue
                kinds = [str(one.annotation) for one in inspect.signature(function).parameters.values()]
                if any("str | Path" in kind for kind in kinds):
                    yield f"{place}.{name}.{member}", function
    for name in lw2g.api.__all__:
        yield f"lw2g.api.{name}", getattr(lw2g.api, name)


def test_every_public_function_expands_its_paths() -> None:
    """By the one decorator; a context manager wraps the decorated function once more."""
    names = dict(with_paths())
    assert len(names) > 30
    for name, function in names.items():
        codes = []
        while function is not None:
            codes.append(function.__code__)
            function = getattr(function, "__wrapped__", None)
        assert expands_paths(lambda: None).__code__ in codes, name


def test_the_decorator_expands_what_is_annotated_as_a_path(home: Path) -> None:
    """Lists and further arguments too; other values, and other parameters, stay as they are."""

    @expands_paths
    def function(one: str | Path, name: str, *more: str | Path, out: Path | None = None) -> Any:
        return one, name, more, out

    assert function("~/a", "~/b", "~/c", Path("d"), out=Path("~/e")) == (
        home / "a",
        "~/b",
        (home / "c", Path("d")),
        home / "e",
    )
    assert function("a", "b") == ("a", "b", (), None)
    with pytest.raises(ConfigError, match=r"^name: the argument is missing; give name=\.\.\.$"):
        function("a")  # type: ignore[call-arg]
    wrong: tuple[tuple[tuple[Any, ...], str], ...] = (
        ((None, "b"), "one: expected a path but got None; give the path of a file or a folder$"),
        (({"a": 1}, "b"), r"one: expected a path but got {'a': 1}; .*; write what it holds"),
        (("a", "b", ["c"]), r"more: expected a path but got \['c'\]; give each as an argument of .*: \*more"),
    )
    for arguments, message in wrong:
        with pytest.raises(ConfigError, match=message):
            function(*arguments)
    with pytest.raises(ConfigError, match=r"^run: expected a path but got 3; give the folder of a run or of"):
        lw2g.load(3)  # type: ignore[arg-type]
    # an option has a name there, and what a grid holds has none
    with pytest.raises(ConfigError, match=r"but got {'a': 1}; .*; options go by their names: \*\*options$"):
        lw2g.run({"a": 1})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"grid: expected .*; write what it holds to a TOML file$"):
        plan_of({"a": 1})  # type: ignore[arg-type]


def test_the_decorator_refuses_what_is_no_plain_value(home: Path) -> None:
    """Numbers, texts and switches by their annotations; numpy's are such, and True is no number."""

    @expands_paths
    def function(
        count: int = 1,
        rate: float | None = None,
        name: str = "a",
        on: bool = True,
        local: Mapping[str, Any] | None = None,
    ) -> Any:
        return count, rate, name, on

    taken = function(np.int64(2), np.float32(0.5), "b", np.bool_(False))  # type: ignore[arg-type]
    assert taken == (2, 0.5, "b", False)
    assert function(rate=3) == (1, 3, "a", True)
    assert function(name=torch.device("cuda", 1)) == (1, None, "cuda:1", True)  # type: ignore[arg-type]
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"count": "3"}, "count: expected a whole number but got '3'; give a whole number, as in count=1$"),
        ({"count": 2.5}, "count: expected a whole number but got 2.5"),
        ({"count": True}, "count: expected a whole number but got True"),
        ({"count": None}, "count: expected a whole number but got None"),
        ({"rate": "a"}, "rate: expected a number but got 'a'; give a number, or leave it out$"),
        ({"name": 0}, "name: expected a text but got 0; give a text, as in name='a'$"),
        ({"on": "no"}, "on: expected True or False but got 'no'"),
        ({"local": "x"}, "local: expected a dict but got 'x'; give a dict, or leave it out$"),
    )
    for arguments, message in wrong:
        with pytest.raises(ConfigError, match=message):
            function(**arguments)


NO_PATHS = {
    "": "the path is empty; give the path of a file or a folder$",
    "a\0b.png": r"no path can be called 'a\\x00b.png'; leave the NUL character out$",
    "half \ud800": r"no path can be called 'half \\ud800'; write it in UTF-8$",
    "A" * 5000: r"'A{99}\.\.\. \(5002 characters\) is too long for a path; shorten it",
    "x/"
    * 3000: "is too long for a path; shorten it; if it is an encoded image, decode it and give the bytes$",
    "new/" + "\u00e9" * 128: "is too long for a path",
}


@pytest.mark.parametrize(
    ("text", "told"), NO_PATHS.items(), ids=["none", "NUL", "half", "long", "deep", "bytes"]
)
def test_what_cannot_be_a_path_is_refused(home: Path, text: str, told: str) -> None:
    """An empty one would be this folder, whatever lies in it; the others are told in a line."""

    @expands_paths
    def function(folder: str | Path | None = None, *runs: str | Path) -> None:
        raise AssertionError

    for call in (function, lambda given: function(None, given), lw2g.load, lw2g.report, lw2g.runs):
        with pytest.raises(DataError, match=f"^(folder|runs|run|directory): .*{told}"):
            call(text)
    with pytest.raises(DataError, match=told):
        expanded(text)
    if "\ud800" not in text:
        result = CliRunner().invoke(main, ["predict", "model", text])
        assert result.exit_code == 2
        assert "error: IMAGES...: " in result.output


def test_a_long_path_that_exists_is_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest name of a file system that allows more than the usual ones is nobody's mistake."""
    Path("n" * 255).touch()
    require_path("n" * 255)
    monkeypatch.setattr("lw2g.ground.spelling._LONGEST_NAME", 254)
    require_path("n" * 255)
    with pytest.raises(DataError):
        require_path("m" * 255)


@pytest.mark.slow
def test_paths_of_the_home_from_python_and_by_commands(home: Path) -> None:
    """A run, a model and what is made of them lie in the home folder, and nothing in one called `~`."""
    draw = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("ant", "bee"):
            images = (draw.integers(0, 256, (8, 8, 3), dtype=np.uint8) for _ in range(3))
            write_images(home / "photos" / split / name, images)
    options: dict[str, Any] = {"baseline": "simple-cil", "device": "cpu", "progress": False, "increment": 2}
    lw2g.run(benchmark="~/photos", out="~/run", precision="32-true", **options)
    lw2g.export("~/run", "~/export")
    model = lw2g.load("~/export")
    (answer,) = model.predict("~/photos/test/ant/0.png")
    assert answer["path"] == str(home / "photos/test/ant/0.png")
    assert len(as_list("~/photos/test")[0]) == 6
    assert len(lw2g.runs("~")) == 1
    done = CliRunner().invoke(main, ["start", "~/photos/train", "~/model", "--test=~/photos/test"])
    assert done.exit_code == 0, done.output
    for words in (["test", "~/model", "~/photos/test"], ["export", "~/run", "~/second"]):
        assert CliRunner().invoke(main, words).exit_code == 0, words
    assert {path.name for path in home.iterdir()} >= {"run", "export", "model", "second"}
    assert list(Path.cwd().iterdir()) == []
    with pytest.raises(ConfigError, match=f"weights.*{home}"):
        lw2g.run(
            benchmark="~/photos", weights="~/none.safetensors", out="~/other", backbone="vit-tiny", **options
        )
