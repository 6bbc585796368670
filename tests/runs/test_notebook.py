"""What notebooks show: results, agents at play, and a run's progress in one place."""

from __future__ import annotations

import io
import re
import sys
import types
from base64 import b64decode
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image

import tandem
from tandem.animation import Animation
from tandem.errors import RunFolderError, SettingError, SpaceError
from tandem.learning import notebook as html
from tandem.learning.events import Evaluation
from tandem.runs import notebook
from tandem.runs.progress import Progress
from tests.runs.shared import QUICK
from tests.runs.test_progress import Clock, finish, run
from tests.test_run_report import Page


@pytest.fixture(scope="module")
def result() -> Any:
    """Of a run without a folder."""
    given = QUICK | {"steps": 600, "eval_every": 200, "eval_episodes": 2, "final_episodes": 2}
    return tandem.train("ppo", "CartPole-v1", **given)


def test_a_result(result) -> None:
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


def test_a_result_with_a_drawn_curve_shows_that(result, tmp_path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "curve.png")
    page = Page(tandem.Result(result.agent, tmp_path, result.evaluation)._repr_html_())
    (source,) = page.sources
    assert source.startswith("data:image/png;base64,") and "svg" not in page.tags
    assert b64decode(source.partition(",")[2]) == (tmp_path / "curve.png").read_bytes()


def test_the_curve_of_evaluations() -> None:
    text = html.curve([(0, 0.0, 1.0), (50, float("nan"), 1.0), (100, 10.0, 1.0)])
    (points,) = re.findall(r"polyline points='([^']+)'", text)
    (x0, y0), (x1, y1) = (map(float, p.split(",")) for p in points.split())
    assert x0 == html.EDGE and x1 == html.WIDTH - 8 and y0 > y1
    assert ">-1.0<" in text and ">11.0<" in text
    assert html.curve([(0, 0.0, 1.0)]) == "" and html.curve([]) == ""
    assert "nan" not in html.curve([(0, 5.0, 0.0), (1, 5.0, 0.0)])


def test_an_evaluation() -> None:
    seen = Evaluation.of([1.0, 2.0, 6.0], [10, 20, 30], [[1.0, 3.0]] * 3, cut=1)
    assert repr(seen) == f"Evaluation({seen})"
    rows = {"return": "3.00 ± 2.16", "lowest, median, highest": "1.0, 2.0, 6.0"}
    rows |= {"episodes": "3, 1 of them cut", "length": "20.0 steps", "of each agent": "1.0, 3.0"}
    assert Page(seen._repr_html_()).rows == [*map(list, rows.items())]
    assert "no episodes" in Evaluation.of([], [])._repr_html_()


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


def test_a_play_as_mp4(result, tmp_path) -> None:
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    shown = result.agent.play(max_steps=9)
    count, _ = imageio_ffmpeg.count_frames_and_secs(str(shown.save(tmp_path / "a.mp4")))
    assert count == 10


def test_what_cannot_be_played(result, tmp_path) -> None:
    play = result.agent.play
    (tmp_path / "file").touch()
    for wrong, error, said in (
        (lambda: play(gymnasium.make("CartPole-v1")), SettingError, "render_mode=None"),
        (lambda: play("Pendulum-v1"), SpaceError, r"shape \(3,\)"),
        (lambda: play(max_steps=0), SettingError, "max_steps"),
        (lambda: play(max_steps=1).save(tmp_path / "a.avi"), SettingError, r"\.gif or \.mp4"),
        (lambda: play(max_steps=1).save(tmp_path / "file/a.gif"), RunFolderError, "cannot write"),
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
    assert "100,000 / 100,000 steps" in pages[-1] and "ended by steps" in pages[-1]
    shares = [float(x) for x in re.findall(r"progress value='(\d+)'", "".join(pages))]
    assert np.all(np.diff(shares) >= 0)
    assert made[0].text.startswith("100,000 / 100,000 steps · ")


def test_a_notebook_is_known_by_its_kernel(monkeypatch) -> None:
    fake = types.ModuleType("IPython")
    monkeypatch.setitem(sys.modules, "IPython", fake)
    assert type(notebook.progress()) is Progress
    for shell, kind in (
        (None, Progress),
        (types.SimpleNamespace(), Progress),  # of a terminal
        (types.SimpleNamespace(kernel=1), notebook.NotebookProgress),
    ):
        fake.get_ipython = lambda shell=shell: shell  # type: ignore[attr-defined]
        assert type(notebook.progress()) is kind
