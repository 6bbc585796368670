"""A user's environment and network by name: module:Name on the command line and in files."""

import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest

import tandem
from tandem.cli import main
from tandem.envs.factory import make
from tandem.errors import CheckpointError
from tandem.reports.animation import screen
from tests.runs.test_reading import GIVEN

SHORT = shlex.split("--framework torch --steps 64 --rollout 8 --envs 4 --no-plots")
GAME = """
import gymnasium
from tandem.testing.environments import Chain

class Line(Chain):
    def __init__(self, n: int = 5, twice: bool = False) -> None:
        super().__init__(n)
        self.twice = twice

    def step(self, action):
        seen, reward, *rest = super().step(action)
        return seen, reward * (1 + self.twice), *rest

def line(n: int = 3) -> Line:
    return Line(n)

def drawn():
    return gymnasium.make("CartPole-v1", render_mode="rgb_array")

gymnasium.register("Taken-v0", Chain, kwargs={"n": 7})
gymnasium.register("Line-v0", Chain, kwargs={"n": 7})
"""


@pytest.mark.slow
def test_a_class_of_a_module_is_an_environment_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lines.py").write_text(GAME, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = ["train", "ppo", "lines:Line", "--env-kwargs", '{"n": 4}', *SHORT, "--quiet"]
    assert main([*words, "--workers", "2", "--stop-at", "32", "--out", "a"]) == 0
    assert main(["train", "--resume", "a", "--quiet"]) == 0
    run = tandem.Run("a")
    assert run.config["env"] == "lines:Line" and run.config["env_kwargs"] == {"n": 4}
    assert run.agent().observation.sizes == (4,) and run.result["env_steps"] == 64
    assert main(["evaluate", "a", "--episodes", "2"]) == 0
    assert main(["verify", "a"]) == 0
    assert main(["evaluate", "a", "--env", "lines:line", "--env-kwargs", '{"n": 4}']) == 0
    assert make("lines:Taken-v0").unwrapped.n == 7 and make("lines:line").n == 3
    assert make("lines:Line").n == 5, "an id without its version does not hide a class"
    capsys.readouterr()
    returns = []
    for kwargs in ({}, {"twice": True}):  # the run's n stays, and no name has to be repeated
        assert main(["evaluate", "a", "--json", "--env-kwargs", json.dumps(kwargs)]) == 0
        said = json.loads(capsys.readouterr().out)
        assert said["env_kwargs"] == {"n": 4} | kwargs
        returns.append(said["mean"])
    assert returns[1] == 2 * returns[0] != 0
    agent = tandem.load("a", trust=True)
    assert tandem.evaluate(agent, "lines:Line", env_kwargs={"twice": True}).mean == returns[1]
    assert main(["evaluate", "a", "--episodes", "2", "--env-kwargs", '{"twice": true}']) == 0
    assert 'ppo lines:Line {"n": 4, "twice": true}, a/' in capsys.readouterr().out
    again = ["train", "--config", "a/config.json", "--env-kwargs", '{"n": 4}', "--quiet"]
    assert main([*again, "--out", "d"]) == 0
    with screen("lines:drawn", "rgb_array") as instance:
        assert instance.render_mode == "rgb_array"
    capsys.readouterr()
    assert main(["train", "ppo", "lines:Lin", *SHORT]) == 2
    assert "did you mean 'lines:Line'" in capsys.readouterr().err
    shutil.copytree("a", "b")
    assert main(["evaluate", "b", "--episodes", "1"]) == 2
    assert "lines:Line" in capsys.readouterr().err
    Line = sys.modules["lines"].Line
    result = tandem.train("ppo", Line, env_kwargs={"n": 6}, out="c", **GIVEN)
    assert result.agent.observation.sizes == (6,)
    assert tandem.train(resume="c", env=Line, extend=True, steps=96).agent.observation.sizes == (6,)


NETWORK = """
import torch
from torch import nn

class Body(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, 8)

    def forward(self, x):
        return torch.sin(self.hidden(x))

def body(space):
    return Body(space.shape[0])
"""


@pytest.mark.slow
def test_a_network_by_name_is_trained_resumed_evaluated_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its layers are unknown to tandem, so whatever acts has to import it."""
    (tmp_path / "nets_by_name.py").write_text(NETWORK, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    name = "nets_by_name:body"
    words = ["train", "ppo", "CartPole-v1", "--network", name, *SHORT, "--quiet"]
    assert main([*words, "--stop-at", "32", "--out", "a"]) == 0
    assert main(["train", "--resume", "a", "--quiet"]) == 0
    run = tandem.Run("a")
    assert run.config["network"] == name and not run.config["own_network"]
    assert main(["evaluate", "a", "--episodes", "2"]) == 0 and main(["verify", "a"]) == 0
    assert main(["export", "a", "--to", "onnx"]) == 0
    assert main(["train", "--config", "a/config.json", "--out", "again", "--quiet"]) == 0
    assert tandem.Run("again").table["fingerprint"] == run.table["fingerprint"]
    shutil.copytree("a", "b")
    del sys.modules["nets_by_name"]
    for words in (
        ["evaluate", "b", "--episodes", "1"],
        ["train", "--resume", "b"],
        ["verify", "b"],
    ):
        capsys.readouterr()
        assert main(words) != 0
        assert f"--network {name}" in capsys.readouterr().err
        assert "nets_by_name" not in sys.modules
    assert main(["evaluate", "b", "--episodes", "1", "--network", name]) == 0
    assert tandem.load("a").networks.keys() == {"actor"}
    capsys.readouterr()
    assert main(["train", "ppo", "CartPole-v1", "--network", "nets_by_name:bdy", *SHORT]) == 2
    assert f"did you mean '{name}'" in capsys.readouterr().err


def test_a_named_network_is_imported_only_of_this_users_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nets_of_mine.py").write_text(NETWORK, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    given = {**GIVEN, "framework": "torch", "steps": 64}
    tandem.train("ppo", "CartPole-v1", network="nets_of_mine:body", out="a", **given)
    tandem.train("ppo", "CartPole-v1", network=sys.modules["nets_of_mine"].body, out="c", **given)
    shutil.copytree("a", "b")
    del sys.modules["nets_of_mine"]
    with pytest.raises(CheckpointError, match=r"tandem.load\('b', network='nets_of_mine:body'\)$"):
        tandem.load("b")
    advised = {"evaluate b": "nets_of_mine:body", "export c --to onnx": "MODULE:FUNCTION"}
    for words, flag in advised.items():
        assert main(words.split()) == 1
        assert f"Fix: tandem {words} --network {flag}\n" in capsys.readouterr().err
    assert "nets_of_mine" not in sys.modules
    assert tandem.load("a").networks.keys() == tandem.load("b", trust=True).networks.keys()


WRAPPERS = """
import gymnasium
import numpy as np
from gymnasium import spaces

