"""Holds algorithms to the contract of several devices; fails with what is wrong. Arguments: the
engine, and names of cases (none: all)."""

import gc
import sys
from unittest.mock import patch

from tandem import algorithms
from tandem.envs.team import Team
from tandem.testing import contracts, device_contracts, fakes
from tandem.testing import environments as games
from tandem.testing import team_games as together

ENGINE, *NAMES = sys.argv[1:]
RATE = {"learning_rate": "1e-2"}
REPLAY = {"envs": 4, "learning_starts": 32, "train_every": 8, "updates_per_call": 4, **RATE}
REPLAY |= {"batch_size": 32, "buffer_size": 500}
ROLLOUT = {"envs": 8, "rollout": 8, **RATE}
PPO = ROLLOUT | {"batch_size": 32, "epochs": 2}
SEQUENCES = {"envs": 8, "rollout": 7, **RATE}
OLDER = {"replay_ratio": 1.0, "replay_size": 50, "replay_starts": 16}
MEMORY = {"recurrent": 8, "sequence": 4}
LSTM = MEMORY | {"memory": "lstm"}
SOFT = {"munchausen": True, "double": False}
SHORT = {"steps": 2000, "hidden": (16,)}


def convolving(space):
    if ENGINE == "torch":
        from torch import nn

        class Images(nn.Module):
            def forward(self, x):
                return x.permute(0, 3, 1, 2).float() / 255

        return nn.Sequential(Images(), nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.Flatten())
    import keras

    x = keras.Input(space.shape, dtype="uint8")
    y = keras.layers.Conv2D(4, 3, 2, activation="relu")(keras.layers.Rescaling(1 / 255)(x))
    return keras.Model(x, keras.layers.Flatten()(y))


def moving(space):
    """With what a forward pass moves. (No bias before batch norm: its gradient is rounding.)"""
    if ENGINE == "torch":
        from torch import nn

        first = nn.Linear(*space.shape, 8, bias=False)
        return nn.Sequential(first, nn.BatchNorm1d(8), nn.Dropout(0.4))
    from keras import Sequential, layers

    first = layers.Dense(8, use_bias=False)
    return Sequential([first, layers.BatchNormalization(), layers.Dropout(0.4)])


def team(game):
    return lambda: Team(game())


