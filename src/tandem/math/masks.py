"""Action masks: which choices an observation allows (Huang & Ontañón 2022, "A closer look at
invalid action masking in policy gradient algorithms", arXiv:2006.14171). They are part of the
observation, under `spaces.MASK`: 1 for a choice that may be taken, 0 for one that may not, the
positions of a multi-discrete action side by side."""

from __future__ import annotations

from tandem import ops
from tandem.math.distributions import for_actions
from tandem.spaces import MASK, Leaf
from tandem.types import Array, Tree

FORBIDDEN = (
    -1e9
)  # finite: times a probability or a discount of 0 it is 0, where infinity would be NaN


def masked(out: Array, obs: Tree, action: Leaf) -> Array:
    """Logits or action values [..., width] with FORBIDDEN where the mask of `obs` is 0 (section
    3.1): such a choice has probability 0, adds nothing to entropies and divergences, is no maximum,
    and gets no gradient. Where the actions have no masks, `out` itself."""
    if not action.masked:
        return out
    xp = ops.of(out)
    return xp.where(xp.cast(obs[MASK]) > 0, out, FORBIDDEN)


def evenly(noise: Array, obs: Tree, action: Leaf) -> Array:
    """An allowed action, each as likely as any other, for noise [..., width] of independent and
    equal distributions."""
    return for_actions(action).mode(masked(noise, obs, action))
