"""What the parity suite runs, on every engine and by the reference: run as a script, it makes each
case's updates on one engine and writes what came out.

    python tests/algorithms/cases.py FRAMEWORK FILE.npz [compile] [some | few]
"""

import json
import sys
from typing import Any, NamedTuple

import numpy as np

from tandem.settings import Schedule
from tandem.spaces import Leaf
from tandem.testing import fakes
from tandem.testing.fakes import BOX, DISCRETE, MASKED, MULTI, TEAM_BOX, TEAM_DISCRETE, TEAM_MASKED
from tandem.types import Batch

UPDATES, ROWS = 20, 32
OBSERVATIONS = {
    MASKED: fakes.MASKED_VECTOR,
    TEAM_BOX: fakes.TEAM,
    TEAM_DISCRETE: fakes.TEAM,
    TEAM_MASKED: fakes.MASKED_TEAM,
}


class Case(NamedTuple):
    algorithm: str
    action: Leaf
    settings: dict[str, Any]

    @property
    def observation(self) -> Any:
        return OBSERVATIONS.get(self.action, fakes.VECTOR)


def case(action: Leaf, *shared: dict[str, Any], algorithm: str = "", **settings: Any) -> Case:
    """A case of the algorithm that the first word of its name says, unless another is given."""
    given: dict[str, Any] = {}
    for part in (*shared, settings):
        given |= part
    return Case(algorithm, action, given)


def sized(*hidden: int) -> dict[str, Any]:
    return {"hidden": hidden}


def rate(start: float, end: float | None = None) -> dict[str, Any]:
    return {"learning_rate": Schedule(start, end)}


SGD: dict[str, Any] = {"optimizer": "sgd", **rate(0.5, 0.1)}
WIDE, SMALL, TINY = sized(32, 32), sized(16, 16), sized(8, 8)
MIXED: dict[str, Any] = {**SMALL, "embedding": 5, "hyper": 7, **rate(0.1)}
PAIRED: dict[str, Any] = {**SMALL, "actor_learning_rate": Schedule(5.0), **rate(0.4)}
PLAIN: dict[str, Any] = {"orthogonal": False}
BONUS: dict[str, Any] = {"entropy": Schedule(0.02)}
NORMALIZED: dict[str, Any] = {"normalize_observations": True}
JOINT: dict[str, Any] = {**SMALL, **PLAIN, **BONUS, "value_clip": 0.2}
SEQUENCE = {**JOINT, **sized(6), "embedding": 8, "clip": Schedule(0.2), **rate(0.5, 0.1)}
NATURAL: dict[str, Any] = {**TINY, **PLAIN, "conjugate_steps": 5}
NATURAL_LSTM = {**PLAIN, "memory": "lstm", **sized(6, 6), "recurrent": 4, "sequence": 8}
RND: dict[str, Any] = {"intrinsic": "rnd", "rnd_features": 8}
FRACTIONS = {"fractions": 5, "target_fractions": 4, "acting_fractions": 6, "cosines": 7}
IMPLICIT: dict[str, Any] = {"values": "implicit", **FRACTIONS}
SOFT: dict[str, Any] = {"munchausen": True, "double": False, "munchausen_temperature": 0.2}
MEMORY: dict[str, Any] = {**SMALL, "recurrent": 6, "sequence": 4}
LSTM: dict[str, Any] = {"recurrent": 6, "memory": "lstm"}
ATOMS: dict[str, Any] = {"values": "categorical", "atoms": 11, "v_min": -3.0, "v_max": 4.0}
SHORT: dict[str, Any] = {"rollout": 7, **WIDE}  # eight rows a sequence, four sequences
DUELING: dict[str, Any] = {**SHORT, "dueling": True, **rate(0.3)}
RENORM = {**SMALL, "critic_hidden": (24, 24), "policy_delay": 2, "renorm_warmup": 8, **rate(0.1)}
GSDE: dict[str, Any] = {"action_noise": "gsde"}
SLOW: dict[str, Any] = {"actor_learning_rate": Schedule(0.3)}
RANKED: dict[str, Any] = {"prioritized": True}

