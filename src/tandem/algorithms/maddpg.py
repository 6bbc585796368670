"""Multi-agent deep deterministic policy gradient (Lowe et al. 2017, arXiv:1706.02275): each actor
receives its agent's observation; critics receive the team's state and all actions. With `twin`
critics, target smoothing and delayed policies it is MATD3 (Ackermann et al. 2019,
arXiv:1910.01465). Discrete actions are sampled by the Gumbel-softmax (Jang et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tandem import ops
from tandem.algorithms import action_spaces, base, bodies, normalized, priorities, teams
from tandem.algorithms.base import Backend, Call, Forward, Network
from tandem.algorithms.priorities import PrioritySettings
from tandem.math.distributions import Categorical, DeterministicDistribution, Distribution
from tandem.networks.defaults import Role, Source
from tandem.networks.plan import Dense
from tandem.settings import Needs, Schedule, default, setting
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Batch, Tree, Update

PAPER = "Lowe et al. 2017, appendix"
MATD3 = "Ackermann et al. 2019"


@dataclass(frozen=True)
class MADDPGSettings(PrioritySettings, base.ReplaySettings):
    """Settings of MADDPG."""

    steps: int = default(1_000_000)
    envs: int = default(8)
    gamma: float = default(0.95, PAPER)
    learning_rate: Schedule = default(
        Schedule(1e-3), help="learning rate of the critics; accepts a schedule"
    )
    actor_learning_rate: Schedule = base.step_size(
        Schedule(1e-3), "learning rate of the actors; accepts a schedule"
    )
    hidden: tuple[int, ...] = default((64, 64), PAPER)
    activation: str = default("relu", PAPER)
    batch_size: int = default(1024, PAPER, help="joint steps (of all agents) per update")
    buffer_size: int = default(
        1_000_000, PAPER, help="replay buffer size in joint steps (of all agents)"
    )
    learning_starts: int = default(25_600, "released code")
    train_every: int = default(96, PAPER + ": 100")
    n_step: int = base.n_step()
    normalize_rewards: bool = normalized.rewards()
    tau: float = setting(
        0.01,
        "soft update coefficient of the target networks",
        PAPER,
        minimum=0,
        maximum=1,
    )
    exploration: Schedule = setting(
        Schedule(0.1),
        "standard deviation of the noise on continuous actions (within ±1); accepts a schedule",
        minimum=0,
    )
    logit_penalty: float = setting(
        1e-3, "weight of the mean square of the actors' raw outputs", "released code", minimum=0
    )
    max_grad_norm: float = setting(
        0.5,
        "clip gradients to this global norm; 0: no clipping",
        "released code",
        minimum=0,
        fix="try 0.5.",
    )
    share: bool = setting(
        False,
        "one actor and one critic for all agents (agent identity as input)",
        "section 4 of the paper",
    )
    twin: bool = setting(False, "two critics; targets use the smaller value", MATD3)
    policy_delay: int = setting(
        1,
        "critic updates per update of the actors and the targets; MATD3 uses 2",
        MATD3,
        minimum=1,
    )
    smoothing: float = setting(
        0.0, "standard deviation of target policy smoothing noise; MATD3 uses 0.2", MATD3, minimum=0
    )
    smoothing_clip: float = setting(
        0.5,
        "clipping threshold of the smoothing noise",
        MATD3,
        minimum=0,
        needs=Needs(smoothing=0.2),
    )


class MADDPG(base.Algorithm):
    """MADDPG for continuous actions; see `DiscreteMADDPG` for discrete ones."""

    Settings = MADDPGSettings
    needs = "transitions"
    acting = ("actor",)
    team = True

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: MADDPGSettings,
    ) -> None:
        self.backend = backend
        self.settings = settings
        self.action = action
        self.agents = teams.count(action)
        self.actor, self.actor_target = backend.pair("actor", networks["actor"])
        names = [n for n in networks if n != "actor"]
        self.qs, self.targets = zip(*(backend.pair(n, networks[n]) for n in names), strict=True)
        self.critic_optimizer = self._make_optimizer("critic", list(self.qs))
        self.actor_optimizer = self._make_optimizer("actor", [self.actor])

    @classmethod
    def distribution(cls, settings: MADDPGSettings, action: Leaf) -> Distribution:
        """Return the distribution of one agent's actions."""
        return DeterministicDistribution(teams.one(action).width)

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: MADDPGSettings) -> None:
        teams.check_replay(settings)
        teams.check("maddpg", observation, action, "box", "multidiscrete")
        if action.kind == "box":
            action_spaces.bounded_vector(
                "maddpg", replace(action, shape=(action.width,)), "use mappo."
            )

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: MADDPGSettings) -> dict[str, Role]:
        assert isinstance(observation, dict)
        s, seen = settings, teams.seen(observation)
        joint = Leaf(
            "box", (action.width,), "float32", (), (-1.0,) * action.width, (1.0,) * action.width
        )
        inputs = {"own": seen, "state": observation[teams.STATE], "actions": joint}
        apart = 0 if s.share else teams.count(action)
        above, below = (bodies.body(x, s.hidden, s) for x in (inputs, seen))
        q = Role(inputs, above, (Dense(0, 1),), "critic", space=teams.space(inputs), agents=apart)
        head = (Dense(0, teams.one(action).width),)  # before it is squashed
        actor = Role(seen, below, head, space=teams.space(seen), agents=apart)
        return {"actor": actor} | dict.fromkeys(("q1", "q2") if s.twin else ("q",), q)

    # Actions from the actors' outputs [B, A, width] and noise of that shape

    def drawn(self, out: Array, noise: Array, obs: Tree) -> Array:
        """Return the actors' actions, differentiable in their outputs."""
        return ops.of(out).tanh(out)

    def smoothed(self, out: Array, noise: Array, obs: Tree) -> Array:
        """Return the target actors' smoothed actions (Ackermann et al. 2019, section 4)."""
        xp, s = ops.of(out), self.settings
        return xp.clip(
            xp.tanh(out) + xp.clip(s.smoothing * noise, -s.smoothing_clip, s.smoothing_clip),
            -1.0,
            1.0,
        )

    def taken(self, b: Batch) -> Array:
        """Return the actions taken, as inputs of the critics."""
        return b.action

    def outputs(self, network: Network, obs: Tree) -> Array:
        return teams.by_agent(network(teams.rows(obs[teams.AGENTS])), self.agents)

    def values(
        self, critics: tuple[Network, ...], obs: Tree, joint: Array, here: Array
    ) -> list[Array]:
        """Return Q_i(x, a_1 ... a_A) of each agent, [B, A], for each of these critics. joint
        [B, A, A, width]: the joint action in agent i's critic. Actions of agents that are not
        `here` [B, A] are set to 0."""
        xp = ops.of(joint)
        state = obs[teams.STATE][:, None] + 0.0 * here[..., None]
        actions = xp.reshape(joint * here[:, None, :, None], (-1, self.action.width))
        x = {"own": teams.rows(obs[teams.AGENTS]), "state": teams.rows(state), "actions": actions}
        return [teams.by_agent(q(x)[..., 0], self.agents) for q in critics]

    def alike(self, actions: Array) -> Array:
        """Repeat the same actions [B, A, width] for each agent's critic."""
        return actions[:, None] + 0.0 * actions[:, :, None]

    def critic_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:  # eq. 6
        xp = ops.of(b.reward)
        joint = self.alike(
            self.smoothed(self.outputs(self.actor_target, b.next_obs), b.noise[0], b.next_obs)
        )
        going = teams.going(b.next_obs)
        later = self.values(self.targets, b.next_obs, joint, going)
        # no bootstrap value for an agent that has left
        discount = b.discount[:, None] * going
        y = xp.stop_gradient(
            b.extra["rewards"] + discount * (xp.minimum(*later) if len(later) > 1 else later[0])
        )
        values = self.values(self.qs, b.obs, self.alike(self.taken(b)), teams.active(b.obs))
        loss = sum((q - y) ** 2 for q in values)
        errors = (teams.mean(xp.abs(q - y), b.obs) for q in values)
        aux = {"q": xp.mean(values[0], -1), **priorities.mean_error(self.settings, *errors)}
        return xp.mean(teams.active(b.obs) * loss, -1), aux

    def actor_loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:  # eq. 5
        xp, out = ops.of(b.reward), self.outputs(self.actor, b.obs)
        own = teams.own(b.obs)[..., None]
        joint = (
            own * self.drawn(out, b.noise[1], b.obs)[:, None] + (1.0 - own) * self.taken(b)[:, None]
        )
        (q,) = self.values(self.qs[:1], b.obs, joint, teams.active(b.obs))
        penalty = self.settings.logit_penalty * xp.mean(out * out, -1)
        return xp.mean(teams.active(b.obs) * (penalty - q), -1), {}

    def update(self, b: Batch) -> Update:
        s, xp = b.settings, ops.of(b.reward)
        clip = s["max_grad_norm"]
        critic_loss, critic = self.backend.minimize(
            self.critic_optimizer, self.critic_loss, b, s["learning_rate"], clip
        )

        def policy() -> dict[str, Array]:
            loss, _ = self.backend.minimize(
                self.actor_optimizer, self.actor_loss, b, s["actor_learning_rate"], clip
            )
            for network, target in zip(
                (self.actor, *self.qs), (self.actor_target, *self.targets), strict=True
            ):
                self.backend.soft_update(network, target, s["tau"])
            return {"actor_loss": loss}

        actor = (
            policy()
            if self.settings.policy_delay == 1
            else self.backend.cond(s["policy"], policy, ("actor_loss",))
        )
        metrics = {"critic_loss": critic_loss, "q": xp.mean(critic["q"]), **actor}
        return Update(metrics, critic.get("error", ()))

    def schedule(self, call: Call) -> dict[str, Array]:
        due = base.each_nth(call, self.settings.policy_delay)
        return {
            **self.scheduled(call, "learning_rate", "actor_learning_rate", "max_grad_norm", "tau"),
            "policy": due,
        }

    def loss_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Tree:
        """Sample noise for the target actions and for the actors' actions."""
        policy = self.distribution(self.settings, self.action)
        draw = policy.noise(rng, (2, *shape, self.agents))
        return draw[0], draw[1]

    def buffer_extras(self, action: Leaf) -> dict[str, Leaf]:
        return teams.rewards(action)

    @classmethod
    def exploration_noise(
        cls,
        settings: MADDPGSettings,
        action: Leaf,
        rng: np.random.Generator,
        shape: tuple[int, ...],
        progress: Array,
    ) -> Tree:
        noise = cls.distribution(settings, action).noise(rng, (*shape, teams.count(action)))
        if action.sizes:
            return noise
        return settings.exploration(progress)[:, None, None, None] * noise

    @classmethod
    def act(
        cls,
        settings: MADDPGSettings,
        action: Leaf,
        networks: dict[str, Forward],
        obs: Tree,
        state: Tree,
        noise: Tree,
    ) -> tuple[Array, dict[str, Array], Tree]:
        out = np.tanh(
            teams.by_agent(networks["actor"](teams.rows(obs[teams.AGENTS])), teams.count(action))
        )
        return cls.distribution(settings, action).act(out, noise), {}, state


