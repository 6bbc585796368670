"""`tandem find` and its functions, and what `tandem sweep` refuses as it does."""

import csv
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import tandem
from tandem import trainer
from tandem.cli import find, main
from tandem.cli.train_arguments import arguments, given
from tandem.learning.events import EvaluationEnd
from tandem.tuning import search
from tandem.tuning.search import Candidate, Trial
from tandem.tuning.sweep import Sweep

SMALL: dict[str, Any] = {"framework": "torch", "hidden": 16, "eval_episodes": 2}
GAMES = "tandem/Identity-v0"


def nothing_starts(monkeypatch: pytest.MonkeyPatch, *places: str) -> None:
    """Processes that are begun fail the test."""
    for place in places:
        started = Mock(side_effect=AssertionError("a process was started"))
        monkeypatch.setattr(f"tandem.{place}", started)


def conclusion(capsys: Any, best: Candidate, given: dict[str, Any]) -> str:
    found = SimpleNamespace(best=Trial(best), ties=[], edge="", picture="a.png")
    find._conclude(found, "CartPole-v1", None, given, "")  # type: ignore[arg-type]
    return capsys.readouterr().out.splitlines()[-1]


def trial(x: float, *returns: list[float], line: str = "", fault: str = "") -> Trial:
    steps = [[10 * (i + 1) for i in range(len(r))] for r in returns]
    return Trial(Candidate("ppo", {}, f"x {x}", line, x), steps, list(returns), 0.0, fault)


def test_the_second_half_of_the_evaluations_counts_and_equal_scores_are_ties(capsys) -> None:
    one = trial(0.1, [0, 0, 4, 6], [0, 9, 9, 1, 4, 1])
    assert one.scores == [5.0, 2.0] and one.score == 3.5 and str(one) == "3.5 ± 1.5"
    assert np.isnan(trial(0.1, [1.0], fault="the loss was not finite").score)
    assert np.isnan(trial(0.1, [1.0], []).score) and np.isnan(trial(0.1).score)
    trials = [trial(x, [y]) for x, y in ((0.1, 500.0), (0.2, 500.0), (0.3, 9.0))]
    found = search._conclude(trials, None, "title")
    assert found.best is trials[0] and found.ties == ["x 0.1", "x 0.2"]
    find._conclude(replace(found, picture=Path("a.png")), "CartPole-v1", None, {}, "")
    said = capsys.readouterr().out
    assert "2 trials have this score: x 0.1; x 0.2. The first one is chosen" in said
    assert "lowest" not in said


