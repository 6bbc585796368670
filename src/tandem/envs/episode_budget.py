"""A budget of steps for each episode, where nobody may wait for one that does not end."""

from __future__ import annotations

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from tandem.envs.opening import reset
from tandem.types import Array, Info, Tree

SHORTEST = 5_000  # steps that an episode may always take
FACTOR = 2  # of the environment's own limit, or of the longest episode of training


class EpisodeBudget(gymnasium.Wrapper, RecordConstructorArgs):  # type: ignore[misc]
    """Truncates an episode after `max_steps` steps, as TimeLimit does; `cut` says whether it was
    this budget that ended the episode of the last step."""

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
    """The steps that an episode of an evaluation may take where nobody says how many: twice the
    environment's own limit or the `longest` episode of training, whichever is more, and SHORTEST at
    least."""
    spec = getattr(env, "spec", None)
    limit = getattr(spec, "max_episode_steps", None) or 0
    frames = (getattr(spec, "kwargs", None) or {}).get("max_num_frames_per_episode") or 0  # Atari
    return max(SHORTEST, FACTOR * max(limit, int(frames), longest))
