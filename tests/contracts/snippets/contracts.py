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
from tandem.collect.actor import forwards
from tandem.envs.team import Team
from tandem.testing import contracts
from tandem.testing import environments as games
from tandem.testing import team_games as together
from tandem.testing.action_games import Parts
from tandem.testing.memory_games import Recall

engine, wanted = sys.argv[1], sys.argv[2:]
A2C, A3C, ACER, IMPALA = (algorithms.get(n) for n in ("a2c", "a3c", "acer", "impala"))
DDPG, DQN, NSTEP_Q, PPO, PQN = (algorithms.get(n) for n in ("ddpg", "dqn", "nstep_q", "ppo", "pqn"))
CROSSQ, SAC, TD3, TQC, TRPO = (algorithms.get(n) for n in ("crossq", "sac", "td3", "tqc", "trpo"))
MADDPG, MAPPO, MAT, QMIX, VDN = (
    algorithms.get(n) for n in ("maddpg", "mappo", "mat", "qmix", "vdn")
)


# Games whose solution is known


def plain(envs, **settings):
    return {"hidden": (32,), "envs": envs, "gamma": 0.9, **settings}


REPLAY = {"train_every": 16, "updates_per_call": 16, "batch_size": 64, "buffer_size": 5000}
OLDER = {"replay_ratio": 1.0, "replay_size": 50, "replay_starts": 16}
FALLING = {"learning_rate": "1e-2:1e-3"}
LESS_AND_LESS = {"epsilon": "1:0.1:0.5"}
SOFT_AC = plain(4, **REPLAY, learning_starts=200, learning_rate=3e-3, hidden=(32, 32))
NOISED = {**SOFT_AC, "tau": 0.02, "exploration": 0.2}
SEQUENCES = plain(8, **FALLING, rollout=8)
SUMS = plain(
    8,
    learning_starts=64,
    train_every=8,
    batch_size=64,
    buffer_size=2000,
    learning_rate=3e-3,
    target_every=100,
    epsilon=1.0,
)
TOGETHER = plain(8, rollout=16, batch_size=128, learning_rate="5e-3:1e-3", entropy="0.3:0")
BASE = {
    DQN: plain(
        4, **REPLAY, **LESS_AND_LESS, learning_starts=100, target_every=64, learning_rate=3e-3
    ),
    PPO: plain(8, **FALLING, rollout=16, batch_size=64, epochs=6, entropy=0.01),
    A2C: plain(4, **FALLING, rollout=4),
    TRPO: plain(8, rollout=32, learning_rate="2e-2:1e-3", radius=0.03),
    SAC: {**SOFT_AC, "tau": 0.02},
    TD3: NOISED,
    TQC: {**SOFT_AC, "tau": 0.02, "quantiles": 8, "dropped": 1},
    CROSSQ: {**SOFT_AC, "renorm_warmup": 500},
    DDPG: {**NOISED, "actor_learning_rate": 1e-3},
    A3C: SEQUENCES,
    IMPALA: {**SEQUENCES, **OLDER, "entropy": 0.01},
    ACER: {**SEQUENCES, **OLDER, "entropy": 0.01},
    NSTEP_Q: {
        **SEQUENCES,
        **OLDER,
        **LESS_AND_LESS,
        "target_updates": 20,
        "replay": "prioritized",
        "priority": "error",
        "evict": "sample",
    },
    PQN: plain(8, **LESS_AND_LESS, rollout=16, batch_size=64, learning_rate="5e-3:1e-3"),
    VDN: SUMS,
    QMIX: SUMS,
    MADDPG: {**NOISED, "envs": 8, "actor_learning_rate": 1e-3, "max_grad_norm": 10.0},
    MAPPO: TOGETHER,
    MAT: {**TOGETHER, "hidden": (16,), "embedding": 16, "clip": 0.2},
}


def near(found, expected, tolerance):
    gap = np.abs(np.asarray(found, np.float64) - expected)
    assert (gap <= tolerance).all(), f"values {np.round(found, 3).tolist()}, expected {expected}"