@pytest.mark.parametrize(("best", "edge"), [(0, "lowest"), (1, ""), (2, "highest")])
def test_the_best_is_found_and_an_edge_is_said(best: int, edge: str, tmp_path: Path) -> None:
    trials = [trial(x, [9.0 * (i == best)]) for i, x in enumerate((0.1, 0.2, 0.3))]
    trials += [trial(0.1, [1.0], line="other"), trial(0.2, [99.0], line="other", fault="NaN")]
    found = search._conclude(trials, tmp_path / "new", "title")
    assert found.best is trials[best] and found.edge == edge
    assert found.picture is not None and found.picture.stat().st_size > 1000
    with (tmp_path / "new" / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 and rows[best]["return_mean"] == "9.0" and rows[0]["trial"] == "x 0.1"


def test_learning_rates_have_equal_ratios_and_schedules_keep_their_form() -> None:
    rates = search.rates("dqn", "own", 1e-4, 1e-2, 5, "learning_rate")
    assert [c.x for c in rates] == [1e-4, 3.2e-4, 1e-3, 3.2e-3, 1e-2]
    assert [float(c.settings["learning_rate"]) for c in rates] == [c.x for c in rates]
    falling = search.rates("impala", "own", 1e-4, 1e-2, 2, "learning_rate")  # 0.0006:0
    assert [c.settings["learning_rate"] for c in falling] == ["0.0001:0", "0.01:0"]
    assert falling[0].settings == {"learning_rate": "0.0001:0"}
    zoos = search.rates("ppo", "CartPole-v1", 1e-4, 1e-2, 2, "learning_rate")[0]
    tried = search.arguments_of(zoos, "CartPole-v1", None, "torch", {})
    assert (zoos.flags(), tried["learning_rate"]) == ("--learning-rate 0.0001:0", "0.0001:0:10")
    assert tried["steps"] == 10_000, "a trial is the beginning of a whole run"
    actor = search.rates("ddpg", "own", 1e-4, 1e-2, 2, "actor_learning_rate")
    assert actor[1].flags() == "--actor-learning-rate 0.01"


@pytest.mark.slow
def test_a_learning_rate_that_learns_wins_and_runs_are_those_of_train(tmp_path: Path) -> None:
    """A symbol that is said again is worth 1, of six, ten times an episode."""
    told: list[Trial] = []
    more = {**SMALL, "envs": 2, "steps": 2000, "env_kwargs": {"n": 6}}
    given: dict[str, Any] = {"start_lr": 1e-7, "end_lr": 1e-2, "points": 2, "seeds": 2, "seed": 3}
    given |= {"processes": 2, "out": tmp_path / "new", "told": told.append, **more}
    found = tandem.find_lr("a2c", GAMES, **given)
    low, high = found.trials
    assert found.best is high and found.edge == "highest" and found.folder == tmp_path / "new"
    assert low.score < 4 and high.score > 8
    assert sorted(t.candidate.x for t in told) == [1e-7, 1e-2]
    seen: list[Any] = []
    more |= {"learning_rate": 1e-2, "eval_every": 200, "callbacks": [seen.append]}
    tandem.train("a2c", GAMES, seed=4, **more)
    evaluations = [e for e in seen if isinstance(e, EvaluationEnd)]
    assert [e.evaluation.mean for e in evaluations] in high.returns
    assert [e.env_steps for e in evaluations] in high.steps and len(evaluations) == 10


def begun(monkeypatch: Any, words: str) -> list[tuple[str, dict[str, Any]]]:
    """The trials that a command begins with: what each is called, and given."""
    made: list[tuple[str, dict[str, Any]]] = []

    def run(tasks: Any, *_: Any) -> None:
        names = [task.name.partition(" with ")[2].removesuffix(" and seed 0") for task in tasks]
        made.extend((name, task.arguments[1]) for name, task in zip(names, tasks, strict=True))
        raise InterruptedError  # processes would be started now

    monkeypatch.setattr(search, "results", run)
    with pytest.raises(InterruptedError):
        main(["find", *words.split(), "--framework", "torch", "--quiet"])
    return made


ALPHA = {"prioritized=false": None, "prioritized=true": "0.8"}
QUANTILES = {f"values=quantile quantiles={n}": n for n in ("10", "20")} | {"values=scalar": None}
SUPPORT = {"values=scalar": None, "values=categorical": None}
VARIED = {
    "--vary prioritized=false,true --priority-alpha 0.8": ("priority_alpha", ALPHA),
    "--vary values=scalar,quantile --vary quantiles=10,20": ("quantiles", QUANTILES),
    "--entry rainbow --vary values=scalar,categorical": ("v_min", SUPPORT),
}


@pytest.mark.parametrize("words", VARIED)
def test_settings_that_do_nothing_in_some_trials_are_left_out_there(words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    setting, given = VARIED[words]
    made = begun(monkeypatch, f"best dqn CartPole-v1 {words}")
    assert {n: a.get(setting) for n, a in made} == given


def test_each_optimizer_is_tried_with_settings_of_its_own(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    made = begun(monkeypatch, "optimizer ppo CartPole-v1 --adam-epsilon 1e-4 --points 2")
    given = {a["optimizer"]: a.get("adam_epsilon") for _, a in made}
    assert given == {"adam": "1e-4", "rmsprop": None, "sgd": None}
    best = Candidate("ppo", {"optimizer": "sgd"}, "sgd", without=frozenset({"adam_epsilon"}))
    line = conclusion(capsys, best, {"adam_epsilon": "1e-4"})
    assert line.endswith("tandem train ppo CartPole-v1 --optimizer sgd")
    # what all trials share is passed on too
    best = Candidate("dqn", {"double": "true"}, "dqn double=true")
    line = conclusion(capsys, best, {"plots": False, "writer": ["a", "b"]})
    assert line == "  tandem train dqn CartPole-v1 --double --no-plots --writer a --writer b"


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({"double": "true", "dueling": "no"}, "--double --no-dueling"),
        ({"double": False, "hidden": (64, 64)}, "--no-double --hidden 64,64"),
        ({"epsilon": "1:0.05:0.1", "munchausen": True, "munchausen_clip": -2.0}, None),
        ({"plots": "false", "mlflow": "my runs"}, "--no-plots --mlflow 'my runs'"),
        (
            {"writer": ["csv", "own=a b"], "hidden": []},
            "--writer csv --writer 'own=a b' --hidden ''",
        ),
        ({"mlflow": "-mine"}, "--mlflow=-mine"),
    ],
)
def test_what_is_to_be_passed_on_is_what_train_takes(settings, flags) -> None:
    told = Candidate("dqn", settings, "").flags()
    assert flags is None or told == flags
    args = arguments(["dqn", "CartPole-v1", *shlex.split(told)])
    asked = trainer.resolve("dqn", "CartPole-v1", settings)
    assert trainer.resolve("dqn", "CartPole-v1", given(args)) == asked


@pytest.mark.slow
def test_the_command_tells_draws_and_says_what_to_pass_on(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = f"find best ppo a2c {GAMES} --vary gamma=0.5,0.9 --steps 128 --framework torch"
    more = "--hidden 16 --eval-episodes 1 --processes 2 --out new --seeds 2 --env-kwargs"
    assert main([*words.split(), *more.split(), '{"length": 5}']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 trials of 128 steps on torch, with 2 seeds, in 2 processes"
    names = ["ppo gamma=0.5", "ppo gamma=0.9", "a2c gamma=0.5", "a2c gamma=0.9"]
    assert sorted(line.split("  ")[0] for line in lines[1:5]) == sorted(names)
    assert lines[5].startswith("best: ") and "picture: new/trials.png" in lines
    best, setting = lines[5].removeprefix("best: ").split(",")[0].split()
    found = f"  tandem train {best} tandem/Identity-v0 --gamma {setting[6:]} --hidden 16"
    assert lines[-1] == f"{found} --eval-episodes 1 --env-kwargs '{{\"length\": 5}}'"
    assert (tmp_path / "new" / "trials.png").is_file()
    # the folder is taken now
    assert main([*words.split(), *more.split(), "{}"]) == 2
    assert "new exists and is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("find", "tandem find optimizer"),
        ("find lrs ppo CartPole-v1", "did you mean 'lr'?"),
        ("find lr dqnn CartPole-v1", "did you mean 'dqn'"),
        ("find lr dqn", "`tandem find lr` needs an environment"),
        ("find best", "`tandem find best` needs an algorithm"),
        ("find lr CartPole-v1 dqn", "tandem find lr dqn CartPole-v1"),
        ("find lr ppo dqn CartPole-v1", "compare them: tandem find best ppo dqn CartPole-v1"),
        ("find lr dqn CartPole-v1 --poinst 3", "did you mean '--points'"),
        ("find lr ppo CartPole-v1 --munchausen", "it is a setting of dqn"),
        ("find lr dqn CartPole-v1 --learning-rate 1e-3", "leave learning_rate out"),
        ("find lr dqn CartPole-v1 --start-lr 1 --end-lr 0.1", "try 1e-5 and 1e-1"),
        ("find lr dqn CartPole-v1 --start-lr low", "try 1e-5 and 1e-1"),
        ("find lr dqn CartPole-v1 --points 1", "at least 2"),
        ("find lr dqn CartPole-v1 --processes 0", "at least 1"),
        ("find lr dqn CartPole-v1 --seeds 0", "at least 1"),
        ("find lr ddpg Pendulum-v1 --setting actor_lr", "did you mean 'actor_learning_rate'"),
        ("find lr dqn Pendulum-v1", "dqn cannot act"),
        ("find lr dqn CartPole-v1 --framework pytorch", "did you mean 'torch'"),
        ("find best ppo CartPole-v1 --vary gama=0.9,1", "did you mean 'gamma'"),
        ("find best ppo CartPole-v1 --vary gamma", "--vary gamma=0.9,0.99"),
        ("find best ppo CartPole-v1 --vary gamma=0.9,2", "try --gamma 0.99"),
        ("find best dqn CartPole-v1 --vary quantiles=8,9", "or leave quantiles out"),
        ("find optimizer dqn CartPole-v1 --optimizer sgd", "leave optimizer out"),
        ("sweep", "tandem sweep ppo CartPole-v1"),
        ("sweep ppo", "`tandem sweep` needs an environment"),
        ("sweep CartPole-v1 ppo", "tandem sweep ppo CartPole-v1"),
        ("sweep pppo CartPole-v1", "did you mean 'ppo'"),
        ("sweep ppo CartPole-v1 --trails 3", "did you mean '--trials'"),
        ("sweep ppo CartPole-v1 --trials 0", "at least 1"),
        ("sweep ppo CartPole-v1 --parallel 0", "at least 1"),
        ("sweep ppo CartPole-v1 --pruner medium", "give pruner='median'"),
        ("sweep ppo CartPole-v1 --sampler tep", "give sampler='tpe'"),
        ("sweep ppo CartPole-v1 --munchausen", "it is a setting of dqn"),
        ("sweep ppo CartPole-v1 --eval-episodes 0", "leave eval_episodes out"),
        ("sweep ppo CartPole-v1 --runners 2", "leave runners out"),
        ("sweep ppo CartPole-v1 --space none.toml", "cannot read the space none.toml"),
        ("sweep ppo CartPole-v1 --env-kwargs x", "a JSON object"),
        ("sweep ppo CartPole-v1 --framework pytorch", "did you mean 'torch'"),
        ("sweep dqn Pendulum-v1", "dqn cannot act"),
        ("sweep --resume nowhere", "nowhere is not a sweep"),
    ],
)
def test_what_cannot_be_is_answered_first(words, answer, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    nothing_starts(monkeypatch, "workers.jobs.Process")
    assert main(words.split()) == 2
    said = capsys.readouterr()
    assert answer in (said.err or said.out)
    assert not list(tmp_path.iterdir())


def test_the_framework_follows_from_a_custom_network(tmp_path: Path) -> None:
    network = {"actor": torch.nn.Linear(4, 2), "critic": torch.nn.Linear(4, 1)}
    begun = Mock(side_effect=InterruptedError)
    with pytest.raises(InterruptedError):
        tandem.find_lr("ppo", "CartPole-v1", network=network, begun=begun)
    assert "steps on torch" in begun.call_args.args[0]
    assert Sweep("ppo", "CartPole-v1", out=tmp_path, network=network).plan.framework == "torch"


@pytest.mark.parametrize("command", ["find lr", "sweep", "train --seeds 2"])
def test_a_folder_that_cannot_be_is_told_of_first(command, capsys, monkeypatch, tmp_path) -> None:
    nothing_starts(monkeypatch, "workers.jobs.Process", "tuning.sweep._Trials", "cli.seeds.Process")
    (tmp_path / "file").touch()
    words = ["a2c", "CartPole-v1", "--framework", "torch", "--out", str(tmp_path / "file" / "new")]
    assert main([*command.split(), *words]) == 2
    assert "choose another with --out" in capsys.readouterr().err


def test_help_names_flags_and_settings(capsys) -> None:
    own = {"lr": ["--setting", "--points"], "optimizer": ["--start-lr"], "best": ["--vary"]}
    for kind, flags in own.items():
        assert main(["find", kind, "dqn", "CartPole-v1", "--help", "all"]) == 0
        said = capsys.readouterr().out
        flags += ["--seeds", "--processes", "--out", "--prioritized", "--eval-episodes"]
        assert all(f"\n  {flag}" in said for flag in flags) and said.count("\n  --steps ") == 1
    assert main(["sweep", "dqn", "CartPole-v1", "--help", "all"]) == 0
    said = capsys.readouterr().out
    flags = ["--trials", "--parallel", "--pruner", "--space", "--resume", "--epsilon", "--steps"]
    assert all(said.count(f"\n  {flag} ") == 1 for flag in flags)
