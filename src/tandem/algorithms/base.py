"""The base class of algorithms: settings with their sources, network roles, the loss, the update
and the acting policy. An algorithm uses arrays and the backend interface; it never sees
environments, buffers, files or clocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from tandem.algorithms import bodies, gsde, memories, recurrent_batches

# re-exported, as is Source, for the constructors of algorithms
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

NOISY = "Fortunato et al. 2018, section 3"
Forward = Callable[[Tree], Array]  # a network for inference: NumPy in, NumPy out


def step_size(default: Schedule, help: str, source: str = "") -> Any:
    """Return a setting for the step size of an optimizer.

    Gradients with a finite norm are below 1.9e19 in float32, so a step of at most 1e6 times such a
    gradient cannot overflow. Weights therefore stay finite without a check after each update.
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
    # collectors store it as the `discount` of each row, which the losses read
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

    # Constants that most algorithms replace by settings
    recurrent = 0  # units of the recurrent layer; 0: none
    memory = "gru"  # type of the recurrent layer
    action_noise = "gaussian"  # exploration noise of continuous actions
    normalize_observations = False
    normalize_rewards = False

    def settled(self, given: Iterable[str]) -> Self:
        """Return the settings with defaults replaced by values that other settings imply. Settings
        that the user has `given`, by name, do not change."""
        return self

    @property
    def block(self) -> int:
        """Steps of each environment between two update calls."""
        raise NotImplementedError

    @property
    def update_rate(self) -> float:
        """Approximate number of updates per environment step."""
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

    # Constants that most algorithms with a replay buffer replace by settings
    n_step = 1  # steps of reward before bootstrapping
    prioritized = False
    hindsight = "no"  # strategy for the goals of relabeled transitions
    burn_in = 0  # first steps of a replayed sequence that only update the recurrent state
    start_state = "stored"  # recurrent state at the start of a replayed sequence

    def settled(self, given: Iterable[str]) -> Self:
        """Round train_every to the nearest multiple of the number of environments, which step
        together. Updates per step stay the same, up to rounding to a whole number per call."""
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


def n_step(source: str = "") -> Any:
    """Return the setting for the number of rewards before the bootstrap value."""
    return setting(1, "number of steps in n-step returns", source, minimum=1)


@dataclass(frozen=True)
class RolloutSettings(Settings):
    """Settings of algorithms that discard each rollout after learning from it."""

    envs: int = default(8)
    rollout: int = setting(256, "steps per environment between updates", minimum=1)

    # Constants that most algorithms with rollouts replace by settings
    epochs = 1  # passes over each rollout
    batch_size = 0  # rows per update; 0: the whole rollout
    standardize_rewards = False

    @property
    def block(self) -> int:
        return self.rollout

    @property
    def update_rate(self) -> float:
        return self.epochs / (self.batch_size or self.rollout * self.envs)


class Call(NamedTuple):
    """The position of a call of K updates within its run."""

    progress: Array  # [K]  in [0, 1]
    begin: int  # environment steps before the data collected for this call
    end: int  # environment steps after it
    updates: int  # updates made before this call


