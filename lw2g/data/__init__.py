"""Fetches published data sets: downloads, archives, routes."""
