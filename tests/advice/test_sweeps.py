"""The advice of sweeps: of the command, the function, spaces, and what is kept in a folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tandem.tuning import space as spaces
from tandem.tuning import sweep as sweeps
from tandem.tuning import sweep_study as studies
from tests.advice.installs import installs
from tests.advice.net import case, follows
from tests.tuning.test_space import Made

FEW: dict[str, Any] = {"framework": "torch", "trials": 2}
ASKED: dict[str, Any] = {"algorithm": "ppo", "env": "CartPole-v1", **FEW}


def planned(out: Path, **given: Any) -> sweeps.Sweep:
    return sweeps.Sweep(**{**ASKED, "out": out, **given})


def told(space: dict[str, Any], given: tuple[str, ...] = ()) -> spaces.Space:
    return spaces.space_of(Made(), dict.fromkeys(given, 1), space)


@pytest.mark.parametrize(
    "case",
    [
        case(
            "tuning/sweep.py:_planned",
            planned,
            {"algorithm": None},
            "tandem.sweep('ppo', 'CartPole-v1')",
            {"algorithm": "ppo"},
        ),
    ],
)
def test_advice_on_what_is_asked_for(case, tmp_path: Path) -> None:
    case.follow(out=tmp_path / "new")


@pytest.mark.parametrize(
    "case",
    [
        case(
            "tuning/space.py:space_of 2",
            told,
            {"space": {"gamma": True}, "given": ("gamma",)},
            "leave gamma out",
            {"given": ()},
        ),
    ],
)
def test_advice_on_spaces(case) -> None:
    case.follow()


def test_where_optuna_or_what_it_needs_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patched, follows("tuning/space.py:optuna") as advice:
        patched.setitem(sys.modules, "optuna", None)
        planned(tmp_path)
    assert installs(advice.fix) == {"optuna"}
    key = "tuning/sweep_study.py:check_sampler 2"
    with monkeypatch.context() as patched, follows(key) as advice:
        patched.setattr(studies, "find_spec", lambda name: None)
        planned(tmp_path, sampler="gp")
    assert advice.fix == "pip install torch scipy; or use sampler='tpe'."
    assert planned(tmp_path, sampler="gp").plan.sampler == "gp"


def kept(folder: Path, **given: Any) -> sweeps.Sweep:
    """A sweep in a folder."""
    made = planned(folder, **given)
    folder.mkdir(exist_ok=True)
    made.plan.save(folder)
    return made


def test_going_on_with_what_is_no_sweep_or_goes_on_otherwise(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with follows("tuning/sweep_study.py:Plan.read") as advice:
        sweeps.Sweep(resume=folder)
    assert advice.fix.endswith("tandem sweep ALGORITHM ENV")
    kept(folder)
    for given in ({"gamma": 0.9}, {"env": "Acrobot-v1"}, {"pruner": "none"}):
        with follows("tuning/sweep.py:_continued") as advice:
            sweeps.Sweep(resume=folder, **given)
        assert advice.fix == "leave these out."
    with follows("tuning/sweep.py:_continued 3") as advice:
        sweeps.Sweep(resume=folder, trials=1)
    assert advice.fix.startswith("leave trials out")
    assert sweeps.Sweep(resume=folder).plan.trials == 2
    assert sweeps.Sweep(resume=folder, trials=5).plan.trials == 5


def test_a_sweep_that_is_new_or_has_a_strange_space(tmp_path: Path) -> None:
    with follows("tuning/sweep.py:Sweep.__init__") as advice:
        planned(tmp_path / "new", trust=True)
    assert advice.fix == "give resume=, or leave it out."
    planned(tmp_path / "new")
    made = kept(tmp_path)
    assert sweeps.Sweep(resume=tmp_path, trust=True).plan.trials == 2
    strange = [{**dimension, "setting": "gama"} for dimension in made.plan.space]
    with follows("tuning/space.py:Space.from_json") as advice:
        spaces.Space.from_json(strange, made.base)
    assert "did you mean 'gamma'" in advice.fix
    spaces.Space.from_json([{**d, "setting": "gamma"} for d in made.plan.space], made.base)


def test_a_sweep_without_a_result_and_one_of_refusals(tmp_path: Path) -> None:
    made = kept(tmp_path)
    with follows("tuning/sweep_report.py:concluded") as advice:
        made.result()
    _, _, words = advice.fix.partition("tandem train ")
    assert words.split() == ["ppo", "CartPole-v1"]
    study = studies.Study(tmp_path, made.plan, made.space)
    crew = sweeps._Crew(made, study)
    crew._refused = sweeps.REFUSALS
    with follows("tuning/sweep.py:_Crew._over") as advice:
        crew._over(
            sweeps._Line(study.ask()), studies.REFUSED, "Batches of 7.\nExpected: 8\nFix: 8."
        )
    assert advice.fix.endswith("as the last one asks for: 8.")
    assert str(advice.error).count("Expected") == str(advice.error).count("Fix") == 1
    study.close()


def test_a_sweep_of_refusals_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(crew: Any) -> None:
        for _ in range(sweeps.REFUSALS + 1):
            crew._over(sweeps._Line(crew.study.ask()), studies.REFUSED, "Batches of 7.")

    monkeypatch.setattr(sweeps._Crew, "run", refused)
    for made in (0, 1):
        sweep = sweeps.Sweep("ppo", "CartPole-v1", framework="torch", out=tmp_path / str(made))
        sweep.begun = lambda sweep, made=made: sweep.done.extend([None] * made)
        with follows("tuning/sweep.py:_Crew._over"):
            sweep.train()
        assert (tmp_path / str(made)).exists() == bool(made)
