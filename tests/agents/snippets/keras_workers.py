"""One of TF_CONFIG's workers that train agents together: prints one JSON object."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
import tensorflow as tf
from keras.optimizers import SGD, Adam

from tandem import RL, LambdaCallback
from tandem.backends import variables
from tandem.errors import TandemError
from tandem.examples.keras import DDPG_HER, MADDPG, PPO
from tandem.exploration import EpsGreedyQPolicy, GaussianWhiteNoiseProcess, SoftmaxPolicy
from tests.agents.keras_q import refusal

strategy = tf.distribute.MultiWorkerMirroredStrategy()
config = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))
RANK, FOLDER = config["task"]["index"], Path(sys.argv[1])
found: dict[str, Any] = {}


class World(gymnasium.Env[Any, Any]):
    """Episodes of three steps, with other rewards for each worker."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._obs(), 1.0 + 2.0 * RANK, self.steps == 3, False, {}

    def _obs(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)


class Mean(RL):
    """The weight goes down by a tenth of the mean reward of all workers' rows."""

    def __init__(self) -> None:
        self.net = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, use_bias=False)])
        self.w = keras.Variable(float(RANK))  # the first worker's counts
        self.param, self.env = [self.w], World()

    def action(self, s: Any) -> Any:
        return self.net(s)

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        self.prioritized_replay.update(r - keras.ops.stop_gradient(self.w * 0.0))
        return keras.ops.mean(r) * self.w

    def update_param(self) -> None:
        """There is no target."""


class Own(Mean):
    """The same in a loop of its own."""

    def CTL(self, multi_worker_dataset: Any) -> Any:
        losses = [self.distributed_train_step(inputs) for inputs in multi_worker_dataset]
        return sum(losses), len(losses)


class Twice(Mean):
    def CTL(self, multi_worker_dataset: Any) -> Any:
        for inputs in multi_worker_dataset:
            self.distributed_train_step(inputs)
            self.distributed_train_step(inputs)
        return 0.0, 1


SET = {"pool_size": 60, "batch": 4, "update_steps": 3}


def made(kind: Any = Mean, optimizers: int = 1, **choices: Any) -> Any:
    keras.utils.set_random_seed(RANK)
    with strategy.scope():
        agent = kind()
        plain = isinstance(agent, Mean)
        own = [SGD(0.1) if plain else Adam() for _ in range(optimizers)]
        agent.optimizer = own[0] if optimizers == 1 else own
    agent.set(**{**SET, "policy": EpsGreedyQPolicy(0.5), **choices})
    return agent


def train(agent: Any, rounds: int = 4, **more: Any) -> Any:
    agent.distributed_training(strategy=strategy, num_episodes=rounds, p=0, **more)
    return agent


def summary(agent: Any) -> dict[str, Any]:
    """What has to be the same for all workers, and how many episodes there were."""
    weights = variables.read(variables.flat(agent.param))
    return {
        "weights": [float(x.astype(np.float64).sum()) for x in weights],
        "updates": agent._assembly.learner.updates,
        "loss": float(agent.loss),
        "episodes": agent.total_episode,
    }


def mean() -> None:
    for name, kind in (("mean", Mean), ("own loop", Own)):
        found[name] = summary(train(made(kind)))
        found[f"{name}, PR"] = summary(train(made(kind, PR=True)))
    found["twice"] = refusal(lambda: train(made(Twice)))
    agent = made()
    agent.batch_size_fn = lambda *_: 8
    found["hooks"] = refusal(lambda: train(agent))
    found["outside"] = refusal(lambda: made().distributed_train_step((1, 2, 3, 4, 5)))


def ends() -> None:
    """By the first worker's criterion, its stop within updates, the other's signal to itself."""
    found["criterion"] = summary(train(made(trial_count=2, criterion=1.0), 9))
    stopped = made(num_updates=6)

    def stop(batch: int, logs: Any) -> None:
        if RANK == 0 and batch == 8:
            stopped.stop_training = True

    stopped.callbacks = [LambdaCallback(on_batch_end=stop)]
    found["stop"] = summary(train(stopped, 9))
    stopped.callbacks = []
    found["went on"] = summary(train(stopped, 2))
    other = made()

    def of_other(episode: int, logs: Any) -> None:
        other.stop_training = RANK == 1  # which does not decide

    other.callbacks = [LambdaCallback(on_episode_end=of_other)]
    found["not by another"] = summary(train(other, 3))


def files() -> None:
    whole, agent, other = (made(PR=True, pool_size=40) for _ in range(3))
    agent.path = FOLDER / "agent.dat"
    train(whole, 6)
    train(agent, 3)
    with strategy.scope():
        other.restore(FOLDER / "agent.dat")
    train(other, 3)
    found["files"] = summary(whole)["weights"] == summary(other)["weights"]
    found["rewards"] = list(other.reward_list) == list(whole.reward_list)
    found["own"] = (FOLDER / "worker1" / "agent.dat").exists() and len(whole.loss_list)


def modes() -> None:
    ppo = {"policy": SoftmaxPolicy(), "PPO": True, "num_updates": 4, "update_steps": 20}
    batches = ppo | {"update_batches": 2, "update_steps": None}
    noise = {"policy": None, "noise": GaussianWhiteNoiseProcess(), "HER": True, "num_updates": 3}
    team = {"policy": SoftmaxPolicy(), "MARL": True, "num_updates": 3}
    for name, kind, choices, rounds in (
        ("PPO", lambda: PPO.PPO(4, 8, 2, 0.7, 0.7), ppo, 3),
        ("PPO by batches", lambda: PPO.PPO(4, 8, 2, 0.7, 0.7), batches, 2),
        ("HER", lambda: DDPG_HER.DDPG(8, 0.1, 0.98, 0.005), noise, 2),
        ("MARL", lambda: MADDPG.DDPG(8, 0.1, 0.98, 0.005), team, 2),
    ):
        found[name] = summary(train(made(kind, 2, pool_size=300, **choices), rounds))
    found["processes"] = summary(train(made(), 2, pool_network=True, processes=2))


def fails() -> None:
    """Another worker raises; then it dies."""
    agent = made()
    how, failed = sys.argv[3], FOLDER / "failed"

    def bad(episode: int, logs: Any) -> None:
        if RANK == 1 and episode == 2:
            failed.touch()
            if how == "dies":
                os._exit(7)
            if how == "stops":
                os.kill(os.getpid(), signal.SIGSTOP)
            raise RuntimeError("mine")

    agent.callbacks = [LambdaCallback(on_episode_end=bad)]
    try:
        train(agent, 30)
    except TandemError as error:
        found["error"] = f"{type(error).__name__}: {error}"
        found["seconds"] = time.time() - failed.stat().st_mtime
    except RuntimeError as error:
        found["error"] = str(error)


if __name__ == "__main__":
    globals()[sys.argv[2]]()
    print(json.dumps(found), flush=True)
    sys.stdin.read()  # closed when both workers have answered
    os._exit(0)  # TensorFlow's own end waits for the other workers
