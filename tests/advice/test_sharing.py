"""The advice on following runs, on agents at play, on runs of a hub and on data sets."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from typing import Any

import gymnasium
import huggingface_hub
import minari
import numpy as np
import pytest
from gymnasium import spaces

import tandem
from tandem.cli import watch
from tandem.cli.live import live
from tests.advice.installs import installs
from tests.advice.net import case, excepted, follows
from tests.datasets.test_datasets import Chance, World
from tests.hub.server import TOKEN, running


@pytest.fixture
def hub(monkeypatch):
    with running() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server


@pytest.fixture
def place(runs, monkeypatch) -> Path:
    """Runs that may be damaged, with a place of Minari's own."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(runs.parent / "minari"))
    return Path("runs")


# --- following, and playing -----------------------------------------------------------------------


def test_watch_live(place) -> None:
    watch_live = ["--live", "runs/plain"]
    with follows("cli/live.py:live") as advice:
        watch.run([*watch_live, "--every", "0"])
    assert watch.run([*watch_live, *advice.fix.removeprefix("try ").rstrip(".").split()]) == 0
    with follows("cli/watch.py:_follow") as advice:
        watch.run([*watch_live, "--episodes", "3"])
    assert "leave them out" in advice.fix and watch.run(watch_live) == 0
    with follows("cli/watch.py:run") as advice:
        watch.run(["runs/plain", "--every", "1"])
    assert "add --live" in advice.fix and watch.run([*watch_live, "--every", "1"]) == 0
    assert live(Path("runs/plain"), 1.0, stream=io.StringIO()) == 0


def test_an_agent_that_does_not_say_where_it_played(place) -> None:
    agent = tandem.load("runs/plain")
    agent.name = ""
    with follows("animation.py:filmed") as advice:
        agent.play(max_steps=2)
    assert agent.play(advice.quoted(), max_steps=2).episodes


# --- the hub --------------------------------------------------------------------------------------


def test_names_of_repositories(hub, place) -> None:
    with follows("hub/api.py:told") as advice:
        tandem.push("runs/plain", "no such name")
    assert tandem.push("runs/plain", advice.quoted()).url
    with follows("hub/api.py:told 3") as advice:
        tandem.pull("user/ppo", "a")
    assert "check the name" in advice.fix and tandem.pull(f"user/{'ppo-CartPole-v1'}", "a")
    with follows("hub/api.py:told 2") as advice:
        tandem.pull("user/ppo-CartPole-v1", "b", revision="v7")
    assert "leave it out" in advice.fix and tandem.pull("user/ppo-CartPole-v1", "b")


def test_who_may_write(hub, place, monkeypatch) -> None:
    with follows("hub/api.py:told 4") as advice:
        monkeypatch.setenv("HF_TOKEN", "hf_another")
        tandem.push("runs/plain", "user/ppo")
    assert "set HF_TOKEN" in advice.fix
    with monkeypatch.context() as without, follows("hub/api.py:expect_token") as advice:
        without.setattr(huggingface_hub, "get_token", lambda: None)
        tandem.push("runs/plain", "user/ppo")
    assert "set HF_TOKEN" in advice.fix
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert tandem.push("runs/plain", "user/ppo").url


def test_a_hub_that_fails(hub, place, monkeypatch) -> None:
    hub.fails = True
    with follows("hub/api.py:told 5") as advice:
        tandem.pull("user/ppo", "a")
    hub.fails = False
    assert "try again later" in advice.fix
    with monkeypatch.context() as away, follows("hub/api.py:_unreachable") as advice:
        away.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
        tandem.pull("user/ppo", "a")
    assert "HF_ENDPOINT" in advice.fix
    assert tandem.push("runs/plain", "user/ppo") and tandem.pull("user/ppo", "a")


def test_their_libraries(place, monkeypatch) -> None:
    for key, module, call in (
        ("hub/api.py:library", "huggingface_hub", lambda: tandem.pull("user/a", "a")),
        ("datasets/places.py:library", "minari", lambda: tandem.datasets.load("a-v0")),
    ):
        with monkeypatch.context() as without, follows(key) as advice:
            without.setitem(sys.modules, module, None)
            call()
        assert module in installs(advice.fix)


def test_what_is_pulled(hub, place) -> None:
    tandem.push("runs/plain", "user/ppo")
    (_, _, files) = hub.repos["user/ppo"][0]
    with follows("hub/pulling.py:pull") as advice:
        tandem.pull("user/ppo", "a", max_gb=-1)
    (fix,) = advice.assigned()
    assert tandem.pull("user/ppo", "a", **fix)
    with follows("hub/pulling.py:checked") as advice:
        tandem.pull("user/ppo", "b", max_gb=1e-6)
    (fix,) = advice.assigned()
    assert tandem.pull("user/ppo", "b", **fix)
    hub.commit("user/other", "", {"model.onnx": b""})
    with follows("hub/pulling.py:checked 2") as advice:
        tandem.pull("user/other", "c")
    assert "check the name" in advice.fix
    hub.commit("user/bad", "", files | {"policy.pkl": b""})
    with follows("hub/pulling.py:_unsafe") as advice:
        tandem.pull("user/bad", "c")
    assert "push the run again" in advice.fix and not Path("c").exists()


