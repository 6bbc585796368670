from dataclasses import fields, replace
from typing import Any

import pytest

from benchmarks import learn_peer, measure, peers, rows
from benchmarks.rows import PEERS, ROWS, Row
from tandem.algorithms import get
from tandem.settings import Schedule


def resolved(name: str) -> Any:
    return rows.resolved(rows.find(name))


def work(*given: Any) -> float:
    """Multiplications of one step."""
    return sum(m * k * n * often for m, k, n, often in rows.products(*given))


def test_unknown_rows_and_what_they_cannot_do_are_refused() -> None:
    with pytest.raises(SystemExit, match="no row 'pqn'") as raised:
        rows.find("pqn")
    assert "dqn" in str(raised.value)
    settings = resolved("dqn")
    with pytest.raises(ValueError, match="double=True"):
        peers.translate("sb3", "dqn", replace(settings, double=True))
    with pytest.raises(ValueError, match="ends before the run"):
        peers.translate("sb3", "dqn", replace(settings, learning_rate=Schedule(1e-3, 0.0, 0.5)))


def test_updates_and_blocks() -> None:
    ppo, dqn, sac = (resolved(name) for name in ("ppo-plain", "dqn", "sac"))
    assert rows.block(ppo) == 256
    for settings, steps, expected in (
        (ppo, (255, 256, 2_560), [0, 20, 200]),  # they come with every rollout
        (replace(ppo, batch_size=64), (256,), [80]),
        (dqn, (768, 1_024, 1_280), [0, 128, 256]),  # the first block beyond learning_starts
        (sac, (255, 256, 1_000), [0, 1, 745]),  # a whole batch
        (replace(sac, learning_starts=0), (256,), [1]),
    ):
        assert [rows.updates(settings, n) for n in steps] == expected
    assert [rows.rounded(dqn, n) for n in (1, 256, 257)] == [256, 256, 512]


def test_work_of_dqn_a2c_and_ppo_worked_by_hand() -> None:
    settings = replace(resolved("dqn"), hidden=(3,), batch_size=5, learning_starts=0)
    settings = replace(settings, train_every=5, updates_per_call=5)
    one = 4 * 3 + 3 * 2  # forward; the first layer's inputs are observations
    assert work("dqn", settings, 4, 2) == pytest.approx(5 * (3 * one + 2 * 3) + one)
    settings = replace(resolved("a2c"), hidden=(8,))
    actor, critic = 4 * 8 + 8 * 2, 4 * 8 + 8 * 1
    assert rows.updates(settings, 400) == 10  # 40 rows each, so one row of one update a step
    expected = (2 * actor + 8 * 2) + (2 * critic + 8 * 1) + critic + actor
    assert work("a2c", settings, 4, 2) == pytest.approx(expected)
    # on pictures, by the Nature CNN (Mnih et al. 2015, Methods), of one body with seven outputs
    settings = resolved("ppo-pong")
    first = 20 * 20 * 8 * 8 * 4 * 32
    rest = 9 * 9 * 4 * 4 * 32 * 64 + 7 * 7 * 3 * 3 * 64 * 64 + 3136 * 512 + 512 * 7
    assert rows.updates(settings, 1_024) == 16  # 4 epochs of 4: each row four times
    # acting gives the values too
    expected = 4 * (2 * first + 3 * rest) + (first + rest)
    assert work("ppo", settings, 0, 6) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "changes", "critics", "outputs", "heads", "share"),
    [
        ("sac", {}, 2, 1, 2, 1.0),
        ("tqc", {"quantiles": 5}, 2, 5, 2, 1.0),
        ("crossq", {"policy_delay": 2}, 2, 1, 2, 0.5),
        ("td3", {}, 2, 1, 1, 0.5),
        ("ddpg", {}, 1, 1, 1, 1.0),
    ],
)
def test_work_of_critics_worked_by_hand(name, changes, critics, outputs, heads, share) -> None:
    """By the passes that the papers' equations need."""
    settings = replace(resolved(name), hidden=(8,), batch_size=16, **changes)
    actor, critic = 3 * 8 + 8 * heads, 4 * 8 + 8 * outputs  # of one row, forward
    learned = critics * (2 * critic + 8 * outputs)  # forward, weights, inputs of the second layer
    # targets are of the same critics in one batch, or of copies of them
    learned = 2 * learned if name == "crossq" else learned + critics * critic
    through = 1 if heads == 1 else critics  # TD3 and DDPG go through one of them
    # next actions; forward, weights, inputs; through the critics
    policy = actor + share * (2 * actor + 8 * heads + 2 * through * critic)
    assert work(name, settings, 3, 1) == pytest.approx(16 * (learned + policy) + actor)


