"""The advice of sweeps, and of what looks for settings (`tandem find`, finders)."""

import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tandem
from tandem import LRFinder, OptFinder
from tandem.tuning import search
from tandem.tuning import space as spaces
from tandem.tuning import sweep as sweeps
from tandem.tuning import sweep_study as studies
from tandem.tuning.sweep import Sweep
from tests.advice.net import advised, follow, rows
from tests.advice.worlds import installs
from tests.tuning.test_finders import Aimer, sgd

ASKED: Any = {"algorithm": "ppo", "env": "CartPole-v1", "framework": "torch", "trials": 2}


def planned(out: Path, **given: Any) -> Sweep:
    return Sweep(**{**ASKED, "out": out, **given})


def kept(folder: Path) -> Sweep:
    """A sweep in a folder."""
    made = planned(folder)
    folder.mkdir(exist_ok=True)
    made.plan.save(folder)
    return made


def test_what_a_sweep_is_given(tmp_path: Path) -> None:
    at, ppo = partial(planned, tmp_path / "new"), {"algorithm": "ppo"}
    says = "tandem.sweep('ppo', 'CartPole-v1')"
    follow("sweep.py:_planned", at, {"algorithm": None}, says, ppo)
    says, trust = "give resume=, or leave trust out", {"trust": True}
    follow("Sweep.__init__", at, trust, says, {"trust": False})
    both = {"space": {"gamma": True}, "gamma": 0.9}
    follow("space.py:space_of 2", at, both, "leave gamma out", {"space": None})


def test_where_optuna_or_what_it_needs_is_not_installed(monkeypatch, tmp_path) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "optuna", None)
        assert installs(advised("space.py:optuna", planned, tmp_path).fix) == {"optuna"}
    gp = partial(planned, tmp_path, sampler="gp")
    with monkeypatch.context() as patched:
        patched.setattr(studies, "find_spec", lambda name: None)
        says = "pip install torch scipy; or use sampler='tpe'."
        assert advised("check_sampler 2", gp).fix == says
    assert gp().plan.sampler == "gp"


def test_a_sweep_that_is_resumed(tmp_path: Path) -> None:
    resume = partial(Sweep, resume=tmp_path / "new")
    assert advised("Plan.read", resume).fix.endswith("tandem sweep ALGORITHM ENV")
    made = kept(tmp_path / "new")
    for given in ({"gamma": 0.9}, {"env": "Acrobot-v1"}, {"pruner": "none"}):
        assert advised("_continued", resume, **given).fix == "leave these out."
    assert advised("_continued 3", resume, trials=1).fix.startswith("leave trials out")
    assert resume(trust=True).plan.trials == 2 and resume(trials=5).plan.trials == 5

    def space(setting: str) -> None:
        named = [{**dimension, "setting": setting} for dimension in made.plan.space]
        spaces.Space.from_json(named, made.base)

    assert "did you mean 'gamma'" in advised("Space.from_json", space, "gama").fix
    space("gamma")


def test_a_sweep_without_a_result_and_one_of_refusals(tmp_path: Path) -> None:
    made = kept(tmp_path)
    advice = advised("sweep_report.py:concluded", made.result)
    assert advice.fix.endswith("tandem train ppo CartPole-v1")
    study = studies.Study(tmp_path, made.plan, made.space)
    crew = sweeps._Trials(made, study)
    crew._refused = sweeps.REFUSALS
    trial, says = sweeps._Trial(study.ask()), "Batches of 7; expected 8.\nFix: 8."
    advice = advised("_Trials._over", crew._over, trial, studies.REFUSED, says)
    assert advice.fix.endswith("as the last error says: 8.")
    assert str(advice.error).count("expected") == str(advice.error).count("Fix") == 1
    study.close()


def test_a_sweep_of_refusals_leaves_no_folder(monkeypatch, tmp_path) -> None:
    def refused(crew: Any) -> None:
        for _ in range(sweeps.REFUSALS + 1):
            crew._over(sweeps._Trial(crew.study.ask()), studies.REFUSED, "Batches of 7.")

    monkeypatch.setattr(sweeps._Trials, "run", refused)
    for made in (0, 1):
        sweep = Sweep("ppo", "CartPole-v1", framework="torch", out=tmp_path / str(made))
        sweep.begun = lambda sweep, made=made: sweep.done.extend([None] * made)
        advised("_Trials._over", sweep.train)
        assert (tmp_path / str(made)).exists() == bool(made)


class Begun(Exception):
    """A search got as far as its trials."""


def begun(what: str) -> None:
    raise Begun(what)


def searched(function: Any, *words: Any, **given: Any) -> None:
    given |= {"steps": 1, "framework": "torch", "processes": 1}
    with pytest.raises(Begun):
        function(*words, "CartPole-v1", begun=begun, **given)


def test_searches_of_nothing_and_of_what_is_given() -> None:
    advice = advised("search.py:find_among", searched, search.find_best, [])
    searched(search.find_best, json.loads(advice.fix.removeprefix("give ").rstrip(".")))
    of = partial(searched, search.find_lr, "dqn")
    advice = advised("search.py:find_among 2", of, learning_rate=0.1)
    assert advice.fix == "leave learning_rate out."
    of()
    of = partial(searched, search.find_optimizer, "dqn")
    of(optimizers=[advised("find_optimizer 2", of, optimizers=["adm"]).quoted()])
    mine = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    for call in (
        partial(search.find_lr, "dqn", optimizer=mine),
        partial(search.find_best, ["dqn"], optimizer=mine),
        partial(tandem.sweep, "dqn", optimizer=mine),
        partial(search.find_optimizer, "dqn", optimizers=[mine]),
    ):
        assert "leave optimizer out" in advised("refuse_own_optimizer", call, "CartPole-v1").fix
    lost = SimpleNamespace(score=float("nan"), fault="the loss was not finite")
    advice = advised("search.py:_conclude", search._conclude, [lost], None, "title")
    assert advice.fix == "lower the learning rates; leave --eval-episodes out."
    assert "no trial finished with an evaluation: the loss was not fin" in str(advice.error)


def aimer(optimizer: Any = sgd) -> Any:
    agent = Aimer()
    agent.optimizer = optimizer and optimizer(agent)
    return agent


def lr(look: str, steps: int = 40, **given: Any) -> Any:
    """Finds a learning rate, then looks at the points that are found."""
    finder = LRFinder(aimer(), -1)
    finder.find(N=steps, start_lr=0.01, end_lr=0.5, p=0, **given)
    return finder.get_derivatives(1, look)


def opt(look: str = "loss", **given: Any) -> Any:
    agent = aimer(None)
    finder = OptFinder(agent, [sgd(agent, rate) for rate in (0.5, 0.1)])
    finder.find(episodes=8, p=0, **given)
    return finder.get_derivatives(1, look)


LOSS = {"look": "reward", "metrics": "loss"}


@pytest.mark.slow
@rows(
    ("LRFinder._curve", lr, {"look": "los"}, "metrics='loss'", {"look": "loss"}),
    ("LRFinder._curve 2", lr, LOSS, "use the loss", {"look": "loss"}),
    ("LRFinder._curve 2", lr, LOSS, "call find again", {"metrics": "reward"}),
    ("OptFinder._curve", opt, {"look": "los"}, "metrics='loss'", {"look": "loss"}),
    ("OptFinder.find", opt, {"metrics": "los"}, {"metrics": "loss"}),
)
def test_finders(row: Any) -> None:
    follow(*row)
