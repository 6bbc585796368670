"""What a user's agent has to define, and whether it does: told before training starts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from math import isqrt
from typing import Any

import numpy as np

from tandem.agents.choices import counted
from tandem.backends.broadcast_check import squares
from tandem.backends.variables import flat
from tandem.errors import NetworkError, SettingError
from tandem.types import Batch, leaves, tree_map

MEMBERS = {  # name -> (what it is or returns, a line of example)
    "env": (
        "an environment: Gymnasium's, or an object with reset and step",
        'self.env = gymnasium.make("CartPole-v1")',
    ),
    "param": (
        "the trainable variables: a list, or a list of lists with one for each optimizer",
        "self.param = {param}",
    ),
    "action": (
        "a method action(s): what the policy chooses from, or the action, for states [B, ...]",
        "{action}",
    ),
    "__call__": (
        "a method __call__(s, a, next_s, r, d): the loss of a batch, or one for each optimizer",
        "def __call__(self, s, a, next_s, r, d): return ((r - self.q(s)[:, 0]) ** 2).mean()",
    ),
    "update_param": (
        "a method update_param(): copies weights to target networks or to the old policy",
        "def update_param(self): assign_param(self.target.{weights}, self.q.{weights})",
    ),
}
MORE = {
    "reward_done_func_ma": (
        "a method reward_done_func_ma(r, d): one reward and one end of those of all agents, for "
        "MARL=True",
        "def reward_done_func_ma(self, r, d): return np.mean(r), all(d)",
    ),
    "reward_done_func": (
        "a method reward_done_func(next_state, goal): (reward, done), for HER=True; or an "
        "environment with compute_reward",
        "def reward_done_func(self, next_state, goal): return -float(np.linalg.norm(next_state - "
        "goal) > 0.1), False",
    ),
}
KERAS = {
    "param": "self.q.weights",
    "weights": "weights",
    "action": "def action(self, s): return self.q(s)",
}
TORCH = {
    "param": "list(self.q.parameters())",
    "weights": "parameters()",
    "action": "def action(self, s): return self.q(s)",
}


def members(agent: Any, choices: Any, torch: bool) -> None:
    """SettingError for the first member that a subclass forgot."""
    wanted = dict(MEMBERS)
    if choices.MARL:
        wanted["reward_done_func_ma"] = MORE["reward_done_func_ma"]
    if choices.HER and not judges(agent):
        wanted["reward_done_func"] = MORE["reward_done_func"]
    for name, (what, example) in wanted.items():
        found = agent if name == "__call__" else getattr(agent, name, None)
        if name in ("env", "param"):
            fine = found is not None and bool(environments(agent) if name == "env" else flat(found))
        else:
            fine = callable(found)
        if not fine:
            have = "is empty" if found is not None else "is missing"
            words = TORCH if torch else KERAS
            raise SettingError(
                f"{type(agent).__name__}.{name} {have}.",
                what,
                "for example: " + (example.format(**words) if "{" in example else example),
            )
    variables(agent, torch)
    counted("agent.seed", agent.seed, 0, none=False)
    if not isinstance(agent.callbacks, (list, tuple)):
        raise SettingError(
            f"agent.callbacks is a {type(agent.callbacks).__name__}.",
            "a list of objects",
            "agent.callbacks = [callback].",
        )


def variables(agent: Any, torch: bool) -> list[Any]:
    """The variables in agent.param. SettingError where there is something else in it."""
    found, sign = flat(agent.param), "requires_grad" if torch else "assign"
    if strangers := [x for x in found if not hasattr(x, sign) or not hasattr(x, "shape")]:
        raise SettingError(
            f"in agent.param is a {type(strangers[0]).__name__}: {str(strangers[0])[:40]!r}.",
            "variables of networks alone, without their names, in a list or in lists of lists",
            f"for example: self.param = {(TORCH if torch else KERAS)['param']}",
        )
    return found


def judges(agent: Any) -> bool:
    """Whether the agent's environment says itself what a goal is worth."""
    env = (environments(agent) or [None])[0]
    return callable(getattr(getattr(env, "unwrapped", env), "compute_reward", None))


def environments(agent: Any) -> list[Any]:
    """The agent's environments, be it one or a list."""
    return list(agent.env) if isinstance(agent.env, (list, tuple)) else [agent.env]


def groups(param: Any, optimizers: int) -> list[list[Any]]:
    """The variables of each optimizer. SettingError where there are as many optimizers as there are
    no lists."""
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
    return [flat(part) for part in param]


def rehearse(algorithm: Any, backend: Any, batch: Batch, lengths: Iterable[int]) -> None:
    """Computes or traces the loss once on copies of a batch of one row, as many as no other length:
    names what is wrong with it, and arrays with two axes of that length, [B, B]. Nothing is
    changed."""
    rows = odd(lengths)
    several = tree_map(lambda x: np.repeat(x, rows, 0), batch)._replace(
        weight=np.ones(rows, np.float32)
    )
    if backend.framework == "torch":
        several = backend.to_device(several)
    before = backend.state()
    try:
        found = squares(backend.framework, lambda b: algorithm.losses(b)[0], several, rows)
    finally:
        backend.load_state(before)
    if found:
        raise NetworkError(
            f"the loss of {rows} samples makes an array of shape ({rows}, {rows}), each with each "
            f"other, in {found[0]}",
            "arrays of one number for each sample: (B,), or (B, 1) with (B, 1)",
            "squeeze the axis of length 1 before arrays of shapes (B, 1) and (B,) meet.",
        )


def odd(lengths: Iterable[int]) -> int:
    """A prime from 11 on that is none of these."""
    taken = set(lengths)
    return next(
        n for n in count(11, 2) if n not in taken and all(n % d for d in range(3, isqrt(n) + 1, 2))
    )


def lengths(networks: Iterable[Any], batch: Batch) -> set[int]:
    """Of all axes of weights and of arrays in a batch."""
    arrays = [x for net in networks for x in net.read().values()] + [
        x for x in leaves(batch) if hasattr(x, "shape")
    ]
    return {n for x in arrays for n in np.shape(x)}
