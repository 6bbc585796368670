"""`tandem watch`."""

from __future__ import annotations

import argparse
from pathlib import Path

from tandem.cli import agents
from tandem.cli.live import live
from tandem.cli.output import echo, shown
from tandem.cli.parser import Parser
from tandem.errors import SettingError
from tandem.learning.figures import figures
from tandem.reports.animation import film, has_display, screen, show
from tandem.settings import whole_number

ABOUT = """Watch the agent of a run play: in a window, or as a GIF or MP4 if there is no screen or
--out is given. With --live: follow a run during training."""
OF_PLAY = {"out": None, "episodes": 1, "seed": 0, "max_steps": 1000, "which": "best"}


def run(words: list[str]) -> int:
    """Open a window, or write a file and print its path; or follow a run."""
    args = make_parser().read(words)
    if args.live:
        return _follow(args)
    if args.every is not None:
        raise SettingError("--every was given without --live.", "both flags", "add --live.")
    for name, value in OF_PLAY.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    max_steps = whole_number("--max-steps", args.max_steps, 1)
    loaded = agents.load(args, "watch")
    loaded.expect_id("{}.play(env).save('play.gif')")
    # `loaded.env` raises for environments passed from Python
    env, kwargs = loaded.env, loaded.config.get("env_kwargs")
    if not loaded.config.get("vector"):
        env = loaded.named
    if args.out is None and has_display():
        with screen(env, "human", kwargs) as window:
            for last in show(loaded.agent, window, args.episodes, args.seed, max_steps):
                cut = f", cut at {last.step:,} steps (--max-steps)" if last.cut else ""
                echo(f"episode {last.episode + 1}: return {figures(last.score)}{cut}")
        return 0
    out = Path(args.out) if args.out else loaded.folder / "animation.gif"
    how = {"episodes": args.episodes, "seed": args.seed, "max_steps": max_steps}
    echo(f"wrote {shown(film(loaded.agent, env, out, kwargs, **how))}")
    return 0


def make_parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser(
        "watch",
        ABOUT,
        (
            "tandem watch runs/…",
            "tandem watch runs/… --out play.mp4 --episodes 3",
            "tandem watch --live runs/…",
        ),
    )
    agents.arguments(parser)
    agents.env_arguments(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="file to write, .gif or .mp4 [without a screen: animation.gif in the run folder]",
    )
    parser.add_argument("--episodes", type=int, metavar="N", help="number of episodes [1]")
    parser.add_argument(
        "--seed", type=int, metavar="N", help="random seed of the first episode; each adds 1 [0]"
    )
    parser.add_argument(
        "--max-steps",
        type=int,
        metavar="N",
        help="maximum steps per episode [1000]",
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="follow a run, several seeds or a sweep during training, until the end or Ctrl-C",
    )
    parser.add_argument(
        "--every", type=float, metavar="SECONDS", help="with --live: seconds between refreshes [2]"
    )
    parser.set_defaults(which=None)
    return parser


def _follow(args: argparse.Namespace) -> int:
    names = (*OF_PLAY, "algorithm")
    given = [f"--{n.replace('_', '-')}" for n in names if getattr(args, n) is not None]
    if given:
        raise SettingError(
            f"--live was given with {', '.join(given)}.",
            "only --every: --live shows training, not the agent's play",
            "leave them out, or leave out --live.",
        )
    return live(Path(args.folder), 2.0 if args.every is None else args.every)
