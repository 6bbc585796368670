from __future__ import annotations

import json
import re
import signal
import time
from typing import Any

import pytest

from benchmarks import learn, learn_curves, learn_page, learn_rows, learn_tables
from benchmarks.learn_rows import ROWS
from tandem import algorithms
from tandem.trainer import settle

PPO = learn_rows.find("ppo-cartpole-jax")


COLUMNS = (
    "env_steps,updates,episodes,seconds,return_mean,length_mean,eval_mean,eval_std,fingerprint\n"
)


def line(
    row: str = PPO.name, seed: int = 0, best: float = 500.0, step: str = "20000", **more: str
) -> learn_tables.Line:
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
    (tmp_path / "progress.csv").write_text(COLUMNS + rows)
    return tmp_path


def test_rows_are_read_as_they_are_written() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    of_ppo = {row.framework for row in ROWS if row.name.startswith("ppo-cartpole")}
    assert of_ppo == {"jax", "tensorflow", "torch", "keras-torch"}
    with pytest.raises(SystemExit, match="no row"):
        learn_rows.find("ppo-cartpole")
    iqn, pong = learn_rows.find("iqn-cartpole-jax"), learn_rows.find("ppo-pong-torch")
    assert (iqn.algorithm, iqn.env, iqn.framework) == ("dqn", "CartPole-v1", "jax")
    assert (iqn.steps, iqn.threshold, iqn.mark) == (50_000, 475.0, 475.0)
    assert iqn.settings == {"eval_every": 2_500, "entry": "implicit"} and iqn.seeds == (0, 1, 2)
    assert pong.seeds == (0,)


def test_rows_begin_from_entries_of_the_zoo_and_say_where_published_figures_are_from() -> None:
    for row in ROWS:
        settings, options, source = settle(row.algorithm, row.env, row.settings)
        assert settings.steps and options and not source.startswith("defaults of"), row.name
        assert not row.published or re.search(r"\((zoo|.+ et al\. \d{4}.*)\)$", row.published)
    assert "zoo" in learn_rows.SOURCES


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
    assert not learn.finished(folder, 100)
    assert not learn.finished(tmp_path / "nowhere", 100)


def test_curves_are_drawn_from_every_seed_that_was_ever_finished(folder, tmp_path) -> None:
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

    def draw(row: learn_rows.Learned) -> str:
        out = tmp_path / "curves" / f"{row.name}.svg"
        learn_curves.draw(row, told, out)
        return out.read_text(encoding="utf-8") if out.is_file() else ""

    assert "3 runs" in draw(PPO) and "evaluation, mean" in draw(ROWS[-1])
    assert not draw(ROWS[1])


def test_lines_are_replaced_by_row_and_seed_and_kept_in_order(tmp_path) -> None:
    last, first = ROWS[-1].name, ROWS[0].name
    old = [line(last, 0), line(first, 10, 1.0), line(first, 2, 1.0)]
    found = learn_tables.merged(old, [line(first, 2, 2.0)])
    kept = [(first, "2", "2.0"), (first, "10", "1.0"), (last, "0", "500.0")]
    assert [(x["row"], x["seed"], x["best_mean"]) for x in found] == kept
    # and come back from the file
    lines, file = [line(seed=seed) for seed in range(3)], tmp_path / "learn.csv"
    learn_tables.write(file, tmp_path / "learn.md", lines, learn_tables.markdown(lines))
    assert learn_tables.read(file) == lines
    assert learn_tables.read(tmp_path / "none.csv") == []


