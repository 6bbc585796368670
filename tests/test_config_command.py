"""`tandem config` and `tandem train --config`: a file is taken, and flags win over it."""

import json
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tandem import algorithms, trainer, zoo
from tandem.cli import main, train
from tandem.learning.config import Options, plain
from tandem.settings import apply
from tests.runs.shared import rows

QUIET = ["--quiet", "--no-plots", "--no-tensorboard", "--eval-episodes", "1"]
QUIET += ["--framework", "torch"]


def json_of(*path: Any) -> Any:
    return json.loads(Path(*path).read_text(encoding="utf-8"))


def fingerprints(run: str) -> list[str]:
    return [row["fingerprint"] for row in rows(Path(run))]


@pytest.mark.parametrize("algorithm", algorithms.NAMES)
def test_every_setting_is_in_the_file_which_is_taken_as_it_stands(algorithm, tmp_path, capsys):
    assert main(["config", algorithm, "CartPole-v1", "--gamma", "0.5", "--seed", "7"]) == 0
    text = capsys.readouterr().out
    data = tomllib.loads(text)
    assert data["algorithm"] == algorithm and data["env"] == "CartPole-v1" and data["seed"] == 7
    wanted, options, source, _ = zoo.resolve(algorithm, "CartPole-v1", {"gamma": 0.5})
    assert source in text and "discount factor" in text

    def read(settings: Any, part: str) -> Any:
        given = {n: tuple(x) if isinstance(x, list) else x for n, x in data[part].items()}
        return apply(settings, given)

    assert plain(read(algorithms.get(algorithm).Settings(), "settings")) == plain(wanted)
    assert asdict(read(Options(), "options")) == asdict(options)
    env, file = next(iter(zoo.environments(algorithm))), tmp_path / "written.toml"
    assert main(["config", algorithm, env]) == 0
    file.write_text(capsys.readouterr().out)
    args = train.arguments(["--config", str(file)])
    assert zoo.resolve(algorithm, env, train.given(args)) == zoo.resolve(algorithm, env, {})


