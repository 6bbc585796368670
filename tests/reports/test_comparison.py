"""Algorithms compared: which runs are a group, the numbers, and what is said of too few seeds."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem.cli import main
from tandem.errors import RunFolderError, SettingError
from tandem.math import statistics
from tandem.reports import plots
from tandem.reports.comparison import compare

TOML = """
[CartPole-v1]
random = 20
reference = 500
["Acrobot-v1"]
random = -500.0
reference = -100.0
"""
SCORES = tomllib.loads(TOML)


def make(
    folder: Path, score: Any, algorithm="ppo", env="CartPole-v1", seed=0, steps=1000, **more: Any
) -> Path:
    """The folder of a complete run with this score; of its last checkpoint it is one less."""
    folder.mkdir(parents=True)
    config = {"algorithm": algorithm, "env": env, "framework": "torch", "seed": seed}
    settings = {"steps": steps, "gamma": 0.99, **more.pop("settings", {})}
    (folder / "config.json").write_text(json.dumps({**config, "settings": settings, **more}))
    (folder / "progress.csv").write_text(f"env_steps\n{steps}\n")
    result = {"env_steps": steps, "eval_mean": score, "eval_std": 1.0, "eval_episodes": 20}
    result |= {"last_eval_mean": None if score is None else score - 1, "last_eval_std": 2.0}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def seeds(parent: Path, scores: list[float], *rest: Any, **more: Any) -> Path:
    for seed, score in enumerate(scores):
        make(parent / f"s{seed}", score, *rest, seed=seed, **more)
    return parent


PPO = {"CartPole-v1": [100.0, 200.0, 300.0, 400.0, 500.0], "Acrobot-v1": [-100.0] * 5}
DQN = {"CartPole-v1": [50.0, 60.0, 70.0, 80.0, 90.0], "Acrobot-v1": [-90.0, -300.0] * 2 + [-450.0]}


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Folders of seeds of two algorithms in two environments, each of five."""
    for algorithm, every in (("ppo", PPO), ("dqn", DQN)):
        for env, scores in every.items():
            seeds(tmp_path / algorithm / env, scores, algorithm, env)
    return tmp_path


def test_two_algorithms_in_two_environments(two: Path) -> None:
    found = compare([two / "ppo", two / "dqn"], scores=SCORES, samples=400, seed=3)
    assert found.environments == ("Acrobot-v1", "CartPole-v1")  # as their folders are
    low, span = np.array([-500.0, 20.0]), np.array([400.0, 480.0])
    iqm = statistics.interquartile_mean
    for name, every in (("PPO", PPO), ("DQN", DQN)):
        matrix = (np.array([every[env] for env in found.environments]).T - low) / span
        np.testing.assert_allclose(found.scores[name], matrix)
        each = found.metrics[name]
        assert each["IQM"].value == pytest.approx(float(iqm(matrix)))
        assert each["mean"].value == pytest.approx(matrix.mean())
        assert each["median"].value == pytest.approx(np.median(matrix.mean(axis=0)))
        gap = 1 - np.minimum(matrix, 1).mean()
        assert each["optimality gap"].value == pytest.approx(gap)
        band = statistics.stratified_bootstrap(iqm, [matrix], samples=400, seed=3)
        assert each["IQM"][1:] == pytest.approx(tuple(map(float, band)))
        share, lower, upper = found.profiles[name]
        at = found.thresholds
        np.testing.assert_allclose(share, [(matrix > t).mean() for t in at], atol=1e-12)
        assert (lower <= share + 1e-12).all() and (share <= upper + 1e-12).all()
    # 5 of 5 in CartPole; in Acrobot 3 of 5 are worse than each of PPO's
    ((pair, probability),) = found.improvements.items()
    assert pair == ("PPO", "DQN") and probability.value == pytest.approx((1.0 + 0.6) / 2)
    assert found.verdict(*pair) == "PPO is better" and not found.notes
    assert "normalized score, 2 environments" in str(found)
    assert "PPO over DQN  0.8 [" in str(found)


