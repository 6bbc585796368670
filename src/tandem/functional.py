"""The interface of environments that are pure JAX functions."""

from tandem.envs.jax.protocol import FunctionalEnv, TimeStep

__all__ = ["FunctionalEnv", "TimeStep"]