def test_flags_win_over_a_file_and_a_file_over_the_zoo(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    few = 'hidden = [8]\nsteps = 512\nenvs = 2\nbatch_size = 64\nlearning_rate = "1e-3:0"\n'
    file.write_text(f"{TOP}seed = 4\n[settings]\ngamma = 0.9\n{few}[options]\nkeep = 1\n")
    one, two, three = (str(tmp_path / n) for n in ("one", "two", "three"))
    words = ["train", "--config", str(file), "--gamma", "0.8", *QUIET]
    assert main([*words, "--out", one]) == 0
    kept = json_of(one, "config.json")
    settings = kept["settings"]
    assert (settings["gamma"], settings["hidden"], settings["envs"]) == (0.8, [8], 2)
    assert settings["learning_rate"] == "0.001:0" and settings["gae_lambda"] == 0.8  # the zoo's
    assert kept["seed"] == 4 and kept["options"]["keep"] == 1
    # a run's own file, and another seed
    assert main(["train", "--config", f"{one}/config.json", "--quiet", "--out", two]) == 0
    assert fingerprints(two) == fingerprints(one) != []
    given = ["--config", f"{one}/config.json", "--seeds", "2", "--quiet", "--out", three]
    assert main(["train", "ppo", *given]) == 0
    assert fingerprints(f"{three}/s5") != fingerprints(one)
    both = [json_of(three, f"s{n}", "config.json") for n in (4, 5)]
    assert [x["seed"] for x in both] == [4, 5] and both[0]["settings"] == settings


@pytest.mark.parametrize(
    ("flags", "part"), [("", 25), ("--steps 8000", 12.5), ("--steps 1e6", 1), ("--gamma 0.5", 25)]
)
def test_a_files_schedules_keep_one_horizon(flags: str, part: float, tmp_path: Path) -> None:
    """The clip range is the zoo's, the learning rate is not, as after a sweep."""
    file = tmp_path / "mine.toml"
    long = 'steps = 4000\nlearning_rate = "0.00548:0:25"\nclip = "0.2:0:25"\n'
    file.write_text(f'{TOP}[settings]\n{long}entropy = "0.01:0:0.5"\n')
    args = train.arguments(["--config", str(file), *flags.split()])
    s = zoo.resolve("ppo", "CartPole-v1", train.given(args))[0]
    assert [s.learning_rate.start, s.clip.start, s.entropy.fraction] == [0.00548, 0.2, 0.5]
    assert [s.learning_rate.fraction, s.clip.fraction] == [part, part]


def test_arguments_are_kept_and_whole_numbers_do_for_others(tmp_path: Path, capsys: Any) -> None:
    file, out = tmp_path / "frozen lake.toml", tmp_path / "run"
    words = ["config", "dqn", "FrozenLake-v1", "--env-kwargs", '{"is_slippery": false}']
    assert main([*words, "--steps", "200", "--out", str(file)]) == 0
    assert f"tandem train --config '{file}'" in capsys.readouterr().out
    assert main(["train", "--config", str(file), *QUIET, "--out", str(out)]) == 0
    kept = json_of(out, "config.json")
    assert kept["env_kwargs"] == {"is_slippery": False} and kept["settings"]["steps"] == 200
    file = tmp_path / "mine.toml"
    file.write_text(f"{TOP}[settings]\ngamma = 1\nsteps = 1e6\nhidden = 32\nlearning_rate = 1\n")
    args = train.arguments(["--config", str(file)])
    s = trainer.resolve("ppo", "CartPole-v1", train.given(args))[0]
    assert (s.gamma, s.steps, s.hidden, s.learning_rate.start) == (1.0, 1_000_000, (32,), 1.0)


@pytest.mark.parametrize(
    ("words", "flags", "falls_back"),
    [
        ("ppo CartPole-v1 --workers 2 --worker-patience 20 --ahead 1", "--workers 0", "ahead"),
        ("a3c CartPole-v1 --learners 2 --staleness 3", "--learners 1", "staleness"),
        ("ppo CartPole-v1 --opponents 2 --snapshot-every 99", "--opponents 0", "snapshot_every"),
        ("sac MountainCarContinuous-v0", "--action-noise gaussian", "log_std"),
        ("dqn tandem/CartPolePositions-v0", "--recurrent 0", "sequence"),
        ("dqn CartPole-v1 --entry rainbow", "--no-prioritized", "priority_alpha"),
        ("dqn CartPole-v1 --entry rainbow", "--values quantile", "v_min"),
        ("dqn CartPole-v1", "--munchausen", "double"),
        ("sac CartPole-v1 --temperature 0.2", "", "target_entropy"),
    ],
)
def test_a_flag_that_changes_the_mode_leaves_idle_settings_out(words, flags, falls_back, tmp_path):
    file = tmp_path / "mine.toml"
    assert main(["config", *words.split(), "--out", str(file)]) == 0
    args = train.arguments(["--config", str(file), *flags.split()])
    values = train.given(args)
    chosen, options, *_ = zoo.resolve(args.algorithm, args.env, values)
    here = chosen if hasattr(chosen, falls_back) else options
    usual = False if falls_back == "double" else getattr(type(here)(), falls_back)
    assert getattr(here, falls_back) == usual
    trainer.session(args.algorithm, args.env, framework="torch", **{**values, "workers": 0})


@pytest.mark.parametrize(
    ("option", "flags"),
    [("ahead = 1", "--gamma 0.9"), ("workers = 2", "--workers 0 --ahead 1")],
)
def test_what_has_no_effect_is_noted_from_a_file_and_as_a_flag(option, flags, tmp_path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f"{TOP}[options]\n{option}\n")
    args = train.arguments(["--config", str(file), *flags.split()])
    found = zoo.resolve("ppo", "CartPole-v1", train.given(args))
    assert found.notes == ["ahead=1 has no effect without workers=2."] and found.options.ahead == -1


TOP = 'algorithm = "ppo"\nenv = "CartPole-v1"\n'
WRITTEN = {  # what stands in a file, and what its error says
    'algorithm = "ppo"\nenvironment = "CartPole-v1"\n': "write env = … at the top of the file",
    f'{TOP}[settings]\nenv_id = "CartPole-v1"\n': "write env = … at the top of the file",
    f"{TOP}[settings]\nseed = 3\n": "write seed = … at the top of the file",
    f"{TOP}gamma = 0.9\n": "write gamma = … under [settings]",
    f"{TOP}plots = false\n": "write plots = … under [options]",
    f"{TOP}[settings]\nplots = false\n": "write plots = … under [options]",
    f"{TOP}[options]\ngamma = 0.9\n": "write gamma = … under [settings]",
    f"{TOP}[settings]\nn_steps = 64\n": "write rollout = … under [settings]",
    f"total_timesteps = 64\n{TOP}": "write steps = … under [settings]",
    f"{TOP}[setings]\ngamma = 0.9\n": "did you mean 'settings'",
    f'{TOP}[settings]\nrollout = "128"\n': "expected a whole number, without quotes",
    f"{TOP}[settings]\nrollout = 1.5\n": "expected a whole number.\n",
    f"{TOP}[settings]\nrollout = true\n": "write rollout = 256.",
    f'{TOP}[settings]\ngamma = "0.9"\n': "expected a number, without quotes",
    f'{TOP}[options]\nplots = "true"\n': "expected true or false, without quotes",
    f"{TOP}[options]\nplots = 1\n": "write plots = true.",
    f'{TOP}[options]\nworkers = "2"\n': "a whole number or 'auto', without quotes",
    f'{TOP}[settings]\nhidden = ["64"]\n': "write hidden = [64, 64].",
    f"{TOP}[settings]\nactivation = 3\n": 'write activation = "tanh".',
    f"{TOP}[settings]\nlearning_rate = false\n": 'write learning_rate = "0.0003".',
    f'{TOP}[settings]\nbody = "mlpp"\n': "'mlp' or 'simba' or 'simbav2'",
    f"seed = true\n{TOP}": "a whole number",
}


@pytest.mark.parametrize(("text", "says"), WRITTEN.items())
def test_what_stands_wrongly_in_a_file_is_told(text: str, says: str, tmp_path, capsys) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    assert main(["train", "--config", str(file), "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert says in told and not (tmp_path / "run").exists()
    if says.endswith("."):  # the advice, as it stands
        name, _, value = says.removeprefix("write ").removesuffix(".").partition(" = ")
        lines = [f"{name} = {value}" if x.startswith(f"{name} =") else x for x in text.split("\n")]
        file.write_text("\n".join(lines))
        args = train.arguments(["--config", str(file)])
        trainer.resolve("ppo", "CartPole-v1", train.given(args))
