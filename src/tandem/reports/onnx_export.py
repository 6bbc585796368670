"""Export of agents to files that need no tandem: NumPy arrays with a plan, or an ONNX graph."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tandem.algorithms.base import Algorithm
from tandem.errors import (
    CheckpointError,
    NetworkError,
    SettingError,
    UnknownNameError,
)
from tandem.learning.collect.trained_agent import Agent
from tandem.math.action_values import CategoricalValues, ImplicitValues, QuantileValues
from tandem.math.distributions import Beta, TanhGaussian
from tandem.networks import onnx, plan, serial
from tandem.networks.recurrent import Recurrent, state_leaf, state_size
from tandem.runs.atomic_files import writing
from tandem.runs.loading import load
from tandem.spaces import MASK, Leaf, Spec
from tandem.types import Array, Tree

ROWS = 200  # number of random observations to test an ONNX file with


class Exported(NamedTuple):
    """The exported file, and how to use it. `verified`: the file was run and its results match the
    agent's; only for ONNX."""

    file: Path
    how: str
    verified: bool = False


def export(
    agent: Agent | str | Path,
    out: str | Path,
    to: str = "",
    network: Any = None,
    algorithm: type[Algorithm] | None = None,
) -> Exported:
    """Write an agent to a file that needs no tandem.

    Args:
        agent: A live agent, or the folder of a run or a checkpoint.
        out: The file; its suffix selects the format, .npz (NumPy arrays and a plan) or .onnx.
        to: "numpy" or "onnx", to override the suffix.
        network: As in `tandem.load`, for the folder of a run with custom layers.
        algorithm: As in `tandem.load`, for the folder of a run of a custom algorithm.

    Raises:
        UnknownNameError: The format is unknown. Further errors: see `to_numpy` and `to_onnx`.
    """
    if not isinstance(agent, Agent):
        agent = load(agent, network=network, algorithm=algorithm)
    elif network is not None or algorithm is not None:
        name = "algorithm" if network is None else "network"
        raise SettingError(
            f"{name}= is not supported with a live agent.",
            f"the agent's own {name}",
            f"leave {name} out; it is for run folders.",
        )
    path = Path(out)
    chosen = to or {".npz": "numpy", ".onnx": "onnx"}.get(path.suffix, path.suffix)
    if chosen not in FORMATS:
        raise UnknownNameError("format", chosen, FORMATS)
    return FORMATS[chosen](agent, path)


def to_numpy(agent: Agent, out: Path) -> Exported:
    """Write an .npz file: the weights by layer index and name, and the text `plan`, a JSON list of
    layers.

    Raises NetworkError if the network has unknown layers, RunFolderError if the file cannot be
    written.
    """
    twin = _network(agent)
    if not isinstance(twin, plan.Twin):
        raise NetworkError(
            f"{agent.name} acts with a network that only its framework can run.",
            "layers that tandem can run with NumPy",
            "export it to onnx instead.",
        )
    arrays: dict[str, Any] = {
        "plan": np.array(json.dumps(serial.to_json(twin.plan))),
        **twin.weights,
    }
    beside = out.with_name(f".{out.name}.part.npz")
    with writing(out):
        np.savez(beside, **arrays)
        os.replace(beside, out)
    return Exported(out, _how(agent, twin, out))


