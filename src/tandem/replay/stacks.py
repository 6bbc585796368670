"""Stacks of images, stored as one image per row: split when written, rebuilt when sampled.

Of an observation [k, ...] the newest image is stored, and its *age*: the number of its images,
counted back from the newest, that are not all zeros. These are the newest images of the previous
rows, all of the same episode; the others are zeros. The starts of episodes are therefore not
needed.
"""

from __future__ import annotations

import numpy as np

from tandem.errors import EnvironmentFault, SpaceError
from tandem.spaces import Leaf
from tandem.types import AnyArray, IntArray


def stored(name: str, leaf: Leaf) -> dict[str, Leaf]:
    """Return the columns that store an observation: itself, or an image and its age."""
    if not leaf.stack:
        return {name: leaf}
    if leaf.shape[:1] != (leaf.stack,):
        raise SpaceError(
            f"observations of shape {leaf.shape} are declared to be stacks of {leaf.stack}.",
            f"{leaf.stack} images along the first axis",
            "set the attribute `stack` of the Box to the length of its first axis, or remove it.",
        )
    return {
        name: Leaf(leaf.kind, leaf.shape[1:], leaf.dtype),
        f"age/{name}": Leaf("discrete", (), "uint8"),
    }


def apart(x: AnyArray, leaf: Leaf, name: str) -> list[AnyArray]:
    """Split observations [..., *leaf.shape] into arrays for the columns of `stored`."""
    if not leaf.stack:
        return [x]
    if x.shape[-len(leaf.shape) :] != leaf.shape:
        raise SpaceError(
            f"{name} has shape {x.shape}.",
            f"stacks of shape {leaf.shape}",
            "reshape it to the environment's spaces in the collector.",
        )
    batch_shape = x.shape[: x.ndim - len(leaf.shape)]
    flat = x.reshape(-1, leaf.stack, int(np.prod(leaf.shape[1:])))
    age = np.full(len(flat), leaf.stack, np.uint8)
    short = np.flatnonzero(~flat[:, 0].any(axis=-1))  # few rows, at the starts of episodes
    if short.size:
        filled = np.asarray(flat[short].any(axis=-1))
        filled[:, -1] = True
        age[short] = leaf.stack - filled.argmax(axis=1)
    newest = flat[:, -1].reshape(*batch_shape, *leaf.shape[1:])
    return [newest, age.reshape(batch_shape)]


def together(pictures: AnyArray, ages: AnyArray, at: IntArray, envs: int, k: int) -> AnyArray:
    """Return the stacks [B, k, ...] of the rows at positions `at` [B].

    pictures, ages: the columns [rows, ...], in which a time step is `envs` rows.
    """
    before = np.arange(k - 1, -1, -1) * envs
    stacks = pictures.take(at[:, None] - before, axis=0, mode="wrap")
    return blanked(stacks, ages.take(at))


def after(
    pictures: AnyArray, at: IntArray, envs: int, k: int, last: AnyArray, age: AnyArray
) -> AnyArray:
    """Return the stacks [B, k, ...] after the rows at positions `at` [B], with newest images `last`
    [B, ...] and ages `age` [B]."""
    before = np.arange(k - 2, -1, -1) * envs
    stacks = np.empty((len(at), k, *pictures.shape[1:]), pictures.dtype)
    stacks[:, :-1] = pictures.take(at[:, None] - before, axis=0, mode="wrap")
    stacks[:, -1] = last
    return blanked(stacks, age)


def blanked(stacks: AnyArray, age: AnyArray) -> AnyArray:
    """Set the images of stacks [B, k, ...] that are older than their ages [B] to 0, in place, and
    return them."""
    k = stacks.shape[1]
    if (age < k).any():
        stacks[age[:, None] < np.arange(k, 0, -1)] = 0
    return stacks


def check_order(x: AnyArray, age: AnyArray, previous: AnyArray | None, name: str) -> None:
    """Raise EnvironmentFault if stacks [T, N, k, ...] do not continue each other, or the images
    [N, ...] of the row before them."""
    for t in range(previous is None, len(x)):
        now, then = x[t, :, -2], x[t - 1, :, -1] if t else previous
        wrong = (now != then).reshape(len(now), -1).any(axis=1) & (age[t] > 1)
        if wrong.any():
            raise EnvironmentFault(
                f"{name} of environment {int(np.argmax(wrong))} is declared to be a stack of the "
                f"newest {x.shape[2]} images, but does not continue the previous one.",
                "the newest image last, and zeros before the first of an episode",
                'gymnasium.wrappers.FrameStackObservation(env, k, padding_type="zero"); or remove '
                "the attribute `stack` of the Box to keep whole stacks.",
            )
