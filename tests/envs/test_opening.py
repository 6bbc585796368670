"""How often environments are reset before their first step, and with what."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import tandem
from tandem import trainer
from tandem.envs.factory import vectorize
from tandem.envs.vector import episode_seed
from tandem.learning.collect.actor import RandomActor
from tandem.learning.collect.evaluation import evaluate
from tandem.learning.seeds import derived
from tandem.testing import environments as games
from tandem.testing import team_games
from tests.agents.agents import Probe, Walk, trained

QUIET: dict[str, Any] = {"framework": "torch", "plots": False, "steps": 8, "hidden": (4,)}
PPO = QUIET | {"rollout": 4, "batch_size": 4, "eval_episodes": 0, "final_episodes": 1}


class Counts:
    """Keeps the seeds of its resets, and None for each step; all that were made are in `made`."""

    made: list[Any] = []
    unwrapped = property(lambda self: self)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.calls: list[int | None] = []
        self.made.append(self)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.calls.append(seed)
        return super().reset(seed=seed, options=options)  # type: ignore[misc]

    def step(self, action: Any) -> Any:
        self.calls.append(None)
        return super().step(action)  # type: ignore[misc]


class Counted(Counts, games.Identity):
    def __init__(self) -> None:
        super().__init__(3, 50)


CountedTeam: Any = type("CountedTeam", (Counts, team_games.Climbing), {})


def stepped() -> list[Any]:
    return [env.calls for env in Counts.made if None in env.calls]


FORMS: dict[str, Callable[[], Any]] = {
    "object": Counted,
    "class": lambda: Counted,
    "function": lambda: lambda: Counted(),
    "id": lambda: "tandem-tests/Counted-v0",
    "vector": lambda: SyncVectorEnv([Counted, Counted]),
    "function of vectors": lambda: lambda: SyncVectorEnv([Counted, Counted]),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_environment_is_reset_once_before_its_first_step(form: str) -> None:
    gymnasium.register("tandem-tests/Counted-v0", entry_point=Counted)
    Counts.made.clear()
    envs = {} if form in ("object", "vector", "function of vectors") else {"envs": 2}
    try:
        list(trainer.session("ppo", FORMS[form](), **(PPO | envs)).events())
    finally:
        gymnasium.registry.pop("tandem-tests/Counted-v0")
    assert [calls.index(None) for calls in stepped()] == [1] * (1 if form == "object" else 2)
    if "vector" not in form:  # whose seeds are Gymnasium's
        seed = derived(0, "environments")
        expected = [episode_seed(seed, i, 0) for i in range(len(stepped()))]
        assert [calls[0] for calls in stepped()] == expected


@pytest.mark.parametrize("form", ["object", "class"])
def test_a_team_is_reset_once_before_its_first_step(form: str) -> None:
    Counts.made.clear()
    envs = vectorize(CountedTeam() if form == "object" else CountedTeam, 1, seed=3)
    envs.reset()
    envs.step(np.zeros((1, 2), np.int64))
    assert [calls[:2] for calls in stepped()] == [[episode_seed(3, 0, 0), None]]


def test_an_environment_that_was_stepped_since_is_reset_again() -> None:
    env = Counted()
    trainer.session("ppo", env, **PPO)  # which is given up
    env.step(0)
    before = len(env.calls)
    tandem.train("ppo", env, **PPO)
    assert env.calls[before] == env.calls[0] and env.calls[before + 1] is None


class Brief:  # `reset` as many write it
    def reset(self, seed: int | None = None) -> Any:
        return super().reset(seed=seed)  # type: ignore[misc]


class BareAxes(Brief, games.InfiniteHorizon):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiDiscrete([[2, 2], [2, 2]])

    def play(self, action: Any) -> Any:
        assert action.shape == (2, 2)
        return 0.0, False


KINDS = (games.Identity, games.Forbidden, team_games.Climbing)
BARE, *OTHERS = (type("Bare", (Brief, kind), {}) for kind in KINDS)


@pytest.mark.parametrize("env", [BARE, *OTHERS, BareAxes])
def test_a_reset_without_options_is_enough(env: Any) -> None:
    envs = vectorize(env, 1)
    actor, rng = RandomActor(envs.action), np.random.default_rng(0)
    played = evaluate(actor, env, 2, noise=lambda t, n: actor.noise(rng, (1, n))[0])
    assert len(played.returns) == 2
    envs.reset()
    envs.close()
    if env is BARE:
        given = PPO | {"eval_episodes": 1, "eval_every": 4, "envs": 1}
        assert len(tandem.train("ppo", env, **given).evaluation.returns) == 1


@pytest.mark.parametrize("lacks", ["", "action_space"])
def test_an_environment_of_an_agent_is_reset_once_before_its_first_step(lacks: str) -> None:
    class Logged(Walk):
        def reset(self, seed: int = 0) -> Any:
            calls.append("reset")
            return super().reset(seed)

        def step(self, action: Any) -> Any:
            calls.append("step")
            return super().step(action)

    calls: list[str] = []
    env = Logged()
    if lacks:
        delattr(env, lacks)
    trained(Probe(env), 1)
    assert calls.index("step") == 1
