"""Following a run from outside: what is seen of it at each moment, and what is shown."""

import io
import json
import os
import re
import time
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from tandem import platforms
from tandem.cli.live import live, picture
from tandem.cli.text_curve import Line, text_curve
from tandem.errors import RunFolderError
from tandem.runs import following
from tandem.runs.writers import CsvWriter
from tests.reports.test_comparison import make
from tests.runs.shared import child, wait_for
from tests.runs.test_progress import Terminal

ROW = {"return_mean": 5.0, "eval_mean": None, "eval_std": None, "seconds": 1.0}
needs_locks = pytest.mark.skipif(not platforms.HOLDS, reason="this system has no flock")


def begun(folder: Path, steps: int = 1000) -> CsvWriter:
    """A run that is under way, without a row."""
    make(folder, None, steps=steps)
    (folder / "result.json").unlink()
    (folder / "progress.csv").unlink()
    return CsvWriter(folder / "progress.csv", ("env_steps", "seconds", "return_mean"))


@needs_locks
def test_what_a_run_is_at_each_moment(tmp_path) -> None:
    folder = tmp_path / "a"
    writer = begun(folder)
    assert following.look(folder).state == "begins"
    writer.write({"env_steps": 400, **ROW})  # widens the table: another file
    seen = following.look(folder)
    assert (seen.state, seen.env_steps, seen.steps) == ("trains", 400, 1000)
    writer.rewind(300)
    assert following.look(folder).state == "begins"
    writer.write({"env_steps": 400, **ROW})
    writer.close()
    assert following.look(folder).state == "stopped"  # as after Ctrl-C
    (folder / "result.json").write_text(json.dumps({"env_steps": 300, "eval_mean": 1.0}))
    assert following.look(folder).result == {}  # of an earlier sitting
    (folder / "result.json").write_text(json.dumps({"env_steps": 410, "eval_mean": 1.0}))
    seen = following.look(folder)  # as after --stop-at
    assert (seen.state, seen.env_steps, seen.result["eval_mean"]) == ("stopped", 410, 1.0)
    (folder / "result.json").write_text(json.dumps({"env_steps": 1024, "eval_mean": 2.0}))
    assert following.look(folder).state == "complete"


@needs_locks
def test_one_that_is_killed_is_over(tmp_path) -> None:
    folder = tmp_path / "a"
    begun(folder).close()
    code = "import sys, time, pathlib; from tandem.runs.writers import CsvWriter\n"
    code += "w = CsvWriter(pathlib.Path(sys.argv[1])); w.write({'env_steps': 5})\n"
    code += "print('there', flush=True); time.sleep(60)"
    with child("-c", code, str(folder / "progress.csv")) as process:
        assert process.stdout is not None and process.stdout.readline() == "there\n"
        assert following.look(folder).state == "trains"
        process.kill()
    assert following.look(folder).state == "stopped"


@needs_locks
def test_lines_until_it_ends(tmp_path) -> None:
    folder, out = tmp_path / "a", io.StringIO()
    writer = begun(folder)
    writer.write({**ROW, "env_steps": 100})

    def sleep(_: float) -> None:
        if (steps := following.look(folder).env_steps) < 900:
            more = {"eval_mean": 70.0, "eval_std": 2.0} if steps == 400 else {}
            writer.write({**ROW, **more, "env_steps": steps + 300, "seconds": steps / 100})
        else:
            writer.close()
            result = {"env_steps": 1000, "eval_mean": 71.0, "eval_std": 0.5}
            (folder / "result.json").write_text(json.dumps(result))

    assert live(folder, stream=out, sleep=sleep) == 0
    text = out.getvalue()
    assert text.startswith("PPO, CartPole-v1, PyTorch, seed 0\ntrains: 100 / 1,000 steps (10%)")
    between = re.findall(r"^[\d,]+ / 1,000 steps \|.*$", text, re.MULTILINE)
    news = {"400": "", "700": " | evaluation 70.0 ± 2.0", "1,000": ""}
    assert between == [f"{n} / 1,000 steps | return 5.0{more}" for n, more in news.items()]
    assert "complete: 1,000 / 1,000 steps (100%); the best checkpoint: 71.0 ± 0.5" in text
    assert "\x1b" not in text


