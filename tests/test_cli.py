"""The command line: what each command says and leaves behind, and how it answers what it cannot
do."""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import tandem
from tandem import algorithms, trainer
from tandem.algorithms import unused
from tandem.cli import COMMANDS, main, seeds, seeds_command
from tandem.learning.config import Options
from tandem.learning.figures import mean_and_std
from tandem.settings import declared
from tests.helpers import ON_CPU, ONE_THREAD, QUIET, ROOT, run_python

SMALL = (
    "--framework",
    "torch",
    "--quiet",
    "--eval-episodes",
    "2",
    "--final-episodes",
    "3",
    "--hidden",
    "16",
    "--no-tensorboard",
)
NAMES = [f.name for kind in map(algorithms.get, algorithms.NAMES) for f in fields(kind.Settings)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A short run of PPO, with everything that a run leaves."""
    folder = tmp_path_factory.mktemp("runs") / "ppo"
    assert (
        main(
            [
                "train",
                "ppo",
                "CartPole-v1",
                *SMALL,
                "--steps",
                "1024",
                "--log-every",
                "256",
                "--out",
                str(folder),
            ]
        )
        == 0
    )
    return folder


def test_overview_names_every_command(capsys) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"tandem {name}" in shown for name in COMMANDS)
    assert main([]) == 2
    assert main(["--version"]) == 0
    assert tandem.__version__ in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capsys) -> None:
    assert main([command, "--help"]) == 0
    assert f"usage: tandem {command}" in capsys.readouterr().out


@pytest.mark.parametrize("algorithm", algorithms.NAMES)
def test_help_has_every_setting_with_meaning_default_and_source(algorithm, capsys) -> None:
    assert main(["train", algorithm, "--help"]) == 0
    raw = capsys.readouterr().out
    shown = "".join(raw.split())  # argparse breaks lines where it likes
    kind = algorithms.get(algorithm).Settings
    flags, never = set(re.findall(r"--[a-z0-9-]+", raw)), unused.never(kind)
    for name, default, meaning, source, *_ in declared(kind) + declared(Options):
        assert (f"--{name.replace('_', '-')}" in flags) is (name not in never)
        if name in never:
            continue
        for part in (meaning, source):
            assert "".join(part.split()) in shown
        if isinstance(default, int | float) and not isinstance(default, bool):
            assert f"default{default}" in shown
        elif default == ():  # what is shown can be given
            assert f"default{'none' if name == 'writer' else shlex.quote('')}" in shown
    assert "--no-" in shown


def test_help_for_an_environment_shows_the_values_of_the_zoo(capsys) -> None:
    assert main(["train", "ppo", "CartPole-v1", "--help"]) == 0
    shown = "".join(capsys.readouterr().out.split())
    assert "here0.8:rl-baselines3-zoo" in shown and "default0.95" in shown  # gae_lambda
    assert main(["train", "a2c", "ALE/Qbert-v5", "--help"]) == 0  # of a family
    assert "here0.25:rl-baselines3-zoo" in "".join(capsys.readouterr().out.split())
    assert main(["train", "dqn", "PongNoFrameskip-v4", "--entry", "rainbow", "--help"]) == 0
    assert "[herecategorical:" in "".join(capsys.readouterr().out.split())


# --- what cannot be done --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command, said",
    [
        ("trian ppo CartPole-v1", "did you mean 'train'"),
        ("train", "tandem train ppo CartPole-v1"),
        ("train pppo CartPole-v1", "did you mean 'ppo'"),
        ("train CartPole-v1 ppo", "tandem train ppo CartPole-v1"),
        ("train ppo", "CartPole-v1"),
        ("train ppo CartPole-v7", "did you mean 'CartPole-v1'"),
        ("train ppo cartpole-v1", "did you mean 'CartPole-v1'"),
        ("train ppo CartPole-v1 --learning-rat 1e-3", "did you mean '--learning-rate'"),
        ("train ppo CartPole-v1 -q", "there is no flag '-q'"),
        ("train dqn CartPole-v1 --rollout 8", "it is a setting of a2c, "),
        ("train ppo CartPole-v1 --entry fast", "leave entry out"),
        ("train dqn PongNoFrameskip-v4 --entry rainbw", "did you mean 'rainbow'"),
        ("train ppo CartPole-v1 --steps many", "a whole number"),
        ("train ppo CartPole-v1 --steps 0", "at least 1"),
        ("train ppo CartPole-v1 --stop-at soon", "a whole number"),
        ("train ppo CartPole-v1 --stop-at -1", "at least 0"),
        ("train ppo CartPole-v1 --gamma 1.5", "between 0 and 1"),
        ("train ppo CartPole-v1 --learning-rate 1:2:3:4", "a schedule"),
        ("train ppo CartPole-v1 --optimizer adamw", "'adam' or 'rmsprop' or 'sgd'"),
        ("train ppo CartPole-v1 --activation tnh", "tanh"),
        ("train ppo CartPole-v1 --seed x", "invalid int value: 'x'"),
        ("train ppo CartPole-v1 more", "unrecognized arguments: more"),
        ("train ppo CartPole-v1 --out", "expected one argument"),
        ("train ppo CartPole-v1 --framework torhc", "did you mean 'torch'"),
        ("train ppo CartPole-v1 --framework torch --device gpu", "did you mean 'cuda'"),
        ("train ppo CartPole-v1 --extend", "without --resume"),
        ("train ppo CartPole-v1 --seeds 0", "at least 1"),
        ("train ppo CartPol", "did you mean 'CartPole-v"),
        ("train td3 CartPole-v1", "a bounded Box of actions"),
        ("train dqn Pendulum-v1", "Discrete actions"),
        ("train --resume RUNS/pp0", "did you mean RUNS/ppo"),
        ("train --resume RUNS/ppo --seed 3", "--seed"),
        ("train --resume RUNS/ppo --gamma 0.9", "--gamma"),
        ("train dqn CartPole-v1 --resume RUNS/ppo", "has algorithm='ppo'"),
        ("train --resume RUNS/ppo --steps 5000", "--extend"),
        ("train --resume RUNS/ppo --steps 10 --extend", "--extend"),
        ("train ppo CartPole-v1 --out RUNS/ppo", "--resume RUNS/ppo"),
        ("evaluate RUNS/pp0", "did you mean RUNS/ppo"),
        ("evaluate RUNS", "did you mean RUNS/ppo"),
        ("evaluate", "required"),
        ("evaluate RUNS/ppo --which lats", "did you mean 'last'"),
        ("evaluate RUNS/ppo --episodes 0", "at least 1"),
        ("evaluate RUNS/ppo --seed -1", "setting seed=-1"),
        ("evaluate RUNS/ppo --jason", "did you mean '--json'"),
        ("watch RUNS/ppo --out play.avi", ".gif or .mp4"),
        ("watch RUNS/ppo --out play.gif --seed -1", "setting seed=-1"),
        ("watch RUNS/ppo --out play.gif --episodes 0", "setting episodes=0"),
        ("plot RUNS/pp0", "did you mean RUNS/ppo"),
        ("plot RUNS/ppo --out curve.docx", ".png, .svg or .pdf"),
        ("list --all", "there is no flag '--all'"),
        ("check CartPole-v7", "did you mean 'CartPole-v1'"),
        ("check CartPole-v1 --steps 0", "at least 1"),
        ("check CartPole-v1 --seed -1", "setting seed=-1"),
        ("export RUNS/ppo --to onyx", "did you mean 'onnx'"),
        ("export RUNS/ppo", "required: --to"),
        ("export RUNS/ppo --to numpy --out agent.zip", ".npz"),
        ("verify RUNS/pp0", "did you mean RUNS/ppo"),
        ("verify RUNS/ppo --steps 0", "at least 1"),
    ],
)
def test_what_cannot_be_is_answered_in_words(
    command, said, finished, capsys, monkeypatch, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(finished.rglob("*"))
    runs = str(finished.parent)
    assert main(command.replace("RUNS", runs).split()) == 2
    shown = capsys.readouterr()
    assert said.replace("RUNS", runs) in shown.err and shown.err.startswith("tandem: ")
    assert "Traceback" not in shown.out + shown.err
    # nothing was made or changed
    assert sorted(finished.rglob("*")) == before and not list(tmp_path.rglob("*"))


def test_a_fault_while_running_has_another_code(tmp_path, capsys) -> None:
    assert (
        main(
            [
                "train",
                "ppo",
                "tandem/NotFinite-v0",
                *SMALL,
                "--steps",
                "100",
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 1
    )
    assert "gave the observation [nan] at step 5" in capsys.readouterr().err


def test_what_an_environment_raised_is_shown_from_where_it_did(tmp_path, capsys) -> None:
    """The message says so: its own traceback is above."""
    assert (
        main(
            [
                "train",
                "ppo",
                "tandem/Raises-v0",
                *SMALL,
                "--steps",
                "100",
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 1
    )
    above, said = capsys.readouterr().err.split("tandem: ")
    assert (
        "in observe" in above
        and "ValueError: raised on purpose" in above
        and "its own traceback is above" in said
    )


def test_a_damaged_checkpoint_is_a_fault(finished, tmp_path, capsys) -> None:
    damaged = tmp_path / "best.zip"
    damaged.write_bytes((finished / "checkpoints" / "best.zip").read_bytes()[:-200])
    assert main(["evaluate", str(damaged)]) == 1
    assert "cannot be read as a checkpoint" in capsys.readouterr().err


def test_what_nobody_expected_shows_its_traceback(monkeypatch, finished) -> None:
    monkeypatch.setattr(trainer, "evaluate", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["evaluate", str(finished)])


# --- train ----------------------------------------------------------------------------------------


def rows(folder: Path) -> list[dict[str, str]]:
    with open(folder / "progress.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_run_leaves_all_that_was_promised_and_says_so(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = [word for word in SMALL if word not in ("--quiet", "--no-tensorboard")]
    assert (
        main(
            [
                "train",
                "ppo",
                "CartPole-v1",
                *small,
                "--steps",
                "600",
                "--gamma",
                "0.9",
                "--no-orthogonal",
            ]
        )
        == 0
    )
    shown = capsys.readouterr()
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("ppo-CartPole-v1-s0-")
    for name in (
        "config.json",
        "progress.csv",
        "result.json",
        "curve.png",
        "animation.gif",
        "checkpoints/best.zip",
        "tensorboard",
    ):
        assert (folder / name).exists(), name
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    keys = (
        "algorithm env framework seed env_steps updates seconds steps_per_second eval_mean "
        "eval_std eval_episodes eval_cut last_eval_cut versions"
    )
    assert set(keys.split()) <= set(result)
    assert (
        f"best checkpoint  {mean_and_std(result['eval_mean'], result['eval_std'])} over 3 episodes"
        in shown.out
    )
    last = mean_and_std(result["last_eval_mean"], result["last_eval_std"])
    assert f"last checkpoint  {last}" in shown.out
    assert f"tandem watch runs/{folder.name}" in shown.out and "animation.gif" in shown.out
    # progress, apart from the results
    assert "ended by steps" in shown.err and "evaluation at" in shown.err
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))["settings"]
    assert (settings["gamma"], settings["orthogonal"], settings["hidden"]) == (0.9, False, [16])
    assert settings["rollout"] == 32  # of the zoo


def test_quiet_prints_only_the_result(finished, tmp_path, capsys) -> None:
    assert (
        main(
            [
                "train",
                "ppo",
                "CartPole-v1",
                *SMALL,
                "--steps",
                "300",
                "--no-plots",
                "--out",
                str(tmp_path / "r"),
            ]
        )
        == 0
    )
    shown = capsys.readouterr()
    assert shown.err == "" and shown.out.startswith("ppo on CartPole-v1, torch, seed 0: ")
    assert not (tmp_path / "r" / "curve.png").exists()


@pytest.mark.slow
def test_commands_that_are_printed_can_be_given_as_they_stand(tmp_path, capsys) -> None:
    run = tmp_path / "two words"
    given = [
        "train",
        "ppo",
        "CartPole-v1",
        *SMALL,
        "--no-plots",
        "--steps",
        "64",
        "--stop-at",
        "0",
        "--out",
        str(run),
    ]
    assert main(given) == 0
    commands = [
        shlex.split(line)
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("  tandem ")
    ]
    assert len(commands) == 3 and all(str(run) in words for words in commands)
    assert main(given) == 2
    assert f"--resume {shlex.quote(str(run))}" in capsys.readouterr().err
    given.remove("--no-plots")
    assert main([*given[:-1], str(tmp_path / "a b"), "--seeds", "1"]) == 0
    shown = capsys.readouterr().out
    assert f"tandem train --resume '{tmp_path / 'a b'}'\n" in shown  # it is not complete
    assert f"tandem plot '{tmp_path / 'a b'}' --individual" in shown
    # nothing to draw yet is no fault of the runs
    assert "mean over 1 seed:" in shown and "no curve: the run" in shown


def test_stopping_and_resuming_gives_the_rows_of_an_uninterrupted_run(
    finished, tmp_path, capsys
) -> None:
    run = str(tmp_path / "run")
    given = [
        "train",
        "ppo",
        "CartPole-v1",
        *SMALL,
        "--no-plots",
        "--steps",
        "1024",
        "--log-every",
        "256",
        "--out",
        run,
    ]
    assert main([*given, "--stop-at", "500"]) == 0
    assert f"tandem train --resume {run}\n" in capsys.readouterr().out
    assert int(rows(tmp_path / "run")[-1]["env_steps"]) < 1024
    assert main(["train", "--resume", run, "--quiet"]) == 0
    mine, theirs = rows(tmp_path / "run"), rows(finished)
    assert [(r["env_steps"], r["fingerprint"]) for r in mine] == [
        (r["env_steps"], r["fingerprint"]) for r in theirs
    ]
    before = (tmp_path / "run" / "progress.csv").read_bytes()
    capsys.readouterr()
    assert main(["train", "--resume", run, "--quiet"]) == 0
    assert "has all of its 1,024 steps" in capsys.readouterr().out
    assert (tmp_path / "run" / "progress.csv").read_bytes() == before
    assert main(["train", "--resume", run, "--quiet", "--steps", "1500", "--extend"]) == 0
    assert int(rows(tmp_path / "run")[-1]["env_steps"]) >= 1500
    capsys.readouterr()
    assert main(["verify", run, "--quiet"]) == 2
    assert "was extended from 1024 to 1500 steps" in capsys.readouterr().err


def test_an_id_without_a_version_is_the_newest(tmp_path) -> None:
    assert (
        main(
            [
                "train",
                "ppo",
                "CartPole",
                *SMALL,
                "--steps",
                "64",
                "--no-plots",
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["env"] == "CartPole-v1" and config["settings"]["rollout"] == 32


def test_a_run_with_callbacks_goes_on_from_the_command_line_and_back(tmp_path) -> None:
    """The command line has a callback of its own, which remembers nothing, in the place of the
    program's."""
    from tandem.runs.callbacks import EarlyStop

    run = tmp_path / "run"
    more = {
        "plots": False,
        "eval_episodes": 1,
        "final_episodes": 1,
        "hidden": (8,),
        "tensorboard": False,
    }
    tandem.train(
        "ppo",
        "CartPole-v1",
        framework="torch",
        steps=1024,
        stop_at=256,
        out=run,
        callbacks=[EarlyStop(1e9)],
        **more,
    )
    assert main(["train", "--resume", str(run), "--stop-at", "512", "--quiet"]) == 0
    assert tandem.train(resume=run, callbacks=[EarlyStop(1e9)]).reason == "steps"


@pytest.mark.slow
def test_several_seeds_make_several_runs_and_one_curve(tmp_path, capsys) -> None:
    parent = tmp_path / "all"
    given = [
        "train",
        "ppo",
        "CartPole-v1",
        *SMALL,
        "--steps",
        "300",
        "--no-plots",
        "--seed",
        "3",
        "--seeds",
        "2",
    ]
    assert main([*given, "--out", str(parent)]) == 0
    there = [".lock", "s3", "s3.log", "s4", "s4.log", "seeds.json"]  # no curve.png: --no-plots
    assert sorted(p.name for p in parent.iterdir()) == there
    assert [
        json.loads((parent / s / "config.json").read_text(encoding="utf-8"))["seed"]
        for s in ("s3", "s4")
    ] == [
        3,
        4,
    ]
    assert rows(parent / "s3")[0]["fingerprint"] != rows(parent / "s4")[0]["fingerprint"]
    shown = capsys.readouterr().out
    assert "seed 3: " in shown and "seed 4: " in shown and "mean over 2 seeds: " in shown
    assert "--resume" not in shown
    assert main(["plot", str(parent), "--individual", "--out", str(tmp_path / "both.svg")]) == 0
    picture = (tmp_path / "both.svg").read_text(encoding="utf-8")
    assert "svg" in picture


def test_the_folders_of_all_seeds_are_looked_at_before_one_is_trained(tmp_path, capsys) -> None:
    parent = tmp_path / "all"
    (parent / "s2").mkdir(parents=True)
    (parent / "s2" / "notes.txt").write_text("mine")
    given = [
        "train",
        "ppo",
        "CartPole-v1",
        *SMALL,
        "--steps",
        "300",
        "--no-plots",
        "--seeds",
        "3",
        "--out",
        str(parent),
    ]
    assert main(given) == 2
    shown = capsys.readouterr()
    assert f"{parent / 's2'} exists and is not empty" in shown.err and not shown.out
    assert [p.name for p in parent.iterdir()] == ["s2"]


def test_an_environment_that_cannot_be_drawn_costs_one_line(tmp_path, caplog) -> None:
    small = [*SMALL, "--steps", "100", "--out", str(tmp_path / "run")]
    assert main(["train", "ppo", "tandem/Identity-v0", *small]) == 0
    said = [text for text in caplog.messages if "no animation" in text]
    assert said == [
        "Note: no animation: tandem/Identity-v0 cannot be drawn: its render modes are none."
    ]
    assert (tmp_path / "run" / "curve.png").exists() and not (
        tmp_path / "run" / "animation.gif"
    ).exists()


def test_a_failing_renderer_leaves_no_torn_animation(tmp_path, monkeypatch, caplog) -> None:
    from gymnasium.envs.classic_control import CartPoleEnv

    def broken(self):
        raise RuntimeError("no GL")

    monkeypatch.setattr(CartPoleEnv, "render", broken)
    small = [*SMALL, "--steps", "100", "--out", str(tmp_path / "run")]
    assert main(["train", "ppo", "CartPole-v1", *small]) == 0
    assert "no animation: the environment's render() failed: RuntimeError: no GL" in caplog.text
    assert not (tmp_path / "run" / "animation.gif").exists()


def child(*given: str, cwd: Path) -> subprocess.Popen[str]:
    env = (
        {k: v for k, v in os.environ.items() if k != "KERAS_BACKEND"} | ONE_THREAD | ON_CPU | QUIET
    )
    command = [sys.executable, "-m", "tandem", *given]
    env["PYTHONPATH"] = str(ROOT / "src")
    return subprocess.Popen(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_with_a_checkpoint(number, code, tmp_path) -> None:
    given = (
        "train",
        "ppo",
        "CartPole-v1",
        "--framework",
        "torch",
        "--steps",
        "10000000",
        "--compile",
        "no",
        "--out",
        "run",
    )
    process = child(*given, "--log-every", "256", cwd=tmp_path)
    table, waited = tmp_path / "run" / "progress.csv", time.monotonic()
    while not table.exists() or len(rows(tmp_path / "run")) < 2:
        assert process.poll() is None and time.monotonic() - waited < 60
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert f"Stopped by {number.name} and saved" in out and "Traceback" not in err
    at = json.loads(rows_of_checkpoint(tmp_path / "run" / "checkpoints" / "last.zip"))
    assert at["counters"]["episodes"] > 0
    again = child(
        "train", "--resume", "run", "--stop-at", "1", "--quiet", "--envs", "3", cwd=tmp_path
    )
    assert "--envs" in again.communicate(timeout=60)[1] and again.returncode == 2


@pytest.mark.slow
def test_a_signal_ends_several_seeds_and_says_how_to_go_on(tmp_path) -> None:
    given = ("train", "ppo", "CartPole-v1", "--framework", "torch", "--steps", "10000000")
    process = child(*given, "--compile", "no", "--seeds", "2", "--out", "many", cwd=tmp_path)
    table, waited = tmp_path / "many" / "s0" / "progress.csv", time.monotonic()
    while not table.exists():
        assert process.poll() is None and time.monotonic() - waited < 60
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    assert "Stopped by SIGINT and saved. To go on:\n  tandem train --resume many\n" in out
    again = child("train", "--resume", "many", "--stop-at", "1", "--quiet", cwd=tmp_path)
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0 and "Traceback" not in err
    for seed in (0, 1):  # one of which may not have begun by then
        assert (tmp_path / "many" / f"s{seed}" / "result.json").exists()


@pytest.mark.slow
def test_several_seeds_go_on_by_their_folder_to_the_bit(tmp_path) -> None:
    given = ["train", "ppo", "CartPole-v1", "--steps", "300", "--no-plots", *SMALL]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main([*given, "--seeds", "2", "--out", str(whole)]) == 0
    assert main([*given, "--seeds", "2", "--out", str(parts), "--stop-at", "100"]) == 0
    shutil.rmtree(parts / "s1" / "checkpoints")  # as of one that was killed as it began
    assert main(["train", "--resume", str(parts), "--quiet"]) == 0
    for seed in ("s0", "s1"):
        one, other = (rows(run / seed)[-1]["fingerprint"] for run in (whole, parts))
        assert one == other


@pytest.mark.parametrize(
    "code, words, comes_to", [(-9, "SIGKILL", 137), (143, "SIGTERM", 143), (1, "failed", 1)]
)
def test_how_a_seed_ended_is_told(tmp_path, capsys, code, words, comes_to) -> None:
    run = seeds.SeedRun(3, tmp_path, [])
    run.log.write_text("its last words\n")
    run.code = code
    command = seeds_command.SeedsCommand(["ppo", "CartPole-v1"], [3], tmp_path)
    assert seeds._told(command, [run], [], draws=False) == comes_to
    shown = capsys.readouterr()
    first, *rest = shown.err.splitlines()
    assert words in first and "seed 3" in first and rest == ["  its last words"]
    assert f"tandem train --resume {tmp_path}" in shown.out


def test_a_seed_that_is_stopped_for_the_refusal_of_another_was_not_refused(tmp_path) -> None:
    run = seeds.SeedRun(0, tmp_path, [])
    for run.code, was in ((2, True), (143, False), (0, False)):
        assert run.was_refused is was


@pytest.mark.slow
def test_a_command_that_is_refused_is_told_once(tmp_path, capfd) -> None:
    wrong = ["--rollout", "7", "--envs", "2", "--batch-size", "64", "--seeds", "3"]
    given = ["train", "ppo", "CartPole-v1", *wrong]
    assert main([*given, "--out", str(tmp_path / "all")]) == 2
    shown = capfd.readouterr()
    assert shown.err.count("rows that divide into batches evenly") == 1
    assert not (tmp_path / "all").exists()


def test_runs_of_several_seeds_share_the_cores(monkeypatch) -> None:
    monkeypatch.setattr(seeds, "cores", lambda: 8)
    monkeypatch.setattr(seeds, "has_gpu", lambda: False)

    def number(**given: object) -> int:
        return seeds.at_once(argparse.Namespace(**{"device": None, **given}))

    assert number() == 8 and number(workers="auto") == 8 and number(workers="3") == 2
    assert number(learners="4") == number(devices="4") == number(threads="4") == 2
    assert number(workers="20") == 1 and number(device="cuda") == 1
    monkeypatch.setattr(seeds, "has_gpu", lambda: True)
    assert number() == 1 and number(device="cpu") == 8
    words = ["train", "ppo", "X", "--seeds=3", "--seed", "4", "--out", "a", "--steps", "9"]
    assert seeds_command.without(words, seeds_command.OWN) == ["train", "ppo", "X", "--steps", "9"]


def rows_of_checkpoint(path: Path) -> bytes:
    import zipfile

    with zipfile.ZipFile(path) as file:
        return file.read("checkpoint.json")


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework",
    ["jax", "tensorflow", "torch", pytest.param("keras-torch", marks=pytest.mark.thorough)],
)
def test_each_engine_from_the_outside(framework, tmp_path) -> None:
    given = (
        "train",
        "ppo",
        "CartPole-v1",
        "--framework",
        framework,
        "--steps",
        "600",
        "--out",
        "run",
        "--quiet",
    )
    process = child(*given, cwd=tmp_path)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert f"ppo on CartPole-v1, {framework}, seed 0: " in out and "Traceback" not in err
    verified = child("verify", "run", "--steps", "300", "--quiet", cwd=tmp_path)
    assert verified.communicate(timeout=200)[0].startswith("equal: ") and verified.returncode == 0


# --- the others -----------------------------------------------------------------------------------


def test_evaluate_says_what_the_library_says(finished, capsys) -> None:
    assert (
        main(
            [
                "evaluate",
                str(finished),
                "--episodes",
                "4",
                "--seed",
                "7",
                "--which",
                "last",
                "--json",
            ]
        )
        == 0
    )
    shown = json.loads(capsys.readouterr().out)
    expected = tandem.evaluate(tandem.load(finished, which="last"), "CartPole-v1", 4, 7)
    assert (shown["mean"], shown["std"], shown["returns"], shown["lengths"]) == tuple(expected[:4])
    assert shown["checkpoint"].endswith("last.zip") and len(shown["returns"]) == 4
    assert (
        main(
            [
                "evaluate",
                str(finished / "checkpoints" / "last.zip"),
                "--episodes",
                "4",
                "--seed",
                "7",
            ]
        )
        == 0
    )
    assert (
        f"return {mean_and_std(expected.mean, expected.std)} over 4 episodes"
        in capsys.readouterr().out
    )


def test_an_environment_of_a_program_is_not_guessed(finished, tmp_path, capsys) -> None:
    import gymnasium

    run = tmp_path / "own"
    options = {
        "steps": 64,
        "envs": 1,
        "plots": False,
        "eval_episodes": 1,
        "final_episodes": 1,
        "tensorboard": False,
    }
    tandem.train(
        "ppo", lambda: gymnasium.make("CartPole-v1"), framework="torch", out=run, **options
    )
    for command in ("evaluate", "watch", "verify"):
        assert main([command, str(run)]) == 2
        assert "program" in capsys.readouterr().err
    assert main(["train", "--resume", str(run)]) == 2
    assert "env=" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["play.gif", "play.mp4"])
