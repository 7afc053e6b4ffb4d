"""Archives of all kinds, whole, damaged and hostile."""

from __future__ import annotations

import io
import shutil
import stat
import tarfile
import zipfile
from types import SimpleNamespace

import pytest

from lw2g.errors import DataError
from lw2g_datasets.archive import extract

FILES = {"top/train/a/1.jpg": b"one", "top/test/a/2.jpg": b"two", "top/README": b"read"}


def write(path, files):
    """Write an archive; a value that is a tarfile.TarInfo or ZipInfo is put in as it is."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in files.items():
                file.writestr(
                    *((content, b"target") if isinstance(content, zipfile.ZipInfo) else (name, content))
                )
    else:
        with tarfile.open(path, {".tgz": "w:gz", ".tbz": "w:bz2"}.get(path.suffix, "w")) as file:
            for name, content in files.items():
                info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
                body = b"" if info is content else content
                info.size = len(body)
                file.addfile(info, io.BytesIO(body))
    return path


def left(folder):
    """Return all names below a folder but those of archives."""
    return sorted(one.name for one in folder.rglob("*") if one.suffix not in (".zip", ".tar", ".tgz", ".tbz"))


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tgz"])
@pytest.mark.parametrize("above", ["", "deeper/", "set/"])
def test_the_innermost_folder_becomes_the_target(tmp_path, quiet, suffix, above):
    """Folders around the data are passed over, whatever they are called; the archive stays."""
    extra = {"__MACOSX/x": b"", ".hidden/x": b""} | ({"set/beside.txt": b""} if above == "set/" else {})
    archive = write(tmp_path / f"a{suffix}", {f"{above}{name}": one for name, one in FILES.items()} | extra)
    named = {"set/": "top"}.get(above, "set")
    extract(archive, tmp_path / named, quiet)
    assert (tmp_path / named / "train" / "a" / "1.jpg").read_bytes() == b"one"
    assert sorted(one.name for one in (tmp_path / named).iterdir()) == ["README", "test", "train"]
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([archive.name, named])


def test_what_an_archive_states_beside_its_bytes_is_not_kept(tmp_path, quiet):
    """Neither set-user-ID bits nor modes that lock the owner out come from an archive."""
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as file:
        for name, mode in {"set/a": 0o6777, "set/b": 0o000, "set/c": 0o644}.items():
            info = tarfile.TarInfo(name)
            info.mode, info.size, info.uid, info.mtime = mode, 4, 12345, 2**33
            file.addfile(info, io.BytesIO(b"four"))
    extract(archive, tmp_path / "set", quiet)
    for path in (tmp_path / "set").iterdir():
        status = path.stat()
        assert stat.S_IMODE(status.st_mode) == stat.S_IMODE(archive.stat().st_mode)
        assert status.st_uid == archive.stat().st_uid
        assert path.read_bytes() == b"four"


def link(kind, name="top/link", target="../../outside"):
    """Return a tar member that is no plain file."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_link():
    """Return a zip member that is a symbolic link."""
    info = zipfile.ZipInfo("top/link")
    info.create_system, info.external_attr = 3, 0o120777 << 16
    return info


