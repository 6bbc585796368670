"""Self-play: requirements of runs that learn against past copies of their policy."""

from __future__ import annotations

from typing import Any

from tandem.errors import SettingError
from tandem.learning.parallel.env_factory import check_can_travel


def refuse(algorithm: str, needs: str, env: Any, o: Any) -> None:
    """Raise SettingError for a run that does not support `o.opponents`."""
    if not o.opponents:
        return
    asked = f"opponents={o.opponents}"
    if needs != "rollouts":
        raise SettingError(
            f"{asked} is not supported with {algorithm}, which replays games of old opponents.",
            "an algorithm that learns from each game once: a2c, ppo or trpo",
            "choose one of those, or leave opponents out to play against a random player.",
        )
    others = {"workers": o.workers, "runners": o.runners, "learners": o.learners}
    if more := {n: x for n, x in others.items() if x != (1 if n == "learners" else 0)}:
        raise SettingError(
            f"{asked} is not supported with {' and '.join(f'{n}={x}' for n, x in more.items())}.",
            "one process, whose environments share one pool of opponents",
            f"leave {' and '.join(more)} out.",
        )
    check_can_travel(env, asked)
