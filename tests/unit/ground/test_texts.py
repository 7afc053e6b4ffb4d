"""Text that people write is read as their editors save it."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import numpy as np
import pytest

from lw2g.config.toml import read_json, read_toml
from lw2g.errors import ConfigError
from lw2g.ground.texts import text_of
from lw2g.pixels.feature_files import open_features
from lw2g_constraints.export import read_class_names
from lw2g_constraints.text import read_names

MARKED = {
    "plain": str.encode,
    "UTF-8 with a mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "UTF-16 of Windows": lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
    "UTF-16, big": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
}


@pytest.fixture(params=MARKED)
def write(request, tmp_path):
    """Return a function that writes text as one editor does."""

    def written(text: str, name: str = "file") -> Path:
        path = tmp_path / name
        path.write_bytes(MARKED[request.param](text))
        return path

    return written


def test_a_byte_order_mark_is_no_part_of_a_text(write):
    """A mark names the encoding, and line ends are those of the file."""
    assert text_of(write("café\r\n\ufeff")) == "café\r\n\ufeff"


def test_files_of_settings_may_have_a_mark(write):
    """TOML and JSON that people write, and tables of names."""
    assert read_toml(write('[run]\nseed = 3\nname = "é"\n')) == {"run": {"seed": 3, "name": "é"}}
    assert read_json(write('{"é": [1]}')) == {"é": [1]}
    assert read_names(write('{"n02009912": "egret"}')) == {"n02009912": "egret"}
    assert read_class_names(write('["é", "b"]')) == ["é", "b"]


def test_features_may_be_described_with_a_mark(write, tmp_path):
    """The description beside stored features names their classes."""
    for split in ("train", "test"):
        np.save(tmp_path / f"{split}_x.npy", np.eye(2, dtype=np.float32))
        np.save(tmp_path / f"{split}_y.npy", np.arange(2))
    write('{"class_names": ["é", "b"]}', "features.json")
    assert open_features(tmp_path).class_names == ("é", "b")


def test_what_is_no_text_is_refused(tmp_path):
    """A mark is no excuse for noise."""
    path = tmp_path / "noise.toml"
    path.write_bytes(codecs.BOM_UTF16_LE + b"\x00\xd8x")
    with pytest.raises(ConfigError, match=r"noise.toml' is no TOML"):
        read_toml(path)
    path.write_bytes(json.dumps("é", ensure_ascii=False).encode("latin-1"))
    with pytest.raises(ConfigError, match="it holds no text"):
        read_toml(path)
