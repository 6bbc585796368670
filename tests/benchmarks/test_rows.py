from __future__ import annotations

from dataclasses import fields, replace

import pytest

from benchmarks import measure, peers, rows
from benchmarks.rows import PEERS, ROWS, Row
from tandem.algorithms import get
from tandem.settings import Schedule

SPEED = [row for row in ROWS if isinstance(row, Row)]


def test_an_unknown_row_is_answered_with_the_known_ones() -> None:
    with pytest.raises(SystemExit, match="no row 'pqn'") as raised:
        rows.find("pqn")
    assert "dqn" in str(raised.value)


def test_updates_of_ppo_come_with_every_rollout() -> None:
    settings = rows.resolved(rows.find("ppo-plain"))
    assert rows.block(settings) == 256
    assert [rows.updates(settings, n) for n in (255, 256, 2_560)] == [0, 20, 200]
    assert rows.updates(replace(settings, batch_size=64), 256) == 80


def test_updates_of_dqn_begin_with_the_first_block_beyond_learning_starts() -> None:
    settings = rows.resolved(rows.find("dqn"))
    assert [rows.updates(settings, n) for n in (768, 1_024, 1_280)] == [0, 128, 256]


def test_updates_of_sac_begin_with_a_whole_batch() -> None:
    settings = rows.resolved(rows.find("sac"))
    assert [rows.updates(settings, n) for n in (255, 256, 1_000)] == [0, 1, 745]
    assert rows.updates(replace(settings, learning_starts=0), 256) == 1


def test_lengths_are_whole_blocks() -> None:
    settings = rows.resolved(rows.find("dqn"))
    assert [rows.rounded(settings, n) for n in (1, 256, 257)] == [256, 256, 512]


def test_products_of_dqn_worked_by_hand() -> None:
    """One hidden layer of 3, observations of 4, 2 actions, batches of 5; an update each step."""
    base = rows.resolved(rows.find("dqn"))
    settings = replace(
        base, hidden=(3,), batch_size=5, learning_starts=0, train_every=5, updates_per_call=5
    )
    found = [(m, k, n, round(often, 2)) for m, k, n, often in rows.products("dqn", settings, 4, 2)]
    forward = [(5, 4, 3, 1.0), (5, 3, 2, 1.0)]
    weights = [(4, 5, 3, 1.0), (3, 5, 2, 1.0)]
    inputs = [(5, 2, 3, 1.0)]  # the first layer's inputs are observations
    acting = [(1, 4, 3, 1.0), (1, 3, 2, 1.0)]
    assert sorted(found) == sorted([*forward, *weights, *inputs, *forward, *acting])


def test_work_of_sac_worked_by_hand() -> None:
    """Multiplications of one step by the passes that the paper's equations need."""
    base = rows.resolved(rows.find("sac"))
    settings = replace(base, hidden=(8,), batch_size=16)
    total = sum(m * k * n * often for m, k, n, often in rows.products("sac", settings, 3, 1))
    actor, critic = 3 * 8 + 8 * 2, 4 * 8 + 8 * 1  # of one row, forward
    # targets; forward, weights, inputs of the second layer
    critics = 2 * critic + 2 * (critic + critic + 8 * 1)
    # next; forward, weights, inputs; through the critics
    policy = actor + (actor + actor + 8 * 2) + 2 * (critic + critic)
    assert total == pytest.approx(16 * (critics + policy) + actor)


def test_work_of_tqc_and_crossq_worked_by_hand() -> None:
    for name, outputs, share in (("tqc", 5, 1.0), ("crossq", 1, 0.5)):
        changes = {"quantiles": outputs} if name == "tqc" else {"policy_delay": 2}
        settings = replace(rows.resolved(rows.find(name)), hidden=(8,), batch_size=16, **changes)
        total = sum(m * k * n * often for m, k, n, often in rows.products(name, settings, 3, 1))
        actor, critic = 3 * 8 + 8 * 2, 4 * 8 + 8 * outputs
        learned = 2 * (2 * critic + 8 * outputs)  # forward, weights, inputs of both critics
        # targets are of the same critics in one batch, or of copies of them
        learned = 2 * learned if name == "crossq" else learned + 2 * critic
        # forward, weights, inputs; through the critics
        policy = actor + share * (2 * actor + 8 * 2 + 2 * 2 * critic)
        assert total == pytest.approx(16 * (learned + policy) + actor)


def test_what_is_in_the_contrib_package() -> None:
    """QR-DQN is our DQN with quantiles; its head has ten of them for each action."""
    row = rows.find("qrdqn")
    told = peers.translate("sb3", row.algorithm, rows.resolved(row))
    assert told["policy_kwargs"]["n_quantiles"] == 10
    assert measure.job(row, "sb3", 0, 0)["algorithm"] == "qrdqn"
    assert measure.job(row, "jax", 0, 0)["algorithm"] == "dqn"
    assert [peers.library_of(p, "qrdqn") for p in PEERS] == ["sb3_contrib", "sbx"]
    heads = [n for _, m, n, _ in rows.products("dqn", rows.resolved(row), 4, 2) if m == 256]
    assert 20 in heads
    crossq = peers.translate("sbx", "crossq", rows.resolved(rows.find("crossq")))
    assert crossq["policy_kwargs"]["optimizer_kwargs"]["b1"] == 0.5 and "tau" not in crossq


def test_work_of_td3_and_ddpg_worked_by_hand() -> None:
    for name, critics, share in (("td3", 2, 0.5), ("ddpg", 1, 1.0)):
        settings = replace(rows.resolved(rows.find(name)), hidden=(8,), batch_size=16)
        total = sum(m * k * n * often for m, k, n, often in rows.products(name, settings, 3, 1))
        actor, critic = 3 * 8 + 8 * 1, 4 * 8 + 8 * 1
        # next actions, targets; forward, weights, inputs
        learned = actor + critics * critic + critics * (2 * critic + 8 * 1)
        # forward, weights, inputs; through a critic
        policy = share * (2 * actor + 8 * 1 + 2 * critic)
        assert total == pytest.approx(16 * (learned + policy) + actor)


