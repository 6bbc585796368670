"""What the parity suite runs, on every engine and by the reference: run as a script, it makes each
case's updates on one engine and writes what came out.

    python tests/algorithms/cases.py FRAMEWORK FILE.npz [compile] [some | few | most]
"""

from __future__ import annotations

import json
import sys
from typing import Any, NamedTuple

import numpy as np

from tandem.settings import Schedule
from tandem.spaces import Leaf
from tandem.testing import fakes
from tandem.types import Batch

UPDATES, ROWS = 20, 32
SGD: dict[str, Any] = {"optimizer": "sgd", "learning_rate": Schedule(0.5, 0.1)}
MIXED: dict[str, Any] = {
    "hidden": (16, 16),
    "embedding": 5,
    "hyper": 7,
    "learning_rate": Schedule(0.1),
}
PAIRED: dict[str, Any] = {
    "hidden": (16, 16),
    "actor_learning_rate": Schedule(5.0),
    "learning_rate": Schedule(0.4),
}
JOINT: dict[str, Any] = {
    "hidden": (16, 16),
    "orthogonal": False,
    "entropy": Schedule(0.02),
    "value_clip": 0.2,
}
SEQUENCE: dict[str, Any] = {
    **JOINT,
    "hidden": (6,),
    "embedding": 8,
    "clip": Schedule(0.2),
    "learning_rate": Schedule(0.5, 0.1),
}
RND: dict[str, Any] = {"intrinsic": "rnd", "rnd_features": 8}
FRACTIONS = {"fractions": 5, "target_fractions": 4, "acting_fractions": 6, "cosines": 7}
SOFT: dict[str, Any] = {"munchausen": True, "double": False, "munchausen_temperature": 0.2}
MEMORY: dict[str, Any] = {"hidden": (16, 16), "recurrent": 6, "sequence": 4}
ATOMS: dict[str, Any] = {"values": "categorical", "atoms": 11, "v_min": -3.0, "v_max": 4.0}
SHORT: dict[str, Any] = {"rollout": 7, "hidden": (32, 32)}  # eight rows a sequence, four sequences


class Case(NamedTuple):
    algorithm: str
    action: Leaf
    settings: dict[str, Any]
    observation: Any = fakes.VECTOR


