"""Data sets brought by each kind of route, from a host on this machine."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import tarfile
import zipfile

import attrs
import numpy as np
import pytest
import torchvision.datasets

from lw2g.errors import ConfigError, DataError
from lw2g.interfaces.dataset import (
    ByHand,
    DataSet,
    FileRoute,
    HubRoute,
    RemoteFile,
    Split,
    TorchvisionRoute,
)
from lw2g_datasets.obtain import obtain

COMMIT = "0123456789" * 4
FILES = {"set/train/a/1.jpg": b"one", "set/test/a/2.jpg": b"two"}


def zipped(files):
    """Return the bytes of a zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return out.getvalue()


def md5(content):
    """Return a checksum as records have it."""
    return f"md5:{hashlib.md5(content).hexdigest()}"


ARCHIVE = zipped(FILES)


def data_set(*routes, **more):
    """Return the facts of a data set with these routes."""
    facts = {
        "name": "birds",
        "title": "Birds",
        "num_classes": 2,
        "folder": "set",
        "layout": "train and test",
        "splits": {"folders": Split(reader="folders")},
        "page": "page",
        "terms": "terms",
        "routes": routes,
    }
    return DataSet(**facts | more)


@pytest.fixture
def get(tmp_path, quiet):
    """Return a function that obtains a data set below ``root``; it returns files and what was said."""

    def run(data, **options):
        said: list[str] = []
        root = tmp_path / "root"
        obtain(data, root, quiet, said.append, **options)
        files = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
        return files, said

    return run


def test_an_archive_with_a_checksum(host, get):
    """It is fetched, checked, unpacked and taken away; the data set's folder is then left as it is."""
    host.files["/b.zip"] = ARCHIVE
    route = FileRoute(file=RemoteFile(name="b.zip", url=f"{host.address}/b.zip", checksum=md5(ARCHIVE)))
    assert get(data_set(route)) == (set(FILES), [])
    files, said = get(data_set(route))
    assert files == set(FILES)
    assert "exists already; `lw2g data check birds`" in said[0]
    assert len(host.asked) == 1


def test_lists_and_archives_beside_come_along(host, get):
    """Lists lie in ``splits``, other archives in folders of their names; missing checksums are said."""
    text, more = b"a/1.jpg 0\n", zipped({"more/x.png": b"x"})
    host.files |= {"/b.zip": ARCHIVE, "/l.txt": text, "/more.zip": more}
    listed = RemoteFile(name="l.txt", url=f"{host.address}/l.txt", checksum=md5(text))
    data = data_set(
        FileRoute(file=RemoteFile(name="b.zip", url=f"{host.address}/b.zip")),
        beside=(RemoteFile(name="more.zip", url=f"{host.address}/more.zip"),),
        splits={"l": Split(reader="lists", train_lists=(listed,))},
    )
    files, said = get(data)
    assert files == {*FILES, "splits/l.txt", "more/x.png"}
    assert [line.split(" has sha256:")[0] for line in said] == ["more.zip", "b.zip"]


def test_routes_are_tried_in_order(host, get):
    """One that fails is named and the next is used; in the end a user is told what to do by hand."""
    host.files["/b.zip"] = ARCHIVE
    lost = FileRoute(file=RemoteFile(name="b.zip", url=f"{host.address}/none"))
    good = FileRoute(file=RemoteFile(name="b.zip", url=f"{host.address}/b.zip", checksum=md5(ARCHIVE)))
    hand = ByHand(where="the zip of the page", checksum=md5(ARCHIVE))
    with pytest.raises(DataError) as caught:
        get(data_set(lost, hand))
    assert "Birds could not be fetched" in str(caught.value)
    assert f"fetch the zip of the page ({md5(ARCHIVE)}) with a browser" in str(caught.value)
    assert "`lw2g data get birds --from FILE`" in str(caught.value)
    with pytest.raises(DataError, match="Birds has no direct download; fetch the zip"):
        get(data_set(hand))
    files, said = get(data_set(hand, lost, good))
    assert files == set(FILES)
    assert "answers 404" in said[0]


