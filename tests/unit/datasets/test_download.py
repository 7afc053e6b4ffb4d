"""Downloads from a host that breaks off, lies, or has nothing."""

from __future__ import annotations

import errno
import hashlib
import shutil
from types import SimpleNamespace

import pytest

from lw2g.errors import DataError
from lw2g.interfaces.dataset import RemoteFile
from lw2g_datasets import download as module
from lw2g_datasets.download import download

CONTENT = bytes(range(256)) * 40
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture
def remote(host):
    """A file of 10,240 bytes on the host."""
    host.files["/a.bin"] = CONTENT
    return RemoteFile(name="a.bin", url=f"{host.address}/a.bin?x=1", checksum=SHA256)


@pytest.mark.parametrize("checksum", [MD5, SHA256, None])
def test_a_file_is_fetched_once(host, tmp_path, quiet, checksum):
    """A whole file is kept under its name, reported, and not asked for again."""
    host.files["/a.bin"] = CONTENT
    file = RemoteFile(name="a.bin", url=f"{host.address}/a.bin", checksum=checksum)
    path = download(file, tmp_path / "new", quiet)
    assert path.read_bytes() == CONTENT
    assert quiet.told[-1] == ("a.bin", 10_240, 10_240)
    assert download(file, tmp_path / "new", quiet) == path
    assert len(host.asked) == 1
    assert [one.name for one in path.parent.iterdir()] == ["a.bin"]


def test_an_answer_that_breaks_off_is_gone_on_with(host, remote, tmp_path, quiet):
    """What is missing, and no more, is asked for."""
    host.cut = [4_000, 2_000]
    assert download(remote, tmp_path, quiet).read_bytes() == CONTENT
    assert [one[2] for one in host.asked] == [None, "bytes=4000-", "bytes=6000-"]


def test_a_download_goes_on_in_a_later_command(host, remote, tmp_path, quiet):
    """A host that gives nothing more ends in one line; what has arrived is used next time."""
    host.cut = [5_000, 0]
    with pytest.raises(DataError, match="ended after 5000 of 10240 bytes; run the command again"):
        download(remote, tmp_path, quiet)
    assert download(remote, tmp_path, quiet).read_bytes() == CONTENT
    assert host.asked[-1][2] == "bytes=5000-"


def test_a_host_that_cannot_resume_starts_again(host, remote, tmp_path, quiet):
    """The whole answer replaces the part, and a part that is whole already is just checked."""
    (tmp_path / "a.bin.part").write_bytes(b"x" * 100)
    host.resumes = False
    assert download(remote, tmp_path, quiet).read_bytes() == CONTENT
    host.resumes = True
    (tmp_path / "a.bin").rename(tmp_path / "a.bin.part")
    assert download(remote, tmp_path, quiet).read_bytes() == CONTENT


def test_a_part_is_not_trusted_without_a_checksum(host, remote, tmp_path, quiet):
    """Nothing would tell whether two halves belong together: the download starts from its beginning."""
    (tmp_path / "a.bin.part").write_bytes(b"x" * 100)
    file = RemoteFile(name="a.bin", url=remote.url)
    assert download(file, tmp_path, quiet).read_bytes() == CONTENT
    assert host.asked[0][2] is None


def test_another_file_is_refused_and_deleted(host, remote, tmp_path, quiet):
    """A wrong checksum names both; nothing of it is used by the next attempt."""
    host.files["/a.bin"] = CONTENT[::-1]
    with pytest.raises(DataError, match=r"is not the published file: expected sha256:.* but got sha256:"):
        download(remote, tmp_path, quiet)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a.bin").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"a.bin' does not match sha256:.*move it away"):
        download(remote, tmp_path, quiet)
    assert (tmp_path / "a.bin").read_bytes() == b"mine"


def test_no_answer_is_told_in_one_line(host, tmp_path, quiet):
    """No such file, no such host and an address of another kind are told apart."""
    for url, message in (
        (f"{host.address}/none", r"answers 404 \(Not Found\); try another source"),
        ("http://127.0.0.1:9/a", "cannot fetch http://127.0.0.1:9/a"),
        ("file:///etc/passwd", "is neither http nor https"),
    ):
        with pytest.raises(DataError, match=message):
            download(RemoteFile(name="a", url=url), tmp_path, quiet)
    assert list(tmp_path.glob("a")) == []


def test_no_room_is_said_before_and_while_writing(host, remote, tmp_path, quiet, monkeypatch):
    """A file larger than what is free is not begun; a disk that fills up keeps what has arrived."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10_239))
    with pytest.raises(DataError, match=r"no room in .*0.00 GB are needed"):
        download(remote, tmp_path, quiet)
    monkeypatch.undo()
    copy = module._copy

    def full(answer, out, *rest):
        out.write(answer.read(3_000))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "_copy", full)
    with pytest.raises(DataError, match=r"no room left in .*it continues from there"):
        download(remote, tmp_path, quiet)
    monkeypatch.setattr(module, "_copy", copy)
    assert download(remote, tmp_path, quiet).read_bytes() == CONTENT
    assert host.asked[-1][2] == "bytes=3000-"
