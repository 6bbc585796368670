"""Starting a run from a trained one: `start_from`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tandem.errors import CheckpointError, SettingError, note, one_of
from tandem.learning.collect.actor import publish
from tandem.learning.collect.trained_agent import Agent
from tandem.networks.plan import Weights, select
from tandem.networks.users import refuse_old_layers
from tandem.runs import checkpoint
from tandem.settings import as_path, flag
from tandem.types import Array, JSONDict

if TYPE_CHECKING:
    from tandem.runs.session import Session

USUAL = ("networks", "normalization")
PARTS = (*USUAL, "optimizer", "replay", "matching")
STATISTICS = ("observation/", "reward/")  # prefixes of names in `normalization.state`
SHOWN = 4  # number of mismatches that an error lists
DEFAULT = "default networks"
# settings that determine the shapes of default networks, in addition to the environment
SHAPING = {
    *("hidden", "critic_hidden", "body", "layer_norm", "weight_norm", "recurrent", "memory"),
    *("normalize_observations", "shared", "dueling", "noisy", "values", "atoms", "quantiles"),
}
MEMORY = ("ring/", "sampler/", "column/", "priority", "kept/")  # prefixes in a replay buffer
OWN = ("updates", "waiting", "owed")  # entries of a learner's state that belong to the run


@dataclass(frozen=True)
class Start:
    """Starting point of a run. networks: weights by "ROLE/WEIGHT". saved: its checkpoint, None for
    an agent. load: the `PARTS` to take. record: its entry in config.json."""

    networks: Weights
    saved: checkpoint.Checkpoint | None
    load: tuple[str, ...]
    record: JSONDict
    engine: str  # "torch" or "keras": order and layout of custom networks' weights

    @property
    def config(self) -> JSONDict:
        """The config of the source run; {} for an agent."""
        return {} if self.saved is None else self.saved.data.get("config", {})

    @property
    def name(self) -> str:
        return self.record["from"] or "the agent"

    def enter(self, run: Session) -> None:
        """Load the parts into a run that has not started. Raises CheckpointError if they do not
        fit."""
        left = self._misfits(run) if "networks" in self.load else []
        statistics = self._statistics(run, left) if "normalization" in self.load else {}
        if left and "matching" not in self.load:
            raise self._unfit(run, left)
        if left:
            note(f"not loaded from {self.name}: {'; '.join(left)}.")
        backend = run.backend
        if "networks" in self.load:
            for name, network in backend.networks.items():
                network.write({**network.read(), **self._fitting(name, network)})
        if "optimizer" in self.load:
            backend.load_state({**backend.state(), **self._optimizer(run)})
        data, arrays = self._replay(run) if "replay" in self.load else ({}, {})
        if data or arrays or statistics:
            try:
                run.loop.take(data, arrays | statistics)
            except (KeyError, ValueError) as error:
                raise self._misfit("replay buffer", error) from error
        publish(backend, run.loop.networks)

    def _of(self, name: str) -> Weights:
        """Return the saved weights of a network. A target network that was not saved has the
        weights of its network."""
        return select(self.networks, name) or select(self.networks, name.removesuffix("_target"))

    def _fitting(self, name: str, network: Any) -> Weights:
        own = network.read()
        return {n: x for n, x in self._of(name).items() if n in own and x.shape == own[n].shape}

    def _misfits(self, run: Session) -> list[str]:
        """Return descriptions of the weights whose shapes differ, or that only one side has.
        Networks that are missing entirely, such as the critics of an agent, are noted."""
        networks = run.backend.networks
        refuse_old_layers(self.networks, {r: networks[r] for r in run.kind.acting}, self.name)
        found, absent = [], []
        here = "torch" if run.backend.framework == "torch" else "keras"
        for name, network in networks.items():
            own, saved = network.read(), self._of(name)
            if not saved:
                absent.append(name)
            elif not name.endswith("_target"):
                if all(n.isdigit() for n in own) and self.engine != here:
                    found.append(f"{name} is a custom network of another framework")
                for n in {**own, **saved}:
                    shapes = [w[n].shape if n in w else "none" for w in (saved, own)]
                    if shapes[0] != shapes[1]:
                        part = f"{name}.{n.replace('/', '.')}"
                        found.append(f"{part} is {shapes[0]} there and {shapes[1]} here")
        if len(absent) == len(networks):
            raise CheckpointError(
                f"{self.name} has none of this run's networks ({', '.join(absent)}).",
                "what the same algorithm, or one with such networks, has trained",
                f"start from a run of {run.config.algorithm}.",
            )
        if absent:
            note(f"{self.name} has no {', '.join(absent)}, which this run learns from scratch.")
        return found

    def _unfit(self, run: Session, left: list[str]) -> CheckpointError:
        """Return the error for networks that do not fit, with the reason and the arguments that fix
        it."""
        there, here = self.config, vars(run.config)
        theirs, ours = _network(there), _network(here)
        more = f"; and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
        wrong = f"the weights in {self.name} do not fit this run: {'; '.join(left[:SHOWN])}{more}."
        own, was = vars(here["settings"]), there.get("settings", {})
        given = {n: x for n, x in was.items() if n in SHAPING and flag(n, x) != flag(n, own[n])}
        if other := bool(there) and theirs != ours:
            wrong = f"{self.name} was trained with {theirs}, but this run has {ours}."
            given = {n: there[n] or "MODULE:FUNCTION" for n in ("network", "framework")}
            given = given if theirs != DEFAULT else {}
        fixes = ["leave out the custom network"] * (other and not given)
        fixes += [f"give {', '.join(f'{n}={x!r}' for n, x in given.items())}"] * bool(given)
        fitting = (self._fitting(*one).values() for one in run.backend.networks.items())
        if any(x.ndim > 1 for layers in fitting for x in layers):
            fixes.append("give load='matching' to load only what fits")
        return CheckpointError(
            wrong,
            "networks of the same shapes"
            + "; a custom one cannot be moved to another framework" * (theirs != DEFAULT),
            "; or ".join(fixes) or "leave out start_from, since no layer fits.",
        )

    def _statistics(self, run: Session, left: list[str]) -> dict[str, Array]:
        """Return the saved statistics that the run also keeps; adds those of other shapes to
        `left`."""
        own = {n: x for n, x in run.loop.statistics().items() if _is_statistic(n)}
        if self.saved is None:
            if own:
                note("the agent in start_from has no normalization statistics; they start fresh.")
            return {}
        saved, found = self.saved.group("learner"), {}
        for n, x in own.items():
            if n not in saved:
                left.append(f"it has no {n}")
            elif np.shape(saved[n]) != np.shape(x):
                left.append(f"{n} is {np.shape(saved[n])} there and {np.shape(x)} here")
            else:
                found[n] = np.asarray(saved[n], np.float64)
        return found

    def _optimizer(self, run: Session) -> dict[str, Array]:
        saved, backend = self._saved("optimizer"), run.backend
        if (there := saved.data["config"]["framework"]) != backend.framework:
            raise CheckpointError(
                f"the optimizer in {self.name} is of {there}, this run of {backend.framework}.",
                "the same framework, since only weights are common to all",
                f"give framework={there!r}, or load the networks only.",
            )
        engine = (backend.state(), saved.group("engine"))
        own, found = ({n: x for n, x in e.items() if n.startswith("optimizer/")} for e in engine)
        for name in {**own, **found}:
            here, stored = (np.shape(e[name]) if name in e else "none" for e in (own, found))
            if here != stored:
                raise self._misfit("optimizer", f"{name} is {stored} there and {here} here")
        return found

    def _replay(self, run: Session) -> tuple[JSONDict, dict[str, Array]]:
        saved = self._saved("replay")
        data, arrays = saved.data["learner"], saved.group("learner")
        if not saved.data.get("whole") or "each" in data or run.algorithm.needs == "rollouts":
            raise CheckpointError(
                f"{saved.path} has no replay buffer that this run could use.",
                "which='last' of a run of an off-policy algorithm in one process",
                "give which='last', or leave replay out of load.",
            )
        kept = {n: x for n, x in arrays.items() if n.startswith(MEMORY)}
        return {n: x for n, x in data.items() if n not in OWN}, kept

    def _saved(self, part: str) -> checkpoint.Checkpoint:
        if self.saved is None:
            raise SettingError(
                f"load has {part!r}, but start_from is an agent, which has networks only.",
                "the folder of a run",
                "give start_from='runs/…', or leave load out.",
            )
        return self.saved

    def _misfit(self, what: str, why: object) -> CheckpointError:
        return CheckpointError(
            f"the {what} in {self.name} does not fit this run: {why}.",
            "the same networks, environments, number of them and sizes",
            f"leave {what.split()[0]} out of load.",
        )


def _network(config: Mapping[str, Any]) -> str:
    """Return a description of a run's networks."""
    name = config.get("network") or "of a program" * bool(config.get("own_network"))
    framework = "torch" if config.get("framework") == "torch" else "Keras"
    return f"the custom network {name} on {framework}" if name else DEFAULT