@pytest.mark.parametrize("routes", [1, 2])
def test_each_failure_is_told_once(host, quiet, tmp_path, routes):
    """Of the last route by the error alone, of those before it by a note."""
    addresses = [f"{host.address}/none{number}" for number in range(routes)]
    lost = [FileRoute(file=RemoteFile(name="b.zip", url=address)) for address in addresses]
    said: list[str] = []
    with pytest.raises(DataError) as caught:
        obtain(data_set(*lost, ByHand(where="a page")), tmp_path / "root", quiet, said.append)
    assert [line.partition(": ")[0] for line in said] == addresses[:-1]
    assert str(caught.value).count(f"{addresses[-1]} answers 404") == 1


@pytest.mark.parametrize("remote", [False, True])
def test_an_archive_of_the_users(host, get, tmp_path, remote):
    """A file or an address is unpacked if it is the published archive, or none has a known checksum."""
    host.files["/got.zip"] = ARCHIVE
    mine = tmp_path / "got.zip"
    mine.write_bytes(ARCHIVE)
    source = f"{host.address}/got.zip" if remote else str(mine)
    other = ByHand(where="w", checksum=md5(b"another"))
    with pytest.raises(
        DataError, match=r"is not the published archive of Birds: expected md5:.* but got md5:"
    ):
        get(data_set(other), source=source)
    assert not (tmp_path / "root" / "got.zip").exists()
    files, said = get(data_set(other, ByHand(where="w", checksum=md5(ARCHIVE))), source=source)
    assert (files, mine.exists()) == (set(FILES), True)
    assert said == [f"got.zip is the published file ({md5(ARCHIVE)})"]
    (tmp_path / "root").rename(tmp_path / "moved")
    counted = {"folders": Split(reader="folders", train=2, test=1)}
    with pytest.raises(DataError, match=r"found 2 files for .*, where 3 images are published"):
        get(data_set(other, ByHand(where="w"), splits=counted), source=source)
    files, said = get(data_set(other, ByHand(where="w")), source=source)
    assert files == set(FILES)
    assert "which nobody has confirmed" in said[0]


def test_an_archive_of_a_data_set_that_has_none_is_taken(get, tmp_path):
    """Where no route brings an archive, nothing says that the user's is a wrong one."""
    (tmp_path / "a.zip").write_bytes(ARCHIVE)
    rows = HubRoute(repo="a/b", form="tree", revision=COMMIT)
    files, said = get(data_set(rows), source=str(tmp_path / "a.zip"))
    assert files == {"set/train/a/1.jpg", "set/test/a/2.jpg"}
    assert "which nobody has confirmed" in said[0]


def test_a_folder_of_the_users_is_copied(get, tmp_path):
    """Its innermost folder becomes the data set's; the user's own is left as it was."""
    for name, content in FILES.items():
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    assert get(data_set(ByHand(where="w")), source=str(tmp_path / "mine")) == (set(FILES), [])
    assert all((tmp_path / "mine" / name).is_file() for name in FILES)


def test_a_wrong_source_is_told(get, tmp_path):
    """A file that is not there, and one that is no archive."""
    with pytest.raises(DataError, match=r"no archive 'nowhere.zip'"):
        get(data_set(ByHand(where="w")), source="nowhere.zip")


