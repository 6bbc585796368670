import ast
import pickle
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tandem import errors
from tandem.errors import SettingError, TandemError, UnknownNameError, nearest
from tests.advice.net import KINDS

ALGORITHMS, CART0, CART1 = ["a2c", "dqn", "ppo", "sac", "td3"], "CartPole-v0", "CartPole-v1"


def test_a_message_has_three_parts_in_order() -> None:
    error = SettingError("gamma is 1.5.", "a number in [0, 1].", "gamma=0.99")
    assert str(error) == "gamma is 1.5; expected a number in [0, 1].\nFix: gamma=0.99"
    parts = error.happened, error.expected, error.fix
    assert parts == ("gamma is 1.5.", "a number in [0, 1].", "gamma=0.99")
    assert str(SettingError("gamma is 1.5.")) == "gamma is 1.5."
    assert str(SettingError("gamma is 1.5.", fix="gamma=0.99")) == "gamma is 1.5.\nFix: gamma=0.99"
    for kind in (SettingError, errors.MemoryBudgetError, errors.RunFolderError):
        whole = kind("what", "expected", "fix")  # as it goes between processes
        again = pickle.loads(pickle.dumps(whole))
        assert type(again) is kind and str(again) == str(whole)


def test_whatever_the_library_raises_has_a_fix() -> None:
    """Of those that are written out: what is wrong, what was expected, and how to fix it."""
    kinds = KINDS - {"UnknownNameError"}
    for path in Path(errors.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in kinds:
                whole = len(call.args) + len(call.keywords) > 2
                fix = any(k.arg == "fix" for k in call.keywords)
                starred = any(isinstance(a, ast.Starred) for a in call.args)
                assert whole or fix or starred, f"{path.name}:{call.lineno}"


def test_a_note_is_logged_once_and_kept(caplog) -> None:
    notes = ["known"]
    with errors.noting(notes):
        for text in ("known", "new", "new"):
            errors.note(text)
        assert errors.collected() is notes
        with errors.noting():
            errors.note("of another run")
    errors.note("of no run")
    assert notes == ["known", "new"]
    logged = [record.getMessage() for record in caplog.records if record.name == "tandem"]
    assert logged == ["Note: new", "Note: of another run", "Note: of no run"]


@pytest.mark.parametrize(
    "name, known, expected",
    [
        ("pop", ALGORITHMS, ["ppo"]),
        ("DQN", ALGORITHMS, ["dqn"]),
        ("cartpole-v1", [CART0, "Walker2d-v5", CART1], [CART1]),
        ("learning_rat", ["learning_rate", "gamma"], ["learning_rate"]),
        ("xyzzy", ALGORITHMS, []),
        ("", ALGORITHMS, []),
        ("ppo", [], []),
    ],
)
def test_nearest_names_best_first(name, known, expected) -> None:
    assert nearest(name, known) == expected
    assert len(nearest("env-v", [f"env-v{i}" for i in range(9)], n=2)) == 2


def test_an_unknown_name_says_what_is_known_and_what_is_near() -> None:
    error = UnknownNameError("algorithm", "qdn", {"ppo", "dqn", "sac"})
    assert str(error) == "there is no algorithm 'qdn'.\nFix: did you mean 'dqn'?"
    assert error.nearest == ["dqn"]
    far = UnknownNameError("algorithm", "xyzzy", ALGORITHMS)
    assert "; expected one of a2c, " in str(far)
    assert str(far).endswith("\nFix: choose one of those.")
    folder = UnknownNameError("folder", "xyzzy", ["runs"], "tandem list")
    assert str(folder) == "there is no folder 'xyzzy'; expected one of runs.\nFix: tandem list"
    for name in (None, 3, ["ppo"]):  # no text
        message = str(UnknownNameError("algorithm", name, ALGORITHMS))
        assert message.startswith(f"there is no algorithm {name!r}; expected one of a2c")
    many = str(UnknownNameError("environment", "zzz", [f"env{i:03}" for i in range(100)]))
    assert "env039, ...\n" in many and "env040" not in many


def test_errors_are_of_the_expected_kinds_and_of_one_module() -> None:
    """Else `tests.advice.net.sites` would not find those of another."""
    import tandem.trainer  # noqa: F401

    below = [TandemError]
    for kind in below:
        below.extend(kind.__subclasses__())
    assert {kind.__module__ for kind in below} == {"tandem.errors"}
    kinds = {
        ValueError: "UnknownNameError SettingError SpaceError NetworkError NetworkFault",
        RuntimeError: "EnvironmentFault CheckpointError ResumeError EngineError",
        FloatingPointError: "NonFiniteError",
        MemoryError: "MemoryBudgetError",
        OSError: "RunFolderError",
    }
    for kind, names in kinds.items():
        for name in names.split():
            bases = getattr(errors, name).__mro__
            assert TandemError in bases and kind in bases, name


@pytest.mark.parametrize("value", [0, -1.5, float("nan"), True, "3", None])
def test_at_least_refuses_what_is_below_or_no_number(value) -> None:
    says = "batch=.*; expected at least 1.\nFix: give batch=1 or more."
    with pytest.raises(SettingError, match=says):
        errors.at_least("batch", value, 1)


def test_one_of_proposes_the_nearest() -> None:
    says = "expected one of 'future', 'final'.\nFix: give strategy='final'."
    with pytest.raises(SettingError, match=says):
        errors.one_of("strategy", "finale", ("future", "final"))
    with pytest.raises(SettingError, match="Fix: give n=1."):
        errors.one_of("n", None, (1, 2))
    errors.one_of("n", None, (1, None))
    errors.at_least("batch", np.int64(1), 1)


def traced(*shape: int | None) -> SimpleNamespace:
    """An array of TensorFlow's while a function is traced: lengths that are not known yet."""
    return SimpleNamespace(shape=shape)


@pytest.mark.parametrize(
    "found, shape, says",
    [
        (np.zeros((2, 4)), (2, 3), r"q has shape \(.*; expected shape \("),
        (np.zeros((2, 1)), (2,), r"q has shape \(.*; expected shape \("),
        (np.zeros((5, 2)), (-1, 3), r"q has shape \(.*; expected shape \("),
        (np.zeros((5, 3)), (-1, 3), ""),
        (traced(None, 3), (5, 3), ""),
        (np.zeros((5, 3)), (None, 3), ""),
        (traced(None, 3), (None, 4), r"expected shape \(any, 4\)"),
        (traced(None), (5, 3), "q has shape"),
    ],
)
def test_same_shape_names_both_and_same_shapes_the_one_that_differs(found, shape, says) -> None:
    with pytest.raises(errors.SpaceError, match=says) if says else nullcontext():
        errors.same_shape("q", found, shape)
    errors.same_shapes((5, 3), q=np.zeros((5, 3)), v=np.zeros((5, 3)))
    with pytest.raises(errors.SpaceError, match=r"v has shape \(5,\)"):
        errors.same_shapes((5, 3), q=np.zeros((5, 3)), v=np.zeros(5))
