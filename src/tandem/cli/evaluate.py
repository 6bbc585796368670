"""`tandem evaluate`."""

from __future__ import annotations

import json

from tandem import trainer
from tandem.cli import agents
from tandem.cli.output import echo
from tandem.cli.parser import Parser
from tandem.learning.figures import listed
from tandem.settings import whole_number

ABOUT = """Evaluate the agent of a run: undiscounted returns of whole episodes, on seeds that were
not used to select the checkpoint."""


def run(words: list[str]) -> int:
    """Print mean and standard deviation, or everything as JSON."""
    args = make_parser().read(words)
    loaded = agents.load(args, "evaluate")
    max_steps = whole_number("--max-steps", args.max_steps)
    result = trainer.evaluate(
        loaded.agent,
        loaded.env,
        args.episodes,
        args.seed,
        args.deterministic,
        max_steps,
        args.eval_envs,
    )
    if args.json:
        report = {
            "checkpoint": str(loaded.file),
            "env": loaded.config["env"],
            "env_kwargs": loaded.config.get("env_kwargs") or {},
            "episodes": args.episodes,
            "seed": args.seed,
            "deterministic": args.deterministic,
        }
        echo(json.dumps(report | result._asdict()))
    else:
        low, high = listed(min(result.returns), max(result.returns))
        kwargs = loaded.config.get("env_kwargs")
        made = f" {json.dumps(kwargs)}" if kwargs else ""
        around = "".join(f" in {name}" for name in loaded.config.get("wrappers") or ())
        echo(f"{loaded.config['algorithm']} {loaded.config['env']}{made}{around}, {loaded.file}")
        echo(f"return {result} (lowest {low}, highest {high})")
        if result.agents:
            echo("of each agent: " + ", ".join(listed(*result.agents)))
    return 0


def make_parser() -> Parser:
    """Return the parser of this command."""
    parser = Parser("evaluate", ABOUT, ("tandem evaluate runs/… --episodes 100",))
    agents.arguments(parser)
    agents.env_arguments(parser)
    parser.add_argument(
        "--episodes", type=int, default=20, metavar="N", help="number of episodes [20]"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="random seed [0]")
    parser.add_argument(
        "--max-steps",
        type=int,
        default=0,
        metavar="N",
        help="maximum steps per episode; 0: twice the environment's limit or the longest training "
        "episode, at least 5,000 [0]",
    )
    parser.add_argument(
        "--eval-envs",
        default="auto",
        metavar="N",
        help="number of parallel environments; auto: 10 for tandem's or Gymnasium's classic "
        "control, else 1 [auto]",
    )
    agents.deterministic_argument(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object, with the return and length of each episode",
    )
    return parser
