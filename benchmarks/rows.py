"""What `make bench` measures: each row is one piece of work, done by us on each engine and by each
peer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

ENGINES = ("jax", "tensorflow", "torch", "torch-custom", "keras-torch")
PEERS = ("sb3", "sbx")
USUAL = ("jax", "tensorflow", "torch", "sb3", "sbx")  # who takes part if nobody is named
NAMES = {
    "jax": "tandem, jax",
    "tensorflow": "tandem, tensorflow",
    "torch": "tandem, torch",
    "torch-custom": "tandem, torch, custom network",
    "keras-torch": "tandem, keras-torch",
    "sb3": "Stable-Baselines3",
    "sbx": "SBX",
}


@dataclass(frozen=True)
class Row:
    """A workload. `settings` override the zoo's entry for (algorithm, env), for every library."""

    name: str
    title: str
    algorithm: str
    env: str
    settings: dict[str, Any]
    start: int  # environment steps of the first, calibrating run
    quick: int  # environment steps of the short run of a smoke test
    notes: str = ""
    without: tuple[str, ...] = ()  # peers that do not have the algorithm


@dataclass(frozen=True)
class Reach:
    """Seconds from the command to a first evaluation of `score`, everything included."""

    name: str
    title: str
    algorithm: str
    env: str
    settings: dict[str, Any]
    score: float
    eval_every: int
    notes: str = ""


PPO = "PPO CartPole-v1, 8 environments × 32, 20 epochs of 256, 64-64 tanh"

# the source's entry for CartPole-v1, which ours leaves for what ends steadier
UNSTEADY = {"learning_rate": 0.0023, "batch_size": 64, "double": False, "dueling": False}
CONTRIB = "For Stable-Baselines3, this is the implementation in sb3-contrib."

ROWS: tuple[Row | Reach, ...] = (
    Row(
        "ppo-native",
        PPO + ", with the fastest vector environment that each library supports",
        "ppo",
        "CartPole-v1",
        {"vectorization": "native"},
        start=16_384,
        quick=4_096,
        notes="tandem steps Gymnasium's registered vector environment. The other libraries can "
        "only step environments one at a time; DummyVecEnv is their fastest option here.",
    ),
    Row(
        "ppo-plain",
        PPO + ", with environments stepped one at a time in all libraries",
        "ppo",
        "CartPole-v1",
        {"vectorization": "plain"},
        start=16_384,
        quick=4_096,
    ),
    Row(
        "dqn",
        "DQN CartPole-v1, 128 updates of 64 after every 256 steps, 256-256 relu, target every 10 "
        "steps, neither double nor dueling, uniform replay",
        "dqn",
        "CartPole-v1",
        {**UNSTEADY, "prioritized": False, "vectorization": "plain"},
        start=16_384,
        quick=2_048,
        notes="SBX does not clip gradients. The others clip them at 10.",
    ),
    Row(
        "sac",
        "SAC Pendulum-v1, 256-256 relu, batch 256, one update after each step, learned temperature",
        "sac",
        "Pendulum-v1",
        # The first update needs a whole batch of transitions here, where the peers would draw it
        # from the first 101.
        {"learning_starts": 256, "vectorization": "plain"},
        start=1_024,
        quick=384,
    ),
    Row(
        "td3",
        "TD3 Pendulum-v1, 400-300 relu, batch 256, one update after each step; every other one "
        "also updates the policy",
        "td3",
        "Pendulum-v1",
        {"learning_starts": 256, "vectorization": "plain"},
        start=1_024,
        quick=384,
    ),
    Row(
        "ddpg",
        "DDPG Pendulum-v1, 400-300 relu, batch 256, one update after each step",
        "ddpg",
        "Pendulum-v1",
        {"learning_starts": 256, "vectorization": "plain"},
        start=1_024,
        quick=384,
    ),
    Row(
        "tqc",
        "TQC Pendulum-v1, 256-256 relu, 2 critics of 25 quantiles, batch 256, one update after "
        "each step",
        "tqc",
        "Pendulum-v1",
        {"learning_starts": 256, "vectorization": "plain"},
        start=1_024,
        quick=384,
        notes=CONTRIB,
    ),
    Row(
        "crossq",
        "CrossQ Pendulum-v1, 256-256 relu, batch 256, one update after each step; every third one "
        "also updates the policy",
        "crossq",
        "Pendulum-v1",
        {"learning_starts": 256, "vectorization": "plain"},
        start=1_024,
        quick=384,
        notes=CONTRIB,
    ),
    Row(
        "qrdqn",
        "QR-DQN CartPole-v1, 10 quantiles, 128 updates of 64 after every 256 steps, 256-256 relu, "
        "target every 10 steps, neither double nor dueling, uniform replay",
        "dqn",
        "CartPole-v1",
        {
            "values": "quantile",
            "quantiles": 10,
            **UNSTEADY,
            "prioritized": False,
            "vectorization": "plain",
        },
        start=16_384,
        quick=2_048,
        notes=CONTRIB + " SBX has no QR-DQN.",
        without=("sbx",),
    ),
    Row(
        "a2c",
        "A2C CartPole-v1, 8 environments × 5, 64-64 tanh, RMSProp",
        "a2c",
        "CartPole-v1",
        {"vectorization": "plain"},
        start=16_384,
        quick=4_096,
        notes="SBX has no A2C.",
        without=("sbx",),
    ),
    Row(
        "ppo-pong",
        "PPO ALE/Pong-v5, 8 games × 128, 4 epochs of 256, Nature CNN shared by actor and critic, "
        "CleanRL's settings",
        "ppo",
        "ALE/Pong-v5",
        {"vectorization": "native"},
        start=2_048,
        quick=1_024,
        notes="tandem steps ale_py's vector environment, which is written in C++. "
        "Stable-Baselines3 steps its Atari wrappers with DummyVecEnv. CleanRL's value-loss "
        "clipping is off in all libraries, because Stable-Baselines3 has none by default. SBX is "
        "not measured.",
        without=("sbx",),
    ),
    Reach(
        "seconds-to-475",
        "PPO CartPole-v1, zoo settings: seconds from the command to an evaluation (10 episodes, "
        "every 2,500 steps) of 475",
        "ppo",
        "CartPole-v1",
        {},
        score=475.0,
        eval_every=2_500,
        notes="Times include imports, construction, compilation, training and evaluations. tandem "
        "also writes its run folder with checkpoints. In all libraries, an evaluation steps 10 "
        "environments together for 10 episodes.",
    ),
)


