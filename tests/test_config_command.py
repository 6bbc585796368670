"""`tandem config` and `tandem train --config`: what is in a file is taken, flags win, and a run's
own config.json makes the run again."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tandem import algorithms, zoo
from tandem.cli import main
from tandem.learning.config import Options, plain
from tandem.settings import apply

QUIET = [
    "--quiet",
    "--no-plots",
    "--no-tensorboard",
    "--eval-episodes",
    "1",
    "--framework",
    "torch",
]


@pytest.mark.parametrize("algorithm", algorithms.NAMES)
def test_every_setting_is_in_the_file_with_its_meaning(
    algorithm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", algorithm, "CartPole-v1", "--gamma", "0.5", "--seed", "7"]) == 0
    text = capsys.readouterr().out
    data = tomllib.loads(text)
    assert data["algorithm"] == algorithm and data["env"] == "CartPole-v1" and data["seed"] == 7
    wanted, options, source = zoo.settle(algorithm, "CartPole-v1", {"gamma": 0.5})
    assert source in text and "discount factor" in text

    def read(settings: Any, part: str) -> Any:
        given = {n: tuple(x) if isinstance(x, list) else x for n, x in data[part].items()}
        return apply(settings, given)

    assert plain(read(algorithms.get(algorithm).Settings(), "settings")) == plain(wanted)
    assert asdict(read(Options(), "options")) == asdict(options)


def test_flags_win_over_a_file_and_a_file_over_the_zoo(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'algorithm = "ppo"\nenv = "CartPole-v1"\nseed = 4\n[settings]\ngamma = 0.9\n'
        'hidden = [8]\nsteps = 512\nenvs = 2\nbatch_size = 64\nlearning_rate = "1e-3:0"\n'
        "[options]\nkeep = 1\n"
    )
    one, two, three = (str(tmp_path / n) for n in ("one", "two", "three"))
    words = ["train", "--config", str(file), "--gamma", "0.8", *QUIET]
    assert main([*words, "--out", one]) == 0
    kept = json.loads(Path(one, "config.json").read_text())
    settings = kept["settings"]
    assert (settings["gamma"], settings["hidden"], settings["envs"]) == (0.8, [8], 2)
    assert settings["learning_rate"] == "0.001:0" and settings["gae_lambda"] == 0.8  # the zoo's
    assert kept["seed"] == 4 and kept["options"]["keep"] == 1
    # a run's own file, and another seed
    assert main(["train", "--config", f"{one}/config.json", "--quiet", "--out", two]) == 0
    assert fingerprints(two) == fingerprints(one)
    given = ["--config", f"{one}/config.json", "--seeds", "2", "--quiet", "--out", three]
    assert main(["train", "ppo", *given]) == 0
    assert fingerprints(f"{three}/s5") != fingerprints(one)
    both = [json.loads(Path(three, f"s{n}", "config.json").read_text()) for n in (4, 5)]
    assert [x["seed"] for x in both] == [4, 5] and both[0]["settings"] == settings


def fingerprints(run: str) -> list[str]:
    rows = [row.split(",") for row in Path(run, "progress.csv").read_text().splitlines()]
    place = rows[0].index("fingerprint")
    assert len(rows) > 1
    return [row[place] for row in rows[1:]]


def test_arguments_of_an_environment_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "lake.toml", tmp_path / "run"
    words = ["config", "dqn", "FrozenLake-v1", "--env-kwargs", '{"is_slippery": false}']
    assert main([*words, "--steps", "200", "--out", str(file)]) == 0
    assert f"tandem train --config {file}" in capsys.readouterr().out
    assert main(["train", "--config", str(file), *QUIET, "--out", str(out)]) == 0
    kept = json.loads((out / "config.json").read_text())
    assert kept["env_kwargs"] == {"is_slippery": False} and kept["settings"]["steps"] == 200
