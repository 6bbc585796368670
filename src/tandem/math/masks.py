"""Action masks: the valid choices of an observation (Huang & Ontañón 2022, "A closer look at
invalid action masking in policy gradient algorithms", arXiv:2006.14171).

A mask [..., width] is the entry `spaces.MASK` of an observation: 1 for a valid choice, 0 for an
invalid one, with the positions of a multi-discrete action concatenated.
"""

from __future__ import annotations

from tandem import ops
from tandem.errors import same_shapes
from tandem.math.products import for_actions
from tandem.spaces import MASK, Leaf
from tandem.types import Array, Tree

# Finite: its product with a probability or discount of 0 is 0, where infinity gives NaN.
FORBIDDEN = -1e9


def allowed(obs: Tree) -> Array:
    """Return the mask of observations, float [..., width].

    An empty mask, as after the end of an episode, becomes all ones: values after an end have weight
    or discount 0, and must be finite for the product to be 0.

    Args:
        obs: Observations with a mask [..., width].
    """
    xp = ops.of(obs[MASK])
    mask = xp.cast(obs[MASK])
    return xp.where(xp.sum(mask, -1)[..., None] > 0, mask, 1.0)


def masked(out: Array, obs: Tree, action: Leaf) -> Array:
    """Return `out` with FORBIDDEN where `allowed` is 0 (Huang & Ontañón 2022, section 3.1).

    An invalid choice thus has probability 0, adds nothing to entropies and divergences, is never
    the maximum, and gets no gradient.

    Args:
        out: Logits or action values, [..., width].
        obs: Observations with a mask [..., width].
        action: The action space; without masks, `out` itself is returned.

    Returns:
        [..., width].

    Raises:
        SpaceError: if the shapes do not fit.
    """
    if not action.masked:
        return out
    same_shapes(out.shape, mask=obs[MASK])
    return ops.of(out).where(allowed(obs) > 0, out, FORBIDDEN)


def evenly(noise: Array, obs: Tree, action: Leaf) -> Array:
    """Return a uniformly random valid action.

    Args:
        noise: Independent, identically distributed numbers, [..., width].
        obs: Observations with a mask [..., width], if `action` is masked.
        action: The action space.

    Returns:
        Actions [...], or [..., positions] for a multi-discrete space.
    """
    return for_actions(action).mode(masked(noise, obs, action))
