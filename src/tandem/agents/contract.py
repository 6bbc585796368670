"""The user's inputs: arguments of `set` and `train`, and members of the agent. All of them are
checked before training starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, isnan, nan
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

import numpy as np

from tandem import backends
from tandem.agents.user_functions import PrioritizedReplay
from tandem.backends.variables import flat
from tandem.errors import SettingError, one_of
from tandem.replay.hindsight import STRATEGIES

# Arguments of `set`, by required type
COUNTS = (
    "pool_size",
    "batch",
    "num_updates",
    "num_steps",
    "update_batches",
    "update_steps",
    "trial_count",
)
NUMBERS = ("initial_ratio", "initial_TD", "lambda_", "alpha", "beta")
NUMBERS_OR_NONE = ("criterion", "epsilon", "k")
FLAGS = ("PPO", "HER", "MARL", "PR", "IRL", "TRL")


@dataclass(frozen=True)
class SetArguments:
    """Arguments of `set`, with their documented names and defaults. Raises SettingError for values
    out of range and for arguments that contradict each other."""

    # chooses actions from the output of `action`; or a list, one per environment or agent
    policy: Any = None
    noise: Any = None  # process added to the output of `action`; or such a list
    pool_size: int | None = None  # capacity in transitions; default 10,000
    batch: int | None = None  # transitions per minibatch; default 64
    # minibatches per training phase; None: see `usual_updates`, ten passes with PPO
    num_updates: int | None = None
    num_steps: int | None = None  # n of n-step transitions
    update_batches: int | None = None  # minibatches between calls of update_param
    # training phases between calls of update_param; for PPO, steps that a phase collects
    update_steps: int | None = None
    trial_count: int | None = None  # number of episodes that the criterion averages
    criterion: float | None = None  # mean return at which training ends
    PPO: bool = False
    HER: bool = False
    MARL: bool = False
    PR: bool = False
    IRL: bool = False
    epsilon: float | None = None  # added to priorities; default 1e-7
    initial_ratio: float = 1.0
    initial_TD: float = 7.0
    lambda_: float = 0.5  # weight of the TD error in PPO's priorities; the rest is the ratio's
    alpha: float = 0.7  # exponent of priorities
    TRL: bool = False  # batches of three steps of an episode, see `tandem.replay.triplets`
    beta: float = 0.4  # exponent of importance weights, which apply to per-sample losses
    # hindsight: relabeled transitions per transition with its own goal; None: relabel all
    k: float | None = 4.0
    strategy: str = "future"  # hindsight: where in the episode goals come from

    def __post_init__(self) -> None:
        for name in COUNTS:
            check_count(name, getattr(self, name))
        for name in (*NUMBERS, *NUMBERS_OR_NONE):
            _check_number(name, getattr(self, name))
        for name in FLAGS:
            if not isinstance(value := getattr(self, name), (bool, np.bool_, type(None))):
                raise SettingError(
                    f"{name}={value!r}.", "True or False", f"leave {name} out, or give True."
                )
        one_of("strategy", self.strategy, STRATEGIES)
        _check_explorers("policy", self.policy, "select_action")
        _check_explorers("noise", self.noise, "sample")
        self._check_together()

    def _check_together(self) -> None:
        """Raise SettingError for arguments that contradict each other or need another one."""
        if self.policy is not None and self.noise is not None:
            raise SettingError(
                "policy and noise are both given.",
                "a policy for action values or probabilities, or noise for continuous actions",
                "leave one of them out.",
            )
        if self.criterion is not None and self.trial_count is None:
            raise SettingError(
                f"criterion={self.criterion} requires trial_count.",
                "the number of episodes to average over",
                "set trial_count=10.",
            )
        if self.PPO and self.update_steps is None and self.update_batches is None:
            raise SettingError(
                "PPO=True requires update_steps or update_batches.",
                "the steps to collect before each training phase, or the minibatches between "
                "calls to update_param",
                "set update_steps=1000, for example.",
            )
        for one, other, why in (
            ("PPO", "HER", "hindsight relabels old transitions, and PPO cannot learn from these"),
            ("HER", "MARL", "goals belong to a single agent"),
            ("HER", "IRL", "the extra values of IRL belong to the original goal"),
        ):
            if getattr(self, one) and getattr(self, other):
                raise SettingError(
                    f"{one}=True is not supported with {other}=True.",
                    f"only one of them: {why}",
                    "leave one of them out.",
                )
        if self.TRL and (self.PPO or self.PR or self.HER or self.IRL or self.steps > 1):
            raise SettingError(
                "TRL=True is not supported with other modes or num_steps.",
                "TRL=True alone, or with MARL",
                "leave the other arguments out.",
            )
        if self.HER and self.steps > 1:
            raise SettingError(
                "HER=True is not supported with num_steps > 1.",
                "one-step transitions",
                "leave num_steps out.",
            )
        if self.size < self.minibatch or (self.PPO and self.size < (self.update_steps or 0)):
            raise SettingError(
                f"pool_size={self.size}, batch={self.minibatch}, update_steps={self.update_steps}.",
                "a pool large enough for a minibatch and, with PPO, the steps of a phase",
                "increase pool_size.",
            )

    @property
    def size(self) -> int:
        return self.pool_size or 10_000

    @property
    def minibatch(self) -> int:
        return self.batch or 64

    @property
    def steps(self) -> int:
        return self.num_steps or 1


@dataclass(frozen=True)
class TrainArguments:
    """Arguments of `train` that agents of both frameworks share, with their documented names and
    order; see `RL.train`. Raises SettingError for invalid counts."""

    optimizer: Any
    episodes: int | None
    pool_network: bool
    processes: int | None
    processes_her: int | None
    processes_pr: int | None
    window_size: int | None
    clearing_freq: int | None
    window_size_: int | None
    window_size_ppo: int | None
    window_size_pr: int | None
    random: bool
    save_data: bool
    num_store: int | None
    p: int | None
    parallel_store_and_training: bool | None
    layout: Any = None  # devices of distributed training
    batch: int | None = None  # global batch size over all devices; None: that of `set`

    def __post_init__(self) -> None:
        windows = ("window_size", "window_size_", "window_size_ppo", "window_size_pr")
        for name in ("episodes", "num_store", "p", *windows):
            check_count(name, getattr(self, name), 0)
        check_count("processes", self.processes)
        check_count("clearing_freq", self.clearing_freq)
        parallel = self.parallel_store_and_training
        if parallel not in (None, True, False):
            raise SettingError(
                f"parallel_store_and_training={parallel!r}.",
                "True, False or None",
                "leave parallel_store_and_training out, or give True.",
            )
        if parallel and not self.pool_network:
            raise SettingError(
                "parallel_store_and_training=True is not supported with pool_network=False.",
                "pool_network=True, so that other processes step the environments",
                "leave pool_network out.",
            )


def as_list(value: object) -> list[Any]:
    """Return one value or several as a list; an empty list for None."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def check_count(name: str, value: object, minimum: int = 1, none: bool = True) -> None:
    """Raise SettingError unless `value` is an integer of at least `minimum`, or None if `none`."""
    if value is None and none:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        expected = f"a whole number, at least {minimum}{', or None' if none else ''}"
        raise SettingError(f"{name}={value!r}.", expected, f"leave {name} out, or correct it.")


