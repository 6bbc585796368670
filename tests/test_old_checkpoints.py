"""Checkpoints written by commit 99b90a0 keep loading, act as they did there, and go on, twice the
same. Those of `layers`, by commit 617d30d7, have plans of users' layers that are recognized no
more."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tandem
from tandem import backends
from tandem.errors import NetworkError
from tandem.networks.plan import Twin
from tandem.networks.serial import from_json
from tests.advice.net import follows

torch = pytest.importorskip("torch")

from tests.data.old_agent import OldAgent  # noqa: E402

OLD = Path(__file__).parent / "data" / "checkpoints"
EXPECTED = json.loads((OLD / "expected.json").read_text(encoding="utf-8"))
OBSERVATIONS = np.array(EXPECTED["obs"], np.float32)


@pytest.mark.parametrize("algorithm", ["dqn", "ppo", "layers"])
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


def old_body(space: Any) -> Any:
    nn = torch.nn
    norms = [nn.BatchNorm1d(8), nn.LeakyReLU(0.1), nn.GroupNorm(2, 8), nn.PReLU(), nn.Dropout(0.1)]
    convolution = [nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 3, 2), nn.AvgPool1d(2, 1), nn.Flatten()]
    return nn.Sequential(nn.Linear(4, 8, bias=False), *norms, *convolution, nn.Mish())


def test_an_old_run_of_other_layers_acts_without_a_framework_and_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.delattr(backends, "make")
        for network in (None, old_body):
            agent = tandem.load(OLD / "layers", network, which="last")
            assert isinstance(agent.networks["q"], Twin)
            assert agent.act(OBSERVATIONS).tolist() == EXPECTED["layers"]["actions"]
        tandem.export(agent, tmp_path / "agent.npz")
    with pytest.raises(NetworkError, match=r"Linear cannot be exported to ONNX(.|\n)*to numpy"):
        tandem.export(agent, tmp_path / "agent.onnx")
    folder = tmp_path / "run"
    shutil.copytree(OLD / "layers", folder)
    with follows("networks/users.py:refuse_old_layers"):
        tandem.train(resume=folder, network=old_body)
    with follows("networks/users.py:refuse_old_layers"):
        tandem.train("dqn", "CartPole-v1", network=old_body, framework="torch", start_from=folder)


def test_old_plans_of_other_layers_put_out_what_they_did() -> None:
    file = np.load(OLD.parent / "layers.npz")
    numbers, at = file["numbers"], 0
    for name, case in json.loads(str(file["cases"])).items():
        arrays = {}
        for key, (dtype, shape) in case["arrays"].items():
            size = int(np.prod(shape))
            arrays[key] = numbers[at : at + size].reshape(shape).astype(dtype)
            at += size
        x, expected = arrays.pop("x"), arrays.pop("expected")
        out = Twin(from_json(case["plan"]), arrays)(x)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5, err_msg=name)
    assert at == len(numbers)


def rows(table: Path) -> list[dict[str, str]]:
    with table.open(encoding="utf-8") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def restored() -> Any:
    agent = OldAgent()
    agent.restore(OLD / "agent" / "agent.dat")
    return agent


def test_an_old_agent_loads_acts_as_it_did_and_trains_on_twice_the_same() -> None:
    agent, expected = restored(), EXPECTED["agent"]
    outputs = agent.net(torch.tensor(OBSERVATIONS)).detach().numpy()
    np.testing.assert_allclose(outputs, expected["outputs"], rtol=0, atol=1e-6)
    assert agent.total_episode == expected["total_episode"]
    assert agent.reward_list == expected["reward_list"]
    first, second = restored(), restored()
    for agent in (first, second):
        agent.train(torch.optim.Adam(agent.param, 1e-3), 5, p=0)
    assert len(first.reward_list) == len(EXPECTED["agent"]["reward_list"]) + 5
    assert first.reward_list == second.reward_list and first.loss_list == second.loss_list
    assert len(set(first.loss_list)) > 10, "there were losses, so there was learning"
    parameters = zip(first.net.parameters(), second.net.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in parameters)