CASES = {
    "dqn": Case("dqn", fakes.DISCRETE, {"double": False, "max_grad_norm": 0.5}),
    "dqn double dueling prioritized": Case(
        "dqn", fakes.DISCRETE, {"dueling": True, "prioritized": True}
    ),
    "dqn dueling noisy": Case("dqn", fakes.DISCRETE, {"dueling": True, "noisy": "factorised"}),
    "dqn categorical dueling": Case(
        "dqn",
        fakes.DISCRETE,
        {**ATOMS, "dueling": True},
    ),
    "dqn quantile prioritized masked": Case(
        "dqn",
        fakes.MASKED,
        {"values": "quantile", "quantiles": 7, "prioritized": True},
        fakes.MASKED_VECTOR,
    ),
    "dqn masked": Case("dqn", fakes.MASKED, {}, fakes.MASKED_VECTOR),
    "dqn implicit dueling prioritized": Case(
        "dqn",
        fakes.DISCRETE,
        {"values": "implicit", **FRACTIONS, "dueling": True, "prioritized": True, "kappa": 0.7},
    ),
    "dqn implicit masked": Case(
        "dqn",
        fakes.MASKED,
        {"values": "implicit", **FRACTIONS, "double": False, "n_step": 3},
        fakes.MASKED_VECTOR,
    ),
    "dqn munchausen": Case(
        "dqn", fakes.DISCRETE, {**SOFT, "munchausen_temperature": 0.03, "munchausen_clip": -0.1}
    ),
    "dqn munchausen quantile masked": Case(
        "dqn",
        fakes.MASKED,
        {**SOFT, "values": "quantile", "quantiles": 5},
        fakes.MASKED_VECTOR,
    ),
    "dqn munchausen implicit": Case(
        "dqn", fakes.DISCRETE, {**SOFT, "values": "implicit", **FRACTIONS}
    ),
    "dqn recurrent dueling": Case(
        "dqn",
        fakes.DISCRETE,
        {**MEMORY, "dueling": True, "burn_in": 3, "n_step": 3, "prioritized": True},
    ),
    "dqn recurrent quantile masked": Case(
        "dqn",
        fakes.MASKED,
        {**MEMORY, **SOFT, "values": "quantile", "quantiles": 5, "burn_in": 2},
        fakes.MASKED_VECTOR,
    ),
    "dqn recurrent categorical": Case(
        "dqn",
        fakes.DISCRETE,
        {
            **MEMORY,
            "values": "categorical",
            "atoms": 11,
            "v_min": -3.0,
            "v_max": 4.0,
            "n_step": 9,
            "double": False,
        },
    ),
    "sac recurrent": Case("sac", fakes.BOX, {**MEMORY, "burn_in": 3, "prioritized": True}),
    "sac discrete recurrent": Case("sac", fakes.DISCRETE, {**MEMORY, "burn_in": 1}),
    "tqc recurrent": Case(
        "tqc", fakes.BOX, {**MEMORY, "critics": 3, "quantiles": 5, "dropped": 1, "burn_in": 2}
    ),
    "sac lstm": Case("sac", fakes.BOX, {**MEMORY, "memory": "lstm", "burn_in": 2}),
    "td3 recurrent": Case(
        "td3",
        fakes.BOX,
        {**MEMORY, "policy_delay": 3, "burn_in": 2, "n_step": 2, "prioritized": True},
    ),
    "ddpg recurrent": Case(
        "ddpg", fakes.BOX, {**MEMORY, "actor_learning_rate": Schedule(0.3), "n_step": 3}
    ),
    "ppo masked": Case(
        "ppo", fakes.MASKED, {"entropy": Schedule(0.02), "orthogonal": False}, fakes.MASKED_VECTOR
    ),
    "ppo categorical": Case("ppo", fakes.DISCRETE, {"entropy": Schedule(0.01)}),
    "ppo gaussian normalized": Case(
        "ppo",
        fakes.BOX,
        {
            "normalize_observations": True,
            "value_clip": 0.2,
            "entropy": Schedule(0.01),
            "orthogonal": False,
        },
    ),
    "ppo gaussian layer norm": Case(
        "ppo", fakes.BOX, {**JOINT, "layer_norm": True, "weight_norm": True}
    ),
    "ppo multi-categorical": Case(
        "ppo",
        fakes.MULTI,
        {
            "normalize_advantage": False,
            "clip": Schedule(0.3, 0.1),
            "max_kl": 0.46,
            "orthogonal": False,
        },
    ),
    "ppo beta": Case(
        "ppo", fakes.BOX, {"policy": "beta", "entropy": Schedule(0.02), "orthogonal": False}
    ),
    "ppo gsde": Case(
        "ppo",
        fakes.BOX,
        {"action_noise": "gsde", "log_std": -1.0, "clip": Schedule(0.4), "orthogonal": False},
    ),
    "a2c": Case("a2c", fakes.DISCRETE, {"orthogonal": False}),
    "a2c gaussian": Case(
        "a2c",
        fakes.BOX,
        {"normalize_observations": True, "orthogonal": False, "entropy": Schedule(0.02)},
    ),
    "a2c gaussian noisy": Case("a2c", fakes.BOX, {"orthogonal": False, "noisy": "independent"}),
    "ppo shared gaussian": Case(
        "ppo", fakes.BOX, {"shared": True, "normalize_observations": True, "orthogonal": False}
    ),
    "a2c shared masked": Case(
        "a2c", fakes.MASKED, {"shared": True, "orthogonal": False}, fakes.MASKED_VECTOR
    ),
    "ppo recurrent": Case(
        "ppo",
        fakes.MASKED,
        {"recurrent": 6, "sequence": 8, "hidden": (16, 16), "orthogonal": False, "value_clip": 0.2},
        fakes.MASKED_VECTOR,
    ),
    "a2c lstm gaussian": Case(
        "a2c",
        fakes.BOX,
        {
            "recurrent": 5,
            "memory": "lstm",
            "sequence": 4,
            "hidden": (16, 16),
            "normalize_observations": True,
            "orthogonal": False,
        },
    ),
    "ppo rnd gaussian": Case(
        "ppo",
        fakes.BOX,
        {**JOINT, **RND, "normalize_observations": True},
    ),
    "a2c rnd": Case("a2c", fakes.DISCRETE, {"orthogonal": False, **RND, "rnd_share": 0.6}),
    "sac": Case("sac", fakes.BOX, {"hidden": (32, 32)}),
    "tqc": Case(
        "tqc",
        fakes.BOX,
        {
            "hidden": (32, 32),
            "critics": 3,
            "quantiles": 5,
            "dropped": 1,
            "prioritized": True,
            "n_step": 3,
        },
    ),
    "crossq": Case(
        "crossq",
        fakes.BOX,
        {
            "hidden": (16, 16),
            "critic_hidden": (24, 24),
            "policy_delay": 2,
            "renorm_warmup": 8,
            "renorm_momentum": 0.9,
            "prioritized": True,
            "n_step": 2,
            "learning_rate": Schedule(0.1),
        },
    ),
    "crossq xqc": Case(
        "crossq",
        fakes.BOX,
        {
            **ATOMS,
            "weight_projection": True,
            "hidden": (16, 16),
            "critic_hidden": (24, 24),
            "policy_delay": 2,
            "renorm_warmup": 8,
            "prioritized": True,
            "learning_rate": Schedule(0.1),
        },
    ),
    "sac weight norm": Case("sac", fakes.BOX, {"hidden": (32, 32), "weight_norm": True}),
    "sac categorical": Case(
        "sac",
        fakes.BOX,
        {**ATOMS, "hidden": (32, 32), "prioritized": True, "learning_rate": Schedule(0.2)},
    ),
    "sac simbav2": Case(
        "sac",
        fakes.BOX,
        {**ATOMS, "body": "simbav2", "hidden": (16,), "critic_hidden": (24, 24)},
    ),
    "sac discrete categorical": Case("sac", fakes.DISCRETE, {**ATOMS, "hidden": (32, 32)}),
    "sac gsde": Case(
        "sac",
        fakes.BOX,
        {
            "hidden": (32, 32),
            "action_noise": "gsde",
            "log_std": -1.0,
            "learning_rate": Schedule(1.0),
            "n_step": 3,
        },
    ),
    "sac discrete": Case(
        "sac", fakes.DISCRETE, {"hidden": (32, 32), "prioritized": True, "n_step": 4}
    ),
    "ddpg": Case(
        "ddpg",
        fakes.BOX,
        {"hidden": (32, 32), "actor_learning_rate": Schedule(0.3), "prioritized": True},
    ),
    "trpo": Case(
        "trpo", fakes.DISCRETE, {"hidden": (8, 8), "conjugate_steps": 5, "orthogonal": False}
    ),
    "trpo whole": Case(
        "trpo",
        fakes.DISCRETE,
        {"hidden": (8, 8), "conjugate_steps": 5, "orthogonal": False, "batch_size": 0},
    ),
    "trpo gaussian": Case(
        "trpo", fakes.BOX, {"hidden": (8, 8), "conjugate_steps": 5, "orthogonal": False}
    ),
    "trpo lstm": Case(
        "trpo",
        fakes.BOX,
        {
            "hidden": (6, 6),
            "conjugate_steps": 3,
            "log_std": -1.0,
            "orthogonal": False,
            "recurrent": 4,
            "memory": "lstm",
            "sequence": 8,
            "batch_size": 0,
        },
    ),
    "a3c": Case(
        "a3c", fakes.DISCRETE, {**SHORT, "reduction": "sum", "learning_rate": Schedule(0.02)}
    ),
    "a3c spherical": Case(
        "a3c", fakes.BOX, {**SHORT, "shared": False, "learning_rate": Schedule(0.3)}
    ),
    "impala": Case(
        "impala", fakes.DISCRETE, {**SHORT, "rho": 1.5, "c": 0.8, "learning_rate": Schedule(0.2)}
    ),
    "impala simba": Case(
        "impala",
        fakes.DISCRETE,
        {**SHORT, "body": "simba", "hidden": (16, 16), "learning_rate": Schedule(0.1)},
    ),
    "impala lstm": Case(
        "impala",
        fakes.BOX,
        {**SHORT, "recurrent": 6, "memory": "lstm", "learning_rate": Schedule(0.2)},
    ),
    "acer recurrent": Case(
        "acer", fakes.DISCRETE, {**SHORT, "recurrent": 6, "learning_rate": Schedule(0.2)}
    ),
    "nstep_q lstm dueling": Case(
        "nstep_q",
        fakes.DISCRETE,
        {
            **SHORT,
            "dueling": True,
            "recurrent": 6,
            "memory": "lstm",
            "replay": "prioritized",
            "learning_rate": Schedule(0.3),
        },
    ),
    "acer prioritized": Case(
        "acer",
        fakes.DISCRETE,
        {**SHORT, "truncation": 1.2, "replay": "prioritized", "learning_rate": Schedule(0.2)},
    ),
    "nstep_q dueling": Case(
        "nstep_q",
        fakes.DISCRETE,
        # no ties
        {
            **SHORT,
            "dueling": True,
            "replay": "prioritized",
            "priority": "error",
            "learning_rate": Schedule(0.3),
        },
    ),
    "nstep_q sarsa": Case(
        "nstep_q",
        fakes.DISCRETE,
        {**SHORT, "dueling": True, "bootstrap": "sarsa", "learning_rate": Schedule(0.3)},
    ),
    "nstep_q expected masked": Case(
        "nstep_q",
        fakes.MASKED,
        {
            **SHORT,
            "dueling": True,
            "bootstrap": "expected",
            "double": False,
            "epsilon": Schedule(0.7, 0.2),
            "learning_rate": Schedule(0.3),
        },
        fakes.MASKED_VECTOR,
    ),
    "pqn": Case("pqn", fakes.DISCRETE, {"hidden": (16, 16)}),
    "pqn recurrent": Case(
        "pqn",
        fakes.MASKED,
        {"hidden": (16, 16), "recurrent": 6, "sequence": 8},
        fakes.MASKED_VECTOR,
    ),
    "pqn masked": Case(
        "pqn",
        fakes.MASKED,
        {"hidden": (16, 16), "normalize_observations": True, "layer_norm": False},
        fakes.MASKED_VECTOR,
    ),
    "trpo beta": Case(
        "trpo",
        fakes.BOX,
        {"hidden": (8, 8), "conjugate_steps": 5, "orthogonal": False, "policy": "beta"},
    ),
    "td3": Case(
        "td3",
        fakes.BOX,
        {
            "hidden": (32, 32),
            "policy_delay": 3,
            "prioritized": True,
            "normalize_observations": True,
        },
    ),
    "ddpg gsde": Case(
        "ddpg",
        fakes.BOX,
        {"hidden": (32, 32), "actor_learning_rate": Schedule(0.3), "action_noise": "gsde"},
    ),
    "trpo gsde": Case(
        "trpo",
        fakes.BOX,
        {
            "hidden": (8, 8),
            "conjugate_steps": 5,
            "orthogonal": False,
            "action_noise": "gsde",
            "log_std": -1.0,
        },
    ),
    "td3 gsde": Case(
        "td3", fakes.BOX, {"hidden": (32, 32), "policy_delay": 3, "action_noise": "gsde"}
    ),
    "vdn masked": Case(
        "vdn",
        fakes.TEAM_MASKED,
        {"hidden": (16, 16), "share": False, "prioritized": True},
        fakes.MASKED_TEAM,
    ),
    "vdn lstm": Case(
        "vdn",
        fakes.TEAM_DISCRETE,
        {
            "hidden": (16, 16),
            "recurrent": 6,
            "memory": "lstm",
            "sequence": 8,
            "double": False,
            "burn_in": 3,
        },
        fakes.TEAM,
    ),
    "qmix": Case(
        "qmix",
        fakes.TEAM_DISCRETE,
        {**MIXED, "max_grad_norm": 2.0, "prioritized": True},
        fakes.TEAM,
    ),
    "qmix layer norm": Case("qmix", fakes.TEAM_DISCRETE, {**MIXED, "layer_norm": True}, fakes.TEAM),
    "qmix recurrent": Case(
        "qmix", fakes.TEAM_MASKED, {**MIXED, "recurrent": 6, "sequence": 4}, fakes.MASKED_TEAM
    ),
    "iql": Case(
        "qmix",
        fakes.TEAM_DISCRETE,
        {"hidden": (16, 16), "mixer": False, "prioritized": True},
        fakes.TEAM,
    ),
    "maddpg": Case("maddpg", fakes.TEAM_BOX, {**PAIRED, "max_grad_norm": 5.0}, fakes.TEAM),
    "maddpg twin": Case(
        "maddpg",
        fakes.TEAM_BOX,
        {
            **PAIRED,
            "share": True,
            "twin": True,
            "policy_delay": 2,
            "smoothing": 0.3,
            "prioritized": True,
        },
        fakes.TEAM,
    ),
    "maddpg discrete": Case("maddpg", fakes.TEAM_DISCRETE, PAIRED, fakes.TEAM),
    "mappo masked": Case(
        "mappo", fakes.TEAM_MASKED, {**JOINT, "value_norm": "popart"}, fakes.MASKED_TEAM
    ),
    "mappo separate": Case(
        "mappo", fakes.TEAM_DISCRETE, {**JOINT, "share": False, "rewards": "team"}, fakes.TEAM
    ),
    "mappo gaussian": Case(
        "mappo",
        fakes.TEAM_BOX,
        {**JOINT, "centralized": False, "value_norm": "no", "value_huber": 0.5},
        fakes.TEAM,
    ),
    "mappo recurrent": Case(
        "mappo", fakes.TEAM_DISCRETE, {**JOINT, "recurrent": 6, "sequence": 8}, fakes.TEAM
    ),
    "mat masked": Case(
        "mat", fakes.TEAM_MASKED, {**SEQUENCE, "heads": 2, "rewards": "own"}, fakes.MASKED_TEAM
    ),
    "mat gaussian": Case(
        "mat", fakes.TEAM_BOX, {**SEQUENCE, "blocks": 2, "log_std": 0.0}, fakes.TEAM
    ),
}