def _check_number(name: str, value: object) -> None:
    """Raise SettingError unless an argument of `set` is finite and not negative; criterion can be
    any number."""
    if value is None and name in NUMBERS_OR_NONE:
        return
    number = float(value) if isinstance(value, Real) else nan
    if isnan(number) if name == "criterion" else not 0 <= number < inf:
        expected = "a number" if name == "criterion" else "a number, at least 0"
        expected += ", or None" if name in NUMBERS_OR_NONE else ""
        raise SettingError(f"{name}={value!r}.", expected, f"leave {name} out, or give a number.")


def _check_explorers(name: str, value: object, method: str) -> None:
    """Raise SettingError if a policy or noise process, or one of several, lacks this method."""
    for one in as_list(value) or [value] * (value is not None):  # an empty list contains none
        if isinstance(one, type) or not callable(getattr(one, method, None)):
            raise SettingError(
                f"{name}={one!r}.",
                f"an object from tandem.exploration, any object with a method {method}, or a list "
                "of these",
                f"create one and pass it as {name}.",
            )


MEMBERS = {  # name -> (expected value, example line)
    "env": (
        "a Gymnasium environment, or any object with reset and step",
        'self.env = gymnasium.make("CartPole-v1")',
    ),
    "param": (
        "the trainable variables: a list, or a list of lists with one for each optimizer",
        "self.param = {param}",
    ),
    "action": (
        "a method action(s): returns the policy's input, or the action, for states [B, ...]",
        "def action(self, s): return self.q(s)",
    ),
    "__call__": (
        "a method __call__(s, a, next_s, r, d): returns the loss of a batch, or one per optimizer",
        "def __call__(self, s, a, next_s, r, d): return ((r - self.q(s)[:, 0]) ** 2).mean()",
    ),
    "update_param": (
        "a method update_param(): copies weights to target networks or to the old policy",
        "def update_param(self): assign_param(self.target.{weights}, self.q.{weights})",
    ),
}
REWARD_DONE_FUNC_MA = (
    "a method reward_done_func_ma(r, d): combines all agents' rewards and dones into one of each, "
    "for MARL=True",
    "def reward_done_func_ma(self, r, d): return np.mean(r), all(d)",
)
REWARD_DONE_FUNC = (
    "a method reward_done_func(next_state, goal): (reward, done), for HER=True; or an "
    "environment with compute_reward",
    "def reward_done_func(self, next_state, goal): far = np.abs(next_state - goal).max(-1) > 0.1; "
    "return -1.0 * far, ~far",
)
KERAS = {"param": "self.q.weights", "weights": "weights"}
TORCH = {"param": "list(self.q.parameters())", "weights": "parameters()"}


