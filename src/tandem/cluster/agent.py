"""What an agent is to the cluster: it chooses actions and updates itself, and may hand its
parameters to who acts for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem.cluster import saving
from tandem.errors import SettingError
from tandem.types import Array

ACTING = (
    "actor",
    "policy",
    "q_net",
    "net",
    "network",
    "model",
)  # attributes, of which the first network acts


class Agent:
    """The base of agents. Override `choose_action` and `update`; keyword arguments become
    attributes.

    sync=True: one agent acts and learns, in the order in which it is called. sync=False: another
    object of the same class acts, in a process of its own, with the parameters that `_fire` handed
    over last; so acting never waits for learning.

    A class needs this base for its defaults alone: any with `choose_action` and `update` will do.
    """

    _firing: Callable[[Any], None] | None = None  # set where someone else acts for it

    def __init__(self, sync: bool = True, **kwargs: Any) -> None:
        self.sync = sync
        self.__dict__.update(kwargs)

    def choose_action(self, state: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no choose_action(state).")

    def update(self, *transition: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no update(...).")

    def _sync_model(self) -> None:
        """Called after updates. With sync=False it fires the state_dict of the network that
        acts."""
        if not self.sync:
            self._fire(self._acting().state_dict())

    def _fire(self, param: Any) -> None:
        """Hands parameters to all who act for this agent: arrays and tensors in dicts, lists and
        tuples, which may change afterwards. The newest are what counts; nothing where nobody else
        acts."""
        if self._firing is not None:
            self._firing(param)

    def _update_model(self, param: Any) -> None:
        """Called in who acts, with what was fired, on the CPU. Loads it into the network that
        acts."""
        self._acting().load_state_dict(param)

    def _acting(self) -> Any:
        for name in ACTING:
            if hasattr(found := getattr(self, name, None), "load_state_dict"):
                return found
        raise SettingError(
            f"{type(self).__name__} acts apart from its learner, and none of its attributes "
            f"{', '.join(ACTING)} is a torch"
            " module, whose parameters would be handed on.",
            "parameters to act with",
            "name the network so, or override _sync_model (which fires parameters) and "
            "_update_model (which takes them).",
        )

    def state(self) -> saving.State:
        """All that a restarted agent goes on from: (JSON data, arrays by name). By default, those
        of its attributes that are plain numbers and texts, torch modules and optimizers, and Keras
        models; replay buffers are not among them."""
        return saving.collected(self)

    def load_state(self, data: dict[str, Any], arrays: dict[str, Array]) -> None:
        """Go on from what `state` gave, in an agent made by the same arguments."""
        saving.restore(self, data, arrays)
