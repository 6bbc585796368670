"""Learning curves: the numbers that are drawn, and that nothing but the file is touched."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tandem.cli import main, plot
from tandem.errors import RunFolderError, SettingError
from tandem.math.statistics import bootstrap_band, iqm
from tandem.reports import plots
from tandem.runs.writers import CsvWriter


def make(
    folder: Path, framework="jax", seed=0, slope=1.0, end=1000, env="CartPole-v1", test=True, **more
) -> Path:
    """A run whose evaluation return is slope * steps, every 200 steps up to `end`."""
    writer = CsvWriter(folder / "progress.csv")
    for step in range(100, end + 1, 100):
        mean = None if step == 100 else slope * step / 2
        row: dict[str, Any] = {"env_steps": step, "return_mean": mean}
        evaluated = {"eval_mean": slope * step, "eval_std": 5.0}
        writer.write(row | (evaluated if test and step % 200 == 0 else {}))
    writer.close()
    config = {"algorithm": "ppo", "env": env, "framework": framework, "seed": seed}
    (folder / "config.json").write_text(json.dumps({**config, "settings": more}))
    return folder


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The axes that `curve` draws on."""
    seen: list[Any] = []
    original = plots._axes

    def remember() -> tuple[Any, Any]:
        figure, axes = original()
        seen.append(axes)
        return figure, axes

    monkeypatch.setattr(plots, "_axes", remember)
    return seen


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line.get_xydata() for line in axes.get_lines()}


def title(axes: Any) -> str:
    return axes.get_title(loc="left")


def test_one_run_shows_evaluations_with_their_spread_or_training(tmp_path: Path, drawn) -> None:
    run = make(tmp_path / "run", "tensorflow", seed=3)
    out = plots.curve([run], tmp_path / "new" / "curve.png")
    axes = drawn[0]
    assert out.read_bytes()[:4] == b"\x89PNG" and out.stat().st_size > 10_000
    assert title(axes) == "PPO, CartPole-v1, Keras on TensorFlow, seed 3"
    found = lines(axes)
    evaluated = [[s, s] for s in (200, 400, 600, 800, 1000)]
    np.testing.assert_array_equal(found["evaluation, mean ± std"], evaluated)
    trained = [[s, s / 2] for s in range(200, 1001, 100)]
    np.testing.assert_array_equal(found["training episodes"], trained)
    band = axes.collections[0].get_paths()[0].get_extents()
    assert (band.ymin, band.ymax) == (195.0, 1005.0)
    # without evaluations the training return is compared
    plots.curve([make(tmp_path / "a"), make(tmp_path / "b", test=False)], tmp_path / "a.png")
    assert drawn[1].get_ylabel() == "return of training episodes"
    np.testing.assert_allclose(lines(drawn[1])["2 runs"][-1], [1000.0, 500.0])


def test_runs_of_one_kind_become_an_interquartile_mean_with_its_band(tmp_path: Path, drawn) -> None:
    slopes = [1.0, 2.0, 4.0, 100.0]
    ends = [1000, 800, 1000, 1000]  # the curve ends where the first of them does
    pairs = enumerate(zip(slopes, ends, strict=True))
    folders = [make(tmp_path / f"{i}", seed=i, slope=s, end=e) for i, (s, e) in pairs]
    plots.curve(folders, tmp_path / "curve.svg")
    axes = drawn[0]
    assert title(axes) == "PPO, CartPole-v1, Keras on JAX"
    (label, line), *others = lines(axes).items()
    assert label == "4 runs" and not others
    np.testing.assert_allclose(line[:, 0], np.linspace(200, 800, 200))
    # the mean of 2 and 4: 1 and 100 are outside the middle half
    np.testing.assert_allclose(line[:, 1], 3.0 * line[:, 0])
    for i in (0, 1):  # an interval of four runs would say little
        scores = np.outer(slopes, lines(drawn[i])[f"{len(folders)} runs"][:, 0])
        low, high = bootstrap_band(scores) if i else (scores[0], scores[3])
        band = drawn[i].collections[0].get_paths()[0].get_extents()
        assert (band.ymin, band.ymax) == pytest.approx((low.min(), high.max()))
        folders.append(make(tmp_path / "more", seed=9, slope=5.0))
        slopes.append(5.0)
        plots.curve(folders, tmp_path / "curve.svg")
    slopes = slopes[:4]
    np.testing.assert_allclose(line[:, 1], iqm(np.outer(slopes, line[:, 0])))


