import json
import re
from argparse import Namespace
from statistics import mean
from types import SimpleNamespace

import pytest

from benchmarks import learn, learn_curves, learn_page, learn_rows, learn_tables, normalized
from benchmarks.learn_rows import ROWS
from tandem.trainer import resolve

PPO = learn_rows.find("ppo-cartpole-jax")
TOLD = learn_tables.read(learn_page.RESULTS / "learn.csv")
COLUMNS = "env_steps,updates,episodes,seconds,return_mean,length_mean,eval_mean,eval_std"


def line(row=PPO.name, seed=0, best=500.0, step="20000", **more: str) -> learn_tables.Line:
    cells = dict.fromkeys(learn_tables.COLUMNS, "")
    cells |= {"best_mean": str(best), "last_mean": "450.0", "seconds": "60", "mark_step": step}
    return {**cells, "episodes": "200", "row": row, "seed": str(seed), "commit": "abc", **more}


@pytest.fixture
def folder(tmp_path):
    """A run as a finished one leaves it."""
    result = {"algorithm": "ppo", "env": "CartPole-v1", "framework": "jax", "env_steps": 100_000}
    result |= {"updates": 7_800, "seconds": 12.5, "eval_mean": 499.12345, "eval_std": 1.5}
    result |= {"eval_episodes": 200, "last_eval_mean": 480.0, "last_eval_std": 20.0}
    result["versions"] = {"python": "3.11", "platform": "somewhere", "jax": "0.10"}
    (tmp_path / "result.json").write_text(json.dumps(result))
    (tmp_path / "config.json").write_text(json.dumps({"commit": "0123456789abcdef"}))
    rows = "2500,0,0,1,,,100,1,a\n5000,0,0,1,,,,,b\n7500,0,0,1,,,480,1,c\n10000,0,0,1,,,300,1,d\n"
    (tmp_path / "progress.csv").write_text(f"{COLUMNS},fingerprint\n{rows}")
    return tmp_path


def test_rows_are_read_as_they_are_written_and_begin_from_the_zoo() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    rainbow, pong = learn_rows.find("rainbow-cartpole-jax"), learn_rows.find("ppo-pong-torch")
    assert (rainbow.algorithm, rainbow.env, rainbow.framework) == ("dqn", "CartPole-v1", "jax")
    assert (rainbow.steps, rainbow.threshold, rainbow.mark) == (50_000, 475.0, 475.0)
    assert rainbow.settings == {"eval_every": 2_500, "entry": "rainbow"}
    assert rainbow.seeds == (0, 1, 2) and pong.seeds == (0,) and "zoo" in learn_rows.SOURCES
    for row in ROWS:
        settings, options, source, _ = resolve(row.algorithm, row.env, row.settings)
        assert settings.steps and options and not source.startswith("defaults of"), row.name
        assert not row.published or re.search(r"\((zoo|.+ et al\. \d{4}.*)\)$", row.published)


def test_a_finished_run_becomes_a_line(folder, tmp_path) -> None:
    found = learn_tables.entry(PPO, 2, folder)
    assert tuple(found) == learn_tables.COLUMNS
    expected = {"row": PPO.name, "seed": "2", "steps": "100000", "best_mean": "499.123"}
    expected |= {"mark": "475", "mark_step": "7500", "commit": "0123456789"}
    expected["versions"] = "jax=0.10 python=3.11"
    assert {name: found[name] for name in expected} == expected
    # only a run at its end is finished
    assert learn.finished(folder, 100_000) and not learn.finished(folder, 100_001)
    (folder / "result.json").write_text('{"env_st')
    assert not learn.finished(folder, 100) and not learn.finished(tmp_path / "nowhere", 100)


def test_evaluations_are_kept_of_every_seed_that_was_ever_finished(folder, tmp_path) -> None:
    of_one = learn_curves.evaluations(PPO, 1, folder)
    assert [tuple(x.values()) for x in of_one] == [
        (PPO.name, "1", "2500", "100.000", "1.000"),
        (PPO.name, "1", "7500", "480.000", "1.000"),
        (PPO.name, "1", "10000", "300.000", "1.000"),
    ]
    earlier = [{**x, "seed": seed, "eval_mean": "7.0"} for seed in ("0", "1", "10") for x in of_one]
    other = [{**of_one[0], "row": ROWS[-1].name, "seed": "0"}]
    kept = tmp_path / "evaluations.csv"
    merged = learn_tables.merged([*other, *earlier], of_one)
    kept.write_text(learn_tables.text_of(learn_curves.COLUMNS, merged))
    told = learn_tables.read(kept)
    assert told == [*earlier[:3], *of_one, *earlier[6:], *other]  # seed 1 anew
    learn_curves.draw(PPO, told, tmp_path / "a.svg")
    assert "3 runs" in (tmp_path / "a.svg").read_text(encoding="utf-8")


