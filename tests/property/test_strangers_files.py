"""Files of strangers: each parser answers in one line, in steps and memory in proportion to its bytes."""

from __future__ import annotations

import bz2
import copy
import gzip
import hashlib
import io
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from lw2g.config.toml import flat, read_toml
from lw2g.disk.contents import read_sealed
from lw2g.disk.protocol import digest_of
from lw2g.disk.sealed import seal_json, unseal_json
from lw2g.errors import DataError, Lw2gError
from lw2g.model.exported import read_learned
from lw2g.model.manifest import Manifest
from lw2g.pixels.feature_files import open_features
from lw2g.pixels.text_vectors import read_text_vectors
from lw2g.registry.catalogue import Catalogue, load_catalogue
from lw2g_datasets.archive import extract
from lw2g_store.badges import read_badges
from lw2g_store.bounds import read_columns
from lw2g_store.claims import COLUMNS, require_plain_options
from lw2g_store.layout import PROTOCOLS, read_protocol
from lw2g_store.packs import examine, split

STORE = Path(__file__).resolve().parents[2] / "experiments" / "store"
if not STORE.exists():
    pytest.skip("needs the source tree", allow_module_level=True)

PACK = next(STORE.glob("runs/*/*/simple-cil*/*"))
STEPS_PER_BYTE, MEMORY_PER_BYTE = 400, 400
"""Lines of Python executed, and bytes held at once; tomllib takes the most lines."""
FREE_STEPS, FREE_MEMORY = 200_000, 2_000_000

Parser = Callable[[Path], Any]


def _config(path: Path) -> None:
    table = read_toml(path)
    require_plain_options(table, path.name)
    flat(table)


def _columns(path: Path) -> None:
    split(read_columns(path, COLUMNS), 3)


def _manifest(path: Path) -> None:
    read_sealed(path, Manifest)


def _protocol(path: Path) -> None:
    """Read a protocol whose name is that of the file."""
    store = path.parent / "store"
    place = store / PROTOCOLS / "a" / "b@1.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, place)
    read_protocol(store, "a/b@1")


def _learned(path: Path) -> None:
    """Read tensors whose checksum a manifest has, as a forger would write it."""
    place = path.with_name("learned.safetensors")
    shutil.copy(path, place)
    sums = {place.name: hashlib.sha256(place.read_bytes()).hexdigest()}
    read_learned(path.parent, type("Sums", (), {"files": sums})())  # type: ignore[arg-type]


def _in_pack(name: str) -> Parser:
    def parse(path: Path) -> None:
        pack = path.parent / "pack"
        shutil.rmtree(pack, ignore_errors=True)
        shutil.copytree(PACK, pack)
        shutil.copy(path, pack / name)
        verdicts, _ = examine(pack, CATALOGUE)
        assert [verdict for verdict in verdicts if verdict.holds is False]
        assert all(len(verdict.text.splitlines()) == 1 for verdict in verdicts)

    return parse


def _features(suffix: str) -> Parser:
    def parse(path: Path) -> None:
        place = path.with_suffix(suffix)
        shutil.copy(path, place)
        open_features(place)

    return parse


def _feature_folder(path: Path) -> None:
    """Read a folder whose training vectors a stranger has made."""
    folder = path.parent / "folder"
    if not folder.exists():
        folder.mkdir()
        for name, array in ENTRIES.items():
            np.save(folder / f"{name}.npy", array)
    shutil.copy(path, folder / "train_x.npy")
    open_features(folder)


def _text(suffix: str) -> Parser:
    def parse(path: Path) -> None:
        place = path.with_suffix(suffix)
        shutil.copy(path, place)
        read_text_vectors(place, "file")

    return parse


