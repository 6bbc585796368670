"""A user's own code at the events of an agent's training."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

METHODS = (
    "on_train_begin",
    "on_train_end",
    "on_episode_begin",
    "on_episode_end",
    "on_batch_begin",
    "on_batch_end",
)


class LambdaCallback:
    """A callback made of functions. Any object with some of these methods is one, in
    `agent.callbacks`.

    on_train_begin(logs), on_train_end(logs), on_episode_begin(i, logs), on_episode_end(i, logs)
    with logs["loss"] and logs["reward"], on_batch_begin(b, logs), on_batch_end(b, logs) with
    logs["loss"]. i counts the episodes of this training, b all mini-batches, from 0. Setting
    `agent.stop_training = True` in any of them ends the training.
    """

    def __init__(
        self,
        on_train_begin: Callable[[dict[str, Any]], Any] | None = None,
        on_train_end: Callable[[dict[str, Any]], Any] | None = None,
        on_episode_begin: Callable[[int, dict[str, Any]], Any] | None = None,
        on_episode_end: Callable[[int, dict[str, Any]], Any] | None = None,
        on_batch_begin: Callable[[int, dict[str, Any]], Any] | None = None,
        on_batch_end: Callable[[int, dict[str, Any]], Any] | None = None,
    ) -> None:
        given = locals()
        for name in METHODS:
            if given[name] is not None:
                setattr(self, name, given[name])


def tell(callbacks: Iterable[Any], name: str, *arguments: Any) -> None:
    """Calls the method of that name of every callback that has it."""
    for callback in callbacks:
        if (method := getattr(callback, name, None)) is not None:
            method(*arguments)