CASES = {
    "dqn": case(DISCRETE, double=False, max_grad_norm=0.5),
    "dqn double dueling prioritized": case(DISCRETE, RANKED, dueling=True),
    "dqn dueling noisy": case(DISCRETE, dueling=True, noisy="factorised"),
    "dqn categorical dueling": case(DISCRETE, ATOMS, dueling=True),
    "dqn quantile prioritized masked": case(MASKED, RANKED, values="quantile", quantiles=7),
    "dqn masked": case(MASKED),
    "dqn implicit dueling prioritized": case(DISCRETE, IMPLICIT, RANKED, dueling=True, kappa=0.7),
    "dqn implicit masked": case(MASKED, IMPLICIT, double=False, n_step=3),
    "dqn munchausen": case(DISCRETE, SOFT, munchausen_temperature=0.03, munchausen_clip=-0.1),
    "dqn munchausen quantile masked": case(MASKED, SOFT, values="quantile", quantiles=5),
    "dqn munchausen implicit": case(DISCRETE, SOFT, IMPLICIT),
    "dqn recurrent dueling": case(DISCRETE, MEMORY, RANKED, dueling=True, burn_in=3, n_step=3),
    "dqn recurrent quantile masked": case(
        MASKED, MEMORY, SOFT, values="quantile", quantiles=5, burn_in=2
    ),
    "dqn recurrent categorical": case(DISCRETE, MEMORY, ATOMS, n_step=9, double=False),
    "sac recurrent": case(BOX, MEMORY, RANKED, burn_in=3),
    "sac discrete recurrent": case(DISCRETE, MEMORY, burn_in=1),
    "tqc recurrent": case(BOX, MEMORY, critics=3, quantiles=5, dropped=1, burn_in=2),
    "sac lstm": case(BOX, MEMORY, memory="lstm", burn_in=2),
    "td3 recurrent": case(BOX, MEMORY, RANKED, policy_delay=3, burn_in=2, n_step=2),
    "ddpg recurrent": case(BOX, MEMORY, SLOW, n_step=3),
    "ppo masked": case(MASKED, PLAIN, BONUS),
    "ppo categorical": case(DISCRETE, entropy=Schedule(0.01)),
    "ppo gaussian normalized": case(BOX, PLAIN, NORMALIZED, value_clip=0.2, entropy=Schedule(0.01)),
    "ppo gaussian layer norm": case(BOX, JOINT, layer_norm=True, weight_norm=True),
    "ppo multi-categorical": case(
        MULTI, PLAIN, normalize_advantage=False, clip=Schedule(0.3, 0.1), max_kl=0.46
    ),
    "ppo beta": case(BOX, PLAIN, BONUS, policy="beta"),
    "ppo gsde": case(BOX, PLAIN, GSDE, log_std=-1.0, clip=Schedule(0.4)),
    "a2c": case(DISCRETE, PLAIN),
    "a2c gaussian": case(BOX, PLAIN, BONUS, NORMALIZED),
    "a2c gaussian noisy": case(BOX, PLAIN, noisy="independent"),
    "ppo shared gaussian": case(BOX, PLAIN, NORMALIZED, shared=True),
    "a2c shared masked": case(MASKED, PLAIN, shared=True),
    "ppo recurrent": case(MASKED, MEMORY, PLAIN, sequence=8, value_clip=0.2),
    "a2c lstm gaussian": case(BOX, MEMORY, PLAIN, NORMALIZED, recurrent=5, memory="lstm"),
    "ppo rnd gaussian": case(BOX, JOINT, RND, NORMALIZED),
    "a2c rnd": case(DISCRETE, PLAIN, RND, rnd_share=0.6),
    "sac": case(BOX, WIDE),
    "tqc": case(BOX, WIDE, RANKED, critics=3, quantiles=5, dropped=1, n_step=3),
    "crossq": case(BOX, RENORM, RANKED, renorm_momentum=0.9, n_step=2),
    "crossq xqc": case(BOX, RENORM, RANKED, ATOMS, weight_projection=True),
    "sac weight norm": case(BOX, WIDE, weight_norm=True),
    "sac categorical": case(BOX, WIDE, ATOMS, RANKED, rate(0.2)),
    "sac simbav2": case(BOX, ATOMS, sized(16), body="simbav2", critic_hidden=(24, 24)),
    "sac discrete categorical": case(DISCRETE, ATOMS, WIDE),
    "sac gsde": case(BOX, WIDE, GSDE, rate(1.0), log_std=-1.0, n_step=3),
    "sac discrete": case(DISCRETE, WIDE, RANKED, n_step=4),
    "ddpg": case(BOX, WIDE, SLOW, RANKED),
    "trpo": case(DISCRETE, NATURAL),
    "trpo whole": case(DISCRETE, NATURAL, batch_size=0),
    "trpo gaussian": case(BOX, NATURAL),
    "trpo lstm": case(BOX, NATURAL_LSTM, conjugate_steps=3, log_std=-1.0, batch_size=0),
    "a3c": case(DISCRETE, SHORT, rate(0.02), reduction="sum"),
    "a3c spherical": case(BOX, SHORT, rate(0.3), shared=False),
    "impala": case(DISCRETE, SHORT, rate(0.2), rho=1.5, c=0.8),
    "impala simba": case(DISCRETE, SHORT, SMALL, rate(0.1), body="simba"),
    "impala lstm": case(BOX, SHORT, LSTM, rate(0.2)),
    "acer recurrent": case(DISCRETE, SHORT, rate(0.2), recurrent=6),
    "nstep_q lstm dueling": case(DISCRETE, DUELING, LSTM, replay="prioritized"),
    "acer prioritized": case(DISCRETE, SHORT, rate(0.2), truncation=1.2, replay="prioritized"),
    "nstep_q dueling": case(DISCRETE, DUELING, replay="prioritized", priority="error"),  # no ties
    "nstep_q sarsa": case(DISCRETE, DUELING, bootstrap="sarsa"),
    "nstep_q expected masked": case(
        MASKED, DUELING, bootstrap="expected", double=False, epsilon=Schedule(0.7, 0.2)
    ),
    "pqn": case(DISCRETE, SMALL),
    "pqn recurrent": case(MASKED, MEMORY, sequence=8),
    "pqn masked": case(MASKED, SMALL, NORMALIZED, layer_norm=False),
    "trpo beta": case(BOX, NATURAL, policy="beta"),
    "td3": case(BOX, WIDE, RANKED, NORMALIZED, policy_delay=3),
    "ddpg gsde": case(BOX, WIDE, SLOW, GSDE),
    "trpo gsde": case(BOX, NATURAL, GSDE, log_std=-1.0),
    "td3 gsde": case(BOX, WIDE, GSDE, policy_delay=3),
    "vdn masked": case(TEAM_MASKED, SMALL, RANKED, share=False),
    "vdn lstm": case(TEAM_DISCRETE, SMALL, LSTM, sequence=8, double=False, burn_in=3),
    "qmix": case(TEAM_DISCRETE, MIXED, RANKED, max_grad_norm=2.0),
    "qmix layer norm": case(TEAM_DISCRETE, MIXED, layer_norm=True),
    "qmix recurrent": case(TEAM_MASKED, MIXED, recurrent=6, sequence=4),
    "iql": case(TEAM_DISCRETE, SMALL, RANKED, mixer=False, algorithm="qmix"),
    "maddpg": case(TEAM_BOX, PAIRED, max_grad_norm=5.0),
    "maddpg twin": case(
        TEAM_BOX, PAIRED, RANKED, share=True, twin=True, policy_delay=2, smoothing=0.3
    ),
    "maddpg discrete": case(TEAM_DISCRETE, PAIRED),
    "mappo masked": case(TEAM_MASKED, JOINT, value_norm="popart"),
    "mappo separate": case(TEAM_DISCRETE, JOINT, share=False, rewards="team"),
    "mappo gaussian": case(TEAM_BOX, JOINT, centralized=False, value_norm="no", value_huber=0.5),
    "mappo recurrent": case(TEAM_DISCRETE, JOINT, recurrent=6, sequence=8),
    "mat masked": case(TEAM_MASKED, SEQUENCE, heads=2, rewards="own"),
    "mat gaussian": case(TEAM_BOX, SEQUENCE, blocks=2, log_std=0.0),
}
CASES = {n: c._replace(algorithm=c.algorithm or n.split()[0]) for n, c in CASES.items()}


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
    batches = fakes.batches(algorithm, case.observation, case.action, UPDATES, ROWS)
    return algorithm, backend, batches


