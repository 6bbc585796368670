"""`tandem watch`."""

from __future__ import annotations

from pathlib import Path

from tandem.animation import film, has_display, screen, show
from tandem.cli import agents
from tandem.cli.parser import Parser
from tandem.settings import whole_number

ABOUT = (
    "Shows the agent of a run play: in a window, or as a GIF or MP4 where there is no screen "
    "or --out is given."
)


def run(words: list[str]) -> int:
    """Opens a window, or writes a file and says where."""
    args = make_parser().read(words)
    max_steps = whole_number("--max-steps", args.max_steps, 1)
    loaded = agents.load(args.folder, args.which, algorithm=args.algorithm)
    env, kwargs = loaded.env, loaded.config.get("env_kwargs")  # refuses what only programs make
    if not loaded.config.get("vector"):
        env = loaded.config["env"]
    if args.out is None and has_display():
        with screen(env, "human", kwargs) as window:
            for last in show(loaded.agent, window, args.episodes, args.seed, max_steps):
                cut = f", cut at {last.step:,} steps (--max-steps)" if last.cut else ""
                print(f"episode {last.episode + 1}: return {last.score:.1f}{cut}")
        return 0
    out = Path(args.out) if args.out else loaded.folder / "animation.gif"
    how = {"episodes": args.episodes, "seed": args.seed, "max_steps": max_steps}
    print(f"wrote {film(loaded.agent, env, out, kwargs, **how)}")
    return 0


def make_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser(
        "watch", ABOUT, ("tandem watch runs/…", "tandem watch runs/… --out play.mp4 --episodes 3")
    )
    agents.arguments(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="write .gif or .mp4 [where there is no screen: animation.gif in the run]",
    )
    parser.add_argument("--episodes", type=int, default=1, metavar="N", help="how many [1]")
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="of the first; the next one's is one more [0]",
    )
    parser.add_argument(
        "--max-steps",
        type=int,
        default=1000,
        metavar="N",
        help="cut an episode that has not ended by then [1000]",
    )
    return parser
