"""What `set` was told, checked at the door."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from numbers import Integral, Real
from typing import Any

import numpy as np

from tandem.errors import SettingError
from tandem.replay.hindsight import STRATEGIES

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
OPEN = ("criterion", "epsilon", "k")  # numbers that may be None
FLAGS = ("PPO", "HER", "MARL", "PR", "IRL", "TRL")


@dataclass(frozen=True)
class Choices:
    """The arguments of `set`, with their documented names and defaults."""

    # how actions are chosen from what `action` gives, or one for each environment or agent
    policy: Any = None
    noise: Any = None  # a process to add to what `action` gives; likewise
    pool_size: int | None = None  # transitions to keep; 10,000 by default
    batch: int | None = None  # transitions in a mini-batch; 64 by default
    num_updates: int | None = None  # mini-batches of a training phase
    num_steps: int | None = None  # of an n-step transition
    update_batches: int | None = None  # mini-batches between calls of update_param
    update_steps: int | None = (
        None  # training phases between calls of update_param; for PPO, steps that a phase collects
    )
    trial_count: int | None = None  # episodes that the criterion is a mean over
    criterion: float | None = None  # mean return at which training ends
    PPO: bool = False
    HER: bool = False
    MARL: bool = False
    PR: bool = False
    IRL: bool = False
    TRL: bool = False  # batches are of three steps of an episode, see `tandem.replay.triplets`
    epsilon: float | None = None  # added to priorities; 1e-7 by default
    initial_ratio: float = 1.0
    initial_TD: float = 7.0
    lambda_: float = 0.5  # share of the error in the priority of PPO, beside the ratio
    alpha: float = 0.7  # exponent of priorities
    beta: float = 0.4  # exponent of importance weights; they act on losses per sample
    k: float | None = (
        # hindsight: relabelled transitions for each one that keeps its goal; None: all are
        # relabelled
        4.0
    )
    strategy: str = "future"  # hindsight: where in the episode goals come from

    def __post_init__(self) -> None:
        for name in COUNTS:
            counted(name, getattr(self, name))
        for name in (*NUMBERS, *OPEN):
            value, least = getattr(self, name), None if name == "criterion" else 0
            fine = isinstance(value, Real) and (
                value == value if least is None else 0 <= float(value) < inf
            )
            if not fine and not (value is None and name in OPEN):
                wanted = "a number" if least is None else "a number from 0 on"
                wanted += ", or None" if name in OPEN else ""
                raise SettingError(
                    f"{name}={value!r}.", wanted, f"leave {name} out, or give a number."
                )
        for name in FLAGS:
            if not isinstance(value := getattr(self, name), (bool, np.bool_, type(None))):
                raise SettingError(
                    f"{name}={value!r}.", "True or False", f"leave {name} out, or give True."
                )
        if self.strategy not in STRATEGIES:
            raise SettingError(
                f"strategy={self.strategy!r}.", f"one of {', '.join(STRATEGIES)}", "use 'future'."
            )
        for name, method in (("policy", "select_action"), ("noise", "sample")):
            for one in each(given := getattr(self, name)) or [given] * (given is not None):
                if isinstance(one, type) or not callable(getattr(one, method, None)):
                    raise SettingError(
                        f"{name}={one!r}.",
                        f"an object of tandem.exploration, or another with a method {method}, or "
                        "a list of them",
                        f"make one, and give it as {name}.",
                    )
        if self.policy is not None and self.noise is not None:
            raise SettingError(
                "policy and noise are both given.",
                "a policy for action values or probabilities, or noise for actions that are "
                "numbers",
                "leave one of them out.",
            )
        if self.criterion is not None and self.trial_count is None:
            raise SettingError(
                f"criterion={self.criterion} without trial_count.",
                "the number of episodes to average over",
                "set trial_count=10.",
            )
        if self.PPO and self.update_steps is None:
            raise SettingError(
                "PPO=True without update_steps.",
                "the steps to collect before each training phase",
                "set update_steps=1000, say.",
            )
        for one, other, why in (
            ("PPO", "HER", "hindsight relabels old transitions, which PPO must not learn from"),
            ("HER", "MARL", "goals are of one agent"),
            ("HER", "IRL", "what IRL keeps belongs to the goal that was acted for"),
        ):
            if getattr(self, one) and getattr(self, other):
                raise SettingError(
                    f"{one}=True and {other}=True.", f"one of them: {why}", "leave one of them out."
                )
        if self.TRL and (self.PPO or self.PR or self.HER or self.IRL or self.steps > 1):
            raise SettingError(
                "TRL=True with another mode or num_steps.",
                "TRL=True alone, or with MARL",
                "leave the other arguments out.",
            )
        if self.HER and self.steps > 1:
            raise SettingError(
                "HER=True and num_steps > 1.",
                "one-step transitions with hindsight",
                "leave num_steps out.",
            )
        if self.size < self.minibatch or (self.PPO and self.size < (self.update_steps or 0)):
            raise SettingError(
                f"pool_size={self.size}, batch={self.minibatch}, update_steps={self.update_steps}.",
                "a pool that holds a mini-batch, and for PPO the steps of a phase",
                "raise pool_size.",
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

    def explorers(self) -> list[Any]:
        """The policies or noise processes, as a list."""
        return each(self.policy if self.policy is not None else self.noise)


def each(given: Any) -> list[Any]:
    """One or several, as a list; None is none."""
    if given is None:
        return []
    return list(given) if isinstance(given, (list, tuple)) else [given]


def counted(name: str, value: Any, least: int = 1, none: bool = True) -> None:
    """SettingError where a number that counts something is none."""
    if (value is not None or not none) and (
        isinstance(value, bool) or not isinstance(value, Integral) or value < least
    ):
        wanted = f"a whole number from {least} on{', or None' if none else ''}"
        raise SettingError(
            f"{name}={value!r}.", wanted, f"leave {name} out, or give such a number."
        )


NAMES = [f.name for f in fields(Choices)]