def solve(kind, env, steps, worth=None, **settings):
    """Solved; and what it says of observations is near what they are worth."""
    loop = contracts.solves(kind, env, engine, **{**BASE[kind], "steps": steps, **settings})
    if worth is not None:
        say, expected, tolerance = worth
        near(say(loop), expected, tolerance)
    return loop


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
    if isinstance(algorithm, MAT):
        networks = forwards(loop.backend, ("encoder", "critic"))
        return networks["critic"](networks["encoder"](obs["agents"]))[0, :, 0]
    if isinstance(algorithm, MAPPO):
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
    given = {**BASE[DQN], **alone, "noisy": "no"}
    loop = contracts.begin(DQN, games.Chain, engine, **given)
    contracts.train(loop)
    assert contracts.score(loop, games.Chain) == 0.0, "this seed shows nothing"
    solve(DQN, games.Chain, **alone | {"noisy": "independent"})
    solve(DQN, games.Chain, worth=CHAIN, **alone)


def sac_masked():
    """No entropy is asked for that masks do not allow."""
    loop = solve(SAC, games.Forbidden, 4000)
    assert float(loop.backend.networks["log_alpha"].read()["value"]) < 1.0


def vdn_sums():
    """What a sum cannot hold: of the two steps it takes the sure one; of games seen evenly the
    choices whose mean over the other's is best (5 in climbing, 2 in penalty)."""
    for game, known in ((together.TwoStep, 7.0), (together.Climbing, 5.0), (together.Penalty, 2.0)):
        loop = contracts.begin(VDN, team(game), engine, **BASE[VDN], steps=6000)
        contracts.train(loop)
        assert contracts.score(loop, team(game)) == known, game


def mappo_own_critic():
    """The values of a critic of unknown layers are standardised too."""
    given = {**BASE[MAPPO], "steps": 10_000, "network": summed}
    loop = contracts.begin(MAPPO, team(together.Endless), engine, **given)
    contracts.train(loop, updates=1)
    critic = loop.backend.networks["critic"]
    mean, variance, count = list(critic.read().values())[-3:]
    rows = given["rollout"] * given["envs"] * 2
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
TWO_STEP, CLIMBING, ENDLESS_TEAM, LEAVING, LANDMARKS, PENALTY, HARD = (
    team(game)
    for game in (
        together.TwoStep,
        together.Climbing,
        together.Endless,
        together.Leaving,
        together.Landmarks,
        together.Penalty,
        partial(together.Penalty, -10),
    )
)
CONTINUOUS = {"least": -2.8, "entropy": 0.0, "log_std": -0.5}

