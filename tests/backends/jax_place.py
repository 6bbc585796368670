"""Updates on the second of JAX's devices: prints what lies on another one."""

import json

import jax

jax.config.update("jax_default_device", jax.devices()[1])

from tests.algorithms import cases  # noqa: E402

for name in ("dqn double dueling prioritized", "ppo multi-categorical", "td3"):
    algorithm, backend, batches = cases.prepared(cases.CASES[name], "jax")
    assert not backend.compile(algorithm.update)(batches).fault, name
    assert len(jax.live_arrays()) > 10
print(json.dumps([str(x.aval) for x in jax.live_arrays() if x.devices() != {jax.devices()[1]}]))