def trained(algorithm: Any) -> dict[str, Any]:
    """Its networks by name, targets too, less those that never move."""
    fixed = ("log_alpha", "rnd_target")
    return {n: net for n, net in algorithm.backend.networks.items() if n not in fixed}


def weights(algorithm: Any) -> dict[str, Any]:
    """Of those networks, by network and name."""
    nets = trained(algorithm).items()
    return {f"{n} {w}": x for n, net in nets for w, x in net.read().items()}


# For where one takes ten seconds to compile: a few kinds of updates
SOME = ("dqn double dueling prioritized", "dqn categorical dueling", "tqc", "crossq", "sac", "qmix")
SOME += ("ppo gaussian normalized", "acer prioritized")
# Each shape of an update, and what an engine or its layers do apart from the others: an early stop,
# noise on weights, steps that are not due, slopes of each row, a trust region
EITHER = ("dqn double dueling prioritized", "ppo multi-categorical", "dqn dueling noisy", "td3")
EITHER += ("sac gsde", "trpo gaussian", "acer prioritized", "pqn", "mappo separate")
FEW = {
    "torch": EITHER,
    "jax": (*EITHER, "ppo rnd gaussian", "a2c lstm gaussian", "crossq", "mat masked"),
    "tensorflow": (*EITHER, "ppo gaussian normalized", "qmix"),
}