@pytest.mark.parametrize(
    ("suffix", "member", "reason"),
    [
        (".tar", {"../evil": b"x"}, "leads outside"),
        (".zip", {"../evil": b"x"}, "leads outside"),
        (".zip", {"top/../../evil": b"x"}, "leads outside"),
        (".tar", {"/tmp/evil": b"x"}, "leads outside"),
        (".zip", {"/tmp/evil": b"x"}, "leads outside"),
        (".zip", {"..\\evil": b"x"}, "leads outside"),
        (".tar", {"C:/evil": b"x"}, "leads outside"),
        (".tar", {"l": link(tarfile.SYMTYPE)}, "is a link, a device, full of holes or encrypted"),
        (
            ".tgz",
            {"l": link(tarfile.LNKTYPE, target="/etc/passwd")},
            "is a link, a device, full of holes or encrypted",
        ),
        (".tar", {"l": link(tarfile.FIFOTYPE)}, "is a link, a device, full of holes or encrypted"),
        (".tar", {"l": link(tarfile.CHRTYPE)}, "is a link, a device, full of holes or encrypted"),
        (".zip", {"l": zip_link()}, "is a link, a device, full of holes or encrypted"),
    ],
)
def test_what_leads_elsewhere_is_refused(tmp_path, quiet, suffix, member, reason):
    """A member outside the target, a link or a device refuses the whole archive; nothing is left behind."""
    inside = tmp_path / "inside"
    inside.mkdir()
    archive = write(inside / f"a{suffix}", FILES | member)
    with pytest.raises(DataError, match=f"is not safe: member .* {reason}"):
        extract(archive, inside / "set", quiet)
    assert left(tmp_path) == ["inside"]


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize("suffix", ["", "gz", "bz2", "xz"])
def test_names_of_every_format_are_read(tmp_path, quiet, form, suffix):
    """Long names and letters beyond ASCII come out as they went in; further records do not matter."""
    long = "/".join(["d" * 60] * 3)
    names = {f"{long}/1.jpg": b"one", "a/2.jpg": b"two" * 400}
    if form != tarfile.USTAR_FORMAT:
        names |= {f"{'n' * 200}.jpg": b"3", "café/4.jpg": b""}
    with tarfile.open(
        tmp_path / "a.archive", f"w:{suffix}", format=form, pax_headers={"comment": "x" * 900}
    ) as file:
        for name, content in names.items():
            info = tarfile.TarInfo(f"set/{name}")
            info.size, info.pax_headers = (
                len(content),
                {"SCHILY.xattr.user.note": "y" * 9_000, "mtime": "1.5"},
            )
            info.uname = "someone"
            file.addfile(info, io.BytesIO(content))
    extract(tmp_path / "a.archive", tmp_path / "set", quiet)
    found = {one.relative_to(tmp_path / "set").as_posix(): one for one in (tmp_path / "set").rglob("*.jpg")}
    assert {name: one.read_bytes() for name, one in found.items()} == names


def test_files_with_holes_and_odd_compression_are_refused(tmp_path, quiet):
    """They state more than they hold, and their readers believe it."""
    sparse = tarfile.TarInfo("set/a")
    sparse.type, sparse.size = tarfile.GNUTYPE_SPARSE, 0
    recorded = tarfile.TarInfo("set/a")
    recorded.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "9"}
    for info, form in ((sparse, tarfile.GNU_FORMAT), (recorded, tarfile.PAX_FORMAT)):
        (tmp_path / "a.tar").write_bytes(info.tobuf(form) + bytes(1024))
        with pytest.raises(DataError, match="member 'set/a' is a link, a device, full of holes or encrypted"):
            extract(tmp_path / "a.tar", tmp_path / "set", quiet)
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as file:
            file.writestr("set/a", bytes(9_000))
        with pytest.raises(DataError, match="member 'set/a' is compressed by another method than deflate"):
            extract(tmp_path / "a.zip", tmp_path / "set", quiet)
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["set/" + "n" * 300], "file name too long at '.*nnn"),
        (["set/a", "set/a/b"], "(file exists|not a directory) at '.*/set/a'"),
        (["set/a/b", "set/a"], "is a directory at '.*/set/a'"),
    ],
)
@pytest.mark.parametrize("suffix", [".zip", ".tgz"])
def test_what_the_system_refuses_names_the_archive(tmp_path, quiet, suffix, names, said):
    """One line says which archive, what was refused and where, and nothing is left behind."""
    archive = write(tmp_path / f"a{suffix}", dict.fromkeys(names, b"x"))
    with pytest.raises(DataError, match=rf"^archive '.*a\{suffix}' cannot be unpacked: {said}"):
        extract(archive, tmp_path / "set", quiet)
    assert left(tmp_path) == []


