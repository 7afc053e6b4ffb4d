"""The command that trains on the images of a first model: typed as it is printed, it runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lw2g_photos.training_line import training_command

NOT_GIVEN: dict[str, Any] = {
    **{"backbone": None, "weights": None, "image_size": None},
    **{"boxes": None, "margin": 0.0, "min_side": 0, "square": True},
}
AS_MEASURED = "--set benchmark.test_resize=squash --set benchmark.train_transform=none"
OF_FOLDER = "--benchmark folder --set benchmark.root=photos --set benchmark.test_share=0.2"


def made_of(images: Sequence[int], unusable: Sequence[str] = ()) -> dict[str, Any]:
    """Return the report of a model of so many images of each class."""
    return {"classes": [{"images": count} for count in images], "unusable": unusable}


@pytest.mark.parametrize(
    ("images", "options", "expected"),
    [
        ([8, 8], {}, f"{OF_FOLDER} --set benchmark.increment=2 {AS_MEASURED}"),
        ([8] * 3, {}, f"{OF_FOLDER} --set benchmark.increment=3 {AS_MEASURED}"),
        ([8] * 4, {}, f"{OF_FOLDER} --set benchmark.increment=2 {AS_MEASURED}"),
        ([8] * 5, {}, f"{OF_FOLDER} --set benchmark.increment=3 --set benchmark.uneven=true {AS_MEASURED}"),
        ([8] * 6, {}, f"{OF_FOLDER} --set benchmark.increment=3 {AS_MEASURED}"),
        (
            [8] * 4,
            {"backbone": "vit-tiny", "weights": Path("my file.pth"), "image_size": 96},
            f"--backbone vit-tiny --weights 'my file.pth' {OF_FOLDER} --set benchmark.increment=2 "
            f"{AS_MEASURED} --set backbone.image_size=96",
        ),
        (
            [8] * 4,
            {"boxes": Path("boxes.csv"), "margin": 0.1, "square": False},
            f"{OF_FOLDER} --set benchmark.increment=2 {AS_MEASURED} --set benchmark.boxes=boxes.csv --set "
            "benchmark.margin=0.1 --set benchmark.square=false",
        ),
        ([8], {}, None),
        ([8, 8, 1], {}, None),
    ],
)
def test_what_is_known_is_filled_in(images: list[int], options: dict[str, Any], expected: str | None) -> None:
    """Folder, backbone, weights and tasks that divide the classes; nothing where no command would run."""
    found = training_command(Path("photos"), made_of(images), NOT_GIVEN | options)
    assert found == ("" if expected is None else f"lw2g run --trained {expected} --out runs/photos")


@pytest.mark.parametrize(("train", "test"), [("train", "test"), ("TRAIN", "Test")])
@pytest.mark.parametrize(
    ("tested", "expected"),
    [(("a", "b"), "{} --set benchmark.increment=2"), (("a",), "{}/{} --set benchmark.test_share=0.2 ")],
)
def test_a_split_is_trained_on_where_the_other_tests(
    tested: tuple[str, ...], expected: str, train: str, test: str, tmp_path: Path
) -> None:
    """`DIR/train` beside a `DIR/test` of the same classes: the root is `DIR`, and no image is drawn."""
    for name in (f"{train}/a", f"{train}/b", *(f"{test}/{name}" for name in tested)):
        (tmp_path / name).mkdir(parents=True)
    bad = [str(tmp_path / f"{place}/a/bad 1.png") for place in (train, test)]
    found = training_command(tmp_path / train, made_of([8] * 2, bad), NOT_GIVEN)
    assert f"benchmark.root={expected.format(tmp_path, train)}" in found
    *_, excluded, _, out = shlex.split(found)
    assert out == f"runs/{tmp_path.name if len(tested) > 1 else train}"
    excluded = excluded.removeprefix("benchmark.exclude=")
    ids = [f"{train}/a/bad 1.png"]  # as runs on that root call them
    if len(tested) > 1:
        ids = [f"{tmp_path.name}/{place}/a/bad 1.png" for place in (train, test)]
    assert json.loads(excluded) == ids
