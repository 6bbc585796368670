"""Custom networks: chains of a plan's layers need no framework to act, all others do; critics of
observation and action that stand on a custom body; custom networks and compilers."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

import tandem
from tandem import algorithms
from tandem.envs.team import Team
from tandem.errors import NetworkError, SettingError
from tandem.networks import torch_bodies
from tandem.networks import torch_layers as modules
from tandem.networks.defaults import HIDDEN, Role, WithAction, example, mlp
from tandem.networks.plan import Dense, Twin
from tandem.spaces import Leaf
from tandem.testing.environments import Game
from tandem.testing.team_games import TwoStep
from tandem.types import tree_map
from tests.advice.net import follows
from tests.helpers import COMPILED_LIGHTLY, run_python
from tests.networks import chains, custom_critics
from tests.networks.chains import LEARN, Lights
from tests.networks.custom_critics import ALGORITHMS, FORMS, SHORT, score
from tests.test_trainer import TINY_DQN

BOTH = "with_a_plan without_a_plan"
WHOLE = [pytest.param(e, BOTH, marks=pytest.mark.thorough) for e in ("keras-torch", "tensorflow")]
SOLVED = -0.1  # of 0; a critic that is linear in the action leads to less than -0.3


class Reversed(nn.Sequential):
    def forward(self, x):
        for part in reversed(self):
            x = part(x)
        return x


def hooked(module: nn.Module) -> nn.Module:
    module.register_forward_hook(lambda m, i, out: 2 * out)
    return module


def replaced() -> nn.Module:
    module = nn.Linear(4, 2)
    module.forward = torch.tanh
    return nn.Sequential(module)


def test_a_chain_of_a_plans_layers_in_torch_has_a_twin() -> None:
    activations = [kind() for kind in modules.ACTIVATIONS.values()]
    norm = nn.LayerNorm(5, eps=0.1)
    module = nn.Sequential(nn.Linear(3, 5), nn.Sequential(*activations, norm), nn.Flatten())
    plan = torch_bodies.recognize(module)
    assert plan is not None
    weights = modules.read(plan, chain := nn.Sequential(*torch_bodies.chain(module)))
    x = np.random.default_rng(0).normal(size=(6, 2, 3)).astype(np.float32)
    expected = module(torch.as_tensor(x)).detach().numpy()
    np.testing.assert_allclose(Twin(plan, weights)(x), expected, rtol=1e-5, atol=1e-5)
    modules.write(plan, chain, {n: w + np.float32(1) for n, w in weights.items()})
    changed = modules.read(plan, chain)
    assert all(np.allclose(changed[n], w + 1, atol=1e-6) for n, w in weights.items())


def of_layers(*layers: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(4, 8), *layers)


OTHERS = {
    "no bias": lambda: nn.Linear(4, 8, bias=False),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 2)),
    "a subclass": lambda: Reversed(nn.Linear(4, 4), nn.Tanh()),
    "a hook": lambda: nn.Sequential(hooked(nn.Linear(4, 2))),
    "a hook on a chain": lambda: nn.Sequential(hooked(of_layers()())),
    "another forward": replaced,
    "nothing learned": nn.Tanh,
    "batch norm": of_layers(nn.BatchNorm1d(8)),
    "layer norm without weights": of_layers(nn.LayerNorm(8, elementwise_affine=False)),
    "layer norm of two axes": of_layers(nn.LayerNorm((6, 8))),
    "another gelu": of_layers(nn.GELU("tanh")),
    "another elu": of_layers(nn.ELU(0.5)),
    "a softplus that is linear early": of_layers(nn.Softplus(threshold=0.5)),
    "flat but for an axis": of_layers(nn.Flatten(2)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_torch_module_has_no_plan(name) -> None:
    assert torch_bodies.recognize(OTHERS[name]()) is None


@pytest.mark.slow
def test_chains_of_a_plans_layers_in_keras_have_twins_and_others_have_none() -> None:
    code = """
    import json

    import keras
    import numpy as np
    from keras import layers
    from keras.layers import Activation, Conv2D, Dense, Flatten, LayerNormalization, Rescaling

    from tandem.networks import keras_layers as models
    from tandem.networks.keras_bodies import recognize
    from tandem.networks.plan import Twin
    from tests.networks.chains import DIGITS, box


    def double(x):
        return 2 * x


    double.__name__ = "tanh"
    vector, image, lora = box(4), box(9, 7, 2, dtype="uint8"), Dense(8)
    first, deep, twice = keras.Input((4,)), Dense(4), Dense(4)
    inner = keras.Model(first, layers.Identity()(layers.ReLU()(Activation("gelu")(first))))
    cases = {
        "vectors": (vector, [LayerNormalization(), Dense(4, "tanh"), inner, Dense(3, "elu")]),
        "images": (image, [Rescaling(1 / 255), Conv2D(4, 3, 2, activation="relu"), Flatten()]),
        "digits": (DIGITS, [keras.Input((3,)), Dense(4)]),
        "no bias": (vector, [Dense(8, use_bias=False)]),
        "double precision": (vector, [Dense(8, dtype="float64")]),
        "another function of that name": (vector, [Dense(8, activation=double)]),
        "another activation": (vector, [Dense(8, "leaky_relu")]),
        "a capped relu": (vector, [Dense(8), layers.ReLU(6)]),
        "another elu": (vector, [Dense(8), layers.ELU(0.5)]),
        "layer norm without a bias": (vector, [Dense(8), LayerNormalization(center=False)]),
        "batch norm": (vector, [Dense(8), layers.BatchNormalization()]),
        "nothing learned": (vector, [Activation("tanh")]),
        "other scales": (vector, [Rescaling([1.0, 2.0, 3.0, 4.0]), Dense(8)]),
        "padded images": (image, [Rescaling(1 / 255), Conv2D(4, 3, padding="same"), Flatten()]),
        "bytes": (image, [Flatten(), Dense(3)]),
        "low rank": (vector, [lora]),
        "around": (vector, keras.Model(first, first + deep(first))),
        "twice": (vector, keras.Model(first, twice(twice(first)))),
    }
    for name, (leaf, model) in cases.items():
        model = keras.Sequential(model) if isinstance(model, list) else model
        x = np.random.default_rng(0).integers(0, 3, (5, *leaf.shape)).astype(leaf.dtype)
        expected = keras.ops.convert_to_numpy(model(keras.ops.convert_to_tensor(x)))
        if name == "low rank":
            lora.enable_lora(2)
        found = recognize(model, leaf)
        if found is not None:
            out = Twin(found[0], models.read(found[1]))(x)
            np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5, err_msg=name)
            print(json.dumps(name))
    """
    assert run_python(code, engine="keras-torch") == ["vectors", "images", "digits"]


@pytest.mark.slow
@pytest.mark.parametrize("made", [chains.with_a_plan, chains.without_a_plan])
def test_runs_with_chains_in_torch(made, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    made("torch", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("engine, made", [("jax", BOTH), ("tensorflow", BOTH[12:]), *WHOLE])
def test_runs_with_chains_in_keras(engine, made, tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    given = [str(tmp_path), *made.split()]
    run_python(Path(chains.__file__), engine, *given, engine=engine, timeout=290)


@pytest.mark.slow
def test_workers_act_through_the_framework_where_there_is_no_plan() -> None:
    made = tandem.train("dqn", Lights, network=chains.other, framework="torch", workers=2, **LEARN)
    assert made.evaluation.mean == 6.0


# between them every form; that a form works with every algorithm is the thorough test's
@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "form"),
    [("sac", "body"), ("td3", "pair"), ("ddpg", "body"), ("tqc", "roles"), ("crossq", "pair")],
)
def test_a_custom_network_solves_a_game_whose_best_action_depends_on_the_state(algorithm, form):
    assert score(algorithm, "torch", form) > SOLVED


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow", "keras-torch"])
def test_every_form_of_network_solves_it_on_every_framework(framework, algorithm):
    if framework == "torch":
        rows = [(algorithm, form, score(algorithm, "torch", form)) for form in FORMS]
    else:
        script = Path(custom_critics.__file__)
        rows = run_python(script, framework, algorithm, engine=framework, timeout=290)
    assert [form for _, form, _ in rows] == list(FORMS)
    assert all(mean > SOLVED for *_, mean in rows), rows


class Observing(Game):
    length = 5

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.observation_space = space
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def observe(self) -> Any:
        return self.observation_space.sample()

    def play(self, action: Any) -> tuple[float, bool]:
        return 0.0, False


NUMBERS = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
SPACES = {
    "numbers": NUMBERS,
    "image": gymnasium.spaces.Box(0, 255, (3, 36, 36), np.uint8),
    "dict": gymnasium.spaces.Dict({"obs": NUMBERS, "action": NUMBERS}),
}


class Body(torch.nn.Module):
    def __init__(self, images: bool) -> None:
        super().__init__()
        self.images = images
        self.layer = torch.nn.Conv2d(3, 4, 8, 4) if images else torch.nn.Linear(3, 7)

    def forward(self, x: Any) -> Any:
        if self.images:
            return self.layer(x / 255.0).flatten(1)
        return self.layer(x["obs"] - x["action"])


def body(space: Any) -> Any:
    return torch.nn.Linear(3, 7) if space == NUMBERS else Body(space == SPACES["image"])


@pytest.mark.parametrize(
    ("algorithm", "space", "settings"),
    [
        ("sac", "numbers", {}),
        ("sac", "image", {}),
        ("sac", "dict", {}),
        ("sac", "numbers", {"values": "categorical", "atoms": 5}),
        ("sac", "numbers", {"critic_hidden": (16, 9)}),
        ("sac", "numbers", {"layer_norm": True}),
        ("sac", "numbers", {"weight_norm": True}),
        ("sac", "numbers", {"body": "simba", "hidden": (8,)}),
        ("sac", "numbers", {"body": "simbav2", "hidden": (8,)}),
        ("sac", "numbers", {"hidden": ()}),
        ("sac", "dict", {"recurrent": 6}),
        ("td3", "image", {}),
        ("ddpg", "dict", {}),
        ("tqc", "dict", {}),
        ("crossq", "image", {}),
        ("crossq", "numbers", {"weight_projection": True}),
    ],
)
def test_values_are_not_linear_in_the_action(algorithm, space, settings):
    given = SHORT | {"hidden": (8, 9), "buffer_size": 1000, "network": body} | settings
    env = partial(Observing, SPACES[space])
    session = tandem.session(algorithm, env, framework="torch", **given)
    name = "q" if algorithm == "ddpg" else "q1"
    module = session.backend.networks[name].module.double()
    roles = session.algorithm.roles(session.observation, session.action, session.config.settings)
    x = tree_map(lambda v: torch.as_tensor(v).double(), example(roles[name].inputs, 3))
    x["action"] = torch.tensor([[-0.8, 0.7], [0.1, -0.1], [1.0, -0.9]]).double()
    low, middle, high = module(x)[:, 0].tolist()
    assert (low + high) / 2 != pytest.approx(middle, rel=1e-6, abs=1e-9)


def test_an_algorithm_of_a_program_gets_the_hidden_layer_of_its_default_body():
    numbers = Leaf("box", (2,), "float32")
    inputs = WithAction(obs=numbers, action=numbers)
    last = Dense(0, 1)
    role = Role(inputs, mlp(inputs, (8, 5), "relu"), (last,), "critic")
    assert role.head_on_body == (Dense(0, 5, "relu"), Dense(5, 1))
    bare = Role(inputs, mlp(inputs, (), "relu"), (last,), "critic")
    assert bare.head_on_body == (Dense(0, HIDDEN, "relu"), Dense(HIDDEN, 1))
    seen = {"obs": numbers, "action": numbers}  # all of which the body receives
    assert Role(seen, mlp(seen, (8,), "relu"), (last,)).head_on_body == (last,)


def test_units_of_projected_layers_keep_length_1_on_a_custom_body():
    more = {"weight_projection": True, "steps": 210}
    session = custom_critics.session("crossq", "torch", "body", **more)
    list(session)
    (kernel,) = session.backend.networks["q1"].unit
    np.testing.assert_allclose(np.linalg.norm(kernel.detach().numpy(), axis=0), 1.0, rtol=1e-5)


def test_an_old_run_acts_and_is_not_resumed_with_another_critic(tmp_path, monkeypatch):
    with monkeypatch.context() as before:  # as it was until version 0.1
        before.setattr(Role, "head_on_body", property(lambda role: role.head))
        old = custom_critics.session("sac", "torch", "body", steps=210, out=tmp_path / "run")
        list(old.events(205))
    agent = tandem.load(tmp_path / "run", which="last")
    obs = np.array([[0.5]], np.float32)
    np.testing.assert_array_equal(agent.act(obs), old.agent().act(obs))
    with follows("networks/users.py:refuse_old_critics") as advice:
        given = {"env": custom_critics.IdentityBox, "network": custom_critics.torch_body}
        tandem.train(resume=tmp_path / "run", **given)
    assert "the critic 'q1' of this run" in str(advice.error)


@pytest.mark.slow
def test_jax_compiles_a_custom_network_for_few_sizes_of_batches():
    code = """
    import json
    import jax, numpy as np, tandem
    from tests.collect.own_networks import body
    from tests.test_trainer import TINY_DQN

    compiled = []
    def heard(event, seconds, **more):
        compiled.extend([event] * event.endswith("backend_compile_duration"))

    result = tandem.train("dqn", "CartPole-v1", framework="jax", network=body, steps=40, **TINY_DQN)
    again = result.agent.networks["q"].__reduce__()
    rows = np.random.default_rng(0).normal(size=(70, 4)).astype(np.float32)
    whole = result.agent.networks["q"](rows)
    jax.monitoring.register_event_duration_secs_listener(heard)
    for network in (result.agent.networks["q"], again[0](*again[1])):
        before = len(compiled)
        for n in range(1, 71):
            np.testing.assert_allclose(network(rows[:n]), whole[:n], rtol=1e-5, atol=1e-6)
        print(json.dumps(len(compiled) - before))
    """
    ours, another = run_python(code, engine="jax", env=COMPILED_LIGHTLY)
    # 1, 2, 4, ... 128, and some of its own for arrays, not 70
    assert 0 < ours <= 10 and 0 < another <= 10


class Branching(torch.nn.Module):
    def __init__(self, space: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(space.shape[0], 8)

    def forward(self, x: Any) -> Any:
        return self.layer(x) if float(x.sum()) > 0 else -self.layer(x)


@pytest.mark.slow
def test_what_torch_cannot_compile_is_answered_with_the_setting():
    def train(**given: Any) -> None:
        more = {"steps": 40, "network": Branching, "framework": "torch"} | TINY_DQN | given
        tandem.train("dqn", "CartPole-v1", **more)

    with follows("backends/torch_calls.py:Calls.refuse") as advice:
        train(compile="yes")
    assert len(str(advice.error).splitlines()) == 2
    (told,) = advice.assigned()
    train(**told)


def lazy(space: Any) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.LazyLinear(8), torch.nn.ReLU())


def test_lazy_layers_take_their_sizes_from_the_first_look() -> None:
    for algorithm, env in (("sac", partial(Observing, NUMBERS)), ("dqn", "CartPole-v1")):
        run = tandem.session(algorithm, env, framework="torch", steps=10, network=lazy, out=None)
        assert all(n.plan for n in run.agent().networks.values())  # acts in NumPy


def test_a_note_says_that_a_dict_of_networks_serves_all_agents():
    network = {"q": torch.nn.Linear(5, 2)}
    given = {"network": network, "out": None, "hidden": (4,), "steps": 50_000}
    for share in (True, False):
        run = tandem.session("vdn", lambda: Team(TwoStep()), share=share, **given)
        assert any("share=False. Each network" in note for note in run.notes) is not share


@pytest.mark.parametrize(
    ("algorithm", "env", "given", "idle"),
    [
        ("ppo", "CartPole-v1", {"hidden": (8,), "activation": "relu"}, "activation, hidden"),
        ("dqn", "CartPole-v1", {"hidden": (8,), "dueling": True}, ""),  # in the streams
        ("dqn", "CartPole-v1", {"body": "simba"}, "body"),
        ("sac", "Pendulum-v1", {"hidden": (8,), "layer_norm": True}, ""),  # where the action enters
        ("sac", "Pendulum-v1", {"hidden": (8,), "critic_hidden": (9,)}, "hidden"),
        ("sac", "Pendulum-v1", {"hidden": algorithms.get("sac").Settings().hidden}, ""),
    ],
)
def test_a_note_names_the_settings_that_a_custom_network_ignores(algorithm, env, given, idle):
    run = tandem.session(algorithm, env, steps=50_000, network=lazy, out=None, **given)
    assert [n for n in run.notes if "network" in n] == (
        [f"No effect with network=: {idle} (default networks only)."] if idle else []
    )


@pytest.mark.parametrize(
    ("algorithm", "env", "changed"),
    [
        ("a2c", "Pendulum-v1", {"normalize_observations": False}),
        ("trpo", "Pendulum-v1", {"normalize_observations": False}),
        ("mappo", "mpe/simple_speaker_listener_v4", {"share": True}),
        ("ppo", "Pendulum-v1", {}),
    ],
)
def test_numbers_of_the_zoo_give_way_to_a_custom_network(algorithm, env, changed):
    given = {"framework": "torch", "eval_episodes": 0}
    given |= {"envs": 2, "batch_size": 50, "centralized": False} if algorithm == "mappo" else {}
    run = tandem.session(algorithm, env, steps=1_000, network=lazy, **given)
    assert {n: getattr(run.config.settings, n) for n in changed} == changed
    said = [f"{n} set to {x} instead of {not x}: " for n, x in changed.items()]
    assert [n[: len(said[0])] for n in run.notes if " set to " in n and "custom" in n] == said
    for name, value in changed.items():
        with pytest.raises((SettingError, NetworkError), match=f"{name}={not value}"):
            tandem.session(algorithm, env, network=lazy, **given, **{name: not value})
