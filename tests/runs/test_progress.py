"""Live progress with a clock of our own; what notebooks show of runs, results and agents."""

import io
import re
import sys
import timeit
import types
from base64 import b64decode
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image

import tandem
from tandem.errors import SettingError, SpaceError
from tandem.learning import events
from tandem.learning import notebook as html
from tandem.learning.events import Evaluation
from tandem.reports.animation import Animation
from tandem.runs import notebook
from tandem.runs.progress_line import Progress, duration
from tandem.types import EpisodeResult
from tests.reports.test_run_report import Page
from tests.runs.shared import QUICK


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def run(progress, clock, steps, seconds, first=0, horizon=None) -> None:
    """At an even pace: 100 steps, 4 updates and one episode (its return: its number) at a time."""
    progress(events.TrainBegin(first, first // 25, 0, 0.0, horizon or steps, steps))
    calls = (steps - first) // 100
    for i in range(1, calls + 1):
        clock.now += seconds / calls
        at = (first + 100 * i, (first + 100 * i) // 25, i, clock.now - 1000)
        shares = {"environment": 0.2 * at[3], "acting": 0.3 * at[3], "learning": 0.4 * at[3]}
        progress(events.BatchEnd(*at, {"entropy": 9.0, "loss": 1 / i}, shares))
        progress(events.EpisodeEnd(*at, EpisodeResult(0, float(i), 10, True)))


def finish(progress: Progress, clock: Clock, steps: int) -> None:
    progress(events.TrainEnd(steps, steps // 25, steps // 100, clock.now - 1000, "steps"))


def test_plain_lines_say_all_there_is() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(100_000, stream=out, clock=clock)
    run(progress, clock, 100_000, seconds=50.0)
    finish(progress, clock, 100_000)
    lines = out.getvalue().splitlines()
    half = "50,000 / 100,000 steps (50%) | 2,000 steps/s | 80 updates/s | return 449.5"
    # drawn with call 500, before its episode: those from 400 to 499 are the last hundred
    assert f"{half} | loss 0.002 | 25 s left" in lines
    assert lines[-2] == "100,000 steps in 50 s, with evaluations"
    assert lines[-1] == "time: environment 20%, acting 30%, learning 40%, other 10%"


def test_plain_lines_are_neither_many_nor_silent() -> None:
    for seconds, least, most in ((0.5, 0, 1), (8, 5, 8), (60, 10, 22), (36_000, 20, 180)):
        out, clock = io.StringIO(), Clock()
        run(Progress(1, stream=out, clock=clock), clock, 1_000_000, seconds)
        assert least <= len(out.getvalue().splitlines()) <= most, seconds


def test_rates_and_time_left_are_of_this_sitting_and_of_late() -> None:
    """Resumed at 50,000 of 100,000 and to stop at 60,000: 100 steps/s, then four times as fast."""
    out, clock = io.StringIO(), Clock()
    progress = Progress(100_000, stream=out, clock=clock)
    run(progress, clock, 60_000, seconds=100.0, first=50_000, horizon=100_000)
    first = out.getvalue().splitlines()[0]
    assert "100 steps/s | 4 updates/s" in first and first.endswith("1:35 left")
    for i in range(1, 61):
        clock.now += 0.5
        progress(events.BatchEnd(60_000 + 200 * i, 2400, 0, 0.0, {}))
    assert "400 steps/s" in out.getvalue().splitlines()[-1]
    finish(progress, clock, 72_000)
    assert "22,000 steps in 2:10" in out.getvalue()
    texts = {0: "0.0 s", 9.94: "9.9 s", 9.96: "10 s", 59.6: "1:00", 185: "3:05", 7384: "2:03:04"}
    assert {seconds: duration(seconds) for seconds in texts} == texts


def test_evaluations_and_checkpoints_have_their_line() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(1000, stream=out, clock=clock)
    progress(events.TrainBegin(0, 0, 0, 0.0, 1000, 1000))
    progress(events.EvaluationEnd(500, 1, 1, 1.0, events.Evaluation.of([1.0, 3.0], [1, 3]), True))
    progress(events.EvaluationEnd(530, 1, 1, 1.0, events.Evaluation.of([2.0, 3.0], [1, 3]), True))
    progress(events.EvaluationEnd(550, 1, 1, 1.0, events.Evaluation.of([2.0], [1]), True, tie=True))
    progress(events.EvaluationEnd(600, 1, 1, 1.0, events.Evaluation.of([1.0], [1]), False))
    progress(events.CheckpointSaved(600, 1, 1, 1.0, Path("run/best.zip")))  # no news
    progress(events.CheckpointSaved(700, 1, 1, 1.0, Path("run/[last].zip")))
    assert out.getvalue().splitlines() == [
        "evaluation at 500 steps: return 2.0 ± 1.0 over 2 episodes",
        "evaluation at 530 steps: return 2.5 ± 0.5 over 2 episodes, the best so far",
        "evaluation at 550 steps: return 2.0 ± 0.0 over 1 episode",
        "evaluation at 600 steps: return 1.0 ± 0.0 over 1 episode",
        f"checkpoint at 700 steps: {Path('run/[last].zip')}",
    ]


def test_between_blocks_the_time_left_is_that_of_whole_blocks() -> None:
    """Blocks of 1,000 steps in 10 s, the first one compiled for 30 s; episodes end in between."""
    out, clock = Terminal(), Clock()
    progress = Progress(10_000, stream=out, clock=clock)
    progress.session = types.SimpleNamespace(backend=types.SimpleNamespace())
    progress(events.TrainBegin(0, 0, 0, 0.0, 10_000, 10_000))
    progress.session.backend.on_compile()
    assert "compiling …" in out.getvalue()
    for block in range(1, 5):
        for _ in range(10):
            clock.now += 3 if block == 1 else 1
            progress(events.EpisodeEnd(1000 * block, 0, 0, 0.0, EpisodeResult(0, 1.0, 10, True)))
        progress(events.BatchEnd(1000 * block, block, 0, 0.0, {}))
    clock.now += 5
    progress(events.EpisodeEnd(5000, 0, 0, 0.0, EpisodeResult(0, 1.0, 10, True)))
    shown = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", out.getvalue())
    assert "0 steps/s" not in shown.replace("100 steps/s", "") and "?" not in shown
    assert shown.count("100 steps/s") > 10 and shown.rstrip().splitlines()[-2].endswith("55 s left")
    progress.close()


def test_quiet_is_silent() -> None:
    for out in (io.StringIO(), Terminal()):
        clock = Clock()
        with Progress(1000, quiet=True, stream=out, clock=clock) as progress:
            run(progress, clock, 1000, seconds=20.0)
            progress(events.EvaluationEnd(500, 1, 1, 1.0, events.Evaluation.of([1.0], [1]), True))
            finish(progress, clock, 1000)
        assert out.getvalue() == ""


def test_a_terminal_gets_one_changing_display_and_is_given_back() -> None:
    out, clock = Terminal(), Clock()
    progress = Progress(100_000, stream=out, clock=clock)
    run(progress, clock, 100_000, seconds=5.0)
    drawn = out.getvalue().count("steps/s")
    assert 20 <= drawn <= 41
    progress(events.CheckpointSaved(100_000, 1, 1, 5.0, Path("run/[last].zip")))
    finish(progress, clock, 100_000)
    text = re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", out.getvalue())
    for part in ("100,000 / 100,000 steps", "return 950", "learning 40%", "run/[last].zip"):
        assert part in text
    assert out.getvalue().rstrip().count("\x1b[?25h") == 1  # the cursor is back
    out, clock = Terminal(), Clock()
    with pytest.raises(KeyError), Progress(1000, stream=out, clock=clock) as progress:
        progress(events.TrainBegin(0, 0, 0, 0.0, 1000, 1000))
        raise KeyError
    assert out.getvalue().count("\x1b[?25l") == out.getvalue().count("\x1b[?25h") == 1


def test_an_event_costs_next_to_nothing() -> None:
    clock = Clock()
    progress = Progress(10**9, stream=io.StringIO(), clock=clock)
    progress(events.TrainBegin(0, 0, 0, 0.0, 10**9, 10**9))
    event = events.EpisodeEnd(1, 1, 1, 1.0, EpisodeResult(0, 1.0, 1, True))
    best = min(timeit.repeat(lambda: progress(event), number=20_000, repeat=5))
    assert best < 20_000 * 20e-6  # about one microsecond on an idle machine


# In a notebook


@pytest.fixture(scope="module")
def result() -> Any:
    """Of a run without a folder."""
    given = QUICK | {"steps": 600, "eval_every": 200, "eval_episodes": 2, "final_episodes": 2}
    return tandem.train("ppo", "CartPole-v1", **given)


def test_a_result_shows_its_curve(result, tmp_path) -> None:
    shown = r"Result\(ppo CartPole-v1: [\d.]+ ± [\d.]+ over 2 episodes; ended by steps\)"
    assert re.fullmatch(shown, repr(result))
    assert [steps for steps, _, _ in result.evaluations] == [256, 512, 768]
    text = result._repr_html_()
    page = Page(text)
    assert page.open == [] and "svg" in page.tags and page.sources == []
    assert ["agent", "ppo CartPole-v1"] in page.rows
    assert str(result.evaluation) in page.text and "768 steps" in page.text
    line = re.search(r"polyline points='([^']+)'", text)
    assert line is not None and len(line[1].split()) == 3
    Image.new("RGB", (4, 4)).save(tmp_path / "curve.png")
    page = Page(tandem.Result(result.agent, tmp_path, result.evaluation)._repr_html_())
    (source,) = page.sources
    assert source.startswith("data:image/png;base64,") and "svg" not in page.tags
    assert b64decode(source.partition(",")[2]) == (tmp_path / "curve.png").read_bytes()


def test_evaluations_and_their_curve() -> None:
    seen = Evaluation.of([1.0, 2.0, 6.0], [10, 20, 30], [[1.0, 3.0]] * 3, cut=1)
    assert repr(seen) == f"Evaluation({seen})"
    rows = {"return": "3.00 ± 2.16", "lowest, median, highest": "1.0, 2.0, 6.0"}
    rows |= {"episodes": "3, 1 of them cut", "length": "20.0 steps", "of each agent": "1.0, 3.0"}
    assert Page(seen._repr_html_()).rows == [*map(list, rows.items())]
    assert "no episodes" in Evaluation.of([], [])._repr_html_()
    text = html.curve([(0, 0.0, 1.0), (50, float("nan"), 1.0), (100, 10.0, 1.0)])
    (points,) = re.findall(r"polyline points='([^']+)'", text)
    (x0, y0), (x1, y1) = (map(float, p.split(",")) for p in points.split())
    assert x0 == html.EDGE and x1 == html.WIDTH - 8 and y0 > y1
    assert ">-1.0<" in text and ">11.0<" in text
    assert html.curve([(0, 0.0, 1.0)]) == "" and html.curve([]) == ""
    assert "nan" not in html.curve([(0, 5.0, 0.0), (1, 5.0, 0.0)])


def test_an_agent_at_play(result, tmp_path) -> None:
    agent = result.agent
    assert "ppo CartPole-v1: observation (4,) float32" in repr(agent)
    shown = agent.play(episodes=2, seed=3, max_steps=5)
    assert isinstance(shown, Animation)
    assert [(last.step, last.cut) for last in shown.episodes] == [(5, True)] * 2
    assert repr(shown).startswith("Animation(CartPole-v1: return 5.0 in 5 steps, 5.0 in 5 steps;")
    page = Page(shown._repr_html_())
    (source,) = page.sources
    assert source.startswith("data:image/gif;base64,") and page.tags == {"img"}
    assert b64decode(source.partition(",")[2]) == shown.gif
    assert shown.save(tmp_path / "new" / "a.gif").read_bytes() == shown.gif
    picture = Image.open(tmp_path / "new" / "a.gif")
    assert picture.n_frames > 5 and picture.size == shown.size  # type: ignore[attr-defined]
    env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    again = agent.play(env, seed=3, max_steps=5)
    assert again.episodes == shown.episodes[:1]
    env.render()  # it is left open
    env.close()
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    shown = result.agent.play(max_steps=9)
    count, _ = imageio_ffmpeg.count_frames_and_secs(str(shown.save(tmp_path / "a.mp4")))
    assert count == 10


def test_what_cannot_be_played(result, tmp_path) -> None:
    play = result.agent.play
    for wrong, error, said in (
        (lambda: play(gymnasium.make("CartPole-v1")), SettingError, "render_mode=None"),
        (lambda: play("Pendulum-v1"), SpaceError, r"shape \(3,\)"),
        (lambda: play(max_steps=0), SettingError, "max_steps"),
        (lambda: play(max_steps=1).save(tmp_path / "a.avi"), SettingError, r"\.gif or \.mp4"),
    ):
        with pytest.raises(error, match=said):
            wrong()


class Handle:
    def __init__(self, page: Any) -> None:
        self.pages = [page._repr_html_()]

    def update(self, page: Any) -> None:
        self.pages.append(page._repr_html_())
        self.text = repr(page)


def test_progress_is_one_place_that_changes() -> None:
    made: list[Handle] = []

    def display(page: Any, display_id: bool) -> Handle:
        assert display_id
        made.append(Handle(page))
        return made[-1]

    out, clock = io.StringIO(), Clock()
    progress = notebook.NotebookProgress(0, display, stream=out, clock=clock)
    run(progress, clock, 100_000, seconds=50.0)
    finish(progress, clock, 100_000)
    assert out.getvalue() == "" and len(made) == 1
    pages = made[0].pages
    assert 50 < len(pages) <= 50 / notebook.REDRAW + 6  # two a second at most
    assert "<progress value='100000' max='100000'" in pages[-1]
    assert "100,000 / 100,000 steps" in pages[-1] and ", with evaluations" in pages[-1]
    shares = [float(x) for x in re.findall(r"progress value='(\d+)'", "".join(pages))]
    assert np.all(np.diff(shares) >= 0)
    assert made[0].text.startswith("100,000 / 100,000 steps · ")


def test_a_notebook_is_known_by_its_kernel(monkeypatch) -> None:
    fake = types.ModuleType("IPython")
    monkeypatch.setitem(sys.modules, "IPython", fake)
    assert type(notebook.progress()) is Progress
    terminal, kernel = types.SimpleNamespace(), types.SimpleNamespace(kernel=1)
    for shell in (None, terminal, kernel):
        fake.get_ipython = lambda shell=shell: shell  # type: ignore[attr-defined]
        assert isinstance(notebook.progress(), notebook.NotebookProgress) == (shell is kernel)
