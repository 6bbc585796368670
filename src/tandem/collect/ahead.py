"""Steps that are under way while the one before is learned from."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from tandem.collect.collector import Actor, Collector
from tandem.collect.trajectories import TrajectoryBuilder
from tandem.envs.vector import Arrays, Step
from tandem.types import JSONDict, Trajectory, Tree, leaves, tree_map

ARRIVED = ("reward", "terminated", "truncated", "valid")  # of a step, as it is saved


class AheadCollector(Collector):
    """Collects single steps. After a step was collected, `request` lets the environments take the
    next one, with the actor as it is: they step while the caller learns from the last, and
    `collect` waits for them. So actions are of weights that have not seen the step before, always
    one step old: a run is the same each time.

    The actor has no recurrent state.
    """

    environments: Any  # with `step_async` and `step_wait`
    _pending: TrajectoryBuilder | None = None  # of the step under way
    _arrived: Step | None = None  # what came of it, once it was waited for

    def collect(self, steps: int, actor: Actor, noise: Tree = None) -> Trajectory:
        """The step under way; one that is begun now, where none is. See `Collector.collect`."""
        if self._pending is None:
            self.request(actor, noise)
        assert self._pending is not None
        blocks, one = self._pending, self._wait()
        self._pending = self._arrived = None
        self._obs = one.obs
        final = [(0, i, last) for i, last in one.final]
        return self._finished(blocks.trajectory([one], final, self.gamma), [one], list(one.lost))

    def request(self, actor: Actor, noise: Tree = None) -> None:
        """Acts on the newest observations, and begins a step of all environments."""
        obs, state, _ = self._begin(actor)
        began = perf_counter()
        action, extra, _ = actor.act(obs, state, noise)
        blocks = TrajectoryBuilder(1, self.environments, obs)
        row = blocks.put(0, obs, action, extra)
        self.seconds["acting"] += perf_counter() - began
        self.environments.step_async(self._to_environment(row))
        self._pending = blocks

    def _wait(self) -> Step:
        """The result of the step under way."""
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
        """As `Collector.state`; a step under way is waited for, and part of it."""
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
        """As `Collector.load_state`."""
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
