"""Runs that start from what another has learned, and weights that are frozen."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from torch import nn

import tandem
from tandem.cli import main
from tandem.errors import CheckpointError, ResumeError, SettingError
from tandem.reports.run_report import command_of, report
from tandem.runs.folder import expect_json
from tandem.runs.session import Session
from tandem.runs.verification import verify
from tandem.testing.environments import Identity
from tests.helpers import run_python
from tests.runs.shared import QUICK, finished, in_parts

NORMAL = {"normalize_observations": True, "normalize_rewards": True}
SAC: dict[str, Any] = {**QUICK, "learning_starts": 32, "steps": 64, "envs": 1}


def weights(run: Session) -> dict[str, np.ndarray]:
    networks = run.backend.networks.items()
    return {f"{role}/{n}": x for role, w in networks for n, x in w.read().items()}


def begun(*args: Any, **given: Any) -> Session:
    run = tandem.session(*args, **given)
    run.close()
    return run


def test_what_was_learned_is_used_and_learned_on(tmp_path: Path) -> None:
    """A run of a few steps solves the game only if it starts from one that has learned it."""
    given = {**QUICK, "hidden": (32,), "learning_rate": 1e-2, "final_episodes": 20, "envs": 4}
    tandem.train("ppo", Identity, steps=512, out=tmp_path / "a", **given)
    short = {**given, "learning_rate": 1e-3, "steps": 32, "rollout": 8}
    assert tandem.train("ppo", Identity, **short).evaluation.mean < 6
    tuned = tandem.train("ppo", Identity, start_from=tmp_path / "a", out=tmp_path / "b", **short)
    first = [tuned.run.column(name)[0] for name in ("env_steps", "eval_mean")]
    assert first == [0, 10] and tuned.evaluation.mean == 10


def test_a_game_is_learned_with_all_layers_but_the_last_frozen() -> None:
    given = {**QUICK, "hidden": (64,), "learning_rate": 1e-2, "freeze": "actor.1,critic.1"}
    assert tandem.train("ppo", Identity, envs=4, steps=1024, **given).evaluation.mean == 10


@pytest.fixture(scope="module")
def sac(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sac") / "run"
    finished(tandem.session("sac", "Pendulum-v1", out=folder, **SAC)).close()
    return folder


def test_networks_optimizers_and_replay_are_loaded(sac: Path) -> None:
    source = begun(resume=sac)
    parts = {"which": "last", "load": "networks,optimizer,replay"}
    run = begun("sac", "Pendulum-v1", start_from=sac, **parts, **SAC)
    assert run.fingerprint() == source.fingerprint() and run.loop.env_steps == 0
    assert {*weights(run)} > {"q1/1/kernel", "q2_target/2/bias", "log_alpha/value"}
    one, other = run.backend.state(), source.backend.state()
    moments = [n for n in one if n.startswith("optimizer/") and np.any(one[n])]
    assert moments and all(np.array_equal(one[n], other[n]) for n in moments)
    assert run.loop.learner.ring.time == 64 and run.config.start["fingerprint"]
    usual = begun("sac", "Pendulum-v1", start_from=sac, **SAC)
    assert usual.loop.learner.ring.time == 0
    assert not any(np.any(x) for n, x in usual.backend.state().items() if n in moments)


def test_statistics_go_on_and_both_fingerprints_are_kept(tmp_path: Path) -> None:
    given = {**QUICK, **NORMAL, "steps": 64, "rollout": 16, "envs": 2}
    first = finished(tandem.session("ppo", "CartPole-v1", out=tmp_path / "a", **given))
    run = tandem.session("ppo", "CartPole-v1", start_from=tmp_path / "a", which="last", **given)
    assert run.fingerprint() == first.fingerprint()
    counts = [n for n in run.loop.statistics() if n.endswith("/count")]
    assert len(counts) == 2
    assert all(run.loop.statistics()[n] == 64 for n in counts)
    finished(run, 32)
    assert all(run.loop.statistics()[n] == 96 for n in counts)


def test_a_started_run_resumes_verifies_and_says_what_it_started_from(
    sac: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**SAC, "start_from": sac, "freeze": ["actor.1,q1"]}
    in_parts(tmp_path, "sac", "Pendulum-v1", 40, **given)
    assert verify(tmp_path / "parts").difference is None
    config = expect_json(tmp_path / "parts" / "config.json")
    assert f"--start-from {sac}" in command_of(config) and "--freeze actor.1" in command_of(config)
    chained = {**SAC, "start_from": tmp_path / "parts", "out": tmp_path / "chained"}
    chained["env_kwargs"] = {"g": 9.5}
    finished(tandem.session("sac", "Pendulum-v1", **chained))
    last = {**SAC, "start_from": tmp_path / "chained", "out": tmp_path / "last"}
    finished(tandem.session("sac", "Pendulum-v1", **last))
    page = report(tmp_path / "last").read_text(encoding="utf-8")
    assert "9.5" in page.partition("Started from")[2].partition("</table>")[0]
    assert str(sac) in page and str(tmp_path / "parts") in page and "actor.1.kernel" in page
    monkeypatch.chdir(tmp_path)
    words = ["train", "--config", str(tmp_path / "parts" / "config.json"), "--out", "again"]
    assert main([*words, "--quiet"]) == 0
    assert expect_json(Path("again/config.json"))["start"] == config["start"]
    finished(tandem.session(resume=sac, extend=True, steps=96))
    with pytest.raises(CheckpointError, match="has other weights now"):
        verify(tmp_path / "parts")


def test_frozen_weights_stay_as_they_are_and_others_move(sac: Path) -> None:
    run = tandem.session("sac", "Pendulum-v1", start_from=sac, freeze=("actor.1", "q1"), **SAC)
    before = weights(run)
    after = weights(finished(run))
    stay = {n for n in before if np.array_equal(before[n], after[n])}
    assert {n for n in stay if "target" not in n} == {
        *(f"actor/1/{x}" for x in ("kernel", "bias")),
        *(n for n in before if n.startswith("q1/")),
    }


def test_what_does_not_fit_is_an_error_and_matching_loads_the_rest(
    sac: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wider = {**SAC, "hidden": (8, 4), "start_from": sac}
    says = r"actor\.2\.kernel is \(8, 2\) there and \(8, 4\)(.|\n)*hidden=\[8\]; or give load="
    with pytest.raises(CheckpointError, match=says):
        tandem.session("sac", "Pendulum-v1", **wider)
    run = begun("sac", "Pendulum-v1", **{**wider, "hidden": (16,)}, load="matching")
    source = weights(begun(resume=sac))
    same = [n for n, x in weights(run).items() if np.array_equal(x, source[n])]
    assert "actor/2/bias" in same and "actor/1/bias" not in same
    assert "not loaded from" in caplog.text and "actor.1.kernel" in caplog.text


def test_from_an_agent_with_what_it_has(sac: Path, caplog: pytest.LogCaptureFixture) -> None:
    agent = tandem.load(sac, which="last")
    run = begun("sac", "Pendulum-v1", start_from=agent, **SAC)
    source = weights(begun(resume=sac))
    assert all(np.array_equal(x, source[n]) for n, x in weights(run).items() if "actor" in n)
    assert "has no q1" in caplog.text


def body(space: gymnasium.Space[Any]) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.SELU(), nn.Linear(4, 4), nn.SELU())


def test_custom_networks_by_the_names_of_their_modules(tmp_path: Path) -> None:
    given = {**QUICK, "network": body, "steps": 32, "rollout": 16, "envs": 2}
    given.pop("hidden")
    first = finished(tandem.session("ppo", "CartPole-v1", out=tmp_path / "a", **given))
    assert first.backend.shapes["actor"]["2.weight"] == (4, 4)
    run = tandem.session("ppo", "CartPole-v1", start_from=tmp_path / "a", which="last", **given)
    assert run.fingerprint() == first.fingerprint()
    run.close()
    plain = {**QUICK, "start_from": tmp_path / "a", "freeze": ["actor.2.weight"]}
    says = "of a program on torch, but this run has def.*\n.*'MODULE:FUNCTION', framework='torch'$"
    with pytest.raises(CheckpointError, match=says) as error:
        tandem.session("ppo", "CartPole-v1", **plain)
    assert "a custom one cannot be moved to another framework" in error.value.expected
    frozen = tandem.session("ppo", "CartPole-v1", freeze=["actor.2.weight"], **given)
    module = frozen.backend.networks["actor"].module
    before = {n: x.detach().clone() for n, x in module.named_parameters()}
    finished(frozen)
    stay = [n for n, x in module.named_parameters() if bool((x == before[n]).all())]
    assert stay == ["2.weight"]


@pytest.mark.parametrize(
    ("more", "error", "says"),
    [
        ({"load": "weights"}, SettingError, "load='weights'"),
        ({"which": "lats"}, CheckpointError, "did you mean 'last'"),
        ({"load": "replay"}, CheckpointError, "which='last'"),
        ({"freeze": ("actor.9",)}, SettingError, "give freeze='actor.2'"),
        ({"freeze": ["bias,q1"]}, SettingError, "actor.1,.*\n.*freeze='actor.1.bias,actor.2.bias,"),
        ({"freeze": ("actor",)}, SettingError, "nothing to train"),
    ],
)
def test_what_cannot_be_is_refused(sac: Path, more: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        tandem.session("sac", "Pendulum-v1", **{**SAC, "start_from": sac, **more})


def test_other_algorithms_networks_are_refused(sac: Path) -> None:
    with pytest.raises(CheckpointError, match="none of this run's networks"):
        tandem.session("dqn", "CartPole-v1", start_from=sac, **{**SAC, "learning_starts": 1})
    with pytest.raises(ResumeError, match="start_from"):
        tandem.session(resume=sac, start_from=sac)


ELSEWHERE = """
import sys
import numpy as np
import tandem
import pytest
from tests.runs.test_start import NORMAL, SAC, begun, weights