def test_work_of_a2c_worked_by_hand() -> None:
    settings = replace(rows.resolved(rows.find("a2c")), hidden=(8,))
    total = sum(m * k * n * often for m, k, n, often in rows.products("a2c", settings, 4, 2))
    actor, critic = 4 * 8 + 8 * 2, 4 * 8 + 8 * 1
    assert rows.updates(settings, 400) == 10  # 40 rows each, so one row of one update a step
    assert total == pytest.approx((2 * actor + 8 * 2) + (2 * critic + 8 * 1) + critic + actor)


def test_work_of_ppo_on_pictures_worked_by_hand() -> None:
    """The Nature CNN's multiplications (Mnih et al. 2015, Methods), of one body with seven
    outputs."""
    settings = rows.resolved(rows.find("ppo-pong"))
    total = sum(m * k * n * often for m, k, n, often in rows.products("ppo", settings, 0, 6))
    first = 20 * 20 * 8 * 8 * 4 * 32
    rest = 9 * 9 * 4 * 4 * 32 * 64 + 7 * 7 * 3 * 3 * 64 * 64 + 3136 * 512 + 512 * 7
    assert rows.updates(settings, 1_024) == 16  # 4 epochs of 4: each row four times
    # acting gives the values too
    assert total == pytest.approx(4 * (2 * first + 3 * rest) + (first + rest))


def test_their_convolutions_are_shared() -> None:
    told = peers.translate("sb3", "ppo", rows.resolved(rows.find("ppo-pong")))
    assert told["policy"] == "CnnPolicy" and told["policy_kwargs"]["net_arch"] == []
    assert (told["learning_rate"], told["clip_range"]) == (
        {"start": 2.5e-4, "end": 0.0},
        {"start": 0.1, "end": 0.0},
    )


TAKING_PART = [
    (row, peer) for row in ROWS for peer in PEERS if peer not in getattr(row, "without", ())
]


@pytest.mark.parametrize("row, peer", TAKING_PART, ids=lambda x: getattr(x, "name", x))
def test_every_setting_is_translated_or_has_to_have_one_value(row: Row, peer: str) -> None:
    """A setting of ours that the peers were not told would make it another piece of work."""
    name = peers.theirs(row.algorithm, rows.resolved(row))
    known = {
        *peers.SAME,
        *peers.NAMES[name],
        *peers.FIXED[name],
        *peers.SPECIAL[name],
        *peers.UNUSED.get(name, ()),
        *peers.ELSEWHERE,
    }
    assert {f.name for f in fields(get(row.algorithm).Settings)} <= known
    peers.translate(peer, row.algorithm, rows.resolved(row))


def test_ppo_in_their_words() -> None:
    told = peers.translate("sb3", "ppo", rows.resolved(rows.find("ppo-plain")))
    assert (
        told["n_steps"],
        told["batch_size"],
        told["n_epochs"],
        told["gamma"],
        told["gae_lambda"],
    ) == (
        32,
        256,
        20,
        0.98,
        0.8,
    )
    assert told["learning_rate"] == {"start": 1e-3, "end": 0.0} and told["clip_range"] == {
        "start": 0.2,
        "end": 0.0,
    }
    assert (told["ent_coef"], told["vf_coef"], told["max_grad_norm"]) == (0.0, 0.5, 0.5)
    assert told["policy_kwargs"] == {
        "net_arch": [64, 64],
        "optimizer_kwargs": {"eps": 1e-5},
        "ortho_init": True,
    }


def test_dqn_in_their_words() -> None:
    settings = rows.resolved(rows.find("dqn"))
    told = peers.translate("sb3", "dqn", settings)
    assert (told["train_freq"], told["gradient_steps"], told["target_update_interval"]) == (
        256,
        128,
        10,
    )
    assert (
        told["exploration_initial_eps"],
        told["exploration_final_eps"],
        told["exploration_fraction"],
    ) == (1.0, 0.04, 0.16)
    # they learn from more than that many steps on, we from that many
    assert told["learning_starts"] == 999
    assert told["max_grad_norm"] == 10.0 and "max_grad_norm" not in peers.translate(
        "sbx", "dqn", settings
    )


def test_what_they_cannot_do_is_refused() -> None:
    settings = rows.resolved(rows.find("dqn"))
    with pytest.raises(ValueError, match="double=True"):
        peers.translate("sb3", "dqn", replace(settings, double=True))
    with pytest.raises(ValueError, match="ends before the run"):
        peers.translate("sb3", "dqn", replace(settings, learning_rate=Schedule(1e-3, 0.0, 0.5)))


@pytest.mark.parametrize("name", [row.name for row in ROWS if isinstance(row, Row)])
def test_runs_shorter_than_the_tuned_ones_have_the_same_schedules_there(name: str) -> None:
    """A schedule that ends after the run has come to a part of its way by the run's end."""
    row = rows.find(name)
    told = measure.job(row, "sb3", row.quick, 0)["keywords"]
    ours = rows.resolved(row)
    if ours.learning_rate.end is not None:
        end = replace(ours.learning_rate, fraction=1.0)(row.quick / ours.steps)
        assert told["learning_rate"]["end"] == pytest.approx(end, rel=1e-5)


def test_their_schedules_count_down() -> None:
    at = peers._schedule({"start": 0.2, "end": 0.1})
    assert (at(1.0), at(0.5), at(0.0)) == pytest.approx((0.2, 0.15, 0.1))
