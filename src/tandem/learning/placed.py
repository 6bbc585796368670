"""Companions on a Ray cluster, each in a place that was asked of it: a run's devices are those of
several machines. Only this process has the run, and writes its files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tandem.learning.companions import Companion, Companions
from tandem.parallel.process import WorkerHandle
from tandem.parallel.ray import Places, node_address, put


class PlacedCompanion(Companion):
    """In an actor, which Ray ends: it leaves the signals alone."""

    def __init__(self, make: Callable[..., Any], rank: int) -> None:
        self.layout = make(rank=rank).layout

    def join(self, host: str, port: int, patience: float) -> None:  # type: ignore[override]
        """Meets the others where rank 0 is."""
        self.layout.meet_at(host, port, node_address(), patience)


class PlacedCompanions(Companions):
    """Companions that live where `find` finds places for them. One that is lost is none that Ray
    starts again: it would know nothing of what was learned."""

    def __init__(
        self,
        make: Callable[..., Any],
        count: int,
        patience: float,
        find: Callable[[], Places],
    ) -> None:
        self.places = find()
        self.place = self.places.own
        try:
            there = put(self.places.ray, make)
        except BaseException:
            self.places.give_back()
            raise
        super().__init__(there, count, patience)

    def _begun(self, make: Any, rank: int) -> WorkerHandle:
        actor = self.places.actor(rank)
        actor.begin(PlacedCompanion, make, rank)
        return actor

    @contextmanager
    def _meeting(self, layout: Any) -> Iterator[tuple[tuple[Any, ...], Callable[[], None]]]:
        host = node_address()
        port = layout.open(host)
        yield (host, port), partial(layout.meet_at, host, port, host, self.patience)

    def kill(self) -> None:
        """At once, and the places are free."""
        super().kill()
        self.places.give_back()

    def end(self) -> None:
        """See `Companions.end`."""
        super().end()
        self.places.give_back()
