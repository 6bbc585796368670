"""Running statistics of observations and rewards, which normalize network inputs and scale rewards
if enabled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tandem import ops
from tandem.backends.backend import Network
from tandem.envs.calls import attributes_of, layers
from tandem.envs.vector_state import inner_environment
from tandem.errors import SettingError, note
from tandem.math.moments import Moments
from tandem.settings import hints_of
from tandem.spaces import Spec
from tandem.types import Array, Trajectory, Tree

BY_CONSTANTS = "scale by constants (gymnasium.wrappers.TransformObservation)"


class ObservationMoments:
    """Moments of every Box in an observation except images, in the shapes of a network's Normalize
    layers."""

    def __init__(self, spec: Spec) -> None:
        parts = spec if isinstance(spec, dict) else {"": spec}
        self.moments = {
            k: Moments(s.width) for k, s in parts.items() if s.kind == "box" and not s.image
        }

    def add(self, obs: Tree, valid: Array) -> None:
        """Add the valid rows of obs [T, N, ...]."""
        for key, moments in self.moments.items():
            rows = obs[key] if key else obs
            moments.add(rows.reshape(valid.size, -1)[valid.reshape(-1)])

    def weights(self, before: str = "") -> dict[str, Array]:
        """Return these moments as weights of a plan's Normalize layers: "1/mean" for array
        observations, "0/name/1/mean" for an entry of a dict. before: the prefix of a plan inside
        another."""
        found = {}
        for key, moments in self.moments.items():
            place = before + (f"0/{key}/1" if key else "1")
            variance = ops.of(moments.variance).minimum(moments.variance, np.finfo(np.float32).max)
            found[f"{place}/mean"] = moments.mean.astype(np.float32)
            found[f"{place}/variance"] = variance.astype(np.float32)
        return found


class NetworkStatistics:
    """Running statistics of observations, and the networks, by role, with layers for them. Raises
    SettingError for a custom network without such layers."""

    def __init__(self, spec: Spec, networks: Mapping[str, Network]) -> None:
        self.observations = ObservationMoments(spec)
        self._networks = [(n, self._places(role, n)) for role, n in networks.items()]

    def _places(self, role: str, network: Network) -> list[str]:
        """Return the prefixes of the plans that receive observations: one, or one per feature
        extractor of the network."""
        names = set(network.read())
        wanted = set(self.observations.weights())
        if not wanted:  # only images and discrete observations
            return []
        first = min(wanted)
        ending = (n for n in names if f"/{n}".endswith(f"/{first}"))
        before = [n.removesuffix(first) for n in ending]
        if found := sorted(b for b in before if {b + n for n in wanted} <= names):
            return found
        raise SettingError(
            f"normalize_observations=True is not supported with a custom network ({role}) without "
            "a layer for the statistics.",
            "the default networks, which begin with one",
            "give normalize_observations=False, and scale observations by constants "
            "(gymnasium.wrappers.TransformObservation); or leave network out.",
        )

    def add(self, trajectory: Trajectory) -> None:
        """Add the observations of a trajectory."""
        self.observations.add(trajectory.obs, trajectory.valid)

    def publish(self) -> None:
        """Write the statistics into the networks."""
        for network, places in self._networks:
            for place in places:
                network.place(self.observations.weights(place))


def note_wrappers(environments: Any, conf: Any, is_object: bool, is_scored: bool) -> None:
    """Print notes on wrappers that normalize by their own statistics, which are missing in agents
    and evaluations.

    is_object: whether evaluations step a copy of the environment, and thus of the statistics.
    is_scored: whether the run reports returns of such environments."""
    kind, alone = type(conf.settings), conf.options.learners == 1
    known = set(hints_of(kind)) - set(getattr(kind, "lacks", ())) if alone else set()
    around = environments.around
    for layer in [*layers(around), *layers(inner_environment(around))]:
        held = attributes_of(layer)
        name, remove = type(layer).__name__, f"Fix: remove {type(layer).__name__}"
        if "obs_rms" in held and getattr(layer, "update_running_mean", True):
            ours = "normalize_observations" in known and not (conf.own_network or conf.network)
            note(
                f"{name} keeps its statistics in the environment: "
                f"{'' if is_object else 'each evaluation and '}every loaded agent starts with "
                f"empty ones. {remove} and "
                f"{'give normalize_observations=True' if ours else BY_CONSTANTS}."
            )
        if "return_rms" in held and is_scored:
            better = " and give normalize_rewards=True" * ("normalize_rewards" in known)
            note(
                f"{name} scales rewards by its own statistics: reported returns are not in the "
                f"environment's units, and their scale changes. {remove}{better}."
            )


def statistics(
    settings: Any, observation: Spec, networks: Mapping[str, object]
) -> tuple[NetworkStatistics | None, RewardScale | None]:
    """Return the statistics of observations, for all of a backend's networks, and of rewards, if
    enabled in the settings."""
    own = {n: x for n, x in networks.items() if isinstance(x, Network)}
    seen = NetworkStatistics(observation, own) if settings.normalize_observations else None
    paid = RewardScale(settings.envs, settings.gamma) if settings.normalize_rewards else None
    return seen, paid


class RewardScale:
    """Divides rewards by the running standard deviation of the discounted return of each
    environment, clipped at 10 (Engstrom et al. 2020, arXiv:2005.12729, section 3; the mean is not
    subtracted, which would change the task)."""

    def __init__(self, envs: int, gamma: float) -> None:
        self.moments, self.running, self.gamma = Moments(1), np.zeros(envs), gamma

    def __call__(self, trajectory: Trajectory) -> Trajectory:
        """Add a trajectory's returns to the statistics, and return it with scaled rewards."""
        self.add(trajectory)
        return trajectory._replace(reward=self.scaled(trajectory.reward))

    def scaled(self, reward: Array) -> Array:
        """Scale rewards by the current statistics."""
        scaled = reward / np.sqrt(self.moments.variance[0] + 1e-8)
        return np.clip(scaled, -10.0, 10.0).astype(np.float32)

    def add(self, trajectory: Trajectory) -> None:
        """Add a trajectory's returns to the statistics."""
        seen = np.empty(trajectory.reward.shape)
        for t, (reward, last) in enumerate(zip(trajectory.reward, trajectory.last, strict=True)):
            self.running = self.running * self.gamma + reward
            seen[t] = self.running
            self.running[last] = 0.0
        self.moments.add(seen[trajectory.valid][:, None])

    def break_off(self, envs: Sequence[int]) -> None:
        """End the running episodes of these environments."""
        self.running[list(envs)] = 0.0

    def state(self) -> dict[str, Array]:
        return {**self.moments.state(), "running": self.running}

    def load_state(self, state: dict[str, Array]) -> None:
        self.moments.load_state(state)
        self.running = state["running"].copy()