@dataclass
class Adjusted:
    """State of the adaptive rules."""

    start_size: float = 0.0  # effective sample size at the start of the phase
    noise: float | None = None  # smoothed gradient variance
    originals: dict[str, list[Any]] = field(default_factory=dict)  # by rule: original values
    values: dict[str, list[float]] = field(default_factory=dict)  # by rule: values that it set last
    exact: dict[str, float] = field(default_factory=dict)  # by rule: counts before rounding


class AgentMembers:
    """Attributes of an agent: the members that a subclass defines, training and saving options, and
    the records of its training."""

    torch = False

    # Members that a subclass defines, see MEMBERS
    env: Any = None
    param: Any = None
    action: Callable[..., Any]
    __call__: Callable[..., Any]
    update_param: Callable[[], object]
    build: Callable[[], object]  # see `tandem.agents.built_networks`
    build_: Callable[[Any], object]
    shared_param: Any = None
    reward_done_func_ma: Callable[..., Any]  # with MARL=True

    optimizer: Any = None  # that of the first `train`, unless set before
    seed = 7  # random seed of training; set it before the first `train`
    # Set to False if `action` has side effects or runs a search: then it is not compiled
    jit_action = True
    stop_training = False  # set it to end training, for example in a callback

    # Saving during training, see `tandem.runs.rotation.SavePolicy`
    path: str | Path | None = None
    save_freq: int | None = 1
    save_freq_: int | None = None
    max_save_files: int | None = None
    save_best_only = False
    save_param_only = False
    save_top_k: int | None = None
    save_last = False
    parallel_dump = False
    patience: int | None = None

    # Records; reward_list and loss_list have one entry per episode
    callbacks: list[Any]
    prioritized_replay: PrioritizedReplay
    loss_list: list[float]
    reward_list: list[float]
    total_episode = 0
    time = 0.0  # seconds of the last `train`
    total_time = 0.0

    has_own_loop = False  # whether a subclass defines `CTL`, see `distributed_training`

    _layout: Any = None  # devices of the last training
    _loss: float | None = None
    _arguments: SetArguments | None = None
    _built: list[str]  # names of the networks that `build` created
    _unrecorded: list[float]  # returns of episodes that ended in the current block
    _sample_sizes: dict[int | None, float]  # smoothed effective sample sizes, by process

    # Adaptive training, see `tandem.agents.adaptive`
    _adjusted: Adjusted
    initialize_adjusting: Callable[[], None]
    _start_size: Callable[[], float]
    measured: Callable[[], dict[str, float]]
    # minibatches used to measure gradient noise at the end of an episode, or None
    gradient_noise: int | None = None
    gradient_noise_scale: float | None = None  # simple noise scale, as last measured
    noise_scale_list: list[float]  # one entry per episode

    def __new__(cls, *_: object, **__: object) -> Self:
        """Create lists and other state even if a subclass does not call super().__init__()."""
        agent = super().__new__(cls)
        if not cls.torch:
            backends.prepare()
        agent.callbacks, agent.loss_list, agent.reward_list = [], [], []
        agent.prioritized_replay, agent._adjusted = PrioritizedReplay(), Adjusted()
        agent._sample_sizes, agent._unrecorded, agent.noise_scale_list = {}, [], []
        agent._built = []
        return agent

    def average_reward(self) -> float | None:
        """Return the mean return of the last trial_count episodes; None if there are fewer."""
        count = self._arguments.trial_count if self._arguments is not None else None
        if count is None or len(self.reward_list) < count:
            return None
        return float(np.mean(self.reward_list[-count:]))