def prepared(case: Case, framework: str, compile: bool = False) -> tuple[Any, Any, Batch]:
    """(algorithm, backend, batches [UPDATES, ROWS, ...]) of a case, the same on every framework."""
    given = {**SGD, **case.settings}
    algorithm, backend = fakes.build(
        case.algorithm, framework, case.action, case.observation, compile=compile, **given
    )
    for network in trained(algorithm).values():
        weights = network.read()
        moments = {n: w + 0.3 for n, w in weights.items() if n.endswith(("/mean", "/variance"))}
        if moments:  # statistics that do something
            network.write({**weights, **moments})
    return (
        algorithm,
        backend,
        fakes.batches(algorithm, case.observation, case.action, UPDATES, ROWS),
    )


def trained(algorithm: Any) -> dict[str, Any]:
    """Its networks by name, targets too, less those that never move."""
    fixed = ("log_alpha", "rnd_target")
    return {n: net for n, net in algorithm.backend.networks.items() if n not in fixed}


# For where one takes ten seconds to compile: a few kinds of updates; each loss once; each
# algorithm.
SOME = (
    "dqn double dueling prioritized",
    "dqn categorical dueling",
    "tqc",
    "crossq",
    "ppo gaussian normalized",
    "sac",
    "qmix",
    "acer prioritized",
)
FEW = (
    "dqn double dueling prioritized",
    "ppo gaussian normalized",
    "ppo rnd gaussian",
    "ppo multi-categorical",
    "a2c gaussian noisy",
    "sac gsde",
    "sac discrete",
    "td3",
    "trpo gaussian",
    "a3c spherical",
    "impala",
    "acer prioritized",
    "nstep_q dueling",
    "pqn",
    "qmix",
    "maddpg twin",
    "mappo separate",
)
# with those, each algorithm
MORE = (
    "crossq",
    "ppo recurrent",
    "ddpg",
    "a2c lstm gaussian",
    "vdn masked",
    "qmix recurrent",
    "maddpg discrete",
    "mat masked",
)


