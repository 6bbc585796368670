# ruff: noqa: E402 (how many devices there are is said before an engine starts)
"""Keras agents on two devices, on the engine of KERAS_BACKEND: prints one JSON object."""

import contextlib
import json
import os
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any

ENGINE = os.environ["KERAS_BACKEND"]
DEVICES = 2
if ENGINE == "jax":
    os.environ["JAX_NUM_CPU_DEVICES"] = str(DEVICES)
    strategy: Any = DEVICES
else:
    import tensorflow as tf

    parts = [tf.config.LogicalDeviceConfiguration()] * DEVICES
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(DEVICES)])

import gymnasium
import keras
import numpy as np
from gymnasium.spaces import Box, Discrete
from keras import layers

from tandem import LambdaCallback, LRFinder, OptFinder, ParallelFinder
from tandem.backends import variables
from tandem.examples.keras import DDPG_HER, MADDPG, PPO
from tandem.exploration import EpsGreedyQPolicy, GaussianWhiteNoiseProcess, SoftmaxPolicy
from tests.agents.keras_q import Q, apart, refusal

found: dict[str, Any] = {}


def scope(several: bool = True) -> Any:
    """In which agents and optimizers are made."""
    own = several and ENGINE == "tensorflow"
    return strategy.scope() if own else contextlib.nullcontext()


class EachQ(Q):
    def __call__(self, *batch: Any) -> Any:
        return self.errors(*batch) ** 2


class Clipped(Q):
    """By an optimizer that clips gradients and averages weights."""


def adam(kind: Any) -> Any:
    more = {"weight_decay": 0.01, "clipnorm": 0.05, "use_ema": True}
    Adam, AdamW = keras.optimizers.Adam, keras.optimizers.AdamW
    return AdamW(0.01, **more) if kind is Clipped else Adam(0.01)


SET = {"policy": lambda: EpsGreedyQPolicy(0.5), "pool_size": 200, "batch": 8, "update_steps": 5}


def made(kind: Any = Q, optimizers: int = 1, several: bool = True, **choices: Any) -> Any:
    keras.utils.set_random_seed(0)
    with scope(several):
        agent = kind()
        own = [adam(kind) for _ in range(optimizers)]
        agent.optimizer = own[0] if optimizers == 1 else own
    chosen = {**SET, **choices}
    explorers = {n: chosen[n]() for n in ("policy", "noise") if chosen.get(n)}
    agent.set(**chosen | explorers)
    return agent


def train(agent: Any, episodes: int = 4, several: bool = True, **more: Any) -> Any:
    if several:
        agent.distributed_training(strategy=strategy, episodes=episodes, p=0, **more)
    else:
        agent.train(episodes=episodes, p=0, **more)
    return agent


def same(one: Any, other: Any) -> bool:
    return apart(one, other) == 0 and one.loss_list == other.loss_list


NOISE = {"policy": None, "noise": GaussianWhiteNoiseProcess, "HER": True, "num_updates": 1}
ROLLOUT = {"policy": SoftmaxPolicy, "PPO": True, "update_steps": 30, "batch": 16}
TEAM = {"policy": SoftmaxPolicy, "MARL": True, "num_updates": 1}
CASES: dict[str, tuple[Any, int, dict[str, Any], int, dict[str, Any]]] = {
    "plain": (Q, 1, {}, 4, {"pool_network": False}),
    "each sample": (EachQ, 1, {"num_steps": 3}, 4, {}),
    "PR": (Q, 1, {"PR": True}, 4, {}),
    "clipped": (Clipped, 1, {"num_updates": 2}, 4, {}),
    "PPO": (lambda: PPO.PPO(4, 8, 2, 0.7, 0.7), 2, ROLLOUT, 4, {}),
    "HER": (lambda: DDPG_HER.DDPG(8, 0.1, 0.98, 0.005), 2, NOISE, 2, {}),
    "MARL": (lambda: MADDPG.DDPG(8, 0.1, 0.98, 0.005), 2, TEAM, 2, {}),
    "processes": (Q, 1, {"update_batches": 3, "update_steps": None}, 4, {"processes": 2}),
}


def equal_to_one(name: str) -> None:
    """Training on two devices is that of one; twice it is the same to the bit."""
    kind, optimizers, choices, episodes, more = CASES[name]
    two, again = (train(made(kind, optimizers, **choices), episodes, **more) for _ in range(2))
    one = train(made(kind, optimizers, False, **choices), episodes, False, **more)
    losses = np.abs(np.array(two.loss_list) - one.loss_list) / np.maximum(1, np.abs(one.loss_list))
    found[name] = {
        "far": apart(two, one),
        "losses": float(losses.max()),
        "rewards": list(two.reward_list) == list(one.reward_list),
        "learned": float(np.abs(two.loss_list).max()),
        "again": same(two, again),
    }