class Algorithm(ABC):
    """Base class of algorithms, one per paper. `needs` names the training data: "transitions" from
    a replay buffer, whole "rollouts", discarded after their epochs, or "sequences" of steps, new
    and replayed. Subclasses have `__init__(backend, networks, observation, action, settings)`."""

    Settings: ClassVar[type[Settings]]
    settings: Any  # an instance of Settings
    backend: Backend
    needs: ClassVar[Literal["transitions", "rollouts", "sequences"]]
    acting: ClassVar[tuple[str, ...]]  # the roles that `act` uses
    preparing: tuple[str, ...] = ()  # the roles that `prepare` or `remembered` uses
    # the roles in `preparing` whose input is computed by `prepare`, not the raw observations
    apart: tuple[str, ...] = ()
    sequence = 0  # steps per row of prepared or replayed data; 0: each row is one step
    # array, or dict of arrays, that `prepare` or `remembered` updates; saved in checkpoints
    memory: Tree = ()
    valued: ClassVar[bool] = False  # the network outputs action values, not a policy
    team: ClassVar[bool] = False  # multi-agent; networks receive one row per agent: see `teams`
    # the losses need the steps inside n-step transitions: `extra` has their observations "between"
    # [B, n - 1, ...] and "between_discount" [B, n - 1]: gamma ** k at step k, 0 after an end
    sees_between: ClassVar[bool] = False

    def _make_optimizer(self, name: str, networks: list[Network]) -> Any:
        """Return the optimizer of these networks, according to the settings."""
        options = optimizer_options(self.settings)
        return self.backend.optimizer(name, networks, self.settings.optimizer, **options)

    @classmethod
    def distribution(cls, settings: Any, action: Leaf) -> Distribution:
        """Return the distribution of actions, parameterized by the network's output."""
        return for_actions(action)

    @classmethod
    def action_mode(cls, settings: Any, action: Leaf) -> ActionMode:
        """Return the mode that maps policy actions to environment actions."""
        return cls.distribution(settings, action).action_mode

    @classmethod
    @abstractmethod
    def check(cls, observation: Spec, action: Leaf, settings: Any) -> None:
        """Raise SpaceError or SettingError for spaces and settings that it does not support."""

    @classmethod
    @abstractmethod
    def roles(cls, observation: Spec, action: Leaf, settings: Any) -> dict[str, Role]:
        """Return the networks by name, with their default feature extractors and heads."""

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
        """Return the source of each role's network (see `networks.defaults.sources`), with noisy
        heads if enabled.

        Raises:
            SettingError: For noisy networks with custom networks by role.
        """
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
        """Update all trained networks once. This method is traced and compiled: values that change
        between updates are in the batch and its `settings`; `self.settings` are constants."""

    def whole_update(self) -> Callable[[Batch], Update] | None:
        """Return an update on the whole rollout that precedes its minibatch updates, or None."""
        return None

    @abstractmethod
    def schedule(self, call: Call) -> dict[str, Array]:
        """Return the scheduled settings of a call's updates: name -> [K]."""

    def scheduled(self, call: Call, *names: str) -> dict[str, Array]:
        """Return the values [K] of these settings, schedules or constants, at each update of a
        call, with warmup applied to learning rates."""
        values = {n: getattr(self.settings, n) for n in names}
        if values.get("max_grad_norm") == 0:
            values["max_grad_norm"] = np.inf  # which clips nothing, in compiled updates too
        count = len(call.progress)
        scheduled = {
            n: s(call.progress) if isinstance(s, Schedule) else np.full(count, s, np.float32)
            for n, s in values.items()
        }
        if warmup := self.settings.learning_rate_warmup:
            updates = call.updates + 1 + np.arange(count, dtype=np.int32)
            risen = updates.clip(0, warmup) / np.float32(warmup)
            scheduled |= {
                n: (x * risen).astype(np.float32)
                for n, x in scheduled.items()
                if n.endswith("learning_rate")
            }
        return scheduled

    def loss_noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Tree:
        """Return the random numbers of the losses for batches of `shape` ([K, B]); () for none."""
        return ()

    def buffer_extras(self, action: Leaf) -> dict[str, Leaf]:
        """Return the entries of a trajectory's `extra` that a replay buffer stores with each step.
        Names that end in "_state" are recurrent states."""
        return {}

    def remembered(self, t: Trajectory, networks: dict[str, Forward]) -> dict[str, Array]:
        """Return the recurrent states of networks that do not act, for `buffer_extras`:
        name -> [T, N, ...]."""
        return {}

    @staticmethod
    def initial_state(settings: Any, action: Leaf, n: int) -> Tree:
        """Return the recurrent state of `act` at the start of n episodes; () for none."""
        return memories.begin(settings, n)

    @classmethod
    def kept(cls, settings: Any, action: Leaf, state: Tree, out: Array = ()) -> dict[str, Array]:
        """Return the extras stored with a step, from the recurrent state before it and the
        network's output; `out` is () if it is not available for every row."""
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
        """Return the random numbers for exploration on observations of `shape` ([T, N]), at
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
        """Return actions for a batch of observations.

        Args:
            settings: The algorithm's settings.
            action: The action space.
            networks: The networks of the roles in `acting`.
            obs: Observations, [N, ...].
            state: Recurrent state; () for feed-forward networks.
            noise: Random numbers from `exploration_noise`; None: deterministic actions.

        Returns:
            Actions [N, ...], extras to store with each step, next recurrent state.
        """
        policy = cls.distribution(settings, action)
        out, after = recurrent_batches.advance(networks[cls.acting[0]], obs, state)
        chosen = policy.act(masked(policy.part(out), obs, action), noise)
        return chosen, cls.kept(settings, action, state, out), after

    def prepare(self, trajectory: Trajectory, networks: dict[str, Forward]) -> Batch:
        """Return the training data, computed once per rollout.

        For "rollouts" these are rows [T * N, ...] with advantages and returns; for "sequences",
        [T + 1, N, ...] with the stored outputs of the acting policy.
        """
        raise NotImplementedError


def refuse_lacking(name: str, settings: Any) -> None:
    """Raise SettingError for an inherited setting that the algorithm of this name `lacks`, unless
    it has its default. `lacks` is a dict: setting -> what the algorithm has instead."""
    usual = type(settings)()
    for what, instead in settings.lacks.items():
        value, plain = getattr(settings, what), getattr(usual, what)
        if value != plain:
            happened = f"{name} does not support {what}={value!r}."
            raise SettingError(happened, instead, f"give {what}={plain!r}.")


def optimizer_options(settings: Any) -> dict[str, float]:
    """Return the options of the optimizer `settings.optimizer` (default Adam): Adam's epsilon,
    beta1 and weight decay, or RMSProp's decay and epsilon. Raise SettingError for weight decay with
    other optimizers."""
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
        names = ("epsilon", "beta1")  # not every algorithm has them as settings
        adam = {n: getattr(settings, f"adam_{n}") for n in names if hasattr(settings, f"adam_{n}")}
        return adam | ({"weight_decay": decay} if (decay := settings.weight_decay) else {})
    return {}


def copies(settings: Any, call: Call) -> Array:
    """Return the soft update coefficient of the targets after each update of a call, [K].

    The environment steps of the call are divided evenly among its updates. An update whose steps
    include n multiples of `target_every` gets 1 - (1 - tau) ** n, which is `tau` for n = 1. Full
    copies (tau = 1) wait for the last update of the call."""
    count, tau = len(call.progress), settings.tau
    share = np.arange(count + 1, dtype=np.int64)
    steps = call.begin * count + (call.end - call.begin) * share
    passed = steps // (count * settings.target_every)
    if tau == 1.0:
        passed[1:-1] = passed[0]
    due = np.diff(passed)
    return np.where(due > 1, 1.0 - (1.0 - tau) ** due, tau * due).astype(np.float32)


def each_nth(call: Call, n: int) -> Array:
    """Return 1 for every n-th update since the start of the run, else 0; [K]."""
    updates = call.updates + 1 + np.arange(len(call.progress))
    return (updates % n == 0).astype(np.float32)
