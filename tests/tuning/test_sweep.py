"""`tandem sweep` and its function: no end of a sweep loses or repeats any of its trials."""

import csv
import errno
import io
import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import tandem
from tandem import algorithms, errors, trainer, zoo
from tandem.cli import main
from tandem.cli import sweep as sweep_command
from tandem.cli import train_arguments as train_command
from tandem.errors import TandemError
from tandem.learning.config import plain
from tandem.platforms import FULL
from tandem.runs import atomic_files, observers
from tandem.settings import apply, check_ranges
from tandem.testing.environments import Raises
from tandem.tuning import sweep as sweeps
from tandem.tuning import sweep_run as at
from tandem.tuning import sweep_study
from tandem.tuning.sweep_report import Swept, save_best, written
from tandem.tuning.sweep_run import Answer, TrialRun
from tandem.tuning.sweep_study import Plan, Study, SweepTrial, _mend, seed_of
from tandem.workers.jobs import RayActors
from tandem.workers.process import WorkerLost
from tests.advice.net import follows
from tests.helpers import expect_installed, own_cluster
from tests.runs.shared import CHILD, TANDEM, no_space, wait_for

SMALL: dict[str, Any] = {"framework": "torch", "steps": 1000, "envs": 2, "hidden": 16}
SMALL |= {"eval_episodes": 2, "env_kwargs": {"n": 6}}
GAMES = "a2c", "tandem/Identity-v0"


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    """A process of trials logs no notes."""
    yield
    logging.getLogger("tandem").setLevel(logging.NOTSET)


FLAGS = "--framework torch --steps 1000 --envs 2 --hidden 16 --eval-episodes 2 --sampler random"
WORDS = FLAGS.split()


ENDS = {1: at.REFUSED, 2: at.FAILED, 3: at.NOT_FINITE, 4: "killed", 5: "raises", 12: "bad"}


class Scripted:
    """A `TrialRun` that does what ENDS says of a trial's number."""

    def begin_trial(self, engine: Any, arguments: Any, out: Path, resume: Any) -> Answer:
        self.number, self.k, self.how = int(out.name), 0, ENDS.get(int(out.name), "")
        (out / "checkpoints").mkdir(parents=True, exist_ok=True)
        (out / "checkpoints" / "last.zip").write_text(f"{arguments['seed']} {resume}")
        return Answer(at.REFUSED, why="batches of 7") if self.how == at.REFUSED else self.go_on()

    def go_on(self) -> Answer:
        self.k += 1
        if self.k == 4 and self.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.k == 4 and self.how == "raises":
            raise RuntimeError("torn")
        if self.k == 4 and self.how in (at.FAILED, at.NOT_FINITE):
            return Answer(self.how, 400, seconds=4.0, why="that it was")
        if self.k > 10:
            return Answer(at.COMPLETE, 1000, seconds=10.0)
        mean = -100.0 if self.how == "bad" else float(self.number + self.k)
        return Answer(at.EVALUATED, 100 * self.k, mean, float(self.k))

    def leave(self) -> None:
        pass


class Alike(Scripted):
    def go_on(self) -> Answer:
        return super().go_on()._replace(mean=1.0)


