"""Runs whose updates are divided among devices, from the beginning to a verified end."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tandem.learning import config, devices
from tandem.learning.build import beside
from tandem.learning.config import Options
from tests.helpers import COMPILED_LIGHTLY, run_python

RUNS = """
    import contextlib, io, json, pathlib, sys
    import numpy as np
    import tandem
    from tandem.cli import main
    from tandem.errors import ResumeError
    from tandem.runs import verification
    from tandem.runs.folder import read_run

    out, engine = pathlib.Path(sys.argv[1]), sys.argv[2]
    given = {"steps": 304, "learning_starts": 60, "batch_size": 32, "hidden": (16,),
             "prioritized": True, "learning_rate": 1e-3, "target_every": 50, "train_every": 8,
             "updates_per_call": 4, "eval_every": 150, "eval_episodes": 1, "final_episodes": 1,
             "log_every": 50, "plots": False, "tensorboard": False}
    flags = [word for name, value in given.items() for flag in [name.replace("_", "-")]
             for word in ([f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool)
                          else [f"--{flag}", 16 if flag == "hidden" else value])]

    def command(*words):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = main([*map(str, words)])
        return code, said.getvalue()

    def prints(run):
        return read_run(out / run).table["fingerprint"]

    def far(run, other):
        one, two = ({n: x for n, x in tandem.load(out / r, "last").networks["q"].weights.items()}
                    for r in (run, other))
        return max(float(np.abs(one[n] - two[n]).max() / np.abs(two[n]).max()) for n in one)

    code, said = command("train", "dqn", "CartPole-v1", "--framework", engine, "--device", "cpu",
                         "--devices", 2, "--out", out / "two", *flags)
    tandem.train("dqn", "CartPole-v1", framework=engine, devices=2, out=out / "parts", stop_at=160,
                 **given)
    tandem.train("dqn", "CartPole-v1", framework=engine, devices=2, out=out / "moved", stop_at=160,
                 **given)
    tandem.train("dqn", "CartPole-v1", framework=engine, out=out / "one", **given)
    tandem.train(resume=out / "parts")
    moved = tandem.train(resume=out / "moved", devices=1)
    again = command("verify", out / "two", "--quiet")
    try:
        verification.verify(out / "moved")
        refused = ""
    except ResumeError as error:
        refused = str(error)
    kept = json.loads((out / "two" / "config.json").read_text())["options"]["devices"]
    print(json.dumps(dict(
        code=code, said=said, rows=len(prints("two")), config=kept,
        resumed=prints("parts") == prints("two"), verified=again,
        as_one=far("two", "one"), same_bits=prints("two") == prints("one"),
        moved=far("moved", "two"), notes=moved.notes, refused=refused,
        before=json.loads((out / "moved" / "config.json").read_text())["inexact"],
    )))
"""


thorough = pytest.mark.thorough


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "engine",
    ["jax", "torch", *(pytest.param(e, marks=thorough) for e in ("tensorflow", "keras-torch"))],
)
def test_runs_on_two_devices(engine, tmp_path) -> None:
    given = {"engine": engine, "timeout": 280, "env": COMPILED_LIGHTLY}
    (found,) = run_python(RUNS, str(tmp_path), engine, **given)
    assert found["code"] == 0 and found["config"] == 2 and found["rows"] >= 5
    (line,) = [x for x in found["said"].splitlines() if x.startswith("devices=2:")]
    assert "are quicker on one" in line and "docs/advanced/devices.md" in line
    assert found["resumed"], "resumed in the middle, the run was another"
    assert found["verified"] == [0, f"equal: {found['rows']} rows, to step 304\n"]
    assert not found["same_bits"], "two devices add in another order than one: did both run?"
    assert 0 < found["as_one"] < 1e-4 and found["moved"] < 1e-4
    assert found["before"] == ["devices=1 after devices=2"]
    assert any(n.startswith("resumed with devices=1 after devices=2") for n in found["notes"])
    assert "was resumed on devices=1 after devices=2" in found["refused"]
    assert "verify one that was not resumed on others" in found["refused"]


def test_large_networks_are_told_nothing() -> None:
    def backend(count: int, weights: int) -> Any:
        network = SimpleNamespace(read=lambda: {"kernel": np.empty((weights, 1))})
        return SimpleNamespace(devices=count, networks={"q": network})

    assert "networks of 4,610 weights" in devices.purpose(backend(2, 4_610))
    assert devices.purpose(backend(1, 4_610)) == devices.purpose(backend(2, 10**6)) == ""


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_processes_beside_the_run_have_one_device(device) -> None:
    conf = config.Config("dqn", "", "torch", device, 0, None, replace(Options(), devices=2))
    assert beside(conf).options.devices == 1


@pytest.mark.slow
def test_jax_has_as_many_devices_where_its_own_environments_started_it() -> None:
    # parts of the processor are made as JAX starts, which is for the look at the spaces
    code = """
        from tandem import trainer
        given = {"framework": "jax", "device": "cpu", "devices": 2, "envs": 2}
        print(trainer.session("a2c", "tandem/CartPole-v1", **given).backend.devices)
        """
    assert run_python(code) == [2]
