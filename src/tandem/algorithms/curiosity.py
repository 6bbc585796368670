"""Intrinsic rewards by random network distillation (Burda et al. 2019, arXiv:1810.12894) for
actor-critics that learn from rollouts: checks, networks, intrinsic advantages and the predictor's
loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from tandem.algorithms.base import Backend, Call, Forward
from tandem.errors import SettingError, SpaceError
from tandem.math.curiosity import forward_returns, kept, prediction_error
from tandem.math.moments import Moments
from tandem.math.returns import generalized_advantage
from tandem.networks.defaults import Role, Source, cnn, encoder, has_images
from tandem.networks.plan import Dense, Plan, Twin, width
from tandem.settings import Needs, by_name, setting
from tandem.spaces import Leaf, Spec, seen
from tandem.types import Array, Batch, Trajectory, Tree, tree_map

PAPER = "Burda et al. 2019"
CLIP = 5.0  # clipping threshold of standardized observations; section 2.4
RND = Needs(intrinsic="rnd")
ROLES = ("rnd", "rnd_target")  # the predictor, and the random network


@dataclass(frozen=True)
class CuriositySettings:
    """Settings of intrinsic rewards."""

    intrinsic: Literal["no", "rnd"] = setting(
        "no", "intrinsic reward: rnd (random network distillation)", PAPER
    )
    intrinsic_weight: float = setting(
        1.0,
        "with rnd: weight of advantages from intrinsic rewards",
        PAPER,
        minimum=0,
        needs=RND,
    )
    extrinsic_weight: float = setting(
        2.0,
        "with rnd: weight of advantages from extrinsic rewards",
        PAPER,
        minimum=0,
        needs=RND,
    )
    intrinsic_gamma: float = setting(
        0.99,
        "with rnd: discount factor of intrinsic rewards",
        PAPER,
        minimum=0,
        maximum=1,
        needs=RND,
    )
    rnd_features: int = setting(
        512,
        "with rnd: number of predicted features, and width of the predictor's last hidden layers",
        PAPER + ", released code",
        minimum=1,
        needs=RND,
    )
    rnd_share: float = setting(
        0.25,
        "with rnd: fraction of each batch that trains the predictor",
        PAPER,
        above=0,
        maximum=1,
        fix="try 0.25.",
        needs=RND,
    )


def check(name: str, observation: Spec, settings: Any) -> None:
    """Raise SettingError or SpaceError for what intrinsic rewards do not support."""
    if settings.intrinsic == "no":
        return
    odd = {"shared": False, "recurrent": 0, "value_norm": "no"}
    why = {
        "shared": "a separate critic, with a value for each type of reward",
        "recurrent": "feed-forward networks, since novelty is that of one observation",
        "value_norm": "values in the units of rewards; intrinsic rewards are already standardized",
    }
    for other, none in odd.items():
        if (value := by_name(settings).get(other, none)) != none:
            raise SettingError(
                f"{name} with intrinsic='rnd' does not support {other}={value!r}.",
                why[other],
                f"give {other}={none!r}, or intrinsic='no'.",
            )
    if isinstance(observation, dict) and has_images(observation):
        raise SpaceError(
            f"{name} with intrinsic='rnd' does not support images with other observations.",
            "one image, or no images",
            "select one with gymnasium.wrappers.FilterObservation, or give intrinsic='no'.",
        )


def roles(observation: Spec, action: Leaf, settings: Any) -> dict[str, Role]:
    """Return the roles of the random network and of the deeper predictor (section 2.2), which
    receive standardized observations."""
    inputs = input_of(seen(observation, action))
    units, gain = settings.rnd_features, 2**0.5
    body: Plan = encoder(inputs)
    if len(inputs.shape) == 3:
        body = cnn(inputs, "orthogonal")
    else:
        for size in settings.hidden:
            body += (Dense(width(body), size, "relu", "orthogonal", gain),)
    deep = tuple(Dense(n, units, "relu", "orthogonal", gain) for n in (0, units))
    last = Dense(0, units, "linear", "orthogonal", gain)
    heads = ((*deep, Dense(units, units, "linear", "orthogonal", gain)), (last,))
    return {n: Role(inputs, body, h, ours=True) for n, h in zip(ROLES, heads, strict=True)}


def input_of(spec: Spec) -> Leaf:
    """Return the input of the two networks: observations as one flat vector, or an image with
    channels last."""
    if isinstance(spec, dict) or not spec.image:
        return Leaf("box", (width(encoder(spec)),), "float32")
    return Leaf("box", picture(spec, np.empty((0, *spec.shape))).shape[1:], "float32")


def picture(leaf: Leaf, x: Array) -> Array:
    """Return images [rows, H, W, channels]; of a stack, the newest frame."""
    if leaf.shape[0] < leaf.shape[2]:
        x = np.moveaxis(x, 1, -1)
    return x[..., -1:] if leaf.stack > 1 else x


class Curiosity:
    """The predictor, and the running statistics, which are in the algorithm's `memory`."""

    def __init__(
        self,
        backend: Backend,
        networks: dict[str, Source],
        observation: Spec,
        action: Leaf,
        settings: Any,
    ) -> None:
        self.settings = settings
        self.network, self.target = (backend.network(n, networks[n]) for n in ROLES)
        spec = seen(observation, action)
        self.shape = input_of(spec).shape
        self.width = math.prod(self.shape)
        self.encode: Callable[[Tree], Array]
        if isinstance(spec, dict) or not spec.image:
            self.encode = Twin(encoder(spec), {})
        else:
            self.encode = partial(picture, spec)
        self.begin = {
            **{f"observation/{n}": x for n, x in Moments(self.width).state().items()},
            **{f"return/{n}": x for n, x in Moments(1).state().items()},
            "running": np.zeros(settings.envs),
            "rollouts": np.zeros((), np.int64),
        }

    def prepare(
        self,
        t: Trajectory,
        rows: Batch,
        values: tuple[Array, Array],
        networks: dict[str, Forward],
        memory: dict[str, Array],
    ) -> tuple[Batch, dict[str, Array]]:
        """Return the rows of a rollout with both types of rewards, and the new statistics. values:
        intrinsic values of the rollout's observations [T, N], and of those after it [N]."""
        s, (value, bootstrap) = self.settings, values
        observations, returns = Moments(self.width), Moments(1)
        for moments, name in ((observations, "observation/"), (returns, "return/")):
            moments.load_state({n: memory[name + n] for n in moments.state()})
        shape, valid = t.reward.shape, t.valid.reshape(-1)
        after = tree_map(lambda x: x.reshape(-1, *x.shape[2:]), following(t))
        seen = self.encode(after).reshape(valid.size, self.width)
        observations.add(seen[valid])
        deviation = np.sqrt(observations.variance + 1e-8)
        standard = np.clip((seen - observations.mean) / deviation, -CLIP, CLIP).astype(np.float32)
        if len(self.shape) == 3:  # the layer for images divides by 255
            standard = (255 * standard).reshape(-1, *self.shape)
        target = networks["rnd_target"](standard)
        error = prediction_error(networks["rnd"](standard), target).reshape(shape)
        reward = np.where(t.valid, error, 0.0)
        summed, running = forward_returns(reward, memory["running"], s.intrinsic_gamma)
        returns.add(summed[t.valid][:, None])
        reward = (reward / np.sqrt(returns.variance[0] + 1e-8)).astype(np.float32)
        # section 2.3: intrinsic returns are non-episodic: novelty has the same value in any episode
        discount = np.full(shape, s.intrinsic_gamma, np.float32)
        endless = np.zeros(shape, bool)
        advantage = generalized_advantage(reward, discount, endless, value, bootstrap, s.gae_lambda)
        count = int(memory["rollouts"])
        intrinsic = {"return": (advantage + value).reshape(-1), "value": value.reshape(-1)}
        both = {n: np.stack([rows.extra[n], x], -1) for n, x in intrinsic.items()}
        weights = np.float32(s.extrinsic_weight), np.float32(s.intrinsic_weight)
        both["advantage"] = weights[0] * rows.extra["advantage"] + weights[1] * advantage.reshape(
            -1
        )
        own = {"followed": standard, "features": target, "draw": _draws(0, count, valid.size)}
        kept_on = {
            **{f"observation/{n}": x for n, x in observations.state().items()},
            **{f"return/{n}": x for n, x in returns.state().items()},
            "running": running,
            "rollouts": np.array(count + 1),
        }
        return rows._replace(extra={**rows.extra, **both, **own}), kept_on

    def join(self, loss: Array, aux: dict[str, Array], b: Batch) -> tuple[Array, dict[str, Array]]:
        """Return a loss [rows] and its metrics, with those of the predictor added."""
        error = prediction_error(self.network(b.extra["followed"]), b.extra["features"])
        chosen = kept(b.extra["draw"], b.settings["draw_offset"], self.settings.rnd_share)
        return loss + chosen * error, {**aux, "prediction_error": error}

    def schedule(self, call: Call) -> dict[str, Array]:
        """Return offsets that select the predictor's rows in each update of a call."""
        return {"draw_offset": _draws(1, call.updates, len(call.progress))}


def following(t: Trajectory) -> Tree:
    """Return the observations after each step [T, N, ...], including true last observations."""

    def after(x: Array, last: Array, cut: Array) -> Array:
        moved = np.concatenate([x[1:], last[None]])
        moved[t.cuts.t, t.cuts.env] = cut
        return moved

    if not len(t.cuts.t):
        return tree_map(lambda x, last: np.concatenate([x[1:], last[None]]), t.obs, t.bootstrap)
    return tree_map(after, t.obs, t.bootstrap, t.cuts.obs)


def _draws(what: int, number: int, size: int) -> Array:
    # the same numbers in every run; the run's seed determines the rows they belong to
    return np.random.default_rng([what, number]).random(size, np.float32)
