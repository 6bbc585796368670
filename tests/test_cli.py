"""The command line: what each command says and leaves behind, and how it answers what it cannot
do."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem import algorithms, trainer
from tandem.cli import COMMANDS, main, seeds, seeds_command, told
from tandem.learning.config import Options
from tandem.learning.figures import mean_and_std
from tandem.learning.parallel import choice
from tandem.runs import checkpoint
from tandem.runs.result import Result
from tandem.settings import declared, offered
from tests.helpers import run_python
from tests.runs.shared import QUICK, child, rows, wait_for

SHOWN = "--framework torch --eval-episodes 2 --final-episodes 3 --hidden 16"
SMALL = f"{SHOWN} --quiet --no-tensorboard"
CARTPOLE = f"train ppo CartPole-v1 {SMALL}"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A short run of PPO, with everything that a run leaves."""
    folder = tmp_path_factory.mktemp("runs") / "ppo"
    assert run(f"{CARTPOLE} --steps 1024 --log-every 256 --out {folder}") == 0
    return folder


def run(words: str) -> int:
    return main(words.split())


def json_of(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8"))


def test_overview_names_every_command_which_explains_itself(capsys) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"tandem {name}" in shown for name in COMMANDS)
    assert main([]) == 2
    assert main(["--version"]) == 0
    assert tandem.__version__ in capsys.readouterr().out
    for command in COMMANDS:
        assert main([command, "--help"]) == 0
        assert f"usage: tandem {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said", "times"),
    [
        ("train ppo CartPole-v1 --help", "A PART above 1 ends after the run.", 0),
        ("train ppo CartPole-v1 --help settings", "A PART above 1 ends after the run.", 1),
        ("sweep ppo CartPole-v1 --help all", "A PART above 1 ends after the run.", 1),
        ("train --help all", "A PART above 1 ends after the run.", 0),
        ("sweep --help all", "gamma = { low = 0.9, high = 0.999 }", 1),
    ],
)
def test_help_explains_how_values_are_written(words, said, times, capsys) -> None:
    assert main(words.split()) == 0
    assert " ".join(capsys.readouterr().out.split()).count(said) == times


@pytest.mark.parametrize("algorithm", algorithms.NAMES)
def test_help_has_every_setting_with_meaning_default_and_source(algorithm, capsys) -> None:
    assert main(["train", algorithm, "--help", "all"]) == 0
    raw = capsys.readouterr().out
    shown = "".join(raw.split())  # argparse breaks lines where it likes
    kind = algorithms.get(algorithm).Settings
    flags, shown_there = set(re.findall(r"--[a-z0-9-]+", raw)), offered(kind) + declared(Options)
    for name, default, meaning, source, *_ in declared(kind) + declared(Options):
        is_there = name in {s.name for s in shown_there}
        assert (f"--{name.replace('_', '-')}" in flags) is is_there
        if not is_there:
            continue
        assert all("".join(part.split()) in shown for part in (meaning, source))
        if isinstance(default, int | float) and not isinstance(default, bool):
            assert f"default{default}" in shown
        elif default == ():  # what is shown can be given
            assert f"default{'none' if name == 'writer' else shlex.quote('')}" in shown
    assert "--no-" in shown


def test_help_for_an_environment_shows_the_values_of_the_zoo(capsys) -> None:
    assert main(["train", "ppo", "CartPole-v1", "--help", "all"]) == 0
    shown = "".join(capsys.readouterr().out.split())
    assert "here0.8:rl-baselines3-zoo" in shown and "default0.95" in shown  # gae_lambda
    assert main(["train", "a2c", "ALE/Qbert-v5", "--help", "all"]) == 0  # of a family
    assert "here0.25:rl-baselines3-zoo" in "".join(capsys.readouterr().out.split())
    assert main(["train", "dqn", "PongNoFrameskip-v4", "--entry", "rainbow", "--help", "all"]) == 0
    assert "[herecategorical:" in "".join(capsys.readouterr().out.split())