# By algorithm; `Forbidden` raises where a forbidden action is taken: in collecting, by chance or
# exploration, and in evaluation. Recall: episodes of 3 steps, in sequences of 8; without a memory,
# or with one that ends with the sequence, 1/2 is the best.
GAMES = {
    "dqn": (
        row(DQN, games.Identity, 4000),
        row(
            DQN,
            partial(games.Identity, start=3),
            4000,
            double=False,
            dueling=True,
            prioritized=True,
            n_step=1,
        ),
        row(DQN, games.Forbidden, 4000),
        row(DQN, games.IdentityDict, 6000),
        row(DQN, games.IdentityImage, 4000, network=small_cnn),
        row(DQN, games.Chain, 6000, CLOSE, n_step=3),
        row(DQN, ENDLESS, 5000, TEN),
        row(DQN, games.TerminatedTruncatedPair, 6000, PAIR),
        row(DQN, MATRIX, 4000, EITHER),
        dqn_noisy,
    ),
    "dqn, distributions": (
        row(DQN, games.Chain, 6000, CLOSE, n_step=3, **C51, dueling=True),
        row(DQN, games.Chain, 6000, CLOSE, n_step=3, **QUANTILES),
        row(DQN, games.Chain, 6000, CLOSE, n_step=3, **IMPLICIT),
        row(DQN, games.Forbidden, 4000, **C51, dueling=True),
        row(DQN, games.Forbidden, 4000, **QUANTILES),
        row(DQN, games.Forbidden, 4000, **IMPLICIT),
        row(DQN, games.Chain, 6000, **SOFT),  # values are moved by the log-policy
        row(DQN, games.Chain, 6000, **SOFT, **QUANTILES),
        row(DQN, games.Chain, 6000, **SOFT, **IMPLICIT),
        row(DQN, games.Forbidden, 4000, **SOFT),
    ),
    "ppo": (
        row(PPO, games.Forbidden, 4000),
        row(PPO, games.ForbiddenMultiDiscrete, 6000),
        row(PPO, games.IdentityDict, 8000),
        row(PPO, games.IdentityImage, 4000, network=small_cnn),
        row(PPO, games.IdentityBox, 16000, **EVEN, **NARROW, batch_size=32),
        row(PPO, games.Chain, 8000, LATER),
        row(PPO, ENDLESS, 12000, TEN),
        row(PPO, games.TerminatedTruncatedPair, 12000, PAIR),
        row(PPO, Recall, 8000, RECALLED, **MEMORY),
        row(PPO, games.IdentityImage, 8000, network=small_cnn, shared=True, value_weight=0.1),
        row(PPO, games.Chain, 8000, LATER, shared=True),
    ),
    "ppo, slowly": (
        row(PPO, games.Identity, 4000),
        row(PPO, games.IdentityMultiDiscrete, 6000),
        row(PPO, games.InfiniteHorizon, 12000, TEN),
        row(PPO, MATRIX, 6000, EITHER),
        row(PPO, shifted, 16000, **EVEN | {"least": -2.0}, batch_size=32, policy="beta"),
        row(PPO, Parts, 32000, **EVEN | {"least": 16.0}, **NARROW, batch_size=32),
    ),
    "sac": (
        row(SAC, games.IdentityBox, 3000, **PRECISE),
        sac_masked,
        row(SAC, games.Chain, 8000, (choices, [0.9**3, 0.9**2, 0.9, 1.0], 0.15), **COLD),
        row(SAC, PUSHED, 5000, SPREAD, temperature=0.5, n_step=3),
        row(SAC, PUSHED_PAIR, 6000, PAIR, temperature=1e-4),
    ),
    "sac, categorical": (
        row(SAC, PLANE, 5000, **FAR),
        row(SAC, games.Identity, 4000),
        row(SAC, PUSHED, 5000, TEN, temperature=1e-4),
        row(SAC, games.IdentityBox, 4000, **PRECISE, **PUNISHED),
        row(SAC, games.Chain, 6000, (choices, [0.9**3, 0.9**2, 0.9, 1.0], 0.15), **COLD, **C51),
    ),
    "a2c": (
        row(A2C, games.Identity, 8000),
        row(A2C, games.IdentityMultiDiscrete, 12000),
        row(A2C, games.Forbidden, 8000),
        row(A2C, games.ForbiddenMultiDiscrete, 12000),
        row(A2C, games.IdentityBox, 24000, **EVEN, **NARROW),
        row(A2C, games.IdentityBox, 24000, **EVEN, policy="beta"),
        row(A2C, games.Chain, 12000, LATER),
        row(A2C, ENDLESS, 16000, TEN),
        row(A2C, games.TerminatedTruncatedPair, 16000, PAIR),
        row(
            A2C,
            Recall,
            24000,
            RECALLED,
            recurrent=16,
            memory="lstm",
            envs=8,
            rollout=8,
            optimizer="adam",
            learning_rate="3e-3:1e-3",
        ),
        row(A2C, ENDLESS, 16000, TEN, shared=True),
    ),
    "ddpg": (
        row(DDPG, games.IdentityBox, 4000, **PRECISE),
        row(DDPG, PUSHED, 5000, TEN),
        row(DDPG, PUSHED_PAIR, 6000, PAIR),
    ),
    "trpo": (
        row(TRPO, games.Identity, 6000),
        row(TRPO, games.IdentityMultiDiscrete, 8000),
        row(TRPO, games.Forbidden, 6000),
        row(TRPO, games.ForbiddenMultiDiscrete, 8000),
        row(TRPO, games.IdentityBox, 24000, **BOX, **NARROW),
        row(TRPO, games.IdentityBox, 24000, **BOX, policy="beta"),
        row(TRPO, games.Chain, 12000, LATER),
        row(TRPO, ENDLESS, 16000, TEN),
        row(TRPO, games.TerminatedTruncatedPair, 16000, PAIR),
        row(TRPO, Recall, 16000, RECALLED, **MEMORY),
    ),
    "td3": (
        row(TD3, games.IdentityBox, 4000, **PRECISE),
        row(TD3, PLANE, 6000, **FAR),
        row(TD3, PUSHED, 6000, TEN),
        row(TD3, PUSHED_PAIR, 8000, PAIR),
    ),
    "tqc": (
        row(TQC, games.IdentityBox, 4000, **PRECISE),
        row(TQC, PLANE, 6000, **FAR),
    ),
    "crossq": (
        row(CROSSQ, games.IdentityBox, 4000, **PRECISE),
        row(CROSSQ, PLANE, 6000, **FAR),
    ),
    "a3c": (
        row(A3C, games.Identity, 12000),
        row(A3C, games.IdentityBox, 32000, **EVEN),
        row(A3C, games.Chain, 16000, LATER),
        row(A3C, games.TerminatedTruncatedPair, 24000, PAIR),
    ),
    "impala": (
        row(IMPALA, games.IdentityMultiDiscrete, 16000),
        row(IMPALA, games.IdentityBox, 32000, **EVEN),
        row(IMPALA, games.Chain, 16000, LATER),
        row(IMPALA, games.TerminatedTruncatedPair, 24000, PAIR),
        row(IMPALA, Recall, 24000, RECALLED, recurrent=16, memory="lstm"),
    ),
    "acer": (
        row(ACER, games.Identity, 12000),
        row(ACER, games.Chain, 16000, LATER),
        row(ACER, ENDLESS, 16000, TEN),
        row(ACER, games.TerminatedTruncatedPair, 24000, PAIR),
        # nothing but old sequences: corrected, they teach as much
        row(ACER, games.Chain, 24000, LATER, online=False, replay_ratio=2.0),
    ),
    "nstep_q": (
        row(NSTEP_Q, games.Identity, 12000, dueling=True),
        row(NSTEP_Q, games.Chain, 24000, CHAIN),
        row(NSTEP_Q, games.TerminatedTruncatedPair, 24000, PAIR),
        *(row(kind, games.Forbidden, 16000) for kind in (A3C, IMPALA, ACER, NSTEP_Q)),
        row(A3C, games.ForbiddenMultiDiscrete, 24000, entropy=0.05),
    ),
    "pqn": (
        row(PQN, games.Identity, 4000, **ADAM),
        row(PQN, games.Forbidden, 4000, bootstrap="expected", **ADAM),
        row(PQN, games.Chain, 8000, CHAIN, **ADAM),
        row(PQN, Recall, 16000, RECALLED, **MEMORY, batch_size=32, **ADAM),
        row(PQN, games.TerminatedTruncatedPair, 8000, PAIR, bootstrap="sarsa", **ADAM),
    ),
    "vdn": (
        vdn_sums,
        # what a limit cuts goes on; what is over is over
        row(VDN, ENDLESS_TEAM, 6000, first(10.0, tolerance=0.5)),
        row(VDN, LEAVING, 4000, first(1.5 + 0.5 * 1.71), share=False),
    ),
    "qmix": (
        row(QMIX, TWO_STEP, 6000, first(7.92, tolerance=0.3), least=8.0, gamma=0.99),
        row(QMIX, TWO_STEP, 8000, least=8.0, share=False, **TEAM_MEMORY),
        row(QMIX, ENDLESS_TEAM, 6000, first(10.0, tolerance=0.5)),
        row(QMIX, LEAVING, 4000, first(1.5 + 0.5 * 1.71)),
        row(QMIX, LEAVING, 4000, first(2.71, 2.0), mixer=False),
    ),
    "mappo": (
        row(MAPPO, TWO_STEP, 8000, least=8.0),
        row(MAPPO, HARD, 8000, least=10.0, share=False, value_norm="popart"),
        # from 5 the second is better answered so, and then the first
        row(MAPPO, CLIMBING, 8000, least=7.0),
        row(MAPPO, TWO_STEP, 8000, least=8.0, **TEAM_MEMORY),
        row(MAPPO, LANDMARKS, 24000, **CONTINUOUS, centralized=False),
        row(MAPPO, LEAVING, 8000, first(2.71, 2.0)),
        row(MAPPO, LEAVING, 8000, first(2.355, 2.355), rewards="team", value_norm="no"),
        row(MAPPO, ENDLESS_TEAM, 24000, first(10.0, 10.0, tolerance=0.5), recurrent=8, sequence=8),
        mappo_own_critic,
    ),
    # one agent after the other finds what independent draws do not: the best pair beside the worst
    "mat": (
        row(MAT, TWO_STEP, 6000, least=8.0, blocks=2, heads=2),
        row(MAT, CLIMBING, 4000, least=11.0),
        row(MAT, PENALTY, 4000, least=10.0, value_norm="popart"),
        row(MAT, LANDMARKS, 24000, **CONTINUOUS),
        row(MAT, LEAVING, 6000, first(2.355, 2.355)),
        row(MAT, LEAVING, 6000, first(2.71, 2.0), rewards="own"),
        row(MAT, ENDLESS_TEAM, 16000, first(10.0, 10.0, tolerance=0.5)),
    ),
    "maddpg": (
        row(MADDPG, LANDMARKS, 6000, least=-2.75),
        row(
            MADDPG,
            LANDMARKS,
            6000,
            least=-2.75,
            share=True,
            twin=True,
            policy_delay=2,
            smoothing=0.2,
        ),
        # the best pair stands beside the worst: 5, 7 or 11 are found
        row(MADDPG, CLIMBING, 4000, least=5.0),
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
    "dqn": short(DQN, games.Chain, RANKED, dueling=True, n_step=2),
    "dqn_noisy": short(DQN, games.Chain, QUIET, dueling=True),
    "dqn_categorical": short(DQN, games.Chain, C51, RANKED, dueling=True),
    "dqn_quantile": short(DQN, games.Forbidden, QUANTILES),
    "dqn_implicit": short(DQN, games.Chain, IMPLICIT, RANKED, noisy="factorised"),
    "dqn_soft": short(DQN, games.Forbidden, SOFT, IMPLICIT, dueling=True),
    "dqn_recurrent": short(DQN, games.Chain, REMEMBERED, RANKED, burn_in=3, n_step=2),
    "ppo": short(PPO, games.Chain),
    "ppo_multi": short(PPO, games.IdentityMultiDiscrete),
    "ppo_box": short(PPO, ONE, SCALED, max_kl=0.05),
    "ppo_masked": short(PPO, games.ForbiddenMultiDiscrete, NORMALIZED),
    "dqn_masked": short(DQN, games.Forbidden, SCALED, n_step=2),
    "sac_masked": short(SAC, games.Forbidden),
    "ppo_beta": short(PPO, ONE, policy="beta"),
    "ppo_parts": short(PPO, Parts),
    "a2c_parts": short(A2C, Parts),
    "ppo_gsde": short(PPO, ONE, GSDE, sde_sample_freq=5),
    "sac_gsde": short(SAC, ONE, GSDE, n_step=3),
    "td3_gsde": short(TD3, ONE, GSDE),
    "ddpg_ou": short(DDPG, ONE, action_noise="ou"),
    "ppo_shared": short(PPO, ONE, NORMALIZED, shared=True),
    "ppo_recurrent": short(PPO, games.Chain, recurrent=8, sequence=8),
    "a2c_lstm": short(A2C, ONE, LSTM, NORMALIZED, recurrent=8, sequence=2),
    "ppo_rnd": short(PPO, games.Chain, intrinsic="rnd", rnd_features=8),
    "sac": short(SAC, ONE),
    "sac_discrete": short(SAC, games.Chain, n_step=3),
    "sac_recurrent": short(SAC, ONE, REMEMBERED, burn_in=2),
    "sac_discrete_recurrent": short(SAC, games.Forbidden, REMEMBERED, start_state="zero"),
    "td3_recurrent": short(TD3, ONE, REMEMBERED, RANKED, n_step=2),
    "ddpg_recurrent": short(DDPG, ONE, REMEMBERED),
    "a2c": short(A2C, ONE, NORMALIZED),
    "a2c_noisy": short(A2C, games.Chain, noisy="independent", entropy=0.0),
    "ddpg": short(DDPG, ONE, SCALED),
    "trpo": short(TRPO, ONE),
    "trpo_recurrent": short(TRPO, games.Chain, REMEMBERED),
    "td3": short(TD3, ONE, RANKED, n_step=3),
    "tqc": short(TQC, ONE, GSDE, critics=3, n_step=2),
    "sac_categorical": short(SAC, ONE, LOW, RANKED),
    "sac_simba": short(SAC, ONE, body="simba"),
    "sac_simbav2": short(SAC, ONE, LOW, body="simbav2"),
    "ppo_simba": short(PPO, ONE, body="simba"),
    "impala_simba": short(IMPALA, games.Chain, body="simba"),
    "td3_layer_norm": short(TD3, ONE, layer_norm=True, weight_norm=True),
    # its epsilon keeps rounding in gradients that are nearly 0 from becoming whole steps
    "crossq": short(
        CROSSQ, ONE, RANKED, critic_hidden=(8, 8), renorm_warmup=3, adam_epsilon=1e-2, n_step=2
    ),
    "crossq_xqc": short(CROSSQ, ONE, LOW, weight_projection=True, adam_epsilon=1e-2),
    "a3c": short(A3C, ONE, SCALED, shared=False),
    "impala": short(IMPALA, games.Chain),
    "impala_lstm": short(IMPALA, games.Chain, LSTM),
    "acer": short(ACER, games.Chain, replay="prioritized", evict="sample"),
    "nstep_q": short(NSTEP_Q, games.Chain, dueling=True),
    "nstep_q_sarsa": short(NSTEP_Q, games.Chain, bootstrap="sarsa", replay="none"),
    "pqn": short(PQN, games.Chain),
    "pqn_recurrent": short(PQN, games.Chain, recurrent=8, sequence=8),
    "pqn_expected": short(PQN, games.Forbidden, bootstrap="expected"),
    "vdn": short(VDN, TWO_STEP, share=False),
    "vdn_lstm": short(VDN, TWO_STEP, REMEMBERED, memory="lstm", burn_in=2),
    "qmix": short(QMIX, TWO_STEP, RANKED, embedding=4, n_step=2),
    "iql": short(QMIX, LEAVING, RANKED, mixer=False, n_step=2, normalize_rewards=True),
    "maddpg": short(MADDPG, LANDMARKS, RANKED, twin=True, policy_delay=2, n_step=3),
    "maddpg_discrete": short(MADDPG, TWO_STEP, share=True),
    "mappo": short(MAPPO, TWO_STEP, share=False, value_norm="popart"),
    "mat": short(MAT, TWO_STEP, embedding=8, heads=2, value_norm="popart"),
    "mappo_recurrent": short(MAPPO, LEAVING, recurrent=6, sequence=8, rewards="team"),
}

# without XLA, which takes as long again; the parity suite and whole runs are compiled by it
if engine == "tensorflow":
    from tandem.backends import keras_tensorflow

    compiled = keras_tensorflow.many
    keras_tensorflow.many = lambda guarded, late, variables, jit, donate: compiled(
        guarded, late, variables, False, donate
    )


def reproducible(names):
    for name in names:
        kind, env, settings = SHORT[name]
        contracts.reproducible(kind, env, engine, **settings)


def resumes(names):
    for name in names:
        kind, env, settings = SHORT[name]
        contracts.resumes(kind, env, engine, **settings)


def touches_only_its_own(names):
    found = {}
    for name in names:
        kind, env, settings = SHORT[name]
        settings = settings | ({"max_kl": 0} if kind is PPO else {})
        found[name] = contracts.touches_only_its_own(kind, env, engine, **settings)
    return found


def refuses_what_is_not_finite(names):
    for name in names:
        kind, env, settings = SHORT[name]
        settings = settings | {"activation": "relu", "steps": 5000, "max_grad_norm": 1e30}
        settings |= {"max_kl": 0.0, "learning_rate": None}
        known = kind.Settings.__dataclass_fields__
        own = {n: v for n, v in settings.items() if n in known and v is not None}
        if kind in (DQN, NSTEP_Q):  # Chain's one-hot states leave units dead before any overflows
            seldom = {"target_every": 16} if kind is DQN else {"target_updates": 1}
            env, own = "CartPole-v1", own | {"dueling": False, **seldom}
        if kind in (MAPPO, MAT):  # whose values blow up no more
            own |= {"value_huber": 0.0, "value_clip": 0.0, "value_norm": "no"}
        contracts.refuses_what_is_not_finite(kind, env, engine, **own)


def first_rollout(names):
    """The first weights, the first rollout and the first losses, for comparing engines."""
    found = {}
    for name in names:
        kind, env, settings = SHORT[name]
        loop = contracts.begin(kind, env, engine, **settings, network=None)
        digest, rollout = hashlib.sha256(), hashlib.sha256()
        for n, x in contracts.weights(loop).items():
            digest.update(n.encode() + x.tobytes())
        real = loop.learner.learn

        def learn(t, span, rollout=rollout, real=real):
            for x in (t.action, t.reward, t.discount, t.last, t.valid):
                rollout.update(np.ascontiguousarray(x).tobytes())
            return real(t, span)

        loop.learner.learn = learn
        metrics = contracts.train(loop, updates=1)
        found[name] = [digest.hexdigest(), rollout.hexdigest(), metrics[0]]
    return found


def held(case):
    """What one case found."""
    name, _, chosen = case.partition("=")
    if name not in GAMES:
        names = chosen.split(",") if chosen else list(SHORT)
        return globals()[name](names)
    for play in GAMES[name]:
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
