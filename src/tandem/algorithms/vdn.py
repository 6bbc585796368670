"""Value decomposition networks (Sunehag et al. 2018, arXiv:1706.05296): the value of a team's
action is the sum of its agents' values, each computed from that agent's observation. With double
targets (van Hasselt et al. 2016) and optional recurrence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tandem import ops
from tandem.algorithms import (
    base,
    bodies,
    dqn,
    memories,
    name_of,
    normalized,
    priorities,
    recurrent_batches,
    recurrent_replay,
    teams,
)
from tandem.algorithms.base import Backend, Call, Forward, Network
from tandem.algorithms.priorities import PrioritySettings
from tandem.networks.defaults import Role, Source
from tandem.networks.plan import Dense
from tandem.networks.recurrent import state_leaf
from tandem.settings import Schedule, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Tree, Update

PAPER = "Sunehag et al. 2018, section 4"
PYMARL = "Samvelyan et al. 2019, arXiv:1902.04043, appendix (PyMARL)"


@dataclass(frozen=True)
class VDNSettings(recurrent_replay.RecurrentReplaySettings, PrioritySettings, base.ReplaySettings):
    """Settings of VDN."""

    steps: int = default(1_000_000)
    envs: int = default(8, PYMARL)
    learning_rate: Schedule = default(Schedule(5e-4), PYMARL)
    hidden: tuple[int, ...] = default((64, 64), PYMARL)
    activation: str = default("relu", PYMARL)
    batch_size: int = default(256, help="joint steps (of all agents) per update")
    buffer_size: int = default(100_000, help="replay buffer size in joint steps (of all agents)")
    learning_starts: int = default(1_000)
    train_every: int = default(8)
    target_every: int = setting(
        5_000,
        "environment steps between updates of the target networks",
        PYMARL + ": 200 episodes",
        minimum=1,
    )
    tau: float = setting(
        1.0, "soft update coefficient of the targets; 1: full copies", PYMARL, minimum=0, maximum=1
    )
    epsilon: Schedule = setting(
        Schedule(1.0, 0.05, 0.1),
        "probability of a random action per agent; accepts a schedule",
        PYMARL,
        minimum=0,
        maximum=1,
    )
    n_step: int = base.n_step()
    normalize_rewards: bool = normalized.rewards()
    double: bool = setting(
        True, "double Q-learning: networks select the next actions, targets evaluate them", PYMARL
    )
    share: bool = setting(
        True, "one network for all agents (agent identity as input)", PAPER + ".2"
    )
    max_grad_norm: float = setting(
        10.0,
        "clip gradients to this global norm; 0: no clipping",
        PYMARL,
        minimum=0,
        fix="try 0.5.",
    )


class VDN(base.Algorithm):
    Settings = VDNSettings
    needs = "transitions"
    acting = ("q",)
    team = True

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: VDNSettings,
    ) -> None:
        self.backend, self.settings, self.action = backend, settings, action
        self.agents = teams.count(action)
        self.q, self.target = backend.pair("q", networks["q"])
        self.learned, self.targets = [self.q], [self.target]
        self.mixers(networks)
        self.optimizer = self._make_optimizer("q", self.learned)
        if settings.recurrent:
            self.sequence = settings.sequence
            backend.time_first = True

    def mixers(self, networks: dict[str, Source]) -> None:
        """Create the mixer of the agents' values; a sum needs none."""

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: VDNSettings) -> None:
        teams.check_replay(settings)
        teams.check(name_of(cls), observation, action, "multidiscrete")
        recurrent_replay.check_sequence(settings)

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: Any) -> dict[str, Role]:
        seen = teams.seen(observation)
        body, head = bodies.body(seen, settings.hidden, settings), (Dense(0, action.sizes[0]),)
        apart = {"space": teams.space(seen), "agents": 0 if settings.share else teams.count(action)}
        return {"q": bodies.role(seen, body, head, settings, **apart)}

    def joint(self, mixer: Any, q: Array, obs: Tree, here: Array) -> Array:  # eq. 3
        """Return the team's value [B] from the values [B, A] of the agents that are `here`."""
        return ops.of(q).sum(q * here, -1)

    def errors(self, b: Batch, best: Array, chosen: Array) -> Array:
        """Return TD errors [B], or [B, A] if agents learn independently. best: values of the next
        actions [B, A]; chosen: values of the actions taken [B, A]."""
        target, mixer = (x[1] if len(x) > 1 else None for x in (self.targets, self.learned))
        later = self.joint(target, best, b.next_obs, teams.going(b.next_obs))
        y = ops.of(later).stop_gradient(b.reward + b.discount * later)
        return y - self.joint(mixer, chosen, b.obs, teams.active(b.obs))

    def loss_of(self, b: Batch, errors: Array) -> tuple[Array, Array]:
        """Return (loss, mean absolute error), [B] each, of the `errors`."""
        return errors**2, ops.of(errors).abs(errors)

    def loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        xp, action = ops.of(b.reward), self.action
        q, then = values(self.q, b.obs, self.memory_before(self.q, b), action)
        before = self.memory_before(self.target, b)
        later = values(self.target, b.obs, before, action)[1] if self.sequence else ()
        after, _ = values(self.target, b.next_obs, later, action)
        selector = values(self.q, b.next_obs, then, action)[0] if self.settings.double else after
        # each agent's best action: together they maximize the sum
        best = xp.take(after, xp.argmax(xp.stop_gradient(selector), -1))
        chosen = xp.take(q, b.action)
        loss, error = self.loss_of(b, self.errors(b, best, chosen))
        return loss, {"q": xp.mean(chosen, -1), **priorities.mean_error(self.settings, error)}

    def memory_before(self, network: Network, b: Batch) -> Tree:
        """Return a network's recurrent state before the steps with a loss, as `values` takes it."""
        if not self.sequence:
            return ()
        state = teams.rows(b.extra["q_state"])
        if "burn_in" in b.extra:
            obs, start = (b.extra["burn_in"][n] for n in ("obs", "start"))
            begun = state, teams.of_all(start, obs)
            after = values(network, obs, begun, self.action)[1][0]
            state = ops.of(after).stop_gradient(after[-state.shape[0] :])
        return state, teams.of_all(b.extra["start"], b.obs)

    def update(self, b: Batch) -> Update:
        s = b.settings
        b = recurrent_batches.steps(b, self.settings.burn_in) if self.sequence else b
        loss, aux = self.backend.minimize(
            self.optimizer, self.loss, b, s["learning_rate"], s["max_grad_norm"]
        )
        for network, target in zip(self.learned, self.targets, strict=True):
            self.backend.soft_update(network, target, s["tau"], seldom=True)
        metrics = {"loss": loss, "q": ops.of(b.reward).mean(aux["q"])}
        return Update(metrics, aux.get("error", ()))

    def schedule(self, call: Call) -> dict[str, Array]:
        return {
            **self.scheduled(call, "learning_rate", "max_grad_norm"),
            "tau": base.copies(self.settings, call),
        }

    def buffer_extras(self, action: Leaf) -> dict[str, Leaf]:
        """Return the recurrent state before each step, if the network is recurrent."""
        return {"q_state": state_leaf(self.settings, self.agents)} if self.sequence else {}

    @staticmethod
    def initial_state(settings: base.Settings, action: Leaf, n: int) -> Tree:
        return memories.begin(settings, n, teams.count(action))

    @classmethod
    def exploration_noise(
        cls,
        settings: VDNSettings,
        action: Leaf,
        rng: np.random.Generator,
        shape: tuple[int, ...],
        progress: Array,
    ) -> Tree:
        """Return flags of random actions of each agent, and the random actions; with action masks,
        uniform numbers to sample them by."""
        agents = (*shape, teams.count(action))
        explore = rng.random(agents) < settings.epsilon(progress)[:, None, None]
        if action.masked:
            return explore, rng.random((*shape, action.width), dtype=np.float32)
        return explore, rng.integers(action.sizes[0], size=agents)

    @classmethod
    def act(
        cls,
        settings: base.Settings,
        action: Leaf,
        networks: dict[str, Forward],
        obs: Tree,
        state: Tree,
        noise: Tree,
    ) -> tuple[Array, dict[str, Array], Tree]:
        remembers = not isinstance(state, tuple)
        memory = (teams.rows(state), np.zeros(state.shape[:2], np.float32)) if remembers else ()
        q, after = values(networks["q"], obs, memory, action)
        extra, then = ({"q_state": state}, after[0].reshape(state.shape)) if remembers else ({}, ())
        return dqn.epsilon_greedy(lambda: q, obs, action, noise), extra, then


def values(network: Forward, obs: Tree, memory: Tree, action: Leaf) -> tuple[Array, Tree]:
    """Return a network's values of each agent's actions, [B, A, C], and its recurrent state after
    the step. memory: (recurrent state [S * A, size] before the rows, flags [B, A] that reset it);
    () for feed-forward networks."""
    x = teams.rows(obs[teams.AGENTS])
    if not memory:
        return teams.allowed(network(x), obs, action), ()
    state, start = memory
    out = network({"obs": x, "state": state, "start": ops.of(x).reshape(start, (-1,))})
    size = state.shape[-1]
    return teams.allowed(out[:, :-size], obs, action), (out[:, -size:], 0.0 * start)
