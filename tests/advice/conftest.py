"""Runs whose folders the tests of this one may damage."""

import shutil
from typing import Any

import pytest

import tandem
from tandem.envs.factory import make
from tests.test_trainer import small


def body(width: int = 8) -> Any:
    import torch

    class Wave(torch.nn.Module):  # of which no file holds a plan
        def forward(self, x: Any) -> Any:
            return torch.sin(x)

    layers = torch.nn.Linear(4, width), Wave()
    return lambda space: torch.nn.Sequential(*layers)


def cart() -> Any:
    return make("CartPole-v1")


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Two halves of runs, one whose environment is from a program, and one that was extended."""
    place = tmp_path_factory.mktemp("runs")
    small(out=place / "plain", steps=64, stop_at=32, eval_every=32)
    small(cart, network=body(), out=place / "own", steps=64, stop_at=32, optimizer="adam")
    small(cart, out=place / "cart", steps=32)
    small(out=place / "extended", steps=32)
    tandem.train(resume=place / "extended", steps=64, extend=True)
    return place


@pytest.fixture
def runs(made, tmp_path, monkeypatch):
    """Copies, to be damaged."""
    shutil.copytree(made, tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"
