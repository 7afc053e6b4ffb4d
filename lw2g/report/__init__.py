"""Runs that were made: finding them, and turning them into tables. Nothing here needs torch."""