def find(name: str) -> Row | Reach:
    """The row of that name; SystemExit with the known ones if there is none."""
    for row in ROWS:
        if row.name == name:
            return row
    raise SystemExit(
        f"There is no row {name!r}.\nExpected: one of {', '.join(row.name for row in ROWS)}."
    )


def resolved(row: Row | Reach, steps: int = 0) -> Any:
    """The algorithm's settings that this row runs with, for a run of that many steps (0: the
    zoo's)."""
    from tandem.trainer import resolve

    return resolve(row.algorithm, row.env, {**row.settings, **({"steps": steps} if steps else {})})[
        0
    ]


def block(settings: Any) -> int:
    """Environment steps between two calls of updates."""
    return int(settings.block * settings.envs)


def rounded(settings: Any, steps: int) -> int:
    """The next length that is whole blocks."""
    return math.ceil(steps / block(settings)) * block(settings)


def updates(settings: Any, steps: int) -> int:
    """How many updates a run of that many environment steps has to make."""
    from tandem.algorithms.base import ReplaySettings

    s, blocks = settings, steps // block(settings)
    if not isinstance(s, ReplaySettings):
        return blocks * int(s.epochs) * (block(s) // int(s.batch_size or block(s)))
    idle = math.ceil(max(int(s.learning_starts), int(s.batch_size)) / block(s)) - 1
    return max(0, blocks - idle) * int(s.updates_per_call)


Shape = tuple[int, int, int]  # of a layer's product for one sample: rows, inputs, outputs
# four pictures of 84 x 84
NATURE: list[Shape] = [
    (400, 256, 32),
    (81, 512, 64),
    (49, 576, 64),
    (1, 3136, 512),
]


def layers(sizes: list[int]) -> list[Shape]:
    """Dense layers, one after the other."""
    return [(1, m, n) for m, n in pairwise(sizes)]


def products(
    algorithm: str, settings: Any, observation: int, actions: int
) -> list[tuple[int, int, int, float]]:
    """The matrix products of learning and acting: (rows, inputs, outputs, how often per environment
    step).

    `observation`: how many numbers one has; 0: four pictures. `actions`: how many there are to
    choose from, or how many numbers one is. A layer's forward pass is one product (a convolution's
    has a row for each place of its kernel); its backward pass
    two: one for its weights, one for its inputs, which the first layer of a network does without.
    """
    # speed is a slope: what idles before the first update does not count
    s = settings
    span = 1000 * block(settings)
    rate = (updates(s, 2 * span) - updates(s, span)) / span
    shapes: list[tuple[int, int, int, float]] = []

    def passes(
        net: list[Shape],
        rows: int,
        rate: float,
        forward: int = 1,
        weights: int = 0,
        inputs: int = 0,
    ) -> None:
        """inputs: gradients by the inputs; 1: of all layers but the first, 2: of the first one
        too."""
        for i, (places, m, n) in enumerate(net):
            shapes.append((places * rows, m, n, rate * forward))
            shapes.append((m, places * rows, n, rate * weights))
            shapes.append((places * rows, n, m, rate * ((inputs > 0) if i else (inputs == 2))))

    hidden = list(s.hidden)
    if algorithm in ("ppo", "a2c"):
        body = layers([observation, *hidden]) if observation else NATURE
        heads = [
            [*body, (1, body[-1][2], n)] for n in ((actions + 1,) if s.shared else (actions, 1))
        ]
        actor, critic = heads[0], heads[-1]
        for net in heads:
            passes(net, s.batch_size or block(s), rate, weights=1, inputs=1)
            if not s.shared and (algorithm == "ppo" or net is critic):
                # values, and probabilities of the actions taken; one body gives both acting
                passes(net, block(s), 1 / block(s))
        passes(actor, s.envs, 1 / s.envs)
    elif algorithm == "dqn":
        atoms = s.quantiles if s.values == "quantile" else 1
        q = layers([observation, *hidden, actions * atoms])
        passes(q, s.batch_size, rate, weights=1, inputs=1)
        passes(q, s.batch_size, rate)  # of the target
        passes(q, s.envs, 1 / s.envs)
    elif algorithm in ("ddpg", "td3"):
        critics, policy = (2, rate / s.policy_delay) if algorithm == "td3" else (1, rate)
        actor = layers([observation, *hidden, actions])
        q = layers([observation + actions, *hidden, 1])
        passes(actor, s.batch_size, rate)  # the next actions
        passes(q, s.batch_size, critics * rate)  # the targets
        passes(q, s.batch_size, critics * rate, weights=1, inputs=1)
        passes(actor, s.batch_size, policy, weights=1, inputs=1)
        passes(q, s.batch_size, policy, inputs=2)  # what the actor climbs
        passes(actor, s.envs, 1 / s.envs)
    elif algorithm == "crossq":
        actor = layers([observation, *hidden, 2 * actions])
        q = layers([observation + actions, *(s.critic_hidden or hidden), 1])
        policy = rate / s.policy_delay
        passes(actor, s.batch_size, rate)  # the next actions
        # one batch of what was done and what is done next, which share their statistics
        passes(q, 2 * s.batch_size, 2 * rate, weights=1, inputs=1)
        passes(actor, s.batch_size, policy, weights=1, inputs=1)
        passes(q, s.batch_size, 2 * policy, inputs=2)  # what the actor climbs
        passes(actor, s.envs, 1 / s.envs)
    else:
        actor = layers([observation, *hidden, 2 * actions])
        atoms = s.quantiles if algorithm == "tqc" else 1
        q = layers([observation + actions, *hidden, atoms])
        passes(actor, s.batch_size, rate)  # the next actions
        passes(q, s.batch_size, 2 * rate)  # the targets of both critics
        passes(q, s.batch_size, 2 * rate, weights=1, inputs=1)
        passes(actor, s.batch_size, rate, weights=1, inputs=1)
        passes(q, s.batch_size, 2 * rate, inputs=2)  # what the actor climbs
        passes(actor, s.envs, 1 / s.envs)
    return [p for p in shapes if p[3]]
