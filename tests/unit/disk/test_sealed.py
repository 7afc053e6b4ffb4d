"""Sealed files tell of every changed bit; writes are whole or not there."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from lw2g.disk.sealed import seal_json, sha256_of, unseal_json, write_atomically
from lw2g.errors import DataError

RECORD = {"matrix": [[90.5, 70.25], [None, 1e-05]], "names": ["ä", "b"], "entries": [{"a": 1}], "empty": []}


def test_sealed_json_is_plain_json_and_comes_back(tmp_path: Path) -> None:
    """Any reader can read it, and the checksum is that of the lines before it."""
    path = tmp_path / "record.json"
    path.write_bytes(seal_json(RECORD))
    assert unseal_json(path) == RECORD
    plain = json.loads(path.read_text())
    assert plain == RECORD | {"sha256": plain["sha256"]}
    shell = subprocess.run(f"head -n -2 '{path}' | sha256sum", shell=True, capture_output=True, check=True)
    assert shell.stdout.decode().split()[0] == plain["sha256"]


@pytest.mark.slow
def test_every_flipped_bit_of_sealed_json_is_noticed(tmp_path: Path) -> None:
    """Also in white space, in the checksum, and where the number stays the same."""
    path, content = tmp_path / "record.json", seal_json(RECORD)
    for place in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            with pytest.raises(DataError, match=r"record\.json"):
                unseal_json(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"sha256": 1}', b"3"])
def test_what_is_no_sealed_json_is_one_line(tmp_path: Path, content: bytes) -> None:
    """Whatever lies there is named, without a traceback."""
    path = tmp_path / "record.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"record\.json"):
        unseal_json(path)


def test_an_undefined_number_is_never_written() -> None:
    """NaN is no JSON."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        seal_json({"x": float("nan")})


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk leaves the old content and nothing beside it."""
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_written_file_has_the_usual_rights(tmp_path: Path) -> None:
    """Others may read it as any file that the user makes, and its checksum is that of the content."""
    path, plain = tmp_path / "file", tmp_path / "plain"
    write_atomically(path, b"content")
    plain.write_bytes(b"content")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    assert sha256_of(path) == hashlib.sha256(b"content").hexdigest()
    assert sha256_of(tmp_path) is None
    assert sha256_of(tmp_path / "none") is None


def test_a_full_disk_is_told_with_the_file_and_leaves_nothing(tmp_path, monkeypatch):
    """What cannot be written whole is named by its path, and neither it nor a part of it is there."""

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lw2g.disk.sealed.os.fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_atomically(tmp_path / "record.json", b"{}")
    assert caught.value.filename == str(tmp_path / "record.json")
    assert list(tmp_path.iterdir()) == []