def test_what_is_pushed(hub, place) -> None:
    with follows("hub/pushing.py:_the_run") as advice:
        tandem.push("runs", "user/ppo")
    named = advice.fix.removeprefix("push one of them: ").removesuffix(", say.")
    shutil.copytree(named, "kept")
    assert tandem.push(named, "user/ppo")
    shutil.rmtree("runs/plain/checkpoints")
    with follows("hub/pushing.py:_the_run 2") as advice:
        tandem.push("runs/plain", "user/ppo")
    assert "train it for a while" in advice.fix
    shutil.copytree("runs/extended", "again")
    Path("again/result.json").write_text("{", encoding="utf-8")
    with follows("runs/folder.py:expect_json") as advice:
        tandem.push("again", "user/ppo")
    assert "resume the run" in advice.fix
    tandem.train(resume="again", steps=96, extend=True)
    assert tandem.push("again", "user/ppo")


def test_a_run_that_was_pulled_goes_on_where_it_was_resumable(hub, place) -> None:
    tandem.push("runs/plain", "user/ppo")
    with follows("runs/resume.py:_last") as advice:
        tandem.train(resume=tandem.pull("user/ppo", "a"))
    assert "push and pull it again so" in advice.fix
    tandem.push("runs/plain", "user/ppo", resumable=True)
    assert tandem.train(resume=tandem.pull("user/ppo", "b")).summary["env_steps"] >= 64


excepted(
    "hub/public.py:copy_checkpoint",
    "hub/pulling.py:_check_files",
    because="the disk is full while a copy is written, or a hub that lists other sizes than it has",
)


# --- data sets ------------------------------------------------------------------------------------


def recorded(agent: Any = "runs/plain", out: Any = "data/mine", **given: Any) -> None:
    shutil.rmtree("data", ignore_errors=True)
    tandem.record(agent, out, **{"episodes": 1, "max_steps": 3, **given})


class Inner(gymnasium.ObservationWrapper):  # type: ignore[misc]
    """Entries with other names."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = spaces.Dict({"a": spaces.Discrete(2)})

    def observation(self, observation: Any) -> Any:
        return {"a": 1}


SLASH = World(spaces.Dict({"a/b": spaces.Discrete(2)}))
OTHER = World(spaces.Sequence(spaces.Discrete(2)))
BY_CHANCE = Chance(spaces.Discrete(3))


@pytest.mark.parametrize(
    "case",
    [
        case("datasets/places.py:as_name", recorded, {"out": 5}, "out='./data/mine'"),
        case(
            "datasets/recording.py:_source",
            recorded,
            {"agent": 5},
            "path itself",
            {"agent": "runs/plain"},
        ),
        case(
            "datasets/recording.py:_source 2",
            recorded,
            {"agent": "runs/cart"},
            "give it: env=",
            {"env": lambda: gymnasium.make("CartPole-v1")},
        ),
        case(
            "datasets/recording.py:_source 3",
            recorded,
            {"agent": Chance(spaces.Discrete(2))},
            "env='CartPole-v1'",
            {"env": "CartPole-v1"},
        ),
        case(
            "datasets/recording.py:expect_storable",
            recorded,
            {"agent": Chance(spaces.Discrete(2)), "env": "mpe/simple_spread_v3"},
            "an environment of one agent",
            {"env": "CartPole-v1"},
        ),
        case(
            "datasets/recording.py:expect_storable 2",
            recorded,
            {"agent": BY_CHANCE, "env": SLASH},
            "rename it",
            {"env": Inner(SLASH)},
        ),
        case(
            "datasets/recording.py:expect_storable 3",
            recorded,
            {"agent": BY_CHANCE, "env": OTHER},
            "a wrapper",
            {"env": Inner(OTHER)},
        ),
    ],
)
def test_what_is_recorded(place, case) -> None:
    case.follow()


def test_where_it_is_recorded(place) -> None:
    recorded()
    with follows("datasets/recording.py:_written") as advice:
        tandem.record("runs/plain", "data/mine", episodes=1)
    assert "choose another" in advice.fix
    Path("file").touch()
    with follows("runs/atomic_files.py:writing") as advice:
        recorded(out="file/mine")
    assert "choose another" in advice.fix
    recorded(out="data/other")


def test_what_is_loaded(place, monkeypatch) -> None:
    recorded(out="ab/ppo-v0")
    load = tandem.datasets.load
    with follows("datasets/reading.py:load") as advice:
        load("ab/ppo")
    assert "an id ends in a version, as in cartpole/ppo-v0" in advice.fix and load("ab/ppo-v0")
    with follows("datasets/reading.py:load 2"):
        load("ab/ppo-v1", download=False)

    def fails(error: Exception) -> Any:
        def fail(name: str) -> None:
            raise error

        return fail

    monkeypatch.setattr(minari, "download_dataset", fails(ImportError("it needs more")))
    with follows("datasets/reading.py:_fetch") as advice:
        load("ab/ppo-v1")
    assert "minari" in installs(advice.fix)
    monkeypatch.setattr(minari, "download_dataset", fails(OSError("no network")))
    with follows("datasets/reading.py:_fetch 2") as advice:
        load("ab/ppo-v1")
    assert "did you mean ab/ppo-v0" in advice.fix
    data = load("ab/ppo-v0")
    storage = type(data.minari.storage)
    whole = storage.get_episodes

    def shorter(self: Any, numbers: Any) -> Any:
        for each in whole(self, numbers):
            yield each | {"actions": each["actions"][:-1]}

    with monkeypatch.context() as damaged, follows("datasets/reading.py:Dataset._expect_whole"):
        damaged.setattr(storage, "get_episodes", shorter)
        data[0]
    (data.path / "data" / "main_data.hdf5").unlink()
    with follows("datasets/reading.py:_opened") as advice:
        load("ab/ppo-v0")
    assert "record it again" in advice.fix
    shutil.rmtree(data.path)
    recorded(out="ab/ppo-v0")
    assert np.isfinite(load("ab/ppo-v0")[0].score)
