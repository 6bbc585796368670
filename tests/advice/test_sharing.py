"""The advice on following runs, on agents at play, on runs of a hub and on data sets."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import minari
import numpy as np
import pytest

import tandem
from tests.advice.installs import installs
from tests.advice.net import follows
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


def test_an_agent_that_does_not_say_where_it_played(place) -> None:
    agent = tandem.load("runs/plain")
    agent.name = ""
    with follows("animation.py:filmed") as advice:
        agent.play(max_steps=2)
    assert agent.play(advice.quoted(), max_steps=2).episodes


# --- the hub --------------------------------------------------------------------------------------


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


# --- data sets ------------------------------------------------------------------------------------


def recorded(agent: Any = "runs/plain", out: Any = "data/mine", **given: Any) -> None:
    shutil.rmtree("data", ignore_errors=True)
    tandem.record(agent, out, **{"episodes": 1, "max_steps": 3, **given})


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
