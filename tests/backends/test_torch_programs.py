"""Updates on torch as programs: what can be one, when it is worth it, and that it is the same."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pytest

from tests.helpers import run_python

torch = pytest.importorskip("torch")

import tandem  # noqa: E402
from tandem.backends import torch_calls, torch_programs, torch_quicker  # noqa: E402
from tandem.errors import SettingError  # noqa: E402
from tandem.runs.verification import verify  # noqa: E402
from tandem.testing import fakes  # noqa: E402
from tests import graphs  # noqa: E402

SCRIPT = Path(__file__).with_name("programs.py")
GIVEN = {"steps": 256, "envs": 4, "rollout": 16, "eval_episodes": 0, "plots": False}
GIVEN |= {"batch_size": 32, "epochs": 2, "framework": "torch"}


@pytest.mark.slow
@pytest.mark.skipif(which("g++") is None, reason="torch compiles by g++")
def test_processes_compile_once_what_does_the_same_as_before(tmp_path: Path) -> None:
    def ran(_: int) -> Any:
        env = {"XDG_CACHE_HOME": str(tmp_path)}
        return run_python(SCRIPT, engine="torch", env=env, timeout=280, forked=False)[-1]

    with ThreadPoolExecutor() as pool:
        (compiled, state), (more, other) = pool.map(ran, range(2))
    assert compiled + more == 2 and state == other


class Net(torch.nn.Module):
    """A body [B, 4] -> [B, 8] that does something more with what it puts out."""

    def __init__(self, more: Any) -> None:
        super().__init__()
        self.layer, self.more = torch.nn.Linear(4, 8), more
        self.register_buffer("seen", torch.zeros(()))
        self.calls, self.scale = 0, torch.ones(8)

    def forward(self, x):
        return self.more(self, torch.tanh(self.layer(x)))


def counting(net, x):
    net.calls += 1
    return x / net.calls


def scaled(net, x):
    net.seen.add_(1.0)
    return x * net.scale


FOREIGN = torch.ones(8)
UNCAPTURABLE = {
    "samples random numbers": lambda net, x: torch.nn.functional.dropout(x, 0.5, net.training),
    "depends on the values of tensors": lambda net, x: x * (2.0 if x.mean() > 0 else 1.0),
    "differently at each call": counting,
    "another tensor as its 'seen'": lambda net, x: setattr(net, "seen", net.seen + 1.0) or x,
    "another tensor as its 'latest'": lambda net, x: setattr(net, "latest", x) or x,
    "no parameter, buffer or attribute": lambda net, x: x * FOREIGN,
}


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_programs.ProgramSource, "program", graphs.program)


def trained(mode: str, **given: Any) -> Any:
    run = tandem.session("ppo", "CartPole-v1", compile=mode, **GIVEN | given)
    list(run)
    return run


@pytest.mark.parametrize("reason", UNCAPTURABLE)
def test_what_cannot_be_captured_is_named(reason: str, monkeypatch) -> None:
    with pytest.raises(SettingError, match=reason) as caught:
        trained("yes", network=lambda space: Net(UNCAPTURABLE[reason]))
    assert "compile='yes'" in str(caught.value) and caught.value.fix == "give compile='no'."
    decides(monkeypatch, kept=False, seconds=0.0)  # which would compile it
    assert trained("auto", network=lambda space: Net(UNCAPTURABLE[reason])).config.compiled == "no"


def test_torchs_own_optimizers_are_not_compiled() -> None:
    own = torch.optim.NAdam([torch.zeros(1)], lr=1e-3)
    with pytest.raises(SettingError, match="the optimizer is an object, NAdam"):
        trained("yes", optimizer=own)


def test_modules_of_ones_own_are_compiled_and_their_buffers_move() -> None:
    runs = {mode: trained(mode, network=lambda space: Net(scaled)) for mode in ("no", "yes")}
    for n, x in runs["no"].backend.state().items():
        np.testing.assert_allclose(runs["yes"].backend.state()[n], x, atol=2e-5, err_msg=n)
    seen = [x for n, x in runs["yes"].backend.state().items() if x.shape == ()]
    assert max(float(x) for x in seen) >= 32


def test_a_signal_during_compilation_and_a_missing_compiler_are_answered(monkeypatch, caplog):
    run = tandem.session("ppo", "CartPole-v1", compile="no", **GIVEN)
    run.take_signal("SIGINT")
    assert "once updates are compiled" not in caplog.text
    run.backend.compiles = True
    run.take_signal("SIGINT")
    assert "SIGINT ends the run once updates are compiled" in caplog.text
    run.close()
    monkeypatch.setattr("tandem.learning.config.which", lambda name: None)
    for steps in (20_000, 100_000):
        assert "no C++ compiler" not in caplog.text
        tandem.session("sac", "Pendulum-v1", framework="torch", steps=steps, hidden=4).close()
    assert "no C++ compiler" in caplog.text


@pytest.mark.parametrize(
    ("kept", "seconds", "few", "compiled"),
    [(False, 1, 1, "no"), (True, 1, 1, "yes"), (True, 1, 10**6, "no"), (False, 0, 1, "yes")],
)
def test_auto_compiles_what_spares_time(kept, seconds, few, compiled, monkeypatch) -> None:
    decides(monkeypatch, kept, seconds, few)
    assert trained("auto").config.compiled == compiled


def decides(monkeypatch: Any, kept: bool, seconds: float = 1.0, few: int = 1) -> None:
    monkeypatch.setattr(torch_programs, "any_kept", lambda *_: kept)
    monkeypatch.setattr(torch_programs.ProgramSource, "is_kept", lambda source: kept)
    monkeypatch.setattr(torch_programs, "seconds_per_node", lambda _: seconds)
    monkeypatch.setattr(torch_calls, "FEW", few)


def test_what_auto_came_to_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    decides(monkeypatch, kept=True)
    whole = trained("auto", out=tmp_path / "whole")
    run = tandem.session("ppo", "CartPole-v1", out=tmp_path / "half", **GIVEN, compile="auto")
    for event in run:
        if event.env_steps >= 128:
            run.stop("half")
    assert json.loads((tmp_path / "half" / "config.json").read_text())["compiled"] == "yes"
    decides(monkeypatch, kept=False)
    list(resumed := tandem.session(resume=tmp_path / "half"))
    assert resumed.fingerprint() == whole.fingerprint() != trained("no").fingerprint()
    assert verify(tmp_path / "half").difference is None
    assert trained("auto").config.compiled == "no"


def test_programs_used_longest_ago_make_room(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch_programs, "LARGEST", 250)
    for i in (2, 0, 1):
        (tmp_path / f"{i}.so").write_bytes(bytes(100))
        os.utime(tmp_path / f"{i}.so", (i, i))
    torch_programs._make_room(tmp_path)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["1.so", "2.so"]


def test_what_is_not_due_is_not_computed(monkeypatch) -> None:
    """The actor of TD3, in every third update."""
    algorithm, backend = fakes.build("td3", "torch", fakes.BOX, compile=True, policy_delay=3)
    data = fakes.batches(algorithm, fakes.VECTOR, fakes.BOX, 3, 8)
    sources: list[Any] = []
    noted = lambda source: sources.append(source) or graphs.program(source)  # noqa: E731
    monkeypatch.setattr(torch_programs.ProgramSource, "program", noted)
    backend.compile(algorithm.update)(data)
    step = sources[0].step
    (branch,) = (n for n in step.graph.nodes if n.target is torch.ops.higher_order.cond)
    taken, left = (getattr(step, n.target).graph.nodes for n in branch.args[1:3])
    kinds = [{str(n.target) for n in nodes} for nodes in (taken, left, step.graph.nodes)]
    assert "aten.mm.default" in kinds[0] and "aten.mm.default" not in kinds[1]
    # what is left: the target's action, two targets and two critics, each by three layers
    assert sum(str(n.target) == "aten.neg.default" for n in step.graph.nodes) == 15  # their biases


def test_quicker_operations_give_the_same() -> None:
    xs = torch.linspace(-12, 12, 10_001), torch.logspace(-30, 0, 1_000)
    x = torch.cat([*xs, torch.tensor([0.0, torch.nan, torch.inf])])
    np.testing.assert_allclose(torch_quicker.tanh(x), torch.tanh(x.double()), rtol=4e-7)
    a, b, bias = torch.randn(40, 9), torch.randn(9, 3), torch.randn(3)
    np.testing.assert_allclose(torch_quicker.product(a, b), a @ b, rtol=1e-4, atol=1e-5)
    assert torch_quicker.product(b.t(), a.t()) is NotImplemented
    np.testing.assert_allclose(torch_quicker.dense(bias, a, b), a @ b + bias, rtol=1e-4, atol=1e-5)


def test_without_the_loop_updates_are_compiled_one_by_one(monkeypatch, caplog, tmp_path) -> None:
    def broken(source: Any, step: Any, file: Path) -> None:
        raise ImportError("no scan here")

    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch_programs.ProgramSource, "_write", broken)
    monkeypatch.setattr(torch, "compile", lambda step, **_: step)
    assert trained("yes").fingerprint() == trained("yes", compile_cache=False).fingerprint()
    assert "updates are compiled one by one, since no scan here" in caplog.text
    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(SettingError, match="compile='yes', but an update cannot be compiled"):
        trained("yes")
