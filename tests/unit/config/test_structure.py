"""Option records are read strictly, and every problem of a table is told at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
import torch
from attrs.validators import ge, le
from hypothesis import given
from hypothesis import strategies as st

from lw2g.config.structure import describe_type, structure, unstructure
from lw2g.interfaces.options import option


@attrs.frozen(kw_only=True)
class Inner:
    depth: int = 1


@attrs.frozen(kw_only=True)
class Options:
    epochs: int = option(3, "h", validator=ge(1))
    rate: float = option(0.5, "h", validator=[ge(0), le(1)])
    on: bool = True
    word: str = "x"
    maybe: int | None = None
    clip: float | None = 1.0
    rule: Literal["reach", "below"] = "reach"
    power: Literal[2, 4] = 2
    either: Literal["auto", "none"] | int | None = "auto"
    blocks: tuple[int, ...] = option((0, 1), "h", converter=tuple)
    names: tuple[str, ...] = ()
    parts: tuple[Literal["q", "v"], ...] | None = None
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    root: Path | None = None
    inner: Inner = attrs.field(factory=Inner)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({}, Options()),
        ({"rate": 1}, Options(rate=1.0)),
        ({"maybe": 4}, Options(maybe=4)),
        ({"word": torch.device("cuda:1")}, Options(word="cuda:1")),
        ({"clip": "none"}, Options(clip=None)),
        ({"either": "none"}, Options(either="none")),
        ({"either": 3}, Options(either=3)),
        ({"power": 4, "rule": "below"}, Options(power=4, rule="below")),
        ({"blocks": [5]}, Options(blocks=(5,))),
        ({"mean": [0, 1, 0.5]}, Options(mean=(0.0, 1.0, 0.5))),
        ({"root": "/data"}, Options(root=Path("/data"))),
        ({"inner": {"depth": 2}}, Options(inner=Inner(depth=2))),
    ],
)
def test_plain_values_become_typed_ones(table, expected):
    """Each supported type is read from what TOML can hold."""
    assert structure(Options, table) == (expected, [])


def test_of_many_options_the_nearest_are_named():
    """A handful of them, however many there are."""
    _, problems = structure(Options, {"xyzzyxt": 1}, beside=[f"other_{number}" for number in range(30)])
    ((_, told),) = problems
    count = len(attrs.fields(Options)) + 30
    assert told.startswith(f"no such option (of {count} the nearest are ")
    assert told.count(",") == 4


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("epochs", "3", "expected a whole number but got '3'"),
        ("epochs", 3.7, "expected a whole number but got 3.7"),
        ("epochs", True, "expected a whole number but got True"),
        ("epochs", 0, "must be >= 1: 0"),
        ("rate", "high", "expected a number but got 'high'"),
        ("rate", float("nan"), "expected a finite number but got nan"),
        ("rate", 1.5, "must be <= 1: 1.5"),
        ("on", 1, "expected true or false but got 1"),
        ("word", 3, "expected text in quotes but got 3"),
        ("maybe", "x", "expected a whole number or 'none' but got 'x'"),
        ("rule", "reech", "expected one of 'reach', 'below' but got 'reech' (did you mean 'reach'?)"),
        ("power", True, "expected one of 2, 4 but got True"),
        ("power", 2.0, "expected one of 2, 4 but got 2.0"),
        ("blocks", "0, 1", "expected list of whole numbers but got '0, 1'; write [0, 1]"),
        ("blocks", "[0, 1", "got '[0, 1'; write [0, 1]"),
        ("blocks", "all", "expected list of whole numbers but got 'all'"),
        ("blocks", [0, "a"], "expected list of whole numbers but got [0, 'a']"),
        ("names", "a,b", 'expected list of text in quotes but got \'a,b\'; write ["a", "b"]'),
        ("names", "[1, 2", 'write ["1", "2"]'),
        ("parts", "q, v", 'write ["q", "v"]'),
        ("mean", [0.5], "expected list of 3 values: a number, a number, a number but got [0.5]"),
        ("root", 3, "expected path or 'none' but got 3"),
        ("epoch", 3, "no such option (did you mean 'epochs'?)"),
        ("inner", 3, "expected a table but got 3"),
    ],
)
def test_a_bad_value_is_refused_with_what_was_expected(key, value, message):
    """Nothing is turned silently into something else."""
    record, problems = structure(Options, {key: value})
    assert record is None
    (problem,) = problems
    assert problem[0] == key
    assert problem[1].endswith(message)


def test_problems_of_a_nested_table_have_its_path():
    """A record within a record is read just as strictly."""
    problems = structure(Options, {"inner": {"depth": "x", "dept": 1}})[1]
    assert problems == [
        ("inner.depth", "expected a whole number but got 'x'"),
        ("inner.dept", "no such option (did you mean 'depth'?)"),
    ]


def test_a_default_of_another_type_is_told_with_its_class():
    """It is a mistake of whoever wrote the class, and not of whoever runs it."""

    @attrs.frozen(kw_only=True)
    class Wrong:
        rate: float = attrs.field(default="a")

    ((key, text),) = structure(Wrong, {})[1]
    assert key == "rate"
    assert text.startswith("expected a number but got 'a' (the default of 'rate' in ")
    assert text.endswith(".Wrong)")
    assert structure(Wrong, {"rate": "b"})[1] == [("rate", "expected a number but got 'b'")]


def test_all_problems_of_a_table_are_found_at_once():
    """Unknown keys, wrong types and values out of range are told together."""
    table = {"epochs": "x", "rate": 7, "rule": "no", "unknown": 1, "word": "fine"}
    assert [key for key, _ in structure(Options, table)[1]] == ["epochs", "rate", "rule", "unknown"]


def test_options_that_do_not_go_together_are_told_without_a_key():
    """A rule over several options is checked once each is fine by itself."""

    @attrs.frozen(kw_only=True)
    class Pair:
        low: int = 0
        high: int = 1

        def __attrs_post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("'low' must not exceed 'high'")

    assert structure(Pair, {"low": 5}) == (None, [("", "'low' must not exceed 'high'")])
    assert structure(Pair, {"low": 5, "high": 6}) == (Pair(low=5, high=6), [])


def test_relative_paths_become_absolute_wherever_they_come_from(tmp_path, monkeypatch):
    """A resolved configuration means the same from another folder, defaults included."""

    @attrs.frozen(kw_only=True)
    class Place:
        root: Path = Path("data")
        other: Path | None = None

    monkeypatch.chdir(tmp_path)
    record, _ = structure(Place, {"other": "x/y"})
    assert record == Place(root=tmp_path / "data", other=tmp_path / "x/y")


def options() -> st.SearchStrategy[Options]:
    """Draw valid option records."""
    finite = st.floats(allow_nan=False, allow_infinity=False)
    return st.builds(
        Options,
        epochs=st.integers(1, 10**6),
        rate=st.floats(0, 1),
        on=st.booleans(),
        word=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5),
        maybe=st.none() | st.integers(-(2**63), 2**63 - 1),
        clip=st.none() | finite,
        rule=st.sampled_from(["reach", "below"]),
        power=st.sampled_from([2, 4]),
        either=st.sampled_from(["auto", "none"]) | st.integers(-(2**63), 2**63 - 1),
        blocks=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple),
        mean=st.tuples(finite, finite, finite),
        root=st.none() | st.sampled_from([Path("/a"), Path("/b/c.npz")]),
        inner=st.builds(Inner, depth=st.integers(-(2**63), 2**63 - 1)),
    )


@given(options())
def test_unstructure_and_structure_undo_each_other(record):
    """What is written reads back equal."""
    assert structure(Options, unstructure(record)) == (record, [])


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (int, "int"),
        (float | None, "float or 'none'"),
        (Literal["a", 2], "one of 'a', 2"),
        (tuple[str, ...], "list of str"),
        (tuple[int, float], "list of 2 values: int, float"),
        (Path, "path"),
        (Any, "anything"),
    ],
)
def test_types_are_described_in_words(kind, words):
    """Messages and listings say types as a user would."""
    assert describe_type(kind) == words