CATALOGUE: Catalogue = load_catalogue()
PARSERS: dict[str, Parser] = {
    "config": _config,
    "record": _in_pack("record.json"),
    "submission": _in_pack("submission.json"),
    "predictions": _columns,
    "protocol": _protocol,
    "badges": read_badges,
    "manifest": _manifest,
    "learned": _learned,
    "features in an archive": _features(".npz"),
    "features in safetensors": _features(".safetensors"),
    "features in a folder": _feature_folder,
    "text vectors in an archive": _text(".npz"),
    "text vectors in safetensors": _text(".safetensors"),
}
ENTRIES: dict[str, Any] = {
    "train_x": np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4),
    "train_y": np.arange(6) % 3,
    "train_domain": np.arange(6) // 3,
    "train_id": np.array(list("abcdef")),
    "test_x": np.linspace(0, 3, 12, dtype=np.float32).reshape(3, 4),
    "test_y": np.arange(3),
    "test_domain": np.zeros(3, dtype=np.uint8),
    "class_names": np.array(["cat", "dog", "fox"]),
}
TEXT: dict[str, Any] = {
    "vectors": np.linspace(1, 2, 9, dtype=np.float32).reshape(3, 3),
    "sentences": np.array(["a", "a dog", "b"]),
    "classes": np.array(["cat", "dog", "fox"]),
    "projection": np.ones((4, 3), dtype=np.float32),
    "logit_scale": np.float32(20),
}


def measured(call: Callable[[], Any]) -> tuple[int, int]:
    """Return the lines of Python that a call executes, and the memory that it holds at once, in bytes."""
    steps = 0

    def count(_frame: FrameType, _event: str, _value: Any) -> Any:
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    told = []
    try:
        call()
    except Lw2gError as error:
        told.append(str(error))
    finally:
        sys.settrace(before)
    tracemalloc.start()
    with suppress(Lw2gError):
        call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert all(len(line.splitlines()) == 1 and len(line) < 2_000 for line in told)
    return steps, peak


def require_in_proportion(
    call: Callable[[], Any], size: int, *, steps: int = FREE_STEPS, memory: int = FREE_MEMORY
) -> None:
    executed, held = measured(call)
    assert executed <= steps + STEPS_PER_BYTE * size, f"{executed} lines for {size} bytes"
    assert held <= memory + MEMORY_PER_BYTE * size, f"{held} bytes held for {size} bytes"


UNITS = (
    *(b'"', b'\\"', b"\\", b"'", b'"""', b"#", b"[", b"]", b"{", b"}", b"[[", b",", b":", b"=", b".", b"\n"),
    *(b".a", b'."b,"', b"a=1\n", b"[a]\n", b"[[a]]\n", b'{"a":', b'"a":1,', b'["a"],', b"[],", b"{},", b"1,"),
    *(b"9", b"1e9", b"-", b"null,", b"NaN,", b"\xff", b"\x00", b"\\ud800", b"0.5,", b'"dtype":"I16",'),
)
TIMES = (1, 2, 60, 3_000)
hostile = st.lists(st.tuples(st.sampled_from(UNITS), st.sampled_from(TIMES)), max_size=4).map(
    lambda parts: b"".join(unit * times for unit, times in parts)
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("strangers")


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=hostile, framed=st.booleans())
@example(content=b"a" + b".a" * 5_000 + b" = 1", framed=False)
@example(content=b'"a,"' + b'."b,"' * 5_000 + b" = 1", framed=False)
@example(content=b"a = " + b"[" * 300 + b"]" * 300, framed=False)
@example(content=b'{"accuracy_matrix": [[' + b'"a",' * 20_000 + b'"a"]]}', framed=False)
@example(content=b'{"files": {' + b'"a":1,' * 20_000 + b'"b": 1}}', framed=False)
@example(content=b'{"a":' * 30_000, framed=True)
@example(content=b"[[],[[[[[[" * 9_000, framed=True)
def test_any_bytes_are_read_in_proportion(place: Path, name: str, content: bytes, framed: bool) -> None:
    """Whatever the bytes are; ``framed`` puts them where safetensors have their header."""
    path = place / "file.json"
    path.write_bytes(len(content).to_bytes(8, "little") + content if framed else content)
    require_in_proportion(lambda: PARSERS[name](path), path.stat().st_size)


