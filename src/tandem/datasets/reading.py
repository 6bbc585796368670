"""Reading of data sets: episodes as arrays."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tandem.datasets.places import DATA, METADATA, as_name, is_id, library, place_of
from tandem.errors import HubError, RunFolderError, SettingError, UnknownNameError, nearest
from tandem.learning import notebook
from tandem.learning.figures import figures
from tandem.types import Array, JSONDict, Tree, leaves


@dataclass(frozen=True)
class Episode:
    """One episode of T steps.

    Observations and actions of Dict and Tuple spaces keep that structure, with arrays as leaves.

    Attributes:
        number: Index of the episode in the data set.
        observations: [T + 1, ...]; the last one follows the last step.
        actions: [T, ...].
        rewards: [T] float64.
        terminations: [T] bool; only the last can be true, if the environment ended the episode.
        truncations: [T] bool; only the last can be true, if a step limit ended the episode.
        seed: Seed of the environment's reset; None if unknown.
        infos: Other data of the episode, by name.
    """

    number: int
    observations: Tree
    actions: Tree
    rewards: Array
    terminations: Array
    truncations: Array
    seed: int | None = None
    infos: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def score(self) -> float:
        """Undiscounted sum of the rewards."""
        return float(np.sum(self.rewards))

    @property
    def ended(self) -> str:
        """End of the episode: "terminated", "truncated", or "" if the data set stops earlier."""
        if len(self) and self.terminations[-1]:
            return "terminated"
        return "truncated" if len(self) and self.truncations[-1] else ""

    def __repr__(self) -> str:
        score = figures(self.score)
        return f"Episode({self.number}: {len(self):,} steps, return {score}, {self.ended})"


class Dataset:
    """Data set of episodes on disk, read lazily: `data[0]`, `for episode in data`.

    Attributes:
        name: Id of the data set.
        path: Folder of the data set.
        metadata: Metadata of the data set. For recordings by tandem, `metadata["tandem"]` holds
            the algorithm, seeds, commands and versions.
        observation_space: Gymnasium observation space.
        action_space: Gymnasium action space.
        minari: The underlying `MinariDataset`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.minari = library().MinariDataset(str(path / DATA))
        self.metadata: JSONDict = {
            name: sorted(value) if isinstance(value, set) else value
            for name, value in self.minari.storage.metadata.items()
            if name not in ("observation_space", "action_space")
        }
        self.name = str(self.minari.id)
        self.observation_space = self.minari.observation_space
        self.action_space = self.minari.action_space

    def __len__(self) -> int:
        """Return the number of episodes."""
        return int(self.minari.total_episodes)

    @property
    def steps(self) -> int:
        """Total number of steps of all episodes."""
        return int(self.minari.total_steps)

    def __getitem__(self, number: int) -> Episode:
        """Return an episode by index; -1 is the last. Raises IndexError if it does not exist."""
        at = range(len(self))[number]
        return next(self._read([at]))

    def __iter__(self) -> Iterator[Episode]:
        return self._read(range(len(self)))

    def _read(self, numbers: Any) -> Iterator[Episode]:
        storage = self.minari.storage
        for number in numbers:
            (data,) = storage.get_episodes([number])
            (said,) = storage.get_episode_metadata([number])
            episode = Episode(
                number,
                data["observations"],
                data["actions"],
                np.asarray(data["rewards"], np.float64),
                np.asarray(data["terminations"], bool),
                np.asarray(data["truncations"], bool),
                said.get("seed"),
                data["infos"],
            )
            self._expect_whole(episode)
            yield episode

    def _expect_whole(self, episode: Episode) -> None:
        """Raise RunFolderError if the arrays' lengths do not match."""
        steps = len(episode)
        found = {len(x) for x in (episode.terminations, episode.truncations)}
        found |= {len(x) for x in leaves(episode.actions)}
        after = {len(x) for x in leaves(episode.observations)}
        if found != {steps} or after != {steps + 1}:
            raise RunFolderError(
                f"episode {episode.number} of {self.name} has {steps} rewards, but arrays of "
                f"lengths {sorted(found | after)}.",
                "one more observation than rewards, and as many of everything else",
                "leave that episode out, or fetch the data set again.",
            )

    def __repr__(self) -> str:
        return f"Dataset({self.name}: {len(self):,} episodes, {self.steps:,} steps; {self.path})"

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks."""
        rows = {
            "data set": self.name,
            "episodes": f"{len(self):,}",
            "steps": f"{self.steps:,}",
            "observations": str(self.observation_space),
            "actions": str(self.action_space),
            "folder": str(self.path),
        }
        return notebook.table(rows)


def load(name: str | Path, *, download: bool = True) -> Dataset:
    """Load a data set of episodes. Loading runs no code from it.

    Args:
        name: Folder of the data set, or its id in Minari's data directory, such as
            "cartpole/ppo-v0", or "D4RL/pointmaze/umaze-v2" for a shared one.
        download: Fetch an id that is missing locally.

    Raises:
        UnknownNameError: There is no such data set.
        HubError: The data set cannot be fetched.
        RunFolderError: The data set is damaged.
        EngineError: Minari is not installed.
    """
    minari, name = library(), as_name("name", name)
    folder = Path(name).expanduser()
    if (folder / DATA / METADATA).is_file():
        return _opened(folder.absolute())
    if folder.name == DATA and (folder / METADATA).is_file():
        return _opened(folder.absolute().parent)
    if not is_id(name):
        raise UnknownNameError("data set", name, minari.list_local_datasets(), *_ADVICE)
    folder = place_of(name)
    if not (folder / DATA / METADATA).is_file():
        if not download:
            raise UnknownNameError("data set", name, minari.list_local_datasets(), *_ADVICE)
        _fetch(minari, name)
    return _opened(folder)


_ADVICE = (
    "check the path; an id ends in a version, as in cartpole/ppo-v0.",
    "a folder created by tandem record, or the id of a data set",
)


def _opened(folder: Path) -> Dataset:
    try:
        return Dataset(folder)
    except (OSError, ValueError, KeyError, AssertionError, TypeError) as error:
        raise RunFolderError(
            f"cannot read the data set {folder}: {type(error).__name__}: {str(error)[:300]}",
            "a data set that Minari can read",
            "fetch or record it again; if it needs a newer Minari: pip install --upgrade minari.",
        ) from error


def _fetch(minari: Any, name: str) -> None:
    log = logging.getLogger("huggingface_hub")
    before = log.level
    log.setLevel(logging.ERROR)  # its retries without a network are reported once, below
    try:
        minari.download_dataset(name)
    except ImportError as error:
        raise SettingError(
            f"there is no data set {name} here, and {error}",
            "the packages that fetch data sets",
            "pip install 'tandem-rl[data]'.",
        ) from error
    except Exception as error:  # each of Minari's remotes raises its own types
        close = nearest(name, minari.list_local_datasets())
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise HubError(
            f"there is no data set {name} here, and it cannot be fetched: {type(error).__name__}: "
            f"{lines[0][:300] if lines else ''}",
            "the id of a shared data set, and a network connection",
            (f"did you mean {' or '.join(close)}, which is here? Otherwise " if close else "")
            + "check the id (`minari list remote`) and the network.",
        ) from error
    finally:
        log.setLevel(before)