@pytest.fixture
def hub(host, monkeypatch):
    """Make the host answer as the hub does; return a function that puts a repository's files there."""
    from huggingface_hub import constants, file_download

    monkeypatch.setattr(constants, "ENDPOINT", host.address)
    template = host.address + "/{repo_id}/resolve/{revision}/{filename}"
    for module in (constants, file_download):  # older releases have it in both
        monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    host.headers = {"ETag": '"0123456789abcdef"', "X-Repo-Commit": COMMIT}

    def put(repo, files):
        for name, content in files.items():
            host.files[f"/datasets/{repo}/resolve/{COMMIT}/{name}"] = content
        info = {"id": repo, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
        host.files[f"/api/datasets/{repo}/revision/{COMMIT}"] = json.dumps(info).encode()
        tree = [{"type": "file", "path": k, "size": len(v), "oid": "0" * 40} for k, v in files.items()]
        host.files[f"/api/datasets/{repo}/tree/{COMMIT}"] = json.dumps(tree).encode()

    return put


def test_an_archive_of_the_hub(hub, get):
    """The pinned revision of one file, compared with its checksum and unpacked; nothing else is left."""
    hub("me/birds", {"b.zip": ARCHIVE})
    route = HubRoute(repo="me/birds", revision=COMMIT, file="b.zip", checksum=md5(ARCHIVE))
    with pytest.raises(DataError, match=r"b.zip of me/birds is not md5:"):
        get(data_set(attrs.evolve(route, checksum=md5(b"other"))))
    assert get(data_set(route)) == (set(FILES), [])


def test_a_tree_of_the_hub_needs_a_pin(hub, get):
    """Without a confirmed revision a user has to name a whole commit."""
    hub("me/birds", {name.removeprefix("set/"): one for name, one in FILES.items()})
    data = data_set(HubRoute(repo="me/birds", form="tree"))
    with pytest.raises(DataError, match="revision None of the hub data set 'me/birds' does not pin it"):
        get(data)
    with pytest.raises(DataError, match="revision 'main' of the hub"):
        get(data, revision="main")
    other = {"official": Split(reader="index"), "folders": Split(reader="folders")}
    files, said = get(attrs.evolve(data, splits=other), revision=COMMIT)
    assert files == set(FILES)
    assert "not the split 'official'; set benchmark.split=folders" in said[0]


def test_a_hub_that_does_not_answer(hub, get):
    """What the hub's client says is one line, with what else can be done."""
    route = HubRoute(repo="me/none", revision=COMMIT, file="b.zip")
    with pytest.raises(DataError, match=r"could not be fetched \(the hub does not give me/none"):
        get(data_set(route))


def parquet(path, rows, names, image="image"):
    """Write a parquet file as the hub's are."""
    pyarrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    info = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
    schema = pyarrow.schema(
        [(image, kind), ("label", pyarrow.int64())], metadata={"huggingface": json.dumps(info)}
    )
    table = pyarrow.table(
        {image: [{"bytes": one, "path": None} for one, _ in rows], "label": [label for _, label in rows]},
        schema,
    )
    files.write_table(table, path)
    return path.read_bytes()


JPEG, PNG = b"\xff\xd8one", b"\x89PNGtwo"


def test_parquet_becomes_class_folders(hub, get, tmp_path):
    """Images keep their bytes and get the number of class and row; other splits are not even fetched."""
    names = ["a b/../c", "d"]
    files = {
        "data/train-00000-of-00002.parquet": parquet(tmp_path / "1", [(JPEG, 1), (PNG, 0)], names),
        "data/train-00001-of-00002.parquet": parquet(tmp_path / "2", [(JPEG, 1)], names),
        "data/test-00000-of-00001.parquet": parquet(tmp_path / "3", [(PNG, 1)], names),
        "data/noisy-00000-of-00001.parquet": b"not fetched",
    }
    hub("me/birds", files)
    route = HubRoute(repo="me/birds", revision=COMMIT, form="parquet")
    found, said = get(data_set(route))
    train = {"set/train/1.d/000000.jpg", "set/train/0.a_b_.._c/000001.png", "set/train/1.d/000002.jpg"}
    assert (found, said) == ({*train, "set/test/1.d/000000.png"}, [])


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([(JPEG, 2)], {}, "row 0 of .* holds no image or no label"),
        ([(b"text", 1)], {}, "row 0 of .* holds no image;"),
        ([(JPEG, 1)], {"names": ["one"]}, "has 1 class, not 2"),
        ([(JPEG, 1)], {"image": "pixels"}, "has no column 'image'"),
    ],
)
def test_parquet_of_another_kind_is_refused(hub, get, tmp_path, rows, options, message):
    """Other columns, labels and classes are named, and no half of a data set is left."""
    content = parquet(tmp_path / "1", rows, **{"names": ["a", "b"], **options})
    hub("me/birds", {"data/train-0-of-1.parquet": content, "data/test-0-of-1.parquet": content})
    with pytest.raises(DataError, match=message):
        get(data_set(HubRoute(repo="me/birds", revision=COMMIT, form="parquet")))
    assert not (tmp_path / "root" / "set").exists()


