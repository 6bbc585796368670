"""Action masks: which choices an observation allows (Huang & Ontañón 2022, "A closer look at
invalid action masking in policy gradient algorithms", arXiv:2006.14171).

A mask [..., width] is the entry `spaces.MASK` of an observation: 1 for a choice that may be taken,
0 for one that may not, the positions of a multi-discrete action side by side.
"""

from __future__ import annotations

from tandem import ops
from tandem.errors import same_shapes
from tandem.math.products import for_actions
from tandem.spaces import MASK, Leaf
from tandem.types import Array, Tree

# Finite: times a probability or a discount of 0 it is 0, where infinity would be NaN.
FORBIDDEN = -1e9


def allowed(obs: Tree) -> Array:
    """The mask of observations, float [..., width]. One that allows nothing, as after the end of an
    episode, counts as one that allows everything: what follows an end has weight or discount 0, and
    has to be finite for that to make it 0.

    obs: observations with a mask [..., width].
    """
    xp = ops.of(obs[MASK])
    mask = xp.cast(obs[MASK])
    return xp.where(xp.sum(mask, -1)[..., None] > 0, mask, 1.0)


def masked(out: Array, obs: Tree, action: Leaf) -> Array:
    """`out` with FORBIDDEN where `allowed` is 0 (Huang & Ontañón 2022, section 3.1): such a choice
    has probability 0, adds nothing to entropies and divergences, is no maximum, and gets no
    gradient.

    out: [..., width], logits or action values.
    obs: observations with a mask [..., width].
    action: the action space; where it has no masks, `out` itself is returned.

    Returns [..., width]. Raises SpaceError where the shapes do not fit.
    """
    if not action.masked:
        return out
    same_shapes(out.shape, mask=obs[MASK])
    return ops.of(out).where(allowed(obs) > 0, out, FORBIDDEN)


def evenly(noise: Array, obs: Tree, action: Leaf) -> Array:
    """A random action, each that is allowed as likely as any other.

    noise: [..., width], independent numbers of one distribution.
    obs: observations with a mask [..., width], if `action` is masked.
    action: the action space.

    Returns actions [...], or [..., positions] of a multi-discrete space.
    """
    return for_actions(action).mode(masked(noise, obs, action))
