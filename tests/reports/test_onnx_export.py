"""Exported agents give what the agents give: every layer, every action, and the directions."""

import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import tandem
from tandem import algorithms
from tandem.envs.team import Team
from tandem.errors import CheckpointError, EngineError, NetworkError, RunFolderError
from tandem.learning.collect.trained_agent import Agent
from tandem.learning.seeds import Generators
from tandem.networks import onnx
from tandem.networks import plan as layers
from tandem.networks.plan import Cast, Dense, Twin, init
from tandem.reports.onnx_export import to_numpy, to_onnx
from tandem.spaces import Leaf
from tandem.testing import fakes, team_games
from tests.helpers import run_python

BOX = Leaf("box", (3,), "float32", (), (-np.inf,) * 3, (np.inf,) * 3)
IMAGE = Leaf("box", (40, 36, 2), "uint8", (), (0.0,) * 2880, (255.0,) * 2880)
FIRST = replace(IMAGE, shape=(2, 40, 36))
SYMBOL = Leaf("discrete", (), "int64", (4,), start=2)
SYMBOLS = Leaf("multidiscrete", (2,), "int64", (3, 2))
BITS = Leaf("multibinary", (5,), "int8")
CHOICE = Leaf("discrete", (), "int64", (3,))
ONE_TO_THREE = Leaf("discrete", (), "int64", (3,), start=1)
ARM = Leaf("box", (2,), "float32", (), (-1.0, -3.0), (1.0, 0.5))

MASKED = {"obs": BOX, "action_mask": replace(BITS, shape=(3,))}
OF_FIVE = {"obs": BOX, "action_mask": BITS}
SOME, SOMES = replace(CHOICE, masked=True), replace(SYMBOLS, masked=True)


def agent(algorithm: str, observation: Any, action: Any, **settings: Any) -> Agent:
    """An untrained one with unequal weights (biases and statistics begin as zeros and ones)."""
    chosen = algorithms.get(algorithm).Settings(hidden=(8,), **settings)
    kind = algorithms.get(algorithm, action)
    roles = kind.roles(observation, action, chosen)
    return built(kind, roles[kind.acting[0]].plan, observation, action, chosen)


def built(kind: Any, plan: Any, observation: Any, action: Any, settings: Any = None) -> Agent:
    rng = Generators(3)("weights")
    weights = init(plan, rng).items()
    unequal = {n: w + rng.uniform(0.05, 0.5, w.shape).astype(np.float32) for n, w in weights}
    networks, chosen = {kind.acting[0]: Twin(plan, unequal)}, settings or kind.Settings()
    return Agent(kind, chosen, observation, action, networks, "an agent")


def planned(*plan: Any, observation: Any = BOX) -> Agent:
    return built(algorithms.get("dqn"), plan, observation, CHOICE)


def sampled(made: Agent, rng: np.random.Generator, rows: int) -> dict[str, Any]:
    """Observations by their entries."""
    spec = made.observation if isinstance(made.observation, dict) else {"obs": made.observation}
    return {name: drawn(rng, leaf, rows) for name, leaf in spec.items()}


def observed(made: Agent, obs: dict[str, Any]) -> Any:
    return obs if isinstance(made.observation, dict) else obs["obs"]


