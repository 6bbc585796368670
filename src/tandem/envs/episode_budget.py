"""Step budget per episode, against episodes that never end."""

from __future__ import annotations

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from tandem.envs.opening import reset
from tandem.types import Array, Info, Tree

SHORTEST = 5_000  # minimum budget, in steps
FACTOR = 2  # times the environment's limit, or the longest training episode


class EpisodeBudget(gymnasium.Wrapper, RecordConstructorArgs):  # type: ignore[misc]
    """Wrapper that truncates episodes after `max_steps` steps, as TimeLimit does. `cut` is true if
    this budget ended the episode in the last step."""

    def __init__(self, env: gymnasium.Env, max_steps: int) -> None:
        RecordConstructorArgs.__init__(self, max_steps=max_steps)
        gymnasium.Wrapper.__init__(self, env)
        self.max_steps, self.steps, self.cut = max_steps, 0, False

    def reset(self, **kwargs: object) -> tuple[Tree, Info]:
        self.steps = 0
        return reset(self.env, **kwargs)

    def step(self, action: Array) -> tuple[Tree, float, bool, bool, Info]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        self.cut = self.steps >= self.max_steps and not (terminated or truncated)
        return obs, reward, terminated, truncated or self.cut, info


def default_budget(env: object, longest: int = 0) -> int:
    """Return the default step budget of evaluation episodes: FACTOR times the environment's limit
    or the `longest` training episode, whichever is larger, and at least SHORTEST."""
    spec = getattr(env, "spec", None)
    limit = getattr(spec, "max_episode_steps", None) or 0
    frames = (getattr(spec, "kwargs", None) or {}).get("max_num_frames_per_episode") or 0  # Atari
    return max(SHORTEST, FACTOR * max(limit, int(frames), longest))
