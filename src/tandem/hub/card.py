"""Model card of a run: the repository's README.md with metadata for the Hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tandem import algorithms
from tandem.hub.api import library
from tandem.learning.figures import mean_and_std
from tandem.reports.run_report import command_of, import_of
from tandem.runs import config_file
from tandem.runs.folder import Run, describe
from tandem.types import JSONDict

TAGS = ("deep-reinforcement-learning", "reinforcement-learning", "tandem-rl")
OWN = {  # what a user must provide to load the agent, by entry of config.json
    "own_network": "`network=`, the network that it was trained with",
    "own_env": "the environment, which a program made",
}


def metadata(config: JSONDict, result: JSONDict) -> str:
    """Return the YAML header of a card: the fields that the Hub indexes, and the score in its
    model-index format for reinforcement learning."""
    hub, env, algorithm = library(), str(config["env"]), str(config["algorithm"])
    results: list[Any] = []
    if (mean := result.get("eval_mean")) is not None:
        results.append(
            hub.EvalResult(
                task_type="reinforcement-learning",
                task_name="reinforcement-learning",
                dataset_name=env,
                dataset_type=env,
                metric_type="mean_reward",
                metric_name="mean_reward",
                metric_value=mean_and_std(mean, result["eval_std"], "+/-"),
            )
        )
    data = hub.ModelCardData(
        library_name="tandem-rl",
        pipeline_tag="reinforcement-learning",
        tags=[env, algorithm, *TAGS],
        model_name=algorithms.title(algorithm) if results else None,
        eval_results=results or None,
    )
    return str(data.to_yaml())


def card(run: Run, repo: str, files: Sequence[str]) -> str:
    """Return the README.md of a run. files: names of the other files in the repository."""
    config, result = run.config, run.result
    title = describe(run, ("algorithm", "env", "framework"))
    parts = [f"---\n{metadata(config, result)}\n---\n", f"# {title}\n", _outcome(run)]
    for name, text in (("animation.gif", "The agent at play"), ("curve.png", "Learning curve")):
        if name in files:
            parts.append(f"![{text}]({name})\n")
    parts += ["## Use it\n", _usage(config, repo)]
    parts += ["## Train it again\n", f"```sh\n{command_of(config)}\n```\n"]
    if "checkpoints/last.zip" in files:
        parts.append(
            "The repository has what going on needs: `tandem pull "
            f"{repo} --out run`, then `tandem train --resume run --steps N --extend`.\n"
        )
    parts += ["## Settings\n", _table({"setting": "value"} | _settings(config))]
    parts += ["## Versions\n", _table({"of": "version"} | config.get("versions", {}))]
    return "\n".join(parts)


def _outcome(run: Run) -> str:
    config, result = run.config, run.result
    text = (
        f"An agent for `{config['env']}`, trained with `{config['algorithm']}` by tandem "
        f"(`pip install tandem-rl`), seed {config.get('seed', 0)}"
    )
    if not result:
        steps = int(run.column("env_steps")[-1])
        return f"{text}. The run is not complete: {steps:,} environment steps.\n"
    text += f", for {result['env_steps']:,} environment steps."
    if result.get("eval_mean") is not None:
        text += (
            "\n\nReturn of its best checkpoint: "
            f"**{mean_and_std(result['eval_mean'], result['eval_std'])}** over "
            f"{result['eval_episodes']} episodes, on seeds that did not choose it."
        )
    return f"{text}\n"


def _usage(config: JSONDict, repo: str) -> str:
    brought = [text for key, text in OWN.items() if config.get(key)]
    if ":" in str(config["algorithm"]):
        brought.append("`algorithm=`, the class of the algorithm")
    more, module = import_of(config), config_file.module_of(config)
    first = f"import {module}  # registers {config['env']}\n" if module else ""
    commands = "".join(f"tandem {name} run{more}\n" for name in ("evaluate", "watch"))
    text = (
        f'```python\n{first}import tandem\n\nfolder = tandem.pull("{repo}")\n'
        f"agent = tandem.load(folder)\n"
        f'print(tandem.evaluate(agent, "{config["env"]}", episodes=20))\n```\n\n'
        f"```sh\ntandem pull {repo} --out run\n{commands}```\n\n"
        "A checkpoint is a zip of JSON and safetensors: loading it runs no code from it.\n"
    )
    return text + (f"\nLoading it needs {', '.join(brought)}.\n" if brought else "")


def _settings(config: JSONDict) -> dict[str, str]:
    values = config.get("settings", {}) | {"env_kwargs": config.get("env_kwargs") or {}}
    return {name: str(value) for name, value in values.items() if value not in ("", {}, None)}


def _table(rows: dict[str, Any]) -> str:
    lines = [f"| {name} | {str(value).replace('|', ' ')} |" for name, value in rows.items()]
    return "\n".join([lines[0], "|---|---|", *lines[1:]]) + "\n"