# -- files of arrays that were right, and had a few bytes changed -------------------------------------------


def whole_file(name: str, packed: bool) -> bytes:
    """Return the bytes of a file that its parser takes."""
    arrays = TEXT if name.startswith("text") else ENTRIES
    content = io.BytesIO()
    if name.endswith("a folder"):
        np.save(content, arrays["train_x"])
    elif name.endswith("an archive"):
        write = np.savez_compressed if packed else np.savez
        write(content, **arrays)
    else:
        strings = {key: value.tolist() for key, value in arrays.items() if value.dtype.kind == "U"}
        tensors = {key: value for key, value in arrays.items() if key not in strings and value.ndim}
        notes = {key: json.dumps(value) for key, value in strings.items()}
        content.write(save(tensors, {**notes, "metadata": json.dumps(strings), "logit_scale": "20"}))
    return content.getvalue()


OF_ARRAYS = [name for name in PARSERS if name.startswith(("features", "text"))]
edits = st.lists(
    st.tuples(
        st.sampled_from(["set", "insert", "delete", "cut", "copy"]),
        st.floats(0, 1, exclude_max=True),
        st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from([b"\xff" * 8, b"\x00" * 8, b"9" * 40])),
    ),
    min_size=1,
    max_size=4,
)


def edited(content: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    """Return bytes with some changed, at places given as shares of the whole."""
    for kind, share, new in changes:
        place = int(share * len(content))
        before, after = content[:place], content[place:]
        match kind:
            case "set":
                content = before + new + after[len(new) :]
            case "insert":
                content = before + new + after
            case "delete":
                content = before + after[len(new) :]
            case "cut":
                content = before
            case "copy":
                content = before + content[: len(new) * 8] + after
    return content


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_files_of_arrays_are_read_before_they_are_changed(place: Path, name: str) -> None:
    """Or nothing would be tried on the files that are changed."""
    for packed in (False, True):
        (place / "file.json").write_bytes(whole_file(name, packed))
        PARSERS[name](place / "file.json")


@pytest.mark.parametrize("name", OF_ARRAYS)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(packed=st.booleans(), changes=edits)
def test_changed_files_of_arrays_are_read_in_proportion(
    place: Path, name: str, packed: bool, changes: list[tuple[str, float, bytes]]
) -> None:
    """Each is read, or refused in one line; nothing that numpy or zipfile raises comes through."""
    path = place / "file.json"
    path.write_bytes(edited(whole_file(name, packed), changes))
    require_in_proportion(lambda: PARSERS[name](path), path.stat().st_size)


# -- sealed records: every checksum is right, and one value is not what it should be ------------------------

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(
        [[], {}, [[]], ["a"] * 3_000, [[0]] * 3_000, "x" * 9_000, {"a" * 9_000: {}}, [-7], [10**9]]
    ),
    st.sampled_from([{f"k{number}": number for number in range(3_000)}, [[*range(60)]] * 60]),
)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of each value, of long lists the first two alone."""
    yield path
    items = (
        value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    )
    for key, inner in items:
        yield from places_in(inner, (*path, key))


RECORD = unseal_json(PACK / "record.json")
PLACES = [path for path in places_in(RECORD) if path]


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(path=st.sampled_from(PLACES), value=VALUES)
@example(path=("task_classes", 0, 0), value=2**40)
@example(path=("task_classes", 0), value=list(range(10**5)))
@example(path=("planted_groups",), value=["x" * 10**6] + ["y"] * 9)
@example(path=("domains",), value=["x" * 10**6] + ["y"] * 9)
@example(path=("metrics",), value={f"m{number}": 1.0 for number in range(20_000)})
@example(path=("config", "baseline"), value={"a" * 5_000: {f"b{number}": 1 for number in range(5_000)}})
def test_a_sealed_record_with_any_value_is_examined_in_proportion(
    place: Path, path: tuple[Any, ...], value: Any
) -> None:
    """No forged value makes the checks raise, hang or hold much memory; each verdict is a line."""
    record = copy.deepcopy(RECORD)
    table = record
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value
    try:
        record["protocol_hash"] = digest_of({"any": "hash"}) if path[0] == "seed" else record["protocol_hash"]
        content = seal_json(record)
    except ValueError:  # lw2g's writer refuses it, too
        return
    pack = place / "sealed"
    shutil.rmtree(pack, ignore_errors=True)
    shutil.copytree(PACK, pack)
    (pack / "record.json").write_bytes(content)
    submission = unseal_json(pack / "submission.json") | {"record": json.loads(content)["sha256"]}
    (pack / "submission.json").write_bytes(seal_json(submission))
    verdicts: list[Any] = []
    require_in_proportion(
        lambda: verdicts.extend(examine(pack, CATALOGUE)[0]),
        sum(file.stat().st_size for file in pack.iterdir()),
    )
    assert all(len(verdict.text.splitlines()) == 1 for verdict in verdicts)


# -- archives -----------------------------------------------------------------------------------------------

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}
FREE_OF_ARCHIVES = {"steps": 2_000_000, "memory": 20_000_000}
"""A thousand members are not many, however well they compress; a window of xz is held whatever it reads."""
RECORD_UNITS = (
    b"\0",
    b"a",
    b"10 path=b\n",
    b"13 size=99999\n",
    b"22 GNU.sparse.major=1\n",
    b"9" * 30,
    b"6 a=\n",
)
headers = st.fixed_dictionaries(
    {
        "type": st.sampled_from([b"0", b"5", b"2", b"L", b"K", b"x", b"g", b"X", b"S", b"7", b"\0"]),
        "name": st.sampled_from(["a/b", "a", "c" * 90, "a/../..", "caf\udce9", ""]),
        "stated": st.sampled_from([None, None, 0, 511, 2**20, 2**33, 2**62, -1]),
        "unit": st.sampled_from(RECORD_UNITS),
        "count": st.sampled_from([0, 1, 3_000, 2**19]),
        "times": st.sampled_from([1, 1, 3, 3_000]),
    }
)


def tar_of(parts: list[dict[str, Any]]) -> bytes:
    """Return the bytes of a tar archive whose headers may state other sizes than their bodies have."""
    blocks = []
    for part in parts:
        body = part["unit"] * (part["count"] if part["times"] < 9 else min(part["count"], 3))
        info = tarfile.TarInfo(part["name"])
        info.type, info.size = part["type"], len(body) if part["stated"] is None else part["stated"]
        head = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
        blocks += [(head + body + bytes(-len(body) % 512)) * part["times"]]
    return b"".join(blocks) + bytes(10_240)


def unpacked(path: Path) -> None:
    target = path.with_name("set")
    shutil.rmtree(target, ignore_errors=True)
    try:
        extract(path, target, lambda *_: None)
    except DataError:
        assert not target.exists()
        raise
    assert target.is_dir()


LONG = {"type": b"L", "name": "a", "stated": None, "unit": b"a", "count": 2**24, "times": 1}
FILE = LONG | {"type": b"0", "count": 1}


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=pytest.mark.slow if form in ("bz2", "xz") else ()) for form in COMPRESS]
)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(parts=st.lists(headers, max_size=4))
@example(parts=[LONG, FILE])
@example(parts=[LONG | {"type": b"x", "unit": b"6 a=\n", "count": 2**22}, FILE])
@example(parts=[LONG | {"type": b"x", "count": 1, "times": 3_000}, FILE])
@example(parts=[LONG | {"type": b"K", "count": 9, "times": 3_000}, FILE])
@example(parts=[FILE | {"count": 0, "times": 3_000}])
@example(parts=[FILE | {"type": b"S", "count": 2**22}])
@example(parts=[FILE | {"stated": 2**40}])
def test_tar_archives_are_unpacked_in_proportion(place: Path, form: str, parts: list[dict[str, Any]]) -> None:
    """Whatever their headers state, as names, records, links, holes or sizes, and however often."""
    path = place / "file.archive"
    path.write_bytes(COMPRESS[form](tar_of(parts)))
    require_in_proportion(lambda: unpacked(path), path.stat().st_size, **FREE_OF_ARCHIVES)


@cache
def zip_of(method: int, times: int, size: int) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as file:
        for number in range(times):
            file.writestr(f"a/{number}", bytes(size))
    return content.getvalue()


# packing takes seconds: the tests themselves do it
ZIPS = [
    (zipfile.ZIP_STORED, 3, 100),
    (zipfile.ZIP_DEFLATED, 90, 0),
    (zipfile.ZIP_DEFLATED, 1, 2**22),
    (zipfile.ZIP_BZIP2, 1, 2**26),
    (zipfile.ZIP_LZMA, 1, 2**26),
]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    packed=st.sampled_from(ZIPS),
    # the directory and its end stand last
    places=st.lists(st.tuples(st.integers(1, 120), st.sampled_from([b"\0", b"\xff", b"\1"])), max_size=4),
)
@example(packed=ZIPS[3], places=[])
@example(packed=ZIPS[4], places=[])
def test_zip_archives_are_unpacked_in_proportion(
    place: Path, packed: tuple[int, int, int], places: list[tuple[int, bytes]]
) -> None:
    """Whatever their directory states of sizes, places, methods, flags and names."""
    path = place / "file.zip"
    content = zip_of(*packed)
    for back, byte in places:
        content = content[:-back] + byte + content[len(content) - back + 1 :]
    path.write_bytes(content)
    require_in_proportion(lambda: unpacked(path), path.stat().st_size, **FREE_OF_ARCHIVES)


def test_an_archive_that_states_less_than_it_unpacks_to_writes_no_more(tmp_path: Path) -> None:
    """What a directory of a zip archive says of a size is the most that is written; the rest is damage."""
    content = zip_of(*ZIPS[2]).replace((2**22).to_bytes(4, "little"), (100).to_bytes(4, "little"))
    (tmp_path / "file.zip").write_bytes(content)
    with pytest.raises(DataError, match="is damaged"):
        unpacked(tmp_path / "file.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["file.zip"]


# -- what steps of Python do not show: loops inside C -------------------------------------------------------

LARGE = {
    "read_json": [
        b'"' + b'\\"' * 500_000,
        b'"' * 1_000_000,
        b"[0." + b"1" * 1_000_000 + b"]",
        b"[" + b"[]," * 300_000 + b"[]]",
    ],
    "read_toml": [
        b"a" + b".a" * 450_000 + b" = 1",
        b'."\\"' * 250_000,
        b'a = "' + b"\\n" * 250_000 + b'"',
    ],
    "read_columns": [(1_000_000).to_bytes(8, "little") + b'"' + b'\\"' * 500_000],
}
READ = """
import pathlib, resource, sys
from lw2g.config.toml import read_toml
from lw2g.errors import Lw2gError
from lw2g_store.bounds import read_columns, read_json

resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    read = {"read_json": read_json, "read_toml": read_toml}.get(path.stem[:-2])
    try:
        read(path) if read else read_columns(path, ("true",))
    except Lw2gError:
        pass
    print(path.name, flush=True)
"""


def test_large_files_end_within_their_processor_time(tmp_path: Path) -> None:
    """Files of a megabyte take some seconds of one core in all; what is quadratic would take an hour each."""
    names = []
    for reader, contents in LARGE.items():
        for number, content in enumerate(contents):
            names.append(f"{reader}-{number}.json")
            (tmp_path / names[-1]).write_bytes(content)
    command = [sys.executable, "-c", READ, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split() == sorted(names), done.stderr[-500:]
    assert done.returncode == 0