@pytest.mark.slow
def test_a_trial_that_ends_in_any_way_is_one_result_among_others(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(at, "TrialRun", Scripted)
    told: list[SweepTrial] = []
    heard: list[tuple[int, int, float]] = []
    more: Any = {**SMALL, "out": tmp_path / "new", "told": told.append, "parallel": 1}
    found = tandem.sweep(*GAMES, trials=12, heard=lambda *now: heard.append(now), **more)
    states = [t.state for t in found.trials]
    assert states[:6] == ["complete", "refused", "failed", "not finite", "lost", "failed"]
    assert states[6:] == ["complete"] * 6 + ["pruned"]
    assert len(told) == 12 and all(t.state != "refused" for t in told)  # another was drawn
    why = [t.why for t in found.trials]
    assert why[1:4] == ["batches of 7", "that it was", "that it was"]
    assert "SIGKILL" in why[4] and "torn" in why[5]
    # the second half of 12 … 21
    assert found.best.number == 11 and found.best.score == pytest.approx(np.mean(range(17, 22)))
    assert found.trials[12].returns == [-100.0] * 3 and (12, 3, -100.0) in heard
    assert [t.number for t in found.ranked][:2] == [11, 10]
    kept = {f.parent.parent.name for f in (tmp_path / "new" / "trials").rglob("last.zip")}
    assert kept == {f"{t.number:04d}" for t in found.trials if t.state in ("complete", "lost")}
    with (tmp_path / "new" / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == states and float(rows[11]["gamma"]) > 0.8
    assert rows[4]["why"] == why[4] and rows[2]["return"] == ""
    assert found.picture is not None and found.picture.stat().st_size > 1000
    assert sum(found.importances.values()) == pytest.approx(1.0)

    # the same sweep, in two sittings, of which the second makes more
    more |= {"out": tmp_path / "two"}
    tandem.sweep(*GAMES, trials=5, **more)
    files = (tmp_path / "two" / "trials").rglob("000[0-3]/**/*.zip")  # 4 is retried
    first = {f: f.stat().st_mtime_ns for f in files}
    again = tandem.sweep(resume=tmp_path / "two", trials=12, parallel=1)
    assert list(map(_plain, again.trials)) == list(map(_plain, found.trials))
    assert all(f.stat().st_mtime_ns == when for f, when in first.items())


class Noted(Scripted):
    def begin_trial(self, engine: Any, arguments: Any, out: Path, resume: Any) -> Answer:
        self.number, self.k, self.how = int(out.name), 0, ""
        out.mkdir(parents=True)
        (out / "process").write_text(str(os.getpid()))
        return self.go_on()


class Stuck(Scripted):
    def leave(self) -> None:
        time.sleep(600)


@pytest.mark.slow
def test_a_pruned_trial_that_does_not_close_is_killed(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(at, "TrialRun", Stuck)
    monkeypatch.setattr(sweeps, "START", 0.5)
    monkeypatch.setattr(Study, "report", lambda study, trial, steps, mean: steps > 200)
    told: list[SweepTrial] = []
    more: Any = {**SMALL, "out": tmp_path / "new", "told": told.append, "parallel": 1}
    assert sweeps.Sweep(*GAMES, trials=2, **more).train() is None
    assert [t.state for t in told] == ["pruned", "pruned"]


@pytest.mark.parametrize(("framework", "each"), [("torch", [12]), ("tensorflow", [10, 2])])
def test_a_process_on_tensorflow_makes_ten_trials(framework, each, monkeypatch, tmp_path) -> None:
    expect_installed(framework)
    monkeypatch.setattr(at, "TrialRun", Noted)
    more: Any = {**SMALL, "out": tmp_path / "new", "parallel": 1, "pruner": "none"}
    tandem.sweep(*GAMES, trials=12, **more | {"framework": framework})
    places = sorted((tmp_path / "new" / "trials").glob("*/process"))
    processes = [file.read_text() for file in places]
    assert [processes.count(pid) for pid in dict.fromkeys(processes)] == each


def _plain(trial: SweepTrial) -> tuple[Any, ...]:
    score = None if np.isnan(trial.score) else trial.score
    return trial.number, trial.state, trial.settings, trial.returns, score


@pytest.mark.slow
def test_side_by_side_as_many_trials_are_made_as_were_asked_for(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(at, "TrialRun", Scripted)
    more: Any = {**SMALL, "out": tmp_path / "new", "parallel": 3, "pruner": "none"}
    found = tandem.sweep(*GAMES, trials=7, **more)
    assert len(found.trials) == 8 and [t.number for t in found.trials] == list(range(8))
    for trial in (t for t in found.trials if t.state == "complete"):
        kept = tmp_path / "new" / "trials" / f"{trial.number:04d}" / "checkpoints" / "last.zip"
        assert kept.read_text(encoding="utf-8") == f"{seed_of(0, trial.number)} None"


@pytest.mark.parametrize("prioritized", [False, True])
def test_what_is_given_is_given_to_the_trials_that_it_counts_in(prioritized, tmp_path) -> None:
    space = {"only": True, "prioritized": [True, False]}
    more = {"framework": "torch", "space": space, "priority_alpha": "0.5"}
    made = sweeps.Sweep("dqn", "CartPole-v1", out=tmp_path / "new", trials=2, **more)
    drawn = made.space.trial({"prioritized": prioritized, "priority_alpha": "0.5"})
    trial = SimpleNamespace(number=1, user_attrs={"settings": drawn})
    given = {n: x for n, x in made.arguments(trial).items() if n in ("prioritized", *more)}
    assert ("priority_alpha" in given) is prioritized
    del given["framework"]
    settings = trainer.resolve("dqn", "CartPole-v1", given)[0]
    assert settings.priority_alpha == (0.5 if prioritized else 0.6)


def test_seeds_of_a_sweep_are_none_that_one_reports_by() -> None:
    seeds = [seed_of(seed, number) for seed in range(3) for number in range(100)]
    assert min(seeds) >= 2**31 and len(set(seeds)) == 300
    assert max(seeds) < 2**32


@pytest.mark.parametrize(("algorithm", "env"), [("ppo", "CartPole-v1"), ("dqn", "ALE/Pong-v5")])
def test_the_entry_can_be_used_in_every_later_run(algorithm, env, tmp_path: Path) -> None:
    base = trainer.resolve(algorithm, env, {"learning_rate": "3e-4:0", "hidden": "32,32"})[0]
    plan = Plan(algorithm, env, "torch", 40, 0, "median", "tpe", [], {})
    best = SweepTrial(7, "complete", {}, [1.0], 1.0, 2.0, "")
    (tmp_path / "entry.toml").write_text(written(plan, base, best, 40), "utf-8")
    tables = tomllib.loads((tmp_path / "entry.toml").read_text("utf-8"))
    assert list(tables) == [algorithm] and list(tables[algorithm]) == [env]
    zoo.use(tmp_path / "entry.toml")
    try:
        found = trainer.resolve(algorithm, env, {})
    finally:
        zoo.use(None)
    assert found.settings == base and "trial 7 of 40" in found.source
    entry = tables[algorithm][env]
    assert "trial 7 of 40" in entry.pop("source") and entry["steps"] == base.steps
    again = apply(algorithms.get(algorithm).Settings(), entry)
    check_ranges(again)
    assert plain(again) == plain(base)


def concluded(folder: Path, capsys: Any, count: int, quiet: bool = False, **plan: Any) -> list[str]:
    """What the command prints at its end, of `count` completed trials and a pruned one."""
    made = kept(folder)
    made.plan = replace(made.plan, **plan)
    trials = [SweepTrial(i, "complete", {"gamma": i / 100}, [], i, 1.0, "") for i in range(count)]
    best, shares = trials[-1], {"learning_rate": 0.7, "gamma": 0.3}
    trials.append(replace(trials[0], number=count, state="pruned"))
    entry = written(made.plan, made.base, best, count)
    swept = Swept(folder, trials, best, entry, shares, folder / "importances.png")
    capsys.readouterr()
    sweep_command._conclude(made, swept, None, quiet)
    return capsys.readouterr().out.splitlines()


def test_the_end_of_a_sweep_repeats_no_row_but_the_best(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    said = concluded(tmp_path / "seven", capsys, 6)
    assert said[1] == "best trials, with the settings that matter most first:"
    assert said[2].split()[5:7] == ["learning_rate", "gamma"]
    assert [line.split()[0] for line in said[3:8]] == ["5", "4", "3", "2", "1"]
    assert said[8].startswith("6 complete, 1 pruned: ")
    assert said[9].startswith("what mattered, from 6 trials only: ")
    entry, home = tmp_path / "seven" / "entry.toml", tmp_path / "config" / "tandem" / "zoo.toml"
    use = f"To use them in every later run, append {entry} to {home}, or give --zoo {entry}."
    assert use in said and not any("src/tandem" in line for line in said)
    for quiet in (False, True):
        said = concluded(tmp_path / str(quiet), capsys, 4, quiet)
        assert any("best trials" in line for line in said) == quiet
    assert "what mattered: " in "\n".join(concluded(tmp_path / "many", capsys, 20))
    said = concluded(tmp_path / "own", capsys, 4, algorithm="m:Own", own=["algorithm"])
    assert '["m:Own"."tandem/Identity-v0"]' in said  # which no zoo can hold
    assert not any("every later run" in line for line in said)


def test_notes_of_a_trial_are_in_its_folder_alone(tmp_path: Path, caplog: Any) -> None:
    Walk(tmp_path / "run", algorithm="ppo", rollout=16)
    notes = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))["notes"]
    assert any("batch_size set to 32 instead of 64" in note for note in notes)
    assert not caplog.records


def test_a_sweep_of_short_trials_says_so_once(tmp_path: Path) -> None:
    for more, expected in ({}, 1), ({"learning_rate": 1e-3, "clip": 0.2}, 0):
        with errors.noting(notes := []):
            sweeps.Sweep("ppo", "CartPole-v1", **{**SMALL, "env_kwargs": None}, **more)
        assert sum("tuned for 100,000 steps" in text for text in notes) == expected


def test_half_a_line_of_the_journal_is_taken_away(tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    journal.write_bytes(b'{"a": 1}\n{"b"')
    os.symlink("nowhere", f"{journal}.lock")
    _mend(journal)
    assert journal.read_bytes() == b'{"a": 1}\n' and len(list(tmp_path.iterdir())) == 1
    _mend(journal)
    assert journal.read_bytes() == b'{"a": 1}\n'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pruner", "sampler", "ended"),
    [
        ("median", "random", {3}),
        ("asha", "random", {2, 8}),  # at a fifth, and at four times that
        ("hyperband", "random", {1, 3, 9}),
        ("none", "gp", set()),
    ],
)
def test_pruners_end_the_worse_ones_where_they_look(pruner, sampler, ended, tmp_path) -> None:
    """Twelve trials, each worse than the one before."""
    more: Any = {**SMALL, "space": {"only": True, "learning_rate": True, "gamma": True}}
    more |= {"out": tmp_path, "pruner": pruner, "sampler": sampler}
    made = sweeps.Sweep(*GAMES, **more)
    study = Study(tmp_path, made.plan, made.space)
    for number in range(12):
        trial = study.ask()
        for k in range(1, 11):
            if study.report(trial, 100 * k, float(k - 10 * number)):
                study.tell(trial, "pruned")
                break
        else:
            study.tell(trial, "complete")
    found = study.trials()
    study.close()
    assert found[0].state == "complete"
    assert {len(t.returns) for t in found if t.state == "pruned"} <= ended
    assert bool(ended) == any(t.state == "pruned" for t in found)
    assert len({str(t.settings) for t in found}) == 12


class Walk:
    """What a run answered, from its first evaluation to its end."""

    def __init__(self, out: Path, resume: Any = None, most: int = 100, **given: Any) -> None:
        self.run = TrialRun()
        self.answers = [self.run.begin_trial(None, {**ARGUMENTS, **given}, out, resume)]
        while self.answers[-1].what == at.EVALUATED and len(self.answers) < most:
            self.answers.append(self.run.go_on())

    def means(self) -> dict[int, float]:
        return {a.env_steps: a.mean for a in self.answers if a.what == at.EVALUATED}


ARGUMENTS: dict[str, Any] = {"algorithm": "a2c", "env": "tandem/Identity-v0", "framework": "torch"}
ARGUMENTS |= {"steps": 200, "hidden": 8, "envs": 2, "eval_every": 20, "eval_episodes": 1}
ARGUMENTS |= {"final_episodes": 1, "plots": False, "tensorboard": False, "checkpoint_seconds": 0.0}


def test_a_run_goes_on_where_an_answer_was_the_last_that_was_heard(monkeypatch, tmp_path) -> None:
    """A kill after an answer: whatever checkpoint is there has forgotten no evaluation."""
    monkeypatch.setattr(observers, "WRITING", float("inf"))  # a checkpoint after each block
    whole = Walk(tmp_path / "whole")
    assert [a.what for a in whole.answers] == [at.EVALUATED] * 10 + [at.COMPLETE]
    assert (tmp_path / "whole" / "result.json").is_file()
    heard = Walk(tmp_path / "part", most=4)
    rest = Walk(tmp_path / "part", {})
    heard.run.leave()
    assert heard.means() | rest.means() == whole.means()
    assert rest.answers[0].env_steps > 20, "it began anew"


def test_a_run_that_cannot_be_or_that_breaks_says_so(tmp_path: Path) -> None:
    (answer,) = Walk(tmp_path / "a", algorithm="ppo", batch_size=7, rollout=64).answers
    assert answer.what == at.REFUSED and "batch" in answer.why
    bursts = {"learning_rate": 1e6, "max_grad_norm": 1e30, "optimizer": "sgd", "entropy": 1e30}
    last = Walk(tmp_path / "b", **bursts).answers[-1]
    assert last.what == at.NOT_FINITE and last.why
    last = Walk(tmp_path / "c", env=Raises, env_kwargs=None).answers[-1]
    assert last.what == at.FAILED and "raised on purpose" in last.why


@pytest.mark.parametrize("env", ["CartPole-v1", "ALE/Pong-v5"])
def test_the_command_at_the_end_trains_what_the_trials_trained(env, tmp_path, capsys) -> None:
    given: dict[str, Any] = {"entry": "rainbow", "gamma": 0.9, "double": False, "threads": 2}
    if env.startswith("ALE"):
        pytest.importorskip("ale_py")
        given |= {"frame_skip": 2, "noop_max": 0}
    asked = {**given, "framework": "torch", "device": "cpu", "steps": 5000, "eval_episodes": 3}
    made = sweeps.Sweep("dqn", env, **asked, out=tmp_path / "new")
    drawn = {"learning_rate": 1e-3, "n_step": 2}
    trial = SweepTrial(3, "complete", drawn, [1.0], 1.0, 1.0, "")
    made.plan.save(made.folder)
    save_best(made.folder, made.plan, [trial], made.base)
    sweep_command._conclude(made, Swept(made.folder, [trial], trial, "", {}, None), None, False)
    line = next(x for x in capsys.readouterr().out.splitlines() if "tandem train" in x)
    assert line == f"  tandem train --from-sweep {made.folder} --seeds 5"
    args = train_command.arguments(shlex.split(line)[2:])
    assert (args.algorithm, args.env, args.seed) == ("dqn", made.plan.env, None)
    assert (args.framework, args.device) == ("torch", "cpu")
    told = train_command.given(args)
    settings, options, *_ = trainer.resolve("dqn", env, told)
    wanted, theirs, *_ = trainer.resolve("dqn", env, {**made.plan.given, **drawn})
    assert settings == wanted
    own = {"eval_every", "final_episodes", *sweeps.OWN}  # the sweep's, which were not asked for
    assert not own & told.keys() and told["eval_episodes"] == 3
    assert options == replace(theirs, **{n: getattr(options, n) for n in own})


def kept(folder: Path, *words: Any, **given: Any) -> sweeps.Sweep:
    """A sweep in a folder, with two complete trials."""
    made = sweeps.Sweep(*(words or GAMES), **{**SMALL, "out": folder, **given})
    folder.mkdir(exist_ok=True)
    made.plan.save(folder)
    drawn = {"gamma": 0.9, "learning_rate": "0.001"}, {"gamma": 0.99}
    trials = [SweepTrial(i, "complete", s, [1.0], 1.0 - i, 1.0, "") for i, s in enumerate(drawn)]
    save_best(folder, made.plan, trials, made.base)
    return made


def config_of(*path: Any) -> Any:
    return json.loads(Path(*path, "config.json").read_text(encoding="utf-8"))


def test_training_with_what_a_sweep_found(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    kept(Path("my sweep"), eval_every=500)
    more = ["--quiet", "--no-plots", "--no-tensorboard", "--steps", "600"]
    words = ["train", "--from-sweep", "my sweep", *more]
    assert main([*words, "--gamma", "0.5", "--out", "one"]) == 0
    one = config_of("one")
    assert (one["algorithm"], one["env"], one["framework"]) == (*GAMES, "torch")
    settings, options = one["settings"], one["options"]
    assert one["env_kwargs"] == {"n": 6} and one["seed"] == 0 and options["eval_every"] == 500
    assert (settings["gamma"], settings["learning_rate"]) == (0.5, "0.001")
    assert (settings["steps"], settings["envs"], settings["hidden"]) == (600, 2, [16])
    assert trainer.resolve(*GAMES, {})[1].keep == options["keep"]  # not the sweep's own
    assert main(["train", "--config", "my sweep/best.json", *more, "--out", "two"]) == 0
    assert config_of("two")["settings"] == settings | {"gamma": 0.9}
    assert main([*words, *GAMES, "--seeds", "2", "--seed", "3", "--out", "all"]) == 0
    assert [config_of("all", f"s{n}")["seed"] for n in (3, 4)] == [3, 4]
    assert config_of("all", "s4")["settings"] == settings | {"gamma": 0.9}
    assert train_command.arguments(words[1:3]).steps == 1000


@pytest.mark.slow
def test_a_sweep_with_a_network_by_name_is_resumed_and_trained_as_its_trials(
    monkeypatch, tmp_path, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("space.toml").write_text("batch_size = [128]\nrollout = [8]", "utf-8")
    name = ["--network", "tests.runs.test_start:body"]
    words = ["ppo", "CartPole-v1", *name, "--steps", "256", "--eval-episodes", "1"]
    more = ["--trials", "1", "--parallel", "1", "--space", "space.toml", "--out", "a"]
    assert main(["sweep", *words, *more, "--quiet"]) == 0
    assert main(["sweep", "--resume", "a", "--trials", "2", "--quiet"]) == 0
    assert main(["train", "--from-sweep", "a", "--quiet", "--no-plots", "--out", "b"]) == 0
    best, trial = config_of("b"), config_of("a", "trials", "0000")
    assert (best["network"], best["framework"]) == (name[1], "torch")
    assert best["settings"]["envs"] == trial["settings"]["envs"] == 16  # others fit no batch
    table = tomllib.loads(Path("a/entry.toml").read_text("utf-8"))["ppo"]["CartPole-v1"]
    assert (table["envs"], table["rollout"], table["batch_size"]) == (16, 8, 128)
    shutil.copytree("a", "copy")
    capsys.readouterr()
    assert main(["sweep", "--resume", "copy", "--trials", "3"]) == 2
    assert " ".join(name) in capsys.readouterr().err
    found = ["find", "lr", *words, "--points", "2", "--processes", "1", "--out", "f"]
    assert main(found) == 0 and capsys.readouterr().out.rstrip().endswith(" ".join(name))


def test_what_cannot_be_trained_from_a_sweep(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    of = train_command.arguments
    made, words = kept(Path("-s")), ["--from-sweep=-s"]
    with follows("Plan.read"):
        of(["--from-sweep", "none"])
    for other in ("--config", "--resume"):
        with follows("from_sweep.py:with_config") as advice:
            of([*words, other, "one"])
        assert advice.fix == f"leave {other} out."
    assert of([*words, "a2c", "Acrobot-v1"]).env == "Acrobot-v1"  # as with --config
    with follows("settings_file.py:fill 2") as advice:
        of(["ppo", *words])
    assert advice.fix.startswith("leave ppo out")
    kept(Path("own"), "a2c", Raises, env_kwargs=None)
    with follows("settings_file.py:read 5"):
        of(["--from-sweep", "own"])
    (made.folder / "best.json").unlink()
    with follows("from_sweep.py:with_config 2") as advice:
        of(words)
    assert advice.fix == "tandem sweep --resume ./-s"


@pytest.mark.parametrize(("width", "fits"), [(200, 4), (70, 2), (54, 0)])
def test_a_table_has_as_many_settings_as_fit(width, fits) -> None:
    console = Console(file=io.StringIO(), width=width, markup=False)
    names = ["gamma", "hidden", "learning_rate", "epochs"]
    settings = dict(zip(names, [0.99, "[64]", "9.8e-05:0:12.5", 4], strict=True))
    trial = SweepTrial(3, "complete", settings, [1.0], 1.0, 65.0, "", 12_000)
    trials = [trial, replace(trial, number=4, settings={})]
    console.print(sweep_command._table(console, {n: len(n) for n in names}, trials))
    head, row, other = console.file.getvalue().splitlines()
    cut = ["…"] * (fits < 4)
    assert head.split()[5:] == [*names[:fits], *cut] and other.split()[6:] == cut
    shown = ["3", "1.0", "complete", "12,000", "65.0", "s", "0.99", "[64]", "9.8e-05:0:12.5", "4"]
    assert row.split() == [*shown[: 6 + fits], *cut]
    assert max(map(len, (head, row))) <= width


@pytest.mark.slow
def test_the_command_tells_and_says_what_to_pass_on(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(at, "TrialRun", Alike)
    monkeypatch.setattr(sweep_command, "BEST", 2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.toml").write_text("only = true\ngamma = [0.9, 0.99]\nepochs = [3, 4]\n")
    words = ["sweep", "ppo", "tandem/Identity-v0", *WORDS, "--space", "space.toml"]
    kwargs = ["--env-kwargs", '{"n": 6}']
    assert main([*words, *kwargs, "--trials", "7", "--parallel", "1", "--out", "new"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ppo on tandem/Identity-v0, torch: 7 trials of 1,000 steps, 1 at a time")
    assert "  gamma   0.9, 0.99\n  epochs  3, 4\n" in said
    assert "No trial has the unchanged settings: epochs=10 is outside of the search" in said
    lines = [line.split() for line in said.splitlines()]
    names = ["trial", "return", "state", "steps", "time"]
    assert lines.count([*names, "gamma", "epochs"]) + lines.count([*names, "epochs", "gamma"]) == 2
    assert next(x for x in lines if x[:1] == ["2"])[:5] == ["2", "failed", "400", "4.0", "s"]
    assert ["that", "it", "was"] in lines and "refused" not in said
    end = next(i for i, line in enumerate(lines) if line[:2] == ["best", "trials:"])
    assert [x[0] for x in lines[end + 1 : end + 4]] == ["trial", "0", "6"]
    assert "Trials 0, 6, 7 tie; trial 0, the first one, is chosen." in said
    assert "1 combinations that cannot be trained with were resampled." in said
    assert '[ppo."tandem/Identity-v0"]\nsource = "tandem sweep of ' in said
    train = next(line for line in said.splitlines() if "tandem train" in line)
    assert train == "  tandem train --from-sweep new --seeds 5"
    assert main(["sweep", "--resume", "new", "--quiet"]) == 0
    assert "trials of" not in capsys.readouterr().out
    assert main([*words, "--out", "new"]) == 2
    assert "new exists and is not empty" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_sweep_that_was_stopped_and_killed_is_the_sweep_that_was_not(tmp_path: Path) -> None:
    """SIGTERM in the first trial, kill -9 of all processes in the second."""
    words = [*WORDS, "--env-kwargs", '{"n": 6}', "--trials", "3", "--checkpoint-seconds", "0"]
    words = [*GAMES, *words, "--rollout", "8", "--seed", "5"]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert _command([*words, "--parallel", "1", "--out", str(whole)], whole).wait() == 0

    process = _command([*words, "--parallel", "1", "--out", str(cut)], cut)
    wait_for(process, cut / "trials" / "0000" / "progress.csv", 20)
    process.terminate()
    assert process.wait() == 143
    assert f"tandem sweep --resume {cut}" in (tmp_path / "cut.out").read_text(encoding="utf-8")
    assert {t.state for t in _trials(cut)} == {"running"}

    process = _command(["--resume", str(cut), "--parallel", "1"], cut)
    wait_for(process, cut / "trials" / "0001" / "progress.csv", 20)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    finished = {f: f.stat().st_mtime_ns for f in (cut / "trials" / "0000").rglob("*")}
    marked = cut / "trials" / "0001" / "marked"
    marked.touch()  # what begins anew has a folder of its own
    assert {t.state for t in _trials(cut)} == {"complete", "running"}

    assert _command(["--resume", str(cut), "--parallel", "1"], cut).wait() == 0
    assert marked.is_file(), "the trial under way began anew"
    assert all(f.stat().st_mtime_ns == when for f, when in finished.items())
    one, other = _trials(whole), _trials(cut)
    assert list(map(_plain, one)) == list(map(_plain, other)) and len(one) == 3
    assert (whole / "entry.toml").read_bytes() == (cut / "entry.toml").read_bytes()
    weights = [
        [row["fingerprint"] for row in csv.DictReader(file.open())]
        for folder in (whole, cut)
        for file in sorted((folder / "trials").glob("*/progress.csv"))
    ]
    assert weights[:3] == weights[3:] and len(weights) == 6


def _command(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """`tandem sweep`, whose output goes beside the folder."""
    out, err = (folder.with_suffix(ending).open("wb") for ending in (".out", ".err"))
    more: Any = {"stdout": out, "stderr": err, "start_new_session": True}
    return subprocess.Popen([*TANDEM, "sweep", *words], env=CHILD, **more)


def _trials(folder: Path) -> list[SweepTrial]:
    made = sweeps.Sweep(resume=folder)
    study = Study(folder, made.plan, made.space)
    try:
        return study.trials()
    finally:
        study.close()


# A failure that is not the trial's stops a sweep; the resumed sweep repeats the trial


WHERE: dict[str, Any] = {**SMALL, "parallel": 1, "trials": 4}
WITHOUT_PRUNER = "--framework torch --steps 1000 --pruner none"


class Ends(Scripted):
    """Ends as the file `ends` says: lines of a trial, how, and after how many evaluations."""

    def begin_trial(self, engine: Any, arguments: Any, out: Path, resume: Any) -> Answer:
        self.number, self.k = int(out.name), 0
        lines = (out.parents[2] / "ends").read_text(encoding="utf-8").splitlines()
        ends = {int(line.split()[0]): line.split()[1:] for line in lines}
        self.how, count = ends.get(self.number, ("", "0"))
        self.count = int(count)
        (out / "checkpoints").mkdir(parents=True, exist_ok=True)
        (out / "checkpoints" / "last.zip").touch()
        with (out / "begun").open("a") as file:
            file.write(f"{resume is not None}\n")
        return self.go_on()

    def go_on(self) -> Answer:
        if self.k == self.count and self.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.k == self.count and self.how == at.BLOCKED:
            return Answer(at.BLOCKED, why="cannot write a.zip: no space; expected some.\nFix: it")
        self.k += 1
        return Answer(at.EVALUATED if self.k <= 10 else at.COMPLETE, 100 * min(self.k, 10), 1.0)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(at, "TrialRun", Ends)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ends").write_text("")
    return tmp_path


def states(folder: Path) -> list[str]:
    with (folder / "trials.csv").open() as file:
        return [row["state"] for row in csv.DictReader(file)]


@pytest.mark.slow
def test_a_disk_that_is_full_ends_the_sweep_and_no_trial(place, capsys) -> None:
    (place / "ends").write_text("1 blocked 3\n3 blocked 0")
    flags = f"{WITHOUT_PRUNER} --trials 4 --parallel 2 --out=-s".split()
    assert main(["sweep", *GAMES, *flags]) == 1
    told = capsys.readouterr().err
    assert "Traceback" not in told and "a.zip: no space; " in told and "Fix: it" not in told
    again = told.partition("then resume: tandem ")[2].split()
    assert again == ["sweep", "--resume", "./-s"]
    assert main(again) == 1  # for trial 3 too, unless it was that which ended the first
    (place / "ends").write_text("")
    assert main(again) == 0
    assert states(place / "-s") == ["complete"] * 4


@pytest.mark.slow
def test_a_trial_whose_process_is_killed_is_lost_and_retried_once(place: Path) -> None:
    """At once, and if it is killed there again, when the sweep is resumed."""

    def begun() -> list[list[str]]:
        files = sorted((place / "s" / "trials").glob("*/begun"))
        return [file.read_text(encoding="utf-8").split() for file in files]

    whole = tandem.sweep(*GAMES, **WHERE, pruner="none", out=place / "whole")
    (place / "ends").write_text("2 killed 4\n3 blocked 0")
    found = sweeps.Sweep(*GAMES, **WHERE, pruner="none", out=place / "s")
    with pytest.raises(errors.WorkerError):  # after which trial 2 is as it was
        found.train()
    (place / "ends").write_text("2 killed 4")
    again = tandem.sweep(resume=place / "s", parallel=1)
    assert [t.state for t in again.trials] == ["complete", "complete", "lost", "complete"]
    assert "SIGKILL" in again.trials[2].why and "retried" not in again.trials[2].why
    first, more = ["False"], ["False", "True", "True", "True"]
    assert begun() == [first, first, more, ["False", "True"]]
    assert not (place / "s" / "trials" / "0002" / "checkpoints" / "last.zip").exists()
    tandem.sweep(resume=place / "s", parallel=1)
    assert begun()[2] == more, "it was retried twice"

    (place / "ends").write_text("2 killed 4")
    lost = tandem.sweep(*GAMES, **WHERE, pruner="none", out=place / "t").trials[2]
    assert lost.state == "lost" and lost.why.endswith("; retried once when the sweep is resumed")
    assert states(place / "t") == ["complete", "complete", "lost", "complete"]
    (place / "ends").write_text("")
    came = tandem.sweep(resume=place / "t", parallel=1)
    assert list(map(_plain, came.trials)) == list(map(_plain, whole.trials))


class Dies:
    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_processes_that_cannot_begin_end_the_sweep(place, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(at, "TrialRun", Dies)
        said = r"trial 0: .*SIGKILL.* before it began"
        with pytest.raises(errors.WorkerError, match=said) as caught:
            tandem.sweep(*GAMES, **WHERE, out=place / "s")
    assert caught.value.fix.endswith(f"tandem sweep --resume {place / 's'}")
    found = tandem.sweep(resume=place / "s", parallel=1)
    assert [t.state for t in found.trials] == ["complete"] * 4


WRITERS = {
    "journal.log": "optuna.storages.journal.JournalFileBackend.append_logs",
    "trials.csv": "tandem.tuning.sweep_report.csv.writer",
    "entry.toml": "tandem.tuning.sweep_report.Path.write_text",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_files_of_the_sweep_that_cannot_be_written(name, place, monkeypatch, capsys) -> None:
    flags = f"{WITHOUT_PRUNER} --trials 2 --parallel 1 --out s".split()
    with monkeypatch.context() as patch:
        patch.setattr(WRITERS[name], no_space)
        assert main(["sweep", *GAMES, *flags]) == 2
    told = capsys.readouterr().err
    assert f"cannot write s/{name}: No space left on device; expected" in told
    assert main(told.rstrip().rpartition("tandem ")[2].split()) == 0
    assert states(place / "s") == ["complete"] * 2
    assert (place / "s" / "entry.toml").is_file()


def full(code: int = errno.ENOSPC) -> OSError:
    return OSError(code, os.strerror(code))


def caused(error: TandemError, cause: Exception) -> TandemError:
    error.__cause__ = cause
    return error


def lost(how: WorkerLost) -> TandemError:
    error = errors.WorkerError("a")
    error.__context__ = how
    return error


@pytest.mark.parametrize(
    "error, kind",
    [
        *((full(code), at.BLOCKED) for code in FULL),
        (full(errno.EACCES), at.FAILED),  # of an environment, say
        (caused(errors.RunFolderError("a"), full(errno.EACCES)), at.BLOCKED),
        (caused(errors.CheckpointError("a"), full(errno.EACCES)), at.BLOCKED),
        (caused(errors.CheckpointError("damaged"), ValueError("a")), at.FAILED),
        (caused(errors.EnvironmentFault("a"), full()), at.BLOCKED),
        (errors.ResumeError("under way in another process"), at.BLOCKED),
        (errors.UnrepeatableError("a"), at.FAILED),
        (lost(WorkerLost("was ended by SIGKILL")), at.LOST),
        (lost(WorkerLost("raised KeyError", "Traceback")), at.FAILED),
    ],
    ids=repr,
)
def test_which_failures_are_no_trials(error: Exception, kind: str) -> None:
    assert at._kind(error) == kind


def test_a_run_whose_checkpoint_does_not_fit_goes_on_with_room(tmp_path, monkeypatch) -> None:
    whole = Walk(tmp_path / "whole")
    real, count = os.replace, [0]

    def replace(source: Any, target: Any) -> None:
        count[0] += str(target).endswith("best.zip")
        no_space() if count[0] == 2 else real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files.os, "replace", replace)
        part = Walk(tmp_path / "part")
    assert part.answers[-1].what == at.BLOCKED and "No space left" in part.answers[-1].why
    again = Walk(tmp_path / "part", {})
    assert again.answers[-1].what == at.COMPLETE
    assert part.means() | again.means() == whole.means()


def test_the_advice_has_what_a_program_and_a_module_bring(monkeypatch, tmp_path) -> None:
    made = tandem.tuning.sweep.Sweep(*GAMES, **WHERE, out=tmp_path)
    assert made.plan.to_resume(tmp_path) == "free some space, or choose another with --out."
    made.plan.save(tmp_path)  # before, there is nothing to resume
    monkeypatch.setattr(sweep_study, "IMPORTED", ["mine"])
    assert made.plan.to_resume(tmp_path).endswith(f"--resume {tmp_path} --import mine")
    made.plan.own.append("env")
    assert made.plan.to_resume(tmp_path).endswith(f"sweep(resume={str(tmp_path)!r}, env=...)")


@pytest.fixture
def cluster() -> Iterator[None]:
    pytest.importorskip("ray")
    yield from own_cluster(2)


@pytest.mark.slow
def test_trials_on_a_cluster_are_those_of_processes_and_go_on_anywhere(cluster, tmp_path) -> None:
    given: Any = {**SMALL, "steps": 600, "trials": 2, "sampler": "random", "checkpoint_seconds": 0}
    here = tandem.sweep(*GAMES, **given, parallel=1, out=tmp_path / "here")
    there = tandem.sweep(*GAMES, **given, cluster="auto", parallel=1, out=tmp_path / "there")
    assert list(map(_plain, here.trials)) == list(map(_plain, there.trials))

    def stop(number: int, evaluations: int, mean: float) -> None:
        if (number, evaluations) == (1, 3):
            os.kill(os.getpid(), signal.SIGTERM)

    cut = tmp_path / "cut"
    made = sweeps.Sweep(*GAMES, **given, cluster="auto", parallel=1, out=cut, heard=stop)
    assert made.train() == "SIGTERM"
    assert (cut / "trials" / "0001" / "checkpoints" / "last.zip").is_file()
    left = sweeps.Sweep(resume=cut, cluster="auto", trials=2)
    assert left.train() is None and left.parallel == 2
    again = left.result()
    assert [_plain(t) for t in again.trials] == [_plain(t) for t in there.trials]
    assert [RayActors("auto", n, list).room for n in (1, 2, 3)] == [2, 1, 1]
    sweeps.expect_here(tmp_path)
    with follows("tuning/sweep.py:expect_here") as advice:
        sweeps.expect_here(tmp_path / "elsewhere")
    assert "give out=" in advice.fix and "leave cluster out" in advice.fix