def test_a_row_has_the_mean_and_every_seed_and_the_first_step_at_the_mark() -> None:
    lines = [line(seed=i, best=b, step=s) for i, b, s in ((0, 500.0, "20000"), (1, 490.0, ""))]
    (row,) = (x for x in learn_tables.markdown(lines).splitlines() if x.startswith("| ppo-cart"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[3:5] == ["495.0", "500.0, 490.0"] and cells[7] == "20,000, never"
    steps, means = [10, 20, 30, 40], [float("nan"), 474.9, 475.0, 500.0]
    passing = [learn_tables.first_passing(steps, means, mark) for mark in (475.0, 501.0, None)]
    assert passing == [30, None, None]


def test_what_is_missing_is_said_with_its_time() -> None:
    lines = [line(seed=seed, steps="100096", env="CartPole-v1") for seed in (0, 2)]
    told = learn_tables.missing(lines).splitlines()
    said = f"{PPO.name} seed 1 about 1 min make learn ROW={PPO.name}"
    assert len(told) == len(ROWS) and " ".join(told[0].split()) == said
    every = [line(row.name, seed, steps=str(row.steps)) for row in ROWS for seed in row.seeds]
    assert "Every row" in learn_tables.missing(every)
    short = [{**every[0], "steps": str(PPO.steps - 1)}, *every[1:]]
    assert learn_tables.missing(short).startswith(f"{PPO.name} ")


def test_only_what_has_no_line_is_trained_where_that_is_asked_for(tmp_path, monkeypatch) -> None:
    every, started = [line(seed=seed, steps=str(PPO.steps)) for seed in PPO.seeds], []
    learn_tables.write(tmp_path / "learn.csv", tmp_path / "learn.md", every[1:], "")

    def start(row, seed, args, places) -> SimpleNamespace:
        started.append(seed)
        return SimpleNamespace(poll=lambda: 0, returncode=0)

    monkeypatch.setattr(learn, "_start", start)
    of_row = ["--row", PPO.name, "--out", str(tmp_path)]
    assert learn.main([*of_row, "--missing"]) == learn.main(of_row) == 1  # what ran left nothing
    assert started == [0, 0, 1, 2]


def test_the_pages_of_scores_and_of_algorithms_are_up_to_date() -> None:
    for file, text in learn_page.pages(TOLD, normalized.intervals(TOLD)).items():
        assert file.read_text(encoding="utf-8") == text, "run: python -m benchmarks.learn_page"


def test_algorithms_are_compared_over_shared_tasks_by_their_last_policies() -> None:
    scores = {"HalfCheetah-v5": (-282.4, 9655.7), "Walker2d-v5": (1.9, 4933.1)}
    names = [f"{a}-{e}" for a in ("sac", "tqc", "crossq") for e in ("halfcheetah", "walker2d")]
    rows = [learn_rows.find(f"{name}-jax") for name in names]
    each = [(k, row.name, str(scores[row.env][k > 0])) for k in range(4) for row in rows]
    lines = [line(name, k, last_mean=last) for k, name, last in each]
    found = normalized.intervals([*lines, line("simba-walker2d-jax", 0, 0.0)])
    assert list(found) == ["off-policy"] and found["off-policy"]["sac"][0] == 1.0
    assert normalized.intervals(lines[:-7]) == {}, "a row has fewer than three seeds"


def test_pages_say_what_rows_were_given_and_came_to_and_published_figures() -> None:
    row = learn_rows.find("simba-walker2d-jax")
    lines = [line(row.name, seed, best) for seed, best in enumerate((490.0, 500.0, 495.0))]
    text = learn_page.curves("sac", lines)
    flags = "--body simba --hidden 128 --critic-hidden 128"
    assert f"Walker2d-v5 with `{flags}`: **495.0 ± 12.4**" in text  # 4.303 * 5 / sqrt(3)
    assert "(seeds 0, 1, 2): `make learn ROW=simba-walker2d-jax`" in text
    assert row.name not in learn_page.curves("tqc", lines)
    # of dqn-cartpole the first engine is another one
    of_two = [line(f"dqn-cartpole-{engine}", 0, 490.0) for engine in ("torch", "jax")]
    text = learn_page.curves("dqn", of_two)
    assert "CartPole-v1: **490.0** after 50,000 steps" in text and "torch" not in text
    assert "torch" in learn_page.curves("dqn", of_two[:1])
    swimmer = learn_rows.find("trpo-swimmer-jax")
    page = learn_page.page([line(), line(swimmer.name, best=100.0)], {})
    assert f"| {swimmer.published} |" in page and f"- `{swimmer.name}`: {swimmer.note}\n" in page
    assert "| 500.0 (1 of 3 seeds) |" in page
    assert all(f"{name}: {what}" in page for name, what in learn_rows.SOURCES.items())


def least(lines: list[learn_tables.Line]) -> float:
    """A tenth of what the row's worst seed has, and three standard errors, under it."""
    worst = min(lines, key=lambda line: float(line["best_mean"]))
    score, deviation = float(worst["best_mean"]), float(worst["best_std"])
    return score - 0.1 * abs(score) - 3 * deviation / float(worst["episodes"]) ** 0.5


@pytest.mark.thorough
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", ["ppo-cartpole-jax", "dqn-cartpole-jax", "sac-pendulum-jax"])
def test_it_learns_as_well_as_it_did(name: str, tmp_path) -> None:
    """One seed of the row by its command, which on another machine may differ a little."""
    row, lines = learn_rows.find(name), [line for line in TOLD if line["row"] == name]
    assert len(lines) == len(row.seeds), f"learn.csv has {len(lines)} seeds of {name}"
    places = learn.Places(tmp_path / "runs", tmp_path)
    assert learn._start(row, 0, Namespace(out=str(tmp_path)), places).wait() == 0
    score = float(learn_tables.entry(row, 0, places.run(row, 0))["best_mean"])
    known = mean(float(line["best_mean"]) for line in lines)
    assert score >= least(lines), f"{name}: {score:.1f}, where learn.csv has {known:.1f}"