def check_members(agent: AgentMembers, arguments: SetArguments) -> None:
    """Raise SettingError for the first member that is missing or invalid."""
    members = dict(MEMBERS)
    if arguments.MARL:
        members["reward_done_func_ma"] = REWARD_DONE_FUNC_MA
    if arguments.HER and not computes_reward(agent):
        members["reward_done_func"] = REWARD_DONE_FUNC
    for name, (expected, example) in members.items():
        member = agent if name == "__call__" else getattr(agent, name, None)
        if name in ("env", "param"):
            fits = member is not None and bool(as_list(member) if name == "env" else flat(member))
        else:
            fits = callable(member)
        if not fits:
            example = example.format(**(TORCH if agent.torch else KERAS))
            raise SettingError(
                f"{type(agent).__name__}.{name} is {'missing' if member is None else 'empty'}.",
                expected,
                f"for example: {example}",
            )
    param_variables(agent)
    check_count("agent.seed", agent.seed, 0, none=False)
    if not isinstance(agent.callbacks, (list, tuple)):
        raise SettingError(
            f"agent.callbacks is a {type(agent.callbacks).__name__}.",
            "a list of callbacks",
            "agent.callbacks = [callback].",
        )


def param_variables(agent: AgentMembers) -> list[Any]:
    """Return the variables in agent.param. Raises SettingError if it contains anything else."""
    variables, method = flat(agent.param), "requires_grad" if agent.torch else "assign"
    for x in variables:
        if not hasattr(x, method) or not hasattr(x, "shape"):
            raise SettingError(
                f"agent.param contains a {type(x).__name__}: {str(x)[:40]!r}.",
                "only network variables, without their names, in a list or a list of lists",
                f"for example: self.param = {(TORCH if agent.torch else KERAS)['param']}",
            )
    return variables


def computes_reward(agent: AgentMembers) -> bool:
    """Return whether the agent's environment computes the reward of a goal."""
    env = (as_list(agent.env) or [None])[0]
    return callable(getattr(getattr(env, "unwrapped", env), "compute_reward", None))


def param_groups(param: Any, optimizers: int) -> list[list[Any]]:
    """Return the variables of each optimizer. Raises SettingError unless several optimizers have a
    list of variables each."""
    if optimizers == 1:
        return [flat(param)]
    if (
        not isinstance(param, (list, tuple))
        or len(param) != optimizers
        or not isinstance(param[0], (list, tuple))
    ):
        raise SettingError(
            f"agent.param has {len(param)} entries for {optimizers} optimizers.",
            "a list of variables for each optimizer, in the same order",
            "self.param = [actor's variables, critic's variables].",
        )
    return [flat(group) for group in param]
