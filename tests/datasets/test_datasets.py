"""Data sets of episodes: what is written is what was played, and comes back as arrays."""

import json
import logging
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import pytest
from gymnasium import spaces

import tandem
from tandem.cli import main
from tandem.datasets.places import id_of, is_id
from tandem.errors import EngineError, RunFolderError, SettingError, SpaceError, UnknownNameError
from tandem.testing.environments import Forbidden
from tandem.types import leaves
from tests.envs.made import Made

SHORT = {"framework": "torch", "steps": 64, "eval_episodes": 0, "final_episodes": 1}


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch) -> None:
    """Minari's own place, of this test alone."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "mine"
    given = {**SHORT, "hidden": (8,), "plots": False, "seed": 4}
    tandem.train("ppo", "CartPole-v1", out=folder, **given)
    return folder


def same(first: Any, second: Any) -> bool:
    a, b = leaves(first), leaves(second)
    alike = [x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(a, b, strict=False)]
    return len(a) == len(b) and all(alike)


def test_what_is_written_comes_back(run, tmp_path, capsys) -> None:
    words = ["record", str(run), "--episodes", "4", "--seed", "7", "--out", "cartpole/ppo-v0"]
    assert main(words) == 0
    path = tmp_path / "minari" / "cartpole" / "ppo-v0"
    assert f"wrote {path}: 4 episodes" in capsys.readouterr().out
    data = tandem.datasets.load("cartpole/ppo-v0")
    played = tandem.evaluate(tandem.load(run), "CartPole-v1", 4, seed=7)
    assert [episode.score for episode in data] == played.returns
    assert [len(episode) for episode in data] == played.lengths
    assert len(data) == 4 and data.steps == sum(played.lengths)
    assert isinstance(data.observation_space, spaces.Box) and "cartpole/ppo-v0" in repr(data)
    assert "<td" in data._repr_html_()
    first, last = data[0], data[-1]
    assert first.observations.shape == (len(first) + 1, 4) and first.actions.shape == (len(first),)
    assert (first.observations.dtype, first.actions.dtype) == (np.float32, np.int64)
    assert last.number == 3 and last.ended == "terminated" and last.terminations[-1]
    env = gym.make("CartPole-v1")  # the same again, by what is stored
    seen = [env.reset(seed=first.seed)[0], *(env.step(a)[0] for a in first.actions)]
    assert np.array_equal(seen, first.observations)
    with pytest.raises(IndexError):
        data[4]


def test_a_path_from_where_one_is(run, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert tandem.record(run, "./new/mine", episodes=2).path == tmp_path / "new" / "mine"
    data = tandem.datasets.load("new/mine")
    assert len(data) == 2 and data.name == "mine-v0" and data.metadata["dataset_size"] >= 0
    assert [f.name for f in Path("new").iterdir()] == ["mine"]


def test_minari_reads_it_and_its_metadata_too(run, tmp_path) -> None:
    mine = tandem.record(run, "a/b/ppo-v3", episodes=2)
    theirs = minari.load_dataset("a/b/ppo-v3")
    assert theirs.spec.dataset_id == "a/b/ppo-v3" and theirs.spec.namespace == "a/b"
    assert "a/b/ppo-v3" in minari.list_local_datasets()
    assert theirs.recover_environment().spec.id == "CartPole-v1"
    for a, b in zip(mine, theirs.iterate_episodes(), strict=True):
        assert same(a.observations, b.observations) and same(a.rewards, b.rewards)
    data = tandem.record(run, tmp_path / "mine", episodes=2, seed=5, deterministic=False)
    said, words = data.metadata["tandem"], "--episodes 2 --seed 5 --no-deterministic"
    assert data.name == "mine-v0" and data.metadata["algorithm_name"] == "ppo"
    assert said["train"].startswith("tandem train ppo CartPole-v1 --framework torch --seed 4")
    assert (said["seed"], said["train_seed"], said["algorithm"]) == (5, 4, "ppo")
    assert said["record"] == f"tandem record DIR {words} --out mine-v0"
    assert said["versions"]["tandem-rl"] and str(tmp_path) not in json.dumps(data.metadata)


def test_their_number_changes_none_and_actions_are_drawn_where_asked(run, tmp_path, capsys) -> None:
    kept = []
    for best in (True, False):
        few, many = (
            tandem.record(run, tmp_path / f"{best} {n}", episodes=n, deterministic=best)
            for n in (2, 5)
        )
        for a, b in zip(few, list(many)[:2], strict=True):
            assert a.seed == b.seed and same(a.observations, b.observations)
            assert same(a.actions, b.actions)
        assert len({len(episode) for episode in many}) > 1
        kept.append(many)
    assert any(not same(a.actions, b.actions) for a, b in zip(*kept, strict=True))
    for words in ([], ["--no-deterministic"]):
        assert main(["evaluate", str(run), "--episodes", "5", "--json", *words]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [s["deterministic"] for s in said] == [True, False]
    assert said[0]["returns"] == [e.score for e in kept[0]] != said[1]["returns"]


SPACES = {
    "vector": spaces.Box(-1, 1, (3,)),
    "picture": spaces.Box(0, 255, (40, 36, 3), np.uint8),
    "discrete": spaces.Discrete(5),
    "several": spaces.MultiDiscrete([2, 3]),
    "bits": spaces.MultiBinary(4),
    "dictionary": spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Dict({"c": spaces.Discrete(2)})),
    "tuple": spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Discrete(3))),
}
ACTIONS = {
    "box": spaces.Box(-2, 2, (2,)),
    "matrix": spaces.Box(-2, 2, (2, 2)),
    "several": spaces.MultiDiscrete([2, 3]),
    "bits": spaces.MultiBinary(3),
    "dictionary": spaces.Dict({"x": spaces.Discrete(2), "y": spaces.Box(-1, 1, (1,))}),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (2,)))),
}


class Chance:
    """Called as Stable-Baselines3 calls its models; acts by chance."""

    def __init__(self, space: Any) -> None:
        self.space, self.starts = space, list[Any]()
        self.space.seed(0)

    def predict(self, observation: Any, state: Any, episode_start: Any, deterministic: bool) -> Any:
        self.starts.append((state, bool(episode_start[0])))
        return self.space.sample(), (state or 0) + 1


def recorded(env: Made, tmp_path: Path, episodes: int = 2) -> tuple[Any, Chance]:
    agent = Chance(env.action_space)
    return tandem.record(agent, tmp_path / "a", env=env, episodes=episodes), agent


ROWS = [*((x, None) for x in SPACES.values()), *((SPACES["vector"], x) for x in ACTIONS.values())]


@pytest.mark.parametrize(
    "observation, action", ROWS, ids=[*SPACES, *(f"{name} actions" for name in ACTIONS)]
)
def test_every_kind_of_space(tmp_path, observation, action) -> None:
    env = Made(observation, action)
    data, agent = recorded(env, tmp_path)
    assert data.observation_space == observation and data.action_space == env.action_space
    for episode, (seen, taken) in zip(data, env.log[-2:], strict=True):
        assert all(len(x) == 6 for x in leaves(episode.observations))
        for i in range(5):
            assert same(_at(episode.observations, i), seen[i])
            assert same(_at(episode.actions, i), taken[i])
        assert list(episode.rewards) == [1, 2, 3, 4, 5] and episode.score == 15
    assert agent.starts[:2] == [(None, True), (1, False)] and agent.starts[5] == (None, True)
    again = tandem.datasets.load(tmp_path / "a" / "data")
    assert same(again[1].observations, data[1].observations)


def _at(tree: Any, i: int) -> Any:
    if isinstance(tree, dict):
        return {k: _at(v, i) for k, v in tree.items()}
    return tuple(_at(v, i) for v in tree) if isinstance(tree, tuple) else tree[i]


@pytest.mark.parametrize(
    "algorithm, observation, action, more",
    [
        ("ppo", "dictionary", "box", {}),
        ("ppo", "tuple", "dictionary", {}),
        ("ppo", "picture", "tuple", {"rollout": 32, "batch_size": 64, "epochs": 1}),
        ("ppo", "vector", "matrix", {"recurrent": 4, "sequence": 4}),
        ("ddpg", "vector", "box", {"learning_starts": 32, "batch_size": 8, "train_every": 2}),
        ("dqn", "several", None, {"learning_starts": 32, "batch_size": 8}),
    ],
)
def test_every_kind_of_agent(tmp_path, algorithm, observation, action, more) -> None:
    make = partial(Made, SPACES[observation], ACTIONS.get(action))
    given = {**SHORT, "hidden": (8,), **more, "envs": 2, "plots": False}
    agent = tandem.train(algorithm, make, **given).agent
    for best in (True, False):
        how = {"env": make, "episodes": 3, "deterministic": best, "max_steps": 4}
        data = tandem.record(agent, tmp_path / str(best), **how)
        assert len(data) == 3 and data.steps == 12
        assert {episode.ended for episode in data} == {"truncated"}
        state, obs = None, data[1].observations
        for i in range(4 if best else 0):  # a memory begins anew with each episode
            taken, state = agent.predict(_at(obs, i), state, deterministic=True)
            assert same(_at(data[1].actions, i), taken)


def test_how_an_episode_ended(tmp_path) -> None:
    data, _ = recorded(Made(SPACES["vector"]), tmp_path, episodes=8)
    for episode in data:
        odd = bool(episode.seed % 2)
        assert (episode.terminations[-1], episode.truncations[-1]) == (not odd, odd)
        assert not episode.terminations[:-1].any() and not episode.truncations[:-1].any()
    assert {episode.ended for episode in data} == {"terminated", "truncated"}


@pytest.mark.slow
def test_masks_are_a_part_of_what_is_seen(tmp_path) -> None:
    agent = tandem.train("ppo", Forbidden, **SHORT, plots=False).agent
    data = tandem.record(agent, tmp_path / "a", env=Forbidden, episodes=2, deterministic=False)
    for episode in data:
        masks = episode.observations["action_mask"]
        assert masks.shape == (len(episode) + 1, data.action_space.n)
        assert masks[np.arange(len(episode)), episode.actions].all()


@pytest.mark.parametrize(
    "space, text",
    [
        (spaces.Sequence(spaces.Discrete(2)), "Minari stores"),
        (spaces.Dict({"a/b": spaces.Discrete(2)}), "without a slash"),
        (spaces.Dict({"": spaces.Discrete(2)}), "without a slash"),
        (spaces.Dict({"a": spaces.Tuple((spaces.Dict({"x/y": spaces.Discrete(2)}),))}), "'x/y'"),
    ],
)
def test_spaces_that_cannot_be_stored(tmp_path, space, text) -> None:
    env = Made(space)
    with pytest.raises(SpaceError, match=text):
        recorded(env, tmp_path)
    assert list(tmp_path.iterdir()) == [] and env.log == []


def test_what_is_refused(run, tmp_path, capsys) -> None:
    agent, out = tandem.load(run), tmp_path / "a"
    for error, text, who, where, given in (
        (SpaceError, "several agents", agent, out, {"env": "mpe/simple_spread_v3"}),
        (SettingError, "not name its training environment", Chance(spaces.Discrete(2)), out, {}),
        (SettingError, "give tandem.load", 3, out, {}),
        (SettingError, "out=", agent, "", {}),
        (SettingError, "episodes", agent, out, {"episodes": 0}),
        (SpaceError, r"shape \(3,\)", agent, out, {"env": "Pendulum-v1", "episodes": 1}),
    ):
        with pytest.raises(error, match=text):
            tandem.record(who, where, **given)
    assert list(tmp_path.iterdir()) == []
    out.mkdir()
    (out / "b").touch()
    for place, text in ((out, "exists and is not empty"), (out / "b" / "c", "cannot write")):
        assert main(["record", str(run), "--episodes", "1", "--out", str(place)]) == 2
        assert text in capsys.readouterr().err


def test_what_cannot_be_loaded(run, tmp_path, monkeypatch) -> None:
    data = tandem.record(run, "cartpole/ppo-v0", episodes=1)
    with pytest.raises(UnknownNameError, match="there is no data set './none'"):
        tandem.datasets.load("./none")
    with pytest.raises(UnknownNameError, match="did you mean|an id ends in a version"):
        tandem.datasets.load("cartpole/ppo-v1", download=False)

    log, said = logging.getLogger("huggingface_hub.utils._http"), list[str]()
    monkeypatch.setattr(log, "handle", lambda record: said.append(record.getMessage()))

    def fail(name: str) -> None:
        log.warning("retrying in 1 s")
        raise ConnectionError(f"no network for {name}")

    monkeypatch.setattr(minari, "download_dataset", fail)
    with pytest.raises(
        tandem.errors.HubError, match="(?s)no network.*did you mean cartpole/ppo-v0"
    ):
        tandem.datasets.load("cartpole/ppo-v1")
    assert said == [], "one message is enough"
    log.warning("as before")
    assert said == ["as before"]

    def fetch(name: str) -> None:
        shutil.copytree(data.path, data.path.with_name("ppo-v1"))

    monkeypatch.setattr(minari, "download_dataset", fetch)
    assert len(tandem.datasets.load("cartpole/ppo-v1")) == 1
    (data.path / "data" / "metadata.json").write_text("{}")
    with pytest.raises(RunFolderError, match="cannot read the data set"):
        tandem.datasets.load("cartpole/ppo-v0")
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(EngineError, match=r"pip install 'tandem-rl\[data\]'"):
        tandem.record(run, tmp_path / "a")
    with pytest.raises(EngineError, match=r"pip install 'tandem-rl\[data\]'"):
        tandem.datasets.load(tmp_path / "a")


@pytest.mark.parametrize(
    "name, known, called",
    [
        ("cartpole/ppo-v0", True, "cartpole/ppo-v0"),
        ("ppo-v12", True, "ppo-v12"),
        ("./ppo-v0", False, "ppo-v0"),
        ("ab/ppo-v0", True, "ab/ppo-v0"),
        ("a/ppo-v0", False, "ppo-v0"),
        ("/data/my set", False, "my-set-v0"),
        ("data/mine", False, "mine-v0"),
    ],
)
def test_ids_and_paths(name, known, called) -> None:
    assert is_id(name) == known and id_of(name) == called