def test_settings_and_schedules_in_their_words_and_what_the_contrib_package_has() -> None:
    """QR-DQN is our DQN with quantiles; its head has ten of them for each action."""
    row = rows.find("qrdqn")
    told = peers.translate("sb3", row.algorithm, rows.resolved(row))
    assert told["policy_kwargs"]["n_quantiles"] == 10
    assert measure.job(row, "sb3", 0, 0)["algorithm"] == "qrdqn"
    assert measure.job(row, "jax", 0, 0)["algorithm"] == "dqn"
    assert [peers.library_of(p, "qrdqn") for p in PEERS] == ["sb3_contrib", "sbx"]
    heads = [n for _, m, n, _ in rows.products("dqn", rows.resolved(row), 4, 2) if m == 256]
    assert 20 in heads
    crossq = peers.translate("sbx", "crossq", resolved("crossq"))
    assert crossq["policy_kwargs"]["optimizer_kwargs"]["b1"] == 0.5 and "tau" not in crossq
    at = peers._schedule({"start": 0.2, "end": 0.1})
    assert (at(1.0), at(0.5), at(0.0)) == pytest.approx((0.2, 0.15, 0.1))
    for row, expected in WORDS.items():
        told = peers.translate("sb3", row.partition("-")[0], resolved(row))
        assert {name: told[name] for name in expected} == expected
    shared = peers.translate("sb3", "ppo", resolved("ppo-pong"))["policy_kwargs"]
    assert shared["net_arch"] == [], "their convolutions are shared"
    assert "max_grad_norm" not in peers.translate("sbx", "dqn", resolved("dqn"))


@pytest.mark.parametrize("row", [*ROWS, *learn_peer.ROWS], ids=lambda row: row.name)
def test_every_setting_is_translated_or_has_to_have_one_value(row: Any) -> None:
    """A setting of ours that the peers were not told would make it another piece of work."""
    learns = isinstance(row, learn_peer.Compared)
    settings = row.plain() if learns else rows.resolved(row)
    name = peers.theirs(row.algorithm, settings)
    known = {*peers.SAME, *peers.UNUSED.get(name, ()), *peers.ELSEWHERE}
    known = known.union(peers.NAMES[name], peers.FIXED[name], peers.SPECIAL[name])
    assert {f.name for f in fields(get(row.algorithm).Settings)} <= known
    for peer in {"sb3"} if learns else {*PEERS}.difference(getattr(row, "without", ())):
        peers.translate(peer, row.algorithm, settings)


NETWORK = {"net_arch": [64, 64], "optimizer_kwargs": {"eps": 1e-5}, "ortho_init": True}
WORDS: dict[str, dict[str, Any]] = {
    "ppo-plain": {"n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98}
    | {"learning_rate": {"start": 1e-3, "end": 0.0}, "clip_range": {"start": 0.2, "end": 0.0}}
    | {"ent_coef": 0.0, "vf_coef": 0.5, "max_grad_norm": 0.5, "gae_lambda": 0.8}
    | {"policy_kwargs": NETWORK},
    "a2c": {"rms_prop_eps": 1e-5},  # added to the root, ours inside it
    "ppo-pong": {"clip_range": {"start": 0.1, "end": 0.0}, "policy": "CnnPolicy"},
    # they learn from more than that many steps on, we from that many
    "dqn": {"train_freq": 256, "gradient_steps": 128, "target_update_interval": 10}
    | {"exploration_initial_eps": 1.0, "exploration_final_eps": 0.04}
    | {"exploration_fraction": 0.16, "learning_starts": 999, "max_grad_norm": 10.0},
}


def test_runs_shorter_than_the_tuned_ones_have_the_same_schedules_there() -> None:
    """A schedule that ends after the run has come to a part of its way by the run's end."""
    for row in ROWS:
        ours = rows.resolved(row)
        if isinstance(row, Row) and ours.learning_rate.end is not None:
            told = measure.job(row, "sb3", row.quick, 0)["keywords"]["learning_rate"]["end"]
            end = replace(ours.learning_rate, fraction=1.0)(row.quick / ours.steps)
            assert told == pytest.approx(end, rel=1e-5), row.name
