"""The advice of `replay`."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from tandem.replay import allocation, hindsight, samplers
from tandem.replay.buffer import Ring
from tandem.replay.scored import ScoredSampler
from tandem.replay.sequences import SequenceBuffer
from tandem.replay.triplets import TripletSampler
from tandem.spaces import Leaf, leaf
from tandem.types import Cuts, Trajectory
from tests.advice.net import case, follows
from tests.replay.test_sequences import COLUMNS, OBS, sequences

VECTOR, ACTION, RNG = Leaf("box", (2,), "float32"), Leaf("discrete", (), "int64", (4,)), np.random
STACK = Leaf("box", (3, 2, 2), "uint8", stack=3)


def ring(capacity: int = 8, envs: int = 1, obs: Any = VECTOR, path: Any = None) -> Ring:
    return Ring(capacity, envs, obs, ACTION, path=path)


def steps(n: int = 4, *, obs: Any = None, last: Any = None, cuts: Any = None) -> Trajectory:
    """`n` steps of an environment, whose episode was cut after the last of them."""
    obs = np.arange(2 * n + 2, dtype=np.float32).reshape(n + 1, 1, 2) if obs is None else obs
    ends = np.eye(n, dtype=bool)[-1:].T if last is None else last
    row, at = np.ones((n, 1), np.float32), np.array([n - 1])
    cuts = Cuts(at, 0 * at, obs[-1]) if cuts is None else cuts
    return Trajectory(obs[:-1], np.zeros((n, 1), np.int64), row, row, ends, row > 0, cuts, obs[-1])


def filled(n: int = 4, into: Ring | None = None) -> Ring:
    into = ring() if into is None else into
    into.add(steps(n))
    return into


def rows(into: Ring, ids: Any) -> None:
    into.transitions(np.atleast_1d(ids))


def add(into: Any, last: Any = None, dtype: Any = np.float32) -> None:
    step = steps(last=last)
    into.add(step._replace(reward=step.reward.astype(dtype)))


def relabel(judge: Any, **more: Any) -> None:
    into = filled(6)
    goals = SimpleNamespace(judge=judge, achieved=lambda obs: obs, put=lambda obs, goal: obs)
    ids = np.arange(4)
    made = hindsight.Hindsight(into, goals, **{"k": None, **more})
    made.relabel(RNG.default_rng(0), ids, into.transitions(ids))


def reload(saved: Ring, into: Ring) -> None:
    into.load_state(*saved.state())
    assert len(into) == len(saved)


def reload_both(order: str) -> None:
    saved, into = filled(), ring()
    state = samplers.PrioritizedSampler(saved).state()
    sampler = samplers.PrioritizedSampler(into)
    if order == "the ring first":
        reload(saved, into)
    sampler.load_state(*state)


def reload_sequences(steps: int) -> None:
    saved = SequenceBuffer(5, 4, OBS, COLUMNS)
    saved.add(sequences(1, 2), RNG.default_rng(0))
    SequenceBuffer(5, steps, OBS, COLUMNS).load_state(*saved.state())


def draw(sampler: Any, of: Ring) -> None:
    sampler(of).draw(RNG.default_rng(0), *([4] if sampler is TripletSampler else [1, 4]))


def prioritize(priority: Any, **more: Any) -> None:
    sampler = samplers.PrioritizedSampler(filled(), **more)
    sampler.update(np.array([[0, 1]]), np.array([priority]))


def pictures(stack: int | None, shape: tuple[int, ...] = (3, 2, 2)) -> None:
    space = gymnasium.spaces.Box(0, 255, (3, 2, 2), np.uint8)
    if stack is not None:
        space.stack = stack
    into = ring(obs=leaf(space))
    into.add(steps(obs=np.ones((5, 1, *shape), np.uint8)))


@pytest.mark.parametrize(
    "case",
    [
        case("replay/layout.py:Layout.__init__", ring, {"capacity": 0, "envs": -1}),
        case(
            "replay/layout.py:check_column",
            add,
            {"into": ring(), "dtype": np.float64},
            "float64 rewards and discounts become float32",
            {"dtype": np.float32},
        ),
        case(
            "replay/buffer.py:Ring.transitions",
            rows,
            {"into": filled(), "ids": 4},
            "choose with `contains`",
            {"ids": np.arange(9)[filled().contains(np.arange(9))]},
        ),
        case(
            "replay/buffer.py:Ring.load_state",
            reload,
            {"saved": filled(), "into": ring(16)},
            "with the capacity",
            {"into": ring(8)},
        ),
        case(
            "replay/buffer.py:Ring._read_cuts",
            add,
            {"into": ring(), "last": np.zeros((4, 1), bool)},
            "set `last` in the collector at every step whose environment was reset",
            {"last": np.eye(4, dtype=bool)[-1:].T},
        ),
        case(
            "replay/hindsight.py:Hindsight.__init__",
            relabel,
            {"judge": lambda obs, goal, info: (obs[:, 0], obs[:, 0] > 0), "strategy": "past"},
        ),
        case(
            "replay/hindsight.py:Hindsight.__init__ 2",
            relabel,
            {"judge": lambda obs, goal, info: (obs[:, 0], obs[:, 0] > 0), "k": -1},
        ),
        case(
            "replay/hindsight.py:Hindsight.relabel",
            relabel,
            {"judge": lambda obs, goal, info: (0.0, False)},
            "one number for each row of obs",
            {"judge": lambda obs, goal, info: (np.zeros(len(obs)), np.zeros(len(obs), bool))},
        ),
        case(
            "replay/priorities.py:Priorities.powers",
            prioritize,
            {"priority": [1.0, np.nan]},
            "exploding losses or rewards",
            {"priority": [1.0, 2.0]},
        ),
        case(
            "replay/samplers.py:PrioritizedSampler.__init__",
            prioritize,
            {"priority": [1.0, 2.0], "alpha": -1.0},
        ),
        case(
            "replay/samplers.py:PrioritizedSampler.load_state",
            reload_both,
            {"order": "the sampler first"},
            "the ring first",
            {"order": "the ring first"},
        ),
        case(
            "replay/samplers.py:_require_rows",
            draw,
            {"sampler": samplers.UniformSampler, "of": ring()},
            "collect before learning",
            {"of": filled()},
        ),
        case(
            "replay/scored.py:ScoredSampler.__init__",
            lambda lambda_: ScoredSampler(filled(), {"TD": 7.0}, share=lambda_),
            {"lambda_": 2},
        ),
        case(
            "replay/sequences.py:SequenceBuffer.load_state",
            reload_sequences,
            {"steps": 3},
            "with the settings",
            {"steps": 4},
        ),
        case(
            "replay/stacks.py:stored",
            pictures,
            {"stack": 4},
            "to the length of its first axis",
            {"stack": 3},
        ),
        case("replay/stacks.py:stored", pictures, {"stack": 4}, "or remove it", {"stack": None}),
        case(
            "replay/stacks.py:apart",
            pictures,
            {"stack": 3, "shape": (2, 2, 3)},
            "reshape to the spaces",
            {"shape": (3, 2, 2)},
        ),
        case(
            "replay/triplets.py:TripletSampler.draw",
            draw,
            {"sampler": TripletSampler, "of": filled(2)},
            "collect more before you draw",
            {"of": filled(6)},
        ),
    ],
)
def test_advice_of_replay(case) -> None:
    case.follow()


def test_a_smaller_capacity_fits(monkeypatch) -> None:
    monkeypatch.setattr(allocation, "available_memory", lambda: 10_000)
    with follows("replay/allocation.py:require") as advice:
        ring(1000)
    share = int(re.findall(r"about (\d+)%", advice.fix)[0]) / 100
    ring(int(0.95 * share * 1000))  # the percentage is rounded


def test_files_take_what_memory_does_not(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(allocation, "available_memory", lambda: 10_000)
    with follows("replay/allocation.py:require") as advice:
        ring(1000)
    assert "`path` of a buffer" in advice.fix
    filled(into=ring(1000, path=str(tmp_path / "buffer")))


class Pictures(gymnasium.Env):
    """Shows a picture that it has not shown before."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 2), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.full((2, 2), 1, np.uint8), {}

    def step(self, action):
        self.t += 1
        return np.full((2, 2), self.t + 1, np.uint8), 0.0, False, False, {}


def test_a_stack_that_does_not_go_on() -> None:
    """FrameStackObservation repeats the first picture, unless it is told to begin with zeros; here
    an own wrapper has the newest picture first."""

    def shown(env: Any, turned: bool, declared: bool = True) -> None:
        obs = [env.reset()[0]] + [env.step(0)[0] for _ in range(4)]
        seen = np.stack(obs)[:, None]
        spec = STACK if declared else Leaf("box", (3, 2, 2), "uint8")
        ring(obs=spec).add(steps(obs=np.ascontiguousarray(seen[:, :, ::-1] if turned else seen)))

    stack = gymnasium.wrappers.FrameStackObservation
    with follows("replay/stacks.py:check_order") as advice:
        shown(stack(Pictures(), 3), turned=True)
    code = advice.fix.partition(";")[0]
    shown(eval(code, {"gymnasium": gymnasium, "env": Pictures(), "k": 3}), turned=False)
    assert "or remove the attribute `stack`" in advice.fix
    shown(stack(Pictures(), 3), turned=True, declared=False)
