"""Holds every algorithm to its contract on one engine; prints what was found, one JSON object a
case. Arguments: the engine, and names of cases: a group of GAMES, or a function here with names of
SHORT, as in `resumes=dqn,ppo`."""

import hashlib
import json
import sys
import time
from functools import partial

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformAction

from tandem import algorithms
from tandem.envs.team import Team
from tandem.learning.collect.actor import forwards
from tandem.testing import contracts
from tandem.testing import environments as games
from tandem.testing import team_games as together
from tandem.testing.action_games import Parts
from tandem.testing.memory_games import Recall

engine, wanted = sys.argv[1], sys.argv[2:]


# Games whose solution is known


def plain(envs, **settings):
    return {"hidden": (32,), "envs": envs, "gamma": 0.9, **settings}


REPLAY = {"train_every": 16, "updates_per_call": 16, "batch_size": 64, "buffer_size": 5000}
OLDER = {"replay_ratio": 1.0, "replay_size": 50, "replay_starts": 16}
FALLING = {"learning_rate": "1e-2:1e-3"}
RANKED_BY_ERROR = {"replay": "prioritized", "priority": "error", "evict": "sample"}
LESS_AND_LESS = {"epsilon": "1:0.1:0.5"}
SOFT_AC = plain(4, **REPLAY, learning_starts=200, learning_rate=3e-3, hidden=(32, 32))
NOISED = {**SOFT_AC, "tau": 0.02, "exploration": 0.2}
SEQUENCES = plain(8, **FALLING, rollout=8)
SUMS = plain(8, learning_starts=64, train_every=8, batch_size=64, buffer_size=2000)
SUMS |= {"learning_rate": 3e-3, "target_every": 100, "epsilon": 1.0}
TOGETHER = plain(8, rollout=16, batch_size=128, learning_rate="5e-3:1e-3", entropy="0.3:0")
BASE = {
    "dqn": plain(
        4, **REPLAY, **LESS_AND_LESS, learning_starts=100, target_every=64, learning_rate=3e-3
    ),
    "ppo": plain(8, **FALLING, rollout=16, batch_size=64, epochs=6, entropy=0.01),
    "a2c": plain(4, **FALLING, rollout=4),
    "trpo": plain(8, rollout=32, learning_rate="2e-2:1e-3", radius=0.03),
    "sac": {**SOFT_AC, "tau": 0.02},
    "td3": NOISED,
    "tqc": {**SOFT_AC, "tau": 0.02, "quantiles": 8, "dropped": 1},
    "crossq": {**SOFT_AC, "renorm_warmup": 500},
    "ddpg": {**NOISED, "actor_learning_rate": 1e-3},
    "a3c": SEQUENCES,
    "impala": {**SEQUENCES, **OLDER, "entropy": 0.01},
    "acer": {**SEQUENCES, **OLDER, "entropy": 0.01},
    "nstep_q": {**SEQUENCES, **OLDER, **LESS_AND_LESS, **RANKED_BY_ERROR, "target_updates": 20},
    "pqn": plain(8, **LESS_AND_LESS, rollout=16, batch_size=64, learning_rate="5e-3:1e-3"),
    "vdn": SUMS,
    "qmix": SUMS,
    "maddpg": {**NOISED, "envs": 8, "actor_learning_rate": 1e-3, "max_grad_norm": 10.0},
    "mappo": TOGETHER,
    "mat": {**TOGETHER, "hidden": (16,), "embedding": 16, "clip": 0.2},
}


def near(found, expected, tolerance):
    gap = np.abs(np.asarray(found, np.float64) - expected)
    assert (gap <= tolerance).all(), f"values {np.round(found, 3).tolist()}, expected {expected}"


def solve(kind, env, steps, worth=None, **settings):
    """Solved; and what it says of observations is near what they are worth."""
    given = {**BASE[kind], "steps": steps, **settings}
    loop = contracts.solves(algorithms.get(kind), env, engine, **given)
    if worth is not None:
        say, expected, tolerance = worth
        near(say(loop), expected, tolerance)
    return loop