def main(framework: str, file: str, *flags: str) -> None:
    found: dict[str, Any] = {}
    if graphs := "graphs" in flags:
        from tests.graphs import interpreted

        interpreted()
    few = FEW.get(framework, CASES) if "few" in flags else CASES
    for name in SOME if "some" in flags else few:
        case = CASES[name]
        algorithm, backend, batches = prepared(case, framework, "compile" in flags)
        if graphs:  # steps within a trust region are searched for
            backend.compiling = "as before" if case.algorithm == "trpo" else "yes"
        found |= {f"first {name}: {n}": x for n, x in weights(algorithm).items()}
        if whole := algorithm.whole_update():
            done = backend.compile(whole)(fakes.first(batches, 1))
            assert not done.fault, (name, done.fault)
            found |= {f"{name}: whole {metric}": x for metric, x in done.metrics.items()}
        outcome = backend.compile(algorithm.update)(batches)
        assert not outcome.fault, (name, outcome.fault)
        found |= {f"{name}: {metric}": values for metric, values in outcome.metrics.items()}
        found |= {f"{name}: {n}": x for n, x in weights(algorithm).items()}
        found[f"{name}: applied"] = outcome.applied
        if not isinstance(outcome.priority, tuple):
            found[f"{name}: priority"] = outcome.priority
    np.savez(file, **found)
    print(json.dumps(sorted(found)))


if __name__ == "__main__":
    main(*sys.argv[1:])
