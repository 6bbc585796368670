"""Creation of a compiled run's loop from its Config."""

from __future__ import annotations

from typing import Any

import jax

from tandem.envs.jax.checks import same_dtypes
from tandem.learning import fits
from tandem.learning.build import build
from tandem.learning.compiled.blocks import Replay, Rollouts
from tandem.learning.compiled.evaluation import CompiledEvaluator
from tandem.learning.compiled.loop import CompiledLoop
from tandem.learning.config import Config
from tandem.learning.seeds import Generators, derived
from tandem.platforms import user_folder


def keep_compiled() -> None:
    """Make JAX cache compiled functions in its configured folder, or else in the user's cache
    folder. Compiling takes seconds, reading the cache a tenth of that."""
    # include small functions, since there are many
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if (
        jax.config.jax_compilation_cache_dir is None
        and (folder := user_folder("cache")) is not None
    ):
        jax.config.update("jax_compilation_cache_dir", str(folder / "jax"))


def make(conf: Config, environments: Any, network: Any, optimizer: Any) -> CompiledLoop:
    """Make the loop. environments: a FunctionalVector."""
    if conf.options.compile_cache:
        keep_compiled()
    same_dtypes(environments.name, environments.functional)
    algorithm = build(conf, environments, Generators(conf.seed), network, optimizer)
    fits.check(algorithm.needs, algorithm.settings)
    kind = Rollouts if algorithm.needs == "rollouts" else Replay
    blocks = kind(algorithm, environments.functional, environments.name)
    evaluator = CompiledEvaluator(blocks, conf.options.eval_episodes or conf.options.final_episodes)
    seed = derived(conf.seed, "compiled")
    return CompiledLoop(algorithm, environments, blocks, evaluator, seed)
