"""Environments as pure JAX functions: their interface, adapters for other libraries, and vectorized
stepping."""

from tandem.functional.protocol import FunctionalEnv, TimeStep

__all__ = ["FunctionalEnv", "TimeStep"]