def begun(kind, env, **settings):
    return contracts.begin(algorithms.get(kind), env, engine, **{**BASE[kind], **settings})


def row(*given, **settings):
    return partial(solve, *given, **settings)


def of(obs, expected, tolerance=0.15):
    return lambda loop: contracts.values(loop, obs), expected, tolerance


def choices(loop):
    """The values of what its policy does, next to greedy at a low temperature."""
    outs = [n(np.arange(4)) for n in forwards(loop.backend, ("q1", "q2")).values()]
    return np.min([loop.algorithm.values.part(out).max(-1) for out in outs], axis=0)


def team(game):
    def made():
        found = Team(game())
        found.optimum = found.inner.optimum
        return found

    return made


def first_value(loop):
    """What its critic, or its mixture of action values, says of a game's beginning; of each agent
    if it says so."""
    algorithm, obs = loop.algorithm, loop.collector.environments.reset()
    obs = {n: x[:1].copy() for n, x in obs.items()}
    if isinstance(algorithm, algorithms.get("mat")):
        networks = forwards(loop.backend, ("encoder", "critic"))
        return networks["critic"](networks["encoder"](obs["agents"]))[0, :, 0]
    if isinstance(algorithm, algorithms.get("mappo")):
        rows = algorithm.rows(obs)["critic"]
        if algorithm.sequence:
            state = np.zeros((2, algorithm.settings.recurrent), np.float32)
            return contracts.later(loop.networks["critic"], rows, state)[:, 0]
        return forwards(loop.backend, ("critic",))["critic"](rows)[:, 0]
    q = forwards(loop.backend, ("q",))["q"](obs["agents"][0]).max(-1)
    if len(algorithm.learned) == 1:
        return q if hasattr(algorithm.settings, "mixer") else q[None].sum(-1)
    mixer = forwards(loop.backend, ("mixer",))["mixer"]
    return algorithm.joint(lambda state: mixer(state), q[None], obs, np.ones_like(q[None]))


def first(*expected, tolerance=0.1):
    return first_value, expected, tolerance


