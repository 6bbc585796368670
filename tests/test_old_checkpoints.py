"""Checkpoints written by commit 99b90a0 keep loading, act as they did there, and go on, twice the
same."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem

torch = pytest.importorskip("torch")

from tests.data.old_agent import OldAgent  # noqa: E402

OLD = Path(__file__).parent / "data" / "checkpoints"
EXPECTED = json.loads((OLD / "expected.json").read_text(encoding="utf-8"))
OBSERVATIONS = np.array(EXPECTED["obs"], np.float32)


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_an_old_run_loads_and_acts_as_it_did(algorithm: str) -> None:
    agent = tandem.load(OLD / algorithm, which="last")
    outputs = {name: network(OBSERVATIONS) for name, network in agent.networks.items()}
    expected = EXPECTED[algorithm]["outputs"]
    assert outputs.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(outputs[name], values, rtol=0, atol=1e-6)
    assert agent.act(OBSERVATIONS).tolist() == EXPECTED[algorithm]["actions"]


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_an_old_run_resumes_twice_the_same(algorithm: str, tmp_path: Path) -> None:
    tables = []
    for name in ("first", "second"):
        folder = tmp_path / name
        shutil.copytree(OLD / algorithm, folder)
        tandem.train(resume=folder)
        tables.append(rows(folder / "progress.csv"))
    before = rows(OLD / algorithm / "progress.csv")
    for old, row in zip(before, tables[0], strict=False):  # columns that are new since are empty
        assert row == old | dict.fromkeys(row.keys() - old.keys(), "")
    assert int(tables[0][-1]["env_steps"]) >= 800 and len({r["fingerprint"] for r in tables[0]}) > 3
    assert tables[0] == tables[1]


def rows(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def restored() -> Any:
    agent = OldAgent()
    agent.restore(OLD / "agent" / "agent.dat")
    return agent


def test_an_old_agent_of_the_agent_door_loads_and_acts_as_it_did() -> None:
    agent, expected = restored(), EXPECTED["agent"]
    outputs = agent.net(torch.tensor(OBSERVATIONS)).detach().numpy()
    np.testing.assert_allclose(outputs, expected["outputs"], rtol=0, atol=1e-6)
    assert agent.total_episode == expected["total_episode"]
    assert agent.reward_list == expected["reward_list"]


def test_an_old_agent_of_the_agent_door_trains_on_twice_the_same() -> None:
    first, second = restored(), restored()
    for agent in (first, second):
        agent.train(torch.optim.Adam(agent.param, 1e-3), 5, p=0)
    assert len(first.reward_list) == len(EXPECTED["agent"]["reward_list"]) + 5
    assert first.reward_list == second.reward_list and first.loss_list == second.loss_list
    assert len(set(first.loss_list)) > 10, "there were losses, so there was learning"
    assert all(
        torch.equal(x, y)
        for x, y in zip(first.net.parameters(), second.net.parameters(), strict=True)
    )