class Digits(gymnasium.ObservationWrapper):
    def __init__(self, env, n: int = 8) -> None:
        super().__init__(env)
        self.n, self.observation_space = n, spaces.Box(0, 1, (n,), np.float32)

    def observation(self, obs):
        return np.eye(self.n, dtype=np.float32)[obs]

class Doubled(gymnasium.RewardWrapper):
    def reward(self, reward):
        assert self.env.n == 6, "the first wrapper is the innermost"
        return 2 * reward
"""
DIGITS = 'digits:Digits:{"n": 6}'


@pytest.mark.slow
def test_wrappers_by_name_are_around_every_environment_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "digits.py").write_text(WRAPPERS, encoding="utf-8")
    (tmp_path / "lines.py").write_text(GAME, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    flags = ["--wrapper", DIGITS, "--wrapper", "digits:Doubled"]
    words = ["train", "ppo", "lines:Line", *flags, *SHORT, "--quiet", "--workers", "1"]
    assert main([*words, "--stop-at", "32", "--out", "a"]) == 0
    assert main(["train", "--resume", "a", "--quiet"]) == 0
    run = tandem.Run("a")
    assert run.config["env"] == "lines:Line" and run.config["wrappers"] == [DIGITS, flags[-1]]
    assert run.agent().observation.shape == (6,)
    assert main(["verify", "a"]) == 0 and main(["evaluate", "a", "--episodes", "2"]) == 0
    assert main(["train", "--config", "a/config.json", "--out", "again", "--quiet"]) == 0
    assert tandem.Run("again").table["fingerprint"] == run.table["fingerprint"]
    agent = tandem.load("a")
    both = [tandem.evaluate(agent, name, 3).returns for name in ("lines:Line", agent.trained_in)]
    assert both[0] == both[1] and all(score % 2 == 0 for score in both[0])
    shutil.copytree("a", "b")
    for words in (["evaluate", "b"], ["train", "--resume", "b"], ["verify", "b"]):
        del sys.modules["digits"]
        env = [] if words[1] == "--resume" else ["--env", "lines:Line"]
        capsys.readouterr()
        assert main([*words, *env]) != 0 and "digits" not in sys.modules
        said = capsys.readouterr().err
        assert f"--wrapper '{DIGITS}' --wrapper digits:Doubled" in said
        name = ["ppo", "lines:Line"] if words[1] == "--resume" else env
        assert main([words[0], *name, *words[1:], *flags]) == 0


@pytest.mark.parametrize(
    "wrapper, says",
    [
        ("gymnasium.wrappers:TimeLimt", "did you mean 'gymnasium.wrappers:TimeLimit'"),
        ("gymnasium.wrappers:TimeLimit:{5}", "expected a JSON object"),
        ("gymnasium.wrappers:TimeLimit", "max_episode_steps"),
        ("nowhere_at_all:Wrapper", "Fix: write MODULE:CLASS with an importable module."),
    ],
)
def test_wrappers_that_cannot_be_made_are_named(wrapper, says, capsys) -> None:
    assert main(["check", "CartPole-v1", "--wrapper", wrapper, "--steps", "10"]) == 2
    assert says in capsys.readouterr().err


def test_a_vector_and_a_compiled_run_refuse_wrappers_by_name(capsys) -> None:
    limit = ["--wrapper", 'gymnasium.wrappers:TimeLimit:{"max_episode_steps": 9}']
    vector = ["--vector", "tests.envs.vectors:Counters"]
    assert main(["check", *vector, *limit]) == 2
    assert "a vector or has no name" in capsys.readouterr().err
    for mode in ("compiled", "native"):
        words = ["train", "ppo", "tandem/CartPole-v1", *limit, *SHORT, "--vectorization", mode]
        assert main(words) == 2
        assert "Fix:" in capsys.readouterr().err


def test_a_copied_folder_of_seeds_imports_no_network_and_no_wrapper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "digits.py").write_text(WRAPPERS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("digits", None)
    for flag, name in (("--wrapper", "digits:Doubled"), ("--network", "digits:Digits")):
        words = ["ppo", "CartPole-v1", flag, name, *SHORT]
        data = {"command": words, "seeds": [0, 1], "signature": "theirs"}
        (tmp_path / "seeds.json").write_text(json.dumps(data), encoding="utf-8")
        assert main(["train", "--resume", "."]) == 2 and "digits" not in sys.modules
        assert f"{flag} {name}" in capsys.readouterr().err