def to_onnx(agent: Agent, out: Path) -> Exported:
    """Write an ONNX graph from a batch of observations to `action` (the best one, as the
    environment takes it) and `output` (the network's output). Recurrent policies also map `state`
    [batch, size], zeros at the start of an episode, to `next_state`. If onnxruntime is installed,
    the graph is run and compared to the agent.

    A network of unknown layers is exported by its framework: torch.onnx, or Keras, which needs
    tf2onnx on TensorFlow and jax2onnx on JAX.

    Raises NetworkError for layers without an ONNX equivalent or observation entries named like an
    output, EngineError without onnx or the exporter, RunFolderError if the file cannot be written.
    """
    network, action = _network(agent), agent.action
    size = state_size(agent.settings)
    own = {"action", "output", *(("state", "next_state") if size else ())}
    if isinstance(agent.observation, dict) and (taken := own & set(agent.observation)):
        raise NetworkError(
            f"observations of {agent.name} have an entry {min(taken)!r}, which the ONNX graph "
            "uses.",
            f"entries with names other than {', '.join(sorted(own))}",
            "export it to numpy instead.",
        )
    graph = onnx.Graph()
    names: Any = {k: k for k in agent.observation} if isinstance(agent.observation, dict) else "obs"
    obs = entering = _observations(agent.observation)
    policy = agent.algorithm.distribution(agent.settings, action)
    if isinstance(policy, ImplicitValues):  # the graph contains its acting fractions
        entering = policy.network_input(obs)
        names = {"obs": names, "fractions": graph.constant(entering["fractions"])}
    inputs = (
        agent.observation if isinstance(agent.observation, dict) else {"obs": agent.observation}
    )
    given = obs if isinstance(obs, dict) else {"obs": obs}
    if size:
        inputs = {**inputs, "state": state_leaf(agent.settings)}
        names = {"obs": names, "state": "state"}
        state = np.random.default_rng(1).uniform(-1, 1, (ROWS, size)).astype(np.float32)
        entering = {"obs": obs, "state": state, "start": np.zeros(ROWS, np.float32)}
        given = {**given, "state": state}
    expected = network(entering)
    if isinstance(network, plan.Twin):
        raw = graph.plan(network.plan, network.weights, names)
    else:
        written, entries = network.onnx(entering)
        values = onnx.entries(names)
        raw = graph.merge(written, {n: values[entry] for n, entry in entries.items()})
    outputs: dict[str, Any] = {}
    if size:
        width = expected.shape[-1] - size
        outputs["next_state"] = (graph.columns(raw, width, width + size), np.float32, [size])
        raw, expected = graph.columns(raw, 0, width), expected[:, :width]
    allowed = onnx.values(graph, raw, policy)
    if action.masked:
        allowed = graph.masked(graph.columns(allowed, 0, action.width), MASK)
    best = onnx.deterministic(graph, allowed, action, policy)
    shape = action.shape if action.own_shape is None else action.own_shape
    if shape != action.shape:
        best = graph.reshape(best, (-1, *shape))
    if action.own:
        best = graph("Cast", best, to=graph.helper.np_dtype_to_tensor_dtype(np.dtype(action.own)))
    outputs |= {
        "action": (best, action.own or action.dtype, list(shape)),
        "output": (raw, np.float32, list(expected.shape[1:])),
    }
    model = graph.model(inputs, outputs)
    verified = _compare(agent, expected, model, obs, given)
    with writing(out):
        out.write_bytes(model.SerializeToString())
    how = HOW_ONNX_RECURRENT if size else HOW_ONNX
    shapes, entries = _asked(agent.observation)
    about = {"shapes": shapes, "entries": entries, "meaning": _meaning(agent)}
    return Exported(out, how.format(file=out, size=size, **about), verified)


def _asked(observation: Any) -> tuple[str, str]:
    """Return a graph's inputs as a program must pass them: their shapes, and the entries of a
    dict."""

    def shape(leaf: Any) -> str:
        return f"[{', '.join(map(str, ('batch', *leaf.shape)))}]"

    def entry(name: str, leaf: Any, value: str) -> str:
        return f'"{name}": np.asarray({value}, "{np.dtype(leaf.dtype)}")'

    if not isinstance(observation, dict):
        return shape(observation), entry("obs", observation, "observations")
    shapes = ", ".join(f"{name} {shape(leaf)}" for name, leaf in observation.items())
    values = (entry(n, leaf, f'observations["{n}"]') for n, leaf in observation.items())
    return shapes, ", ".join(values)


FORMATS: dict[str, Callable[[Agent, Path], Exported]] = {"numpy": to_numpy, "onnx": to_onnx}


def _network(agent: Agent) -> Any:
    """Return the only acting network: a twin without its framework, or an object with a method
    `onnx`."""
    if agent.algorithm.team:
        raise NetworkError(
            f"{agent.name} is a team, whose network sees each agent separately.",
            "a single agent",
            "use tandem.load for deployment; it needs no framework either.",
        )
    networks = list(agent.networks.values())
    known = len(networks) == 1 and isinstance(networks[0], plan.Twin)
    if len(networks) != 1 or (agent.settings.recurrent and not known):
        raise NetworkError(
            f"{agent.name} has a recurrent state, or acts with more than one network.",
            "one network from observations to actions",
            "use tandem.load for deployment.",
        )
    if not known and not hasattr(networks[0], "onnx"):
        raise NetworkError(
            f"{agent.name} acts with a function of unknown layers.",
            "known layers, a PyTorch module or a Keras model",
            "pass one of these as network=.",
        )
    return networks[0]