def small_cnn(space):
    if engine == "torch":
        from torch import nn

        class Body(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Sequential(nn.Conv2d(1, 16, 9, 9), nn.ReLU(), nn.Flatten())

            def forward(self, x):
                return self.inner(x.permute(0, 3, 1, 2).float() / 255)

        return Body()
    import keras

    x = keras.Input(space.shape, dtype="uint8")
    y = keras.layers.Conv2D(16, 9, 9, activation="relu")(keras.layers.Rescaling(1 / 255)(x))
    return keras.Model(x, keras.layers.Flatten()(y))


def summed(space):
    """A body of layers that no plan has, for a team's dict and for one agent's array."""
    if engine == "torch":
        import torch

        class Body(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.LazyLinear(8)

            def forward(self, x):
                return torch.sin(self.layer(torch.cat([*x.values()], -1) if type(x) is dict else x))

        return Body()
    import keras

    class Body(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = keras.layers.Dense(8)

        def call(self, x):
            parts = [*x.values()] if isinstance(x, dict) else [x]
            return keras.ops.sin(self.layer(keras.ops.concatenate(parts, -1)))

    return Body()


def shifted():
    """IdentityBox whose bounds are uneven: actions are in 0 to 4, and 2 more than what is seen."""
    game = games.IdentityBox(scale=2.0)
    made = TransformAction(game, lambda a: a - np.float32(2), spaces.Box(0, 4, (1,), np.float32))
    made.optimum = 0.0
    return made


def dqn_noisy():
    """Chain's one reward lies four right actions away; without noise it would never be seen."""
    alone = {"envs": 1, "learning_starts": 0, "train_every": 4, "updates_per_call": 4, "n_step": 3}
    alone |= {"batch_size": 32, "steps": 1500, **QUIET}
    loop = begun("dqn", games.Chain, **alone | {"noisy": "no"})
    contracts.train(loop)
    assert contracts.score(loop, games.Chain) == 0.0, "this seed shows nothing"
    solve("dqn", games.Chain, **alone | {"noisy": "independent"})
    solve("dqn", games.Chain, worth=CHAIN, **alone)


def sac_masked():
    """No entropy is asked for that masks do not allow."""
    loop = solve("sac", games.Forbidden, 4000)
    assert float(loop.backend.networks["log_alpha"].read()["value"]) < 1.0


def vdn_sums():
    """What a sum cannot hold: of the two steps it takes the sure one; of games seen evenly the
    choices whose mean over the other's is best (5 in climbing, 2 in penalty)."""
    for game, known in ((TWO_STEP, 7.0), (CLIMBING, 5.0), (PENALTY, 2.0)):
        loop = begun("vdn", game, steps=6000)
        contracts.train(loop)
        assert contracts.score(loop, game) == known, game


def mappo_own_critic():
    """The values of a critic of unknown layers are standardized too."""
    loop = begun("mappo", ENDLESS_TEAM, steps=10_000, network=summed)
    contracts.train(loop, updates=1)
    critic = loop.backend.networks["critic"]
    mean, variance, count = list(critic.read().values())[-3:]
    rows = 16 * 8 * 2  # rollout, environments, agents
    assert critic.plan is None and count[0] % rows == 0 and count[0] and variance[0] != 1, count
    near(mean, [2.0], 2.0)


QUIET = {"epsilon": 0.0, "noisy": "factorised"}  # no random action: only noise on weights explores
C51 = {"values": "categorical", "atoms": 21, "v_min": 0.0, "v_max": 1.25}
PUNISHED = {"values": "categorical", "atoms": 31, "v_min": -8.0, "v_max": 2.0}
QUANTILES = {"values": "quantile", "quantiles": 8}
IMPLICIT = {"values": "implicit", "fractions": 8, "target_fractions": 8, "acting_fractions": 8}
IMPLICIT |= {"cosines": 16}
SOFT = {"munchausen": True, "double": False}
BOX = {"least": -0.5, "gamma": 0.1}
EVEN = {**BOX, "entropy": 0.0}
NARROW = {"log_std": -0.5}
PRECISE = {"least": -0.2, "gamma": 0.1}
COLD = {"temperature": 0.01}
ADAM = {"optimizer": "adam"}  # quicker in short runs
MEMORY = {"recurrent": 16, "sequence": 8}
TEAM_MEMORY = {"recurrent": 8, "sequence": 4}
LONGER = {"recurrent": 8, "sequence": 8}
SLOWER = {"recurrent": 16, "memory": "lstm", "envs": 8, "rollout": 8, "optimizer": "adam"}
SLOWER |= {"learning_rate": "3e-3:1e-3"}
OTHER = {"double": False, "dueling": True, "prioritized": True, "n_step": 1}
CHAIN = of(np.arange(4), [0.9**3, 0.9**2, 0.9, 1.0])
CLOSE = of(np.arange(4), [0.9**3, 0.9**2, 0.9, 1.0], 0.1)
LATER = of(np.arange(1, 4), [0.9**2, 0.9, 1.0])
PAIR = of(np.eye(2, dtype=np.float32), [1.0, 10.0], 0.5)
# a limit that counted as an end would make 4 of it or less
TEN = of(np.ones((1, 1), np.float32), [10.0], 0.5)
# the entropy log 2 of a policy that is nearly even over [-1, 1], which each later state adds, those
# between the first and the last of three steps too (without them: 10.9)
SPREAD = of(np.ones((1, 1), np.float32), [10 + 0.9 * 0.5 * np.log(2) / (1 - 0.9)], 0.5)
RECALLED = of(np.arange(2), [0.9**2] * 2)
EITHER = of(np.arange(2), [1.0, 1.0])
ENDLESS = partial(games.InfiniteHorizon, length=3)
PUSHED = partial(games.InfiniteHorizon, continuous=True)
PUSHED_PAIR = partial(games.TerminatedTruncatedPair, continuous=True)
PLANE = partial(games.IdentityBox, size=2, scale=3.0)
FAR = {"least": -3.0, "gamma": 0.1}
MATRIX = partial(games.MatrixGame, noise=0.1)
TWO_STEP, CLIMBING, PENALTY = map(team, (together.TwoStep, together.Climbing, together.Penalty))
ENDLESS_TEAM, LEAVING = team(together.Endless), team(together.Leaving)
LANDMARKS, HARD = team(together.Landmarks), team(partial(together.Penalty, -10))
TWIN = {"share": True, "twin": True, "policy_delay": 2, "smoothing": 0.2}
CONTINUOUS = {"least": -2.8, "entropy": 0.0, "log_std": -0.5}


def of_policy(name, short, long, **box):
    return (
        row(name, games.Identity, short),
        row(name, games.IdentityMultiDiscrete, long),
        row(name, games.Forbidden, short),
        row(name, games.ForbiddenMultiDiscrete, long),
        row(name, games.IdentityBox, 24000, **box, **NARROW),
        row(name, games.IdentityBox, 24000, **box, policy="beta"),
        row(name, games.Chain, 12000, LATER),
        row(name, ENDLESS, 16000, TEN),
        row(name, games.TerminatedTruncatedPair, 16000, PAIR),
    )


# By algorithm; `Forbidden` raises where a forbidden action is taken: in collecting, by chance or
# exploration, and in evaluation. Recall: episodes of 3 steps, in sequences of 8; without a memory,
# or with one that ends with the sequence, 1/2 is the best.
GAMES = {
    "dqn": (
        row("dqn", games.Identity, 4000),
        row("dqn", partial(games.Identity, start=3), 4000, **OTHER),
        row("dqn", games.Forbidden, 4000),
        row("dqn", games.IdentityDict, 6000),
        row("dqn", games.IdentityImage, 4000, network=small_cnn),
        row("dqn", games.Chain, 6000, CLOSE, n_step=3),
        row("dqn", ENDLESS, 5000, TEN),
        row("dqn", games.TerminatedTruncatedPair, 6000, PAIR),
        row("dqn", MATRIX, 4000, EITHER),
        dqn_noisy,
    ),
    "dqn, distributions": (
        row("dqn", games.Chain, 6000, CLOSE, n_step=3, **C51, dueling=True),
        row("dqn", games.Chain, 6000, CLOSE, n_step=3, **QUANTILES),
        row("dqn", games.Chain, 6000, CLOSE, n_step=3, **IMPLICIT),
        row("dqn", games.Forbidden, 4000, **C51, dueling=True),
        row("dqn", games.Forbidden, 4000, **QUANTILES),
        row("dqn", games.Forbidden, 4000, **IMPLICIT),
        row("dqn", games.Chain, 6000, **SOFT),  # values are moved by the log-policy
        row("dqn", games.Chain, 6000, **SOFT, **QUANTILES),
        row("dqn", games.Chain, 6000, **SOFT, **IMPLICIT),
        row("dqn", games.Forbidden, 4000, **SOFT),
    ),
    "ppo": (
        row("ppo", games.Forbidden, 4000),
        row("ppo", games.ForbiddenMultiDiscrete, 6000),
        row("ppo", games.IdentityDict, 8000),
        row("ppo", games.IdentityImage, 4000, network=small_cnn),
        row("ppo", games.IdentityBox, 16000, **EVEN, **NARROW, batch_size=32),
        row("ppo", games.Chain, 8000, LATER),
        row("ppo", ENDLESS, 12000, TEN),
        row("ppo", games.TerminatedTruncatedPair, 12000, PAIR),
        row("ppo", Recall, 8000, RECALLED, **MEMORY),
        row("ppo", games.IdentityImage, 8000, network=small_cnn, shared=True, value_weight=0.1),
        row("ppo", games.Chain, 8000, LATER, shared=True),
    ),
    "ppo, slowly": (
        row("ppo", games.Identity, 4000),
        row("ppo", games.IdentityMultiDiscrete, 6000),
        row("ppo", games.InfiniteHorizon, 12000, TEN),
        row("ppo", MATRIX, 6000, EITHER),
        row("ppo", shifted, 16000, **EVEN | {"least": -2.0}, batch_size=32, policy="beta"),
        row("ppo", Parts, 32000, **EVEN | {"least": 16.0}, **NARROW, batch_size=32),
    ),
    "sac": (
        row("sac", games.IdentityBox, 3000, **PRECISE),
        sac_masked,
        row("sac", games.Chain, 8000, (choices, [0.9**3, 0.9**2, 0.9, 1.0], 0.15), **COLD),
        row("sac", PUSHED, 5000, SPREAD, temperature=0.5, n_step=3),
        row("sac", PUSHED_PAIR, 6000, PAIR, temperature=1e-4),
    ),
    "sac, categorical": (
        row("sac", PLANE, 5000, **FAR),
        row("sac", games.Identity, 4000),
        row("sac", PUSHED, 5000, TEN, temperature=1e-4),
        row("sac", games.IdentityBox, 4000, **PRECISE, **PUNISHED),
        row("sac", games.Chain, 6000, (choices, [0.9**3, 0.9**2, 0.9, 1.0], 0.15), **COLD, **C51),
    ),
    "a2c": (
        *of_policy("a2c", 8000, 12000, **EVEN),
        row("a2c", Recall, 24000, RECALLED, **SLOWER),
        row("a2c", ENDLESS, 16000, TEN, shared=True),
    ),
    "ddpg": (
        row("ddpg", games.IdentityBox, 4000, **PRECISE),
        row("ddpg", PUSHED, 5000, TEN),
        row("ddpg", PUSHED_PAIR, 6000, PAIR),
    ),
    "trpo": (
        *of_policy("trpo", 6000, 8000, **BOX),
        row("trpo", Recall, 16000, RECALLED, **MEMORY),
    ),
    "td3": (
        row("td3", games.IdentityBox, 4000, **PRECISE),
        row("td3", PLANE, 6000, **FAR),
        row("td3", PUSHED, 6000, TEN),
        row("td3", PUSHED_PAIR, 8000, PAIR),
    ),
    "tqc": (row("tqc", games.IdentityBox, 4000, **PRECISE), row("tqc", PLANE, 6000, **FAR)),
    "crossq": (
        row("crossq", games.IdentityBox, 4000, **PRECISE),
        row("crossq", PLANE, 6000, **FAR),
    ),
    "a3c": (
        row("a3c", games.Identity, 12000),
        row("a3c", games.IdentityBox, 32000, **EVEN),
        row("impala", games.IdentityBox, 32000, **EVEN),
        row("a3c", games.Chain, 16000, LATER),
        row("a3c", games.TerminatedTruncatedPair, 24000, PAIR),
    ),
    "impala": (
        row("impala", games.IdentityMultiDiscrete, 16000),
        row("impala", games.Chain, 16000, LATER),
        row("impala", games.TerminatedTruncatedPair, 24000, PAIR),
        row("impala", Recall, 24000, RECALLED, recurrent=16, memory="lstm"),
    ),
    "acer": (
        row("acer", games.Identity, 12000),
        row("acer", games.Chain, 16000, LATER),
        row("acer", ENDLESS, 16000, TEN),
        row("acer", games.TerminatedTruncatedPair, 24000, PAIR),
        # nothing but old sequences: corrected, they teach as much
        row("acer", games.Chain, 24000, LATER, online=False, replay_ratio=2.0),
    ),
    "nstep_q": (
        row("nstep_q", games.Identity, 12000, dueling=True),
        row("nstep_q", games.Chain, 24000, CHAIN),
        row("nstep_q", games.TerminatedTruncatedPair, 24000, PAIR),
        *(row(kind, games.Forbidden, 16000) for kind in ("a3c", "impala", "acer", "nstep_q")),
        row("a3c", games.ForbiddenMultiDiscrete, 24000, entropy=0.05),
    ),
    "pqn": (
        row("pqn", games.Identity, 4000, **ADAM),
        row("pqn", games.Forbidden, 4000, bootstrap="expected", **ADAM),
        row("pqn", games.Chain, 8000, CHAIN, **ADAM),
        row("pqn", Recall, 16000, RECALLED, **MEMORY, batch_size=32, **ADAM),
        row("pqn", games.TerminatedTruncatedPair, 8000, PAIR, bootstrap="sarsa", **ADAM),
    ),
    "vdn": (
        vdn_sums,
        # what a limit cuts goes on; what is over is over
        row("vdn", ENDLESS_TEAM, 6000, first(10.0, tolerance=0.5)),
        row("vdn", LEAVING, 4000, first(1.5 + 0.5 * 1.71), share=False),
    ),
    "qmix": (
        row("qmix", TWO_STEP, 6000, first(7.92, tolerance=0.3), least=8.0, gamma=0.99),
        row("qmix", TWO_STEP, 8000, least=8.0, share=False, **TEAM_MEMORY),
        row("qmix", ENDLESS_TEAM, 6000, first(10.0, tolerance=0.5)),
        row("qmix", LEAVING, 4000, first(1.5 + 0.5 * 1.71)),
        row("qmix", LEAVING, 4000, first(2.71, 2.0), mixer=False),
    ),
    "mappo": (
        row("mappo", TWO_STEP, 8000, least=8.0),
        row("mappo", HARD, 8000, least=10.0, share=False, value_norm="popart"),
        # from 5 the second is better answered so, and then the first
        row("mappo", CLIMBING, 8000, least=7.0),
        row("mappo", TWO_STEP, 8000, least=8.0, **TEAM_MEMORY),
        row("mappo", LANDMARKS, 24000, **CONTINUOUS, centralized=False),
        row("mappo", LEAVING, 8000, first(2.71, 2.0)),
        row("mappo", LEAVING, 8000, first(2.355, 2.355), rewards="team", value_norm="no"),
        row("mappo", ENDLESS_TEAM, 24000, first(10.0, 10.0, tolerance=0.5), **LONGER),
        mappo_own_critic,
    ),
    # one agent after the other finds what independent draws do not: the best pair beside the worst
    "mat": (
        row("mat", TWO_STEP, 6000, least=8.0, blocks=2, heads=2),
        row("mat", CLIMBING, 4000, least=11.0),
        row("mat", PENALTY, 4000, least=10.0, value_norm="popart"),
        row("mat", LANDMARKS, 24000, **CONTINUOUS),
        row("mat", LEAVING, 6000, first(2.355, 2.355)),
        row("mat", LEAVING, 6000, first(2.71, 2.0), rewards="own"),
        row("mat", ENDLESS_TEAM, 16000, first(10.0, 10.0, tolerance=0.5)),
    ),
    "maddpg": (
        row("maddpg", LANDMARKS, 6000, least=-2.75),
        row("maddpg", LANDMARKS, 6000, least=-2.75, **TWIN),
        # the best pair stands beside the worst: 5, 7 or 11 are found
        row("maddpg", CLIMBING, 4000, least=5.0),
    ),
}


# What takes a handful of updates


def short(kind, env, *shared, **more):
    settings = {**BASE[kind], "steps": 400, "hidden": (8,)}
    for part in (*shared, more):
        settings |= part
    return kind, env, settings


REMEMBERED = {"recurrent": 6, "sequence": 4}
LSTM = {"recurrent": 6, "memory": "lstm"}
NORMALIZED = {"normalize_observations": True}
SCALED = {**NORMALIZED, "normalize_rewards": True}
RANKED = {"prioritized": True}
GSDE = {"action_noise": "gsde"}
LOW = {**C51, "v_min": -4.0}
ONE = games.IdentityBox
SHORT = {
    "dqn": short("dqn", games.Chain, RANKED, dueling=True, n_step=2),
    "dqn_noisy": short("dqn", games.Chain, QUIET, dueling=True),
    "dqn_categorical": short("dqn", games.Chain, C51, RANKED, dueling=True),
    "dqn_quantile": short("dqn", games.Forbidden, QUANTILES),
    "dqn_implicit": short("dqn", games.Chain, IMPLICIT, RANKED, noisy="factorised"),
    "dqn_soft": short("dqn", games.Forbidden, SOFT, IMPLICIT, dueling=True),
    "dqn_recurrent": short("dqn", games.Chain, REMEMBERED, RANKED, burn_in=3, n_step=2),
    "ppo": short("ppo", games.Chain),
    "ppo_multi": short("ppo", games.IdentityMultiDiscrete),
    "ppo_box": short("ppo", ONE, SCALED, max_kl=0.05),
    "ppo_masked": short("ppo", games.ForbiddenMultiDiscrete, NORMALIZED),
    "dqn_masked": short("dqn", games.Forbidden, SCALED, n_step=2),
    "sac_masked": short("sac", games.Forbidden),
    "ppo_beta": short("ppo", ONE, policy="beta"),
    "ppo_parts": short("ppo", Parts),
    "a2c_parts": short("a2c", Parts),
    "ppo_gsde": short("ppo", ONE, GSDE, sde_sample_freq=5),
    "sac_gsde": short("sac", ONE, GSDE, n_step=3),
    "td3_gsde": short("td3", ONE, GSDE),
    "ddpg_ou": short("ddpg", ONE, action_noise="ou"),
    "ppo_shared": short("ppo", ONE, NORMALIZED, shared=True),
    "ppo_recurrent": short("ppo", games.Chain, recurrent=8, sequence=8),
    "a2c_lstm": short("a2c", ONE, LSTM, NORMALIZED, recurrent=8, sequence=2),
    "ppo_rnd": short("ppo", games.Chain, intrinsic="rnd", rnd_features=8),
    "sac": short("sac", ONE),
    "sac_discrete": short("sac", games.Chain, n_step=3),
    "sac_recurrent": short("sac", ONE, REMEMBERED, burn_in=2),
    "sac_discrete_recurrent": short("sac", games.Forbidden, REMEMBERED, start_state="zero"),
    "td3_recurrent": short("td3", ONE, REMEMBERED, RANKED, n_step=2),
    "ddpg_recurrent": short("ddpg", ONE, REMEMBERED),
    "a2c": short("a2c", ONE, NORMALIZED),
    "a2c_noisy": short("a2c", games.Chain, noisy="independent", entropy=0.0),
    "ddpg": short("ddpg", ONE, SCALED),
    "trpo": short("trpo", ONE),
    "trpo_recurrent": short("trpo", games.Chain, REMEMBERED),
    "td3": short("td3", ONE, RANKED, n_step=3),
    "tqc": short("tqc", ONE, GSDE, critics=3, n_step=2),
    "sac_categorical": short("sac", ONE, LOW, RANKED),
    "sac_simba": short("sac", ONE, body="simba"),
    "sac_simbav2": short("sac", ONE, LOW, body="simbav2"),
    "ppo_simba": short("ppo", ONE, body="simba"),
    "impala_simba": short("impala", games.Chain, body="simba"),
    "td3_layer_norm": short("td3", ONE, layer_norm=True, weight_norm=True),
    # its epsilon keeps rounding in gradients that are nearly 0 from becoming whole steps
    "crossq": short(
        "crossq", ONE, RANKED, critic_hidden=(8, 8), renorm_warmup=3, adam_epsilon=1e-2, n_step=2
    ),
    "crossq_xqc": short("crossq", ONE, LOW, weight_projection=True, adam_epsilon=1e-2),
    "a3c": short("a3c", ONE, SCALED, shared=False),
    "impala": short("impala", games.Chain),
    "impala_lstm": short("impala", games.Chain, LSTM),
    "acer": short("acer", games.Chain, replay="prioritized", evict="sample"),
    "nstep_q": short("nstep_q", games.Chain, dueling=True),
    "nstep_q_sarsa": short("nstep_q", games.Chain, bootstrap="sarsa", replay="none"),
    "pqn": short("pqn", games.Chain),
    "pqn_recurrent": short("pqn", games.Chain, recurrent=8, sequence=8),
    "pqn_expected": short("pqn", games.Forbidden, bootstrap="expected"),
    "vdn": short("vdn", TWO_STEP, share=False),
    "vdn_lstm": short("vdn", TWO_STEP, REMEMBERED, memory="lstm", burn_in=2),
    "qmix": short("qmix", TWO_STEP, RANKED, embedding=4, n_step=2),
    "iql": short("qmix", LEAVING, RANKED, mixer=False, n_step=2, normalize_rewards=True),
    "maddpg": short("maddpg", LANDMARKS, RANKED, twin=True, policy_delay=2, n_step=3),
    "maddpg_discrete": short("maddpg", TWO_STEP, share=True),
    "mappo": short("mappo", TWO_STEP, share=False, value_norm="popart"),
    "mat": short("mat", TWO_STEP, embedding=8, heads=2, value_norm="popart"),
    "mappo_recurrent": short("mappo", LEAVING, recurrent=6, sequence=8, rewards="team"),
}

# without XLA, which takes as long again; the parity suite and whole runs are compiled by it
if engine == "tensorflow":
    from tandem.backends import keras_tensorflow

    compiled = keras_tensorflow.many
    keras_tensorflow.many = lambda guarded, late, variables, jit, donate: compiled(
        guarded, late, variables, False, donate
    )


def reproducible(name, env, given):
    contracts.reproducible(algorithms.get(name), env, engine, **given)


def resumes(name, env, given):
    contracts.resumes(algorithms.get(name), env, engine, **given)


def touches_only_its_own(name, env, given):
    given = given | ({"max_kl": 0} if name == "ppo" else {})
    return contracts.touches_only_its_own(algorithms.get(name), env, engine, **given)


def refuses_what_is_not_finite(name, env, given):
    kind = algorithms.get(name)
    given = given | {"activation": "relu", "steps": 5000, "max_grad_norm": 1e30, "max_kl": 0.0}
    if name in ("dqn", "nstep_q"):  # Chain's one-hot states leave units dead before any overflows
        seldom = {"target_every": 16} if name == "dqn" else {"target_updates": 1}
        env, given = "CartPole-v1", given | {"dueling": False, **seldom}
    if name in ("mappo", "mat"):  # whose values blow up no more
        given |= {"value_huber": 0.0, "value_clip": 0.0, "value_norm": "no"}
    known = kind.Settings.__dataclass_fields__.keys() - {"learning_rate"}
    own = {n: given[n] for n in given if n in known}
    contracts.refuses_what_is_not_finite(kind, env, engine, **own)


def first_rollout(name, env, given):
    """The first weights, the first rollout and the first losses, for comparing engines."""
    loop = contracts.begin(algorithms.get(name), env, engine, **given)
    digest, rollout = hashlib.sha256(), hashlib.sha256()
    for n, x in contracts.weights(loop).items():
        digest.update(n.encode() + x.tobytes())
    real = loop.learner.learn

    def learn(t, span):
        for x in (t.action, t.reward, t.discount, t.last, t.valid):
            rollout.update(np.ascontiguousarray(x).tobytes())
        return real(t, span)

    loop.learner.learn = learn
    metrics = contracts.train(loop, updates=1)
    return [digest.hexdigest(), rollout.hexdigest(), metrics[0]]


def held(case):
    contract, _, chosen = case.partition("=")
    if contract not in GAMES:
        names = chosen.split(",") if chosen else SHORT
        return {name: globals()[contract](*SHORT[name]) for name in names}
    for play in GAMES[contract]:
        try:
            play()
        except AssertionError as error:
            raise AssertionError(f"{play}: {error}") from error
    return None


for one in wanted:
    began = time.perf_counter()
    try:
        result, failed = held(one), ""
    except AssertionError as error:
        result, failed = None, str(error)
    seconds = round(time.perf_counter() - began, 1)
    print(json.dumps({"case": one, "failed": failed, "found": result, "seconds": seconds}))
