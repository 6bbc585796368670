"""What a program calls in the environments of a run while it trains."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import tandem
from tandem.cli import main
from tandem.errors import EnvironmentFault, ResumeError, SettingError, UnknownNameError
from tandem.runs.callbacks import Callback
from tandem.runs.verification import verify
from tandem.testing.environments import Game
from tests.envs.vectors import MODES, Resumable
from tests.helpers import run_python
from tests.parallel.same_runs import sampled
from tests.runs.shared import QUICK, child, finished


class Corridor(gymnasium.Env):  # type: ignore[misc]
    """The agent sees where it is, the level, and noise as wide as the level; its end is as many
    steps away. It pays for the end, less for each call."""

    def __init__(self) -> None:
        self.level, self.called = 1, 0
        self.observation_space = spaces.Box(-20, 20, (3,), np.float32)
        self.action_space = spaces.Discrete(2)

    def set_level(self, level: int, *, more: int = 1) -> None:
        if level < 0:
            raise ValueError("no such level")
        self.level, self.called = level, self.called + more

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.place = self.steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        self.place, self.steps = max(self.place + 2 * int(action) - 1, -9), self.steps + 1
        over = self.place >= self.level
        return self._seen(), over - 0.01 * self.called, over, self.steps >= 40, {}

    def _seen(self) -> Any:
        noise = np.clip(self.np_random.normal() * self.level, -9, 9)
        return np.array([self.place, self.level, noise], np.float32)


class Course(Callback):
    """Calls at some steps; kills the process at `kills`."""

    def __init__(self, kills: int = 0) -> None:
        self.kills = kills

    def on_batch_end(self, event: Any) -> None:
        envs = self.session.environments
        if event.env_steps in (128, 320, 704):
            envs.call("set_level", event.env_steps // 64, more=2, evaluation=event.env_steps == 320)
        if event.env_steps == 448:
            envs.set_attribute("called", 0)
        if event.env_steps == self.kills:
            os.kill(os.getpid(), signal.SIGKILL)


COURSE: dict[str, Any] = {**QUICK, "steps": 960, "envs": 4, "seed": 1, "eval_every": 256}
ON_POLICY = {"rollout": 16, "batch_size": 64}
OFF_POLICY = {"learning_starts": 64, "train_every": 16, "batch_size": 16}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "one process": ("ppo", ON_POLICY),
    "workers": ("ppo", ON_POLICY | {"workers": 2}),
    "workers that are ahead": ("dqn", OFF_POLICY | {"workers": 2, "ahead": 2}),
    "actor-learners": ("a3c", {"learners": 2, "staleness": 1, "envs": 2, "rollout": 8}),
}


@pytest.mark.parametrize("way", sampled(WAYS, ("workers that are ahead", "actor-learners")))
def test_a_resumed_run_repeats_the_calls_at_their_steps(way: str, tmp_path: Path, caplog) -> None:
    algorithm, given = WAYS[way]
    given = COURSE | given | {"callbacks": [Course()]}
    whole = finished(tandem.session(algorithm, Corridor, out=tmp_path / "whole", **given))
    assert len(whole.environments.made) == 4
    finished(tandem.session(algorithm, Corridor, out=tmp_path / "parts", **given), 512).close()
    parts = tandem.session(resume=tmp_path / "parts", env=Corridor, callbacks=[Course()])
    assert parts.environments.get_attribute("level") == [5] * 4
    assert parts.environments.get_attribute("called") == [0] * 4
    assert finished(parts).fingerprint() == whole.fingerprint()
    assert verify(tmp_path / "whole", env=Corridor).difference is None
    assert verify(tmp_path / "whole", env=Corridor, callbacks=[Course()]).difference is None
    words = ["evaluate", str(tmp_path / "whole"), "--env", f"{__name__}:Corridor"]
    assert main([*words, "--episodes", "1"]) == 0
    assert "training called set_level, called in the environment" in caplog.text


PROGRAM = """
import sys
from pathlib import Path
import tandem
from tandem.runs import observers
from tests.runs.test_curriculum import COURSE, Corridor, Course, WAYS
observers.WRITING = 1e9  # a checkpoint after each block
folder, kills = Path(sys.argv[1]), int(sys.argv[2])
given = COURSE | WAYS["workers"][1] | {"checkpoint_seconds": 0}
tandem.train("ppo", Corridor, out=folder, callbacks=[Course(kills)], **given)
"""


@pytest.mark.slow
def test_killed_within_an_episode_between_two_calls(tmp_path: Path) -> None:
    for name, kills, code in (("whole", 0, 0), ("killed", 576, -signal.SIGKILL)):
        process = child("-c", PROGRAM, str(tmp_path / name), str(kills))
        assert process.wait(timeout=120) == code, process.communicate()
    run = tandem.session(resume=tmp_path / "killed", env=Corridor, callbacks=[Course()])
    state = run.loop.collector.state()[0]
    assert any(any(part["environments"]["lengths"]) for part in state["parts"])
    assert run.loop.env_steps == 512
    finished(run)
    assert tandem.Run(tmp_path / "whole").rows()["fingerprint"][-1] == run.fingerprint()


@pytest.mark.slow
def test_a_worker_that_is_started_again_has_had_the_calls(tmp_path: Path) -> None:
    levels: list[Any] = []

    def losing(event: Any, run: Any) -> None:
        if event.env_steps == 256 and type(event).__name__ == "BatchEnd":
            os.kill(run.loop.collector.group.workers[0].process.pid, signal.SIGKILL)
        if event.env_steps == 512 and type(event).__name__ == "BatchEnd":
            levels.extend(run.environments.get_attribute(name) for name in ("level", "called"))

    given = COURSE | WAYS["workers"][1] | {"callbacks": [Course(), losing]}
    run = tandem.session("ppo", Corridor, **given)
    with pytest.warns(UserWarning, match="restarted"):
        finished(run, 512)
    assert levels == [[5] * 4, [0] * 4]


class Switch(Game):
    """Pays for the action that is right, which nothing shows."""

    observation_space, action_space = spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(4)
    length, right = 8, 0

    def observe(self) -> Any:
        return np.zeros(1, np.float32)

    def play(self, action: Any) -> tuple[float, bool]:
        return float(action == self.right), False

    def change(self, to: int) -> None:
        self.right = to


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("evaluation", [True, False])
def test_what_was_called_is_what_is_learned(workers: int, evaluation: bool) -> None:
    """The action that pays is another one after the call, which evaluations see or do not."""

    def change(event: Any, run: Any) -> None:
        if type(event).__name__ == "BatchEnd" and event.env_steps == 256:
            run.environments.call("change", 3, evaluation=evaluation)

    given = {**QUICK, "steps": 1792, "envs": 4, "rollout": 32, "batch_size": 64, "seed": 0}
    given |= {"learning_rate": 1e-2, "workers": workers, "eval_every": 256, "entropy": 0.1}
    run = finished(tandem.session("ppo", Switch, callbacks=[change], **given))
    assert run.averages.return_mean() > 5
    assert run.last_evaluation.mean == (8 if evaluation else 0)


def vector(kind: Any, num_envs: int = 4) -> Any:
    return kind([Corridor] * num_envs)


@pytest.mark.parametrize(
    "kind",
    [
        gymnasium.vector.SyncVectorEnv,
        pytest.param(gymnasium.vector.AsyncVectorEnv, marks=pytest.mark.slow),
    ],
)
def test_vectors_call_into_their_environments(kind: Any, tmp_path: Path) -> None:
    make, given = partial(vector, kind), COURSE | ON_POLICY
    run = tandem.session("ppo", make, out=tmp_path / "run", **given)
    run.environments.call("set_level", 3)
    run.environments.set_attribute("called", 7)
    assert run.environments.get_attribute("level") == [3] * 4
    finished(run, 128)
    with pytest.raises(ResumeError, match="have been closed"):
        run.environments.get_attribute("level")
    again = tandem.session(resume=tmp_path / "run", env=make)
    assert again.environments.get_attribute("called") == [7] * 4
    again.close()


def test_a_vector_with_a_state_is_resumed_after_its_calls(tmp_path: Path) -> None:
    make, given = partial(Levelled, 4, MODES[0]), COURSE | ON_POLICY | {"steps": 256}

    def change(event: Any, run: Any) -> None:
        if type(event).__name__ == "BatchEnd" and event.env_steps <= 128:
            run.environments.call("raise_pay")

    given["callbacks"] = [change]
    whole = finished(tandem.session("ppo", make, **given))
    finished(tandem.session("ppo", make, out=tmp_path / "run", **given), 100).close()
    again = tandem.session(resume=tmp_path / "run", env=make, callbacks=[change])
    assert finished(again).fingerprint() == whole.fingerprint()


class Levelled(Resumable):
    """A vector with a method of its own, which its `get_state` says nothing of."""

    pay = 0.0

    def raise_pay(self) -> None:
        self.pay += 0.25

    def step(self, actions: Any) -> Any:
        seen, reward, *rest = super().step(actions)
        return seen, np.asarray(reward) + self.pay, *rest


class Reach(gymnasium.Env):  # type: ignore[misc]
    """A point on a line that is to come near its goal; how near, `tolerance` says."""

    tolerance = 0.0

    def __init__(self) -> None:
        box = partial(spaces.Box, -9, 9, (1,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict({name: box() for name in names})
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.at, self.steps = np.zeros(1, np.float32), 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Any]:
        self.at, self.steps = self.at + np.float32(int(action) - 1), self.steps + 1
        goal = np.ones(1, np.float32)
        return (
            self._seen(),
            float(self.compute_reward(self.at, goal, {})),
            False,
            self.steps > 4,
            {},
        )

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -(np.abs(achieved - desired)[..., 0] > self.tolerance).astype(np.float32)

    def _seen(self) -> Any:
        return {"observation": self.at, "achieved_goal": self.at, "desired_goal": np.ones(1, "f4")}


def test_hindsight_judges_after_the_calls(tmp_path: Path) -> None:
    given = {**QUICK, **OFF_POLICY, "steps": 128, "envs": 1, "hindsight": "future"}
    run = tandem.session("dqn", Reach, out=tmp_path / "run", **given)
    run.environments.set_attribute("tolerance", 100.0)
    finished(run, 96).close()
    far = {"achieved_goal": np.full((2, 1), 50.0)}, np.zeros((2, 1)), {}
    again = tandem.session(resume=tmp_path / "run", env=Reach)
    assert run.loop.goals.judge(*far)[0].tolist() == [0, 0]
    assert again.loop.goals.judge(*far)[0].tolist() == [0, 0]
    again.close()


def test_what_cannot_be_called() -> None:
    run = tandem.session("ppo", Corridor, **COURSE)
    envs = run.environments
    with pytest.raises(UnknownNameError, match="did you mean 'set_level'"):
        envs.call("set_levle", 2)
    with pytest.raises(UnknownNameError, match="define xyzzy in the env"):
        envs.set_attribute("xyzzy", 2)
    several = tandem.session("ppo", partial(vector, gymnasium.vector.SyncVectorEnv), **COURSE)
    with pytest.raises(EnvironmentFault, match="AttributeError in 'color'"):
        several.environments.set_attribute("color", 2)
    several.close()
    with pytest.raises(SettingError, match=r"float\(x\), int\(x\)"):
        envs.call("set_level", np.float32(2))
    with pytest.raises(EnvironmentFault, match="ValueError in 'set_level': no such level"):
        envs.call("set_level", -1)
    assert not envs.made
    run.close()
    run = tandem.session("ppo", Corridor(), **COURSE | {"envs": 1})
    with pytest.raises(SettingError, match="evaluation=True, or other environments"):
        run.environments.call("set_level", 2)
    run.environments.call("set_level", 2, evaluation=True)
    run.close()


COMPILED = """
import json
import tandem
for how in ("compiled", "plain"):
    given = {"framework": "jax", "vectorization": how, "eval_episodes": 0}
    run = tandem.session("ppo", "tandem/CartPole-v1", **given)
    for call in (lambda: run.environments.get_attribute("gravity"),
                 lambda: run.environments.set_attribute("gravity", 1.0)):
        try:
            call()
        except tandem.errors.SettingError as error:
            print(json.dumps(str(error)))
    run.close()
"""


@pytest.mark.slow
def test_compiled_environments_refuse() -> None:
    refused = run_python(COMPILED, engine="jax")
    assert len(refused) == 4 and all("CartPole-v1 instead of tandem" in text for text in refused)
