"""Loading of agents from checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tandem import algorithms, backends, spaces
from tandem.algorithms.base import Algorithm
from tandem.backends import process
from tandem.envs.factory import EnvLike, environment_name, spaces_of
from tandem.envs.wrapped import wrapped
from tandem.errors import CheckpointError, NetworkError, TandemError
from tandem.learning.collect.trained_agent import Agent
from tandem.learning.config import Config
from tandem.learning.seeds import Generators
from tandem.networks import plan as plans
from tandem.networks import serial
from tandem.networks.defaults import example
from tandem.runs import checkpoint, config_file
from tandem.runs.checkpoint import Checkpoint
from tandem.runs.trust import NONE, fault, is_signed
from tandem.settings import as_path
from tandem.types import Tree


def load(
    path: str | Path,
    network: Any = None,
    env: EnvLike = None,
    which: str = "best",
    algorithm: type[Algorithm] | None = None,
    trust: bool = False,
) -> Agent:
    """Load the agent of a checkpoint file or of a run folder.

    Runs no code from the file and needs no environment: the file has the spaces. Networks of known
    layers need no framework; others need `network` and its framework. A name in the file is
    imported only if this user wrote the file on this machine (`runs.trust`).

    Args:
        path: The checkpoint file or run folder.
        network: The network that the run was trained with, or its name as module:function.
        env: An environment whose spaces must equal the agent's.
        which: The checkpoint of a run folder: "best", "last" or the name of a numbered one.
        algorithm: The class of a custom algorithm.
        trust: Allow a file that was written elsewhere to name a network, and the environment that
            `Agent.play` and others make.

    Raises:
        CheckpointError: The file is missing, damaged or foreign, or needs `network` or `algorithm`.
        SpaceError: The spaces of `env` differ from the agent's.
    """
    saved = checkpoint.read(checkpoint.find(as_path("path", path), which))
    again = f"tandem.load({str(path)!r}, algorithm={{0}})"
    conf, weights = config_file.of(saved, algorithm, again), saved.group("networks")
    folder = checkpoint.folder_of(saved.path)
    signature = config_file.read(folder).get("signature")
    if (
        network is None
        and conf.network
        and (trust or is_signed(saved.data["config"], folder, signature))
    ):
        network = conf.network
    try:
        observation, action = (spaces.from_json(saved.data[k]) for k in ("observation", "action"))
        assert isinstance(action, spaces.Leaf)
        kind = algorithms.for_actions(conf.kind, action)
        inputs = {
            role: r.inputs for role, r in kind.roles(observation, action, conf.settings).items()
        }
        networks = {
            r: _twin(saved.data["plans"][r], plans.select(weights, r), inputs[r], network)
            for r in kind.acting
        }
        space = spaces.gymnasium_space(observation, saved.data.get("observation_space"))
        longest = int(saved.data.get("session", {}).get("table", {}).get("longest", 0))
    except TandemError:
        raise
    except Exception as error:  # data not written by tandem can raise anything
        raise checkpoint.damaged(saved.path, error) from error
    distrust = None if trust else _distrust(saved, folder, signature)
    if env is not None:
        same = isinstance(env, str) and env == conf.env
        if same and (conf.env_kwargs or conf.wrappers) and distrust is not None:
            raise distrust
        here = wrapped(env, conf.wrappers) if same else env
        theirs = spaces_of(here, conf.env_kwargs if same else None)
        seen = spaces.observation_spec(theirs[0])
        found = (seen, spaces.action_leaf(theirs[1], seen))
        spaces.refuse_others(environment_name(env), (observation, action), found)
    unknown = [role for role, twin in networks.items() if twin is None]
    if unknown and network is None:
        raise CheckpointError(
            f"{saved.path} was trained with a custom network ({', '.join(unknown)}), which a file "
            "cannot rebuild.",
            "the network that it was trained with",
            f"tandem.load({str(path)!r}, network={repr(conf.network) if conf.network else '...'})",
        )
    if unknown and isinstance(network, str):
        network = backends.named_network(network, conf.framework)
    if unknown:
        sources = _rebuilt(kind, conf, observation, action, network, space)
        networks |= {r: _filled(sources[r], plans.select(weights, r), saved.path) for r in unknown}
    agent = Agent(
        kind,
        conf.settings,
        observation,
        action,
        networks,
        f"{conf.algorithm} {conf.env}",
        conf.env_kwargs,
        longest,
    )
    agent.origin, agent.distrust, agent.wrappers = conf.origin, distrust, conf.wrappers
    return agent


def _distrust(saved: Checkpoint, folder: Path, signature: object) -> TandemError | None:
    """Return the error for making the environment that a checkpoint names; None if that is
    allowed."""
    fix = f"if you trust them, tandem.load({str(saved.path)!r}, trust=True)."
    # an agent plays in the environment of its file, even one passed from Python, without a cluster
    data = {**saved.data["config"], "own_env": False, "options": {}}
    return fault(data, folder, signature, NONE, lambda found: fix, CheckpointError)


def _twin(written: Any, weights: plans.Weights, inputs: Any, network: Any) -> Any:
    """Return the network without its framework, after one test call; None if the file holds no plan
    for it, or one with unknown layers when the user passes `network`."""
    if written is None:
        return None
    try:
        plan = serial.from_json(written)
    except NetworkError:
        if network is None:
            raise
        return None
    twin = plans.Twin(plan, weights)
    twin(example(inputs))
    if unused := [n for n in weights if int(n.split("/")[0]) >= len(plan)]:
        raise ValueError(f"weights {', '.join(unused)} for a plan of {len(plan)} layers")
    return twin


@process.restored()
def _rebuilt(
    kind: Any, conf: Config, observation: Tree, action: Any, network: Any, space: Any
) -> dict[str, Any]:
    """Return the user's networks on their framework, to be filled with saved weights."""
    backend = backends.make(conf.framework, "auto")
    backend.float32 = True
    backend.enter_process()
    sources = kind.sources(
        observation, action, conf.settings, network, space, Generators(conf.seed)
    )
    kind(backend, sources, observation, action, conf.settings)
    return backend.networks


def _filled(network: Any, weights: plans.Weights, path: Path) -> Any:
    if all(n.isdigit() for n in weights):
        network.plan = None  # files from before its layers were known name weights by position
    own = {n: tuple(x.shape) for n, x in network.read().items()}
    saved = {n: tuple(x.shape) for n, x in weights.items()}
    if own != saved:
        raise CheckpointError(
            f"{path} holds weights of shapes {list(saved.values())}, but network= has "
            f"{list(own.values())}.",
            "the network that the run was trained with",
            "give the same network=.",
        )
    return network.frozen(weights)
