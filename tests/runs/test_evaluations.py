"""The environments that a run is evaluated in, and what a run does without any."""

import json
import re
import threading
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit

import tandem
from tandem import errors
from tandem.envs.plain import Plain
from tandem.learning.events import BatchEnd, EvaluationEnd
from tandem.reports.run_report import report
from tandem.runs.callbacks import LambdaCallback
from tandem.runs.folder import Run
from tandem.runs.groups import scores
from tests.runs.shared import QUICK, finished, rows

SMALL = QUICK | {"steps": 96, "envs": 1, "rollout": 16, "batch_size": 16, "epochs": 1}
SMALL |= {"hidden": (4,), "eval_every": 32, "eval_episodes": 3, "final_episodes": 2}


class Toy(gymnasium.Env[Any, Any]):
    """Episodes of 2 to 9 steps, by their seed, each a success if its last action was 1."""

    made, opened = 0, 0
    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        Toy.made, Toy.opened, self.t = Toy.made + 1, Toy.opened + 1, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t, self.length = 0, int(self.np_random.integers(2, 10))
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        over = self.t >= self.length
        info = {"is_success": bool(action)} if over else {}
        return np.full(1, self.t, np.float32), float(action), over, False, info

    def close(self) -> None:
        Toy.opened -= 1


class Locked(Toy):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Old(Toy):
    """As gym before 0.26."""

    def reset(self, **given: Any) -> Any:
        return super().reset(**given)[0]


class Four(Toy):
    """Its step is as gym before 0.26 had it."""

    def step(self, action: Any) -> Any:
        obs, reward, over, _, info = super().step(action)
        return obs, reward, over, info


class Unseeded(Toy):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


Bare = type("Bare", (Toy,), {"action_space": None})
Two = type("Two", (Toy,), {"observation_space": gymnasium.spaces.Box(0, 9, (2,), np.float32)})
Wide = type("Wide", (Old,), {"action_space": gymnasium.spaces.Box(-1, 1, (2,), np.float32)})


def trained(env: Any, **given: Any) -> Any:
    return tandem.train("ppo", env, **SMALL | given)


def test_environments_are_made_once_and_closed_and_their_number_changes_no_score() -> None:
    results = []
    for number in (1, 3):
        Toy.made = Toy.opened = 0
        results.append(trained(Toy, eval_envs=number))
        # one to look at its spaces, one to train in
        assert Toy.made == 2 + number and Toy.opened == 0
    assert results[0].evaluations == results[1].evaluations and len(results[0].evaluations) == 3
    assert results[0].evaluation == results[1].evaluation
    scores = [tandem.evaluate(results[0].agent, Toy, 4, eval_envs=n) for n in (1, 4)]
    assert scores[0] == scores[1] and Toy.opened == 0
    # unless it is given, the number goes by what makes them
    for env, number in (("CartPole-v1", 10), (Toy, 1), (partial(gymnasium.make, "CartPole-v1"), 1)):
        assert tandem.session("ppo", env, **SMALL).config.options.eval_envs == number


def test_an_environment_that_cannot_be_copied_trains_and_keeps_its_agent(tmp_path: Path) -> None:
    for episodes in (0, 3):
        result = trained(Locked(), eval_episodes=episodes, out=tmp_path / f"run{episodes}")
        assert result.evaluation.returns and not result.evaluations  # in the object, at the end
        assert bool(episodes) == any("eval_env=" in note for note in result.notes)
        assert (tmp_path / f"run{episodes}" / "checkpoints" / "best.zip").is_file()
    assert any("Locked cannot be copied" in note for note in result.notes)


class Unclosable(Toy):
    def close(self) -> None:
        raise OSError("it is closed already")


class BreaksAtTheEnd(Toy):
    ended = False

    def reset(self, **given: Any) -> Any:
        if BreaksAtTheEnd.ended:
            raise OSError("the simulator is gone")
        return super().reset(**given)


class BreaksItsFilm(Toy):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}
    render_mode = "rgb_array"

    def render(self) -> Any:
        self.filmed = True
        return np.zeros((16, 16, 3), np.uint8)

    def step(self, action: Any) -> Any:
        if hasattr(self, "filmed"):
            raise ValueError
        return super().step(action)


def ending(event: Any) -> None:
    BreaksAtTheEnd.ended |= isinstance(event, BatchEnd) and event.env_steps >= 96


