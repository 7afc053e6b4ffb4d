"""Tests of what a run asks of the C library's allocator."""

import os
import subprocess
import sys

import pytest

from lw2g.runtime.allocator import KEEP_MEMORY, who_manages_memory

LINUX = pytest.mark.skipif(sys.platform != "linux" or not os.confstr("CS_GNU_LIBC_VERSION"), reason="glibc")
CHOICES = (KEEP_MEMORY, "LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_")

FAULTS = """
import resource
from lw2g.runtime.allocator import keep_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

kept = keep_memory()
for _ in range(2):
    before = faults()
    buffer = bytearray(b"x") * (64 * 2**20)
    del buffer
print(int(kept), faults() - before)
"""


@LINUX
@pytest.mark.parametrize("setting", ["1", "0"])
def test_large_buffers_are_faulted_in_once(setting):
    """The second buffer of 64 MB lies in the pages of the first one, unless the variable says otherwise."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env={**os.environ, KEEP_MEMORY: setting, "GLIBC_TUNABLES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    kept, faults = map(int, done.stdout.split())
    assert kept == int(setting)
    assert (faults < 1000) is bool(kept)


@LINUX
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (KEEP_MEMORY, "0", "LW2G_KEEP_MEMORY=0"),
        (KEEP_MEMORY, "1", None),
        ("LD_PRELOAD", "/usr/lib/libjemalloc.so.2", "jemalloc takes its place"),
        ("GLIBC_TUNABLES", "glibc.malloc.mmap_max=4", "GLIBC_TUNABLES is set"),
        ("MALLOC_TRIM_THRESHOLD_", "1000", "MALLOC_TRIM_THRESHOLD_ is set"),
    ],
)
def test_what_the_user_has_chosen_stays(monkeypatch, name, value, said):
    """Another allocator, settings of the user's own and the variable are left in peace, and named."""
    for choice in CHOICES:
        monkeypatch.delenv(choice, raising=False)
    monkeypatch.setenv(name, value)
    assert who_manages_memory() == said
