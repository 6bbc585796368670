"""The examples of the cluster API and the programs of its pages run: here, and by Ray."""

import argparse
import importlib
import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from tandem.examples import cluster
from tandem.examples.cluster.common import VectorEnv
from tests.helpers import ROOT, run_python
from tests.pages import blocks

PAGE = (ROOT / "docs" / "advanced" / "cluster.md").read_text("utf-8")
(PROGRAM,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FOLDER = Path(next(iter(cluster.__path__)))
NAMES = sorted({path.stem for path in FOLDER.glob("*.py")} - {"__init__", "common"})
FEW = {"ppo_discrete": 1_024, "ppo_continuous": 4_096, "trpo": 1_024, "mappo": 800}
FEW |= dict.fromkeys(("maddpg", "qmix", "vdn"), 2_080)
# these begin to learn after a thousand
FEW |= dict.fromkeys(("dqn", "ddpg", "td3", "sac", "own_agent"), 1_200)


def example(name: str) -> Any:
    return importlib.import_module(f"tandem.examples.cluster.{name}")


def test_every_algorithm_that_is_promised_has_its_example() -> None:
    promised = "dqn ppo_discrete ppo_continuous ddpg sac trpo td3 maddpg mappo qmix vdn own_agent"
    assert sorted(promised.split()) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_runs_in_this_process_until_it_has_learned_a_little(name, monkeypatch, capsys) -> None:
    module, made = example(name), {}
    make = module.cluster.make_agent
    monkeypatch.setattr(
        module.cluster, "make_agent", lambda *a, **k: made.update(agent=make(*a, **k)[0])
    )
    monkeypatch.setattr(module.cluster, "namespace", f"test-{name}")  # an agent of its own
    args = module.settings("--local", "--framework", "torch", "--steps", str(FEW[name]))
    scores = module.main(module.cluster, module.GymRunner, args)
    assert len(scores) == 1 and scores[0] == scores[0]
    said = capsys.readouterr().out
    assert re.search(r"runner 0: mean return of the last 20 of \d+ episodes: -?\d", said)
    if name == "own_agent":
        assert len(made["agent"].replay_buffer) == FEW[name]
    else:
        assert FEW[name] <= made["agent"].env_steps < FEW[name] + 500 and made["agent"].updates > 0


class Counting(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 9, (1,), np.float32)

    def __init__(self, length: int, limit: bool) -> None:
        self.length, self.limit, self.seeds, self.count = length, limit, [], 0

    def reset(self, *, seed=None, options=None):
        self.seeds.append(seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        over = self.count == self.length
        ended = over and not self.limit, over and self.limit
        return np.full(1, self.count, np.float32), float(action), *ended, {}


def test_environments_side_by_side_show_how_an_episode_ended_and_begin_anew() -> None:
    envs = [Counting(2, limit=False), Counting(3, limit=True)]
    left = iter(envs)
    args = argparse.Namespace(envs=4, runners=2, steps=40, seed=100)
    vector = VectorEnv(lambda: next(left), args, rank=1)
    assert (vector.n, vector.steps, [e.seeds for e in envs]) == (2, 10, [[102], [103]])
    seen = []
    for _ in range(3):
        before = vector.states[:, 0].tolist()
        after, rewards, done, truncated = vector.step([1, 10])
        assert rewards.tolist() == [1, 10]
        seen.append((before, after[:, 0].tolist(), done.tolist(), truncated.tolist()))
    assert seen == [
        ([0, 0], [1, 1], [False, False], [False, False]),
        ([1, 1], [2, 2], [True, False], [False, False]),
        ([0, 2], [1, 3], [False, True], [False, True]),
    ]
    assert vector.states[:, 0].tolist() == [1, 0] and vector.returns == [2, 30]
    assert [e.seeds for e in envs] == [[102, None], [103, None]]


BY_RAY = """
import contextlib, importlib, io, json, os, sys
import ray

ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False)
module = importlib.import_module(f"tandem.examples.cluster.{sys.argv[1]}")
args = module.settings("--framework", "torch", "--runners", "2", *sys.argv[2:])
with contextlib.redirect_stdout(io.StringIO()):
    scores = module.main(module.cluster, module.GymRunner, args)
print(json.dumps(scores))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [n if n == "qmix" else pytest.param(n, marks=pytest.mark.thorough) for n in NAMES]
)
def test_it_runs_by_ray_with_two_runners(name: str, ray_address: str) -> None:
    steps, env = ("--steps", str(FEW[name])), {"RAY_ADDRESS": ray_address}
    (scores,) = run_python(BY_RAY, name, *steps, timeout=200, env=env)
    assert len(scores) == 2 and all(x == x for x in scores)


@pytest.mark.slow
def test_the_program_runs_on_a_cluster(ray_address: str) -> None:
    printed = r"print(__import__('json').dumps([\1]))"
    code = re.sub(r"print\((.*)\)$", printed, PROGRAM, flags=re.MULTILINE)
    code = code.replace("steps=5_000", "steps=500")
    one, other, evaluation = run_python(code, timeout=200, env={"RAY_ADDRESS": ray_address})
    assert one[0] > 3 and other[0] > 3 and evaluation[0] > 5


@pytest.mark.slow
@pytest.mark.thorough
def test_the_tutorials_program_runs_on_a_cluster(ray_address: str) -> None:
    page = (ROOT / "docs" / "tutorials" / "cluster.md").read_text("utf-8")
    *_, program = (block.text for block in blocks(page) if block.language == "python")
    assert "range(20_000)" in program
    program = program.replace("range(20_000)", "range(600)")
    steps, score = run_python(program, timeout=280, env={"RAY_ADDRESS": ray_address})
    assert len(steps) == 2 and max(steps) > 200 and score > 5


@pytest.mark.learns
@pytest.mark.parametrize("name, least", [("dqn", 400), ("ppo_discrete", 475), ("own_agent", -250)])
def test_it_learns_in_this_process(name, least, monkeypatch) -> None:
    module = example(name)
    monkeypatch.setattr(module.cluster, "namespace", f"learns-{name}")
    (score,) = module.main(module.cluster, module.GymRunner, module.settings("--local"))
    assert score >= least
