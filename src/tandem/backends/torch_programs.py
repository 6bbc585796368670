"""Graphs of updates as machine code, kept on disk.

Torch's compiler takes ten seconds and more, and what it has made is loaded in a millisecond: it is
kept in the user's cache folder, by a name made of all that it depends on."""

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
ON_CUDA = "reduce-overhead"  # as CUDA graphs, which launch all kernels of an update at once
LARGEST = 2**29  # bytes in the folder; what was used longest ago goes first
PER_NODE = 0.03  # seconds of compiling for each node of a graph, as long as none was measured


def folder() -> Path | None:
    """Where programs are kept; None where nothing can be."""
    cache = user_folder("cache")
    if cache is None:
        return None
    (cache / "torch").mkdir(exist_ok=True)
    return cache / "torch"


def known(shapes: object) -> str:
    """A name for shapes, with which those of programs for them begin."""
    about = repr((shapes, torch.__version__, __version__))
    return hashlib.sha256(about.encode()).hexdigest()[:16]


def any_kept(place: Path | None, shapes: str) -> bool:
    """Whether there is a program whose name begins so."""
    return place is not None and next(place.glob(f"{shapes}-*.so"), None) is not None


def seconds_per_node(place: Path | None) -> float:
    """How long compiling a graph takes for each of its nodes, by the latest there."""
    with suppress(OSError, ValueError):
        if place is not None:
            return float((place / "seconds_per_node").read_text())
    return PER_NODE


class ProgramSource:
    """A graph that is to become a program: `length` steps in turn, whose inputs are the state, the
    steps' own inputs [length, ...], and those that they have in common. The program writes the
    state after the last step over the first, and gives what the steps gave, [length, ...].

    place: the folder that it is kept in; None: nowhere.
    shapes: what its name begins with, see `known`.
    step: (state, own inputs, common inputs) -> (state, outputs).
    inputs: such as the program gets. state, own: how many of them are what."""

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
        # a program may use all that the processor can do, and several may share a home folder
        here = processor(), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
        text = repr((step.code, given, state, own, torch.__version__, here))
        self.name = f"{shapes}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    def is_kept(self) -> bool:
        """Whether it has been compiled before."""
        return self.place is not None and (self.place / f"{self.name}.so").is_file()

    def program(self) -> Program:
        """The program, compiled if need be. Whatever torch's compiler raises where it cannot be."""
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
            os.utime(file)  # it has been used
        return _loaded(file)

    def _compiled_or_not(self, file: Path) -> Program:
        try:
            return self._compiled(file)
        except Exception as error:  # torch may change what this is made of, and `scan` above all
            note(f"updates are compiled one by one, since {brief(error)}.")
            return self._one_by_one_compiled()

    def _one_by_one_compiled(self) -> Program:
        mode = ON_CUDA if self.inputs[0].device.type == "cuda" else "default"
        run = self.one_by_one(torch.compile(self.step, fullgraph=True, dynamic=False, mode=mode))
        run([x.clone() for x in self.inputs])  # it compiles when it is first called
        return run

    def one_by_one(self, step: Callable[..., list[Array]]) -> Program:
        """The same computation as the program, by a call for each step."""

        def run(inputs: list[Array]) -> list[Array]:
            n, m, rows = self.state, self.state + self.own, []
            with torch.no_grad():
                for k in range(self.length):
                    out = step(*inputs[:n], *(x[k] for x in inputs[n:m]), *inputs[m:])
                    torch._foreach_copy_(inputs[:n], list(out[:n]))
                    rows.append([x.clone() for x in out[n:]])  # a graph of CUDA's writes over them
                return [torch.stack(xs) for xs in zip(*rows, strict=True)]

        return run

    def _compiled(self, file: Path) -> Program:
        # loads torch's compiler, which takes a second
        from torch._inductor.runtime.cache_dir_utils import temporary_cache_dir

        logging.getLogger("tandem").warning(
            "Compiling updates, which takes 10 to 40 seconds (cached for later runs)."
        )
        began = time.monotonic()
        with (
            tempfile.TemporaryDirectory(dir=file.parent, prefix=".") as beside,
            temporary_cache_dir(beside),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # torch's own
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
        # not in every version of torch: see `_compiled_or_not`
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


def _loaded(file: Path) -> Program:
    return torch._C._aoti.AOTIModelContainerRunnerCpu(str(file), 1).run


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """While no other process compiles the same."""
    with path.open("a+b") as file:
        while not lock(file):
            time.sleep(0.1)
        yield


def _make_room(place: Path) -> None:
    """Removes programs beyond `LARGEST`."""
    files = sorted(place.glob("*.so"), key=lambda f: f.stat().st_mtime)
    size = sum(f.stat().st_size for f in files)
    while files and size > LARGEST:
        size -= files[0].stat().st_size
        files.pop(0).unlink(missing_ok=True)
