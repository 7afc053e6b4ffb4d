"""Values of baselines in TOML: what they say, and that a mistake in a file is one line with file and key."""

from __future__ import annotations

import textwrap

import pytest

from lw2g.blocks.presets import PresetFile, shared_rows
from lw2g.errors import PluginError
from lw2g.registry.catalogue import load_catalogue


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that writes the presets of a package and names their only baseline."""
    (tmp_path / "some_methods").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text):
        (tmp_path / "some_methods/presets.toml").write_text(textwrap.dedent(text))
        return PresetFile("some_methods").official("mine")

    return write


def test_later_entries_lie_above_earlier_ones_and_rows_beneath(package):
    """An entry holds for all families that it names; rows are like others, of the file or of lw2g."""
    presets = package(
        """
        [rows.small]
        like = ["natural"]
        benchmark.increment = 5
        [mine]
        source = "the paper"
        [[mine.official]]
        on = ["cifar100", "cub200"]
        like = ["small"]
        baseline = { epochs = 20, lr = 0.1 }
        [[mine.official]]
        on = ["cub200"]
        baseline.epochs = 5
        constraints.cpk.phi = 0.5
        [[mine.tuned]]
        on = ["digits"]
        baseline.epochs = 1
        """
    )
    row = {"benchmark.order": "natural", "benchmark.increment": 5}
    assert dict(presets) == {
        "cifar100": row | {"baseline.epochs": 20, "baseline.lr": 0.1},
        "cub200": row | {"baseline.epochs": 5, "baseline.lr": 0.1, "constraints.cpk.phi": 0.5},
    }
    assert presets.source == "the paper"
    assert shared_rows()["natural"] == {"benchmark.order": "natural"}


OFFICIAL = '[mine]\nsource = "the paper"\n[[mine.official]]\non = ["digits"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[mine", "some_methods/presets.toml cannot be read: "),
        ("[[mine.official]]\non = ['digits']", "mine.source: say in words"),
        ("[mine]\nofficail = 3", r"mine.officail: no such key \(did you mean 'official'\?\)"),
        ("[yours]\nsource = 'x'", "no record asks for 'yours'"),
        (OFFICIAL + "baseline = 3", "mine.official.baseline: expected the name of an option"),
        (
            OFFICIAL + "basline.lr = 3",
            r"mine.official.basline.lr: no such section \(did you mean 'baseline'\?\)",
        ),
        (OFFICIAL + "run.seed = 3", "mine.official.run.seed: no such section"),
        (OFFICIAL + "backbone.weights = 'x'", "mine.official.backbone.weights: of a backbone only the name"),
        (OFFICIAL + "like = ['naturel']", r"mine.official.like: no row is called 'naturel' \(did you mean"),
        ("[mine]\nsource = 'x'\n[[mine.official]]\nlike = []", "mine.official.on: expected a list of names"),
        (
            "[mine]\n[[mine.tuned]]\non = ['x']\nbenchmark.order = 'x'",
            "mine.tuned.benchmark.order: no such sec",
        ),
        ("[mine]\ntuned = 3", "mine.tuned: expected a list of tables"),
        ("mine = 3", "mine: expected a table but got 3"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(package, text, message):
    """Whoever writes the file reads what is wrong with it, when its values are first asked for."""
    presets = package(text)
    with pytest.raises(PluginError, match=message) as caught:
        dict(presets)
    assert str(caught.value).startswith("some_methods/presets.toml")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_told(package):
    """A wheel without its data says so."""
    with pytest.raises(PluginError, match=r"some_methods/other\.toml cannot be read: it is not there"):
        dict(PresetFile("some_methods", "other.toml").tuned("mine"))


def test_official_values_say_where_they_come_from():
    """Every first-party file can be read, and has values for every record that asks for some."""
    for entry in load_catalogue().components():
        presets = getattr(entry.component, "presets", None)
        if presets is not None and entry.origin.first_party:
            assert presets
            assert presets.source
