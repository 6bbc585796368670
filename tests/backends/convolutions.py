"""Updates of a network with a convolution, three in a call: prints whether they are those of single
calls, its target's too, and whether one that is not finite leaves nothing behind. Argument: the
framework. (On a processor JAX and TensorFlow make them one by one.)"""

import json
import sys

import numpy as np

from tandem import backends
from tandem.networks.defaults import Drawn
from tandem.networks.plan import Conv, Dense, Flatten, Image, init
from tandem.spaces import Leaf
from tandem.types import Batch, Update

PICTURE = Leaf("box", (2, 8, 8), "uint8")
PLAN = (Image(True), Conv(2, 4, 4, 2), Flatten(), Dense(36, 1))
rng = np.random.default_rng(1)
OBS = rng.integers(0, 256, (3, 5, 2, 8, 8)).astype(np.uint8)
REWARD = rng.normal(size=(3, 5)).astype(np.float32)
RATE, TAU = np.full(3, 0.1, np.float32), np.float32([0, 0.5, 1])


def build():
    backend = backends.make(sys.argv[1], "cpu", seed=0, threads=1, compile=False)
    network, target = backend.pair("q", Drawn(PLAN, init(PLAN, np.random.default_rng(0)), PICTURE))
    optimizer = backend.optimizer("q", [network], "sgd")

    def update(b):
        def loss(b):
            return (network(b.obs)[:, 0] - b.reward) ** 2, {}

        value, _ = backend.minimize(optimizer, loss, b, b.settings["learning_rate"])
        backend.soft_update(network, target, b.settings["tau"], seldom=True)
        return Update({"loss": value}, priority=b.reward)

    return network, target, backend.compile(update)


def trained(reward, *calls):
    network, target, run = build()
    for k in calls:
        settings, none = {"learning_rate": RATE[k], "tau": TAU[k]}, np.zeros((len(OBS[k]), 5), int)
        outcome = run(Batch(OBS[k], none, reward[k], settings=settings))
    weights = {**network.read(), **{f"target/{n}": x for n, x in target.read().items()}}
    return {n: np.array(x) for n, x in weights.items()}, outcome


def alike(one, other, **within):
    return all(np.allclose(one[n], x, **within) for n, x in other.items())


together, outcome = trained(REWARD, slice(0, 3))
apart, _ = trained(REWARD, slice(0, 1), slice(1, 2), slice(2, 3))
bad = REWARD.copy()
bad[1, 2] = np.nan
halted, refused = trained(bad, slice(0, 3))
first, _ = trained(REWARD, slice(0, 1))
targets = {n: together[n.removeprefix("target/")] for n in together}
found = {
    "same": alike(together, apart, atol=1e-7),
    "moved": not alike(together, first, rtol=0, atol=0),
    "followed": alike(together, targets, atol=1e-6),
    "shapes": [
        outcome.applied,
        *map(list, map(np.shape, (outcome.priority, outcome.metrics["loss"]))),
    ],
    "halted": [refused.applied, refused.fault, alike(halted, first, rtol=0, atol=0)],
}
print(json.dumps(found))
