"""The advice of curves, pictures and exported agents."""

from __future__ import annotations

import shlex
from typing import Any

import gymnasium
import numpy as np
import pytest
from onnx import helper

import tandem
from tandem import animation, onnx_export, plots
from tandem.cli import main
from tandem.networks import onnx
from tandem.onnx_export import export, to_numpy, to_onnx
from tests.advice.conftest import body
from tests.advice.installs import installs
from tests.advice.net import case, excepted, follows
from tests.advice.worlds import without
from tests.test_animation import Blinking
from tests.test_onnx_export import ARM, BITS, BOX, CHOICE, Team, agent, team_games

ONE = ["plain"]


def curve(folders: Any = ONE, out: Any = "a.png") -> None:
    plots.curve(folders, out)


def film(env: Any, out: Any = "a.gif") -> None:
    animation.animate(lambda obs: 0, env, out)


class Other(Blinking):
    """`render` gives something else, or fails until what it needs is installed."""

    def __init__(self, picture: Any = None, needs: str = "") -> None:
        super().__init__()
        self.picture, self.needs = picture, needs

    def render(self) -> Any:
        if self.needs:
            __import__(self.needs)
        return super().render() if self.picture is None else self.picture


@pytest.mark.parametrize(
    "case",
    [
        case("plots.py:curve", curve, {"folders": []}, "name one", {"folders": ONE}),
        case(
            "plots.py:as_picture",
            curve,
            {"out": "curve.docx"},
            "for example curve.png",
            {"out": "curve.png"},
        ),
        case(
            "runs/atomic_files.py:writing",
            curve,
            {"out": "plain/config.json/a.png"},
            "choose another",
            {"out": "pictures/a.png"},
        ),
        case(
            "animation.py:_expect_pictures",
            film,
            {"env": Blinking(mode=None)},
            "render_mode='rgb_array'",
            {"env": Blinking(mode="rgb_array")},
        ),
        case(
            "animation.py:_as_film",
            film,
            {"env": Blinking(), "out": "a.avi"},
            "for example a.gif",
            {"out": "a.gif"},
        ),
        case(
            "runs/atomic_files.py:writing",
            film,
            {"env": Blinking(), "out": "plain/config.json/a.gif"},
            "choose another",
            {"out": "pictures/a.gif"},
        ),
        case(
            "animation.py:_render 2",
            film,
            {"env": Other(needs="no_such_renderer")},
            "install what it asks for",
            {"env": Other(needs="numpy")},
        ),
        case(
            "animation.py:_render 2",
            film,
            {"env": Other(needs="no_such_renderer")},
            "or correct its render()",
            {"env": Other()},
        ),
        case(
            "animation.py:_render 3",
            film,
            {"env": Other(np.zeros((4, 4, 3)))},
            "return the picture as that",
            {"env": Other(np.zeros((4, 4, 3), np.uint8))},
        ),
        case(
            "onnx_export.py:export",
            export,
            {"agent": agent("dqn", BOX, CHOICE), "out": "a.npz", "network": print},
            "leave network out",
            {"network": None},
        ),
        case(
            "onnx_export.py:export 2",
            export,
            {"agent": agent("dqn", BOX, CHOICE), "out": "a.npy"},
            "did you mean 'numpy'",
            {"to": "numpy"},
        ),
        case(
            "runs/atomic_files.py:writing",
            export,
            {"agent": agent("dqn", BOX, CHOICE), "out": "plain/config.json/a.npz"},
            "choose another with --out",
            {"out": "exported/a.npz"},
        ),
        case(
            "onnx_export.py:to_onnx",
            export,
            {"agent": agent("dqn", {"obs": BOX, "output": BITS}, CHOICE), "out": "a.onnx"},
            "export it to numpy instead",
            {"out": "a.npz", "to": "numpy"},
        ),
    ],
)
def test_advice_on_files(case, runs, monkeypatch) -> None:
    monkeypatch.chdir(runs)
    case.follow()


def test_a_run_without_a_return(runs) -> None:
    table = runs / "plain" / "progress.csv"
    head, *_ = table.read_text(encoding="utf-8").splitlines()
    table.write_text(f"{head}\n32{',' * head.count(',')}\n")
    with follows("plots.py:_nothing") as advice:
        curve([runs / "plain"], runs / "a.png")
    assert "train it for a while" in advice.fix
    tandem.train(resume=runs / "plain")
    curve([runs / "plain"], runs / "a.png")


def test_a_window_without_a_screen(runs, monkeypatch) -> None:
    monkeypatch.chdir(runs)
    monkeypatch.setattr(animation, "has_display", lambda: False)
    with follows("animation.py:show") as advice:
        animation.show(lambda obs: 0, Blinking(mode="human"))
    command = advice.fix.removeprefix("write a file instead: tandem ").rstrip(".")
    assert main(shlex.split(command.replace("DIR", "plain"))) == 0
    assert (runs / "run.gif").is_file()
    monkeypatch.setattr(animation, "has_display", lambda: True)
    with follows("animation.py:show 2") as advice:
        animation.show(lambda obs: 0, Blinking())
    assert "render_mode='human'" in advice.fix
    animation.show(lambda obs: 0, Blinking(mode="human"))


