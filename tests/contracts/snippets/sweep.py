"""Every algorithm on every kind of space, on one engine: each run ends trained, or is refused in
three parts before its folder exists. Arguments: the engine, and how many spaces, wrappers and
settings hypothesis is to choose beside those of the table; prints what went otherwise as JSON,
and how many were trained and refused."""

import json
import sys
import tempfile
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers

from tandem import algorithms, trainer
from tandem.errors import TandemError

engine, chosen = sys.argv[1], int(sys.argv[2])
BOX = spaces.Box(-1, 1, (3,), np.float32)
MANY = spaces.Discrete(3, start=1)
ACTIONS = {
    "discrete": MANY,
    "multidiscrete": spaces.MultiDiscrete([2, 3]),
    "multidiscrete of two axes": spaces.MultiDiscrete([[2, 3], [2, 2]]),
    "multibinary": spaces.MultiBinary(3),
    "box": spaces.Box(-2, 1, (2,), np.float32),
    "box of two axes": spaces.Box(-2, 1, (2, 2), np.float32),
    "number": spaces.Box(-2.0, 1.0, (), np.float32),
    "doubles": spaces.Box(-2, 1, (2,), np.float64),
    "box without bounds": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "whole numbers": spaces.Box(0, 5, (2,), np.int32),
    "dict": spaces.Dict({"a": MANY, "b": spaces.Box(-1, 1, (2, 1), np.float32)}),
    "tuple": spaces.Tuple((spaces.MultiBinary(2), spaces.Dict({"x": MANY}))),
    "text": spaces.Text(3),
    "class": spaces.Discrete,
}
OBSERVATIONS = {
    "box": BOX,
    "number": spaces.Box(-1.0, 1.0, (), np.float32),
    "doubles": spaces.Box(-1, 1, (2, 2), np.float64),
    "halves": spaces.Box(-1, 1, (3,), np.float16),
    "truths": spaces.Box(0, 1, (3,), np.bool_),
    "bytes": spaces.Box(0, 255, (3,), np.uint8),
    "picture": spaces.Box(0, 255, (7, 7, 3), np.uint8),
    "discrete": MANY,
    "multidiscrete": spaces.MultiDiscrete([2, 3]),
    "multibinary": spaces.MultiBinary((2, 2)),
    "dict": spaces.Dict({"a": BOX, "b": spaces.Dict({"c": MANY})}),
    "tuple": spaces.Tuple((MANY, spaces.MultiBinary(2))),
    "text": spaces.Text(3),
    "a text beside": spaces.Dict({"a": BOX, "mission": spaces.Text(3)}),
    "sequence": spaces.Sequence(MANY),
}
NAMES = [name for name in algorithms.NAMES if not algorithms.get(name).team]
SMALL = {"steps": 24, "hidden": (4,), "eval_every": 12, "eval_episodes": 1, "final_episodes": 1}
SMALL |= {"plots": False, "tensorboard": False}
found, wrong = {"trained": 0, "refused": 0}, []


class Anything(gymnasium.Env):
    """Shows samples of one space, takes nothing but elements of another, and ends by chance."""

    def __init__(self, observation, action):
        self.observation_space, self.action_space = observation, action

    def _shown(self):
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._shown(), {}

    def step(self, action):
        assert action in self.action_space, f"{action!r} is not in {self.action_space}"
        ends = self.np_random.random() < 0.2
        return self._shown(), float(self.np_random.random()), bool(ends), False, {}


def small(name):
    kind = algorithms.get(name)
    if kind.needs == "transitions":
        return {"learning_starts": 8, "batch_size": 4, "buffer_size": 50}
    return {"rollout": 6, **({"batch_size": 6} if name == "ppo" else {})}


def tried(name, make, settings):
    """ "trained", "refused", or what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        try:
            given = {**SMALL, **small(name), **settings}
            run = trainer.session(name, make, framework=engine, out=out, **given)
        except TandemError as error:
            lines = str(error).splitlines()
            if out.exists():
                return f"left a folder: {lines[0]}"
            whole = "; expected " in lines[0] and lines[-1].startswith("Fix:")
            return "refused" if whole else f"not in two lines: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        try:
            list(run)
        except Exception as error:
            return f"{type(error).__name__} while it ran: {error}"
        return "trained"


def note(outcome, *what):
    if outcome in found:
        found[outcome] += 1
    else:
        wrong.append([*map(str, what), outcome[:500]])


if not chosen:
    for name in NAMES:
        for kind, action in ACTIONS.items():
            note(tried(name, lambda a=action: Anything(BOX, a), {}), name, "acts in", kind)
    for name in ("ppo", "dqn", "sac", "impala"):
        action = ACTIONS["box" if name == "sac" else "discrete"]
        for kind, seen in OBSERVATIONS.items():
            made = lambda o=seen, a=action: Anything(o, a)  # noqa: E731
            note(tried(name, made, {}), name, "sees", kind)
else:
    from hypothesis import HealthCheck, given, seed
    from hypothesis import settings as options
    from hypothesis import strategies as st

    def several(inner):
        return st.lists(inner, min_size=1, max_size=3)

    def named(parts):
        return spaces.Dict({f"k{i}": s for i, s in enumerate(parts)})

    leaf = st.sampled_from([v for k, v in OBSERVATIONS.items() if k not in ("text", "sequence")])
    observation = st.recursive(
        leaf,
        lambda inner: st.one_of(several(inner).map(spaces.Tuple), several(inner).map(named)),
        max_leaves=4,
    )
    single = st.sampled_from([v for k, v in ACTIONS.items() if k not in ("text", "class")])
    action = st.one_of(single, several(single).map(spaces.Tuple))
    WRAPPED = {
        "nothing": lambda env: env,
        "a limit": lambda env: wrappers.TimeLimit(env, 3),
        "statistics": wrappers.RecordEpisodeStatistics,
        "order": wrappers.OrderEnforcing,
    }
    more = {
        "envs": st.sampled_from([1, 2, 3]),
        "gamma": st.sampled_from([0.0, 0.9, 1.0]),
        "activation": st.sampled_from(["tanh", "relu", "gelu"]),
        "noisy": st.sampled_from(["no", "factorised"]),
        "seed": st.integers(0, 5),
    }

    quiet = options(deadline=None, database=None, suppress_health_check=list(HealthCheck))

    @seed(0)
    @options(quiet, max_examples=chosen)
    @given(
        name=st.sampled_from(NAMES),
        seen=observation,
        acts=action,
        wrapped=st.sampled_from(sorted(WRAPPED)),
        settings=st.fixed_dictionaries({}, optional=more),
    )
    def sweep(name, seen, acts, wrapped, settings):
        if "envs" in settings and algorithms.get(name).needs == "transitions":
            settings = {**settings, "train_every": settings["envs"]}
        made = lambda: WRAPPED[wrapped](Anything(seen, acts))  # noqa: E731
        note(tried(name, made, settings), name, seen, acts, wrapped, settings)

    sweep()
print(json.dumps([found, wrong]))
