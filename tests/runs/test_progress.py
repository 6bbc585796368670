"""Live progress with a clock of our own: what is said, how often, and what it costs."""

from __future__ import annotations

import io
import re
import timeit
from pathlib import Path

import pytest

from tandem.learning import events
from tandem.runs.progress import Progress, duration
from tandem.types import Episode


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
        progress(events.EpisodeEnd(*at, Episode(0, float(i), 10, True)))


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
    assert lines[-2] == "100,000 steps in 50 s (2,000 steps/s); ended by steps"
    assert lines[-1] == "time: environment 20%, acting 30%, learning 40%, other 10%"


@pytest.mark.parametrize(
    ("seconds", "least", "most"), [(0.5, 0, 1), (8, 5, 8), (60, 10, 22), (36_000, 20, 180)]
)
def test_plain_lines_are_neither_many_nor_silent(seconds: float, least: int, most: int) -> None:
    out, clock = io.StringIO(), Clock()
    run(Progress(1, stream=out, clock=clock), clock, 1_000_000, seconds)
    assert least <= len(out.getvalue().splitlines()) <= most


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


def test_evaluations_and_checkpoints_have_their_line() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(1000, stream=out, clock=clock)
    progress(events.TrainBegin(0, 0, 0, 0.0, 1000, 1000))
    progress(events.EvaluationEnd(500, 1, 1, 1.0, events.Evaluation.of([1.0, 3.0], [1, 3]), True))
    progress(events.EvaluationEnd(550, 1, 1, 1.0, events.Evaluation.of([2.0], [1]), True, tie=True))
    progress(events.EvaluationEnd(600, 1, 1, 1.0, events.Evaluation.of([1.0], [1]), False))
    progress(events.CheckpointSaved(600, 1, 1, 1.0, Path("run/best.zip")))  # no news
    progress(events.CheckpointSaved(700, 1, 1, 1.0, Path("run/[last].zip")))
    assert out.getvalue().splitlines() == [
        "evaluation at 500 steps: return 2.0 ± 1.0 over 2 episodes, the best so far",
        "evaluation at 550 steps: return 2.0 ± 0.0 over 1 episode",
        "evaluation at 600 steps: return 1.0 ± 0.0 over 1 episode",
        f"checkpoint at 700 steps: {Path('run/[last].zip')}",
    ]


def test_quiet_is_silent() -> None:
    for out in (io.StringIO(), Terminal()):
        clock = Clock()
        with Progress(1000, quiet=True, stream=out, clock=clock) as progress:
            run(progress, clock, 1000, seconds=20.0)
            progress(events.EvaluationEnd(500, 1, 1, 1.0, events.Evaluation.of([1.0], [1]), True))
            finish(progress, clock, 1000)
        assert out.getvalue() == ""


def test_a_terminal_gets_one_changing_display_at_most_eight_times_a_second() -> None:
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


def test_a_broken_run_gives_the_terminal_back() -> None:
    out, clock = Terminal(), Clock()
    with pytest.raises(KeyError), Progress(1000, stream=out, clock=clock) as progress:
        progress(events.TrainBegin(0, 0, 0, 0.0, 1000, 1000))
        raise KeyError
    assert out.getvalue().count("\x1b[?25l") == out.getvalue().count("\x1b[?25h") == 1


def test_an_event_costs_next_to_nothing() -> None:
    clock = Clock()
    progress = Progress(10**9, stream=io.StringIO(), clock=clock)
    progress(events.TrainBegin(0, 0, 0, 0.0, 10**9, 10**9))
    event = events.EpisodeEnd(1, 1, 1, 1.0, Episode(0, 1.0, 1, True))
    best = min(timeit.repeat(lambda: progress(event), number=20_000, repeat=5))
    assert best < 20_000 * 20e-6  # about one microsecond on an idle machine


def test_durations() -> None:
    texts = {0: "0.0 s", 9.94: "9.9 s", 9.96: "10 s", 59.6: "1:00", 185: "3:05", 7384: "2:03:04"}
    assert {seconds: duration(seconds) for seconds in texts} == texts
