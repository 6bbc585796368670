"""What users depend on is as `public_surface.json` says: names and signatures, commands and flags,
settings, and what a run writes. The file changes only with what a release means to change:

python -m tests.test_public_surface --write
"""

import argparse
import csv
import inspect
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

import tandem
from tandem import algorithms, cli
from tandem.cli.parser import Parser
from tandem.learning.config import Options
from tandem.settings import declared, hints_of

FILE = Path(__file__).with_name("public_surface.json")
# What CONTRIBUTING.md calls public, and what the reference documents for users: whole modules, or
# some names of one.
MODULES: dict[str, tuple[str, ...]] = {
    "tandem": (),
    "tandem.algorithms": (),
    "tandem.cluster": ("Agent", "AlgorithmAgent", "Cluster", "Runner", "WiseRL"),
    "tandem.datasets": ("Dataset", "Episode", "load"),
    "tandem.errors": (),
    "tandem.exploration": (),
    "tandem.extending": (),
    "tandem.functional": (),
    "tandem.learning.events": (),
    "tandem.planning": (),
    "tandem.runs.callbacks": ("Callback", "EarlyStop", "LambdaCallback", "TimeLimit"),
    "tandem.testing.contracts": (),
    "tandem.trainer": ("Session", "complete", "resolve"),
}
# What pages import, or name, beside those.
NAMED = (
    "tandem.algorithms.ppo.PPO",
    "tandem.algorithms.ppo.PPOSettings",
    "tandem.envs.atari.declared",
    "tandem.envs.factory.make",
    "tandem.envs.plain.Plain",
    "tandem.envs.team.Team",
    "tandem.envs.team.team",
    "tandem.envs.versus.Versus",
    "tandem.math.returns.generalized_advantage",
    "tandem.networks.torch_sequences.LastStep",
    "tandem.runs.verification.verify",
    "tandem.testing.env_checker.check",
    "tandem.testing.environments.Forbidden",
    "tandem.testing.environments.Identity",
    "tandem.testing.environments.IdentityImage",
    "tandem.testing.locks.Lock",
    "tandem.testing.turn_games.Nim",
    "tandem.testing.turn_games.TurnGame",
)
PARAMETER = inspect.Parameter


def names(module: str, chosen: tuple[str, ...]) -> dict[str, Any]:
    """Signatures of what a module offers."""
    loaded = import_module(module)
    public = chosen or getattr(loaded, "__all__", None)
    if public is None:
        own = (n for n, x in vars(loaded).items() if getattr(x, "__module__", "") == module)
        public = [n for n in own if inspect.isclass(vars(loaded)[n]) and not n.startswith("_")]
    return {name: described(getattr(loaded, name)) for name in sorted(public)}


def described(value: Any, deep: bool = True) -> Any:
    """A signature; of a class its constructor's, and what its instances have."""
    if not inspect.isclass(value):
        return signature(value) if callable(value) else type(value).__name__
    return {"()": signature(value), **(dict(members(value)) if deep else {})}


def members(kind: type) -> Iterator[tuple[str, str]]:
    """Public members of a class, those that it has from classes of tandem too."""
    ours = [c for c in kind.__mro__ if c.__module__.startswith("tandem.")]
    found = {n for c in ours for n in (*vars(c), *vars(c).get("__annotations__", {}))}
    for name in sorted(n for n in found if not n.startswith("_")):
        member = inspect.getattr_static(kind, name, None)
        member = getattr(member, "__func__", member)  # of class methods and static ones
        yield name, signature(member) if inspect.isfunction(member) else "attribute"


