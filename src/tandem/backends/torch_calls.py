"""Calls of K updates on torch, compiled as programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.utils import _pytree as pytree

from tandem.backends import backend, torch_programs
from tandem.backends.torch_programs import Program, ProgramSource
from tandem.backends.torch_traced import Traced, Uncapturable
from tandem.errors import SettingError, brief, note
from tandem.types import Array, Batch, Tree, Update, leaves, tree_map

if TYPE_CHECKING:
    from tandem.backends.torch import TorchBackend

# seconds saved per graph node in a program, and additional ones per number of the state
SAVED, MORE = 1e-6, 2.5e-12
FEW = 5_000  # updates; fewer do not repay the second that tracing one takes
MOST = 4  # maximum number of batch shapes with programs


class Calls:
    """The result of `Backend.compile`: programs for batches of each shape, and `eager` where there
    is none.

    The backend's attribute `compiling` decides whether programs are used: "yes": always, or raise
    an error; "auto": if they save the run more time than compiling takes, decided once for all
    shapes; "as before": always, unless compilation fails.
    """

    def __init__(
        self,
        made_by: TorchBackend,
        update: Callable[[Batch], Update],
        eager: backend.Run,
        faults: list[str],
    ) -> None:
        self.backend, self._update = made_by, update
        self._eager, self._faults = eager, faults
        self.place = torch_programs.folder() if made_by.keeps_programs else None
        self._kinds: dict[object, _Kind | None] = {}  # by batch shapes

    def __call__(self, batches: Batch, indices: Array | None = None) -> backend.Outcome:
        if self.backend.compiling == "no":
            return self._eager(batches, indices)
        settings, data = batches.settings, batches._replace(settings={})
        own, common = ((settings, data), ()) if indices is None else ((settings, indices), data)
        shapes = [(x.shape[1:], x.dtype) for x in leaves(own)]
        key = (*shapes, *((x.shape, x.dtype) for x in leaves(common)))
        if self._kinds.get(key, self) is None:
            return self._eager(batches, indices)
        own, common = tree_map(torch.Tensor.contiguous, self.backend.to_device((own, common)))
        if key not in self._kinds:
            self._kinds[key] = self._captured(key, own, common) if len(self._kinds) < MOST else None
        kind = self._kinds[key]
        outs = None if kind is None else kind.outputs(own, common)
        if kind is None or outs is None:
            self._kinds[key] = None
            return self._eager(batches, indices)
        code, *given = self.backend.to_host(tuple(outs))
        metrics, *priority = pytree.tree_unflatten(given, kind.form)
        return backend.outcome(metrics, priority[0], code.tolist(), self._faults)

    def _captured(self, key: object, own: Tree, common: Tree) -> _Kind | None:
        try:
            traced = Traced(self.backend, self._update)
            shapes = torch_programs.known((key, [x.shape for x in traced.state]))
            at_hand = self.backend.updates >= FEW and torch_programs.any_kept(self.place, shapes)
            if self.backend.compiling == "auto" and not (at_hand or self.pays(traced)):
                self.decide(False)
                return None
            return _Kind(self, shapes, traced, own, common)
        except Exception as error:  # torch or a traced module may raise anything
            self.refuse(error)
            return None

    def refuse(self, error: Exception) -> None:
        """Note why updates are not compiled, or raise an error if they must be."""
        why = str(error) if isinstance(error, Uncapturable) else brief(error)
        if self.backend.compiling == "yes":
            raise SettingError(
                f"compile='yes', but an update cannot be compiled: {why}.",
                "an optimizer by name, and networks whose Python code neither samples random "
                "numbers nor depends on the values of tensors",
                "give compile='no'.",
            ) from error
        note(f"updates are not compiled: {why}.")
        self.decide(False)

    def pays(self, traced: Traced) -> bool:
        """True if the run's updates justify the time to compile; both depend on the size of the
        graph."""
        saved = SAVED + MORE * sum(x.numel() for x in traced.state)
        return bool(self.backend.updates * saved > torch_programs.seconds_per_node(self.place))

    def decide(self, compiled: bool) -> None:
        """Record, once for the run, whether updates are compiled."""
        if self.backend.compiling == "auto":
            self.backend.compiling = "as before" if compiled else "no"
            self.backend.compiled = "yes" if compiled else "no"


class _Kind:
    """Programs for batches of one shape, by the number of updates per call."""

    def __init__(self, calls: Calls, shapes: str, traced: Traced, own: Tree, common: Tree) -> None:
        self._calls, self._shapes, self._traced = calls, shapes, traced
        settings, rows = tree_map(lambda x: x[0], own)
        first = settings, rows, torch.tensor(True, device=traced.state[0].device)
        self._step, self.form, self._constants = traced.step(first, common)
        self._programs: dict[int, Program] = {}

    def outputs(self, own: Tree, common: Tree) -> list[Array] | None:
        """Return the outputs of the updates, [K, ...] each, codes first; None if there is no
        program for them."""
        each, more = leaves(own), [*leaves(common), *self._constants]
        device = self._traced.state[0].device
        state = [*self._traced.state, torch.tensor(True, device=device)]
        count, at, parts = len(each[0]), 0, list[list[Array]]()
        while at < count:
            length = self._length(count - at)
            rows = torch.arange(at, at + length, device=device)
            chunk = [x.index_select(0, rows.clamp(max=count - 1)) for x in each]
            inputs = [*state, *chunk, rows < count, *more]  # later rows are padding
            if length not in self._programs:
                program = self._program(inputs, len(state), len(chunk) + 1)
                if program is None:  # before any update is made: see `_length`
                    return None
                self._programs[length] = program
            outs = self._programs[length](inputs)
            parts.append([x[: count - at] for x in outs])
            at += length
        return parts[0] if len(parts) == 1 else [torch.cat(xs) for xs in zip(*parts, strict=True)]

    def _length(self, count: int) -> int:
        """Return the number of updates of the program to use for the next of `count` updates. There
        are few programs, as they take long to compile: one as long as the first call, and one for
        much longer calls."""
        known = sorted(self._programs)
        if not known or (len(known) == 1 and count > 4 * known[0]):
            return count
        return next((n for n in known if n >= count), known[-1])

    def _program(self, inputs: list[Array], state: int, own: int) -> Program | None:
        calls = self._calls
        source = ProgramSource(calls.place, self._shapes, self._step, inputs, state, own)
        if calls.backend.compiling == "auto":
            calls.decide(source.is_kept() or calls.pays(self._traced))
        if calls.backend.compiling == "no":
            return None
        calls.backend.on_compile()  # loading takes some time, too
        calls.backend.compiles = True
        try:
            return source.program()
        except Exception as error:  # torch's compiler may raise anything
            calls.refuse(error)
            return None
        finally:
            calls.backend.compiles = False