class RewardStandard:
    """Subtracts the running mean of rewards and divides by their running standard deviation,
    clipped at 10 (Zheng et al. 2023, arXiv:2307.04964, section 5.3.1, "reward normalization and
    clipping"). Subtracting the mean changes the task if episodes can end early: an average step
    then has a reward of 0, so longer episodes are no longer rewarded or penalized on average."""

    def __init__(self) -> None:
        self.moments = Moments(1)

    def __call__(self, trajectory: Trajectory) -> Trajectory:
        """Add a trajectory's rewards to the statistics, and return it with standardized rewards."""
        self.moments.add(trajectory.reward[trajectory.valid][:, None])
        standard = (trajectory.reward - self.moments.mean[0]) / np.sqrt(
            self.moments.variance[0] + 1e-8
        )
        return trajectory._replace(reward=np.clip(standard, -10.0, 10.0).astype(np.float32))

    def state(self) -> dict[str, Array]:
        return self.moments.state()

    def load_state(self, state: dict[str, Array]) -> None:
        self.moments.load_state(state)


def state(
    observations: NetworkStatistics | None, rewards: RewardScale | RewardStandard | None
) -> dict[str, Array]:
    """Return the states of the statistics of observations and rewards, with flat names. Either can
    be None."""
    parts = _parts(observations, rewards)
    return {f"{name}/{n}": x for name, part in parts.items() for n, x in part.state().items()}


def load_state(
    observations: NetworkStatistics | None,
    rewards: RewardScale | RewardStandard | None,
    arrays: dict[str, Array],
) -> None:
    """Restore the statistics from the output of `state`."""
    for name, part in _parts(observations, rewards).items():
        part.load_state(
            {n.removeprefix(f"{name}/"): x for n, x in arrays.items() if n.startswith(f"{name}/")}
        )


def _parts(
    observations: NetworkStatistics | None, rewards: RewardScale | RewardStandard | None
) -> dict[str, Moments | RewardScale | RewardStandard]:
    moments = observations.observations.moments if observations else {}
    seen = {f"observation/{k}": m for k, m in moments.items()}
    return seen | ({"reward": rewards} if rewards else {})
