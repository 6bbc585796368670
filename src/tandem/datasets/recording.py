"""Writing of data sets: an agent plays, and each episode is written to disk when it ends."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tandem.datasets.places import DATA, as_name, id_of, is_id, library, place_of
from tandem.datasets.reading import Dataset
from tandem.envs.action_masks import with_masks
from tandem.envs.episode_budget import EpisodeBudget, default_budget
from tandem.envs.factory import EnvLike, environment_name, is_instance, make, spare
from tandem.envs.opening import opening, reset
from tandem.envs.vector import episode_seed
from tandem.errors import RunFolderError, SettingError, SpaceError
from tandem.hub.public import Cleaner
from tandem.learning.collect.evaluation import EVALUATION
from tandem.learning.collect.trained_agent import Agent
from tandem.learning.seeds import Generators
from tandem.reports.run_report import command_of
from tandem.runs import checkpoint
from tandem.runs.atomic_files import writing
from tandem.runs.config_file import versions
from tandem.runs.loading import load as load_agent
from tandem.settings import convert, whole_number
from tandem.types import JSONDict
from tandem.version import __version__


class RecordingSource(NamedTuple):
    """Agent and environment of a recording, with the training configuration if known."""

    agent: Any
    env: EnvLike
    kwargs: JSONDict
    config: JSONDict


def record(
    agent: Any,
    out: str | Path,
    *,
    env: EnvLike = None,
    episodes: int = 100,
    seed: int = 0,
    deterministic: bool = True,
    max_steps: int = 0,
) -> Dataset:
    """Play episodes and write them as a Minari data set.

    Environments are stepped one at a time: batched matrix products round differently, and the data
    should not depend on the batch size. Images are stored losslessly. The metadata contains the
    algorithm, seeds, versions, and the commands that retrain the agent and repeat the recording.
    On errors, no files are left behind.

    Args:
        agent: An `Agent`, the folder of a run, one of its checkpoints, or any object with
            `predict(observation, state, episode_start, deterministic)`, such as a
            Stable-Baselines3 model.
        out: New folder, or an id in Minari's data directory, such as "cartpole/ppo-v0".
        env: As for `tandem.evaluate`. None: the training environment.
        episodes: Number of episodes.
        seed: As for `tandem.evaluate`; the same seed gives the same episodes.
        deterministic: False samples actions, as in the algorithm's exploration. Each episode has
            its own generator, so the number of episodes changes none of them.
        max_steps: As for `tandem.evaluate`. An episode cut by it counts as truncated.

    Raises:
        RunFolderError: `out` exists and is not empty.
        SpaceError: Minari cannot store the spaces, or the environment is a team.
        SettingError: The agent has no known environment.
        EngineError: Minari is not installed.
    """
    library()
    return recorded(_source(agent, env), out, episodes, seed, deterministic, max_steps)


def recorded(
    source: RecordingSource,
    out: str | Path,
    episodes: int,
    seed: int,
    deterministic: bool,
    max_steps: int,
) -> Dataset:
    """Record as `record` does, from a `RecordingSource`."""
    name = as_name("out", out)
    name = name if is_id(name) else str(place_of(name))
    episodes, seed = whole_number("episodes", episodes, 1), whole_number("seed", seed)
    max_steps = whole_number("max_steps", max_steps)
    deterministic = bool(convert("deterministic", deterministic, bool, True))
    library()
    made = make(source.env, source.kwargs or None)
    instance = spare(made)
    try:
        expect_storable(instance)
        with opening(episode_seed(seed, EVALUATION, 0), source.env):
            (masked,) = with_masks([instance])
        longest = int(getattr(source.agent, "longest", 0))
        limited = EpisodeBudget(masked, max_steps or default_budget(instance, longest))
        given = {"episodes": episodes, "seed": seed, "deterministic": deterministic}
        with _written(name, limited, source, given | {"max_steps": max_steps}) as storage:
            for number in range(episodes):
                drawn = None if deterministic else Generators(seed)(f"record {number}")
                at = episode_seed(seed, EVALUATION, number)
                storage.update_episodes([_played(source.agent, limited, at, number, drawn)])
    finally:
        if instance is not made or not is_instance(source.env):
            instance.close()
    return Dataset(place_of(name))


def _source(agent: Any, env: EnvLike) -> RecordingSource:
    config: JSONDict = {}
    if isinstance(agent, str | Path):
        saved = checkpoint.read(checkpoint.find(Path(agent)))
        config, agent = saved.data["config"], load_agent(agent)
    if not callable(getattr(agent, "predict", None)):
        raise SettingError(
            f"agent={agent!r}.",
            "an agent, or the folder of a run",
            "give tandem.load(path), result.agent of a run, or the path itself.",
        )
    own = agent.name.partition(" ")[2] if isinstance(agent, Agent) else ""
    if config.get("own_env") and env is None:
        raise SettingError(
            f"the agent was trained in an environment created by a program ({own}).",
            "that environment",
            "pass the training environment as env=.",
        )
    if env is None and not own:
        raise SettingError(
            f"{agent!r} does not name its training environment.",
            "an environment to play in",
            "give env='CartPole-v1', for example.",
        )
    env = agent.trained_in if env is None else env
    kwargs = agent.env_kwargs if isinstance(agent, Agent) and env == own else {}
    return RecordingSource(agent, env, dict(kwargs), config)


def expect_storable(env: Any) -> None:
    """Raise SpaceError for environments that Minari cannot store: teams and unsupported spaces."""
    from minari.serialization import deserialize_space, serialize_space

    if hasattr(env.unwrapped, "rewards_space"):
        raise SpaceError(
            f"{environment_name(env)} has several agents.",
            "a single-agent environment: Minari stores one action and one reward per step",
            "record a single-agent environment.",
        )
    for kind in ("observation_space", "action_space"):
        space = getattr(env, kind)
        for key in _keys(space):
            if not isinstance(key, str) or "/" in key or not key.strip("."):
                raise SpaceError(
                    f"the {kind.replace('_', ' ')} of {environment_name(env)} has the entry "
                    f"{key!r}.",
                    "keys that HDF5 can store: text without a slash",
                    "rename it, for example with a gymnasium.ObservationWrapper.",
                )
        try:
            same = deserialize_space(serialize_space(space)) == space
        except (NotImplementedError, TypeError, ValueError, AttributeError):
            same = False
        if not same:
            raise SpaceError(
                f"the {kind.replace('_', ' ')} of {environment_name(env)} is {space}.",
                "Box, Discrete, MultiDiscrete, MultiBinary, or Dicts and Tuples of these, which "
                "Minari stores",
                "convert it to one of these, for example with a wrapper from gymnasium.wrappers.",
            )


def _keys(space: Any) -> Iterator[Any]:
    """Yield the names of all entries of a space, including nested ones."""
    inner = getattr(space, "spaces", None)
    if isinstance(inner, dict):
        yield from inner
    for each in inner.values() if isinstance(inner, dict) else inner or ():
        yield from _keys(each)


def _played(agent: Any, env: Any, seed: int, number: int, rng: Any) -> Any:
    """Play an episode and return it as Minari's buffer. rng: samples the actions; None for
    deterministic actions."""
    from minari.data_collector import EpisodeBuffer

    obs, _ = reset(env, seed=seed)
    # copies, since the environment may overwrite its observation or the action
    seen, actions, state, over = [deepcopy(obs)], list[Any](), None, False
    rewards, ends, cuts = list[float](), list[bool](), list[bool]()
    while not over:
        if isinstance(agent, Agent):
            acted = agent.predict(obs, state, deterministic=True) if rng is None else None
            action, state = acted or agent.move(obs, state, rng)
        else:
            start = np.array([not actions])
            action, state = agent.predict(obs, state, start, deterministic=rng is None)
        actions.append(deepcopy(action))
        obs, reward, terminated, truncated, _ = env.step(action)
        seen.append(deepcopy(obs))
        rewards.append(float(np.asarray(reward).item()))
        ends.append(bool(terminated))
        cuts.append(bool(truncated) and not terminated)
        over = ends[-1] or bool(truncated)
    return EpisodeBuffer(
        id=number,
        seed=seed,
        observations=stacked(env.observation_space, seen),
        actions=stacked(env.action_space, actions),
        rewards=np.array(rewards, np.float64),
        terminations=np.array(ends, bool),
        truncations=np.array(cuts, bool),
    )


def stacked(space: Any, values: list[Any]) -> Any:
    """Stack K observations or actions of a space into arrays [K, ...], keeping Dicts and Tuples."""
    inner = getattr(space, "spaces", None)
    if isinstance(inner, dict):
        return {key: stacked(each, [v[key] for v in values]) for key, each in inner.items()}
    if inner is not None:
        return tuple(stacked(each, [v[i] for v in values]) for i, each in enumerate(inner))
    return np.stack([np.asarray(value, space.dtype).reshape(space.shape) for value in values])


# --- on the disk ----------------------------------------------------------------------------------


@contextmanager
def _written(name: str, env: Any, source: RecordingSource, given: JSONDict) -> Iterator[Any]:
    """Yield Minari's storage in a temporary folder, which is moved to its final place at the end,
    or removed on an error."""
    minari, folder = library(), place_of(name)
    from minari.dataset.minari_storage import MinariStorage

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunFolderError(
            f"{folder} exists and is not empty.", "a new folder", "choose another, or remove it."
        )
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with writing(folder), warnings.catch_warnings():
            part.mkdir()
            warnings.simplefilter("ignore")  # about missing metadata
            storage = MinariStorage.new(
                part / DATA,
                observation_space=env.observation_space,
                action_space=env.action_space,
                env_spec=_spec(env),
                jpeg_encoding=False,
            )
            yield storage
            about = _metadata(minari, name, source, given)
            storage.update_metadata(about | {"dataset_size": float(storage.get_size())})
            if folder.is_dir():
                folder.rmdir()
            part.rename(folder)
            _register(minari, name)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _spec(env: Any) -> Any:
    """Return the spec from which Gymnasium can recreate the environment; None if there is none."""
    for each in (env.env, env.unwrapped):
        try:
            spec = each.spec
            if spec is not None:
                type(spec).from_json(spec.to_json())
                return spec
        except Exception:  # a wrapper or argument that cannot be serialized
            continue
    return None


def _metadata(minari: Any, name: str, source: RecordingSource, given: JSONDict) -> JSONDict:
    agent, config = source.agent, Cleaner().config(source.config) if source.config else {}
    env = environment_name(source.env)
    algorithm = agent.name.partition(" ")[0] if isinstance(agent, Agent) else type(agent).__name__
    words = [f"--episodes {given['episodes']}", f"--seed {given['seed']}"]
    words += [] if given["deterministic"] else ["--no-deterministic"]
    words += [f"--max-steps {given['max_steps']}"] if given["max_steps"] else []
    about = {
        "version": __version__,
        "algorithm": algorithm,
        "env": env,
        "env_kwargs": Cleaner().any(source.kwargs),
        **given,
        "record": f"tandem record DIR {' '.join(words)} --out {id_of(name)}",
        "train": command_of(config) if config else "",
        "train_seed": config.get("seed"),
        "framework": config.get("framework", ""),
        "versions": config.get("versions")
        or Cleaner().config({"versions": versions()})["versions"],
    }
    return {
        "dataset_id": id_of(name),
        "minari_version": minari.__version__,
        "algorithm_name": algorithm,
        "description": f"{given['episodes']} episodes of {algorithm} in {env}, by tandem "
        f"{__version__}, seed {given['seed']}, "
        f"{'its best' if given['deterministic'] else 'drawn'} actions.",
        "tandem": about,
    }


def _register(minari: Any, name: str) -> None:
    """Register the folders above an id as namespaces of Minari."""
    space = name.rpartition("/")[0]
    if is_id(name) and space and space not in minari.namespace.list_local_namespaces():
        minari.namespace.create_namespace(space)
