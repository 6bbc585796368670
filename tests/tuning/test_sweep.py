"""`tandem sweep` and its function: no end of a sweep loses or repeats any of its trials."""

from __future__ import annotations

import csv
import os
import shlex
import signal
import subprocess
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tandem
from tandem import algorithms, trainer
from tandem.cli import main
from tandem.cli import train as train_command
from tandem.cli.sweep import _conclude as conclude
from tandem.learning.config import plain
from tandem.runs import observers
from tandem.settings import apply, check_ranges
from tandem.testing.environments import Raises
from tandem.tuning import sweep as sweeps
from tandem.tuning import sweep_run as at
from tandem.tuning.sweep_report import Swept, written
from tandem.tuning.sweep_run import Answer, TrialRun
from tandem.tuning.sweep_study import Plan, Study, SweepTrial, _mend, seed_of
from tests.runs.shared import CHILD, TANDEM, wait_for
from tests.tuning.test_search import nothing_starts

SMALL: dict[str, Any] = {"framework": "torch", "steps": 1000, "envs": 2, "hidden": 16}
SMALL |= {"eval_episodes": 2, "env_kwargs": {"n": 6}}
GAMES = "a2c", "tandem/Identity-v0"
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
    assert states[:6] == ["complete", "refused", "failed", "not finite", "failed", "failed"]
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
    assert kept == {f"{t.number:04d}" for t in found.trials if t.state == "complete"}
    with (tmp_path / "new" / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == states and float(rows[11]["gamma"]) > 0.8
    assert rows[4]["why"] == why[4] and rows[2]["return"] == ""
    assert found.picture is not None and found.picture.stat().st_size > 1000
    assert sum(found.importances.values()) == pytest.approx(1.0)

    # the same sweep, in two sittings, of which the second makes more
    more |= {"out": tmp_path / "two"}
    tandem.sweep(*GAMES, trials=5, **more)
    first = {f: f.stat().st_mtime_ns for f in (tmp_path / "two" / "trials").rglob("*.zip")}
    again = tandem.sweep(resume=tmp_path / "two", trials=12, parallel=1)
    assert [t[:2] for t in map(_plain, again.trials)] == [t[:2] for t in map(_plain, found.trials)]
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
    pytest.importorskip(framework)
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
    files = (tmp_path / "new" / "trials").glob("*/checkpoints/last.zip")
    seeds = {file.read_text(encoding="utf-8") for file in files}
    assert seeds == {f"{seed_of(0, t.number)} None" for t in found.trials if t.state == "complete"}


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


def test_a_sweep_infers_the_framework_from_a_custom_network(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    network = {"actor": torch.nn.Linear(4, 2), "critic": torch.nn.Linear(4, 1)}
    made = sweeps.Sweep("ppo", "CartPole-v1", out=tmp_path / "new", trials=2, network=network)
    assert made.plan.framework == "torch"


def test_seeds_of_a_sweep_are_none_that_one_reports_by() -> None:
    seeds = [seed_of(seed, number) for seed in range(3) for number in range(100)]
    assert min(seeds) >= 2**31 and len(set(seeds)) == 300
    assert max(seeds) < 2**32


@pytest.mark.parametrize(("algorithm", "env"), [("ppo", "CartPole-v1"), ("dqn", "ALE/Pong-v5")])
def test_the_entry_can_be_pasted_into_the_zoo(algorithm, env) -> None:
    base = trainer.resolve(algorithm, env, {"learning_rate": "3e-4:0", "hidden": "32,32"})[0]
    plan = Plan(algorithm, env, "torch", 40, 0, "median", "tpe", [], {})
    best = SweepTrial(7, "complete", {}, [1.0], 1.0, 2.0, "")
    tables = tomllib.loads(written(plan, base, best, 40))
    assert list(tables) == [env]
    entry = tables[env]
    assert "trial 7 of 40" in entry.pop("source") and entry["steps"] == base.steps
    again = apply(algorithms.get(algorithm).Settings(), entry)
    check_ranges(again)
    assert plain(again) == plain(base)


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
    conclude(made, Swept(made.folder, [trial], trial, "", {}, None), None)
    line = next(x for x in capsys.readouterr().out.splitlines() if "tandem train" in x)
    args = train_command.arguments(shlex.split(line)[2:])
    assert (args.framework, args.device) == ("torch", "cpu")
    told = train_command.given(args)
    settings, options, *_ = trainer.resolve("dqn", env, told)
    wanted, theirs, *_ = trainer.resolve("dqn", env, {**made.plan.given, **drawn})
    assert settings == wanted
    own = {"eval_every", "final_episodes", *sweeps.OWN}  # the sweep's, which were not asked for
    assert not own & told.keys() and told["eval_episodes"] == "3"
    assert options == replace(theirs, **{n: getattr(options, n) for n in own})


@pytest.mark.slow
def test_the_command_tells_and_says_what_to_pass_on(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(at, "TrialRun", Alike)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.toml").write_text("only = true\ngamma = [0.9, 0.99]\nepochs = [3, 4]\n")
    words = ["sweep", "ppo", "tandem/Identity-v0", *WORDS, "--space", "space.toml"]
    kwargs = ["--env-kwargs", '{"n": 6}']
    assert main([*words, *kwargs, "--trials", "7", "--parallel", "1", "--out", "new"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("ppo on tandem/Identity-v0, torch: 7 trials of 1,000 steps, 1 at a time")
    assert "  gamma   0.9, 0.99\n  epochs  3, 4\n" in said
    assert "No trial has the settings as they are: epochs=10 is outside of that." in said
    assert "trial 2   failed: that it was" in said and "refused" not in said
    assert "Trials 0, 6, 7 tie; trial 0, the first one, is chosen." in said
    assert "1 combinations that cannot be trained with were drawn anew." in said
    assert '["tandem/Identity-v0"]\nsource = "tandem sweep of ' in said
    train = next(line for line in said.splitlines() if "tandem train" in line)
    assert "--eval-episodes 2 --envs 2 --hidden 16 --steps 1000 --framework torch " in train
    assert "torch --env-kwargs '{\"n\": 6}' --seeds 5" in train
    assert "--gamma 0.9" in train and "--epochs" in train
    assert main(["sweep", "--resume", "new", "--quiet"]) == 0
    assert "trials of" not in capsys.readouterr().out
    assert main([*words, "--out", "new"]) == 2
    assert "new exists and is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("", "tandem sweep ppo CartPole-v1"),
        ("ppo", "`tandem sweep` needs an environment"),
        ("CartPole-v1 ppo", "tandem sweep ppo CartPole-v1"),
        ("pppo CartPole-v1", "did you mean 'ppo'"),
        ("ppo CartPole-v1 --trails 3", "did you mean '--trials'"),
        ("ppo CartPole-v1 --trials 0", "at least 1"),
        ("ppo CartPole-v1 --parallel 0", "at least 1"),
        ("ppo CartPole-v1 --pruner medium", "give pruner='median'"),
        ("ppo CartPole-v1 --sampler tep", "give sampler='tpe'"),
        ("ppo CartPole-v1 --munchausen", "it is a setting of dqn"),
        ("ppo CartPole-v1 --eval-episodes 0", "leave eval_episodes out"),
        ("ppo CartPole-v1 --runners 2", "leave runners out"),
        ("ppo CartPole-v1 --space none.toml", "cannot read the space none.toml"),
        ("ppo CartPole-v1 --env-kwargs x", "a JSON object"),
        ("ppo CartPole-v1 --framework pytorch", "did you mean 'torch'"),
        ("dqn Pendulum-v1", "dqn cannot act"),
        ("--resume nowhere", "nowhere is not a sweep"),
    ],
)
def test_what_cannot_be_is_answered_before_anything_runs(
    words: str, answer: str, capsys: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    nothing_starts(monkeypatch, "workers.jobs.Process")
    assert main(["sweep", *words.split()]) == 2
    assert answer in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_help_names_flags_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "dqn", "CartPole-v1", "--help"]) == 0
    said = capsys.readouterr().out
    flags = ["--trials", "--parallel", "--pruner", "--space", "--resume", "--epsilon", "--steps"]
    assert all(said.count(f"\n  {flag} ") == 1 for flag in flags)


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