def test_a_row_has_the_mean_and_every_seed_and_the_first_step_at_the_mark() -> None:
    lines = [line(seed=i, best=b, step=s) for i, b, s in ((0, 500.0, "20000"), (1, 490.0, ""))]
    (row,) = (x for x in learn_tables.markdown(lines).splitlines() if x.startswith("| ppo-cart"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[3:5] == ["495.0", "500.0, 490.0"] and cells[7] == "20,000, never"
    steps, means = [10, 20, 30, 40], [float("nan"), 474.9, 475.0, 500.0]
    assert learn_tables.first_passing(steps, means, 475.0) == 30
    assert learn_tables.first_passing(steps, means, 501.0) is None
    assert learn_tables.first_passing(steps, means, None) is None


class Process:
    """One that ends by itself after some polls, or when it is asked to."""

    def __init__(self, polls: float, code: int = 0) -> None:
        self.polls, self.returncode, self.signals = polls, code, []

    def poll(self) -> int | None:
        self.polls -= 1
        return self.returncode if self.polls <= 0 or self.signals else None

    def send_signal(self, number: int) -> None:
        self.signals.append(number)

    def wait(self) -> int:
        return self.returncode


def side_by_side(start: Any, done: Any, seeds: list[int], seconds: float) -> None:
    """Two at once."""
    learn.side_by_side(seeds, 2, start, done, time.monotonic() + seconds, pause=0)


def test_no_more_seeds_at_once_than_asked_for() -> None:
    running, most, ended = set(), [], []

    def start(seed: int) -> Process:
        running.add(seed)
        most.append(len(running))
        return Process(polls=3 - seed, code=seed)

    def done(seed: int, code: int) -> None:
        running.discard(seed)
        ended.append((seed, code))

    side_by_side(start, done, [0, 1, 2], 60)
    assert max(most) == 2 and sorted(ended) == [(0, 0), (1, 1), (2, 2)]


def test_at_the_deadline_and_after_a_crash_of_ours_runs_are_asked_to_end() -> None:
    started: dict[int, Process] = {}
    ended = []

    def start(seed: int) -> Process:
        started[seed] = Process(polls=float("inf"))
        return started[seed]

    side_by_side(start, lambda *end: ended.append(end), [0, 1, 2], -1)
    assert set(started) == {0, 1} and ended == [(0, 0), (1, 0)], "none begins"
    assert all(process.signals == [signal.SIGTERM] for process in started.values())

    def done(*_: int) -> None:
        raise KeyboardInterrupt

    both = Process(polls=1), Process(polls=float("inf"))
    with pytest.raises(KeyboardInterrupt):
        side_by_side(lambda seed: both[seed], done, [0, 1], 60)
    assert both[1].signals == [signal.SIGTERM]


def test_what_is_missing_is_said_with_its_time() -> None:
    lines = [line(seed=seed, steps="100096", env="CartPole-v1") for seed in (0, 2)]
    told = learn_tables.missing(lines).splitlines()
    assert len(told) == len(ROWS)
    said = f"{PPO.name} seed 1 about 1 min make learn ROW={PPO.name}"
    assert " ".join(told[0].split()) == said
    assert "never timed" in next(text for text in told if text.startswith("ppo-pong-torch"))
    every = [line(row.name, seed, steps=str(row.steps)) for row in ROWS for seed in row.seeds]
    assert "Every row" in learn_tables.missing(every)
    short = [{**every[0], "steps": str(PPO.steps - 1)}, *every[1:]]
    assert learn_tables.missing(short).startswith(f"{PPO.name} ")


def test_only_what_has_no_line_is_trained_where_that_is_asked_for(tmp_path, monkeypatch) -> None:
    every = [line(seed=seed, steps=str(PPO.steps)) for seed in PPO.seeds]
    learn_tables.write(tmp_path / "learn.csv", tmp_path / "learn.md", every[1:], "")
    started: list[int] = []

    def start(row, seed, args, places) -> Process:
        started.append(seed)
        return Process(polls=1)

    monkeypatch.setattr(learn, "_start", start)
    of_row = ["--row", PPO.name, "--out", str(tmp_path)]
    assert learn.main([*of_row, "--missing"]) == 1  # what ran left nothing
    assert started == [0]
    assert learn.main(of_row) == 1
    assert started == [0, 0, 1, 2]


def test_runs_are_kept_outside_of_the_work_tree(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TANDEM_RUNS", str(tmp_path / "mine"))
    assert learn.kept() == tmp_path / "mine"
    monkeypatch.delenv("TANDEM_RUNS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert learn.kept() == tmp_path / "tandem" / "learn"


TOLD = learn_tables.read(learn_page.RESULTS / "learn.csv")


def test_the_page_of_scores_is_up_to_date() -> None:
    written = learn_page.PAGE.read_text(encoding="utf-8")
    assert written == learn_page.page(TOLD), "run: python -m benchmarks.learn_page"


@pytest.mark.parametrize("algorithm", algorithms.NAMES)
def test_the_algorithms_pages_have_their_curves(algorithm: str) -> None:
    text = (learn_page.ALGORITHMS / f"{algorithm}.md").read_text(encoding="utf-8")
    found = learn_page.renewed(text, algorithm, TOLD)
    assert text == found, "run: python -m benchmarks.learn_page"


def test_an_algorithms_page_says_what_a_row_was_given_and_came_to() -> None:
    row = learn_rows.find("simba-walker2d-jax")
    lines = [line(row.name, seed, best) for seed, best in enumerate((490.0, 500.0, 495.0))]
    text = learn_page.curves("sac", lines)
    flags = "--body simba --hidden 128 --critic-hidden 128"
    assert f"Walker2d-v5 with `{flags}`: **495.0 ± 12.4**" in text
    assert "(seeds 0, 1, 2): `make learn ROW=simba-walker2d-jax`" in text
    assert row.name not in learn_page.curves("tqc", lines)
    # of dqn-cartpole the first engine is another one
    of_two = [line(f"dqn-cartpole-{engine}", 0, 490.0) for engine in ("torch", "jax")]
    text = learn_page.curves("dqn", of_two)
    assert "CartPole-v1: **490.0** after 50,000 steps" in text and "(seed 0)" in text
    assert "torch" not in text and "eval" not in text.replace("evaluations", "")
    assert "torch" in learn_page.curves("dqn", of_two[:1])


def test_the_page_has_students_intervals_and_published_figures_with_their_source() -> None:
    lines = [line(seed=seed, best=best) for seed, best in enumerate((490.0, 500.0, 495.0))]
    (row,) = [text for text in learn_page.page(lines).splitlines() if PPO.name in text]
    assert "495.0 ± 12.4 |" in row  # 4.303 * 5 / sqrt(3)
    (alone,) = [text for text in learn_page.page(lines[:1]).splitlines() if PPO.name in text]
    assert "| 490.0 (1 of 3 seeds) |" in alone
    swimmer = learn_rows.find("trpo-swimmer-jax")
    page = learn_page.page([line(swimmer.name, best=100.0)])
    assert swimmer.published and f"| {swimmer.published} |" in page
    assert all(f"{name}: {what}" in page for name, what in learn_rows.SOURCES.items())