@pytest.mark.parametrize(
    "env, given, scored, said",
    [
        (BreaksAtTheEnd, {"eval_episodes": 0, "callbacks": [ending]}, False, "simulator is gone"),
        (Unclosable, {}, True, "failed: it is closed already"),
        (lambda: SyncVectorEnv([Unclosable]), {}, True, "failed: it is closed already"),
        (BreaksItsFilm, {"plots": True}, True, "no animation: ValueError"),
    ],
)
def test_an_environment_that_breaks_does_not_lose_the_agent(env, given, scored, said, tmp_path):
    result = trained(env, out=tmp_path / "run", **given)
    assert bool(result.evaluation.returns) == scored
    assert result.agent.predict(np.zeros(1))[0] in (0, 1)
    assert any(said in note for note in result.notes)
    written = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (written["eval_mean"] is not None) == scored


@pytest.mark.parametrize(
    ("eval_env", "error", "text"),
    [
        ("CartPol-v1", errors.UnknownNameError, "CartPol-v1"),
        (Two, errors.SpaceError, "Two"),
        (5, errors.SettingError, "5 is a int"),
        (lambda size: Toy(), errors.SettingError, "without arguments"),
        (Old, errors.EnvironmentFault, "returned only the observation"),
        (Four, errors.EnvironmentFault, "return these five from step; or wrap"),
        (Unseeded, errors.EnvironmentFault, "let reset take seed=None and options=None; or wrap"),
        (lambda: SyncVectorEnv([Four]), errors.EnvironmentFault, "return these five from step"),
        (Bare, errors.SpaceError, "Bare has no action_space"),
    ],
)
def test_an_unfit_eval_env_is_found_before_training(eval_env, error, text, tmp_path) -> None:
    for more in ({}, {"eval_episodes": 0}):
        with pytest.raises(error, match=text):
            tandem.session("ppo", Toy, eval_env=eval_env, out=tmp_path / "run", **SMALL | more)
    assert not (tmp_path / "run").exists()