def goes_on(*more: Any) -> dict[str, Any]:
    """Saved amid training and restored in another agent, to the bit; and by a callback's stop."""

    fresh = partial(made, lambda: Q(*more), PR=True)
    whole, agent, other, stopped = train(fresh(), 6), train(fresh(), 3), fresh(), fresh()
    with tempfile.TemporaryDirectory() as folder:
        agent.save(Path(folder) / "agent.dat")
        other.restore(Path(folder) / "agent.dat")
        train(other, 3)

    def stop(batch: int, logs: Any) -> None:
        stopped.stop_training = batch == 25

    stopped.callbacks = [LambdaCallback(on_batch_end=stop)]
    train(stopped, 6)
    stopped.callbacks = []
    train(stopped, 6 - len(stopped.loss_list))
    finite = bool(np.isfinite(whole.loss_list).all())
    return {"restored": same(whole, other), "stopped": same(whole, stopped), "finite": finite}


def files() -> None:
    with tempfile.TemporaryDirectory() as folder:
        agent = made(trial_count=2, criterion=1.0)
        agent.path, agent.save_freq, agent.max_save_files = Path(folder) / "m.dat", 1, 2
        train(agent, 9)
        found["criterion"] = [agent.total_episode, len(os.listdir(folder))]
        agent.save_param(Path(folder) / "p.dat")
        fresh = made(Q)
        fresh.restore_param(Path(folder) / "p.dat")
        found["parameters"] = apart(agent, fresh)
        agent.run_agent(20)


def sizes() -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        agent = train(made(batch=9), 2)
    found["lowered"] = [str(w.message) for w in said if "divisible" in str(w.message)]
    agent.distributed_training(12, agent.optimizer, strategy, 1, pool_network=False, p=0)
    found["first"] = agent._assembly.arguments.minibatch
    agent.distributed_training(agent.optimizer, strategy, 1, p=0)
    found["of set"] = agent._assembly.arguments.minibatch
    found["fewer"] = refusal(lambda: train(made(batch=1)))
    sized = made()
    sized.batch_size_fn = lambda *_: 7  # which does not divide
    train(sized, 2)
    found["uneven"] = bool(np.isfinite(sized.loss_list).all()) and sized.loss_list[-1] > 0
    rule = made(PR=True)
    rule.adjust_func = lambda: rule.adjust_batch_size(lr_params={"rate": 0.1, "min": 1e-4})
    train(rule, 3)
    found["moved"] = float(np.asarray(variables.host(rule.optimizer._learning_rate)))


def outside() -> None:
    """Optimizers from outside of the scope are recreated there, for finders and training."""

    def optimizers() -> list[Any]:
        return [keras.optimizers.Adam(0.01, clipnorm=0.05)]

    agent = made()
    before = variables.read(agent.q.variables)
    agent.optimizer = own = optimizers()[0]
    lr = LRFinder(agent)
    lr.find(strategy=strategy, N=5, episodes=4, pool_network=False, p=0)
    after = variables.read(agent.q.variables)
    as_before = all(map(np.array_equal, before, after)) and not agent.loss_list
    with scope():
        inside = optimizers()
    one, other = finders = [OptFinder(made(), given) for given in (optimizers(), inside)]
    for finder in finders:
        finder.find(strategy=strategy, episodes=2, pool_network=False, p=0)
    alone = OptFinder(made(several=False), optimizers())
    alone.find(episodes=2, pool_network=False, p=0)
    best = one.agent.optimizer = one.best_opt
    parallel = ParallelFinder([made()], optimizers())
    parallel.find(strategy=strategy, episodes=2, processes=1, p=0)
    found["outside"] = {
        "as before": as_before and agent.optimizer is own and own.clipnorm == 0.05,
        "lr": 1e-4 <= lr.best_lr <= 1,
        "as inside": np.allclose(one.mean_losses, other.mean_losses, rtol=1e-5),
        "as of one": np.allclose(one.mean_losses, alone.mean_losses, rtol=1e-4),
        "the user's": best in one.optimizers,
        "trains": len(train(one.agent, 2).loss_list) == 2,
        "parallel": np.allclose(parallel.losses[0], one.losses[0], rtol=1e-4),
        "goes on": train(parallel.logs["best_agent"], 1).total_episode == 3,
    }


class Signs(gymnasium.Env[Any, Any]):
    """Ten steps, and a reward of 1 for each whose action is the sign of what is seen first."""

    observation_space, action_space = Box(-1, 1, (4,)), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._next(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        reward = float((self.seen[0] > 0) == action)
        return self._next(), reward, False, self.steps == 10, {}

    def _next(self) -> Any:
        self.seen = self.np_random.uniform(-1, 1, 4).astype(np.float32)
        return self.seen


def score() -> None:
    """The mean return of twenty episodes, before training and after."""

    def played() -> float:
        return float(np.mean([agent.run_agent(10, seed=i)[1] for i in range(20)]))

    agent = made(num_updates=4, batch=32, pool_size=1000)
    agent.env, agent.gamma = Signs(), 0.0
    before = played()
    train(agent, 60, pool_network=False)
    found["score"] = [before, played()]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        if name in CASES:
            equal_to_one(name)
        elif name == "goes on":
            found["goes on"] = goes_on()
        elif name == "dropout":
            found["dropout"] = goes_on(lambda: layers.Dropout(0.3), layers.BatchNormalization)
        else:
            globals()[name]()
    print(json.dumps(found))
