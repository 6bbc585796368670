"""The advice of `spaces` and `vector_actions`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tandem.spaces import action_leaf, observation_spec
from tests.advice.net import case, follows

NUMBER, WIDE, TWO = (
    spaces.Box(0, 1, (1,)),
    spaces.MultiDiscrete([[2, 3], [4, 5]]),
    spaces.Discrete(2),
)


class Board(gymnasium.Env):
    """An environment of given spaces."""

    def __init__(self, observation: Any, action: Any = None) -> None:
        self.observation_space = observation
        self.action_space = TWO if action is None else action


def usable(observation: Any = TWO, action: Any = TWO) -> None:
    action_leaf(action, observation_spec(observation))


PARTS = spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(3))
JOINED = spaces.MultiDiscrete([part.n for part in PARTS.values()])


@pytest.mark.parametrize(
    "case",
    [
        case(
            "spaces.py:leaf",
            usable,
            {"action": spaces.Discrete},
            "call it: Discrete(...)",
            {"action": spaces.Discrete(4)},
        ),
        case(
            "spaces.py:leaf 2",
            usable,
            {"observation": spaces.Box(0, 1, (2, 0))},
            "a shape without 0",
            {"observation": spaces.Box(0, 1, (2, 1))},
        ),
        case(
            "spaces.py:leaf 2",
            usable,
            {"observation": spaces.Dict(a=NUMBER, b=spaces.Box(0, 1, (0,)))},
            "leave the entry out",
            {"observation": spaces.Dict(a=NUMBER)},
        ),
        case(
            "spaces.py:leaf 3",
            usable,
            {"observation": WIDE},
            "gymnasium.wrappers.TransformObservation",
            {
                "observation": gymnasium.wrappers.TransformObservation(
                    Board(WIDE), np.ravel, spaces.MultiDiscrete(WIDE.nvec.ravel())
                ).observation_space
            },
        ),
        case(
            "spaces.py:leaf 4",
            usable,
            {"action": spaces.Sequence(spaces.Discrete(2))},
            "gymnasium.wrappers.TransformObservation and TransformAction",
            {
                "action": gymnasium.wrappers.TransformAction(
                    Board(NUMBER, spaces.Sequence(spaces.Discrete(2))),
                    lambda a: (a,),
                    spaces.Discrete(2),
                ).action_space
            },
        ),
        case(
            "spaces.py:observation_spec",
            usable,
            {"observation": spaces.Dict({"a/b": NUMBER, "a": spaces.Dict(b=NUMBER)})},
            "call one of them otherwise, such as 'a_b'",
            {"observation": spaces.Dict({"a_b": NUMBER, "a": spaces.Dict(b=NUMBER)})},
        ),
        case(
            "spaces.py:empty",
            usable,
            {"observation": spaces.Dict({})},
            "gymnasium.spaces.Discrete(1)",
            {"observation": spaces.Dict(none=spaces.Discrete(1))},
        ),
        case(
            "spaces.py:action_leaf",
            usable,
            {"action": PARTS},
            "MultiDiscrete([part.n for part in parts])",
            {
                "action": gymnasium.wrappers.TransformAction(
                    Board(NUMBER, PARTS), lambda a: dict(zip("ab", a, strict=True)), JOINED
                ).action_space
            },
        ),
        case(
            "spaces.py:action_leaf 2",
            usable,
            {"observation": spaces.Dict(action_mask=spaces.MultiBinary(3))},
            "one number for each choice",
            {"observation": spaces.Dict(action_mask=spaces.MultiBinary(2))},
        ),
        case(
            "spaces.py:action_leaf 2",
            usable,
            {"observation": spaces.Dict(action_mask=spaces.MultiBinary(3))},
            "or give the entry another name",
            {"observation": spaces.Dict(mask=spaces.MultiBinary(3))},
        ),
    ],
)
def test_advice_on_spaces(case) -> None:
    case.follow()


def test_texts() -> None:
    env = Board(spaces.Dict(a=NUMBER, b=NUMBER, mission=spaces.Text(5)))
    with follows("spaces.py:_text") as advice:
        usable(env.observation_space)
    code = advice.fix.removeprefix("leave it out: ").rstrip(".")
    usable(eval(code, {"gymnasium": gymnasium, "env": env}).observation_space)
    env = Board(spaces.Text(5))
    with follows("spaces.py:_text") as advice:
        usable(env.observation_space)
    assert "TransformObservation(env, function, space), with a Box" in advice.fix
    usable(
        gymnasium.wrappers.TransformObservation(env, len, spaces.Box(0, 5, ())).observation_space
    )
