"""Environments stepped in other processes while the policy acts in this one, for networks that
require their framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tandem.envs.checks import other_number
from tandem.envs.stepped import Stepped
from tandem.envs.vector import Arrays as Saved
from tandem.envs.vector import Environments, Step, closed_on_error
from tandem.errors import ResumeError, SettingError, UnrepeatableError
from tandem.learning.parallel.env_factory import divide, generation_seed
from tandem.learning.parallel.worker_group import Worker, WorkerGroup, merge_arrays
from tandem.networks.plan import select
from tandem.spaces import Spec
from tandem.types import Array, JSONDict, Tree, leaves, tree_map
from tandem.workers.process import Process
from tandem.workers.shared_memory import Handle, ShapeDtype, SharedArrays

# Shown instead of the default remedy, since an agent's `train` has no options for these.
REMEDY = "then call train again, which makes new workers."


class WorkerEnvironments:
    """A worker's environments and their shared arrays."""

    def __init__(
        self, name: str, envs: Sequence[Any], seed: int, first: int, handle: Handle
    ) -> None:
        with closed_on_error(*(env.close for env in envs)):
            self.environments = Stepped(name, envs, seed, first=first)
            self.shared = SharedArrays.attach(handle)

    def reset(self) -> None:
        self._put("obs", self.environments.reset())

    def restart(self) -> None:
        self._put("obs", self.environments.restart())

    def on_bytes(self, _: bytes) -> bytes:
        """Step with the shared actions, and return the indices of environments whose episodes
        ended."""
        one = self.environments.step(self.shared["action"])
        self._put("obs", one.obs)
        for name in ("reward", "terminated", "truncated"):
            self.shared[name][:] = getattr(one, name)
        for i, last in one.final:
            for j, x in enumerate(leaves(last)):
                self.shared[f"final/{j}"][i] = x
        return np.array([i for i, _ in one.final], np.int64).tobytes()

    def load_state(self, data: Any, arrays: Any) -> UnrepeatableError | None:
        try:
            self.environments.load_state(data, arrays)
        except UnrepeatableError as error:
            return error
        return None

    def __getattr__(self, name: str) -> Any:
        """Forward other methods to the environments."""
        return getattr(self.environments, name)

    def _put(self, name: str, tree: Tree) -> None:
        for j, x in enumerate(leaves(tree)):
            self.shared[f"{name}/{j}"][:] = x


