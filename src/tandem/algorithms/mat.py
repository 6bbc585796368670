"""The multi-agent transformer (Wen et al. 2022, arXiv:2205.14953): a team's actions are a sequence.
An encoder attends to the observations of all agents; a decoder samples their actions one after
another, each conditioned on the previous ones. Both learn with PPO's loss of all agents at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from tandem import ops
from tandem.algorithms import bodies, teams
from tandem.algorithms.base import Backend, Forward
from tandem.algorithms.mappo import MAPPO, MAPPOSettings
from tandem.algorithms.ppo import PPOSettings
from tandem.errors import NetworkError, SettingError
from tandem.math.masks import masked
from tandem.networks.attention import RELU, Decoder, EncoderBlock
from tandem.networks.defaults import Role, Source
from tandem.networks.plan import Dense, LayerNorm, Plan
from tandem.settings import Schedule, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Trajectory, Tree, tree_map

CODE = "released code"
SCRIPT = CODE + ", train_mpe.sh"


@dataclass(frozen=True)
class MATSettings(PPOSettings):
    """Settings of MAT."""

    lacks: ClassVar[dict[str, str]] = {
        # first: a body implies normalization
        **dict.fromkeys(bodies.PLAIN, "its own transformer, with layer norm"),
        **MAPPOSettings.lacks,
        **dict.fromkeys(
            ("recurrent", "memory", "action_noise"),
            "a transformer without recurrence, with Gaussian or Beta noise",
        ),
    }

    steps: int = default(1_000_000)
    envs: int = default(16)
    learning_rate: Schedule = default(
        Schedule(7e-4), SCRIPT, help="learning rate; accepts a schedule"
    )
    hidden: tuple[int, ...] = default(
        (64,), CODE, help="widths of the hidden layers after attention and in both heads"
    )
    activation: str = default("gelu", CODE)
    rollout: int = default(50)
    epochs: int = default(10, SCRIPT)
    batch_size: int = default(
        800, SCRIPT + ": a whole rollout", help="joint steps (of all agents) per update"
    )
    clip: Schedule = default(Schedule(0.05), SCRIPT)
    entropy: Schedule = default(Schedule(0.01), CODE)
    max_grad_norm: float = default(10.0, CODE)
    log_std: float = default(-1.0, CODE + ": a deviation of 0.37")
    value_weight: float = default(0.5, CODE + ": 1 of half the square")
    value_huber: float = default(10.0, CODE)
    value_clip: float = default(0.2, CODE)
    value_norm: Literal["no", "norm", "popart"] = default("norm", CODE)
    embedding: int = setting(64, "size of the embedding of an agent", CODE, minimum=1)
    blocks: int = setting(1, "number of blocks in the encoder and in the decoder", CODE, minimum=1)
    heads: int = setting(1, "number of attention heads; must divide embedding", CODE, minimum=1)
    rewards: Literal["own", "team"] = setting(
        "team",
        "rewards that each agent learns from: its own, or the mean over the team",
        "the paper's joint reward",
    )


class MAT(MAPPO):
    """Its networks process whole teams, [B, A, ...]: the encoder, a value head ("critic"), and the
    decoder ("actor")."""

    Settings = MATSettings
    acting = ("encoder", "actor")
    preparing = ("encoder", "critic", "actor")

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: MATSettings,
    ) -> None:
        super().__init__(backend, networks, observation, action, settings)
        self.encoder = backend.networks["encoder"]

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: MATSettings) -> None:
        super().check(observation, action, settings)
        if settings.embedding % settings.heads:
            raise SettingError(
                f"embedding={settings.embedding} and heads={settings.heads}.",
                "an embedding that is a multiple of heads",
                f"give embedding={settings.heads * -(-settings.embedding // settings.heads)}, or "
                "heads=1.",
            )

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: Any) -> dict[str, Role]:
        s, one, agents, seen = settings, teams.one(action), teams.count(action), observation
        ppo = super(MAPPO, cls).roles(teams.seen(seen), one, s)  # for its last layers
        assert isinstance(seen, dict)
        init = "orthogonal" if s.orthogonal else "uniform"
        block = (s.embedding, s.heads, s.hidden, s.activation, init)
        wide, told = teams.seen(seen).width, before_width(one)
        embed = Dense(wide, s.embedding, s.activation, init, RELU)
        encoder: Plan = (LayerNorm(wide), embed, LayerNorm(s.embedding))
        encoder += tuple(EncoderBlock(*block) for _ in range(s.blocks))
        decoder = Decoder(*block, s.blocks, inputs=told)
        encoded, before = (numbers(agents, n) for n in (s.embedding, told))
        between = hidden(s.embedding, s.hidden, s.activation, init)
        return {
            "encoder": Role(seen[teams.AGENTS], encoder, (), ours=True),
            "critic": Role(encoded, between, ppo["critic"].head, "critic"),
            "actor": Role(
                {"encoded": encoded, "before": before}, (decoder, *between), ppo["actor"].head
            ),
        }

    @classmethod
    def sources(
        cls,
        observation: Spec,
        action: Leaf,
        settings: Any,
        network: object,
        space: object,
        generator: Callable[[str], np.random.Generator],
    ) -> dict[str, Source]:
        if network is not None:
            raise NetworkError(
                "mat does not support network=, since its networks are an encoder and a decoder.",
                "its own transformer, defined by embedding, blocks, heads and hidden",
                "leave network out, or use mappo, which accepts a custom feature extractor.",
            )
        return super().sources(observation, action, settings, network, space, generator)

    @staticmethod
    def network_input(role: str, obs: Tree) -> Tree:
        return obs[teams.AGENTS]

    def rows(self, obs: Tree) -> Tree:
        """Return each agent's observations, from those of teams [B, ...], as rows [B * A, ...]."""
        return {teams.AGENTS: teams.rows(obs[teams.AGENTS]), **teams.masks(obs, self.action)}

    def outputs(self, b: Batch) -> tuple[Array, Array]:
        """Return the policy's outputs for rows of agents, and their values [rows]. The decoder
        receives the actions taken, so that one pass evaluates all agents."""
        observed, taken = (teams.by_agent(x, self.agents) for x in (b.obs[teams.AGENTS], b.action))
        encoded = self.encoder(observed)
        out = self.actor({"encoded": encoded, "before": before(taken, self.action)})
        value = self.critic(encoded)
        return masked(teams.rows(out), b.obs, self.action), teams.rows(value)[..., 0]

    def prepare(self, trajectory: Trajectory, networks: dict[str, Forward]) -> Batch:
        """Apply MAPPO's, with functions of rows in place of the encoder and decoder."""
        taken = trajectory.action.reshape(-1, *trajectory.action.shape[2:])

        def encoded(rows: Array) -> Array:
            return networks["encoder"](teams.by_agent(rows, self.agents))

        def critic(rows: Array) -> Array:
            return teams.rows(networks["critic"](encoded(rows)))

        def actor(rows: Array) -> Array:
            told = before(taken, self.action)
            return teams.rows(networks["actor"]({"encoded": encoded(rows), "before": told}))

        return super().prepare(trajectory, {"critic": critic, "actor": actor})

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
        """Sample the agents' actions one after another. The zeros in place of later actions do not
        affect earlier ones, since the decoder is causal."""
        one, agents = teams.one(action), teams.count(action)
        policy, encoded = cls.distribution(settings, one), networks["encoder"](obs[teams.AGENTS])
        allowed = {n: teams.by_agent(x, agents) for n, x in teams.masks(obs, action).items()}
        taken = np.zeros((len(encoded), agents, *one.shape), one.dtype)
        for i in range(agents):
            out = networks["actor"]({"encoded": encoded, "before": before(taken, one)})[:, i]
            own, drawn = tree_map(lambda x, i=i: x[:, i], (allowed, noise))
            taken[:, i] = policy.act(masked(out, own, one), drawn)
        return taken, {}, state


def before_width(one: Leaf) -> int:
    """Return the width of a previous action: one per choice and the start token, or its own."""
    return one.sizes[0] + 1 if one.sizes else one.width


def before(action: Array, one: Leaf) -> Array:
    """Shift actions [B, A, ...] to decoder inputs [B, A, width]: each agent receives the action of
    the agent before it, one-hot if discrete; the first receives a start token."""
    xp, first, others = ops.of(action), 0 * action[:, :1], action[:, :-1]
    if not one.sizes:
        return xp.concat([first, others], 1)
    return xp.one_hot(xp.concat([first, others + 1], 1), before_width(one))


def numbers(agents: int, wide: int) -> Leaf:
    """Return the space of unbounded network inputs of all agents, [A, wide]."""
    size = agents * wide
    return Leaf("box", (agents, wide), "float32", (), (-np.inf,) * size, (np.inf,) * size)


def hidden(wide: int, sizes: tuple[int, ...], activation: str, initializer: str) -> Plan:
    """Return the layers of a head before its last one, each followed by layer norm."""
    plan: Plan = ()
    for units in sizes:
        plan += (Dense(wide, units, activation, initializer, RELU), LayerNorm(units))
        wide = units
    return plan or (LayerNorm(wide),)