def main(framework: str, file: str, *flags: str) -> None:
    found: dict[str, Any] = {}
    parts = {"some": SOME, "few": FEW, "most": (*FEW, *MORE)}
    for name in next((parts[flag] for flag in flags if flag in parts), CASES):
        case = CASES[name]
        algorithm, backend, batches = prepared(case, framework, "compile" in flags)
        found |= {
            f"first {name}: {n} {w}": x
            for n, net in trained(algorithm).items()
            for w, x in net.read().items()
        }
        if whole := algorithm.whole_update():
            done = backend.compile(whole)(fakes.first(batches, 1))
            assert not done.fault, (name, done.fault)
            found |= {f"{name}: whole {metric}": x for metric, x in done.metrics.items()}
        outcome = backend.compile(algorithm.update)(batches)
        assert not outcome.fault, (name, outcome.fault)
        found |= {f"{name}: {metric}": values for metric, values in outcome.metrics.items()}
        found |= {
            f"{name}: {n} {w}": x
            for n, net in trained(algorithm).items()
            for w, x in net.read().items()
        }
        found[f"{name}: applied"] = outcome.applied
        if not isinstance(outcome.priority, tuple):
            found[f"{name}: priority"] = outcome.priority
    np.savez(file, **found)
    print(json.dumps(sorted(found)))


if __name__ == "__main__":
    main(*sys.argv[1:])
