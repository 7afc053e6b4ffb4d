"""Records from TOML: a mistake in a file of facts is one line with file and key."""

from __future__ import annotations

import pytest

from lw2g.errors import PluginError
from lw2g.interfaces.dataset import RemoteFile, Split
from lw2g.interfaces.tables import make_record


def test_a_record_is_made_of_plain_values():
    """Lists are tuples, and what has a default may be left out."""
    split = make_record(Split, {"reader": "folders", "train": 3, "test_sizes": [1, 2]}, "facts.toml: mine")
    assert split == Split(reader="folders", train=3, test_sizes=(1, 2))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"name": "a.txt", "url": "x", "checksm": "y"},
            r"mine.checksm: no such key \(did you mean 'checksum'\?\)",
        ),
        ({"name": "a.txt"}, "mine: url missing"),
        ({"name": 3, "url": "x"}, "mine.name: a value of another type, 3"),
        ({"name": "a.txt", "url": "x", "checksum": "md5:1"}, "mine: 'checksum' must match regex"),
        ([1], r"mine: expected a table but got \[1\]"),
    ],
)
def test_a_mistake_names_file_and_key(table, message):
    """Unknown and missing keys, wrong types, and what the class itself refuses."""
    with pytest.raises(PluginError, match=rf"^facts\.toml: {message}.*correct the file$"):
        make_record(RemoteFile, table, "facts.toml: mine")


@pytest.mark.parametrize("number", [0, 1])
def test_one_is_a_number_and_true_is_none(number):
    """Python counts True as 1; in a file they are two things."""
    assert make_record(Split, {"reader": "folders", "train": number}, "facts.toml: mine").train == number
    with pytest.raises(PluginError, match=r"mine.train: a value of another type, (True|False)"):
        make_record(Split, {"reader": "folders", "train": bool(number)}, "facts.toml: mine")
