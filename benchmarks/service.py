"""What an answer costs in a service: one image or several, threads, and the recipe of docs/howto/service.md.

    python benchmarks/service.py MODEL PHOTO... [--requests 40] [--weights FILE]

Times are of each image: the median of all repeats, their 95th percentile and their least, taken in turns. One
image in a batch of eight, to which models filled up before they followed the call, measures the others.
The server is a process of its own on loopback (extra ``service``), and its peak of memory counts once it has
answered all requests. The first lines tell the processor, torch and the photos, which the times depend on.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from PIL import Image

import lw2g
from lw2g.ground.processor import allowed_cores, read_processor
from lw2g.runtime.precision import of_processor

PAGE = Path(__file__).resolve().parents[1] / "docs" / "howto" / "service.md"
SMALL_BATCH = 8
CLIENTS = 4


def recipe() -> str:
    """Return the program that the page shows."""
    text = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(# service\.py\n.*?)```", text, flags=re.DOTALL)
    return str(program)


@contextmanager
def served(model: Path, **environment: str) -> Iterator[tuple[str, int]]:
    """Run the page's program on loopback within the block; yield its address and its process."""
    import httpx

    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        (Path(folder) / "service.py").write_text(recipe(), encoding="utf-8")
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        program = [
            sys.executable,
            "-m",
            "uvicorn",
            "service:app",
            "--port",
            str(port),
            "--log-level",
            "error",
        ]
        place = {**os.environ, **environment, "MODEL": str(model.absolute())}
        process = subprocess.Popen(program, cwd=folder, env=place)
        address = f"http://127.0.0.1:{port}"
        try:
            for _ in range(600):
                if process.poll() is not None:
                    raise RuntimeError(f"the server ended with exit code {process.returncode}")
                try:
                    httpx.get(f"{address}/model")
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
            yield address, process.pid
        finally:
            process.terminate()
            process.wait()


def seconds_of(works: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each repeat, in turns after one that does not count."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(repeats + 1):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            took = time.perf_counter() - began
            if turn:
                found[name].append(took)
    return found


def of_each(seconds: list[float], images: int) -> list[float]:
    """Return the seconds of one of several images that were answered together."""
    return [took / images for took in seconds]


def in_process(
    folder: Path, photos: list[bytes], repeats: int, weights: Path | None
) -> dict[str, list[float]]:
    """Return the seconds of an image, alone and among others, in this process."""
    model = lw2g.load(folder, device="cpu", weights=weights)
    padded = lw2g.load(folder, device="cpu", weights=weights, batch_size=SMALL_BATCH)
    several = (photos * SMALL_BATCH)[:SMALL_BATCH]
    works: dict[str, Callable[[], Any]] = {
        "one image, padded to a batch of 8": lambda: padded.predict(photos[0]),
        "one image": lambda: model.predict(photos[0]),
        "an image of 8 in a call": lambda: model.predict(several),
        "an image, four threads": lambda: in_turns(lambda: model.predict(photos[0])),
    }
    found = seconds_of(works, repeats)
    found["an image of 8 in a call"] = of_each(found["an image of 8 in a call"], SMALL_BATCH)
    found["an image, four threads"] = of_each(found["an image, four threads"], CLIENTS)
    return found


def in_turns(work: Callable[[], Any]) -> None:
    """Do something in four threads at once, once each."""
    with ThreadPoolExecutor(CLIENTS) as threads:
        for answer in [threads.submit(work) for _ in range(CLIENTS)]:
            answer.result()


def in_a_service(folder: Path, photos: list[bytes], repeats: int) -> tuple[dict[str, list[float]], int]:
    """Return the seconds of an image by requests, and the server's peak of memory in MB."""
    import httpx

    several = (photos * SMALL_BATCH)[:SMALL_BATCH]
    with served(folder) as (address, process), httpx.Client(timeout=60) as client:

        def ask(images: list[bytes]) -> None:
            files = [("images", ("photo", image)) for image in images]
            client.post(f"{address}/predict", files=files).raise_for_status()

        works: dict[str, Callable[[], Any]] = {
            "a request of one image": lambda: ask(photos[:1]),
            "an image, a request of 8": lambda: ask(several),
            "a request of one image, four clients": lambda: in_turns(lambda: ask(photos[:1])),
        }
        found = seconds_of(works, repeats)
        status = Path(f"/proc/{process}/status").read_text()
    found["an image, a request of 8"] = of_each(found["an image, a request of 8"], SMALL_BATCH)
    for_all = found["a request of one image, four clients"]
    found["a request of one image, four clients"] = of_each(for_all, CLIENTS)
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return found, int(peak) // 1000


def setting(photos: list[bytes]) -> str:
    """Return on what the times are measured: processor, threads, torch and the photos."""
    (processor, *_) = re.findall(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    precision = of_processor(read_processor())
    sizes = sorted({Image.open(io.BytesIO(photo)).size for photo in photos})
    pixels = ", ".join(f"{width} x {height}" for width, height in sizes)
    kilobytes = round(sum(map(len, photos)) / len(photos) / 1000)
    return (
        f"{processor} ({precision.reason}), "
        f"{torch.get_num_threads()} of {allowed_cores()} cores, torch {torch.__version__}\n"
        f"{len(photos)} photos of {pixels} pixels, {kilobytes} kB on average"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("photos", nargs="+", type=Path)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--weights", type=Path)
    asked = parser.parse_args()
    photos = [path.read_bytes() for path in asked.photos]
    found = in_process(asked.model, photos, asked.requests, asked.weights)
    by_request, peak = in_a_service(asked.model, photos, asked.requests)
    print(setting(photos))
    print(f"ms an image, {asked.requests} repeats")
    print("median    p95  least  ratio  what")
    base, *_ = map(statistics.median, found.values())
    for name, seconds in {**found, **by_request}.items():
        median = statistics.median(seconds)
        late = statistics.quantiles(seconds, n=20)[-1]
        least = min(seconds)
        print(f"{1e3 * median:6.1f} {1e3 * late:6.1f} {1e3 * least:6.1f}  {median / base:5.2f}  {name}")
    print(f"{peak} MB, the server's peak")


if __name__ == "__main__":
    main()
