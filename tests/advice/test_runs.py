"""The advice about runs, resumed, verified and shared, and about data sets."""

import json
import re
import shlex
import shutil
import zipfile
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest
import torch

import tandem
from tandem import algorithms, trainer
from tandem.cli import main
from tandem.learning.config import RESUMABLE, Options
from tandem.runs.folder import Run
from tandem.runs.verification import verify
from tests.advice.conftest import body, cart
from tests.advice.net import advised, follow, rows, sites
from tests.advice.worlds import installs
from tests.hub.server import TOKEN, running
from tests.test_trainer import SMALL, small


def start(env: Any = "CartPole-v1", **given: Any) -> None:
    trainer.session("ppo", env, framework="torch", **{**SMALL, **given})


SETS = {"env": "FrozenLake-v1", "env_kwargs": {"desc": {"SG"}}}
LISTS = {"env": lambda: gymnasium.make("FrozenLake-v1", desc=["SG"]), "env_kwargs": None}


@rows(
    ("trainer.py:session", start, {"seed": 2**63}),
    ("trainer.py:_as_json", start, SETS, "a callable that makes the environment", LISTS),
)
def test_what_a_run_is_given(row: Any) -> None:
    follow(*row)


def test_what_is_no_run_or_no_agent(runs: Path) -> None:
    resume = partial(trainer.session, resume=runs / "plain")
    key, given = "_changes", {"framework": "torch"}
    follow(f"trainer.py:{key}", resume, given, "leave these out", {"framework": None})
    scored = partial(tandem.evaluate, env="CartPole-v1", episodes=1, max_steps=5)
    advice = advised("trainer.py:evaluate", scored, runs / "plain")
    assert advice.fix == "give tandem.load(path), or result.agent of a run."
    agent = tandem.load(runs / "plain")
    scored(agent)
    scored(tandem.train(resume=runs / "plain").agent)
    agent.name = ""
    name = advised("animation.py:filmed", agent.play, max_steps=2).quoted()
    assert agent.play(name, max_steps=2).episodes


def test_what_cannot_be_verified(runs: Path) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.01)
    small(out=runs / "optimizer", steps=32, optimizer=optimizer)
    for name, given, more in (
        ("own", {"env": cart}, {"network": body()}),
        ("cart", {}, {"env": cart}),
        ("optimizer", {}, {"optimizer": optimizer}),
    ):
        advice, (word,) = advised("verification.py:verify", verify, runs / name, **given), more
        said = f"verify it in Python: tandem.runs.verification.verify(folder, {word}=...)."
        assert advice.fix == said
        found = verify(runs / name, **given, **more)
        assert found.rows and (found.difference is None) == (name != "own")  # of other weights
    advice = advised("verification.py:verify 2", verify, runs / "extended")
    assert "verify one that was not extended" in advice.fix
    advice = advised("verification.py:verify 4", verify, runs / "plain", steps=31)
    assert "give more --steps" in advice.fix
    assert verify(runs / "plain", steps=32).difference is None


def altered(folder: Path, **config: Any) -> None:
    """Makes the run in a folder one of another machine: its configuration, and its device."""
    file = folder / "checkpoints" / "last.zip"
    with zipfile.ZipFile(file) as read:
        parts = {name: read.read(name) for name in read.namelist()}
    data = json.loads(parts["checkpoint.json"])
    data["config"] |= config
    data["device"] = config.get("device", data["device"])
    parts["checkpoint.json"] = json.dumps(data).encode()
    with zipfile.ZipFile(file, "w") as written:
        for name, part in parts.items():
            written.writestr(name, part)
    whole = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(whole | config), encoding="utf-8")


FLAG = re.compile(r"--[a-z-]+(?: ''| [\w.]+)?")


def test_advice_on_a_machine_without_gpu_is_taken_on_resuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a program, and as flags by a command on a copy of the run."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    folder, copy = tmp_path / "run", tmp_path / "copy"
    small(stop_at=32, out=folder)
    altered(folder, device="cuda")
    shutil.copytree(folder, copy)
    advice = advised("backends/__init__.py:no_gpu", tandem.train, resume=folder)
    given = advice.assigned()[-1]
    assert set(given) <= RESUMABLE
    tandem.train(resume=folder, **given)
    flags = shlex.split(FLAG.search(advice.fix)[0])
    assert main(["train", "--resume", str(copy), *flags, "--quiet"]) == 0
    for each in (folder, copy):
        run = Run(each)
        found = run.config["options"] | run.config["settings"] | {"device": run.config["device"]}
        assert all(found[n] == x for n, x in given.items())
        assert run.column("env_steps")[-1] == run.config["settings"]["steps"]