sac, given = sys.argv[1], {**SAC, "framework": "jax"}
run = begun("sac", "Pendulum-v1", start_from=sac, **given)
source = begun(resume=sac)
assert all(np.array_equal(x, weights(source)[n]) for n, x in weights(run).items())
with pytest.raises(tandem.errors.CheckpointError, match="framework='torch'"):
    tandem.session("sac", "Pendulum-v1", start_from=sac, load="optimizer", **given)
frozen = tandem.session("sac", "Pendulum-v1", freeze=("actor.1", "q1"), **given)
before = weights(frozen)
list(frozen)
stay = {n for n, x in weights(frozen).items() if np.array_equal(before[n], x) and "target" not in n}
assert stay == {n for n in before if n.startswith(("actor/1/", "q1/"))}, stay

given = {"steps": 512, "envs": 16, "rollout": 16, "hidden": (8,), **NORMAL, "plots": False}
given |= {"vectorization": "compiled", "eval_episodes": 1, "final_episodes": 1}
out = sac + "-compiled"
first = tandem.session("ppo", "tandem/CartPole-v1", out=out, **given)
list(first)
run = tandem.session("ppo", "tandem/CartPole-v1", start_from=out, which="last", **given)
assert run.fingerprint() == first.fingerprint()
counts = {n: float(x) for n, x in run.loop.statistics().items() if n.endswith("count")}
assert len(counts) == 2 and set(counts.values()) == {512.0}, counts
list(run)
plain = {**given, "vectorization": "auto", "framework": "jax"}
host = begun("ppo", "tandem/CartPole-v1", start_from=out, **plain)
assert host.loop.statistics()["observation//count"] > 0
"""


@pytest.mark.slow
def test_on_jax_from_torch_and_compiled(sac: Path, tmp_path: Path) -> None:
    program = tmp_path / "elsewhere.py"
    program.write_text(ELSEWHERE)
    run_python(program, str(sac), engine="jax")
