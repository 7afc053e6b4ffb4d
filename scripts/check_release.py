"""Build sdist and wheel twice, and say whether they are fit to publish: same bits, sound metadata.

python scripts/check_release.py [DIR]      # keeps them in DIR; needs the packages build and twine
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST_WHEEL = 8 * 2**20


def built(folder: Path, epoch: str) -> None:
    """Build the sdist, and the wheel from it."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": epoch}
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def commit_time() -> str:
    """Return the time of the newest commit: whoever builds it gets the same bits."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def faults(first: Path, second: Path) -> Iterator[str]:
    """Print what a file is, and yield what keeps it from being published."""
    digest = hashlib.sha256(first.read_bytes()).hexdigest()
    print(f"{digest}  {first.name}  {first.stat().st_size / 2**20:.1f} MiB")
    if digest != hashlib.sha256(second.read_bytes()).hexdigest():
        yield f"{first.name}: built again from the same commit it has other bits"
    if first.suffix == ".whl" and first.stat().st_size > LARGEST_WHEEL:
        yield f"{first.name}: larger than {LARGEST_WHEEL / 2**20:.0f} MiB"


def main() -> int:
    """Build, compare, check, and print a line per file."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or commit_time()
    with tempfile.TemporaryDirectory() as scratch:
        again = Path(scratch, "again")
        kept = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch, "first")
        for folder in (kept, again):
            built(folder, epoch)
        pairs = [(kept / path.name, path) for path in sorted(again.iterdir())]
        command = [sys.executable, "-m", "twine", "check", "--strict", *(str(first) for first, _ in pairs)]
        subprocess.run(command, check=True)
        wrong = [fault for first, second in pairs for fault in faults(first, second)]
    for line in wrong:
        print(line, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
