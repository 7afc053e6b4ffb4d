"""Writes a small plugin package of any kind from plain templates."""
