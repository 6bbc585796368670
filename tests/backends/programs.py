"""Updates by a program and without, and an agent that learns by programs: fails with what differs;
prints how many programs it compiled, and a digest of the state."""

import hashlib
import json
import logging
from typing import Any

import numpy as np

import tandem
from tandem.testing import environments, fakes
from tandem.types import tree_map

told: list[Any] = []
logging.getLogger("tandem").addHandler(
    type("Heard", (logging.Handler,), {"emit": lambda _, record: told.append(record.msg)})()
)


def made(compile: bool) -> Any:
    settings = {"hidden": (8,), "prioritized": True, "max_grad_norm": 0.1}
    return fakes.build("dqn", "torch", fakes.DISCRETE, compile=compile, **settings)


def compare(what: str, a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=what)


(eager, by_eager), (fast, by_fast) = made(False), made(True)
runs = [b.compile(a.update) for a, b in ((eager, by_eager), (fast, by_fast))]
for seed, count in enumerate((6, 4, 6, 15)):  # one program: filled up, and several times
    data = fakes.batches(eager, fakes.VECTOR, fakes.DISCRETE, count, 16, seed)
    if seed == 2:  # not finite in the third of them
        reward = data.reward.copy()
        reward[2, 3] = np.nan
        data = data._replace(reward=reward)
    one, other = (run(data) for run in runs)
    assert (one.applied, one.stopped, one.fault) == (other.applied, other.stopped, other.fault)
    for name, values in one.metrics.items():
        compare(f"{name} in call {seed}", values, other.metrics[name])
    compare(f"priorities in call {seed}", one.priority, other.priority)
first, second = by_eager.state(), by_fast.state()
for name, x in first.items():
    compare(name, x, second[name])
digest = hashlib.sha256()
tree_map(lambda x: digest.update(np.ascontiguousarray(x).tobytes()), second)

given = {"hidden": (16,), "envs": 4, "rollout": 32, "epochs": 4, "batch_size": 32, "plots": False}
given |= {"learning_rate": 1e-2, "final_episodes": 10, "eval_every": 0, "compile": "yes"}
played = tandem.train("ppo", environments.Identity, framework="torch", steps=4_096, **given)
assert played.summary["eval_mean"] == 10
print(json.dumps([sum("Compiling" in x for x in told), digest.hexdigest()]))
