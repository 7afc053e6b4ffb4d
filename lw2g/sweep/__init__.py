"""Sweeps: grids of runs, each run in a process and a directory of its own. Nothing here needs torch."""