def _compare(agent: Agent, expected: Array, model: Any, obs: Tree, given: dict[str, Array]) -> bool:
    """Return True if the model was run on these observations, with the inputs `given`, and its
    results match the network's output (`expected`) and the agent's actions and states."""
    try:
        output = onnx.run(model, given)
    except Exception as error:  # from onnxruntime, for an exporter's graph
        raise NetworkError(
            f"onnxruntime cannot run the ONNX graph of {agent.name}: {str(error).strip()[:300]}",
            "operations that onnxruntime supports, as written by the framework's exporter",
            "replace the layer named above, or use tandem.load for deployment.",
        ) from error
    if output is None:
        return False
    agreed = np.allclose(output["output"], expected, rtol=1e-4, atol=1e-4)
    if "next_state" in output:
        action, after = agent.predict(obs, given["state"], deterministic=True)
        agreed = agreed and np.allclose(output["next_state"], after, rtol=1e-4, atol=1e-4)
    else:
        action = agent.act(obs)
    if action.dtype.kind == "f":
        # the agent's actions are rounded to its space's dtype
        near = max(1e-4, float(np.finfo(action.dtype).eps))
        agreed = agreed and np.allclose(output["action"], action, rtol=near, atol=near)
    else:
        # ties between equally good choices may differ
        agreed = agreed and np.mean(output["action"] == action) > 0.9
    if not agreed:
        worst = float(np.max(np.abs(output["output"] - expected)))
        raise CheckpointError(
            f"the ONNX graph of {agent.name} differs from the agent by up to {worst:g}.",
            "the same outputs to within 1e-4",
            "report it; meanwhile, export to numpy.",
        )
    return True


def _observations(spec: Spec) -> Tree:
    """Return random observations, [ROWS, ...]."""
    rng = np.random.default_rng(0)
    if isinstance(spec, dict):
        return {k: _observation(rng, s) for k, s in spec.items()}
    return _observation(rng, spec)


def _observation(rng: np.random.Generator, leaf: Leaf) -> Array:
    shape = (ROWS, *leaf.shape)
    if leaf.sizes:
        sizes = leaf.sizes if leaf.shape else leaf.sizes[0]
        return (rng.integers(sizes, size=shape) + leaf.start).astype(leaf.dtype)
    if leaf.dtype == "float32":
        return np.clip(
            rng.standard_normal(shape), *(np.reshape(b, leaf.shape) for b in (leaf.low, leaf.high))
        ).astype(np.float32)
    return rng.integers(
        0, 2 if leaf.kind == "multibinary" or leaf.high[0] == 1 else 256, shape
    ).astype(leaf.dtype)


def _how(agent: Agent, twin: plan.Twin, out: Path) -> str:
    """Return Python code that reads the file: plain NumPy if the layers are simple."""
    if isinstance(twin.plan[0], Recurrent):
        size = twin.plan[0].cell.size
        return HOW_RECURRENT.format(file=out, meaning=_meaning(agent), size=size)
    kinds = list(dict.fromkeys(type(layer).__name__ for layer in twin.plan))
    used = {getattr(layer, "activation", "linear") for layer in twin.plan}
    if not set(kinds) <= set(STEPS) or not used <= {"tanh", "relu", "linear"}:
        takes, policy = HOW_TAKES, agent.algorithm.distribution(agent.settings, agent.action)
        if isinstance(policy, ImplicitValues):
            takes = HOW_TAKES_FRACTIONS.format(count=policy.count)
        return HOW_TWIN.format(file=out, takes=takes, meaning=_meaning(agent))
    steps = "\n".join(
        f'        if layer["layer"] == "{kind}":\n            {STEPS[kind]}' for kind in kinds
    )
    return HOW_NUMPY.format(file=out, meaning=_meaning(agent), steps=steps)


