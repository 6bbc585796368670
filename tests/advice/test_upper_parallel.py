"""The advice of the room parallel, followed; what needs a cluster is in `test_upper_ray.py`."""

from __future__ import annotations

import os
import tomllib
from types import SimpleNamespace
from typing import Any

import pytest

from tandem import trainer
from tandem.parallel import ray as bridge
from tests.advice.net import follows
from tests.helpers import ROOT

pytest.importorskip("torch")


def test_where_ray_is_not_installed(monkeypatch: Any) -> None:
    with monkeypatch.context() as patched, follows("parallel/ray.py:library") as advice:
        patched.delitem(bridge.sys.modules, "ray", raising=False)
        patched.setattr(bridge.importlib.util, "find_spec", lambda name: None)
        bridge.library()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, extra = advice.quoted().rstrip("]").split("[")
    assert name == project["name"] and advice.fix.startswith("pip install")
    assert any(each.startswith("ray") for each in project["optional-dependencies"][extra])


def test_processes_where_there_is_no_posix(monkeypatch) -> None:
    given = {"framework": "torch", "envs": 2, "steps": 32, "plots": False, "final_episodes": 1}
    given |= {"rollout": 8, "batch_size": 8, "eval_episodes": 0}
    with monkeypatch.context() as patch:
        patch.setattr("tandem.platforms.os", SimpleNamespace(**vars(os) | {"name": "nt"}))
        with follows("platforms.py:check_processes") as advice:
            trainer.train("ppo", "CartPole-v1", workers=1, **given)
        assert advice.fix == "train without them, one seed after another."
        trainer.train("ppo", "CartPole-v1", **given)
