"""The data passed between components, as named tuples of arrays, and `tree_map` to transform it.

A *tree* is an array, a dict of trees or a (named) tuple of trees; `()` and None have no leaves.
Observations are trees: an array, or a dict of arrays if the observation space is a Dict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Array = Any  # a NumPy array, a torch tensor, or a tensor of the Keras backend
Tree = Any
Variable = Any  # a torch.nn.Parameter, or a keras.Variable

AnyArray = np.ndarray[Any, Any]  # a NumPy array of any dtype
BoolArray = np.ndarray[Any, np.dtype[np.bool_]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]
FloatArray = np.ndarray[Any, np.dtype[np.float64]]

Info = dict[str, Any]  # extra information that an environment returns with an observation
EnvKwargs = Mapping[str, Any]  # keyword arguments of an environment
JSONDict = dict[str, Any]
State = tuple[JSONDict, dict[str, AnyArray]]  # contents of a checkpoint: (JSON data, arrays)


class Batch(NamedTuple):
    """Transitions or rollout rows that one update learns from. B is the batch size; shapes are [B,
    ...].

    For a call of K updates, every array has an additional first axis, [K, B, ...], and each setting
    is [K].
    """

    obs: Tree  # raw observations; normalization is a layer of the network
    action: Array
    reward: Array = ()  # [B]  undiscounted, or the discounted n-step sum
    # [B]  gamma ** n, or 0 if the episode terminated (not if it was truncated); n is smaller where
    # an episode, a sequence or the buffer ends
    discount: Array = ()
    # the observation n steps later; the true last observation of a truncated episode; of a
    # terminated one with hindsight and for custom algorithms
    next_obs: Tree = ()
    weight: Array = ()  # [B]  importance weights or masks; () means all 1
    noise: Tree = ()  # random numbers for the losses, sampled beforehand
    # by-products of acting (log_prob ...) and results of `prepare` (advantage, return ...); for
    # several learners a gradient to apply
    extra: dict[str, Tree] = {}
    # name -> scalar: values that may change between updates (learning rate, clip ...)
    settings: dict[str, Array] = {}


class Cuts(NamedTuple):
    """True last observations of episodes that ended in a trajectory whose environment reset itself
    in the same step. C is their number; `obs` is [C, ...].

    A compiled run does not know them beforehand: `obs` is then [T, N, ...], the observation after
    every step, `t` and `env` are (), and `dense(flag, f, x)` is the backend's form of `f() if flag
    else x`.
    """

    t: Array  # int64 [C]
    env: Array  # int64 [C]
    obs: Tree
    dense: Callable[[Array, Callable[[], Tree], Tree], Tree] | None = None


class Trajectory(NamedTuple):
    """T collected steps of N environments. Shapes are [T, N, ...]; arrays are NumPy's, except in a
    compiled run."""

    obs: Tree
    action: Array
    reward: Array  # float32 [T, N]
    discount: Array  # float32 [T, N]  gamma, or 0 if the episode terminated
    last: Array  # bool [T, N]  the episode ended with this step, terminated or truncated
    # bool [T, N]  false for a step that only reset its environment: neither learned from nor
    # counted
    valid: Array
    cuts: Cuts  # cases where the observation after a `last` row is not obs[t + 1]
    bootstrap: Tree  # [N, ...]  observations after the last step
    extra: dict[str, Tree] = {}  # by-products of acting, [T, N, ...]
    state: Tree = ()  # [N, ...]  the actor's recurrent state before the first step


class Update(NamedTuple):
    """The result of an algorithm's `update`."""

    metrics: dict[str, Array]  # name -> scalar
    priority: Array = ()  # [B]  new priorities, for prioritized samplers


class EpisodeResult(NamedTuple):
    """One finished episode, as scored by the environment."""

    env: int
    score: float  # undiscounted sum of the environment's rewards
    length: int
    terminated: bool  # false if it was truncated
    success: float | None = None  # 1 or 0, if the environment reports info["is_success"]


def tree_map(f: Callable[..., object], tree: Tree, *rest: Tree) -> Tree:
    """Apply `f` to every leaf of `tree` (and of `rest`, trees of the same structure). Return a tree
    of the same structure."""
    if not rest:  # the usual case, several times per update: twice as fast separately
        return _map_one(f, tree)
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {k: tree_map(f, v, *(r[k] for r in rest)) for k, v in tree.items()}
    if isinstance(tree, tuple):
        parts = [tree_map(f, *xs) for xs in zip(tree, *rest, strict=True)] if tree else ()
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return f(tree, *rest)


def _map_one(f: Callable[..., object], tree: Tree) -> Tree:
    if isinstance(tree, tuple):
        parts = [_map_one(f, x) for x in tree]
        return type(tree)._make(parts) if hasattr(tree, "_make") else tuple(parts)
    if isinstance(tree, dict):
        return {k: _map_one(f, v) for k, v in tree.items()}
    return None if tree is None else f(tree)


def leaves(tree: Tree) -> list[Array]:
    """Return the leaves of a tree in order."""
    if tree is None:
        return []
    if isinstance(tree, dict):
        return [x for v in tree.values() for x in leaves(v)]
    if isinstance(tree, tuple):
        return [x for v in tree for x in leaves(v)]
    return [tree]
