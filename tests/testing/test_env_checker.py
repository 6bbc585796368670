"""What `check` finds in good and in bad environments."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from tandem.envs.factory import vectorize
from tandem.errors import SettingError, UnknownNameError
from tandem.replay.allocation import human
from tandem.replay.buffer import Ring
from tandem.spaces import leaf
from tandem.testing import environments as known
from tandem.testing.env_checker import check, speed_of


def findings_of(env, steps: int = 60):
    return {f.what: f for f in check(env, steps)}


@pytest.fixture(autouse=True)
def request_stop(monkeypatch) -> None:
    monkeypatch.setattr("tandem.testing.env_checker.SECONDS", 0.01)


@pytest.mark.parametrize(
    "env",
    ["CartPole-v1", known.Identity, known.IdentityDict, known.IdentityMultiDiscrete, known.Chain],
)
def test_a_good_environment_has_no_fault(env) -> None:
    findings = findings_of(env)
    assert [f for f in findings.values() if f.verdict == "fault"] == []
    assert findings["resume"].text == "exact, to the bit"
    assert findings["determinism"].verdict == findings["random steps"].verdict == "ok"
    assert "steps/s, 8 environments" in findings["plain speed"].text


def test_the_algorithms_that_can_train_are_named() -> None:
    box, choice = (
        set(findings_of(env)["algorithms"].text.split(", "))
        for env in (known.IdentityBox, known.Identity)
    )
    assert {"crossq", "ddpg", "td3", "tqc"} == box - choice
    assert {"acer", "dqn", "nstep_q", "pqn"} == choice - box
    assert {"a2c", "a3c", "impala", "ppo", "sac", "trpo"} == box & choice


def test_native_vectors_are_measured_where_there_are_any() -> None:
    assert "steps/s" in findings_of("CartPole-v1")["native speed"].text
    assert "no vector entry point" in findings_of("Pendulum-v1")["native speed"].text


@pytest.mark.parametrize("env", [known.Identity, known.Forbidden])
def test_speed_is_measured_without_compilation(env, monkeypatch) -> None:
    """The first step and the first end of an episode take 1,000 times as long as others."""
    environments, seconds, compiled = vectorize(env, 2), [0.0], set()
    real = environments.step

    def step(action):
        one = real(action)
        new = {"move", *(["reset"] if one.terminated.any() or one.truncated.any() else [])}
        seconds[0] += 1000.0 * len(new - compiled) or 1.0
        compiled.update(new)
        return one

    monkeypatch.setattr(environments, "step", step)
    monkeypatch.setattr("tandem.testing.env_checker.perf_counter", lambda: seconds[0])
    monkeypatch.setattr("tandem.testing.env_checker.SECONDS", 100.0)
    assert speed_of(environments, 0) == 2.0 and compiled == {"move", "reset"}


def test_the_replay_size_is_that_of_the_ring() -> None:
    env = gymnasium.make("CartPole-v1")
    size = Ring.size(1_000_000, 1, leaf(env.observation_space), leaf(env.action_space))
    assert findings_of("CartPole-v1")["replay"].text == f"{human(size)} for 1,000,000 transitions"


@pytest.mark.parametrize(
    "env, what, text",
    [
        (known.NotFinite, "random steps", "gave the observation [nan] at step 5"),
        (lambda: known.NotFinite(where="reward"), "random steps", "reward nan"),
        (known.Raises, "random steps", "raised ValueError at step 5"),
        (lambda: known.Raises(at=0), "random steps", "raised ValueError"),
        (known.WrongShape, "random steps", "shape (2,)"),
        (known.Unrepeatable, "determinism", "draw everything from self.np_random"),
    ],
)
def test_a_fault_is_found_and_named(env, what, text) -> None:
    finding = findings_of(env)[what]
    assert finding.verdict == "fault" and text in finding.text and "\n" not in finding.text


def test_what_cannot_be_resumed_is_a_note() -> None:
    finding = findings_of(known.Unrepeatable)["resume"]
    assert finding.verdict == "note" and "not exactly resumable" in finding.text


class Odd(known.InfiniteHorizon):
    """A space that no algorithm takes."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gymnasium.spaces.Box(0, 3, (2,), np.int32)


class Sequences(known.InfiniteHorizon):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3))


class OutOfBounds(known.InfiniteHorizon):
    """Says that its observations lie in [0, 1], and gives 1.5: Gymnasium's checker minds."""

    def observe(self):
        return np.full(1, 1.5, np.float32)


def test_spaces_that_nothing_can_use_are_faults() -> None:
    assert findings_of(Odd)["algorithms"].verdict == "fault"
    assert (
        list(findings_of(Sequences)) == ["spaces"]
        and "Sequence" in findings_of(Sequences)["spaces"].text
    )


def test_the_word_of_gymnasium_is_heard() -> None:
    finding = findings_of(OutOfBounds)["gymnasium"]
    assert (
        finding.verdict == "fault"
        and "AssertionError" in finding.text
        and "\x1b" not in finding.text
    )


def test_an_environment_object_is_left_as_it_was() -> None:
    env = known.Chain()
    env.reset(seed=1)
    env.step(1)
    findings = findings_of(env)
    assert (env.t, env.place) == (1, 1) and findings["random steps"].verdict == "ok"
    assert "1 environment in" in findings["plain speed"].text


def test_what_the_caller_got_wrong_is_an_error() -> None:
    with pytest.raises(SettingError, match="steps=0"):
        list(check("CartPole-v1", 0))
    with pytest.raises(UnknownNameError, match="CartPole-v1"):
        list(check("CartPol-v1"))