@pytest.mark.slow
def test_several_seeds_continue_elsewhere(runs: Path) -> None:
    here, there = runs / "here", runs / "there"
    for seed in ("s0", "s1"):
        shutil.copytree(runs / "plain", here / seed)
    said = {"command": ["ppo", "CartPole-v1"], "seeds": [0, 1]}
    (here / "seeds.json").write_text(json.dumps(said), encoding="utf-8")
    words = ["--resume", str(here), "--out", str(there), "--device", "cpu", "--keep", "2"]
    assert main(["train", *words]) == 0
    for seed in ("s0", "s1"):
        assert Run(here / seed).column("env_steps")[-1] == 32
        run = Run(there / seed)
        assert run.column("env_steps")[-1] == 64 and run.config["options"]["keep"] == 2


@pytest.mark.parametrize("change", [{"device": "cpu"}, {"threads": 2}])
def test_a_run_that_is_resumed_on_other_hardware_is_not_bit_exact(change, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small(steps=96, stop_at=32, out=folder)
    if "device" in change:  # of a run with device="auto" on a machine with a GPU, too
        altered(folder, device="cuda")
        advice = advised("verification.py:verify 7", verify, folder)
        assert "on the machine that trained it" in advice.fix
    before = {"device": "cuda", "threads": 1}
    result = tandem.train(resume=folder, stop_at=64, **change)
    ((name, now),) = change.items()
    assert Run(folder).config["inexact"] == [f"{name}={now!r} after {name}={before[name]!r}"]
    assert any("no longer bit-exact" in note for note in result.notes)
    tandem.train(resume=folder)  # as it is now: nothing is added
    assert len(Run(folder).config["inexact"]) == 1
    advice = advised("verification.py:verify 5", verify, folder)
    assert "verify one that was not resumed on others" in advice.fix


ROOMS = ("runs", "learning", "parallel", "backends", "replay", "collect", "compiled", "envs")
ERROR = re.compile(r"\b\w*(?<!Setting)(?<!Space)(?<!Network)Error\(")
# Where a fix names a setting that `resume=` refuses: why no resumed run is given that advice.
NEW_RUNS_ONLY = {
    "backends/__init__.py:choose 4": "its other half: start a process with KERAS_BACKEND",
    "learning/compiled/choice.py:settled": "chooses for a new run",
    "envs/checks.py:not_resumable": "the seed of an environment's reset",
    "learning/asynchronous.py:ActorLearners.load_state": "a run has its own learners",
    "learning/launch.py:check_launched": "its other half: without the launcher",
    "learning/launch.py:find": "chooses for a new run",
    "learning/parallel/pool.py:WorkerPool.load_state": "a run has its own workers",
    "replay/allocation.py:require": "its other half: out=",
    "runs/start.py:Start._optimizer": "of starting",
    "runs/verification.py:verify 3": "of verifying",
}


def test_all_advice_of_a_resumed_run_names_what_it_takes() -> None:
    """What does not fit is refused before a run begins: a resumed run takes `RESUMABLE` alone."""
    kinds = [Options, *(algorithms.get(name).Settings for name in algorithms.NAMES)]
    known = {f.name for kind in kinds for f in fields(kind)} | {"framework", "seed", "env_kwargs"}
    refused = set()
    for key, site in sites().items():
        lines = site.path.read_text(encoding="utf-8").splitlines()[site.first - 1 : site.last]
        text = "\n".join(lines)
        if key.split("/")[0] not in ROOMS or not ERROR.search(text):
            continue
        named = re.findall(r"\b([a-z_]+)=(?!=)", text) + re.findall(r"--([a-z-]+)", text)
        settings = known & {name.replace("-", "_") for name in named}
        if settings - RESUMABLE - {"steps"}:
            refused.add(key)
    assert refused == NEW_RUNS_ONLY.keys()


def test_a_hub_that_fails(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        assert tandem.push("runs/plain", "user/ppo")
        hub.fails = True
        advice = advised("hub/api.py:told 5", tandem.pull, "user/ppo", "a")
        hub.fails = False
        assert "try again later" in advice.fix and tandem.pull("user/ppo", "a")


def test_data_sets(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str) -> None:
        raise ImportError("it needs more")

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(runs.parent / "minari"))
    monkeypatch.setattr(minari, "download_dataset", fetch)
    tandem.record("runs/plain", "ab/ppo-v0", episodes=1, max_steps=3)
    advice = advised("datasets/reading.py:_fetch", tandem.datasets.load, "ab/ppo-v1")
    assert "minari" in installs(advice.fix)
    data = tandem.datasets.load("ab/ppo-v0")
    assert np.isfinite(data[0].score)
    storage = type(data.minari.storage)
    whole = storage.get_episodes

    def shorter(self: Any, numbers: Any) -> Any:
        for each in whole(self, numbers):
            yield each | {"actions": each["actions"][:-1]}

    monkeypatch.setattr(storage, "get_episodes", shorter)
    advised("datasets/reading.py:Dataset._expect_whole", data.__getitem__, 0)