def _meaning(agent: Agent) -> str:
    """Return a description of the network's output."""
    policy = agent.algorithm.distribution(agent.settings, agent.action)
    if agent.action.kind == "box":
        if isinstance(policy, Beta):
            return (
                "alphas - 1 of the actions, then betas - 1, before softplus; (alpha - beta) / "
                "(alpha + beta) goes to the bounds"
            )
        then = (
            "are to be scaled from [-1, 1] to the bounds"
            if policy.action_mode == "unit"
            else "are to be clipped to the bounds"
        )
        tanh = "go through tanh and then " * isinstance(policy, TanhGaussian)
        return f"mean actions, which {tanh}{then}; log standard deviations or values may follow"
    where = f", where {MASK!r} is 1" * agent.action.masked
    if isinstance(policy, QuantileValues):
        return (
            f"{policy.each} quantiles for each choice, one choice after another: that with the "
            f"largest mean is the best{where}"
        )
    if isinstance(policy, ImplicitValues):
        return (
            "quantiles at each fraction, a number for each choice: that with the largest mean over "
            f"fractions is the best{where}"
        )
    if isinstance(policy, CategoricalValues):
        return (
            f"{policy.each} logits for each choice, one choice after another, of returns from "
            f"{policy.low:g} to {policy.high:g}: that with the largest mean is the best{where}"
        )
    return (
        f"a logit or value for each choice, of which the agent takes the largest{where}; state "
        "values may follow"
    )


STEPS = {  # layer -> its NumPy code; `w(name)` is one of its weights
    "Cast": 'x = np.asarray(x, np.float32).reshape(-1, layer["width"])',
    "Dense": 'x = activations[layer["activation"]](x @ w("kernel") + w("bias"))',
    "NoisyDense": 'x = activations[layer["activation"]](x @ w("kernel") + w("bias"))  # without '
    "its noise",
    "Normalize": 'x = np.clip((x - w("mean")) / np.sqrt(w("variance") + 1e-8), -layer["clip"], '
    'layer["clip"])',
    "Scale": 'x = np.concatenate([x, 0 * x + w("log_std")], -1)',
}
HOW_NUMPY = """\
import json
import numpy as np

data = dict(np.load("{file}"))  # read at once
plan = json.loads(str(data["plan"]))  # a list of layers, each with its name and shape
activations = {{"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0), "linear": lambda x: x}}


def network(x):  # observations [batch, ...] -> {meaning}
    for i, layer in enumerate(plan):
        w = lambda name: data[f"{{i}}/{{name}}"]
{steps}
    return x
"""
HOW_TWIN = """\
import json
import numpy as np
from tandem.networks.plan import Twin  # of tandem, in NumPy: no framework is imported
from tandem.networks.serial import from_json

data = dict(np.load("{file}"))  # read at once
# {takes} -> {meaning}
network = Twin(from_json(json.loads(str(data["plan"]))), data)  # call it: network(observations)
"""

HOW_TAKES = "observations [batch, ...]"
HOW_TAKES_FRACTIONS = """{{"obs": observations [batch, ...], "fractions": [1, any]}}, which the
# agent has as (np.arange({count}, dtype=np.float32)[None] + 0.5) / {count}"""

HOW_RECURRENT = """\
import json
import numpy as np
from tandem.networks.plan import Twin
from tandem.networks.serial import from_json  # needs no framework: layers in NumPy

data = dict(np.load("{file}"))  # read at once
network = Twin(from_json(json.loads(str(data["plan"]))), data)
state = np.zeros((1, {size}), np.float32)  # [batch, {size}], zero where an episode begins


# observations [batch, ...] and the state before -> ({meaning}; the state after)
def step(x, state):
    out = network({{"obs": x, "state": state, "start": np.zeros(len(state), np.float32)}})
    return out[:, :-{size}], out[:, -{size}:]
"""

HOW_ONNX_RECURRENT = """\
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("{file}")
state = np.zeros((1, {size}), np.float32)  # [batch, {size}], zero where an episode begins


# observations {shapes}
# and the state before -> (actions, as the environment takes them; {meaning}; the state after)
def step(observations, state):
    given = {{{entries}, "state": state}}
    return session.run(["action", "output", "next_state"], given)
"""

HOW_ONNX = """\
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("{file}")


# observations {shapes}
# -> (actions, as the environment takes them; {meaning})
def act(observations):
    given = {{{entries}}}
    return session.run(["action", "output"], given)
"""