class Remote(Environments):
    """Vector of plain environments in `processes` processes, stepped synchronously. Seeds are those
    of a `Stepped`.

    This process is one of them. With `beside` it steps no environments, and can do other work
    between `step_async` and `step_wait`.

    The environments of a lost worker restart: that step is not `valid` for them, and lists them in
    `lost`."""

    def __init__(
        self,
        name: str,
        envs: Sequence[Any],
        seed: int,
        processes: int,
        patience: float = 60.0,
        restarts: int = 3,
        *,
        beside: bool = False,
    ) -> None:
        if not 1 <= processes <= len(envs):
            raise SettingError(
                f"processes={processes} for {len(envs)} environments.",
                "at least one environment for each process",
                "give as many environments as processes, or fewer processes.",
            )
        shares = divide(len(envs), processes)
        count = 0 if beside else shares.pop(0)[1]
        own = Stepped(name, envs[: count or 1], seed)
        self._own = own if count else None  # environments of this process
        self._all, self._seed = list(envs), seed
        super().__init__(name, len(envs), own.observation_space, own.action_space)
        forms = {first: _forms(self.observation, self.action, n) for first, n in shares}
        self._shared = {first: SharedArrays.create(shapes) for first, shapes in forms.items()}
        self._seen = {
            first: list(shared.under("obs").values()) for first, shared in self._shared.items()
        }
        self._final = {
            first: list(shared.under("final").values()) for first, shared in self._shared.items()
        }
        self.group = WorkerGroup(name, shares, patience, restarts, self._process, REMEDY)

    @property
    def gone(self) -> bool:  # type: ignore[override]
        """True if a worker was lost and no restarts remain."""
        return self.group.given_up

    @property
    def first(self) -> Any:
        """First environment of the vector."""
        return self._all[0]

    def reset(self) -> Tree:
        return self._begun("reset")

    def restart(self) -> Tree:
        return self._begun("restart")

    def episodes(self) -> list[int]:
        own = [] if self._own is None else self._own.episodes()
        return sum(self.group.gather("episodes"), own)

    def skip(self, episodes: list[int]) -> None:
        if self._own is not None:
            self._own.skip(episodes)
        self.group.tell("skip", [(episodes[w.columns],) for w in self.group.workers])

    def _begun(self, how: str) -> Tree:
        own = [] if self._own is None else [getattr(self._own, how)()]
        self.group.gather(how)
        workers = [self._tree(self._seen[w.first]) for w in self.group.workers]
        return tree_map(lambda *xs: np.concatenate(xs), *own, *workers)

    def step(self, actions: Array) -> Step:
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Array) -> None:
        """Start a step in the workers. `step_wait` must follow, and steps the environments of this
        process."""
        self._actions = actions
        for worker in self.group.workers:
            self._shared[worker.first]["action"][...] = actions[worker.columns]
            worker.send_bytes()

    def step_wait(self) -> Step:
        """Return the result of the started step; see `step`."""
        valid, final, lost = np.ones(self.n, np.bool_), list[Any](), list[int]()
        rows: list[Any] = []
        if self._own is not None:
            try:
                own = self._own.step(self._actions[: self._own.n])
            except Exception:
                # consume the workers' answers, so that they do not match the next requests
                for i in range(len(self.group.workers)):
                    self.group.answer(i, lambda w: w.ask("reset"))
                raise
            rows, final = [own[:4]], list(own.final)
        for i, worker in enumerate(self.group.workers):
            before, shared = worker.generation, self._shared[worker.first]
            ended = self.group.answer(i, lambda w: w.ask("reset"))
            rows.append(
                (
                    self._tree(self._seen[worker.first]),
                    *(shared[n] for n in ("reward", "terminated", "truncated")),
                )
            )
            if worker.generation == before:
                for k in np.frombuffer(ended, np.int64).tolist():
                    final.append(
                        (
                            worker.first + k,
                            self._tree([x[k].copy() for x in self._final[worker.first]]),
                        )
                    )
            else:
                valid[worker.columns] = False
                lost += worker.environments
                for x in rows[-1][1:]:
                    x[:] = 0
        obs = tree_map(lambda *xs: np.concatenate(xs), *(row[0] for row in rows))
        reward, terminated, truncated = (
            np.concatenate([row[k] for row in rows]) for k in (1, 2, 3)
        )
        return Step(obs, reward, terminated, truncated, valid, final, lost=lost)

    def state(self) -> tuple[JSONDict, Saved]:
        own = [] if self._own is None else [self._own.state()]
        states = [*own, *self.group.gather("state")]
        return {
            "parts": [data for data, _ in states],
            "lives": [w.generation for w in self.group.workers],
        }, merge_arrays(states)

    def load_state(self, data: JSONDict, arrays: Saved) -> None:
        saved, workers = len(data.get("parts", [0])), len(self.group.workers)
        here = workers + (self._own is not None)
        if saved != here or len(data.get("lives", [])) != workers:
            raise ResumeError(
                f"the saved state has {saved} processes; this run has {here}, {workers} of them "
                "besides this one.",
                "the original number of processes and workers",
                f"give processes={saved}, and the original parallel_store_and_training.",
            )
        shares = [len(inner.get("lengths", ())) for inner in data["parts"]]
        own = [] if self._own is None else [self._own.n]
        # checked here, since an error in a worker counts as its loss
        if shares != own + [worker.count for worker in self.group.workers]:
            raise other_number(sum(shares), self.n)
        rest = [(inner, select(arrays, str(i))) for i, inner in enumerate(data["parts"])]
        if self._own is not None:
            self._own.load_state(*rest.pop(0))
        self.group.live(data["lives"])
        for error in self.group.tell("load_state", rest):
            if error is not None:
                raise error

    def request_stop(self) -> None:
        """See `WorkerGroup.request_stop`."""
        self.group.request_stop()

    def forget_stop(self) -> None:
        """See `Environments.forget_stop`: an agent's next `train` uses the same workers."""
        self.group.stopping = False

    def close(self) -> None:
        self.group.end()
        for env in self._all:
            env.close()

    def _process(self, worker: Worker) -> Process:
        handle, own = self._shared[worker.first].handle, self._all[worker.columns]
        seed = generation_seed(self._seed, worker.generation)
        return Process(
            handle.inherits, WorkerEnvironments, self.name, own, seed, worker.first, handle
        )

    def _tree(self, arrays: list[Array]) -> Tree:
        return (
            dict(zip(self.observation, arrays, strict=True))
            if isinstance(self.observation, dict)
            else arrays[0]
        )


def _forms(observation: Spec, action: Any, n: int) -> dict[str, ShapeDtype]:
    """Return the shapes and dtypes of the arrays of a step of n environments."""
    specs = list(observation.values()) if isinstance(observation, dict) else [observation]
    shapes: dict[str, ShapeDtype] = {
        f"{k}/{j}": ((n, *s.shape), str(s.dtype))
        for j, s in enumerate(specs)
        for k in ("obs", "final")
    }
    shapes |= {"action": ((n, *action.shape), str(np.dtype(action.dtype))), "reward": ((n,), "<f4")}
    return shapes | {"terminated": ((n,), "|b1"), "truncated": ((n,), "|b1")}
