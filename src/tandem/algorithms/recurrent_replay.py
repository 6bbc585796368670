"""Recurrent networks for algorithms with replay (Kapturowski et al. 2019, "Recurrent Experience
Replay in Distributed Reinforcement Learning", R2D2): sequences of steps are replayed, each from the
recurrent state stored with its first step. The first `burn_in` steps have no loss: every network
and every target unrolls them to update that state with its own weights.

The acting network stores its states while acting. Critics do not act; their states are recomputed
once per block of steps. The recurrent layer receives only observations, and actions enter a critic
after it, as in the code of Ni et al. 2022 (arXiv:2110.05038), which in addition has a skip
connection around it. The state after an observation can therefore be used both for the action that
was taken and for any action of the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tandem import ops
from tandem.algorithms import base, memories, recurrent_batches
from tandem.algorithms.base import Forward, Network
from tandem.algorithms.normalized import NormalizedSettings
from tandem.algorithms.priorities import PrioritySettings
from tandem.errors import SettingError
from tandem.math.returns import n_step
from tandem.networks.recurrent import state_leaf
from tandem.settings import Needs, setting
from tandem.spaces import Leaf
from tandem.types import Array, Batch, Trajectory, Tree, tree_map

R2D2 = "Kapturowski et al. 2019"
HINDSIGHT = "Andrychowicz et al. 2017"
HINDSIGHT_ON = Needs(hindsight=("final", "episode", "future"))
View = Callable[..., Array]  # (network, observations, optional action input) -> output


@dataclass(frozen=True)
class RecurrentReplaySettings:
    """Settings of algorithms that replay sequences for recurrent networks."""

    recurrent: int = memories.units("between feature extractor and head", "Hausknecht & Stone 2015")
    memory: Literal["gru", "lstm"] = memories.kind()
    sequence: int = setting(
        16,
        "with recurrent: length of replayed sequences; must divide batch_size",
        minimum=0,
        needs=memories.NEEDED,
    )
    burn_in: int = setting(
        0,
        "with recurrent: preceding steps that only update the recurrent state; the paper uses 40",
        R2D2 + ", section 3",
        minimum=0,
        needs=memories.NEEDED,
    )
    start_state: Literal["stored", "zero"] = setting(
        "stored",
        "with recurrent: state at the start of a replayed sequence: as stored, or zero",
        R2D2 + ", section 3",
        needs=memories.NEEDED,
    )


@dataclass(frozen=True)
class TransitionSettings(
    RecurrentReplaySettings, PrioritySettings, NormalizedSettings, base.ReplaySettings
):
    """Settings of algorithms that replay transitions, or sequences of them: sampling and
    relabeling."""

    hindsight: Literal["no", "future", "final", "episode"] = setting(
        "no",
        "hindsight replay for goal environments: relabel with goals reached later (future), at "
        "the end (final) or at any time (episode)",
        HINDSIGHT,
    )
    relabel: int = setting(
        4,
        "with hindsight: relabeled transitions per original one",
        HINDSIGHT + ", section 4.5",
        minimum=1,
        needs=HINDSIGHT_ON,
    )
    copy_info: bool = setting(
        False,
        "with hindsight: store numeric entries of info and pass them to compute_reward",
        needs=HINDSIGHT_ON,
    )
    priority_eta: float = setting(
        0.9,
        "with recurrent and prioritized: weight of the largest error in a sequence's priority, "
        "against the mean",
        R2D2 + ", section 2.3",
        minimum=0,
        maximum=1,
        needs=Needs(recurrent=64, prioritized=True),
    )


def check_sequence(settings: RecurrentReplaySettings) -> None:
    """Raise SettingError for sequences without steps."""
    units = settings.recurrent
    if units and settings.sequence < 1:
        raise SettingError(
            f"recurrent={units} and sequence={settings.sequence}.",
            "sequences of at least one step",
            "try sequence=16.",
        )


def check(settings: Any) -> None:
    """Raise SettingError for settings that recurrent networks do not support."""
    check_sequence(settings)
    units = settings.recurrent
    if units and settings.hindsight != "no":
        raise SettingError(
            f"recurrent={units} is not supported with hindsight={settings.hindsight!r}.",
            "one of them: the recurrent state has already seen the original goal",
            "give hindsight='no' or recurrent=0.",
        )


class Memoryless:
    """Feed-forward networks: each output depends only on its own row."""

    def now(self, network: Network, obs: Tree, action: Array = None, **options: bool) -> Array:
        return network(obs if action is None else {"obs": obs, "action": action}, **options)

    next = now


class Unrolled:
    """Recurrent networks unrolled over the sequences of a batch, time first. `ReplayLearner._batch`
    provides the first states and the flags `start`. The acting network's states at the random
    steps before `learning_starts` are stored as zero.

    `now` returns the output at each step, from the recurrent state after the previous steps. `next`
    returns the output at the observation that follows, one step further. The states of `now` are
    cached; for targets, evaluated only at the next observations, `next` computes them first."""

    def __init__(self, b: Batch) -> None:
        self._batch = b
        self._states: dict[str, Array] = {}  # recurrent states after each step, by network

    def now(self, network: Network, obs: Tree, action: Array = None, **options: bool) -> Array:
        b = self._batch
        first = self._burned_in(network, action is not None)
        out = _called(network, obs, first, b.extra["start"], action, options)
        self._states[network.name] = out[:, -first.shape[-1] :]
        return out[:, : -first.shape[-1]]

    def next(self, network: Network, obs: Tree, action: Array = None, **options: bool) -> Array:
        b = self._batch
        if network.name not in self._states:
            self.now(network, b.obs, None if action is None else b.action, **options)
        state = self._states[network.name]
        out = _called(network, obs, state, 0.0 * b.extra["start"], action, options)
        return out[:, : -state.shape[-1]]

    def _burned_in(self, network: Network, takes_action: bool) -> Array:
        """Return the recurrent state of a network before the first step with a loss, [S, size]."""
        extra = self._batch.extra
        state = extra[f"{network.name.removesuffix('_target')}_state"]
        if "burn_in" not in extra:
            return state
        before = extra["burn_in"]
        action = before["action"] if takes_action else None
        out = _called(network, before["obs"], state, before["start"], action, {"training": False})
        return ops.of(out).stop_gradient(out[-state.shape[0] :, -state.shape[-1] :])


def _called(
    network: Network, obs: Tree, state: Array, start: Array, action: Array, options: dict[str, bool]
) -> Array:
    x = {"obs": obs, "state": state, "start": start}
    return network(x if action is None else {**x, "action": action}, **options)


class RecurrentReplayAlgorithm(base.Algorithm):
    """An algorithm that learns from transitions, or with `settings.recurrent` from sequences of
    steps. Its losses evaluate networks through `views`, which hides the difference."""

    recurrent_roles: tuple[str, ...] = ()  # roles with a recurrent state

    def begin_states(self, action: Leaf, critics: tuple[str, ...] = ()) -> None:
        """Set up recurrent states, after the networks are created. critics: the roles that do not
        act."""
        s, self._takes_actions = self.settings, action.kind == "box"
        if not s.recurrent:
            return
        self._state_leaf = state_leaf(s)
        self.sequence = s.sequence
        self.backend.time_first = True
        self.recurrent_roles = (*self.acting, *critics)
        if s.start_state == "stored" and critics:
            self.preparing = critics
            self.memory = {role: memories.begin(s, s.envs) for role in critics}

    def views(self, b: Batch) -> tuple[View, View]:
        """Return functions that evaluate networks at a batch's observations and next ones."""
        views = Unrolled(b) if self.sequence else Memoryless()
        return views.now, views.next

    def steps(self, b: Batch) -> Batch:
        """Return the batch as rows, one per step with a loss."""
        return recurrent_batches.steps(b, self.settings.burn_in) if self.sequence else b

    def over_n_steps(self, b: Batch, reward: Array, *after: Array) -> tuple[Array, ...]:
        """Return (reward, discount, *after) over `n_step` steps. Replayed transitions already span
        them; in sequences, the n steps stop at the end of the sequence."""
        if not self.sequence or self.settings.n_step == 1:
            return (reward, b.discount, *after)
        xp, length = ops.of(reward), self.settings.sequence

        def over_time(x: Array) -> Array:
            return xp.reshape(x, (length, -1, *x.shape[1:]))

        start = over_time(b.extra["start"])
        last = xp.concat([start[1:], start[:1]], 0) > 0  # `n_step` does not read the last one
        rows = tree_map(over_time, (reward, b.discount, after))
        spanned = n_step(rows[0], rows[1], last, self.settings.n_step, *rows[2])
        return tuple(xp.reshape(x, (-1, *x.shape[2:])) for x in spanned)

    def priority(self, b: Batch, aux: dict[str, Array]) -> Array:
        """Return the priorities of sequences [S], computed from the "error" of their steps (R2D2,
        section 2.3), or of transitions [B], their errors; () without prioritized replay."""
        if not self.settings.prioritized:
            return ()
        error = aux["error"]
        if not self.sequence:
            return error
        xp, eta = ops.of(error), self.settings.priority_eta
        here = xp.cast(b.weight > 0)  # rows that only reset their environment do not count
        size, here = (
            xp.swapaxes(xp.reshape(x, (self.settings.sequence, -1)), 0, 1)
            for x in (xp.abs(error) * here, here)
        )
        mean = xp.sum(size, -1) / xp.clip(xp.sum(here, -1), 1.0, float("inf"))
        return eta * xp.sort(size)[:, -1] + (1.0 - eta) * mean

    def buffer_extras(self, action: Leaf) -> dict[str, Leaf]:
        return {f"{role}_state": self._state_leaf for role in self.recurrent_roles}

    def remembered(self, t: Trajectory, networks: dict[str, Forward]) -> dict[str, Array]:
        obs, action = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), (t.obs, t.action))
        start, states = recurrent_batches.starts(t), {}
        for role, first in self.memory.items() if isinstance(self.memory, dict) else ():
            beside = {"action": action} if self._takes_actions else {}
            _, after = recurrent_batches.follow(networks[role], obs, first, start, **beside)
            before = np.concatenate([first[None], after[:-1]])
            states[f"{role}_state"] = np.where(start[..., None] > 0, np.float32(0), before)
            self.memory[role] = recurrent_batches.ending(t, after)
        return states

    @classmethod
    def kept(cls, settings: Any, action: Leaf, state: Tree, out: Array = ()) -> dict[str, Array]:
        if isinstance(state, tuple) or settings.start_state == "zero":
            return {}
        return {f"{cls.acting[0]}_state": state}