BOX, TWO = games.IdentityBox, team(together.TwoStep)
CASES = {
    "dqn": (games.Chain, REPLAY | {"prioritized": True, "dueling": True}),
    "dqn_noisy": (games.Chain, REPLAY | {"noisy": "factorised"}),
    "dqn_categorical": (games.Chain, REPLAY | {"values": "categorical", "atoms": 11}),
    "dqn_quantile": (games.Chain, REPLAY | {"values": "quantile", "quantiles": 9}),
    "dqn_implicit": (games.Chain, REPLAY | SOFT | {"values": "implicit", "fractions": 8}),
    "dqn_recurrent": (games.Chain, REPLAY | MEMORY | {"burn_in": 2, "prioritized": True}),
    "sac_recurrent": (BOX, REPLAY | MEMORY | {"burn_in": 2}),
    "dqn_convolving": (games.IdentityImage, REPLAY | {"network": convolving}),
    "dqn_moving": (games.TerminatedTruncatedPair, REPLAY | {"network": moving}),
    "ppo": (BOX, PPO | {"normalize_observations": True}),
    "ppo_rnd": (BOX, PPO | {"intrinsic": "rnd", "rnd_features": 8}),
    "ppo_recurrent": (games.Chain, PPO | MEMORY),
    "ppo_recurrent_moving": (games.TerminatedTruncatedPair, PPO | MEMORY | {"network": moving}),
    "ppo_convolving": (games.IdentityImage, PPO | {"network": convolving, "shared": True}),
    "ppo_gsde": (BOX, PPO | {"action_noise": "gsde", "sde_sample_freq": 4}),
    "a2c": (games.Chain, ROLLOUT | {"noisy": "independent", "entropy": 0.0}),
    "trpo": (BOX, ROLLOUT | {"epochs": 2, "batch_size": 0}),
    "trpo_recurrent": (BOX, ROLLOUT | MEMORY | {"epochs": 2, "batch_size": 0}),
    "trpo_normalizing": (BOX, PPO | {"normalize_observations": True}),
    "sac": (BOX, REPLAY),
    # (The usual entropy is nearly that of the first policy: their difference would be rounding.)
    "sac_discrete": (games.Chain, REPLAY | {"target_entropy": 0.2, "n_step": 3}),
    "td3": (BOX, REPLAY | {"normalize_observations": True, "normalize_rewards": True}),
    "crossq": (BOX, REPLAY | {"renorm_warmup": 5, "optimizer": "sgd", "learning_rate": 0.05}),
    "tqc": (BOX, REPLAY | {"quantiles": 8, "n_step": 2}),
    "ddpg": (BOX, REPLAY),
    "a3c": (games.Chain, SEQUENCES),
    "impala": (games.Chain, SEQUENCES | OLDER | {"replay": "prioritized"}),
    "acer": (games.Chain, SEQUENCES | OLDER | {"replay": "uniform"}),
    "acer_recurrent": (games.Chain, SEQUENCES | OLDER | {"recurrent": 6, "memory": "lstm"}),
    "nstep_q": (games.Chain, SEQUENCES | OLDER | {"replay": "prioritized", "priority": "error"}),
    "nstep_q_expected": (games.Chain, SEQUENCES | {"bootstrap": "expected"}),
    "pqn": (games.Forbidden, PPO | {"bootstrap": "expected"}),
    "vdn": (TWO, REPLAY | MEMORY | {"share": False}),
    "qmix": (TWO, REPLAY | {"embedding": 4, "prioritized": True, "n_step": 2}),
    "mappo": (TWO, PPO | {"share": False, "value_norm": "popart"}),
    "mat": (TWO, PPO | {"embedding": 16, "heads": 2}),
    "mappo_recurrent": (team(together.Leaving), PPO | LSTM | {"rewards": "team"}),
    "maddpg": (team(together.Landmarks), REPLAY | {"twin": True, "policy_delay": 2, "n_step": 3}),
}
WHOLE = {"ppo_recurrent_moving"}  # is not divided: statistics and masks are of all rows together
# Where these are of each device's rows, a run is not that of one device.
OF_PARTS = {"crossq", "dqn_moving", "ppo_recurrent_moving"} if ENGINE != "jax" else set()


class Counted(Exception):
    """The program was compiled, and is not to be run."""


def work(devices, kind, env, given):
    """The operations that each device does in an update, as the compiler counts them."""
    import jax

    from tandem.backends import keras_jax

    given = given | {"hidden": (64, 64)}  # so that networks are most of it
    loop = contracts.begin(kind, env, "jax", devices=devices, **given)
    counts = []

    def counting(function, donate):
        made = jax.jit(function, donate_argnums=donate)

        def call(*arguments):
            counts.append(made.lower(*arguments).compile().cost_analysis()["flops"])
            raise Counted

        return call

    # rows enough for the step on weights, which each device makes, to be little beside them
    batch = fakes.first(contracts.made_up(loop, device_contracts.UPDATES, 256), 1)
    with patch.object(keras_jax, "compiled", counting):
        run = loop.backend.compile(loop.algorithm.update)
    try:
        run(batch)
    except Counted:
        (operations,) = counts
    return operations


def share_of_work(kind, env, given):
    """What each of two devices does of what one does. Others than JAX divide the rows
    themselves."""
    return work(2, kind, env, given) / work(1, kind, env, given) if ENGINE == "jax" else 0.5


def held(name):
    env, given = CASES[name]
    kind = algorithms.get(next(n for n in algorithms.NAMES if f"{name}_".startswith(f"{n}_")))
    given = {**SHORT, **given}
    bound = {"max_kl": 1e6} if name.startswith("ppo") else {}  # which is looked at, and not reached
    if name in OF_PARTS and "torch" in ENGINE and "network" in given:  # with dropout
        drawn(kind, env, given)
        return
    if name in OF_PARTS:
        contracts.reproducible(kind, env, ENGINE, devices=2, **given | {"steps": 200})
        contracts.resumes(kind, env, ENGINE, updates=4, devices=2, **given)
        return
    found = device_contracts.same_as_on_one(kind, env, ENGINE, rows=64, **given, **bound)
    # of what a forward pass moves by rows' places, their order says nothing
    assert found["off"] < 1e-5, found
    device_contracts.first_gradients(kind, env, ENGINE, rows=64, **given)
    share = share_of_work(kind, env, given)
    whole = name in WHOLE and ENGINE == "jax"
    assert share > 0.9 if whole else share < 0.65, f"each device does {share:.2f} of it"
    contracts.reproducible(kind, env, ENGINE, devices=2, **given | {"steps": 200})
    contracts.resumes(kind, env, ENGINE, updates=4, devices=2, **given)
    device_contracts.resumes_on_one(kind, env, ENGINE, updates=4, **given)