def test_watch_writes_what_was_asked_for(name, finished, tmp_path, capsys) -> None:
    assert main(["watch", str(finished), "--out", str(tmp_path / name)]) == 0
    assert (
        tmp_path / name
    ).stat().st_size > 1000 and capsys.readouterr().out == f"wrote {tmp_path / name}\n"


def test_watch_without_a_screen_writes_into_the_run(finished, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tandem.cli.watch.has_display", lambda: False)
    assert main(["watch", str(finished)]) == 0
    assert capsys.readouterr().out == f"wrote {finished / 'animation.gif'}\n"


def test_watch_opens_a_window_where_there_is_a_screen(finished, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tandem.cli.watch.has_display", lambda: True)
    monkeypatch.setattr("tandem.animation.has_display", lambda: True)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(
        "gymnasium.envs.classic_control.CartPoleEnv.metadata",
        {"render_modes": ["human"], "render_fps": 10**6},
    )
    assert main(["watch", str(finished), "--episodes", "2"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == [
        "episode 1",
        "episode 2",
    ]


def test_plot_draws_beside_the_run(finished, capsys) -> None:
    (finished / "curve.png").unlink()
    assert main(["plot", str(finished)]) == 0
    assert (finished / "curve.png").stat().st_size > 1000
    assert capsys.readouterr().out == f"wrote {finished / 'curve.png'}\n"


def test_list_shows_algorithms_zoo_and_engines(capsys, monkeypatch) -> None:
    monkeypatch.setattr("tandem.backends.installed", lambda: ["torch"])
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in algorithms.NAMES) and "Schulman et al. 2017" in shown
    assert "LunarLander-v3" in shown and "MuJoCo locomotion: HalfCheetah-v5" in shown
    assert (
        "not installed: pip install 'tandem-rl[jax]'" in shown
        and "\n  torch       torch 2" in shown
    )


def test_check_has_a_line_for_each_finding(capsys) -> None:
    assert main(["check", "CartPole-v1", "--steps", "200"]) == 0
    shown = capsys.readouterr().out
    for part in (
        "nstep_q, ppo",
        "every number finite",
        "exact, to the bit",
        "plain speed",
        "native speed",
        "for 1,000,000 transitions",
    ):
        assert part in shown
    assert main(["check", "tandem/NotFinite-v0"]) == 1
    assert "FAULT  random steps  environment 0" in capsys.readouterr().out


def test_verify_finds_the_first_row_that_differs(finished, tmp_path, capsys) -> None:
    import shutil

    assert main(["verify", str(finished), "--quiet"]) == 0
    assert f"equal: {len(rows(finished))} rows" in capsys.readouterr().out
    forged = tmp_path / "forged"
    shutil.copytree(finished, forged)
    table = rows(forged)
    step, old = table[1]["env_steps"], table[1]["fingerprint"]
    text = (forged / "progress.csv").read_text(encoding="utf-8")
    (forged / "progress.csv").write_text(text.replace(old, "0123456789abcdef"))
    assert main(["verify", str(forged), "--quiet"]) == 1
    shown = capsys.readouterr().out
    assert (
        f"row 2 of {forged / 'progress.csv'} (step {int(step):,})" in shown
        and "0123456789abcdef" in shown
        and old in shown
    )
    # before it, all is well
    assert main(["verify", str(forged), "--quiet", "--steps", table[0]["env_steps"]]) == 0


def test_a_run_of_sac_from_the_outside(tmp_path, capsys) -> None:
    given = [
        "--learning-starts",
        "50",
        "--steps",
        "200",
        "--target-entropy",
        "-1",
        "--initial-temperature",
        "0.2",
        "--buffer-size",
        "1e3",
    ]
    assert (
        main(
            [
                "train",
                "sac",
                "Pendulum-v1",
                *SMALL,
                *given,
                "--no-plots",
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )
    settings = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))[
        "settings"
    ]
    assert (
        settings["initial_temperature"],
        settings["target_entropy"],
        settings["buffer_size"],
    ) == (
        0.2,
        -1,
        1000,
    )
    assert main(["verify", str(tmp_path / "run"), "--quiet", "--steps", "100"]) == 0
    assert (
        main(["export", str(tmp_path / "run"), "--to", "numpy", "--out", str(tmp_path / "sac.npz")])
        == 0
    )
    assert "tanh" in capsys.readouterr().out


@pytest.mark.parametrize("to, name", [("numpy", "agent.npz"), ("onnx", "agent.onnx")])
def test_export_writes_a_file_whose_directions_work(to, name, finished, capsys) -> None:
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    assert main(["export", str(finished), "--to", to]) == 0
    said, how = capsys.readouterr().out.split("In Python:\n\n")
    assert str(finished / name) in said
    observations = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    scope = {"observations": observations}
    exec(how, scope)
    agent = tandem.load(finished)
    output = scope["network"](observations) if to == "numpy" else scope["act"](observations)[1]
    np.testing.assert_allclose(output, agent.networks["actor"](observations), rtol=1e-4, atol=1e-5)
    if to == "onnx":
        assert "run with onnxruntime" in said
        assert np.array_equal(scope["act"](observations)[0], agent.act(observations))


@pytest.mark.slow
def test_help_and_list_are_quick_and_bring_no_framework() -> None:
    """Within a few times what NumPy alone takes to import: seconds would say more of the machine
    than of the code."""
    code = """
        import contextlib, io, json, sys, time

        began = time.process_time()
        import numpy

        numpy = time.process_time() - began
        from tandem.cli import main

        with contextlib.redirect_stdout(io.StringIO()):
            main(sys.argv[1:])
        heavy = [
            m
            for m in ("torch", "tensorflow", "jax", "keras", "matplotlib", "gymnasium")
            if m in sys.modules
        ]
        print(json.dumps([numpy, time.process_time() - began, heavy]))
    """
    for given in (["--help"], ["list"], ["train", "ppo", "--help"]):
        found = [run_python(code, *given)[0] for _ in range(3)]
        assert not any(heavy for _, _, heavy in found)
        assert min(whole for _, whole, _ in found) < 15 * min(numpy for numpy, _, _ in found)