def test_runs_of_several_kinds_are_told_apart_by_what_differs(tmp_path: Path, drawn) -> None:
    folders = [make(tmp_path / f"{f}{s}", f, s) for f in ("torch", "jax") for s in (0, 1)]
    plots.curve([*folders, make(tmp_path / "one", "tensorflow")], tmp_path / "a.png")
    kinds = ["PyTorch, 2 runs", "Keras on JAX, 2 runs", "Keras on TensorFlow, 1 run"]
    assert list(lines(drawn[0])) == kinds and title(drawn[0]) == "PPO, CartPole-v1"
    assert len(drawn[0].collections) == 2  # one run has no band
    other = make(tmp_path / "b", "jax", env="Acrobot-v1")
    plots.curve([folders[0], other], tmp_path / "b.png", title="Mine")
    kinds = ["CartPole-v1, PyTorch, 1 run", "Acrobot-v1, Keras on JAX, 1 run"]
    assert list(lines(drawn[1])) == kinds and title(drawn[1]) == "Mine"
    # those with other settings are another curve
    pairs = [(g, s) for g in (0.9, 0.99) for s in (0, 1)]
    given = {"clip": 0.2}
    tuned = [make(tmp_path / f"{g}{s}", seed=s, slope=s + g, gamma=g, **given) for g, s in pairs]
    plots.curve([*tuned, make(tmp_path / "other", "torch", gamma=0.5)], tmp_path / "a.png")
    kinds = [f"Keras on JAX, gamma={gamma}, 2 runs" for gamma in (0.9, 0.99)]
    assert list(lines(drawn[2])) == [*kinds, "PyTorch, 1 run"]
    many = [make(tmp_path / f"m{i}", gamma=i / 9) for i in range(9)]
    plots.curve([*many, make(tmp_path / "m", "torch", env="E" * 30)], tmp_path / "m.png")
    drawn[3].get_figure().canvas.draw()  # a long legend takes no room from the axes
    assert drawn[3].get_window_extent().height > 0.5 * drawn[2].get_window_extent().height
    del drawn[3]
    plots.curve(tuned, tmp_path / "b.png", individual=True)
    assert {n for n in lines(drawn[3]) if not n.startswith("_")} == {"gamma=0.9", "gamma=0.99"}


def test_single_runs_stay_visible_and_are_named_by_seed_or_by_kind(tmp_path: Path, drawn) -> None:
    engines = ("torch", "jax", "tensorflow")
    alike = [make(tmp_path / f, f) for f in engines]
    jax, torch = ([make(tmp_path / f"{f}{s}", f, s) for s in (0, 7)] for f in ("jax", "torch"))
    for folders in (alike, jax, [*torch, *jax]):
        plots.curve(folders, tmp_path / "a.png", individual=True)
    kinds = ["PyTorch", "Keras on JAX", "Keras on TensorFlow"]
    assert list(lines(drawn[0])) == kinds and title(drawn[0]) == "PPO, CartPole-v1, seed 0"
    widths = [line.get_linewidth() for line in drawn[0].get_lines()]
    assert widths == sorted(widths, reverse=True) and len(set(widths)) == 3
    assert len({line.get_color() for line in drawn[0].get_lines()}) == 3
    assert list(lines(drawn[1])) == ["seed 0", "seed 7"]
    assert [text.get_text() for text in drawn[2].get_figure().legends[0].get_texts()] == kinds[:2]
    colors = [line.get_color() for line in drawn[2].get_lines()]
    assert colors[0] == colors[1] != colors[2] == colors[3]


def test_errors_name_what_is_wrong(tmp_path: Path) -> None:
    run, young = make(tmp_path / "run"), make(tmp_path / "young", end=100)
    odd = make(tmp_path / "odd") / "progress.csv"
    odd.write_text(odd.read_text(encoding="utf-8").replace("1000,", "1x,"))
    # nothing is written under another name than the one that was given
    endings = r"\.png, \.svg or \.pdf"
    for error, folders, out, says in (
        (RunFolderError, [tmp_path / "rum"], "a.png", r"did you mean .*run\?"),
        (RunFolderError, [young], "a.png", "has no return to plot yet"),
        (RunFolderError, [run, young], "a.png", "has no return to plot yet"),
        (SettingError, [run], "a.nonsense", r"a\.nonsense"),
        (SettingError, [run], ".", endings),
        (RunFolderError, [odd.parent], "a.png", "column env_steps of .*progress.csv .*'1x'"),
        (SettingError, [], "a.png", "no folder"),
        (RunFolderError, [run], "run/config.json/a.png", "cannot write"),
    ):
        with pytest.raises(error, match=says):
            plots.curve(folders, tmp_path / out)


def test_plotting_touches_no_global_state(tmp_path: Path) -> None:
    make(tmp_path / "run")
    program = (
        "import sys; from pathlib import Path; from tandem.reports import plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"plots.curve([Path({str(tmp_path / 'run')!r})], Path({str(tmp_path / 'a.png')!r}))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_run_that_is_named_twice_is_one_sample(tmp_path: Path, monkeypatch: Any) -> None:
    drawn: list[Path] = []
    monkeypatch.setattr(plot, "curve", lambda folders, out, individual: drawn.extend(folders))
    runs = [make(tmp_path / "all" / name) for name in ("s0", "s1")]
    given = [str(tmp_path / "all"), str(runs[0]), str(tmp_path / "all" / ".." / "all" / "s1")]
    assert main(["plot", *given]) == 0
    assert [folder.resolve() for folder in drawn] == [folder.resolve() for folder in runs]
