"""What is wrong with an installation and what to do about it: the examination behind ``lw2g doctor``."""