class DiscreteMADDPG(MADDPG):
    """MADDPG for discrete actions. Actors output logits, and critics receive one-hot actions, whose
    gradients are those of the softmax that they were sampled from ("straight-through", Jang et al.
    2017, section 2.2)."""

    def drawn(self, out: Array, noise: Array, obs: Tree) -> Array:
        xp = ops.of(out)
        soft = xp.exp(xp.log_softmax(teams.allowed(teams.rows(out), obs, self.action) + noise))
        return xp.stop_gradient(xp.one_hot(xp.argmax(soft, -1), soft.shape[-1]) - soft) + soft

    def smoothed(self, out: Array, noise: Array, obs: Tree) -> Array:
        return self.drawn(out, noise, obs)

    def taken(self, b: Batch) -> Array:
        return ops.of(b.reward).one_hot(b.action, self.action.sizes[0])

    @classmethod
    def distribution(cls, settings: MADDPGSettings, action: Leaf) -> Distribution:
        return Categorical(action.sizes[0])

    @classmethod
    def act(
        cls,
        settings: MADDPGSettings,
        action: Leaf,
        networks: dict[str, Forward],
        obs: Tree,
        state: Tree,
        noise: Tree,
    ) -> tuple[Array, dict[str, Array], Tree]:
        out = teams.allowed(networks["actor"](teams.rows(obs[teams.AGENTS])), obs, action)
        return cls.distribution(settings, action).act(out, noise), {}, state