def test_an_environment_that_cannot_be_drawn(tmp_path) -> None:
    name = "tandem-advice/Drawn-v0"
    metadata = Blinking().metadata | {"render_modes": []}
    for modes in ([], ["rgb_array"]):
        kind = type("Drawn", (Blinking,), {"metadata": metadata | {"render_modes": modes}})
        kind.__init__ = lambda self, render_mode=None: vars(self).update(
            length=3, size=(20, 30), render_mode=render_mode, seeds=[], t=0
        )
        gymnasium.register(name, entry_point=kind)
        if modes:
            animation.film(lambda obs: 0, name, tmp_path / "a.gif", max_steps=2)
            break
        with follows("animation.py:_drawable") as advice:
            animation.film(lambda obs: 0, name, tmp_path / "a.gif")
        assert "add it to the environment's metadata" in advice.fix
        gymnasium.registry.pop(name)
    gymnasium.registry.pop(name)


excepted(
    "animation.py:_render",
    because="OpenGL for a machine without a screen is installed by the system's packages; "
    "tests/test_animation.py::test_mujoco_without_opengl_says_what_to_install makes the error",
)


def test_without_ffmpeg(tmp_path, monkeypatch) -> None:
    with without(monkeypatch, "imageio_ffmpeg"):
        with follows("animation.py:_write_mp4") as advice:
            film(Blinking(), tmp_path / "a.mp4")
        assert "or write a .gif" in advice.fix
        film(Blinking(), tmp_path / "a.gif")
    assert "pip install imageio-ffmpeg" in advice.fix
    film(Blinking(), tmp_path / "a.mp4")


def test_without_onnx(tmp_path, monkeypatch) -> None:
    made = agent("ppo", BOX, ARM)
    with without(monkeypatch, "onnx"), follows("networks/onnx.py:_onnx") as advice:
        to_onnx(made, tmp_path / "a.onnx")
    assert "onnx" in installs(advice.fix)
    to_onnx(made, tmp_path / "a.onnx")


def test_networks_that_only_a_framework_runs(runs, tmp_path) -> None:
    own = tandem.load(runs / "own", network=body())
    with follows("onnx_export.py:to_numpy") as advice:
        to_numpy(own, tmp_path / "a.npz")
    assert "export it to onnx instead" in advice.fix
    to_onnx(own, tmp_path / "a.onnx")


def test_agents_that_no_file_can_hold(tmp_path) -> None:
    small = {"steps": 40, "hidden": (4,), "framework": "torch", "eval_episodes": 0, "plots": False}
    small |= {"final_episodes": 1, "eval_max_steps": 20}

    def team() -> Any:
        return Team(team_games.TwoStep())

    few = {"rollout": 20, "envs": 2, "batch_size": 40, "epochs": 1}
    memory = few | {"recurrent": 4, "sequence": 20, "network": body()}
    for key, algorithm, env, more in (
        ("onnx_export.py:_network", "vdn", team, {}),
        ("onnx_export.py:_network 2", "ppo", "CartPole-v1", memory),
    ):
        made = tandem.train(algorithm, env, out=tmp_path / algorithm, **small, **more).agent
        with follows(key) as advice:
            to_onnx(made, tmp_path / "a.onnx")
        assert "use tandem.load where the agent acts" in advice.fix
        loaded = tandem.load(tmp_path / algorithm, network=more.get("network"))
        assert loaded.algorithm is made.algorithm


def test_a_graph_that_differs(tmp_path, monkeypatch) -> None:
    made, run = agent("dqn", BOX, CHOICE), onnx.run
    with monkeypatch.context() as wrong:
        wrong.setattr(
            onnx_export.onnx, "run", lambda *given: {k: x + 1 for k, x in run(*given).items()}
        )
        with follows("onnx_export.py:_compare 2") as advice:
            to_onnx(made, tmp_path / "a.onnx")
    assert "meanwhile, export to numpy" in advice.fix
    to_numpy(made, tmp_path / "a.npz")


def test_a_graph_of_a_later_opset(runs, tmp_path) -> None:
    own = tandem.load(runs / "own", network=body())
    newer = helper.make_model(
        helper.make_graph([], "later", [], []), opset_imports=[helper.make_opsetid("", 21)]
    )
    with follows("networks/onnx.py:Graph.merge") as advice:
        onnx.Graph().merge(newer.SerializeToString(), {})
    assert advice.fix == "use tandem.load where the agent acts."
    assert own.act(np.zeros(4)) in (0, 1)
