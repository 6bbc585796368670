"""What `check` finds in good and in bad environments."""

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


def test_the_algorithms_that_can_train_and_speeds_and_sizes_are_said() -> None:
    envs = known.IdentityBox, known.Identity, "CartPole-v1", "Pendulum-v1"
    found = ({what: f.text for what, f in findings_of(env).items()} for env in envs)
    box, choice, cartpole, pendulum = found
    moving, choosing = (set(each["algorithms"].split(", ")) for each in (box, choice))
    assert {"crossq", "ddpg", "td3", "tqc"} == moving - choosing
    assert {"acer", "dqn", "nstep_q", "pqn"} == choosing - moving
    assert {"a2c", "a3c", "impala", "ppo", "sac", "trpo"} == moving & choosing
    # native vectors are measured where there are any
    assert "steps/s" in cartpole["native speed"]
    assert "no vector entry point" in pendulum["native speed"]
    env = gymnasium.make("CartPole-v1")
    size = Ring.size(1_000_000, 1, leaf(env.observation_space), leaf(env.action_space))
    assert cartpole["replay"] == f"{human(size)} for 1,000,000 transitions"


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


@pytest.mark.parametrize(
    "env, what, text",
    [
        (known.NotFinite, "random steps", "returned the observation [nan] at step 5"),
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


class Odd(known.InfiniteHorizon):
    """Spaces that no algorithm takes, or observations that are outside of theirs."""

    def __init__(self, seen: float = 0.5, **odd: gymnasium.Space) -> None:
        super().__init__()
        vars(self).update(odd)
        self.seen = seen

    def observe(self):
        return np.full(1, self.seen, np.float32)


def test_spaces_that_nothing_can_use_objects_and_what_the_caller_got_wrong() -> None:
    whole = gymnasium.spaces.Box(0, 3, (2,), np.int32)
    assert findings_of(lambda: Odd(action_space=whole))["algorithms"].verdict == "fault"
    sequences = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3))
    findings = findings_of(lambda: Odd(observation_space=sequences))
    assert list(findings) == ["spaces"] and "Sequence" in findings["spaces"].text
    finding = findings_of(lambda: Odd(1.5))["gymnasium"]
    assert finding.verdict == "fault" and "AssertionError" in finding.text
    assert "\x1b" not in finding.text
    finding = findings_of(known.Unrepeatable)["resume"]
    assert finding.verdict == "note" and "not exactly resumable" in finding.text
    env = known.Chain()
    env.reset(seed=1)
    env.step(1)
    findings = findings_of(env)
    assert (env.t, env.place) == (1, 1) and findings["random steps"].verdict == "ok"
    assert "1 environment in" in findings["plain speed"].text
    with pytest.raises(SettingError, match="steps=0"):
        list(check("CartPole-v1", 0))
    with pytest.raises(UnknownNameError, match="CartPole-v1"):
        list(check("CartPol-v1"))
