"""Multi-agent PPO (Yu et al. 2022, arXiv:2103.01955): PPO on each agent's observation, with a
critic that also receives the state of the whole team; without that state, independent PPO (de Witt
et al. 2020, arXiv:2011.09533). PPO treats each agent as one environment column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from tandem import ops
from tandem.algorithms import base, memories, name_of, teams
from tandem.algorithms.base import Backend, Forward
from tandem.algorithms.ppo import PPO, PPOSettings
from tandem.networks.defaults import Role, Source
from tandem.settings import Schedule, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Cuts, Trajectory, Tree, Update, tree_map

PAPER = "Yu et al. 2022, appendix C"
RAW = (
    "a separate actor and critic, and raw observations and rewards; value_norm already "
    "standardizes values"
)


@dataclass(frozen=True)
class MAPPOSettings(PPOSettings):
    """Settings of MAPPO."""

    lacks: ClassVar[dict[str, str]] = {
        "intrinsic": "intrinsic='no', since what is new to one agent is not new to the team",
        "shared": RAW,
        "normalize_observations": RAW,
        "normalize_rewards": RAW,
        "standardize_rewards": RAW,
    }

    steps: int = default(1_000_000)
    envs: int = default(16)
    learning_rate: Schedule = default(
        Schedule(7e-4), PAPER + ", table 10", help="learning rate; accepts a schedule"
    )
    rollout: int = default(50)
    epochs: int = default(10, PAPER + ", table 10")
    batch_size: int = default(
        400,
        "section 5.4 of the paper",
        help="joint steps (of all agents) per update; use few, large batches",
    )
    entropy: Schedule = default(Schedule(0.01), PAPER + ", table 7")
    max_grad_norm: float = default(10.0, PAPER + ", table 7")
    value_weight: float = default(0.5, PAPER + ", table 7: of half the square")
    value_huber: float = default(10.0, PAPER + ", table 7")
    value_clip: float = default(0.2, "released code")
    value_norm: Literal["no", "norm", "popart"] = default("norm", "section 5.1; " + PAPER)
    centralized: bool = setting(
        True,
        "the critic sees the global state and the agent's observation; off: IPPO",
        "section 3",
    )
    share: bool = setting(
        True, "one actor and one critic for all agents (agent identity as input)", "section 3"
    )
    rewards: Literal["own", "team"] = setting(
        "own", "rewards that each agent learns from: its own, or the mean over the team"
    )

    def settled(self, given: Iterable[str]) -> MAPPOSettings:
        return self  # agents' observations are never normalized


class MAPPO(PPO):
    Settings: ClassVar[type[PPOSettings]] = MAPPOSettings
    team = True
    row_extras = ("acting",)

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: PPOSettings,
    ) -> None:
        super().__init__(backend, networks, observation, teams.one(action), settings)
        self.agents = backend.together = teams.count(action)
        if self.sequence:
            self.memory = memories.begin(settings, settings.envs * self.agents)

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: Any) -> None:
        teams.check(name_of(cls), observation, action, "multidiscrete", "box")
        base.refuse_lacking(name_of(cls), settings)
        super().check(observation, teams.one(action), settings)

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: Any) -> dict[str, Role]:
        assert isinstance(observation, dict)
        one, seen = teams.one(action), teams.seen(observation)
        roles = super().roles(seen, one, settings)
        both = {"own": seen, "state": observation[teams.STATE]} if settings.centralized else seen
        roles["critic"] = super().roles(both, one, settings)["critic"]
        agents = 0 if settings.share else teams.count(action)
        inputs = {"actor": seen, "critic": both}
        return {
            n: replace(role, agents=agents, space=teams.space(inputs[n]))
            for n, role in roles.items()
        }

    @staticmethod
    def network_input(role: str, obs: Tree) -> Tree:
        return obs[role]

    def update(self, b: Batch) -> Update:
        obs, action, weight, extra = tree_map(teams.rows, (b.obs, b.action, b.weight, b.extra))
        return super().update(b._replace(obs=obs, action=action, weight=weight, extra=extra))

    def standardize_advantages(self, b: Batch) -> Batch:
        """Apply PPO's over the acting agents; "acting" is scaled so that means are over them."""
        whole = super().standardize_advantages(b)
        if "acting" not in b.extra:
            return whole
        xp, acting = ops.of(b.weight), b.extra["acting"]
        weight = acting * (xp.sum(b.weight) / xp.clip(xp.sum(b.weight * acting), 1.0, float("inf")))
        return whole._replace(extra={**whole.extra, "acting": weight})

    @staticmethod
    def advantage_weight(b: Batch) -> Array:
        return b.weight * b.extra["acting"] if "acting" in b.extra else b.weight

    def policy_terms(self, out: Array, b: Batch) -> tuple[Array, Array, Array]:
        """Return PPO's terms, 0 for agents that have left while their team continues. For them only
        the value is learned, and means are over the others."""
        gain, kl, entropy = super().policy_terms(out, b)
        if "acting" not in b.extra:
            return gain, kl, entropy
        weight = b.extra["acting"]
        return gain * weight, kl * weight, entropy * weight

    def prepare(self, trajectory: Trajectory, networks: dict[str, Forward]) -> Batch:
        """Prepare the agents' columns as PPO does, and return rows of teams, [rows, A, ...]."""
        batch = super().prepare(self.columns(trajectory), networks)
        obs, action, weight, extra = tree_map(
            lambda x: x.reshape(-1, self.agents, *x.shape[1:]),
            (batch.obs, batch.action, batch.weight, batch.extra),
        )
        return batch._replace(obs=obs, action=action, weight=weight, extra=extra)

    def columns(self, t: Trajectory) -> Trajectory:
        """Convert the trajectory [T, N, ...] of a team to one of N * A environments. With
        rewards="own" each agent has its own episodes, which terminate when it leaves, or are
        truncated when a limit removes it. Otherwise the team's episodes apply, and an agent that
        has left no longer acts."""
        a, here = self.agents, column(t.obs[teams.ACTIVE]) == 1
        reward, discount, last, valid = (
            np.repeat(x, a, 1) for x in (t.reward, t.discount, t.last, t.valid)
        )
        extra = {n: column(x) for n, x in t.extra.items() if n != "rewards"}
        if self.settings.rewards == "own":
            after = column(active_after(t))
            gone = after != 1
            extra |= {"team_last": last, "team_valid": valid}
            reward, valid = column(t.extra["rewards"]), valid & here
            discount, last = np.where(after == 0, np.float32(0), discount), last | gone
        else:
            extra["acting"] = here.astype(np.float32)
        envs = (t.cuts.env[:, None] * a + np.arange(a)).reshape(-1)
        return Trajectory(
            obs=tree_map(
                lambda x: x.reshape(*reward.shape, *x.shape[1:]),
                self.rows(tree_map(teams.rows, t.obs)),
            ),
            action=column(t.action),
            reward=reward,
            discount=discount,
            last=last,
            valid=valid,
            cuts=Cuts(np.repeat(t.cuts.t, a), envs, self.rows(t.cuts.obs)),
            bootstrap=self.rows(t.bootstrap),
            extra=extra,
            state=tree_map(teams.rows, t.state),
        )

    def rows(self, obs: Tree) -> Tree:
        """Return the networks' inputs for observations [B, ...], by role, as rows [B * A, ...]."""
        own = teams.rows(obs[teams.AGENTS])
        state = {"own": own, "state": np.repeat(obs[teams.STATE], self.agents, 0)}
        return {
            "actor": own,
            "critic": state if self.settings.centralized else own,
            **teams.masks(obs, self.action),
        }

    @staticmethod
    def initial_state(settings: base.Settings, action: Leaf, n: int) -> Tree:
        return memories.begin(settings, n, teams.count(action))

    @classmethod
    def exploration_noise(
        cls,
        settings: Any,
        action: Leaf,
        rng: np.random.Generator,
        shape: tuple[int, ...],
        progress: Array,
    ) -> Tree:
        return super().exploration_noise(
            settings, teams.one(action), rng, (*shape, teams.count(action)), progress
        )

    @classmethod
    def act(
        cls,
        settings: Any,
        action: Leaf,
        networks: dict[str, Forward],
        obs: Tree,
        state: Tree,
        noise: Tree,
    ) -> tuple[Array, dict[str, Array], Tree]:
        rows = {"actor": teams.rows(obs[teams.AGENTS]), **teams.masks(obs, action)}
        state, noise = tree_map(teams.rows, (state, noise))
        acted = super().act(settings, teams.one(action), networks, rows, state, noise)
        taken, extra, after = tree_map(lambda x: teams.by_agent(x, teams.count(action)), acted)
        return taken, extra, after


def column(x: Array) -> Array:
    """Reshape [T, N, A, ...] to [T, N * A, ...]."""
    return x.reshape(len(x), -1, *x.shape[3:])


def active_after(t: Trajectory) -> Array:
    """Return the `active` entries after each step of a team's trajectory, [T, N, A]."""
    active: Array = np.concatenate([t.obs[teams.ACTIVE][1:], t.bootstrap[teams.ACTIVE][None]])
    active[t.cuts.t, t.cuts.env] = t.cuts.obs[teams.ACTIVE]
    return active
