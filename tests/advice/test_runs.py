"""The advice of `runs` and of the trainer door."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import tandem
from tandem import trainer, zoo
from tandem.cli import main
from tandem.runs import checkpoint, config_file, folder, verification, writers
from tandem.runs.autosave import Policy
from tandem.runs.callbacks import Callback, EarlyStop, LambdaCallback, TimeLimit
from tests.advice.conftest import body, cart
from tests.advice.net import case, excepted, follows
from tests.advice.worlds import without
from tests.helpers import held
from tests.runs.test_writers import FakeMlflow
from tests.test_trainer import SMALL, small


def done(fix: str, **names: Any) -> Any:
    """What the program in a fix gives, with `...` for the one name that it leaves out."""
    (value,) = names.values()
    code = fix[fix.index("tandem.") :].rstrip(".").replace("...", "it")
    return eval(code, {"tandem": tandem, "it": value})


# Settings of a run, and of what it is given


def policy(**given: Any) -> None:
    Policy(**given).check()


def start(**given: Any) -> None:
    trainer.session("ppo", "CartPole-v1", framework="torch", **{**SMALL, **given})


def begin(algorithm: Any = None, env: Any = None, **given: Any) -> None:
    trainer.session(algorithm, env, framework="torch", **{**SMALL, **given})


def scored(agent: Any) -> None:
    tandem.evaluate(agent, "CartPole-v1", 1, max_steps=5)


@pytest.mark.parametrize(
    "case",
    [
        case("runs/autosave.py:Policy.check", policy, {"path": 3}),
        case("runs/autosave.py:Policy.check 2", policy, {"path": "a.dat", "save_freq": 0}),
        case("runs/callbacks.py:EarlyStop.__init__", EarlyStop, {"criterion": 1.0, "episodes": 0}),
        case("runs/callbacks.py:EarlyStop.__init__ 2", EarlyStop, {"criterion": "high"}),
        case("runs/callbacks.py:TimeLimit.__init__", TimeLimit, {"seconds": 0}),
        case(
            "runs/callbacks.py:LambdaCallback.__init__",
            LambdaCallback,
            {"on_checkpoint": 3},
            "on_checkpoint=lambda event: print(event)",
            {"on_checkpoint": lambda event: print(event)},
        ),
        case(
            "runs/callbacks.py:listed",
            start,
            {"callbacks": 3},
            "callbacks=[lambda event: print(event)], or callbacks=[EarlyStop(475)]",
            {"callbacks": [lambda event: print(event), EarlyStop(475)]},
        ),
        case(
            "runs/callbacks.py:listed 2",
            start,
            {"callbacks": [lambda: None]},
            "callbacks=[lambda event: print(event)], or an instance of Callback",
            {"callbacks": [lambda event: print(event)]},
        ),
        case(
            "trainer.py:session",
            begin,
            {},
            "train('ppo', 'CartPole-v1')",
            {"algorithm": "ppo", "env": "CartPole-v1"},
        ),
        case(
            "trainer.py:_refuse_of_resumed",
            start,
            {"extend": True},
            "or leave it out",
            {"extend": False},
        ),
        case("trainer.py:session 2", start, {"seed": 2**63}),
        case(
            "trainer.py:_config",
            start,
            {"cluster": "auto"},
            "or leave cluster out",
            {"cluster": ""},
        ),
        case(
            "trainer.py:_as_json",
            begin,
            {"algorithm": "ppo", "env": "FrozenLake-v1", "env_kwargs": {"desc": {"SG"}}},
            "a callable that makes the environment",
            {
                "env": lambda: gymnasium.make("FrozenLake-v1", desc=["SG"]),
                "env_kwargs": None,
            },
        ),
    ],
)
def test_advice_on_what_a_run_is_given(case) -> None:
    case.follow()


def test_mistyped_settings_and_methods() -> None:
    with follows("zoo/owners.py:refuse") as advice:
        start(gama=0.9)
    start(**{advice.quoted(): 0.9})
    with follows("zoo/__init__.py:entry") as advice:
        start(entry="fast")
    assert advice.fix == "leave entry out."
    start()
    with follows("zoo/__init__.py:entry") as advice:
        start(entry="rainbow")
    assert advice.fix == "leave entry out, or train dqn, which has it."
    zoo.entry("dqn", "CartPole-v1", "rainbow")
    with follows("zoo/__init__.py:entry") as advice:
        zoo.entry("dqn", "PongNoFrameskip-v4", "rainbw")
    assert zoo.entry("dqn", "PongNoFrameskip-v4", advice.quoted())
    with follows("runs/callbacks.py:refuse_other_hooks") as advice:
        type("Mine", (Callback,), {"on_epsode_end": print})
    type("Mine", (Callback,), {advice.quoted(): print})


def test_a_path_is_no_agent(runs) -> None:
    with follows("trainer.py:evaluate") as advice:
        scored(runs / "plain")
    scored(done(advice.fix.partition(",")[0].replace("path", "..."), path=runs / "plain"))
    assert "or result.agent of a run" in advice.fix
    scored(tandem.train(resume=runs / "plain").agent)


# Folders and files


@pytest.mark.parametrize("name", ["plan", "elsewhere/run"])
def test_folders_that_are_none(runs, name) -> None:
    for key, of in (
        ("runs/folder.py:read_run", folder.read_run),
        ("runs/folder.py:run_folder 2", folder.run_folder),
    ):
        with follows(key) as advice:
            of(runs / name)
        if name == "plan":
            of(Path(advice.fix.removeprefix("did you mean ").split(" or ")[0].rstrip("?")))
        else:
            assert "`tandem train ALGORITHM ENV --out DIR`" in advice.fix
    if name != "plan":
        small(out=runs / name, steps=32)
        assert folder.read_run(runs / name).folder == folder.run_folder(runs / name)


def test_a_folder_of_runs_is_none(runs) -> None:
    with follows("runs/folder.py:read_run 2") as advice:
        folder.read_run(runs)
    told = advice.fix.removeprefix("did you mean ").rstrip("?").split(" or ")
    assert {Path(name).name for name in told} == {"plain", "own", "cart", "extended"}
    assert all(folder.read_run(Path(name)) for name in told)


def test_a_run_without_rows(runs) -> None:
    table = runs / "plain" / "progress.csv"
    table.write_text(table.read_text(encoding="utf-8").splitlines(keepends=True)[0])
    with follows("runs/folder.py:read_run 3") as advice:
        folder.read_run(runs / "plain")
    assert "train it for a while (resume=" in advice.fix
    tandem.train(resume=runs / "plain")
    folder.read_run(runs / "plain")


@pytest.mark.parametrize(
    "text, key", [("torn {", "runs/folder.py:expect_json"), ("[]", "runs/folder.py:expect_json 2")]
)
def test_a_config_that_is_damaged(runs, text, key) -> None:
    file = runs / "plain" / "config.json"
    whole = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(text)
    with follows(key) as advice:
        folder.read_run(runs / "plain")
    assert "resume the run, which writes it anew" in advice.fix
    tandem.train(resume=runs / "plain")
    again = folder.read_run(runs / "plain").config
    assert again.pop("signature") and whole.pop("signature") and again == whole


def test_a_folder_that_is_taken(runs) -> None:
    with follows("runs/folder.py:new_folder") as advice:
        small(out=runs / "plain")
    choices, _, place = advice.fix.partition(" --resume ")
    assert "choose another, or go on with it" in choices
    tandem.train(resume=place)
    small(out=runs / "another", steps=32)
    with follows("runs/folder.py:new_folder") as advice:
        small(out=runs)  # holds runs, and is none: there is nothing to go on with
    assert advice.fix == "choose another."


def test_a_table_that_somebody_wrote_into(runs) -> None:
    table = runs / "plain" / "progress.csv"
    whole = table.read_text(encoding="utf-8")

    def opened() -> None:
        folder.read_run(runs / "plain").column("env_steps")
        tandem.train(resume=runs / "plain")

    table.write_text(whole.replace("\n32,", "\nmany,"))
    with follows("runs/folder.py:Run.column") as advice:
        folder.read_run(runs / "plain").column("env_steps")
    assert "put that cell right" in advice.fix
    table.write_text(whole + "1,2\n")
    with follows("runs/writers.py:read_table 3") as advice:
        opened()
    assert "remove that row" in advice.fix
    table.write_text(whole)
    opened()


@pytest.mark.parametrize(
    "content, key",
    [
        (b"\xff\xfe", "runs/writers.py:read_table"),
        (b"a,b\n1,2\n", "runs/writers.py:read_table 2"),
    ],
)
def test_a_table_of_somebody_else(runs, content, key) -> None:
    table = runs / "plain" / "progress.csv"
    table.write_bytes(content)
    with follows(key) as advice:
        tandem.train(resume=runs / "plain")
    assert "move that file away: a run that is resumed begins a new one" in advice.fix
    table.rename(runs / "away.csv")
    tandem.train(resume=runs / "plain")
    assert len(folder.read_run(runs / "plain").table["env_steps"]) > 0


def test_a_place_that_cannot_be_written(runs) -> None:
    file = runs / "file"
    file.touch()  # where a folder would have to be
    with follows("runs/atomic_files.py:writing") as advice:
        small(out=file / "run", steps=32)
    assert "choose another with --out" in advice.fix
    small(out=runs / "run", steps=32)
    with follows("runs/atomic_files.py:writing") as advice:
        writers.CsvWriter(file / "progress.csv")
    assert "choose another with --out" in advice.fix
    writers.CsvWriter(runs / "new" / "progress.csv").close()


def test_a_checkpoint_in_the_place_of_its_run(runs) -> None:
    with follows("runs/folder.py:run_folder") as advice:
        tandem.train(resume=runs / "plain" / "checkpoints" / "best.zip")
    tandem.train(resume=advice.fix.removeprefix("give ").removesuffix("."))


def test_a_callback_remembers_what_json_can_hold(runs) -> None:
    stop = EarlyStop(500.0)
    stop.state = lambda: {"seen": {1}}
    with follows("runs/callbacks.py:_plain") as advice:
        tandem.train(resume=runs / "plain", callbacks=[stop])
    assert advice.fix.startswith("return a list of it")
    stop.state = lambda: {"seen": [1]}
    tandem.train(resume=runs / "plain", callbacks=[stop])


# Checkpoints


def test_checkpoints_that_are_not_there(runs) -> None:
    inside = runs / "plain" / "checkpoints"
    with follows("runs/checkpoint.py:read") as advice:
        tandem.load(inside / "beste.zip")
    tandem.load(advice.quoted())
    with follows("runs/checkpoint.py:find") as advice:
        tandem.load(runs / "plain", which="bets")
    tandem.load(runs / "plain", which=advice.quoted())
    with follows("runs/checkpoint.py:find") as advice:
        tandem.load(runs / "plain", which="xyzzy")
    (told,) = advice.assigned()
    tandem.load(runs / "plain", **told)
    for key, wrong in (
        ("runs/checkpoint.py:find", runs),
        ("runs/checkpoint.py:read", runs / "nowhere.zip"),
    ):
        with follows(key) as advice:
            tandem.load(wrong)
        assert "give the folder of a run" in advice.fix
    tandem.load(runs / "plain")


def test_a_checkpoint_that_is_damaged(runs) -> None:
    file = runs / "plain" / "checkpoints" / "best.zip"
    file.write_bytes(file.read_bytes()[:900])
    with follows("runs/checkpoint.py:damaged") as advice:
        tandem.load(runs / "plain")
    assert advice.fix == f"use {file.with_name('last.zip')}, which can be read."
    tandem.load(file.with_name("last.zip"))


def test_a_last_checkpoint_that_is_torn(runs, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = runs / "plain" / "checkpoints"
    last, kept = inside / "last.zip", inside / "mine.zip"
    shutil.copy(last, kept)
    last.write_bytes(last.read_bytes()[:900])
    with follows("runs/checkpoint.py:damaged") as advice:
        tandem.train(resume=runs / "plain")
    command, _, rest = advice.fix.partition(", which is a whole run; then resume.")
    assert rest == "" and str(kept) in command
    subprocess.run(command, shell=True, check=True)
    tandem.train(resume=runs / "plain")

    kept.unlink()
    whole = last.read_bytes()
    at = whole.index(b"engine.safetensors") + 1000
    altered = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    for damage in (whole[:-100], altered):
        last.write_bytes(damage)
        with follows("runs/checkpoint.py:damaged") as advice:
            tandem.train(resume=runs / "plain")
        assert "as no file here can be resumed" in advice.fix
    program = advice.fix[advice.fix.index("run = ") :].partition(", where")[0]
    arguments = f"'ppo', 'CartPole-v1', framework='torch', **{SMALL}"
    exec(program.replace("...", arguments), {"tandem": tandem, "np": np})

    for other in inside.glob("*.zip"):
        other.write_bytes(b"PK")
    with follows("runs/checkpoint.py:damaged") as advice:
        tandem.train(resume=runs / "plain")
    assert advice.fix.startswith("train again: no other checkpoint in ")
    small(out=runs / "again", steps=32)


def rewritten(file: Path, change: Any) -> None:
    """A checkpoint with other data."""
    with zipfile.ZipFile(file) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    (index,) = (name for name in parts if name.endswith(".json"))
    data = json.loads(parts[index])
    change(data)
    with zipfile.ZipFile(file, "w") as new:
        for name, part in parts.items():
            new.writestr(name, json.dumps(data) if name == index else part)


def test_a_checkpoint_of_another_format_names_the_version_that_wrote_it(runs) -> None:
    file = runs / "plain" / "checkpoints" / "last.zip"
    rewritten(file, lambda data: data.update(format=99))
    with follows("runs/checkpoint.py:read 2") as advice:
        tandem.load(file)
    assert advice.fix.endswith(f"that wrote it: {config_file.versions()['tandem-rl']}.")
    rewritten(file, lambda data: data.update(format=checkpoint.FORMAT))  # as that version has it
    tandem.load(file)


excepted(
    "runs/checkpoint.py:steps",
    because="tests/runs/test_faults.py::test_a_run_on_a_disk_that_fills_up_can_go_on",
)
excepted(
    "runs/autosave.py:Autosave._written",
    because="tests/runs/test_autosave.py::test_a_file_that_cannot_be_deleted_is_named_and_"
    "tried_again",
)


def test_an_agent_in_the_place_of_a_run(runs) -> None:
    inside = runs / "plain" / "checkpoints"
    own = (inside / "last.zip").read_bytes()
    shutil.copy(inside / "best.zip", inside / "last.zip")
    with follows("runs/session.py:Session._resume") as advice:
        tandem.train(resume=runs / "plain")
    assert "this one can be loaded: tandem.load" in advice.fix
    tandem.load(inside / "last.zip")
    assert "put the run's own last.zip back" in advice.fix
    (inside / "last.zip").write_bytes(own)
    tandem.train(resume=runs / "plain")


def test_networks_of_a_program(runs) -> None:
    with follows("runs/loading.py:load") as advice:
        tandem.load(runs / "own")
    assert done(advice.fix, network=body()).act(np.zeros(4)) in (0, 1)
    with follows("runs/loading.py:_filled") as advice:
        tandem.load(runs / "own", network=body(9))
    assert advice.fix == "give the same network=."
    tandem.load(runs / "own", network=body())


def test_weights_of_another_network(runs) -> None:
    file = checkpoint.find(runs / "plain")

    def begun(*hidden: int) -> None:
        run = trainer.session("ppo", "CartPole-v1", framework="torch", **SMALL | {"hidden": hidden})
        run.begin_with(file)

    with follows("runs/session.py:Session.begin_with") as advice:
        begun(16)
    assert advice.fix == "give the network that they were trained with."
    begun(*SMALL["hidden"])


# Going on, and verifying


def test_a_run_of_a_program_goes_on_with_it(runs) -> None:
    with follows("runs/resume.py:_resumed 2") as advice:
        tandem.train(resume=runs / "own")
    with follows("runs/resume.py:_resumed 2") as again:
        done(advice.fix.replace("...)", "..., progress=False)"), env=cart)
    code = again.fix.replace("network=...", "network=..., env='CartPole-v1'")
    assert done(code, network=body()).summary["env_steps"] == 64


def test_a_run_that_another_process_trains_does_not_go_on(runs) -> None:
    with held(runs / "own" / ".lock"), follows("runs/folder.py:locked") as advice:
        tandem.train(resume=runs / "own", env=cart, network=body())
    assert "wait for it" in advice.fix
    tandem.train(resume=runs / "own", env=cart, network=body())


def test_another_network_does_not_go_on(runs) -> None:
    with follows("runs/session.py:Session._resume 2") as advice:
        tandem.train(resume=runs / "own", env=cart, network=body(9))
    assert "resume with what the run was started with" in advice.fix
    tandem.train(resume=runs / "own", env=cart, network=body(8))


@pytest.mark.parametrize(
    "case",
    [
        case(
            "trainer.py:_refuse_given",
            trainer.session,
            {"framework": "torch"},
            "leave these out",
            {"framework": None},
        ),
        case(
            "runs/resume.py:_resumed",
            trainer.session,
            {"cluster": "auto"},
            "leave cluster out",
            {"cluster": None},
        ),
        case("runs/resume.py:_resumed 3", trainer.session, {"steps": 128}, "out", {"steps": None}),
        case("runs/resume.py:_resumed 3", trainer.session, {"steps": 128}),
        case(
            "runs/resume.py:_resumed 3",
            tandem.train,
            {"steps": 48},
            "leave steps out; to end earlier, give stop_at=48",
            {"steps": None, "stop_at": 48},
        ),
    ],
)
def test_advice_on_going_on(case, runs) -> None:
    case.follow(resume=runs / "plain")


def test_a_name_that_is_repeated_otherwise(runs) -> None:
    words = ["verify", str(runs / "plain"), "--quiet"]
    with follows("runs/trust.py:expect_same") as advice:
        verification.verify(runs / "plain", env="Acrobot-v1")
    assert advice.fix.startswith("leave env out")
    assert main([*words, "--env", "Acrobot-v1"]) == 2 and main(words) == 0


def test_what_cannot_be_verified(runs) -> None:
    with follows("runs/verification.py:verify") as advice:
        verification.verify(runs / "own")
    told = advice.fix.replace("(folder", f"({str(runs / 'own')!r}")
    with follows("runs/verification.py:verify") as again:
        done(told, env=cart)
    verify = lambda **own: verification.verify(runs / "own", env=cart, **own)  # noqa: E731
    assert "verify it from a program" in again.fix and "network=..." in again.fix
    assert verify(network=body()).rows > 0
    place, optimizer = runs / "optimizer", torch.optim.SGD([torch.zeros(1)], lr=0.01)
    small(out=place, steps=32, optimizer=optimizer)
    with follows("runs/verification.py:verify") as advice:
        verification.verify(place)
    assert "optimizer=..." in advice.fix
    assert verification.verify(place, optimizer=optimizer).difference is None
    with follows("runs/verification.py:verify 2") as advice:
        verification.verify(runs / "extended")
    assert "verify one that was not extended" in advice.fix
    with follows("runs/verification.py:verify 4") as advice:
        verification.verify(runs / "plain", steps=1)
    assert "give more --steps" in advice.fix
    assert verification.verify(runs / "plain", steps=32).difference is None


excepted(
    "runs/verification.py:verify 3",
    because="tests/learning/test_asynchronous.py::test_the_table_says_how_stale_gradients_were",
)

excepted(
    "runs/verification.py:verify 5",
    because="tests/learning/test_devices.py::test_runs_on_two_devices",
)

excepted(
    "runs/verification.py:verify 6",
    because="tests/runs/test_faults.py::"
    "test_an_environment_that_cannot_be_repeated_continues_in_new_episodes",
)


# Libraries that a run can do without


def test_tensorboard(monkeypatch, tmp_path) -> None:
    with without(monkeypatch, "tensorboard"):
        with follows("runs/writers.py:TensorBoardWriter.__init__") as advice:
            small(out=tmp_path / "a", steps=32, tensorboard=True)
        (told,) = advice.assigned()
        small(out=tmp_path / "b", steps=32, **told)
    assert "pip install tensorboard" in advice.fix
    small(out=tmp_path / "c", steps=32, tensorboard=True)


def test_wandb(monkeypatch, tmp_path) -> None:
    with without(monkeypatch, "wandb"):
        with follows("runs/writers.py:WandbWriter.__init__") as advice:
            small(out=tmp_path / "a", steps=32, wandb="project")
        small(out=tmp_path / "b", steps=32, **advice.assigned()[-1])
    assert "pip install wandb" in advice.fix
    run = SimpleNamespace(step=0, log=lambda data, step: None, finish=lambda: None)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **given: run))
    small(out=tmp_path / "c", steps=32, wandb="project")


def test_mlflow(monkeypatch, tmp_path) -> None:
    with without(monkeypatch, "mlflow"):
        with follows("runs/writers.py:MlflowWriter.__init__") as advice:
            small(out=tmp_path / "a", steps=32, mlflow="experiment")
        small(out=tmp_path / "b", steps=32, **advice.assigned()[-1])
    assert "pip install 'tandem-rl[mlflow]'" in advice.fix
    server = FakeMlflow()
    server.install(monkeypatch)
    small(out=tmp_path / "c", steps=32, mlflow="experiment")
    assert server.runs["id0"].rows
