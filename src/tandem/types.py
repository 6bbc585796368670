"""The data that moves between parts: plain named tuples of arrays, and `tree_map` to reach into
them.

A *tree* is an array, a dict of trees or a (named) tuple of trees; `()` and None have no leaves.
Observations are trees: an array, or a dict of arrays where the observation space is a Dict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Array = Any  # a NumPy array, a torch tensor, or a tensor of the engine that Keras runs on
Tree = Any
Variable = Any  # a torch.nn.Parameter, or a keras.Variable

AnyArray = np.ndarray[Any, Any]  # NumPy's, of any dtype
BoolArray = np.ndarray[Any, np.dtype[np.bool_]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]
FloatArray = np.ndarray[Any, np.dtype[np.float64]]

Info = dict[str, Any]  # what an environment says beside an observation
EnvKwargs = Mapping[str, Any]  # keyword arguments that an environment is made with
JSONDict = dict[str, Any]
State = tuple[JSONDict, dict[str, AnyArray]]  # (JSON data, arrays): what a checkpoint keeps


class Batch(NamedTuple):
    """Transitions or rollout rows: what one update learns from. B = batch; shapes are [B, ...].

    Stacked for a call of K updates, every array has one axis more in front: [K, B, ...], and each
    setting is [K].
    """

    obs: Tree  # raw observations; normalisation is a layer of the network
    action: Array
    reward: Array = ()  # [B]  undiscounted, or the discounted sum of n steps
    # [B]  gamma ** n, and 0 where the episode terminated (not where it was cut)
    discount: Array = ()
    # what followed, n steps on; the true last observation where an episode was cut, and for
    # algorithms other than tandem's own also where it terminated
    next_obs: Tree = ()
    weight: Array = ()  # [B]  importance weights or masks; () means all ones
    noise: Tree = ()  # whatever randomness the losses need, drawn outside them
    # by-products of acting (log_prob ...) and what `prepare` made of them (advantage, return ...)
    extra: dict[str, Tree] = {}
    # name -> scalar: all that may change between updates (learning rate, clip, tau ...)
    settings: dict[str, Array] = {}


class Cuts(NamedTuple):
    """The true last observations of episodes that ended in a trajectory while the environment went
    on to reset itself in the same step. C = how many; `obs` is [C, ...].

    In a compiled run they are not known before it runs: `obs` is then [T, N, ...], what was seen
    after every step, `t` and `env` are (), and `dense(flag, f, x)` is the engine's way to say `f()
    if flag else x`."""

    t: Array  # int64 [C]
    env: Array  # int64 [C]
    obs: Tree
    dense: Callable[[Array, Callable[[], Tree], Tree], Tree] | None = None


class Trajectory(NamedTuple):
    """Collected data: T steps of N environments; shapes are [T, N, ...]; NumPy, but in a compiled
    run."""

    obs: Tree
    action: Array
    reward: Array  # float32 [T, N]
    discount: Array  # float32 [T, N]  gamma, and 0 where the episode terminated
    last: Array  # bool [T, N]  the episode ended with this step, either way
    # bool [T, N]  false for a step that only reset its environment: never learned from, never
    # counted
    valid: Array
    cuts: Cuts  # where the observation after a `last` row is not obs[t + 1]
    bootstrap: Tree  # [N, ...]  the observations after the last step
    extra: dict[str, Tree] = {}  # by-products of acting, [T, N, ...]
    state: Tree = ()  # [N, ...]  the actor's recurrent state before the first step


class Update(NamedTuple):
    """The result of one call of an algorithm's `update`."""

    metrics: dict[str, Array]  # name -> scalar
    priority: Array = ()  # [B]  new priorities, if a prioritized sampler wants them


class EpisodeResult(NamedTuple):
    """One finished episode, as the environment scored it."""

    env: int
    score: float  # the undiscounted sum of the environment's rewards
    length: int
    terminated: bool  # false where a limit cut it
    success: float | None = None  # 1 or 0, where the environment says it, in info["is_success"]


def tree_map(f: Callable[..., object], tree: Tree, *rest: Tree) -> Tree:
    """`f` applied to every leaf of `tree` (and of `rest`, trees of the same structure), in the same
    structure."""
    if not rest:  # most often, several times in each update: twice as quick by itself
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
    """The leaves of a tree, in its order."""
    if tree is None:
        return []
    if isinstance(tree, dict):
        return [x for v in tree.values() for x in leaves(v)]
    if isinstance(tree, tuple):
        return [x for v in tree for x in leaves(v)]
    return [tree]
