"""Discovers plugins: hook specifications, the hook marker, and the catalogue of components."""