def test_the_baseline_stands_last_and_each_is_compared_with_it_alone(two: Path) -> None:
    for env, scores in PPO.items():
        seeds(two / "sac" / env, scores, "sac", env)
    every = [two / name for name in ("ppo", "dqn", "sac")]
    found = compare(every, against=two / "ppo", scores=SCORES, samples=50)
    assert list(found.scores) == ["DQN", "SAC", "PPO"]
    assert list(found.improvements) == [("DQN", "PPO"), ("SAC", "PPO")]
    assert found.improvements["SAC", "PPO"].value == 0.5
    assert found.verdict("SAC", "PPO") == "no clear difference"
    assert found.verdict("DQN", "PPO") == "PPO is better"
    assert len(compare(every, scores=SCORES, samples=50).improvements) == 3
    # each run counts once
    one = compare([two / "ppo"], scores=SCORES, samples=20)
    again = compare([two / "ppo", two / "ppo" / "Acrobot-v1"], scores=SCORES, samples=20)
    np.testing.assert_array_equal(one.scores["PPO"], again.scores["PPO"])
    assert not one.improvements and one.scores["PPO"].shape == (5, 2)


def test_what_is_a_group_of_its_own(tmp_path: Path) -> None:
    new = seeds(tmp_path / "new", [3.0, 4.0], settings={"gamma": 0.9})
    old = seeds(tmp_path / "old", [1.0, 2.0])
    found = compare([new], against=old, samples=20)
    assert list(found.scores) == ["PPO", "PPO (old)"]
    assert list(compare([new, old], by="folder", samples=20).scores) == ["new", "old"]
    with pytest.raises(SettingError, match=r"gamma=0\.99 \(not 0\.9\)"):
        compare([new, old], samples=20)
    apart = seeds(tmp_path / "apart" / "old", [1.0, 2.0])
    assert list(compare([old, apart], by="folder", samples=20).scores) == [str(old), str(apart)]
    jax = seeds(tmp_path / "jax", [1.0, 2.0], framework="jax")
    assert list(compare([old, jax], samples=20).scores) == ["PPO, PyTorch", "PPO, Keras on JAX"]


def test_returns_of_one_environment_need_no_scores_and_have_no_gap(tmp_path: Path) -> None:
    folders = [seeds(tmp_path / a, PPO["CartPole-v1"], a) for a in ("ppo", "dqn")]
    found = compare(folders, samples=20)
    assert not found.normalized and set(found.metrics["PPO"]) == {"IQM", "mean"}
    assert found.metrics["PPO"]["IQM"].value == 300.0
    assert found.thresholds[0] == 92.0 and found.thresholds[-1] == 500.0
    last = compare(folders, which="last", samples=20)
    assert last.metrics["PPO"]["IQM"].value == 299.0
    assert "return, CartPole-v1, last checkpoint of each run" in str(last)


@pytest.mark.parametrize(
    "runs, notes, interval",
    [
        (1, ["1 run per environment of PPO, DQN: .* no interval"], False),
        (3, ["PPO has 3 runs .* 75%", "DQN has 3 runs", "with 3 and 3 runs, .* chance 10%"], True),
        (4, ["PPO has 4 runs .* 88%", "DQN has 4 runs"], True),
        (5, [], True),
    ],
)
def test_it_says_when_seeds_are_too_few(tmp_path: Path, runs, notes, interval) -> None:
    """All of PPO's runs are better than all of DQN's."""
    every = {"ppo": 100.0 + np.arange(runs), "dqn": 0.0 + np.arange(runs)}
    folders = [seeds(tmp_path / a, scores.tolist(), a) for a, scores in every.items()]
    found = compare(folders, samples=200)
    assert len(found.notes) == len(notes)
    for note, said in zip(found.notes, notes, strict=True):
        assert re.search(said, note), note
    better = found.improvements["PPO", "DQN"]
    assert better.value == 1.0 and np.isfinite(better.low) == interval
    assert ("95 % intervals" in str(found)) == interval
    assert found.verdict("PPO", "DQN") == ("too few runs to tell" if notes else "PPO is better")
    shown = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert shown["improvements"][0]["probability"] == ([1.0] * 3 if interval else [1.0, None, None])
    if runs == 1:  # of which no interval is drawn
        assert found.draw(tmp_path / "a.png").stat().st_size > 10_000


