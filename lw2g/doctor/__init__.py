"""Examines an installation for ``lw2g doctor``: what is wrong, and what to do about it."""
