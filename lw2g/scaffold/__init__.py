"""Writing a small plugin package of any kind: plain templates, and the code that fills them in."""
