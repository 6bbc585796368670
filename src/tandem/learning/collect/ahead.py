"""Asynchronous collection: environments step while the learner uses the previous step."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from tandem.envs.vector import Arrays, Step
from tandem.learning.collect.collector import Actor, Collector
from tandem.learning.collect.trajectories import TrajectoryBuilder
from tandem.types import JSONDict, Trajectory, Tree, leaves, tree_map

ARRIVED = ("reward", "terminated", "truncated", "valid")  # saved fields of a `Step`


class AheadCollector(Collector):
    """Collector of single steps that overlaps stepping with learning. After a step is collected,
    `request` starts the next one with the current actor. The environments step while the caller
    learns from the previous step, and `collect` waits for them. The acting weights always lag by
    exactly one step, so runs are reproducible.

    The actor must not be recurrent.
    """

    environments: Any  # with `step_async` and `step_wait`
    _pending: TrajectoryBuilder | None = None  # of the step in progress
    _arrived: Step | None = None  # its result, once it has arrived

    def collect(self, steps: int, actor: Actor, noise: Tree = None) -> Trajectory:
        """Return the step in progress, starting one if there is none. See `Collector.collect`."""
        if self._pending is None:
            self.request(actor, noise)
        assert self._pending is not None
        blocks, one = self._pending, self._wait()
        self._pending = self._arrived = None
        self._obs = one.obs
        final = [(0, i, last) for i, last in one.final]
        return self._finished(blocks.trajectory([one], final, self.gamma), [one], list(one.lost))

    def request(self, actor: Actor, noise: Tree = None) -> None:
        """Act on the latest observations and start a step of all environments."""
        obs, state, _ = self._begin(actor)
        began = perf_counter()
        action, extra, _ = actor.act(obs, state, noise)
        blocks = TrajectoryBuilder(1, self.environments, obs)
        row = blocks.put(0, obs, action, extra)
        self.seconds["acting"] += perf_counter() - began
        self.environments.step_async(self._to_environment(row))
        self._pending = blocks

    def _wait(self) -> Step:
        """Wait for the step in progress and return its result."""
        if self._arrived is None:
            began = perf_counter()
            try:
                self._arrived = self.environments.step_wait()
            except BaseException:
                self._pending = None
                self._break_off()
                raise
            self.seconds["environment"] += perf_counter() - began
        return self._arrived

    def state(self) -> tuple[JSONDict, Arrays]:
        """Return the state as `Collector.state` does, after waiting for a step in progress, which
        it includes."""
        if self._pending is None or self.environments.gone:
            return super().state()
        one, blocks = self._wait(), self._pending
        data, arrays = super().state()
        trees = {"obs": blocks.obs, "next": one.obs}
        arrays |= {
            f"pending/{name}/{j}": np.array(x)
            for name, tree in trees.items()
            for j, x in enumerate(leaves(tree))
        }
        arrays |= {f"pending/{name}": np.array(getattr(one, name)) for name in ARRIVED}
        arrays |= {f"pending/extra/{name}": x.copy() for name, x in blocks.extra.items()}
        arrays |= {f"pending/step/{name}": np.array(x) for name, x in one.extra.items()}
        for i, last in one.final:
            arrays |= {f"pending/final/{i}/{j}": np.array(x) for j, x in enumerate(leaves(last))}
        pending = {
            "final": [i for i, _ in one.final],
            "lost": list(one.lost),
            "extra": list(blocks.extra),
            "step": list(one.extra),
        }
        return data | {"pending": pending}, arrays | {"pending/action": blocks.action.copy()}

    def load_state(self, data: JSONDict, arrays: Arrays) -> None:
        """See `Collector.load_state`."""
        self._pending = self._arrived = None
        super().load_state(data, arrays)
        pending = data.get("pending")
        if self.restarted or pending is None:
            return

        def tree(name: str) -> Tree:
            count = len(leaves(self._obs))
            parts = iter([arrays[f"pending/{name}/{j}"].copy() for j in range(count)])
            return tree_map(lambda _: next(parts), self._obs)

        blocks = TrajectoryBuilder(1, self.environments, self._obs)
        blocks.obs, blocks.action = tree("obs"), arrays["pending/action"].copy()
        blocks.extra = {n: arrays[f"pending/extra/{n}"].copy() for n in pending["extra"]}
        self._pending = blocks
        self._arrived = Step(
            tree("next"),
            **{name: arrays[f"pending/{name}"].copy() for name in ARRIVED},
            final=[(i, tree(f"final/{i}")) for i in pending["final"]],
            extra={n: arrays[f"pending/step/{n}"].copy() for n in pending["step"]},
            lost=pending["lost"],
        )