def signature(value: Any) -> str:
    """Parameters with their defaults, without types."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:  # of a class in C
        return "?"
    shown = [
        p.replace(annotation=PARAMETER.empty, default=default(p.default))
        for p in parameters
        if p.name not in ("self", "cls")
    ]
    return str(inspect.Signature(shown))


def default(value: Any) -> Any:
    """A default that reads the same in every process."""
    plain = value is None or isinstance(value, (bool, int, float, str, tuple))
    return value if plain or value is PARAMETER.empty else Shown(value)


class Shown:
    def __init__(self, value: Any) -> None:
        self.text = getattr(value, "__name__", type(value).__name__)

    def __repr__(self) -> str:
        return f"<{self.text}>"


def commands() -> dict[str, Any]:
    """Flags of every command, as its help has them."""
    shown: list[argparse.ArgumentParser] = []
    calls = [c for c in cli.COMMANDS if c != "find"]
    calls += ["find lr", "find optimizer", "find best", "train ppo"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Parser, "print_help", lambda p, file=None: shown.append(p))
        codes = [cli.main([*call.split(), "--help"]) for call in calls]
    assert codes == [0] * len(calls) and len(shown) == len(calls)
    return {call: flags(parser) for call, parser in zip(calls, shown, strict=True)}


def flags(parser: argparse.ArgumentParser) -> dict[str, str]:
    actions = [a for a in parser._actions if a.help != argparse.SUPPRESS and a.dest != "help"]
    known = {}
    for action in actions:
        of = {"nargs": action.nargs, "choices": action.choices, "default": action.default}
        told = [f"{n}={x!r}" for n, x in of.items() if x not in (None, argparse.SUPPRESS)]
        told += ["required"] * (action.required and bool(action.option_strings))
        known["/".join(action.option_strings) or action.dest.upper()] = " ".join(told)
    return known


def settings(kind: type) -> dict[str, str]:
    """Type, default and range of every setting."""
    hints, known = hints_of(kind), {}
    for s in declared(kind):
        known[s.name] = f"{type_of(hints[s.name])} = {s.default}"
        if s.limits is not None:
            low, high = s.limits.minimum, s.limits.maximum
            start = f"({s.limits.above}" if s.limits.above > low else f"[{low}"
            other = "" if s.limits.special is None else f" or {s.limits.special}"
            known[s.name] += f" in {start}, {high}]{other}"
    return known


def type_of(hint: Any) -> str:
    """A type as every version of Python writes it."""
    inside = get_args(hint)
    if get_origin(hint) is tuple:
        return f"{type_of(inside[0])}, ..."
    if inside:
        return " | ".join(repr(x) if isinstance(x, (str, int)) else type_of(x) for x in inside)
    return str(hint.__name__)


def written(folder: Path, algorithm: str, **more: Any) -> dict[str, Any]:
    """What a short run writes."""
    given = {**more, "plots": False, "tensorboard": False, "eval_every": 32, "final_episodes": 1}
    given |= {"hidden": (4,), "eval_episodes": 1, "eval_max_steps": 10, "framework": "torch"}
    out = folder / algorithm
    tandem.train(algorithm, "CartPole-v1", steps=64, seed=0, out=out, **given)
    read = {n: json.loads((out / n).read_text("utf-8")) for n in ("config.json", "result.json")}
    with (out / "progress.csv").open(encoding="utf-8", newline="") as file:
        columns = next(csv.reader(file))
    with zipfile.ZipFile(out / "checkpoints" / "last.zip") as archive:
        data = json.loads(archive.read("checkpoint.json"))
        groups = {n: arrays(archive.read(n)) for n in archive.namelist() if n.endswith("tensors")}
    return {
        "files": sorted(p.relative_to(out).as_posix() for p in out.rglob("[a-z]*.*")),
        "config.json": sorted(read["config.json"]),
        "config.json, settings": sorted(read["config.json"]["settings"]),
        "config.json, options": sorted(read["config.json"]["options"]),
        "result.json": sorted(read["result.json"]),
        "progress.csv": sorted(columns),
        "last.zip, checkpoint.json": sorted(data),
        **{f"last.zip, {name}": groups[name] for name in sorted(groups)},
    }


def arrays(data: bytes) -> list[str]:
    """The groups of arrays in a safetensors file."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return sorted({name.partition("/")[0] for name in header if name != "__metadata__"})


def surface(folder: Path) -> dict[str, Any]:
    """All of it. Modules that need a package which is not installed are left out."""
    offered = {}
    for module, chosen in MODULES.items():
        try:
            offered[module] = names(module, chosen)
        except ModuleNotFoundError as error:
            if str(error.name).startswith("tandem"):
                raise
    for path in NAMED:
        module, _, name = path.rpartition(".")
        offered[path] = described(getattr(import_module(module), name), deep=False)
    return {
        "names": offered,
        "commands": commands(),
        "settings": {
            name: settings(algorithms.get(name).Settings) for name in sorted(algorithms.NAMES)
        }
        | {"options of every run": settings(Options)},
        "runs": {
            "dqn": written(folder, "dqn", learning_starts=8, train_every=8),
            "ppo": written(folder, "ppo", envs=2),
        },
    }


def differences(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """A line for each thing that is not as before."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            at = f"{place} > {key}".removeprefix(" > ")
            if key not in now:
                yield f"{at}: is missing"
            elif key not in before:
                yield f"{at}: is new"
            else:
                yield from differences(before[key], now[key], at)
    elif before != now:
        yield f"{place}: was {before}, is {now}"


def test_what_users_depend_on_is_as_it_was(tmp_path) -> None:
    pytest.importorskip("torch")
    before, now = json.loads(FILE.read_text(encoding="utf-8")), surface(tmp_path)
    absent = before["names"].keys() & MODULES.keys() - now["names"].keys()
    for module in absent:  # needs a package that is not here
        del before["names"][module]
    found = list(differences(before, json.loads(json.dumps(now))))
    assert not found, "\n".join([*found, "Fix: python -m tests.test_public_surface --write"])


def test_a_difference_is_named() -> None:
    before = {"train": {"--seed": "default=0", "--out": ""}, "columns": ["loss"]}
    now = {"train": {"--seed": "default=1", "--log": ""}, "columns": ["loss"]}
    assert list(differences(before, now)) == [
        "train > --seed: was default=0, is default=1",
        "train > --out: is missing",
        "train > --log: is new",
    ]


if __name__ == "__main__" and "--write" in sys.argv:
    with tempfile.TemporaryDirectory() as temporary:
        text = json.dumps(surface(Path(temporary)), indent=1, ensure_ascii=False)
    FILE.write_text(f"{text}\n", encoding="utf-8")