def test_help_fits_on_a_screen(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for algorithm in algorithms.NAMES:
        assert main(["train", algorithm, "CartPole-v1", "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= 45 and max(map(len, lines)) <= 80
        assert lines[0].startswith("usage: tandem train [ALGORITHM] [ENV]")
    words = ["train", "ppo", "CartPole-v1"]
    found = {}
    for topic in ("", "settings", "run", "all"):
        assert main([*words, "--help", *topic.split()]) == 0
        found[topic] = capsys.readouterr().out
    row = next(line for line in found[""].splitlines() if line.startswith("--learning-rate X"))
    assert row.split()[-2:] == ["0.0003", "1e-3:0"]
    assert "--clip" in found["settings"] and "--keep" not in found["settings"]
    assert "--clip" not in found["run"] and "--keep" in found["run"]
    assert "Schulman" in found["all"] and "Schulman" not in found["settings"]
    assert "--frame-stack" not in found["all"]
    assert main(["train", "ppo", "ALE/Pong-v5", "--help", "run"]) == 0
    assert "--frame-stack" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["train", "--help", "ppo"]) == 0
    assert "--gamma X" in capsys.readouterr().out


GIVEN_ANEW = ("--seed 3", "--gamma 0.9", "--envs 3 --stop-at 1")
OF_RUNS = ("train --resume", "evaluate", "watch --live", "plot", "verify")
COUNTS = [f"train ppo CartPole-v1 --{x}" for x in ("steps", "seeds")]
COUNTS += ["evaluate RUNS/ppo --episodes", "check CartPole-v1 --steps", "verify RUNS/ppo --steps"]
SEEDED = ("evaluate RUNS/ppo", "watch RUNS/ppo --out play.gif", "check CartPole-v1")


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
        ("train ppo CartPole-v1 --stop-at soon", "a whole number"),
        ("train ppo CartPole-v1 --stop-at -1", "at least 0"),
        ("train ppo CartPole-v1 --gamma 1.5", "between 0 and 1"),
        ("train ppo CartPole-v1 --learning-rate 1:2:3:4", "a schedule"),
        ("train ppo CartPole-v1 --optimizer adamw", "'adam' or 'rmsprop' or 'sgd'"),
        ("train ppo CartPole-v1 --activation tnh", "tanh"),
        ("train ppo CartPole-v1 --seed x", "invalid int value: 'x'"),
        ("train ppo CartPole-v1 more", "unrecognized arguments: more"),
        ("train ppo CartPole-v1 --freeze a b", "Fix: tandem train ppo CartPole-v1 --freeze a,b"),
        ("evaluate RUNS/ppo pole:long", "Fix: tandem evaluate RUNS/ppo --env pole:long"),
        ("check grid.py", "Fix: write grid:NAME"),
        (
            "train ppo envs/grid.py:Grid",
            "is a file name; expected a module.\nFix: write grid:Grid",
        ),
        ("train ppo CartPole-v1 --network nets/net.py:CNN", "write net:CNN, in the folder nets"),
        ("train ppo CartPole-v1 --import envs/grid.py", "write grid, in the folder envs"),
        ("train ppo CartPole-v1 --time-limit 3m", "Fix: `timeout -s INT 3m tandem train …`"),
        ("train ppo CartPole-v1 --frame-stack 2", "leave it out, and give --wrapper 'gymnasium.wr"),
        ("train ppo CartPole-v1 --out", "expected one argument"),
        ("train ppo CartPole-v1 --framework torhc", "did you mean 'torch'"),
        ("train ppo CartPole-v1 --framework torch --device gpu", "did you mean 'cuda'"),
        ("train ppo CartPol", "did you mean 'CartPole-v"),
        ("train td3 CartPole-v1", "a bounded Box of actions"),
        ("train dqn Pendulum-v1", "Discrete actions"),
        *((f"train --resume RUNS/ppo {x}", x.split()[0]) for x in GIVEN_ANEW),
        *((f"{x} RUNS/pp0", "did you mean RUNS/ppo") for x in OF_RUNS),
        *((f"{x} 0", "at least 1") for x in COUNTS),
        *((f"{x} --seed -1", "setting seed=-1") for x in SEEDED),
        ("train dqn CartPole-v1 --resume RUNS/ppo", "has algorithm='ppo'"),
        ("train --resume RUNS/ppo --steps 5000", "--extend"),
        ("train --resume RUNS/ppo --steps 10 --extend", "--extend"),
        ("train ppo CartPole-v1 --out RUNS/ppo", "--resume RUNS/ppo"),
        ("evaluate RUNS", "did you mean RUNS/ppo"),
        ("evaluate", "required"),
        ("evaluate RUNS/ppo --which lats", "did you mean 'last'"),
        ("evaluate RUNS/ppo --jason", "did you mean '--json'"),
        ("watch RUNS/ppo --out play.avi", ".gif or .mp4"),
        ("watch RUNS/ppo --out play.gif --episodes 0", "setting episodes=0"),
        ("watch --live empty", "does not exist"),
        ("watch --live RUNS/ppo --episodes 2", "--live was given with --episodes"),
        ("watch --live RUNS/ppo --which last", "--live was given with --which"),
        ("watch --live RUNS/ppo --every 0", "at least 0.1 seconds"),
        ("watch RUNS/ppo --every 3", "--every was given without --live"),
        ("train ppo CartPole-v1 --log jsn", "'json'"),
        ("train ppo CartPole-v1 --log json --seeds 2", "--log json was given for several runs"),
        ("plot RUNS/ppo --out curve.docx", ".png, .svg or .pdf"),
        ("list --all", "there is no flag '--all'"),
        ("check CartPole-v7", "did you mean 'CartPole-v1'"),
        ("export RUNS/ppo --to onyx", "did you mean 'onnx'"),
        ("export RUNS/ppo", "required: --to"),
        ("export RUNS/ppo --to numpy --out agent.zip", ".npz"),
    ],
)
def test_refusals_are_in_words(command, said, finished, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(finished.rglob("*"))
    runs = str(finished.parent)
    assert main(command.replace("RUNS", runs).split()) == 2
    shown = capsys.readouterr()
    assert said.replace("RUNS", runs) in shown.err and shown.err.startswith("tandem: ")
    assert "Traceback" not in shown.err and shown.out == ""
    # nothing was made or changed
    assert sorted(finished.rglob("*")) == before and not list(tmp_path.rglob("*"))


def test_a_fault_while_running_has_another_code(finished, tmp_path, capsys, monkeypatch) -> None:
    """What an environment raised is shown from where it did."""
    assert run(f"train ppo tandem/NotFinite-v0 {SMALL} --steps 100 --out {tmp_path / 'a'}") == 1
    assert "returned the observation [nan] at step 5" in capsys.readouterr().err
    assert run(f"train ppo tandem/Raises-v0 {SMALL} --steps 100 --out {tmp_path / 'b'}") == 1
    above, said = capsys.readouterr().err.split("tandem: ")
    assert "in observe" in above and "ValueError: raised on purpose" in above
    assert "its own traceback is above" in said
    damaged = tmp_path / "best.zip"
    damaged.write_bytes((finished / "checkpoints" / "best.zip").read_bytes()[:-200])
    assert run(f"evaluate {damaged}") == 1
    assert "cannot be read as a checkpoint" in capsys.readouterr().err
    monkeypatch.setattr(trainer, "evaluate", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # what nobody expected shows its traceback
        run(f"evaluate {finished}")


def test_a_run_leaves_all_that_was_promised_and_says_so(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(f"train ppo CartPole-v1 {SHOWN} --steps 600 --gamma 0.9 --no-orthogonal") == 0
    shown = capsys.readouterr()
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("ppo-CartPole-v1-s0-")
    names = "config.json progress.csv curve.png animation.gif checkpoints/best.zip tensorboard"
    for name in names.split():
        assert (folder / name).exists(), name
    result = json_of(folder / "result.json")
    keys = "updates seconds steps_per_second eval_episodes eval_cut last_eval_cut versions"
    assert {*keys.split(), "algorithm", "env", "framework", "seed", "env_steps"} <= set(result)
    best = mean_and_std(result["eval_mean"], result["eval_std"])
    last = mean_and_std(result["last_eval_mean"], result["last_eval_std"])
    assert f"best checkpoint  {best} over 3 episodes" in shown.out
    assert f"last checkpoint  {last}" in shown.out
    assert f"tandem watch runs/{folder.name}" in shown.out and "animation.gif" in shown.out
    # progress, apart from the results
    assert ", with evaluations" in shown.err and "evaluation at" in shown.err
    settings = json_of(folder / "config.json")["settings"]
    assert (settings["gamma"], settings["orthogonal"], settings["hidden"]) == (0.9, False, [16])
    assert settings["rollout"] == 32  # of the zoo


def test_quiet_prints_only_the_result(tmp_path, capsys) -> None:
    """An id without a version is the newest."""
    words = f"train ppo CartPole {SMALL} --steps 64 --no-plots --out {tmp_path / 'r'}"
    assert run(words) == 0
    shown = capsys.readouterr()
    assert shown.err == "" and shown.out.startswith("ppo on CartPole-v1, torch, seed 0: ")
    assert not (tmp_path / "r" / "curve.png").exists()
    config = json_of(tmp_path / "r" / "config.json")
    assert config["env"] == "CartPole-v1" and config["settings"]["rollout"] == 32


@pytest.mark.slow
def test_commands_that_are_printed_can_be_given_as_they_stand(tmp_path, capsys) -> None:
    two = str(tmp_path / "two words")
    given = f"{CARTPOLE} --steps 64 --stop-at 0 --out".split()
    assert main([*given, two, "--no-plots"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  tandem ")]
    assert len(lines) == 3 and all(two in shlex.split(line) for line in lines)
    assert main([*given, two, "--no-plots"]) == 2
    assert f"--resume {shlex.quote(two)}" in capsys.readouterr().err
    assert main([*given, str(tmp_path / "a b"), "--seeds", "1"]) == 0
    shown = capsys.readouterr().out
    assert f"tandem train --resume '{tmp_path / 'a b'}'\n" in shown  # it is not complete
    assert f"tandem plot '{tmp_path / 'a b'}' --individual" in shown
    # nothing to draw yet is no fault of the runs
    assert "best checkpoints: mean over 1 seed " in shown and "no curve: the run" in shown


def test_a_resumed_run_has_the_rows_of_an_uninterrupted_one(finished, tmp_path, capsys) -> None:
    parts = tmp_path / "run"
    given = f"{CARTPOLE} --no-plots --steps 1024 --log-every 256 --out {parts}"
    assert run(f"{given} --stop-at 500") == 0
    assert f"tandem train --resume {parts}\n" in capsys.readouterr().out
    assert int(rows(parts)[-1]["env_steps"]) < 1024
    assert run(f"train --resume {parts} --quiet") == 0
    both = rows(parts), rows(finished)
    mine, theirs = ([(row["env_steps"], row["fingerprint"]) for row in each] for each in both)
    assert mine == theirs
    before = (parts / "progress.csv").read_bytes()
    capsys.readouterr()
    assert run(f"train --resume {parts} --quiet") == 0
    assert "has all of its 1,024 steps" in capsys.readouterr().out
    assert (parts / "progress.csv").read_bytes() == before
    assert run(f"train --resume {parts} --quiet --steps 1500 --extend") == 0
    assert int(rows(parts)[-1]["env_steps"]) >= 1500
    capsys.readouterr()
    assert run(f"verify {parts} --quiet") == 2
    assert "was extended from 1024 to 1500 steps" in capsys.readouterr().err


def test_a_run_with_callbacks_goes_on_from_the_command_line_and_back(tmp_path) -> None:
    """The command line has a callback of its own, which remembers nothing, in the place of the
    program's."""
    from tandem.runs.callbacks import EarlyStop

    out, given = tmp_path / "run", QUICK | {"steps": 1024, "callbacks": [EarlyStop(1e9)]}
    tandem.train("ppo", "CartPole-v1", stop_at=256, out=out, **given)
    assert run(f"train --resume {out} --stop-at 512 --quiet") == 0
    assert tandem.train(resume=out, callbacks=[EarlyStop(1e9)]).reason == "steps"


SEVERAL = f"{CARTPOLE} --steps 300 --no-plots --seed 3 --seeds 2"


@pytest.mark.slow
def test_several_seeds_make_several_runs_and_resume_exactly(tmp_path, capsys) -> None:
    parent, parts = tmp_path / "all", tmp_path / "parts"
    assert run(f"{SEVERAL} --out {parent}") == 0
    there = [".lock", "s3", "s3.log", "s4", "s4.log", "seeds.json"]  # no curve.png: --no-plots
    assert sorted(p.name for p in parent.iterdir()) == there
    for seed in (3, 4):
        assert json_of(parent / f"s{seed}" / "config.json")["seed"] == seed
    assert rows(parent / "s3")[0]["fingerprint"] != rows(parent / "s4")[0]["fingerprint"]
    shown = capsys.readouterr().out
    assert (
        "seed 3: " in shown
        and "seed 4: " in shown
        and "last checkpoints: mean over 2 seeds " in shown
    )
    assert "--resume" not in shown
    assert run(f"plot {parent} --individual --out {tmp_path / 'both.svg'}") == 0
    assert "svg" in (tmp_path / "both.svg").read_text(encoding="utf-8")
    assert run(f"{SEVERAL} --out {parts} --stop-at 100") == 0
    shutil.rmtree(parts / "s4" / "checkpoints")  # as of one that was killed as it began
    assert run(f"train --resume {parts} --quiet") == 0
    for seed in ("s3", "s4"):
        one, other = (rows(folder / seed)[-1]["fingerprint"] for folder in (parent, parts))
        assert one == other


def test_the_folders_of_all_seeds_are_looked_at_before_one_is_trained(tmp_path, capsys) -> None:
    parent = tmp_path / "all"
    (parent / "s2").mkdir(parents=True)
    (parent / "s2" / "notes.txt").write_text("mine")
    assert run(f"{CARTPOLE} --steps 300 --no-plots --seeds 3 --out {parent}") == 2
    shown = capsys.readouterr()
    assert f"{parent / 's2'} exists and is not empty" in shown.err and not shown.out
    assert [p.name for p in parent.iterdir()] == ["s2"]


def test_what_cannot_be_drawn_costs_one_line_and_no_curve(tmp_path, monkeypatch, caplog) -> None:
    out = tmp_path / "run"
    assert run(f"train ppo tandem/Identity-v0 {SMALL} --steps 100 --out {out}") == 0
    (said,) = [text for text in caplog.messages if "no animation" in text]
    why = "tandem/Identity-v0 cannot be rendered: its render modes are none."
    assert said == f"Note: no animation: {why}"
    assert (out / "curve.png").exists() and not (out / "animation.gif").exists()
    render = "gymnasium.envs.classic_control.CartPoleEnv.render"
    monkeypatch.setattr(render, lambda self: 1 / 0)
    assert run(f"{CARTPOLE} --steps 100 --out {tmp_path / 'torn'}") == 0
    assert "no animation: the environment's render() failed: ZeroDivisionError" in caplog.text
    assert not (tmp_path / "torn" / "animation.gif").exists()


LONG = "train ppo CartPole-v1 --framework torch --steps 10000000 --compile no"


def begun(words: str, folder: Path) -> subprocess.Popen[str]:
    return child("-m", "tandem", *words.split(), cwd=folder)


@pytest.mark.slow
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_with_a_checkpoint(number, code, tmp_path) -> None:
    process = begun(f"{LONG} --log-every 256 --out run", tmp_path)
    wait_for(process, tmp_path / "run" / "progress.csv", 2)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert f"Stopped by {number.name} and saved" in out and "Traceback" not in err
    at = checkpoint.read(tmp_path / "run" / "checkpoints" / "last.zip").data
    assert at["counters"]["episodes"] > 0


def test_a_signal_after_the_last_step_asks_for_no_resume(tmp_path, capsys) -> None:
    given = {"framework": "torch", "progress": False, "final_episodes": 1, "callbacks": [print]}
    given |= {"steps": 64, "rollout": 32, "envs": 2, "out": tmp_path / "run"}
    run = tandem.session("ppo", "CartPole-v1", **given)
    for complete in (False, True):
        if complete:
            list(run)
            run.result()
        told.ended(run, Result(None, run.folder, None, reason="SIGINT"))  # type: ignore[arg-type]
        out = capsys.readouterr().out
        assert ("after the last step" in out, "--resume" in out) == (complete, not complete)


def test_a_signal_after_the_last_step_of_all_seeds_asks_for_no_resume(tmp_path, capsys) -> None:
    ended = seeds.SeedRun(3, tmp_path, [])
    command = seeds_command.SeedsCommand(["ppo", "CartPole-v1"], [3], tmp_path)
    given = {"framework": "torch", "progress": False, "final_episodes": 1, "plots": False}
    tandem.train("ppo", "CartPole-v1", steps=64, rollout=32, envs=2, out=ended.folder, **given)
    waits = seeds.SeedRun(4, tmp_path, [])
    for runs in ([ended], [ended, waits]):
        assert seeds._told(command, runs, ["SIGINT"], draws=False) == 130
        out = capsys.readouterr().out
        assert ("after the last step" in out, "--resume" in out) == (len(runs) == 1, len(runs) == 2)


@pytest.mark.slow
def test_a_signal_ends_several_seeds_and_says_how_to_go_on(tmp_path) -> None:
    process = begun(f"{LONG} --seeds 2 --out many", tmp_path)
    wait_for(process, tmp_path / "many" / "s0" / "progress.csv")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    assert "Stopped by SIGINT and saved. To resume:\n  tandem train --resume many\n" in out
    assert "Stopped by" not in err and "run: many" not in err, "what a run prints"
    again = begun("train --resume many --stop-at 1 --quiet", tmp_path)
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0 and "Traceback" not in err
    for seed in (0, 1):  # one of which may not have begun by then
        assert (tmp_path / "many" / f"s{seed}" / "result.json").exists()


@pytest.mark.slow
def test_a_seed_whose_environment_ends_its_process_has_failed(tmp_path) -> None:
    code = "import os\nfrom gymnasium.envs.classic_control import CartPoleEnv as Env\n"
    (tmp_path / "ends.py").write_text(f"{code}Env.step = lambda *_: os._exit(0)\n")
    words = "train a2c CartPole-v1 --import ends --framework torch --seeds 1 --out many"
    out, err = (process := begun(words, tmp_path)).communicate(timeout=60)
    assert process.returncode == 1 and "seed 0 failed" in err and "seed 0: done" not in out


@pytest.mark.slow
def test_lost_processes_of_several_seeds(tmp_path) -> None:
    process = begun(f"{LONG} --seeds 2 --log-every 256 --out many", tmp_path)
    wait_for(process, tmp_path / "many" / "s1" / "progress.csv", 2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("utf-8")
    os.kill(int(children.split()[1]), signal.SIGKILL)
    wait_for(process, tmp_path / "many" / "s0" / "progress.csv", 2)
    process.kill()  # the other run is still saved
    limit = time.monotonic() + 60
    while "stopped by SIGTERM" not in (tmp_path / "many" / "s0.log").read_text("utf-8"):
        assert time.monotonic() < limit
        time.sleep(0.1)


@pytest.mark.parametrize(
    "code, words, comes_to", [(-9, "SIGKILL", 137), (143, "SIGTERM", 143), (1, "failed", 1)]
)
def test_how_a_seed_ended_is_told(tmp_path, capsys, code, words, comes_to) -> None:
    one = seeds.SeedRun(3, tmp_path, [])
    one.log.write_text("its last words\n")
    one.code = code
    command = seeds_command.SeedsCommand(["ppo", "CartPole-v1"], [3], tmp_path)
    assert seeds._told(command, [one], [], draws=False) == comes_to
    shown = capsys.readouterr()
    first, *rest = shown.err.splitlines()
    assert words in first and "seed 3" in first and rest == ["  its last words"]
    assert f"tandem train --resume {tmp_path}" in shown.out


@pytest.mark.slow
def test_a_command_that_is_refused_is_told_once(tmp_path, capfd) -> None:
    wrong = "--rollout 7 --envs 2 --batch-size 64 --seeds 2"
    assert run(f"train ppo CartPole-v1 {wrong} --out {tmp_path / 'all'}") == 2
    shown = capfd.readouterr()
    assert shown.err.count("rows that divide evenly into batches") == 1
    assert not (tmp_path / "all").exists()
    one = seeds.SeedRun(0, tmp_path, [])
    for one.code, was in ((2, True), (143, False), (0, False)):
        assert one.was_refused is was


def test_runs_of_several_seeds_share_the_cores(monkeypatch) -> None:
    monkeypatch.setattr(choice, "cores", lambda: 8)
    monkeypatch.setattr(choice, "has_gpu", lambda: False)

    def number(**given: object) -> int:
        return choice.runs_at_once({"device": None, **given})

    assert number() == 8 and number(workers="auto") == 8 and number(workers="3") == 2
    assert number(learners="4") == number(devices="4") == number(threads="4") == 2
    assert number(workers="20") == 1 and number(device="cuda") == 1
    monkeypatch.setattr(choice, "has_gpu", lambda: True)
    assert number() == 1 and number(device="cpu") == 8
    words = ["train", "ppo", "X", "--seeds=3", "--seed", "4", "--out", "a", "--steps", "9"]
    assert seeds_command.without(words, seeds_command.OWN) == ["train", "ppo", "X", "--steps", "9"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "framework", ["jax", "tensorflow", pytest.param("keras-torch", marks=pytest.mark.thorough)]
)
def test_each_engine_from_the_outside(framework, tmp_path) -> None:
    words = f"train ppo CartPole-v1 --framework {framework} --steps 600 --out run --quiet"
    process = begun(words, tmp_path)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert f"ppo on CartPole-v1, {framework}, seed 0: " in out and "Traceback" not in err
    verified = begun("verify run --steps 300 --quiet", tmp_path)
    assert verified.communicate(timeout=200)[0].startswith("equal: ") and verified.returncode == 0


def test_evaluate_says_what_the_library_says(finished, capsys) -> None:
    assert run(f"evaluate {finished} --episodes 4 --seed 7 --which last --json") == 0
    shown = json.loads(capsys.readouterr().out)
    expected = tandem.evaluate(tandem.load(finished, which="last"), "CartPole-v1", 4, 7)
    assert (shown["mean"], shown["std"], shown["returns"], shown["lengths"]) == tuple(expected[:4])
    assert shown["checkpoint"].endswith("last.zip") and len(shown["returns"]) == 4
    assert run(f"evaluate {finished}/checkpoints/last.zip --episodes 4 --seed 7") == 0
    score = mean_and_std(expected.mean, expected.std)
    assert f"return {score} over 4 episodes" in capsys.readouterr().out


def test_an_environment_of_a_program_is_not_guessed(finished, tmp_path, capsys) -> None:
    import gymnasium

    own, given = tmp_path / "own", QUICK | {"steps": 64, "envs": 1}
    tandem.train("ppo", lambda: gymnasium.make("CartPole-v1"), out=own, **given)
    for command in ("evaluate", "watch", "verify", "train --resume"):
        assert run(f"{command} {own}") == 2
        assert ("env=" if "train" in command else "passed from Python") in capsys.readouterr().err


def test_watch_without_a_screen_writes_a_file(finished, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tandem.cli.watch.has_display", lambda: False)
    for file in (finished / "animation.gif", tmp_path / "play.gif", tmp_path / "play.mp4"):
        assert run(f"watch {finished}" + f" --out {file}" * (file.parent == tmp_path)) == 0
        assert file.stat().st_size > 1000 and capsys.readouterr().out == f"wrote {file}\n"


def test_watch_opens_a_window_where_there_is_a_screen(finished, capsys, monkeypatch) -> None:
    monkeypatch.setattr("tandem.cli.watch.has_display", lambda: True)
    monkeypatch.setattr("tandem.reports.animation.has_display", lambda: True)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    metadata = "gymnasium.envs.classic_control.CartPoleEnv.metadata"
    monkeypatch.setattr(metadata, {"render_modes": ["human"], "render_fps": 10**6})
    assert run(f"watch {finished} --episodes 2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["episode 1", "episode 2"]


def test_plot_draws_beside_the_run(finished, capsys) -> None:
    (finished / "curve.png").unlink()
    assert run(f"plot {finished}") == 0
    assert (finished / "curve.png").stat().st_size > 1000
    assert capsys.readouterr().out == f"wrote {finished / 'curve.png'}\n"


def test_list_shows_algorithms_zoo_and_engines(capsys, monkeypatch) -> None:
    monkeypatch.setattr("tandem.backends.installed", lambda: ["torch"])
    assert main(["list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in algorithms.NAMES) and "Schulman et al. 2017" in shown
    assert "not installed: pip install 'tandem-rl[jax]'" in shown
    assert re.search(r"\ntorch +torch 2", shown)
    assert main(["list", "ppo"]) == 0
    shown = capsys.readouterr().out
    assert "LunarLander-v3" in shown and re.search("MuJoCo locomotion +HalfCheetah-v5", shown)
    assert main(["list", "HalfCheetah-v5", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["algorithms"]
    assert shown["td3"]["steps"] == 1_000_000 and "dqn" not in shown
    assert main(["list", "dqn", "--json"]) == 0
    assert "rainbow" in json.loads(capsys.readouterr().out)["entries"]
    assert main(["list", "HalfCheeta-v5"]) == 2
    assert "did you mean 'HalfCheetah-v5'" in capsys.readouterr().err


def test_check_has_a_line_for_each_finding(capsys) -> None:
    assert run("check CartPole-v1 --steps 200") == 0
    shown = capsys.readouterr().out
    for part in ("nstep_q, ppo", "every number finite", "exact, to the bit", "plain speed"):
        assert part in shown
    assert "native speed" in shown and "for 1,000,000 transitions" in shown
    assert run("check tandem/NotFinite-v0") == 1
    assert "FAULT  random steps  environment 0" in capsys.readouterr().out


def test_verify_finds_the_first_row_that_differs(finished, tmp_path, capsys) -> None:
    assert run(f"verify {finished} --quiet") == 0
    assert f"equal: {len(rows(finished))} rows" in capsys.readouterr().out
    forged = tmp_path / "forged"
    shutil.copytree(finished, forged)
    table = rows(forged)
    step, old = table[1]["env_steps"], table[1]["fingerprint"]
    text = (forged / "progress.csv").read_text(encoding="utf-8")
    (forged / "progress.csv").write_text(text.replace(old, "0123456789abcdef"))
    assert run(f"verify {forged} --quiet") == 1
    shown = capsys.readouterr().out
    assert f"row 2 of {forged / 'progress.csv'} (step {int(step):,})" in shown
    assert "0123456789abcdef" in shown and old in shown
    # before it, all is well
    assert run(f"verify {forged} --quiet --steps {table[0]['env_steps']}") == 0


def test_a_run_of_sac_from_the_outside(tmp_path, capsys) -> None:
    out, given = tmp_path / "run", "--learning-starts 50 --steps 200 --target-entropy -1"
    given += " --initial-temperature 0.2 --buffer-size 1e3 --no-plots"
    assert run(f"train sac Pendulum-v1 {SMALL} {given} --out {out}") == 0
    settings = json_of(out / "config.json")["settings"]
    assert (settings["initial_temperature"], settings["target_entropy"]) == (0.2, -1)
    assert settings["buffer_size"] == 1000
    assert run(f"verify {out} --quiet --steps 100") == 0
    assert run(f"export {out} --to numpy --out {tmp_path / 'sac.npz'}") == 0
    assert "tanh" in capsys.readouterr().out


@pytest.mark.parametrize("to, name", [("numpy", "agent.npz"), ("onnx", "agent.onnx")])
def test_export_writes_a_file_whose_directions_work(to, name, finished, capsys) -> None:
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    assert run(f"export {finished} --to {to}") == 0
    said, how = capsys.readouterr().out.split("In Python:\n\n")
    assert str(finished / name) in said
    observations = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    scope = {"observations": observations}
    exec(how, scope)
    agent = tandem.load(finished)
    output = scope["network"](observations) if to == "numpy" else scope["act"](observations)[1]
    np.testing.assert_allclose(output, agent.networks["actor"](observations), rtol=1e-4, atol=1e-5)
    if to == "onnx":
        assert "equal the agent's on 200 random observations" in said
        assert np.array_equal(scope["act"](observations)[0], agent.act(observations))


@pytest.mark.slow
def test_help_and_list_are_quick_and_bring_no_framework() -> None:
    """Within a few times what NumPy alone takes to import, on any machine."""
    code = """
        import contextlib, io, json, sys, time
        began = time.process_time()
        import numpy
        numpy = time.process_time() - began
        from tandem.cli import main
        with contextlib.redirect_stdout(io.StringIO()):
            main(sys.argv[1:])
        heavy = {"torch", "tensorflow", "jax", "keras", "matplotlib", "gymnasium"}
        print(json.dumps([numpy, time.process_time() - began, sorted(heavy & {*sys.modules})]))
    """
    for given in (["--help"], ["list"], ["train", "ppo", "--help"]):
        found = [run_python(code, *given)[0] for _ in range(2)]
        assert not any(heavy for _, _, heavy in found)
        assert min(whole for _, whole, _ in found) < 15 * min(numpy for numpy, _, _ in found)


def test_the_cache_is_told_of_and_emptied(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "tandem" / "torch").mkdir(parents=True)
    (tmp_path / "tandem" / "torch" / "a.so").write_bytes(bytes(2_500_000))
    assert main(["cache"]) == main(["cache", "--empty"]) == main(["cache"]) == 0
    first, jax, emptied, _, last, _ = capsys.readouterr().out.splitlines()
    assert first == f"torch: 2.5 MB in {tmp_path / 'tandem' / 'torch'}"
    assert (jax, last) == ("jax: nothing compiled", "torch: nothing compiled")
    assert emptied == f"{first}, deleted"
