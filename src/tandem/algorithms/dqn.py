"""Deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236), with double targets (van Hasselt et
al. 2016, arXiv:1509.06461), dueling networks (Wang et al. 2016, arXiv:1511.06581), n-step returns
(Hessel et al. 2018, arXiv:1710.02298, section 3), prioritized replay (Schaul et al. 2016,
arXiv:1511.05952), soft targets with the log-policy in the reward (Munchausen DQN: Vieillard et al.
2020, arXiv:2007.14430), and distributional values: categorical (C51: Bellemare et al. 2017,
arXiv:1707.06887), quantiles (QR-DQN: Dabney et al. 2018, arXiv:1710.10044) or implicit quantiles
(IQN: Dabney et al. 2018b, arXiv:1806.06923)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

import numpy as np

from tandem import ops
from tandem.algorithms import (
    action_spaces,
    base,
    bodies,
    critics,
    recurrent_batches,
    recurrent_replay,
)
from tandem.algorithms.base import Backend, Call, Forward, Network
from tandem.algorithms.recurrent_replay import View
from tandem.errors import SettingError
from tandem.math.action_values import (
    ActionValues,
    ImplicitValues,
    QuantileValues,
)
from tandem.math.masks import evenly, masked
from tandem.math.values import munchausen
from tandem.networks.defaults import Role, Source
from tandem.networks.implicit import WithFractions
from tandem.networks.plan import Conv, Dense, Dueling, Plan
from tandem.settings import Needs, Schedule, Search, default, setting
from tandem.spaces import Leaf, Spec, seen
from tandem.types import Array, Batch, Tree, Update

ATARI = "Mnih et al. 2015, extended data table 1"
SB3 = "Stable-Baselines3 2.9 (DQN)"
QR = "Dabney et al. 2018"
IQN = "Dabney et al. 2018b"
IQN_COUNTS = f"{IQN}, as Dopamine's implicit_quantile_icml.gin has it"
MUNCHAUSEN = "Vieillard et al. 2020"
IMPLICIT = Needs(values="implicit")


@dataclass(frozen=True)
class DQNSettings(recurrent_replay.TransitionSettings):
    """Settings of DQN."""

    learning_rate: Schedule = default(Schedule(1e-4), SB3, help="learning rate; accepts a schedule")
    activation: str = default("relu", ATARI)
    batch_size: int = default(32, ATARI, search=Search(16, 512, "powers of two"))
    buffer_size: int = default(1_000_000, ATARI, search=Search(10_000, 1_000_000, "log"))
    learning_starts: int = default(
        100,
        SB3,
        help="random environment steps before the first update; by default at most a tenth of the "
        "run",
        search=Search(100, 20_000, "log"),
    )
    train_every: int = default(4, ATARI)
    updates_per_call: int = default(1, ATARI)
    target_every: int = setting(
        10_000,
        "environment steps between updates of the target network",
        SB3,
        minimum=1,
        search=Search(10, 20_000, "log"),
    )
    tau: float = setting(
        1.0, "soft update coefficient of the target; 1: a full copy", ATARI, minimum=0, maximum=1
    )
    epsilon: Schedule = setting(
        Schedule(1.0, 0.05, 0.1),
        "probability of a random action; accepts a schedule",
        SB3,
        minimum=0,
        maximum=1,
        search=(Search(0.0, 0.2, part="end"), Search(0.01, 0.5, part="fraction")),
    )
    double: bool = setting(
        True,
        "double Q-learning: the network selects the next action, the target evaluates it; off "
        "with munchausen",
        "van Hasselt et al. 2016",
    )
    dueling: bool = setting(
        False, "dueling networks: separate streams for value and advantages", "Wang et al. 2016"
    )
    values: Literal["scalar", "categorical", "quantile", "implicit"] = setting(
        "scalar",
        "what the network learns: scalar (mean return), categorical (C51), quantile (QR-DQN) or "
        "implicit (IQN)",
        f"{critics.C51}; {QR}; {IQN}",
    )
    atoms: int = critics.atoms()
    v_min: float = critics.v_min()
    v_max: float = critics.v_max()
    quantiles: int = setting(
        200,
        "with quantile values: number of quantiles",
        QR,
        minimum=1,
        needs=Needs(values="quantile"),
    )
    fractions: int = setting(
        64,
        "with implicit values: quantile fractions sampled per transition (N)",
        IQN_COUNTS,
        minimum=1,
        needs=IMPLICIT,
    )
    target_fractions: int = setting(
        64,
        "with implicit values: quantile fractions sampled per target (N')",
        IQN_COUNTS,
        minimum=1,
        needs=IMPLICIT,
    )
    acting_fractions: int = setting(
        32,
        "with implicit values: quantile fractions used to select actions (K)",
        IQN,
        minimum=1,
        needs=IMPLICIT,
    )
    cosines: int = setting(
        64,
        "with implicit values: size of the cosine embedding of fractions (n)",
        IQN,
        minimum=1,
        needs=IMPLICIT,
    )
    kappa: float = setting(
        1.0,
        "with quantile or implicit values: threshold of the Huber loss, in units of returns",
        f"{QR}; {IQN}",
        above=0,
        fix="try 1.",
        needs=Needs(values=("quantile", "implicit")),
    )
    munchausen: bool = setting(
        False,
        "Munchausen RL: softmax policy instead of the maximum, log-policy added to rewards",
        MUNCHAUSEN,
    )
    munchausen_alpha: float = setting(
        0.9,
        "with munchausen: weight of the log-policy in the reward",
        MUNCHAUSEN,
        minimum=0,
        maximum=1,
        needs=Needs(munchausen=True),
    )
    munchausen_temperature: float = setting(
        0.03,
        "with munchausen: softmax temperature, in units of returns",
        MUNCHAUSEN,
        above=0,
        fix="try 0.03.",
        needs=Needs(munchausen=True),
    )
    munchausen_clip: float = setting(
        -1.0,
        "with munchausen: lower bound of temperature times log-policy",
        MUNCHAUSEN,
        minimum=-inf,
        maximum=0,
        expected="at most 0",
        needs=Needs(munchausen=True),
    )
    n_step: int = base.n_step(ATARI)
    max_grad_norm: float = setting(
        10.0, "clip gradients to this global norm; 0: no clipping", SB3, minimum=0, fix="try 0.5."
    )

    def settled(self, given: Iterable[str]) -> DQNSettings:
        settled: DQNSettings = super().settled(given)
        if self.munchausen and "double" not in given:
            return replace(settled, double=False)
        return settled


class DQN(recurrent_replay.RecurrentReplayAlgorithm):
    """Deep Q-learning. `loss` gathers what the targets need; the values in `math.action_values`
    compute them and compare them with the network's output."""

    Settings = DQNSettings
    needs = "transitions"
    acting = ("q",)
    valued = True

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: DQNSettings,
    ) -> None:
        self.backend, self.settings, self.action = backend, settings, action
        self.values = self.distribution(settings, action)
        self.q, self.target = backend.pair("q", networks["q"])
        self.optimizer = self._make_optimizer("q", [self.q])
        self.begin_states(action)

    @classmethod
    def check(cls, observation: Spec, action: Leaf, settings: DQNSettings) -> None:
        action_spaces.discrete("dqn", action)
        critics.check_values(settings)
        if settings.munchausen:
            _check_munchausen(settings)
        recurrent_replay.check(settings)
        if settings.values == "implicit" and settings.recurrent:
            raise SettingError(
                f"values='implicit' is not supported with recurrent={settings.recurrent}.",
                "one of them, since both go between feature extractor and head",
                "give values='quantile', or recurrent=0.",
            )

    @classmethod
    def distribution(cls, settings: Any, action: Leaf) -> ActionValues:
        choices = action.sizes[0]
        if settings.values == "quantile":
            return QuantileValues(choices, settings.quantiles, settings.kappa)
        if settings.values == "implicit":
            return ImplicitValues(choices, settings.acting_fractions, settings.kappa)
        return critics.values_of(settings, choices)

    @classmethod
    def roles(cls, observation: Spec, action: Leaf, settings: DQNSettings) -> dict[str, Role]:
        body = bodies.body(seen(observation, action), settings.hidden, settings)
        values, implicit = cls.distribution(settings, action), settings.values == "implicit"
        last = body[-1]
        hidden = (replace(last, inputs=0),) if isinstance(last, Dense) else ()
        units = last.units if isinstance(last, Dense) else 0
        head: Plan = (Dense(0, values.outputs),)
        features = 0
        if (
            implicit
            and isinstance(last, Dense)
            and any(isinstance(layer, (Dense, Conv)) for layer in body[:-1])
        ):  # fractions enter before the last hidden layer, unless it is the only one
            body, features = body[:-1], last.inputs
            head = (*hidden, Dense(units, values.outputs))
        if settings.dueling:
            # each stream has its own hidden layer, as wide as the feature extractor's last one
            head = (Dueling(*((*hidden, Dense(units, n)) for n in (values.each, values.outputs))),)
        if implicit:
            entries = WithFractions.of(observation)
            role = Role(entries, body, head, cosines=settings.cosines, features=features)
            return {"q": role}
        return {"q": bodies.role(observation, body, head, settings)}

    def loss(self, b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return the loss and "error" of each row, [B]. With scalar values error = y - Q(s, a) for
        y = r + discount * Q_target(s', a'), and the loss is error^2 / 2, or |error| - 1/2 beyond 1
        (Huber). No gradient flows into y. `discount` is gamma ** n, or 0 after a termination
        (`types.Batch`); `minimize` averages over the B rows, times importance weights. a' is the
        best action by Q with `double` (van Hasselt et al. 2016, eq. 4), else by Q_target. Losses of
        distributions: `cross_entropy` and `quantile_huber` in `math.value_distributions`."""
        values, s = self.values, self.settings
        now, next_ = self.views(b)  # networks at the states, and at the next states
        fraction, next_fraction = b.noise or (None, None)
        out = now(self.q, values.network_input(b.obs, fraction))
        target_out = next_(self.target, values.network_input(b.next_obs, next_fraction))
        reward, policy = b.reward, None
        if s.double:  # a selection is no training: no dropout, no batch statistics
            selector = self._allowed(next_, self.q, b.next_obs, training=False)
        elif next_fraction is None:
            # an invalid action cannot be the maximum
            selector = masked(values.part(target_out), b.next_obs, self.action)
        else:
            selector = self._allowed(next_, self.target, b.next_obs)
        if s.munchausen:
            reward, policy = munchausen(
                self._allowed(now, self.target, b.obs),
                b.action,
                b.reward,
                b.discount,
                selector,
                s.munchausen_alpha,
                s.munchausen_temperature,
                s.munchausen_clip,
            )
        reward, discount, target_out, selector = self.over_n_steps(b, reward, target_out, selector)
        loss, error = values.loss(
            out, b.action, reward, discount, target_out, selector, policy, fraction=fraction
        )
        return loss, {"error": error}

    def _allowed(self, view: View, network: Network, obs: Tree, **options: bool) -> Array:
        """Return a network's values of observations, with those of invalid actions masked."""
        values = self.values.of(lambda x: view(network, x, **options), obs)
        return masked(values, obs, self.action)

    def loss_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Tree:
        """Sample the fractions of implicit values, for states and targets, uniformly in [0, 1)."""
        s = self.settings
        if s.values != "implicit":
            return ()
        counts = (s.fractions, s.target_fractions)
        return tuple(rng.random((*shape, count), dtype=np.float32) for count in counts)

    def update(self, b: Batch) -> Update:
        s, b = b.settings, self.steps(b)
        loss, aux = self.backend.minimize(
            self.optimizer, self.loss, b, s["learning_rate"], s["max_grad_norm"]
        )
        # "tau" is 0 unless a copy is due: see `base.copies`
        self.backend.soft_update(self.q, self.target, s["tau"], seldom=True)
        return Update({"loss": loss}, self.priority(b, aux))

    def schedule(self, call: Call) -> dict[str, Array]:
        return {
            **self.scheduled(call, "learning_rate", "max_grad_norm"),
            "tau": base.copies(self.settings, call),
        }

    @classmethod
    def exploration_noise(
        cls,
        settings: Any,
        action: Leaf,
        rng: np.random.Generator,
        shape: tuple[int, ...],
        progress: Array,
    ) -> Tree:
        """Return flags of random actions, and the random actions; with action masks, uniform
        numbers to sample them by."""
        explore = rng.random(shape) < settings.epsilon(progress)[:, None]
        if action.masked:
            return explore, rng.random((*shape, action.width), dtype=np.float32)
        return explore, rng.integers(action.sizes[0], size=shape)

    @classmethod
    def act(
        cls,
        settings: DQNSettings,
        action: Leaf,
        networks: dict[str, Forward],
        obs: Tree,
        state: Tree,
        noise: Tree,
    ) -> tuple[Array, dict[str, Array], Tree]:
        values = cls.distribution(settings, action)
        network, after = networks["q"], state
        if not isinstance(state, tuple):  # random actions update the recurrent state too
            out, after = recurrent_batches.advance(network, obs, state)
            network = lambda _: out  # noqa: E731

        def q() -> Array:
            return masked(values.of(network, obs), obs, action)

        chosen = epsilon_greedy(q, obs, action, noise)
        return chosen, cls.kept(settings, action, state), after


def epsilon_greedy(q: Callable[[], Array], obs: Tree, action: Leaf, noise: Tree) -> Array:
    """Return epsilon-greedy actions for observations [N, ...].

    Args:
        q: Function that returns the action values, [N, choices].
        obs: Observations, with action masks if the action space has them.
        action: The action space.
        noise: Random numbers as from `DQN.exploration_noise`; None: greedy actions.
    """
    if noise is None:
        return q().argmax(-1)
    explore, drawn = noise
    random = evenly(drawn, obs, action) if action.masked else drawn
    if isinstance(explore, np.ndarray) and explore.all():
        return random
    greedy = q().argmax(-1)
    return ops.of(greedy).where(explore, random, greedy)


def _check_munchausen(settings: DQNSettings) -> None:
    if settings.values == "categorical":
        raise SettingError(
            "munchausen=True is not supported with values='categorical'.",
            "scalars or quantiles: each action's log-policy shifts its values, but atoms are fixed",
            "give values='implicit', as in Vieillard et al., or 'quantile' or 'scalar'.",
        )
    if settings.n_step > 1:
        raise SettingError(
            f"munchausen=True is not supported with n_step={settings.n_step}.",
            "n_step=1: each reward needs the log-policy of its own step, but stored returns keep "
            "only the first",
            "give n_step=1, or leave munchausen out.",
        )
    if settings.double:
        raise SettingError(
            "double=True is not supported with munchausen=True.",
            "double=False: a softmax of the target's values replaces the choice of the next action",
            "give double=False, or leave it out.",
        )
