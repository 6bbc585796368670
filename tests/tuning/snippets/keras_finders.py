"""Finders with Keras agents: prints one JSON object of what was found."""

import json
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
from keras import layers, ops

from tandem import RL, LRFinder, OptFinder, ParallelFinder, assign_param
from tandem.errors import SettingError
from tandem.exploration import EpsGreedyQPolicy
from tandem.runs import checkpoint

found: dict[str, Any] = {}
metric = keras.metrics.Mean()


class Doubled(layers.Layer):
    def call(self, x: Any) -> Any:
        return 2 * x


def mlp(out: int) -> Any:
    parts = [layers.Dense(8, "tanh"), layers.Dropout(0.1), Doubled(), layers.Dense(out)]
    return keras.Sequential([keras.Input((4,)), *parts])


class Q(RL):
    """A network with dropout, a class of layers of its own, a layer that may be not built yet."""

    def __init__(self, built: bool = True) -> None:
        super().__init__()
        keras.utils.set_random_seed(0)
        self.q, self.target, self.late = mlp(2), mlp(2), layers.Dense(2)
        if built:
            self.late.build((None, 4))
        self.param, self.env, self.gamma = self.q.weights, gymnasium.make("CartPole-v1"), 0.9
        self.set(policy=EpsGreedyQPolicy(0.5), pool_size=200, batch=8, update_steps=5)

    def action(self, s: Any) -> Any:
        return self.q(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        q = self.q(s, training=True) + 0 * self.late(s)
        best = ops.max(self.target(next_s), 1)
        TD = ops.take_along_axis(q, a[:, None], 1)[:, 0] - r - self.gamma * (1 - d) * best
        return ops.mean(TD**2)

    def update_param(self) -> None:
        assign_param(self.target.weights, self.q.weights)


def everything(agent: Any, path: Path) -> Any:
    agent.save(path)
    file = checkpoint.read(path)
    file.data["records"].pop("total_time")
    del file.data["loop"]["counters"], file.data["loop"]["collector"]["seconds"]
    groups = ("param", "engine", "collector", "learner")
    arrays = {f"{g}/{n}": x.tobytes() for g in groups for n, x in file.group(g).items()}
    networks = agent.q, agent.target, agent.optimizer
    own = [np.asarray(v.value).tobytes() for m in networks for v in m.variables]
    return file.data, arrays, own, repr(agent._arguments.policy.state())


def no_trace(folder: Path) -> Any:
    """Of a sweep before there is training, and of trials after it."""
    first, second = Q(), Q()
    for agent in (first, second):
        agent.optimizer = keras.optimizers.Adam(1e-3)
    sweep = LRFinder(first)
    sweep.find(metric, N=3, start_lr=1e-4, end_lr=1e-2, p=0)
    found["rates"] = bool(np.allclose(sweep.lrs, 1e-4 * 100 ** (np.arange(4) / 3)))
    found["rate"] = abs(float(first.optimizer.learning_rate) - 1e-3) < 1e-9
    for agent in (first, second):
        agent.train(metric, None, 3, p=0)
    before = everything(first, folder / "a")
    kinds = [keras.optimizers.SGD(0.1), first.optimizer]
    ranked, alone = OptFinder(first, kinds), OptFinder(first, kinds[1:])
    ranked.find(metric, episodes=2, p=0)
    alone.find(metric, episodes=2, metrics="loss", p=0)
    found["independent"] = (ranked.losses[1:], ranked.rewards[1:]) == (alone.losses, alone.rewards)
    found["differ"] = ranked.losses[0] != ranked.losses[1]
    found["as before"] = everything(first, folder / "b") == before
    for agent in (first, second):
        agent.train(metric, None, 3, p=0)
    found["trains alike"] = everything(first, folder / "a") == everything(second, folder / "b")
    return first


def in_processes(trained: Any, folder: Path) -> None:
    """One that was trained before, whose losses are the larger ones, and one that was not."""
    other, twin = Q(built=False), Q(built=False)
    slow, adam = keras.optimizers.SGD(1e-9), keras.optimizers.Adam(1e-2)
    trained.gamma = 5.0
    before = everything(trained, folder / "a")
    expected = other.train(metric, keras.optimizers.Adam(1e-2), 4, p=0)
    finder = ParallelFinder([trained, twin], [trained.optimizer, adam])
    best = finder.find(metric, episodes=4, metrics="loss", parallel=1, p=0)
    found["best"] = best is twin and twin.optimizer is adam
    found["loser is as before"] = everything(trained, folder / "b") == before
    found["winner is trained"] = twin.loss_list == other.loss_list
    found["and has its loss"] = bool(twin.loss == float(expected))
    for agent in (other, twin):
        agent.train(metric, None, 2, p=0)
    found["goes on"] = twin.loss_list == other.loss_list
    shared = Q()
    shared.again = keras.Sequential([keras.Input((4,)), shared.q.layers[0]])
    alone = ParallelFinder([shared], [slow]).find(metric, episodes=2, parallel=1, p=0)
    found["shared"] = alone is shared and len(shared.loss_list) == 2


def schedule() -> str:
    agent = Q()
    agent.optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-3, 10))
    try:
        LRFinder(agent).find(metric)
    except SettingError as error:
        return error.happened
    return ""


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        in_processes(no_trace(Path(temporary)), Path(temporary))
    found["schedule"] = schedule()
    print(json.dumps(found))