@pytest.mark.parametrize("damage", ["cut", "page"])
def test_damaged_parquet_is_told_in_one_line(hub, get, tmp_path, damage):
    """Whatever pyarrow raises, an OSError without a number too, the file is named with the remedy."""
    whole = parquet(tmp_path / "1", [(JPEG, 0), (PNG, 1)], ["a", "b"])
    place = {"cut": len(whole) // 2, "page": 4}[damage]
    found = whole[:place] + (b"" if damage == "cut" else b"\xff" + whole[place + 1 :])
    hub("me/birds", {"data/train-0-of-1.parquet": found, "data/test-0-of-1.parquet": whole})
    with pytest.raises(DataError, match=r"train-0-of-1.parquet' is damaged \(.*; delete it and fetch"):
        get(data_set(HubRoute(repo="me/birds", revision=COMMIT, form="parquet")))


def test_parquet_without_pyarrow(hub, get, tmp_path, monkeypatch):
    """A missing library is named with the extra that brings it."""
    import sys

    hub("me/birds", {"data/train-0-of-1.parquet": b"x"})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises((ConfigError, DataError), match=r"pip install 'lw2g\[data\]'"):
        get(data_set(HubRoute(repo="me/birds", revision=COMMIT, form="parquet")))


def test_torchvisions_data_sets_are_gone_on_with(host, get, monkeypatch, tmp_path):
    """Its archive is fetched as any other, in parts; then torchvision unpacks and checks it."""
    kind = torchvision.datasets.CIFAR100
    members = {
        "train": {"data": bytes(3072), "fine_labels": [0]},
        "test": {"data": bytes(3072), "fine_labels": [0]},
        "meta": {"fine_label_names": ["x"]},
    }
    out = io.BytesIO()
    sums = {}
    with tarfile.open(fileobj=out, mode="w:gz") as file:
        for name, content in members.items():
            if "data" in content:
                content["data"] = np.zeros((1, 3072), dtype=np.uint8)
            body = pickle.dumps(content)
            sums[name] = hashlib.md5(body).hexdigest()
            info = tarfile.TarInfo(f"cifar-100-python/{name}")
            info.size = len(body)
            file.addfile(info, io.BytesIO(body))
    archive = out.getvalue()
    host.files["/cifar.tgz"], host.cut = archive, [100]
    monkeypatch.setattr(kind, "url", f"{host.address}/cifar.tgz")
    monkeypatch.setattr(kind, "tgz_md5", hashlib.md5(archive).hexdigest())
    monkeypatch.setattr(kind, "train_list", [["train", sums["train"]]])
    monkeypatch.setattr(kind, "test_list", [["test", sums["test"]]])
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": sums["meta"]})
    files, said = get(data_set(TorchvisionRoute(classes=("CIFAR100",)), folder="cifar-100-python"))
    assert {f"cifar-100-python/{name}" for name in members} <= files
    assert said == []
    assert [one[2] for one in host.asked] == [None, "bytes=100-"]
    (tmp_path / "root" / "cifar.tgz").unlink(missing_ok=True)
    get(data_set(TorchvisionRoute(classes=("CIFAR100",)), folder="cifar-100-python"))
    assert len(host.asked) == 2


def test_folders_get_names_that_people_know(host, get):
    """Where a data set says so, numbers of classes become names; files and other folders stay."""
    files = {"set/val/n01/n01.jpg": b"one", "set/train/n01/2.jpg": b"two", "set/train/n02/3.jpg": b"three"}
    content = zipped(files)
    host.files["/set.zip"] = content
    route = FileRoute(file=RemoteFile(name="set.zip", url=f"{host.address}/set.zip", checksum=md5(content)))
    renamed = {"val": "test", "n01": "golf ball"}
    found, _ = get(data_set(route, renamed=renamed))
    assert found == {"set/test/golf ball/n01.jpg", "set/train/golf ball/2.jpg", "set/train/n02/3.jpg"}