def _is_statistic(name: str) -> bool:
    """Return True for a normalization statistic in a learner's state, unless it belongs to a single
    environment."""
    return name.startswith(STATISTICS) and not name.endswith("/running")


def opened(source: Any, which: str, load: str | Sequence[str]) -> Start | None:
    """Return the Start for `start_from`, `which` and `load`; None without `start_from`. Raises
    CheckpointError if the source is not a checkpoint; SettingError for unknown parts."""
    if source is None:
        if (which, load) != ("best", USUAL):
            note("which and load have no effect without start_from.")
        return None
    parts = tuple(load.split(",") if isinstance(load, str) else load)
    for part in parts:
        one_of("load", part, PARTS)
    if not set(parts) - {"matching"}:
        parts = (*USUAL, *parts)
    if isinstance(source, Agent):
        forwards: dict[str, Any] = source.networks
        each = {r: f.weights for r, f in forwards.items()}  # lists for custom Keras models
        engine = "keras" if any(isinstance(w, list) for w in each.values()) else "torch"
        named = {r: dict(enumerate(w)) if isinstance(w, list) else w for r, w in each.items()}
        weights = {f"{r}/{n}": x for r, w in named.items() for n, x in w.items()}
        record = {"from": "", "name": source.name, "load": [*parts]}
        return Start(weights, None, parts, record, engine)
    path = checkpoint.find(as_path("start_from", source), which)
    saved = checkpoint.read(path)
    config, networks = saved.data.get("config", {}), saved.group("networks")
    record = {
        "from": str(source),
        "which": which,
        "load": [*parts],
        "algorithm": config.get("algorithm"),
        "env": config.get("env"),
        "env_kwargs": config.get("env_kwargs"),
        "steps": saved.data.get("collector", {}).get("env_steps"),
        "fingerprint": checkpoint.fingerprint(networks),
        "before": config.get("start", {}),
    }
    engine = "torch" if config.get("framework") == "torch" else "keras"
    return Start(networks, saved, parts, record, engine)


def again(record: JSONDict) -> Start | None:
    """Return the Start of an existing run, to repeat that run; None if it had none. Raises
    CheckpointError if the source has changed."""
    if not record:
        return None
    if not record["from"]:
        raise CheckpointError(
            "the run started from an agent passed from Python, which is in no file.",
            "a run that started from a folder or a checkpoint",
            "give start_from='runs/…' when training.",
        )
    start = opened(record["from"], record["which"], record["load"])
    if start is None or start.record["fingerprint"] != record["fingerprint"]:
        raise CheckpointError(
            f"{record['from']}, which the run started from, has other weights now.",
            f"the weights with fingerprint {record['fingerprint']}",
            "restore that run, or train this one again.",
        )
    return start