def drawn(kind, env, given):
    """As `contracts.reproducible` and `resumes`, one loop after the other: on torch dropout draws
    by a generator that all loops of a process share."""

    def trained(updates, saved=None):
        loop = contracts.begin(kind, env, ENGINE, devices=2, **given)
        if saved is not None:
            contracts.train(loop, 1)  # somewhere else
            loop.load_state(*saved)
        contracts.train(loop, updates)
        return loop

    one = trained(8)
    saved = contracts.copied(one.state())
    assert sum(n.startswith("generator/") for n in saved[1]["engine"]) == 2, "of each process"
    target = one.learner.updates + 4
    contracts.train(one, target)
    weights = contracts.weights(one)
    contracts.agree(weights, contracts.weights(trained(target)), "twice, and once saved")
    contracts.agree(weights, contracts.weights(trained(target, saved)), "resumed")
    saved[1]["engine"] = {n: x for n, x in saved[1]["engine"].items() if n != "generator/cpu/1"}
    off = device_contracts.distance(weights, contracts.weights(trained(target, saved)))
    assert off > 0, "the other process draws by another generator, and nothing comes of it"


def stops():
    """PPO ends a rollout's updates at the same one."""
    given = {**SHORT, **PPO, "max_kl": 0.002}
    several, one = device_contracts.sides(algorithms.get("ppo"), BOX, ENGINE, 2, **given)
    batch = contracts.made_up(one.loop, device_contracts.UPDATES, 64)
    # of the policy that acted, not of any: it has not been left far yet
    algorithm = one.loop.algorithm
    obs, action = (x.reshape(-1, *x.shape[2:]) for x in (batch.obs, batch.action))
    extra = algorithm.behavior_outputs(algorithm.actor.predict(obs), action)
    extra = {n: x.reshape(batch.weight.shape) for n, x in extra.items()}
    batch = batch._replace(extra=batch.extra | extra)
    out, expected = several.after(batch)[0], one.after(batch)[0]
    assert expected.stopped and 0 < expected.applied < 20, expected
    assert (out.stopped, out.applied) == (True, expected.applied), (out, expected)


def uneven():
    """Rows that do not divide stay on one device, which every device then stands for."""
    given = {**SHORT, **PPO}
    several, one = device_contracts.sides(algorithms.get("ppo"), BOX, ENGINE, 2, **given)
    batch = contracts.made_up(one.loop, device_contracts.UPDATES, 63)
    weights, there = several.after(batch)[1], one.after(batch)[1]
    if ENGINE == "jax":
        contracts.agree(weights, there, "63 rows on 2 devices")
    off = device_contracts.distance(weights, there)  # elsewhere another compiler adds them up
    assert off < 1e-6, off


def short(devices=2):
    """What can be had of one algorithm in seconds; whole runs are held in tests/learning."""
    kind, given = algorithms.get("dqn"), {**SHORT, **CASES["dqn"][1]}
    share = share_of_work(kind, games.Chain, given) if devices == 2 else 0.0
    assert share < 0.65, f"each device does {share:.2f} of the work of one"
    device_contracts.same_as_on_one(kind, games.Chain, ENGINE, rows=64, devices=devices, **given)


def four():
    """More of them than two, and than cores."""
    short(4)


# four first: jax starts once
MORE = {"four": four, "short": short, "stops": stops, "uneven": uneven}
for name in NAMES or [*MORE, *CASES]:
    try:
        MORE[name]() if name in MORE else held(name)
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}") from error
    gc.collect()  # ends the processes that torch's devices are
