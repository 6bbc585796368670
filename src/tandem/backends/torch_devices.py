"""Updates on several torch devices, with one process per device. All processes make the same
updates of the whole batch. Each computes the gradient of its own rows, and a sum over processes
completes it; the rest of an update is identical in all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from torch import distributed

from tandem.backends import backend, no_gpu, sharding, too_few, torch_generators
from tandem.backends.torch_group import Group, Lost
from tandem.errors import WorkerError
from tandem.types import AnyArray, Array, Batch, Tree, tree_map

GOLDEN = 0x9E3779B9  # offset between the seeds of two processes
Found = tuple[list[Array], dict[str, Array], list[backend.Gradient]]  # see `Backend.gradient`
Run = Callable[..., backend.Outcome]


class TorchLayout:
    """The division of an update's rows among the processes of a group, of which this is one.

    Rank 0 leads the run. The others repeat its calls with the arrays that it sends, and with its
    weights if anything other than a call has changed them.
    """

    divides_rows = True

    def __init__(self, rank: int, count: int, device: torch.device) -> None:
        self.group = Group(rank, count, device)
        self.rank, self.count = rank, count
        self.together = 1  # rows per step, one per agent
        self._device, self._here = device, torch.zeros(count, device=device)
        self._here[rank] = 1.0
        self._seen: set[object] = set()  # kinds of sums made so far
        # ranks above 0: the functions to repeat, with the tensors that each changes
        self.runs: list[tuple[Run, Callable[[], list[torch.Tensor]]]] = []
        self._compiled = 0
        self._changing: Callable[[], list[torch.Tensor]] = list  # of the latest compiled run
        # whether the others have left `serve`: see `pause`
        self._paused, self.result = False, None
        # rank 0: `tell` returns more JSON data that the others need for a call; `hear` receives it
        self.tell: Callable[[], object] = lambda: None
        self.hear: Callable[[Any], object] = lambda data: None
        self.kept: object = None  # keeps an object alive as long as this one
        self._generators: dict[str, AnyArray] = {}  # states of the other ranks once they have ended

    def meet(self, folder: str, patience: float) -> None:
        """Join the other processes on this machine through a folder that exists during this
        call."""
        store = distributed.FileStore(os.path.join(folder, "store"), self.count)
        self.group.join(store, patience)

    # Within an update

    def divides(self, batch: Batch) -> bool:
        """True if the rows of a batch divide evenly."""
        return sharding.divides(batch, self.count, self.together)

    def parts(self, batch: Batch) -> int:
        """Return the number of processes that share the rows of a batch."""
        return self.count if self.divides(batch) else 1

    def part(self, batch: Batch) -> Batch:
        """Return this process's rows."""
        rows = sharding.shard(batch, self.rank, self.count, self.together)
        mine = tree_map(torch.Tensor.contiguous, rows._replace(settings={}))
        return mine._replace(settings=batch.settings)

    def sum(self, x: Array, even: bool, kind: object = None) -> Array:
        """Sum a result over the processes' parts. If a batch does not divide evenly and each
        process has computed all of it, return rank 0's result. kind: identifies the first such sum,
        before which other processes may have to compile."""
        if self.rank and not even:
            x.zero_()
        first = kind not in self._seen
        self._seen.add(kind)
        return self.group.sum(x, first)

    def sums(self, parts: tuple[Array, ...], even: bool, kind: object) -> list[Array]:
        """Return `sum` of several tensors in one operation."""
        shapes = tuple(tuple(x.shape) for x in parts)
        flat = torch.cat([x.detach().reshape(-1) for x in parts])
        whole = self.sum(flat, even, (kind, shapes)).split([x.numel() for x in parts])
        return [x.view(shape) for x, shape in zip(whole, shapes, strict=True)]

    def gradient(
        self, take: Callable[[Batch], Found], batch: Batch, networks: list[Any], kind: object
    ) -> Found:
        """Return (losses, aux of each row, gradients) of the whole batch. `take` returns them for a
        part. Statistics in `networks` that a forward pass changes, as in batch norm, become the
        mean over the parts. kind: see `sum`."""
        even = self.divides(batch)
        mine = self.part(batch) if even else batch
        stateful = [n for n in networks if n.stateful_forward]

        def moving() -> list[torch.Tensor]:
            return [x for n in stateful for x in n.statistics if x.is_floating_point()]

        before = [x.clone() for x in moving()]
        with self._own_seeds(networks):
            values, aux, gradients = take(mine)
        # a tensor whose shape has changed is not a statistic
        there = [(x, y) for x, y in zip(moving(), before, strict=True) if x.shape == y.shape]
        if even:
            aux = {n: sharding.spread(x, self._here, self.together) for n, x in aux.items()}
        share = 1.0 / self.count if even else 1.0
        # avoids the difference of equal values, which may be infinite
        moved = [torch.where(x == y, 0.0, x - y) * share for x, y in there]
        parts = (*(x for vectors in gradients for x in vectors), *values, *aux.values(), *moved)
        whole = iter(self.sums(parts, even, kind))
        gradients = [[next(whole) for _ in vectors] for vectors in gradients]
        values, aux = [next(whole) for _ in values], {n: next(whole) for n in aux}
        for (x, y), by in zip(there, whole, strict=True):
            x.copy_(torch.where(by == 0.0, y, y + by))
        return values, aux, gradients

    @contextmanager
    def _own_seeds(self, networks: list[Any]) -> Iterator[None]:
        """Give seeds that are part of a network, such as Keras's dropout seeds, different values in
        each process within the block. They are equal before and after."""
        own = (self.rank * GOLDEN + 2**31) % 2**32 - 2**31  # as int32 with wraparound
        seeds = [x for n in networks for x in n.seeds] if self.rank else []
        for x in seeds:
            x += own
        try:
            yield
        finally:
            for x in seeds:
                x -= own

    # Calls of updates

    def repeated(self, run: Run, changing: Callable[[], list[torch.Tensor]]) -> Run:
        """Return `run`, a call of updates that changes the tensors of `changing`, as a call by all
        processes. It must be compiled in each of them, in the same order."""
        self._changing = changing
        if self.rank:
            self.runs.append((run, changing))
            return run
        number, self._compiled = self._compiled, self._compiled + 1
        left: list[torch.Tensor] = []  # values after the latest call

        def led(batches: Batch, indices: Array | None = None) -> backend.Outcome:
            live = changing()
            changed = [
                i for i, x in enumerate(live) if not (left and torch.equal(x, left[i]))
            ]  # changed between calls
            values = tuple(live[i].detach().cpu().numpy() for i in changed)
            tree = tree_map(np.asarray, ((batches, indices), values))
            before = [x.clone() for x in live] if changed else left
            self._paused = False
            try:
                self.group.send("call", [number, changed, self.tell()], tree)
                outcome = run(batches, indices)
            except WorkerError:  # an interrupted update may have changed some of them
                torch._foreach_copy_(live, before)
                raise
            except BaseException:  # the others are now out of step
                self.group.cut()
                raise
            left[:] = [x.clone() for x in changing()]
            return outcome

        return led

    def serve(self) -> bool:
        """Ranks above 0: repeat rank 0's calls. Return True when rank 0 ends or pauses, False when
        a process is lost."""
        try:
            while True:
                verb, data, arrays = self.group.receive()
                if verb == "end":
                    self.group.cut()
                    return True
                if verb == "call":
                    self._repeat(data, arrays)
                elif verb == "pause":
                    told, self.result = data
                    self._take(told, self._changing, range(len(arrays)), arrays)
                    return True
                elif verb == "generators":
                    self.group.gather(_joined(torch_generators.states(self._device)))
                elif str(self.rank) in arrays:
                    torch_generators.restore(arrays[str(self.rank)], self._device)
        except Lost:
            return False
        except BaseException:
            self.group.cut()  # so that the others do not wait
            raise

    def _repeat(self, call: list[Any], arrays: Tree) -> None:
        number, changed, data = call
        (batches, indices), values = arrays
        run, changing = self.runs[number]
        self._take(data, changing, changed, values)
        run(batches, indices)

    def _take(
        self,
        told: object,
        changing: Callable[[], list[torch.Tensor]],
        which: Iterable[int],
        values: tuple[Array, ...],
    ) -> None:
        self.hear(told)
        live = changing()
        with torch.no_grad():
            for i, x in zip(which, values, strict=True):
                live[i].copy_(torch.as_tensor(x, device=live[i].device))

    def pause(self, result: object) -> None:
        """Rank 0: let the others leave `serve`, with the same tensors as here, and with a result,
        JSON data. They return to `serve` themselves."""
        self.generators()
        values = tuple(x.detach().cpu().numpy() for x in self._changing())
        self.group.send("pause", [self.tell(), result], values)
        self._paused = True

    # Generators: each process has its own, which dropout samples from

    def generators(self) -> dict[str, AnyArray]:
        """Rank 0: return the generator states of the others, by "generator/NAME/RANK"; if they have
        ended, their last states."""
        if self.group.joined and not self._paused and not self.rank:
            own = torch_generators.states(self._device)
            self.group.send("generators")
            each = self.group.gather(_joined(own))
            for rank in range(1, self.count):
                parts = each[rank].split([x.numel() for x in own.values()])
                self._generators |= {
                    f"{n}/{rank}": np.array(x.numpy()) for n, x in zip(own, parts, strict=True)
                }
        return dict(self._generators)

    def set_generators(self, state: dict[str, AnyArray]) -> None:
        """Rank 0: send the others the generator states that `generators` returned."""
        if self.rank:
            return
        each: dict[str, dict[str, AnyArray]] = {}
        for name, x in state.items():
            if name.startswith(torch_generators.GENERATOR) and name.count("/") == 2:
                kind, rank = name.rsplit("/", 1)
                each.setdefault(rank, {})[kind] = x
        if each:
            self.group.send("set", None, each)

    def close(self) -> None:
        """Rank 0: end the other processes."""
        with suppress(WorkerError):  # one was already lost: then all have ended
            self.generators()
        self.group.close()


def kind_of(device: str) -> str:
    """Return "cpu" or "cuda"; "auto" is cuda if available. Raises EngineError for an unavailable
    "cuda"."""
    there = torch.cuda.is_available()
    if device == "cuda" and not there:
        raise no_gpu("torch")
    return ("cuda" if there else "cpu") if device == "auto" else device


def own_device(kind: str, rank: int, count: int) -> torch.device:
    """Return the device of process `rank`: among the GPUs that it sees, the one with its number on
    this machine, or its local rank if started by torchrun. Raises EngineError if there are too
    few."""
    if kind == "cpu":
        return torch.device(kind)
    here, wanted, there = rank, count, torch.cuda.device_count()
    if os.environ.get("RANK") == str(rank):
        here = int(os.environ.get("LOCAL_RANK", rank))
        wanted = int(os.environ.get("LOCAL_WORLD_SIZE", count))
    if there < wanted:
        raise too_few("torch", kind, count, there, "")
    torch.cuda.set_device(here)
    return torch.device(kind, here)


def _joined(states: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat(list(states.values()))
