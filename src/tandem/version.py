"""The version of this distribution: the one place that states it (the build reads it here)."""

__version__ = "0.1.0"
