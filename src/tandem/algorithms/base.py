"""The base class of algorithms: settings with their sources, roles for networks, a loss and an
update, and how to act. An algorithm uses arrays and the backend interface; it never sees
environments, buffers, files or clocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from tandem.algorithms import bodies, gsde, memories, recurrent_batches
from tandem.algorithms.normalized import NormalizedSettings
from tandem.algorithms.priorities import PrioritySettings

# with Source, what constructors of algorithms are given
from tandem.backends.backend import Backend as Backend
from tandem.backends.backend import Network as Network
from tandem.errors import SettingError
from tandem.math.distributions import Distribution
from tandem.math.masks import masked
from tandem.math.products import for_actions
from tandem.networks.defaults import Role, sources
from tandem.networks.defaults import Source as Source
from tandem.networks.noisy import noisy
from tandem.networks.simbav2 import unit_headed
from tandem.settings import Needs, Schedule, Search, default, nearest_multiple, setting
from tandem.spaces import ActionMode, Leaf, Spec
from tandem.types import Array, Batch, Trajectory, Tree, Update

if TYPE_CHECKING:
    from tandem.networks.users import NetworkFunction, Networks

HINDSIGHT = "Andrychowicz et al. 2017"
HINDSIGHT_ON = Needs(hindsight=("final", "episode", "future"))
NOISY = "Fortunato et al. 2018, section 3"
Forward = Callable[[Tree], Array]  # a network for acting: NumPy in, NumPy out


def step_size(default: Schedule, help: str, source: str = "") -> Any:
    """A setting for the step size of an optimizer.

    Gradients whose norm is finite are below 1.9e19 in float32, so no step of at most 1e6 times one
    of them overflows: weights stay finite without being looked at after each update.
    """
    return setting(
        default,
        help,
        source,
        above=0,
        maximum=1e6,
        expected="a step size above 0 and up to 1e+06, or a schedule",
        fix="try 3e-4.",
        search=Search(1e-5, 1e-2, "log"),
    )


@dataclass(frozen=True)
class Settings:
    """Settings of every algorithm."""

    steps: int = setting(
        100_000, "total environment steps; also the horizon of schedules", minimum=1
    )
    envs: int = setting(1, "number of parallel environments", minimum=1)
    vectorization: Literal["auto", "native", "plain", "compiled"] = setting(
        "auto",
        "how environments are stepped: native (own vector entry point), plain (one by one) or "
        "compiled (functional ones, with learning, on JAX)",
    )
    # collectors make it the `discount` of each row, which losses read
    gamma: float = setting(
        0.99, "discount factor", minimum=0, maximum=1, search=Search(1e-4, 0.1, "near one")
    )
    learning_rate: Schedule = step_size(Schedule(3e-4), "learning rate; accepts a schedule")
    learning_rate_warmup: int = setting(
        0, "number of updates of linear learning-rate warmup; 0: none", minimum=0
    )
    weight_decay: float = setting(
        0.0,
        "decoupled weight decay of Adam (AdamW)",
        "Loshchilov & Hutter 2019",
        minimum=0,
        maximum=1,
        needs=Needs(optimizer="adam"),
    )
    hidden: tuple[int, ...] = setting(
        (64, 64),
        "widths of the hidden layers of the default networks",
        minimum=1,
        expected="layers of at least 1 unit",
        fix="try 64,64.",
        search=Search(choices=("64", "64,64", "256,256", "400,300")),
    )
    activation: str = setting("tanh", "activation of the hidden layers")
    body: bodies.Body = setting(
        "mlp",
        "default networks: mlp (dense layers), or residual blocks of SimBa or SimbaV2, one per "
        "width in hidden",
        "Lee et al. 2024; Lee et al. 2025",
    )
    layer_norm: bool = setting(
        False, "layer normalization before activations of dense layers", "Hiraoka et al. 2022"
    )
    weight_norm: bool = setting(
        False,
        "weight normalization of dense and convolutional layers",
        "Salimans & Kingma 2016",
    )
    noisy: Literal["no", "independent", "factorised"] = setting(
        "no",
        "noisy networks for exploration: noise on output weights, sampled per weight "
        "(independent) or per row and column (factorised)",
        NOISY,
    )

    # What only some algorithms have as settings, and what holds for the others
    recurrent = 0  # units of a memory; 0: none
    memory = "gru"  # its kind
    shared = False  # one body for policy and values
    burn_in = 0  # steps of a replayed sequence that only bring states up to date
    start_state = "stored"  # what a replayed sequence begins with
    n_step = 1  # steps of reward before bootstrapping
    epochs = 1  # passes over a rollout
    batch_size = 0  # rows per update; 0: all of a rollout
    learning_starts = 0  # environment steps before the first update
    prioritized = False
    memmap = False
    hindsight = "no"  # which goals a replayed transition is given
    copy_info = False
    reset_every = 0  # updates after which networks begin anew
    adam_beta1 = 0.9  # decay of Adam's first moment
    action_noise = "gaussian"  # how policies over real numbers explore
    sde_sample_freq = -1  # steps between draws of gSDE's matrices
    rewards = "team"  # what the agents of a team learn from: their "own" rewards, or one reward
    intrinsic = "no"  # rewards beside the environment's
    normalize_observations = False
    normalize_rewards = False
    standardize_rewards = False

    def settled(self, given: Iterable[str]) -> Self:
        """Itself, with what some settings imply for others in place of their defaults; those that
        a user has `given`, by name, stay."""
        return self

    @property
    def block(self) -> int:
        """Steps of each environment between two calls of updates."""
        raise NotImplementedError

    @property
    def update_rate(self) -> float:
        """Updates for each environment step, roughly."""
        raise NotImplementedError


@dataclass(frozen=True)
class ReplaySettings(Settings):
    """Settings of algorithms that learn from a replay buffer."""

    batch_size: int = setting(256, "transitions per update", minimum=1)
    buffer_size: int = setting(1_000_000, "replay buffer size in transitions", minimum=1)
    learning_starts: int = setting(
        100,
        "random environment steps before the first update; by default at most a tenth of the run",
        minimum=0,
    )
    train_every: int = setting(1, "environment steps between training phases", minimum=1)
    updates_per_call: int = setting(
        1,
        "updates per training phase; -1: one per collected step",
        minimum=1,
        special=-1,
        expected="at least 1, or -1: one for each step",
        fix="try 1.",
    )
    updates_per_step: Literal["auto"] | float = setting(
        "auto",
        "updates per environment step, such as 0.25 or 4; 'auto': given by train_every and "
        "updates_per_call",
        above=0,
        fix="try 1.",
    )
    reset_every: int = setting(
        0,
        "updates between resets of networks and optimizers (the replay buffer is kept); 0: never",
        "Nikishin et al. 2022",
        minimum=0,
    )
    adam_epsilon: float = setting(
        1e-8,
        "epsilon of Adam, added to the square root of the second moment",
        "Kingma & Ba 2015",
        above=0,
        fix="try 1e-8.",
        needs=Needs(optimizer="adam"),
    )
    optimizer: Literal["adam", "sgd"] = setting("adam", "optimizer")
    memmap: bool = setting(
        False,
        "keep the replay buffer in memory-mapped files in the run folder",
        resumable=True,
    )

    def settled(self, given: Iterable[str]) -> Self:
        """Itself. Environments step together: train_every is the multiple of their number next to
        it, with as many updates for each step as it had, to a whole number in each call."""
        implied: dict[str, Any] = {}
        if self.train_every % max(self.envs, 1) and "train_every" not in given:
            every = implied["train_every"] = nearest_multiple(self.envs, self.train_every)
            if self.updates_per_step == "auto" and self.updates_per_call > 0:
                implied["updates_per_call"] = max(1, round(every * self.update_rate))
        return replace(self, **{n: x for n, x in implied.items() if n not in given})

    @property
    def block(self) -> int:
        return max(1, self.train_every // self.envs)

    @property
    def update_rate(self) -> float:
        if self.updates_per_step != "auto":
            return float(self.updates_per_step)
        return max(self.updates_per_call, 1) / self.train_every


@dataclass(frozen=True)
class TransitionSettings(PrioritySettings, NormalizedSettings, ReplaySettings):
    """What those of them have that replay single transitions: which they draw, and how they are
    changed."""

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


def n_step(source: str = "") -> Any:
    """The setting for how many rewards stand before a bootstrapped value."""
    return setting(1, "number of steps in n-step returns", source, minimum=1)


@dataclass(frozen=True)
class RolloutSettings(Settings):
    """Settings of algorithms that learn from each rollout once."""

    envs: int = default(8)
    rollout: int = setting(256, "steps per environment between updates", minimum=1)

    @property
    def block(self) -> int:
        return self.rollout

    @property
    def update_rate(self) -> float:
        return self.epochs / (self.batch_size or self.rollout * self.envs)


class Call(NamedTuple):
    """Where a call of K updates stands in its run."""

    progress: Array  # [K]  in [0, 1]
    begin: int  # environment steps before what was collected for it
    end: int  # and after
    updates: int  # made before


class Algorithm(ABC):
    """One paper. `needs` says what it learns from: "transitions" out of a replay buffer, whole
    "rollouts", once, or "sequences" of steps, fresh and replayed."""

    Settings: ClassVar[type[Settings]]
    settings: Any  # an instance of them
    backend: Backend
    needs: ClassVar[Literal["transitions", "rollouts", "sequences"]]
    acting: ClassVar[tuple[str, ...]]  # the roles that `act` uses
    preparing: ClassVar[tuple[str, ...]] = ()  # the roles that `prepare` uses
    # those of them that see no observations as they are, but what `prepare` makes of them
    apart: tuple[str, ...] = ()
    sequence = 0  # steps in each row of what `prepare` gives, or replay; 0: a row is a step
    # an array, or a dict of them, that `prepare` or `remembered` carries on: part of a checkpoint
    memory: Tree = ()
    valued: ClassVar[bool] = False  # its network gives action values, not a policy
    team: ClassVar[bool] = False  # of several agents, whose networks see rows: see `teams`
    # its losses see what lies between the ends of n-step transitions: `extra` has "between"
    # [B, n - 1, ...], "between_discount" [B, n - 1]: gamma ** k at step k, 0 after an end
    sees_between: ClassVar[bool] = False

    def _make_optimizer(self, name: str, networks: list[Network]) -> Any:
        """The optimizer of these networks, as the settings have it."""
        options = optimizer_options(self.settings)
        return self.backend.optimizer(name, networks, self.settings.optimizer, **options)

    @classmethod
    def distribution(cls, settings: Any, action: Leaf) -> Distribution:
        """How it acts by what its network puts out."""
        return for_actions(action)

    @classmethod
    def action_mode(cls, settings: Any, action: Leaf) -> ActionMode:
        """How its actions become the environment's."""
        return cls.distribution(settings, action).action_mode

    @classmethod
    @abstractmethod
    def check(cls, observation: Spec, action: Leaf, settings: Any) -> None:
        """Refuses, with a SpaceError that names it, what this algorithm cannot do."""

    @classmethod
    @abstractmethod
    def roles(cls, observation: Spec, action: Leaf, settings: Any) -> dict[str, Role]:
        """Its networks by name, with their default bodies and heads."""

    @classmethod
    def sources(
        cls,
        observation: Spec,
        action: Leaf,
        settings: Any,
        network: NetworkFunction | Networks | None,
        space: object,
        generator: Callable[[str], np.random.Generator],
    ) -> dict[str, Source]:
        """Where each role's network comes from (see `networks.defaults.sources`), with noise on its
        head if the settings say so. SettingError for noise on whole networks of the user's."""
        roles = cls.roles(observation, action, settings)
        if network is None:
            bodies.refuse_ignored(cls, roles, (observation, action, settings))
        if settings.action_noise == "gsde":
            gsde.refuse(settings, network)
        if settings.noisy != "no":
            if isinstance(network, dict):
                raise SettingError(
                    f"noisy={settings.noisy!r} is not supported with custom networks by role "
                    f"({', '.join(map(str, network))}).",
                    "the default heads, to which the noise is added",
                    "give network= as a function that returns a feature extractor, or leave noisy "
                    "out.",
                )
            roles = bodies.headed(roles, noisy)
        if settings.body == "simbav2" and network is None:
            roles = bodies.headed(roles, unit_headed)
        return sources(roles, network, space, generator)

    @abstractmethod
    def update(self, batch: Batch) -> Update:
        """One update of everything it trains. It is traced and compiled: what changes from one to
        the next is in the batch and its `settings`, and `self.settings` are constants."""

    def whole_update(self) -> Callable[[Batch], Update] | None:
        """For rollouts: an update by all rows, before those by batches, if there is one."""
        return None

    @abstractmethod
    def schedule(self, call: Call) -> dict[str, Array]:
        """The settings of a call's updates: name -> [K]."""

    def scheduled(self, call: Call, *names: str) -> dict[str, Array]:
        """These settings, schedules or fixed numbers, at each update of a call; step sizes as far
        as they have risen."""
        values = {n: getattr(self.settings, n) for n in names}
        count = len(call.progress)
        scheduled = {
            n: s(call.progress) if isinstance(s, Schedule) else np.full(count, s, np.float32)
            for n, s in values.items()
        }
        if warmup := self.settings.learning_rate_warmup:
            updates = call.updates + 1 + np.arange(count, dtype=np.int32)
            risen = updates.clip(0, warmup) / np.float32(warmup)
            rates = [n for n in names if n.endswith("learning_rate")]
            scheduled |= {n: (scheduled[n] * risen).astype(np.float32) for n in rates}
        return scheduled

    def loss_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Tree:
        """The random numbers that its losses need for batches of `shape` ([K, B]); () for none."""
        return ()

    def buffer_extras(self, action: Leaf) -> dict[str, Leaf]:
        """What of a trajectory's `extra` a replay buffer keeps with each step; names that end in
        "_state" are memories."""
        return {}

    def remembered(self, t: Trajectory, networks: dict[str, Forward]) -> dict[str, Array]:
        """What of that acting did not give, the states of other networks: name -> [T, N, ...]."""
        return {}

    @staticmethod
    def initial_state(settings: Any, action: Leaf, n: int) -> Tree:
        """The recurrent state of `act` at the beginning of n episodes; () for none."""
        return memories.begin(settings, n)

    @classmethod
    def kept(cls, settings: Any, action: Leaf, state: Tree, out: Array = ()) -> dict[str, Array]:
        """What is kept with a step, of the recurrent state before it and of what its network put
        out; () where that was not to be known for every row."""
        return {}

    @classmethod
    def exploration_noise(
        cls,
        settings: Any,
        action: Leaf,
        rng: np.random.Generator,
        shape: tuple[int, ...],
        progress: Array,
    ) -> Tree:
        """The random numbers that exploring needs for observations of `shape` ([T, N]), at
        `progress` [T]."""
        return cls.distribution(settings, action).noise(rng, shape)

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
        """Returns (actions for obs [N, ...], what else to keep of each step, next recurrent
        state). With noise=None the action is the deterministic one."""
        policy = cls.distribution(settings, action)
        out, after = recurrent_batches.advance(networks[cls.acting[0]], obs, state)
        chosen = policy.act(masked(policy.part(out), obs, action), noise)
        return chosen, cls.kept(settings, action, state, out), after

    def prepare(self, trajectory: Trajectory, networks: dict[str, Forward]) -> Batch:
        """What to learn from, made once a rollout on the host: for "rollouts", rows [T * N, ...]
        with advantages and returns; for "sequences", [T + 1, N, ...] with what is remembered of the
        policy that acted."""
        raise NotImplementedError


