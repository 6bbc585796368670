"""`tandem export`."""

from __future__ import annotations

from pathlib import Path

from tandem.cli import agents
from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.errors import SettingError, UnknownNameError
from tandem.reports.onnx_export import ROWS, to_numpy, to_onnx
from tandem.settings import shell_path

ABOUT = """Export the agent of a run to a file that needs no framework: numpy (.npz with weights and
layers; tandem runs layers that plain NumPy code would be long for) or onnx (a graph from
observations to actions, compared with the agent if onnxruntime is installed)."""
FORMATS = {"numpy": (to_numpy, ".npz"), "onnx": (to_onnx, ".onnx")}


def run(words: list[str]) -> int:
    """Write the file, and print its path and how to use it."""
    args = make_parser().read(words)
    if args.to not in FORMATS:
        raise UnknownNameError("format", args.to, FORMATS)
    write, suffix = FORMATS[args.to]
    loaded = agents.load(args)
    out = Path(args.out) if args.out else loaded.folder / f"agent{suffix}"
    if out.suffix != suffix:
        raise SettingError(
            f"cannot write {args.to} to {out.name!r}.",
            f"a name that ends in {suffix}",
            f"--out {shell_path(out.with_suffix(suffix))}",
        )
    done = write(loaded.agent, out)
    checked = f", whose actions equal the agent's on {ROWS} random observations"
    same = checked if done.verified else ""
    echo(f"wrote {done.file}{same}. In Python:\n\n{done.how}", end="")
    return 0


def make_parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser(
        "export",
        ABOUT,
        ("tandem export runs/… --to onnx", "tandem export runs/… --to numpy --out agent.npz"),
    )
    agents.arguments(parser)
    parser.add_argument("--to", required=True, metavar="FORMAT", help="format: numpy or onnx")
    parser.add_argument(
        "--out", metavar="FILE", help="file to write [agent.npz or agent.onnx in the run folder]"
    )
    return parser
