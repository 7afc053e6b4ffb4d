"""The laboratory: what is measured with, where results go, and when to stop."""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import torch

from gpu.components import LabPlugin
from lw2g.config.resolve import Resolved, resolve
from lw2g.interfaces.defaults import DEFAULT_FIXED_POLICY
from lw2g.registry.catalogue import Catalogue
from lw2g_testing.tiny import tiny_catalogue

Measurement = Callable[[], Mapping[str, Any]]


class Skipped(Exception):
    """Something cannot be measured here; the message says why."""


@attrs.frozen(kw_only=True)
class Part:
    """Measurements of one kind, each under a name of its own, in order."""

    name: str
    measurements: Callable[[Lab], Iterator[tuple[str, Measurement]]]


@attrs.define(kw_only=True, eq=False)
class Lab:
    """What all parts share.

    Attributes:
        out: Folder of the results.
        given: The command line.
        until: When to stop, by ``time.monotonic``.
        results: Figures by part and measurement.
        catalogue: All components, with random ViTs and noise of any size.
    """

    out: Path
    given: argparse.Namespace
    until: float
    results: dict[str, dict[str, Any]]
    catalogue: Catalogue

    @classmethod
    def of(cls, given: argparse.Namespace) -> Lab:
        """Open the folder of results and go on from what is there.

        Raises:
            SystemExit: There is no such device, or what is there was measured on another one.
        """
        if given.device.startswith("cuda") and not torch.cuda.is_available():
            sys.exit(f"--device {given.device}: torch sees no GPU; try --device cpu --toy")
        path = given.out / "results.json"
        results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        lab = cls(
            out=given.out,
            given=given,
            until=time.monotonic() + 60 * given.minutes,
            results=results,
            catalogue=tiny_catalogue(LabPlugin()),
        )
        before = results.get("steps", {}).get("machine", {}).get("device", lab.device_name)
        if before != lab.device_name:
            sys.exit(f"{str(path)!r} is of {before!r}, this is {lab.device_name!r}; choose another --out")
        return lab

    @property
    def device_name(self) -> str:
        """What the device is."""
        return torch.cuda.get_device_name(self.device) if self.on_cuda else str(self.device)

    @property
    def toy(self) -> bool:
        """Whether everything is tiny."""
        return bool(self.given.toy)

    @property
    def device(self) -> torch.device:
        """Where measurements run; a GPU by its number, which processes that decode images ask for."""
        named = torch.device(self.given.device)
        if named.type == "cuda" and named.index is None:
            return torch.device("cuda", torch.cuda.current_device())
        return named

    @property
    def on_cuda(self) -> bool:
        """Whether that is a GPU."""
        return self.device.type == "cuda"

    def resolve(self, baseline: str, policy: str, overrides: Mapping[str, Any], **names: str) -> Resolved:
        """Resolve a short run on the device under the orthogonal constraint; a fixed baseline has its policy.

        Args:
            baseline: The baseline.
            policy: The policy of one that grows.
            overrides: Dotted options beside one epoch of whatever has epochs.
            names: Of ``benchmark`` and ``backbone``.
        """
        component = self.catalogue.get("baseline", baseline)
        options: dict[str, Any] = {"run.device": str(self.device), "growth.images": 16}
        for section, name in (("baseline", baseline), ("retrieval", component.retrieval)):
            fields = () if name is None else attrs.fields(self.catalogue.get(section, name).config)
            options |= {f"{section}.{field.name}": 1 for field in fields if field.name.endswith("epochs")}
            options |= {f"{section}.batch_size": 16 for field in fields if field.name == "batch_size"}
        return resolve(
            self.catalogue,
            overrides=options | dict(overrides),
            baseline=baseline,
            policy=DEFAULT_FIXED_POLICY if component.growth == "fixed" else policy,
            constraints=["orthogonal"],
            **names,
        )

    def seconds_left(self) -> float:
        """Return the seconds until the script has to stop."""
        return self.until - time.monotonic()

    def measure(self, parts: Sequence[Part]) -> None:
        """Measure part by part what has not been measured yet, until the time is up."""
        for part in parts:
            found = self.results.setdefault(part.name, {})
            for name, measurement in part.measurements(self):
                before = found.get(name, {"unfinished": True})
                if self.seconds_left() <= 0:
                    break
                if before.get("unfinished") or (self.given.again and "error" in before):
                    print(f"[{self.seconds_left() / 60:5.1f} min left] {part.name}: {name} ...", flush=True)
                    found[name] = self._one(measurement)
                    print(f"  {json.dumps(found[name])}"[:240], flush=True)
                    self._write()
        self._write()

    def _one(self, measurement: Measurement) -> dict[str, Any]:
        try:
            found = dict(measurement())
        except Skipped as reason:
            found = {"reason": str(reason)}
        # whatever one measurement meets (memory, a kernel, a method's bug), the others go on
        except Exception as error:
            traceback.print_exc(limit=-4)
            found = {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
        gc.collect()
        if self.on_cuda:
            torch.cuda.empty_cache()
        return found

    def _write(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        part = self.out / "results.json.part"
        part.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")
        part.replace(self.out / "results.json")
        lines = ["| part | measurement | figure | value |", "| --- | --- | --- | --- |"]
        for name, measured in self.results.items():
            for what, figures in measured.items():
                for key, value in figures.items():
                    shown = f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "/")
                    lines.append(f"| {name} | {what} | {key} | {shown} |")
        (self.out / "results.md").write_text("\n".join([*lines, ""]), encoding="utf-8")


class Marks:
    """Moments on the device's own clock, so that what is timed never waits for the host to read it.

    Args:
        device: Whose clock.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._marks: list[Any] = []

    def mark(self, *_: Any) -> None:
        """Note the present moment; arguments (of the callbacks it serves as) are ignored."""
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def intervals(self, warm: int) -> torch.Tensor:
        """Return the seconds between marks, without the first ``warm`` intervals."""
        if self._cuda:
            torch.cuda.synchronize()
            found = [one.elapsed_time(other) / 1e3 for one, other in pairwise(self._marks)]
        else:
            found = [other - one for one, other in pairwise(self._marks)]
        return torch.tensor(found[warm:], dtype=torch.float64)


def timed(work: Callable[[], object], device: torch.device, *, warm: int = 3, rounds: int = 10) -> float:
    """Return the median of the seconds that a piece of work takes on the device."""
    marks = Marks(device)
    marks.mark()
    for _ in range(warm + rounds):
        work()
        marks.mark()
    return float(marks.intervals(warm).median())


def peak_memory(device: torch.device) -> float | None:
    """Return the peak of allocated memory since it was last asked for, in MiB; None without a GPU."""
    if device.type != "cuda":
        return None
    found = torch.cuda.max_memory_allocated(device) / 2**20
    torch.cuda.reset_peak_memory_stats(device)
    return round(found, 1)
