"""Runs in vectors that a user brings, in each autoreset mode."""

import os
import signal
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv

import tandem
from tandem.cli import main
from tandem.errors import EnvironmentFault
from tandem.learning.collect.evaluation import evaluate
from tandem.learning.events import TrainEnd
from tandem.runs.folder import Run
from tandem.runs.verification import verify
from tests.envs.vectors import MODES, Counters, Resumable
from tests.runs import shared
from tests.runs.shared import finished

QUICK = shared.QUICK | {"steps": 480, "eval_every": 200, "eval_episodes": 2, "final_episodes": 2}
KINDS: dict[str, dict[str, Any]] = {
    "ppo": {"rollout": 16, "batch_size": 32, "epochs": 2, "normalize_observations": True},
    "dqn": {"buffer_size": 300, "learning_starts": 50, "train_every": 8, "batch_size": 16},
    "impala": {},
}


def test_a_function_is_given_the_run_s_numbers_and_updates_go_by_them() -> None:
    given = {n: x for n, x in (QUICK | KINDS["dqn"]).items() if n != "train_every"}
    session = tandem.session("dqn", partial(Resumable, 6, MODES[0]), **given)
    assert session.config.settings.train_every == 6
    finished(session)
    asked = []

    def make(num_envs: int, seed: int, mode: Any = MODES[2]) -> Any:
        asked.append((num_envs, seed))
        return Counters(num_envs, mode)

    given = QUICK | KINDS["ppo"]
    session = finished(tandem.session("ppo", make, envs=6, **given))
    assert session.config.settings.envs == 6 and asked[0][0] == 6
    assert {n for n, _ in asked[1:]} == {2}  # episodes of an evaluation
    assert asked[0][1] != asked[1][1]
    kwargs = {"id": "CartPole-v1", "num_envs": 16}
    session = tandem.session("ppo", gymnasium.make_vec, env_kwargs=kwargs, **QUICK)
    assert session.config.env == "CartPole-v1" and session.config.settings.envs == 16


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", KINDS)
def test_a_stop_changes_nothing_where_the_vector_has_a_state(algorithm, mode, tmp_path) -> None:
    make = partial(Resumable, 4, mode)
    given = QUICK | KINDS[algorithm]
    if algorithm == "ppo":
        given |= {"normalize_rewards": True}
    whole = finished(tandem.session(algorithm, make, seed=3, **given))
    finished(tandem.session(algorithm, make, seed=3, out=tmp_path / "run", **given), 200)
    resumed = finished(tandem.session(resume=tmp_path / "run", env=make))
    assert resumed.loop.env_steps == whole.loop.env_steps >= 480
    assert resumed.fingerprint() == whole.fingerprint()


@pytest.mark.parametrize("kind", [{"masks": True}, {"dict_obs": True}])
@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "impala"])
def test_masks_and_dicts(algorithm, kind) -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(Counters(4, MODES[1], **kind))
        return made[-1]

    given = QUICK | KINDS[algorithm]
    given |= {"normalize_observations": False} if algorithm == "ppo" else {}
    assert tandem.train(algorithm, make, **given).evaluation.lengths == [2, 3]
    assert not kind.get("masks") or all(v.forbidden == 0 for v in made)


def test_without_a_state_a_run_goes_on_in_new_episodes_and_says_so(tmp_path, capsys) -> None:
    tandem.train("ppo", Counters, out=tmp_path / "run", stop_at=200, **QUICK | KINDS["ppo"])
    result = tandem.train(resume=tmp_path / "run", env=Counters)
    assert result.summary["env_steps"] >= 480
    assert [note for note in result.notes if "starts new episodes" in note]


