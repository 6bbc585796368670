"""The version of this distribution. It is defined only here; the build reads this file."""

__version__ = "0.1.0"
