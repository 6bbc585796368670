"""Compiled machine code of update graphs, cached on disk.

Torch's compiler takes ten seconds and more, but its output loads in a millisecond. It is kept in
the user's cache folder, under a name derived from everything that it depends on.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from tandem.backends.torch_quicker import with_onednn
from tandem.errors import brief, note
from tandem.platforms import lock, processor, user_folder
from tandem.types import Array
from tandem.version import __version__

Program = Callable[[list[Array]], list[Array]]
ON_CUDA = "reduce-overhead"  # as CUDA graphs, which launch all kernels of an update together
LARGEST = 2**29  # bytes in the folder; the least recently used go first
PER_NODE = 0.03  # seconds of compilation per graph node, until measured


def folder() -> Path | None:
    """Return the cache folder, or None if nothing can be stored."""
    cache = user_folder("cache")
    if cache is None:
        return None
    (cache / "torch").mkdir(exist_ok=True)
    return cache / "torch"


def known(shapes: object) -> str:
    """Return the common prefix of the names of programs for these shapes."""
    about = repr((shapes, torch.__version__, __version__))
    return hashlib.sha256(about.encode()).hexdigest()[:16]


def any_kept(place: Path | None, shapes: str) -> bool:
    """True if there is a program whose name has this prefix."""
    return place is not None and next(place.glob(f"{shapes}-*.so"), None) is not None


def seconds_per_node(place: Path | None) -> float:
    """Return the compilation time per graph node, from the latest measurement."""
    with suppress(OSError, ValueError):
        if place is not None:
            return float((place / "seconds_per_node").read_text())
    return PER_NODE


class ProgramSource:
    """A graph to compile into a program of `length` successive steps. Its inputs are the state, the
    steps' own inputs [length, ...], and common inputs. The program overwrites the state with the
    state after the last step, and returns the steps' outputs, [length, ...].

    place: the cache folder, or None.
    shapes: the prefix of its name, see `known`.
    step: (state, own inputs, common inputs) -> (state, outputs).
    inputs: example inputs of the program.
    state, own: the numbers of inputs of these types.
    """

    def __init__(
        self,
        place: Path | None,
        shapes: str,
        step: GraphModule,
        inputs: list[Array],
        state: int,
        own: int,
    ) -> None:
        self.place = place
        self.step, self.inputs, self.state, self.own = step, inputs, state, own
        self.length = len(inputs[state])
        given = [(tuple(x.shape), x.stride(), str(x.dtype)) for x in inputs]
        # a program may use every processor feature, and machines may share a home folder
        here = processor(), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
        text = repr((step.code, given, state, own, torch.__version__, here))
        self.name = f"{shapes}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    def is_kept(self) -> bool:
        """True if it has been compiled before."""
        return self.place is not None and (self.place / f"{self.name}.so").is_file()

    def program(self) -> Program:
        """Return the program, compiled if necessary. Raises the errors of torch's compiler."""
        if self.inputs[0].device.type != "cpu":
            return self._one_by_one_compiled()
        if self.place is None:
            with tempfile.TemporaryDirectory() as temporary:
                return self._compiled_or_not(Path(temporary) / "program.so")
        file = self.place / f"{self.name}.so"
        with _alone(file.with_suffix(".lock")):
            if not file.is_file():
                _make_room(self.place)
                return self._compiled_or_not(file)
        with suppress(OSError):
            os.utime(file)  # mark as recently used
        return _loaded(file)

    def _compiled_or_not(self, file: Path) -> Program:
        try:
            return self._compiled(file)
        except Exception as error:  # torch may change these internals, especially `scan`
            note(f"updates are compiled one by one, since {brief(error)}.")
            return self._one_by_one_compiled()

    def _one_by_one_compiled(self) -> Program:
        mode = ON_CUDA if self.inputs[0].device.type == "cuda" else "default"
        run = self.one_by_one(torch.compile(self.step, fullgraph=True, dynamic=False, mode=mode))
        run([x.clone() for x in self.inputs])  # the first call compiles
        return run

    def one_by_one(self, step: Callable[..., list[Array]]) -> Program:
        """Return the same computation with one call per step."""

        def run(inputs: list[Array]) -> list[Array]:
            n, m, rows = self.state, self.state + self.own, []
            with torch.no_grad():
                for k in range(self.length):
                    out = step(*inputs[:n], *(x[k] for x in inputs[n:m]), *inputs[m:])
                    torch._foreach_copy_(inputs[:n], list(out[:n]))
                    rows.append([x.clone() for x in out[n:]])  # a CUDA graph overwrites them
                return [torch.stack(xs) for xs in zip(*rows, strict=True)]

        return run

    def _compiled(self, file: Path) -> Program:
        # imports torch's compiler, which takes a second
        # here and below: slow to import
        from torch._inductor.runtime.cache_dir_utils import temporary_cache_dir

        later = " (cached for later runs)" if self.place is not None else ""
        _log(f"Compiling updates, which takes 10 to 40 seconds{later}.")
        began = time.monotonic()
        with (
            tempfile.TemporaryDirectory(dir=file.parent, prefix=".") as beside,
            temporary_cache_dir(beside),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # torch's
            made = Path(beside) / "program.so"
            self._write(with_onednn(self.step), made)
            took = Path(beside) / "seconds_per_node"
            took.write_text(str((time.monotonic() - began) / len(self.step.graph.nodes)))
            took.replace(file.with_name(took.name))
            made.replace(file)
        return _loaded(file)

    def _write(self, step: GraphModule, file: Path) -> None:
        # as above
        from torch._inductor import aot_compile

        whole = make_fx(partial(self._in_turn, step), tracing_mode="fake")(*self.inputs)
        options = {"aot_inductor.output_path": str(file)}
        aot_compile(whole, tuple(self.inputs), options=options)

    def _in_turn(self, step: GraphModule, *xs: Array) -> list[Array]:
        # not in every torch version: see `_compiled_or_not`
        from torch._higher_order_ops.scan import scan_op

        n, m = self.state, self.state + self.own
        first, own, common = list(xs[:n]), list(xs[n:m]), xs[m:]
        if self.length == 1:
            done = step(*first, *(x[0] for x in own), *common)
            given = [x[None].clone() for x in done[n:]]
        else:
            done = scan_op(step, first, own, common)
            given = done[n:]
        for x, new in zip(first, done, strict=False):
            x.copy_(new)
        return given


def _log(text: str) -> None:
    logging.getLogger("tandem").warning(text)


def _loaded(file: Path) -> Program:
    return torch._C._aoti.AOTIModelContainerRunnerCpu(str(file), 1).run


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock, so that no other process compiles the same program."""
    with path.open("a+b") as file:
        if not (mine := lock(file)):
            _log("Waiting for another process that compiles the same updates.")
        while not (mine or lock(file)):
            time.sleep(0.1)
        yield


def _make_room(place: Path) -> None:
    """Remove programs beyond `LARGEST`."""
    files = sorted(place.glob("*.so"), key=lambda f: f.stat().st_mtime)
    size = sum(f.stat().st_size for f in files)
    while files and size > LARGEST:
        size -= files[0].stat().st_size
        files.pop(0).unlink(missing_ok=True)