def test_groups_that_were_not_trained_equally_long_are_told_of(tmp_path: Path) -> None:
    ppo = seeds(tmp_path / "ppo", PPO["CartPole-v1"], steps=5000)
    dqn = seeds(tmp_path / "dqn", DQN["CartPole-v1"], "dqn", steps=1000)
    (note,) = compare([ppo, dqn], samples=20).notes
    long = "PPO 5,000, DQN 1,000 steps."
    assert note == f"in CartPole-v1 the groups were not trained equally long: {long}"


def test_what_cannot_be_compared(two: Path, tmp_path: Path) -> None:
    ppo = two / "ppo" / "CartPole-v1"
    with pytest.raises(SettingError, match="returns of 2 environments have no common scale"):
        compare([two / "ppo"])
    with pytest.raises(SettingError, match="5 in CartPole-v1, 0 in Acrobot-v1"):
        compare([ppo, two / "dqn"], scores=SCORES)
    with pytest.raises(SettingError, match="no two scores for Acrobot-v1"):
        compare([two / "ppo"], scores={"CartPole-v1": {"random": 0, "reference": 1}})
    for odd in ({"random": 1, "reference": 1}, {"random": 2, "reference": 1}, {"random": 0}, 5):
        with pytest.raises(SettingError, match="random below reference"):
            compare([ppo], scores={"CartPole-v1": odd})
    make(two / "again", 1.0, seed=3)
    with pytest.raises(SettingError, match="2 runs of seed 3 in CartPole-v1"):
        compare([ppo, two / "again"])
    (ppo / "s1" / "result.json").unlink()
    with pytest.raises(RunFolderError, match=r"no score .*\nFix: .*--resume .*s1"):
        compare([ppo])
    with pytest.raises(SettingError, match="no run to compare with"):
        compare([ppo], against=ppo)
    extended = make(two / "extended", 1.0)
    (extended / "result.json").write_text(json.dumps({"env_steps": 500, "eval_mean": 1.0}))
    with pytest.raises(RunFolderError, match="no score"):
        compare([extended])


def test_the_command_prints_tables_and_draws_one_picture(two: Path, capsys) -> None:
    (two / "scores.toml").write_text(TOML)
    command = ["compare", str(two / "ppo"), str(two / "dqn"), "--samples", "100"]
    assert main([*command, "--scores", str(two / "scores.toml")]) == 0
    shown = capsys.readouterr().out
    for part in ("IQM", "optimality gap", "PPO", "PPO over DQN", "100 stratified bootstrap"):
        assert part in shown
    assert f"wrote {two / 'comparison.png'}" in shown
    assert (two / "comparison.png").stat().st_size > 10_000
    out = ["--scores", str(two / "scores.toml"), "--json", "--out", str(two / "a.svg")]
    assert main([*command, *out]) == 0
    data = json.loads(capsys.readouterr().out)
    found = compare([two / "ppo", two / "dqn"], scores=SCORES, samples=100)
    assert data == {**found.to_json(), "picture": str(two / "a.svg")}
    assert (two / "a.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert main([*command, "--out", "a.docx"]) == 2  # before anything is computed
    assert main([*command, "--scores", str(two / "none.toml")]) == 2
    assert tandem.compare is compare


def test_the_picture_has_every_number(two: Path, monkeypatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(plots, "_saved", lambda figure, out: seen.append(figure) or out)
    found = compare([two / "ppo", two / "dqn"], scores=SCORES, samples=100)
    found.draw(two / "a.png")
    *metrics, profile, better = seen[0].axes
    names = ", ".join(axes.get_title() for axes in metrics)
    assert names == ", ".join(found.metrics["PPO"]) and len(metrics) == 3  # two are alike
    for axes in metrics:
        numbers = [line.get_xdata() for line in axes.get_lines()]
        first = axes.get_title().partition(",")[0]
        expected = [found.metrics[g][first] for g in ("PPO", "DQN")]
        for low_high, value, each in zip(numbers[::2], numbers[1::2], expected, strict=True):
            assert tuple(low_high) == each[1:] and value[0] == each.value
    drawn = {line.get_label(): line.get_ydata() for line in profile.get_lines()}
    for name, (share, _, _) in found.profiles.items():
        np.testing.assert_array_equal(drawn[name], share)
    assert better.get_lines()[1].get_xdata()[0] == pytest.approx(0.8)
    assert [label.get_text() for label in better.get_yticklabels()] == ["PPO\nover DQN"]
