"""`tandem record`."""

from __future__ import annotations

import numpy as np

from tandem.cli import agents
from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.datasets.recording import RecordingSource, recorded
from tandem.learning.figures import mean_and_std

ABOUT = """Play episodes with the agent of a run and write them as a Minari dataset: observations,
actions, rewards and how each episode ended, with the commands that reproduce it."""


def run(words: list[str]) -> int:
    """Write the dataset and print its path."""
    args = make_parser().read(words)
    loaded = agents.load(args, "record")
    # `loaded.env` raises for environments passed from Python
    env, kwargs = loaded.env, loaded.config.get("env_kwargs") or {}
    if not loaded.config.get("vector"):
        env = loaded.named
    source = RecordingSource(loaded.agent, env, kwargs, loaded.config)
    data = recorded(source, args.out, args.episodes, args.seed, args.deterministic, args.max_steps)
    scores = [episode.score for episode in data]
    truncated = sum(episode.ended == "truncated" for episode in data)
    echo(f"wrote {data.path}: {len(data):,} episodes, {data.steps:,} steps")
    scored = mean_and_std(float(np.mean(scores)), float(np.std(scores)))
    echo(f"return {scored}, {truncated:,} truncated")
    echo(f"Next:\n  tandem.datasets.load({args.out!r})")
    return 0


def make_parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser(
        "record",
        ABOUT,
        (
            "tandem record runs/… --episodes 100 --out cartpole/ppo-v0",
            "tandem record runs/… --episodes 10 --out ./data/mine --no-deterministic",
        ),
    )
    agents.arguments(parser)
    agents.env_arguments(parser)
    parser.add_argument(
        "--out",
        required=True,
        metavar="DATASET",
        help="new folder, or a Minari id such as cartpole/ppo-v0, stored in Minari's own folder",
    )
    parser.add_argument(
        "--episodes", type=int, default=100, metavar="N", help="number of episodes [100]"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="random seed, as for tandem evaluate [0]"
    )
    parser.add_argument(
        "--max-steps",
        type=int,
        default=0,
        metavar="N",
        help="truncate episodes after N steps; 0: as tandem evaluate does [0]",
    )
    agents.deterministic_argument(parser)
    return parser