class Optionless(Toy):
    def reset(self, seed: Any = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


@pytest.mark.parametrize("kind", [Four, Unseeded, Optionless, Old])
def test_steps_and_resets_of_old_are_named_and_wrapped_as_the_fix_says(kind: Any) -> None:
    wrapped = (lambda: TimeLimit(kind(), 5), lambda: SyncVectorEnv([kind]))
    for env in (*{Optionless: (), Old: (Old, Wide)}.get(kind, (kind, kind())), *wrapped):
        with pytest.raises(errors.EnvironmentFault, match="expected Gymnasium's .*") as caught:
            trained(env, eval_episodes=0)
        assert "tandem.envs.plain.Plain(env)" in caught.value.fix
    result = trained(lambda: TimeLimit(Plain(kind()), 5))
    assert result.evaluation.returns
    if kind is not Optionless:
        with pytest.raises(errors.EnvironmentFault, match="expected Gymnasium's .*") as caught:
            tandem.evaluate(result.agent, kind)
        assert "tandem.envs.plain.Plain(env)" in caught.value.fix


def fingerprint(env: Any, **given: Any) -> str:
    session = tandem.session("ppo", env, **SMALL | given)
    return finished(session).fingerprint()


class Simulator:
    """Has no spaces; holds an environment, or a simulator in a dict."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def _inner(self) -> Any:
        return self.held["first"] if isinstance(self.held, dict) else self.held

    def reset(self, **given: Any) -> Any:
        return self._inner().reset(**given)

    def step(self, action: Any) -> Any:
        return self._inner().step(action)


class Wrap(Simulator, gymnasium.Env[Any, Any]):  # not gymnasium.Wrapper: `unwrapped` is itself
    observation_space, action_space, spec = Toy.observation_space, Toy.action_space, None


def test_evaluations_never_step_the_environment_that_is_trained_in() -> None:
    simulator = Simulator(Toy())
    alone, one = fingerprint(Toy, eval_episodes=0), [TimeLimit(Toy(), 50) for _ in range(8)]
    assert alone == fingerprint(lambda: one[0])
    for env, eval_env in (
        (one[1], one[1].unwrapped),
        (one[2], TimeLimit(one[2], 3)),
        (one[3].unwrapped, one[3]),
        (one[4], lambda: one[4]),
        (lambda: one[5], lambda: one[5]),
        (one[6], Wrap(one[6])),
        (one[7], one[7]),
        (Wrap({"first": simulator}), Wrap({"first": simulator})),
    ):
        assert alone == fingerprint(env, eval_env=eval_env)

    env, agent = Toy(), trained(Toy, eval_episodes=0).agent
    look = Mock(side_effect=lambda event: tandem.evaluate(agent, env, 2) and None)
    assert alone == fingerprint(env, callbacks=[LambdaCallback(on_batch_end=look)])
    assert look.call_count == 6
    locked = Locked()
    with pytest.raises(errors.SettingError, match="cannot be copied") as caught:
        tandem.session("ppo", locked, eval_env=TimeLimit(locked, 3), **SMALL)
    assert "a callable" in caught.value.fix
    assert any("cannot be copied" in n for n in trained(lambda: locked).notes)


def test_a_vector_object_trains_and_its_best_checkpoint_is_by_training_returns(tmp_path) -> None:
    vector = SyncVectorEnv([Toy] * 2)
    given = SMALL | {"envs": 2, "steps": 192}
    result = tandem.train("ppo", vector, out=tmp_path / "run", **given)
    (said,) = [note for note in result.notes if "eval_env=" in note]
    assert "training episodes" in said and not result.evaluation.returns
    assert (tmp_path / "run" / "checkpoints" / "best.zip").is_file()
    page = report(tmp_path / "run").read_text()
    assert re.search(r"latest training episodes: mean return [\d.]+, \d+% successful", page)
    with pytest.raises(errors.RunFolderError, match="train it again with eval_env="):
        scores([Run(tmp_path / "run")], ["SyncVectorEnv"], "best")
    for unfit in (vector, lambda: vector):
        with pytest.raises(errors.SettingError, match="evaluation needs a second one"):
            tandem.session("ppo", vector, eval_env=unfit, **given)
    # one of its environments can be copied
    session = tandem.session("ppo", vector, eval_env=vector.envs[0], **given)
    assert [e for e in session if isinstance(e, EvaluationEnd)]


def test_without_evaluations_the_best_is_by_training_returns(tmp_path: Path) -> None:
    """Of a game whose rewards get worse: the best agent is an early one, after resuming, too."""

    class Fades(Toy):
        total = 0

        def step(self, action: Any) -> Any:
            Fades.total += 1
            seen, _, over, *rest = super().step(action)
            return seen, (100.0 - Fades.total) * over, over, *rest

    def acted(agent: Any) -> Any:
        return agent.networks["actor"](np.zeros((1, 1)))

    weights, given = {}, SMALL | {"eval_episodes": 0}
    session = tandem.session("ppo", Fades, out=tmp_path / "run", **given)
    for event in session:
        if isinstance(event, BatchEnd):
            weights[event.env_steps] = acted(session.agent())
    best = acted(session.restored("best"))
    assert (best == weights[32]).all() and not (best == weights[96]).all()
    Fades.total = 0
    session = finished(tandem.session("ppo", Fades, **given))
    assert (acted(session.restored("best")) == best).all()


@pytest.mark.parametrize("how", ["one", "SAME_STEP", "NEXT_STEP", "DISABLED"])
def test_successes_are_counted(how: str, tmp_path: Path, capsys: Any) -> None:
    def vector() -> Any:
        return SyncVectorEnv([Toy] * 2, autoreset_mode=AutoresetMode[how])

    env, more = (Toy, {}) if how == "one" else (vector, {"envs": 2})
    result = trained(env, out=tmp_path / "run", progress=True, **more)
    assert result.evaluation.success in (0.0, 0.5, 1.0) and "successful" in str(result.evaluation)
    assert result.summary["eval_success_rate"] == result.evaluation.success
    table = rows(tmp_path / "run")
    assert 0.0 <= float(table[-1]["success_rate"]) <= 1.0
    assert any(row["eval_success_rate"] for row in table)
    assert "successful" in capsys.readouterr().err
    assert "<th>success</th>" in report(tmp_path / "run").read_text()
    if how == "one":  # runs without successes have no column for them
        trained("CartPole-v1", out=tmp_path / "none")
        assert not [name for name in rows(tmp_path / "none")[0] if "success" in name]
        assert "<th>success</th>" not in report(tmp_path / "none").read_text()