def test_an_object_is_evaluated_elsewhere_and_left_open() -> None:
    vector = Resumable(4)
    given = QUICK | KINDS["ppo"]
    result = tandem.train("ppo", vector, eval_env=Resumable(2), **given)
    assert result.evaluation.lengths == [2, 3] and not vector.closed
    # envs is the vector's; nothing is evaluated
    alone = tandem.train("ppo", vector, envs=4, **given | {"eval_episodes": 0})
    assert alone.summary["eval_mean"] is None and np.isnan(alone.evaluation.mean)


def test_ctrl_c_while_a_vector_is_made_is_heard_then() -> None:
    made = []

    def make() -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        made.append(Resumable())
        return made[-1]

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        tandem.session("ppo", make, **QUICK)
    assert len(made) == 1 and signal.getsignal(signal.SIGINT) is before


def test_a_vector_that_raises_ends_the_run_with_its_words() -> None:
    with pytest.raises(EnvironmentFault, match="ZeroDivisionError: the simulator fell over"):
        tandem.train("ppo", partial(Counters, fails_at=60), **QUICK | KINDS["ppo"])


def test_the_command_trains_resumes_scores_and_verifies(tmp_path, capsys) -> None:
    words = "--vector tests.envs.vectors:Resumable --framework torch --no-plots --no-tensorboard"
    words += " --steps 200 --rollout 16 --batch-size 24 --envs 3 --hidden 8 --eval-episodes 1"
    words += f" --final-episodes 1 --stop-at 90 --quiet --out {tmp_path / 'run'}"
    assert main(["train", "ppo", *words.split()]) == 0
    assert main(["train", "--resume", str(tmp_path / "run"), "--quiet"]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "3"]) == 0
    assert "return" in capsys.readouterr().out
    assert verify(tmp_path / "run").difference is None
    config = Run(tmp_path / "run").config
    assert config["vector"] == "tests.envs.vectors:Resumable" and config["settings"]["envs"] == 3
    assert main(["check", "--vector", "tests.envs.vectors:Resumable", "--steps", "40"]) == 0
    said = capsys.readouterr().out
    assert "exact, to the bit" in said and "autoreset mode NEXT_STEP" in said


def processes() -> Any:
    return AsyncVectorEnv([partial(gymnasium.make, "CartPole-v1")] * 4)


@pytest.mark.thorough
@pytest.mark.parametrize("given_as", ["a function", "an object"])
def test_ctrl_c_of_a_terminal(given_as, tmp_path) -> None:
    """It goes to all processes of a group: those of an object end, those that a run made go on."""
    vector = processes if given_as == "a function" else processes()
    sent: list[int] = []

    def group(event: Any) -> None:
        if event.env_steps >= 200 and not sent:
            sent.extend(p.pid for p in session.vector._envs.processes)
            for number in (*sent, os.getpid()):
                os.kill(number, signal.SIGINT)

    given = QUICK | KINDS["ppo"] | {"eval_episodes": 0}
    session = tandem.session("ppo", vector, callbacks=[group], out=tmp_path / "run", **given)
    with pytest.raises(KeyboardInterrupt):
        for event in session:
            ended = event
    assert isinstance(ended, TrainEnd) and ended.reason == "SIGINT"
    session = tandem.session(resume=tmp_path / "run", env=processes)
    assert 200 <= session.loop.env_steps < 480
    assert finished(session).loop.env_steps >= 480


def test_evaluations_go_by_the_limit_of_a_vector() -> None:
    class Long(Resumable):
        def length(self) -> Any:
            return np.full(self.num_envs, 5200)

    def act(obs: Any, state: Any, noise: Any) -> Any:
        return np.zeros(len(obs), np.int64), {}, state

    def scored(limit: int | None) -> list[int]:
        envs = Long(2, MODES[0])
        envs.spec = SimpleNamespace(max_episode_steps=limit, kwargs={})
        actor = SimpleNamespace(act=act, initial_state=lambda n: ())
        return evaluate(actor, lambda: envs, 2, 0).lengths

    assert scored(None) == [5000, 5000] and scored(2600) == [5200, 5200]
