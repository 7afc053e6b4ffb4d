"""Runs on disk as small as reports need them."""

from written_runs import installed, write_full_run, write_run  # noqa: F401  # fixtures
