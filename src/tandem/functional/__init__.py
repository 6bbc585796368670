"""Environments that are pure functions of JAX: what they are asked for, those of other libraries,
and many of them stepped at once."""

from tandem.functional.protocol import FunctionalEnv, TimeStep

__all__ = ["FunctionalEnv", "TimeStep"]