def test_a_run_that_has_ended_is_shown_once_and_what_is_none_is_refused(tmp_path) -> None:
    never = Mock(side_effect=AssertionError("it waits"))
    for out in (io.StringIO(), Terminal()):
        assert live(make(tmp_path / type(out).__name__, 5.0), stream=out, sleep=never) == 0
        assert out.getvalue().count("complete: 1,000 / 1,000 steps") >= 1
    (none := tmp_path / "none").mkdir()
    with pytest.raises(RunFolderError, match="is not a run"):
        live(none)


@needs_locks
def test_ctrl_c_ends_it(tmp_path) -> None:
    writer, out = begun(tmp_path / "a"), Terminal()
    assert live(tmp_path / "a", stream=out, sleep=Mock(side_effect=KeyboardInterrupt)) == 0
    assert "begins: 0 / 1,000 steps" in out.getvalue()
    assert out.getvalue().endswith("\x1b[?25h")  # the cursor is back
    writer.close()


@needs_locks
def test_several_runs(tmp_path) -> None:
    make(tmp_path / "s0", 5.0)
    writer = begun(tmp_path / "s1")
    writer.write({**ROW, "env_steps": 300, "eval_mean": 9.0})
    looks = following.look_at_all(tmp_path)
    assert [look.state for look in looks] == ["complete", "trains"]
    assert not following.all_over(tmp_path, looks)
    lines = picture(tmp_path, looks)
    assert lines[0] == f"{tmp_path}: 2 runs, 1 trains, 1 complete"
    assert lines[-1].split() == ["1", "s1", "trains", "300", "5.0", "9.0", "9.0"]
    writer.close()
    (tmp_path / "seeds.json").write_text(json.dumps({"command": [], "seeds": [0, 1, 2]}))
    assert not following.all_over(tmp_path, following.look_at_all(tmp_path))  # another may begin
    assert not following.all_over(tmp_path, following.look_at_all(tmp_path)[:1])
    assert following.all_over(tmp_path / "s0", following.look_at_all(tmp_path / "s0"))
    old = time.time() - 2 * following.SETTLE
    for file in tmp_path.rglob("*.*"):
        os.utime(file, (old, old))
    assert following.all_over(tmp_path, following.look_at_all(tmp_path))


def test_seeds_that_begin_only_now(tmp_path) -> None:
    (tmp_path / "seeds.json").write_text(json.dumps({"command": [], "seeds": [0]}))
    out, looks = io.StringIO(), list[float]()

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            make(tmp_path / "s0", 5.0)

    assert live(tmp_path, stream=out, sleep=sleep) == 0
    assert out.getvalue().count("no run has begun yet\n") == 1
    assert "complete: 1,000 / 1,000 steps" in out.getvalue()
    old = time.time() - 2 * following.PATIENCE
    os.utime(tmp_path / "seeds.json", (old, old))
    assert following.all_over(tmp_path, [])


def test_a_curve_in_characters() -> None:
    x = np.array([0.0, 50, 100])
    rows = text_curve([Line("o", x, np.array([0.0, np.nan, 10]))], width=24, height=3)
    top, axis = "10.0 |" + " " * 17 + "o", "     0" + f"{'100 steps':>18}"
    assert rows == [top, " 5.0 |", " 0.0 |o", axis]
    joined = text_curve([Line(".", x, np.array([0.0, 5, 10]), True)], width=24, height=5)
    assert sum(row.count(".") for row in joined[:5]) >= 20 and joined[0].endswith(".")
    assert text_curve([Line("o", x, np.full(3, np.nan))], 24, 3) == []
    assert all(len(row) <= 24 for row in rows + joined)


@pytest.mark.slow
def test_a_training_in_another_process(tmp_path) -> None:
    folder = tmp_path / "run"
    words = "train ppo CartPole-v1 --framework torch --steps 6000 --final-episodes 2 --no-plots"
    with child("-m", "tandem", *words.split(), "--quiet", "--out", str(folder)) as process:
        wait_for(process, folder / "progress.csv")
        out = io.StringIO()
        assert live(folder, 0.1, stream=out) == 0
        process.kill()
    text = out.getvalue()
    assert re.search(r"^(begins|trains): ", text, re.MULTILINE)
    assert re.search(r"^complete: .*the best checkpoint", text, re.MULTILINE)
    assert len(re.findall(r"/ 6,000 steps \| return", text)) > 5