def optimizer_options(settings: Any) -> dict[str, float]:
    """What goes with the name `settings.optimizer` (or Adam) to the backend: Adam's epsilon, beta1
    and weight decay, RMSProp's decay and epsilon. SettingError for another's weight decay."""
    optimizer = getattr(settings, "optimizer", "adam")
    if settings.weight_decay and optimizer != "adam":
        raise SettingError(
            f"weight_decay={settings.weight_decay:g} is not supported with "
            f"optimizer={optimizer!r}.",
            "optimizer='adam'",
            "give optimizer='adam', or leave weight_decay out.",
        )
    if optimizer == "rmsprop":
        return {"decay": settings.rms_decay, "epsilon": settings.rms_epsilon}
    if "adam" in optimizer:
        names = ("epsilon", "beta1")  # as far as they are settings
        adam = {n: getattr(settings, f"adam_{n}") for n in names if hasattr(settings, f"adam_{n}")}
        return adam | ({"weight_decay": decay} if (decay := settings.weight_decay) else {})
    return {}


def copies(settings: Any, call: Call) -> Array:
    """How much targets take over after each update of a call [K]: `tau` for each multiple of
    `target_every` among the environment steps that the update is for, an even part of the call's,
    where several come together 1 - (1 - tau) ** n. Whole copies wait for the call's last update."""
    count, tau = len(call.progress), settings.tau
    share = np.arange(count + 1, dtype=np.int64)
    steps = call.begin * count + (call.end - call.begin) * share
    passed = steps // (count * settings.target_every)
    if tau == 1.0:
        passed[1:-1] = passed[0]
    due = np.diff(passed)
    return np.where(due > 1, 1.0 - (1.0 - tau) ** due, tau * due).astype(np.float32)


def each_nth(call: Call, n: int) -> Array:
    """1 for every n-th update since the run began, else 0; [K]."""
    updates = call.updates + 1 + np.arange(len(call.progress))
    return (updates % n == 0).astype(np.float32)