@pytest.mark.parametrize(
    "made",
    [
        agent("dqn", BOX, CHOICE),
        agent("dqn", BOX, ONE_TO_THREE, dueling=True),
        agent("dqn", BOX, CHOICE, values="quantile", quantiles=5),
        agent("dqn", BOX, CHOICE, values="categorical", atoms=7, dueling=True),
        agent("dqn", BOX, CHOICE, values="implicit", acting_fractions=4),
        agent("dqn", IMAGE, CHOICE, values="implicit", acting_fractions=3, dueling=True),
        agent("dqn", MASKED, SOME, values="implicit", noisy="factorised"),
        agent("dqn", IMAGE, CHOICE),
        agent("dqn", FIRST, CHOICE),
        agent("sac", {"a": BITS, "b": BOX}, ARM, body="simbav2"),
        agent("dqn", {"a": IMAGE, "b": BOX}, CHOICE, weight_norm=True),
        agent("dqn", SYMBOL, CHOICE),
        agent("dqn", {"a": BOX, "inner/b": SYMBOLS, "c": BITS}, CHOICE),
        agent("ppo", BOX, SYMBOLS, normalize_observations=True),
        agent("ppo", SYMBOLS, ARM),
        agent("ppo", BOX, ARM, log_std=-0.7),
        agent("ppo", BOX, ARM, policy="beta"),
        agent("dqn", MASKED, SOME),
        agent("ppo", OF_FIVE, SOMES),
        agent("ppo", BOX, ARM, shared=True),
        agent("a2c", OF_FIVE, SOMES, shared=True),
        agent("a3c", MASKED, SOME),
        agent("sac", BOX, ARM),
        agent("ddpg", BOX, ARM),  # its network ends in tanh already
        agent("a3c", BOX, ARM, shared=False),
        agent("acer", {"a": BOX, "b": BITS}, CHOICE, shared=False),
        agent("nstep_q", BOX, CHOICE, dueling=True),
        agent("pqn", {"a": BOX, "b": BITS}, CHOICE),
        agent("pqn", IMAGE, CHOICE),
        *(agent(name, BOX, ARM, action_noise="gsde") for name in ("ppo", "sac", "td3")),
        agent("ppo", BOX, BITS),
        agent("ppo", BOX, replace(ARM, own="float64")),
        agent("sac", BOX, replace(ARM, own="float16")),
        agent("dqn", BOX, replace(ONE_TO_THREE, own="int32")),
    ],
    ids=lambda a: f"{a.algorithm.__name__} {type(a.observation).__name__}",
)
def test_onnx_gives_what_the_agent_gives(made, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    onnx_package = pytest.importorskip("onnx")
    done = to_onnx(made, tmp_path / "agent.onnx")
    assert done.verified
    model = onnx_package.load(done.file)
    onnx_package.checker.check_model(model, full_check=True)
    obs = sampled(made, np.random.default_rng(5), 7)  # other rows, another number of them
    found, given = onnx.run(model, obs), observed(made, obs)
    scope: dict[str, Any] = {}
    exec(done.how, scope)  # which takes what an environment gives, as float64
    loose = {n: x.astype(np.float64) if x.dtype == np.float32 else x for n, x in obs.items()}
    for name, value in zip(("action", "output"), scope["act"](observed(made, loose)), strict=True):
        np.testing.assert_array_equal(value, found[name])
    np.testing.assert_allclose(found["output"], said(made, given), rtol=1e-4, atol=1e-5)
    near, expected = 1e-3 if made.action.own == "float16" else 1e-4, made.act(given)
    np.testing.assert_allclose(found["action"], expected, rtol=near, atol=near / 10)
    assert (found["action"].dtype, found["action"].shape) == (expected.dtype, expected.shape)


@pytest.mark.parametrize(
    "made",
    [
        agent("ppo", BOX, ARM, recurrent=4, normalize_observations=True),
        agent("impala", MASKED, SOME, recurrent=4, memory="lstm"),
        agent("nstep_q", IMAGE, CHOICE, recurrent=5, memory="lstm", dueling=True),
    ],
    ids=lambda a: a.algorithm.__name__,
)
def test_onnx_remembers_what_the_agent_remembers(made, tmp_path) -> None:
    """Over some steps, as the file's page says it is done."""
    pytest.importorskip("onnxruntime")
    done = to_onnx(made, tmp_path / "agent.onnx")
    assert done.verified
    scope: dict[str, Any] = {}
    exec(done.how, scope)
    rng, state, ours = np.random.default_rng(5), np.repeat(scope["state"], 7, 0), None
    for _ in range(4):
        obs = sampled(made, rng, 7)
        if "action_mask" in obs:
            obs["action_mask"][:, 0] = 1
        action, _, state = scope["step"](observed(made, obs), state)
        expected, ours = made.predict(observed(made, obs), ours, deterministic=True)
        np.testing.assert_allclose(action, expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(state, ours, rtol=1e-4, atol=1e-5)
    assert np.abs(state).max() > 0.01


def said(made: Agent, obs: Any) -> Any:
    """What an agent's network puts out."""
    policy = made.algorithm.distribution(made.settings, made.action)
    return next(iter(made.networks.values()))(policy.network_input(obs))


def drawn(rng: np.random.Generator, leaf: Leaf, rows: int) -> Any:
    shape = (rows, *leaf.shape)
    if leaf.sizes:
        return rng.integers(leaf.sizes if leaf.shape else leaf.sizes[0], size=shape) + leaf.start
    if leaf.dtype == "float32":
        return rng.normal(0, 3, shape).astype(np.float32)
    return rng.integers(0, 2 if leaf.kind == "multibinary" else 256, shape).astype(leaf.dtype)


def test_every_activation_is_written(tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    for activation in layers.ACTIVATIONS:
        inner = layers.LayerNorm(6), layers.Activation(activation), layers.Flatten()
        made = planned(Cast(3), Dense(3, 6, activation), *inner, Dense(6, 3))
        assert to_onnx(made, tmp_path / "a.onnx").verified


@pytest.mark.parametrize(
    "error, says, written",
    [
        (CheckpointError, "differs from", lambda g, w, x: g("Gemm", x, g.constant(w["kernel"]))),
        (NetworkError, r"cannot run(.|\n)*use tandem.load", lambda g, w, x: g("Densely", x)),
    ],
    ids=["without a bias", "no operation of ONNX"],
)
def test_a_wrong_graph_is_found_and_named(error, says, written, tmp_path, monkeypatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setitem(onnx.LAYERS, Dense, lambda g, layer, w, x: written(g, w, x))
    with pytest.raises(error, match=says):
        to_onnx(agent("dqn", BOX, CHOICE), tmp_path / "a.onnx")
    assert not (tmp_path / "a.onnx").exists()


@dataclass(frozen=True)
class Strange(layers.Layer):
    def forward(self, w: Any, x: Any) -> Any:
        return x


@pytest.mark.parametrize("entry, units", [("action", 0), ("output", 0), ("state", 4)])
def test_an_entry_with_an_outputs_name_is_refused(entry, units, tmp_path) -> None:
    made = agent("pqn", {"obs": BOX, entry: BITS}, CHOICE, recurrent=units)
    with pytest.raises(NetworkError, match=f"an entry '{entry}'"):
        to_onnx(made, tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())
    to_numpy(made, tmp_path / "a.npz")


def test_a_network_that_nobody_can_write_is_refused(tmp_path, monkeypatch) -> None:
    with pytest.raises(NetworkError, match="the layer Strange cannot be exported to ONNX"):
        to_onnx(planned(Cast(3), Strange(), Dense(3, 3)), tmp_path / "a.onnx")
    made = agent("dqn", BOX, CHOICE)
    made.networks["q"] = lambda x: x
    for write in (to_numpy, to_onnx):
        with pytest.raises(NetworkError, match="a function of unknown layers"):
            write(made, tmp_path / "a.file")
    with pytest.raises(NetworkError, match=r"a PyTorch module or a Keras model"):
        to_onnx(made, tmp_path / "a.onnx")
    given = {"steps": 20, "hidden": (4,), "framework": "torch", "eval_episodes": 0}
    made = tandem.session("vdn", lambda: Team(team_games.TwoStep()), **given).agent()
    for write in (to_numpy, to_onnx):
        with pytest.raises(NetworkError, match="is a team"):
            write(made, tmp_path / "file")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(EngineError, match=r"pip install 'tandem-rl\[onnx\]'"):
        to_onnx(agent("dqn", BOX, CHOICE), tmp_path / "a.onnx")


BODIES = """
import torch
from torch import nn


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(3, 8), nn.BatchNorm1d(8)
        self.memory = nn.LSTM(8, 6, batch_first=True)

    def forward(self, x):
        h = torch.relu(self.norm(self.first(x)))
        return self.memory(torch.cat([h, h], -1).reshape(-1, 2, 8))[0][:, -1]

class Odd(nn.Module):
    def forward(self, x):
        return torch.special.i0e(x)

body, odd = (lambda space: Body()), (lambda space: Odd())
"""


def test_fractions_beside_entries_enter_a_network_that_torch_writes(tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    from torch import nn

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 5)

        def forward(self, x: Any) -> Any:
            return self.inner(x["a"]).relu() + x["bits"].float()

    observation = {"a": BOX, "bits": BITS}
    made = fakes.build("dqn", "torch", CHOICE, observation, lambda space: Sum(), values="implicit")
    algorithm, _ = made
    q = algorithm.q.frozen(algorithm.q.read())
    kind, settings = type(algorithm), algorithm.settings
    made = Agent(kind, settings, observation, CHOICE, {"q": q}, "an agent of entries")
    assert to_onnx(made, tmp_path / "agent.onnx").verified


@pytest.mark.slow
def test_unknown_layers_are_written_by_torch_and_compared(tmp_path, monkeypatch, capsys) -> None:
    pytest.importorskip("onnxruntime")
    from tandem.cli import main

    (tmp_path / "bodies_of_mine.py").write_text(BODIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    bodies = __import__("bodies_of_mine")
    short: dict[str, Any] = {"framework": "torch", "steps": 60, "learning_starts": 20}
    short |= {"batch_size": 8, "eval_every": 0, "final_episodes": 1, "plots": False}
    short["network"] = bodies.body
    made = tandem.train("sac", "Pendulum-v1", out=tmp_path / "run", **short).agent
    assert tandem.export(made, tmp_path / "live.onnx").verified
    with pytest.raises(NetworkError, match="only its framework can run"):
        tandem.export(made, tmp_path / "live.npz")
    assert tandem.export(tmp_path / "run", tmp_path / "a.onnx", network=bodies.body).verified
    monkeypatch.chdir(tmp_path)
    where = ["--network", "bodies_of_mine:body", "--out", str(tmp_path / "b.onnx")]
    assert main(["export", str(tmp_path / "run"), "--to", "onnx", *where]) == 0
    assert "actions equal the agent's on 200 random observations" in capsys.readouterr().out
    assert main(["export", str(tmp_path / "run"), "--to", "onnx", "--network", "bodies:no"]) == 2
    assert "MODULE:FUNCTION" in capsys.readouterr().err
    odd = tandem.train("sac", "Pendulum-v1", **short | {"network": bodies.odd}).agent
    with pytest.raises(NetworkError, match="torch.onnx.export cannot export the network"):
        tandem.export(odd, tmp_path / "odd.onnx")
    with pytest.raises(tandem.errors.UnknownNameError, match="format"):
        tandem.export(made, tmp_path / "live.pb")
    with pytest.raises(tandem.errors.SettingError, match="live agent"):
        tandem.export(made, tmp_path / "live.onnx", network=bodies.body)


KERAS = """
    import contextlib, io, json, sys
    import keras
    from keras import layers
    import tandem
    from tandem.cli import main
    from tests.collect.own_networks import KerasSine, body
    from tests.networks.chains import DIGITS, SHORT, Numbers, box

    def both(space):
        first = [layers.Embedding(5, 3), layers.Flatten(), KerasSine(8)]
        return keras.Sequential([*first, layers.BatchNormalization(), layers.Dropout(0.1)])

    framework, folder = sys.argv[1:]
    for name, space, network in (("numbers", box(4), body), ("digits", DIGITS, both)):
        given = {"framework": framework, "network": network, "out": f"{folder}/{name}", **SHORT}
        run = tandem.session("dqn", lambda space=space: Numbers(space), **given)
        list(run.events(40))
        agent, then = run.agent(), run.fingerprint()
        for _ in run.events():
            pass  # the model that it shares learns on
        now = run.fingerprint()
        done = tandem.export(agent, f"{folder}/{name}.onnx")
        assert run.backend.networks["q"].plan is None
        print(json.dumps([done.verified, now != then, run.fingerprint() == now]))
    where = ["--network", "tests.collect.own_networks:body", "--out", f"{folder}/b.onnx"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main(["export", f"{folder}/numbers", "--which", "last", "--to", "onnx", *where]) == 0
    assert "actions equal the agent's on 200 random observations" in said.getvalue()
"""


@pytest.mark.parametrize(
    "engine, package",
    [
        pytest.param("keras-torch", "onnxruntime", marks=pytest.mark.slow),
        pytest.param("tensorflow", "tf2onnx", marks=pytest.mark.thorough),
        pytest.param("jax", "jax2onnx", marks=pytest.mark.thorough),
    ],
)
def test_keras_writes_layers_that_are_not_known(engine, package, tmp_path) -> None:
    if not all(find_spec(name) for name in ("onnxruntime", package)):
        pytest.skip(f"needs onnxruntime and {package}")
    rows = run_python(KERAS, engine, str(tmp_path), engine=engine)
    assert rows == [[True, True, True]] * 2
    assert {p.name for p in tmp_path.glob("*.onnx")} == {"numbers.onnx", "digits.onnx", "b.onnx"}


TRAINED = """
    import sys, tandem
    from tests.collect.own_networks import body
    from tests.networks.chains import SHORT, Numbers, box
    given = {"framework": sys.argv[1], "out": sys.argv[2], "network": body, **SHORT}
    tandem.train("dqn", lambda: Numbers(box(4)), **given)
"""
LOADED = """
    import json, os, sys
    import tandem
    run, folder = sys.argv[1:]
    os.chdir(folder)
    tandem.load(run, network="bodies:body")
    import bodies
    print(json.dumps(bodies.engine))
"""


@pytest.mark.slow
def test_the_module_of_a_network_is_imported_on_the_engine_of_the_run(tmp_path) -> None:
    """Though the environment names another."""
    run_python(TRAINED, "jax", str(tmp_path / "run"), engine="jax")
    imports = "import keras\nfrom tests.collect.own_networks import body"
    source = f"{imports}\nengine = keras.backend.backend()"
    (tmp_path / "bodies.py").write_text(source)
    paths = (str(tmp_path / "run"), str(tmp_path))
    rows = run_python(LOADED, *paths, engine="tensorflow", forked=False)
    assert rows == ["jax"]


REFUSED = """
    import importlib.util, json, sys
    import keras, tandem
    from tests.collect.own_networks import body
    from tests.networks.chains import SHORT, Numbers, box

    given = {"framework": "tensorflow", "network": body, **SHORT}
    agent = tandem.session("dqn", lambda: Numbers(box(4)), **given).agent()
    found = importlib.util.find_spec

    def broken(*given, **more):
        raise ValueError("no such operation")

    def refused():
        try:
            tandem.export(agent, sys.argv[1])
        except tandem.errors.TandemError as error:
            print(json.dumps([type(error).__name__, str(error)]))

    sys.modules["tf2onnx"] = None
    importlib.util.find_spec = lambda name: None if name == "tf2onnx" else found(name)
    refused()
    importlib.util.find_spec = lambda name: True
    keras.Model.export = broken
    refused()
"""


@pytest.mark.slow
def test_a_missing_exporter_and_one_that_fails_are_named(tmp_path) -> None:
    missing, fails = run_python(REFUSED, str(tmp_path / "a.onnx"), engine="tensorflow")
    assert missing[0] == "EngineError" and "tf2onnx is not installed" in missing[1]
    assert "pip install 'tandem-rl[onnx]'" in missing[1] and fails[0] == "NetworkError"
    assert "with tf2onnx: no such operation" in fails[1] and "use tandem.load" in fails[1]
    assert not list(tmp_path.iterdir())


ONE_HOT = {"a": (layers.OneHot((4,), 2),)}


@pytest.mark.parametrize(
    "made",
    [
        agent("ppo", BOX, ARM, log_std=-0.7, normalize_observations=True),
        agent("dqn", BOX, CHOICE),
        agent("dqn", BOX, CHOICE, dueling=True),
        agent("dqn", BOX, CHOICE, values="implicit"),
        agent("dqn", IMAGE, CHOICE),
        agent("acer", BOX, CHOICE, shared=False),
        agent("nstep_q", BOX, CHOICE, dueling=True),
        planned(Cast(3), layers.Normalize(3), Dense(3, 3, "silu")),
        planned(layers.Branches(ONE_HOT), Dense(4, 3), observation={"a": SYMBOL}),
        planned(Cast(3), layers.Dueling((Dense(3, 1),), (Dense(3, 3),))),
    ],
)
def test_the_directions_of_an_npz_rebuild_the_network(made, tmp_path) -> None:
    done = to_numpy(made, tmp_path / "agent.npz")
    scope: dict[str, Any] = {}
    exec(done.how, scope)
    obs = observed(made, sampled(made, np.random.default_rng(6), 5))
    policy = made.algorithm.distribution(made.settings, made.action)
    found = scope["network"](policy.network_input(obs))
    np.testing.assert_allclose(found, said(made, obs), rtol=1e-5, atol=1e-6)
    assert "import torch" not in done.how and len(done.how.splitlines()) < 30


@pytest.mark.parametrize("write, name", [(to_numpy, "a.npz"), (to_onnx, "a.onnx")])
def test_a_place_that_cannot_be_written_is_named(write, name, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match="cannot write"):
        write(agent("dqn", BOX, CHOICE), tmp_path / "file" / name)
