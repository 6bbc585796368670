"""A checkpoint names the environment that is made; people look at config.json."""

from __future__ import annotations

import json

import tandem
from tandem.cli import main
from tests.advice.net import follows


def test_a_run_whose_files_name_two_environments_is_refused(tmp_path, capsys) -> None:
    run = tmp_path / "run"
    sizes = {"steps": 32, "envs": 1, "rollout": 16, "batch_size": 16, "epochs": 1, "hidden": (4,)}
    quiet = {"eval_episodes": 0, "final_episodes": 1, "plots": False, "tensorboard": False}
    tandem.train("ppo", "CartPole-v1", framework="torch", out=run, **sizes, **quiet)
    file = run / "config.json"
    original = file.read_text(encoding="utf-8")
    for changed in ({"env": "Acrobot-v1"}, {"env_kwargs": {"render_mode": "ansi"}}):
        file.write_text(json.dumps(json.loads(original) | changed), encoding="utf-8")
        with follows("runs/config_file.py:refuse_other_env") as advice:
            tandem.train(resume=run, steps=64, extend=True)
        assert "change it back" in advice.fix
        for command in ("evaluate", "watch"):
            assert main([command, str(run), "--episodes", "1"]) == 1
            (name,) = changed
            assert f"has {name}=" in capsys.readouterr().err
    file.write_text(original, encoding="utf-8")
    assert main(["evaluate", str(run), "--episodes", "1"]) == 0
    tandem.train(resume=run, steps=64, extend=True)


def test_a_sweep_is_told_from_a_run(tmp_path) -> None:
    (tmp_path / "sweep.json").write_text("{}")
    with follows("runs/folder.py:run_folder 2") as advice:
        tandem.train(resume=tmp_path)
    assert f"tandem sweep --resume {tmp_path}" in advice.fix