@pytest.mark.parametrize("suffix", [".zip", ".tgz"])
def test_bombs_are_refused(tmp_path, quiet, suffix):
    """What would unpack to far more than images do is refused by its declared size."""
    archive = write(tmp_path / f"a{suffix}", {f"top/{i}": bytes(16 << 20) for i in range(5)})
    assert archive.stat().st_size < 1 << 20
    with pytest.raises(DataError, match="would unpack to more than 67108864; it is not an archive of images"):
        extract(archive, tmp_path / "set", quiet)
    assert left(tmp_path) == []


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tgz", ".tbz"])
def test_what_is_cut_or_damaged_is_refused_or_unpacks_whole(tmp_path, quiet, suffix):
    """Cut anywhere, or with a bit of a header changed, it is never unpacked in part."""
    names = [f"top/{number}" for number in range(9)]
    archive = write(tmp_path / f"a{suffix}", {name: name.encode() * 99 for name in names})
    whole, target = archive.read_bytes(), tmp_path / "set"
    raw = suffix == ".tar"
    cuts = [*range(0, 9 * 1024, 256)] if raw else [*range(0, len(whole), 19), len(whole) - 4]
    flips = [1024 * member + byte for member in range(9) for byte in (0, 105, 130, 150, 156, 259, 511)]
    for damaged in (
        *(whole[:cut] for cut in cuts),
        *(_flipped(whole, byte) for byte in (flips if raw else range(0, len(whole), 7))),
    ):
        archive.write_bytes(damaged)
        try:
            extract(archive, target, quiet)
        except DataError:
            assert left(tmp_path) == []
        else:  # the bit says nothing of the members, such as one of a date
            assert len(damaged) == len(whole)
            assert {one.name: one.read_bytes() for one in target.iterdir()} == {
                name[4:]: name.encode() * 99 for name in names
            }
            shutil.rmtree(target)


def _flipped(content, byte):
    """Return content with one bit of a byte changed."""
    return content[:byte] + bytes([content[byte] ^ 1]) + content[byte + 1 :]


def test_fewer_files_than_are_published_are_refused(tmp_path, quiet):
    """An archive that is whole and holds too little leaves nothing behind either."""
    archive = write(tmp_path / "a.tar", FILES)
    extract(archive, tmp_path / "set", quiet, 3)
    with pytest.raises(DataError, match=r"found 3 files for .*, where 4 images are published"):
        extract(archive, tmp_path / "other", quiet, 4)
    assert not (tmp_path / "other").exists()


def test_a_killed_command_is_made_anew(tmp_path, quiet):
    """What an earlier command left half done does not count, and a finished target is not overwritten."""
    archive = write(tmp_path / "a.zip", FILES)
    stale = tmp_path / ".set.unpacking" / "top" / "train" / "old"
    stale.mkdir(parents=True)
    extract(archive, tmp_path / "set", quiet)
    assert sorted(one.name for one in (tmp_path / "set" / "train").iterdir()) == ["a"]
    with pytest.raises(DataError, match="exists already; move it away"):
        extract(archive, tmp_path / "set", quiet)
    assert not (tmp_path / ".set.unpacking").exists()


def test_other_files_and_empty_archives_are_refused(tmp_path, quiet):
    """What is no archive, or holds nothing, is told."""
    page = tmp_path / "page.html"
    page.write_text("<html>quota exceeded</html>")
    with pytest.raises(DataError, match="neither a tar nor a zip archive"):
        extract(page, tmp_path / "set", quiet)
    with pytest.raises(DataError, match="the archive is empty"):
        extract(write(tmp_path / "a.zip", {}), tmp_path / "set", quiet)


def test_no_room_leaves_nothing(tmp_path, quiet, monkeypatch):
    """A member larger than what is free is not begun."""
    archive = write(tmp_path / "a.tar", FILES)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2))
    with pytest.raises(DataError, match="no room in "):
        extract(archive, tmp_path / "set", quiet)
    assert left(tmp_path) == []
