"""A program that torchrun starts several times: each prints what its agent came to."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from tandem import LambdaCallback
from tandem.errors import TandemError
from tests.agents.test_torch_devices import made, tensors, train

RANK = int(os.environ["RANK"])


def weights(agent: Any) -> list[float]:
    return [float(x.double().sum()) for x in tensors(agent)]


def follows(folder: Path) -> Any:
    """Two trainings, the second one after the agent was moved; then one from a file."""
    agent = made()
    first = [float(agent.distributed_training(None, 2, 4, pool_network=False, p=0))]
    if RANK == 0:
        agent.save(folder / "agent.dat")
    train(agent, 2)
    found = {"first": first, "weights": weights(agent), "losses": list(agent.loss_list)}
    other = made()
    other.restore(folder / "agent.dat")
    train(other, 2)
    return found | {"resumed": weights(other)}


def dies(folder: Path) -> Any:
    """The second process does, amid a training."""
    agent = made()
    train(agent, 1)
    if RANK == 1:
        os._exit(7)
    train(agent, 2)


def raises(folder: Path) -> Any:
    """A callback of the first process does."""
    agent = made()

    def bad(episode: int, logs: Any) -> None:
        raise OSError("mine")

    agent.callbacks = [LambdaCallback(on_episode_end=bad)]
    train(agent, 2)


if __name__ == "__main__":
    try:
        print(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]))))
    except (TandemError, OSError) as error:
        print(json.dumps(f"{type(error).__name__}: {error}"))
