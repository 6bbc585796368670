"""The advice of compiled runs. (JAX runs in a process of its own: `tests/compiled`.)"""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium import spaces

from tandem import algorithms
from tandem.compiled import choice
from tandem.errors import SettingError
from tandem.learning.config import Options
from tandem.settings import apply
from tandem.spaces import Leaf, action_leaf
from tandem.vector_actions import taken_space
from tests.advice.net import follows

SPEC, TWO = Leaf("box", (4,), "float32"), Leaf("discrete", (), "int64", (2,))
PARTS = action_leaf(taken_space(spaces.Dict(go=spaces.Discrete(2))), SPEC)


def settled(**given: Any) -> Any:
    kind = algorithms.get(given.pop("name", "ppo"))
    options = {n: given.pop(n) for n in ("workers",) if n in given}
    action = given.pop("action", TWO)
    world, engine = given.pop("functional", True), given.pop("framework", "jax")
    s = apply(kind.Settings(), {"vectorization": "compiled", **given})
    o = apply(Options(), options)
    return choice.settled("tandem/CartPole-v1", world, kind, s, o, (SPEC, action), engine, "cpu")


@pytest.mark.parametrize(
    "key, wrong, says, right",
    [
        ("compiled/choice.py:check", {"functional": False}, "give such an environment", {}),
        (
            "compiled/choice.py:check",
            {"functional": False},
            "leave vectorization out",
            {"functional": False, "vectorization": "auto"},
        ),
        (
            "compiled/choice.py:check 2",
            {"name": "dqn", "n_step": 3},
            "give n_step=1",
            {"name": "dqn", "n_step": 1},
        ),
        (
            "compiled/choice.py:check 2",
            {"name": "sac", "normalize_rewards": True},
            "give normalize_rewards=False",
            {"name": "sac", "normalize_rewards": False},
        ),
        ("compiled/choice.py:check 2", {"recurrent": 8}, "give recurrent=0", {"recurrent": 0}),
        (
            "compiled/choice.py:check 2",
            {"noisy": "independent"},
            "give noisy='no'",
            {"noisy": "no"},
        ),
        ("compiled/choice.py:check 2", {"action": PARTS}, "actions are of one kind", {}),
        ("compiled/choice.py:check 2", {"workers": 2}, "leave workers out", {}),
        ("compiled/choice.py:check 2", {"name": "impala"}, "choose ppo", {"name": "ppo"}),
        ("compiled/choice.py:check 2", {"name": "mappo"}, "choose ppo", {"name": "sac"}),
        ("compiled/choice.py:settled", {"framework": "torch"}, "give framework='jax'", {}),
        (
            "compiled/choice.py:settled",
            {"framework": "torch"},
            "leave vectorization out",
            {"framework": "torch", "vectorization": "auto"},
        ),
    ],
)
def test_compiled_runs(key: str, wrong: Any, says: str, right: Any) -> None:
    with follows(key) as advice:
        settled(**wrong)
    assert says in advice.fix
    settings, _ = settled(**right)
    assert settings.vectorization in ("compiled", right.get("vectorization"))


def test_auto_compiles_where_it_pays() -> None:
    def chosen(**given: Any) -> str:
        return str(settled(vectorization="auto", **given)[0].vectorization)

    assert chosen() == chosen(name="sac") == chosen(name="trpo") == "compiled"
    assert chosen(framework="torch") == chosen(functional=False) == "auto"
    assert chosen(action=PARTS) == "auto"
    assert chosen(workers=2) == chosen(recurrent=8) == chosen(name="acer") == "auto"
    assert chosen(name="dqn", updates_per_call=128) == "auto"
    assert chosen(name="dqn") == chosen(workers="auto") == "compiled"


def test_an_algorithm_is_called_what_its_users_call_it() -> None:
    with pytest.raises(SettingError, match="with nstep_q,"):
        settled(name="nstep_q")
