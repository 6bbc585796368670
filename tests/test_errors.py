from __future__ import annotations

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest

from tandem import errors
from tandem.errors import SettingError, TandemError, UnknownNameError, nearest

ALGORITHMS = ["a2c", "dqn", "ppo", "sac", "td3"]


def test_a_message_has_three_parts_in_order() -> None:
    error = SettingError("gamma is 1.5.", "a number in [0, 1].", "gamma=0.99")
    assert str(error) == "gamma is 1.5.\nExpected: a number in [0, 1].\nFix: gamma=0.99"
    assert (error.happened, error.expected, error.fix) == (
        "gamma is 1.5.",
        "a number in [0, 1].",
        "gamma=0.99",
    )


def test_whatever_the_library_raises_has_a_fix() -> None:
    """Of those that are written out: a literal raise of ours says what is wrong and what was
    expected, in two parts or in one sentence, and how to fix it."""
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, TandemError)
    }
    short = [
        f"{path.name}:{call.lineno}"
        for path in Path(errors.__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in kinds - {"UnknownNameError"}
        if len(call.args) + len(call.keywords) < 3
        and not any(k.arg == "fix" for k in call.keywords)
        and not any(isinstance(a, ast.Starred) for a in call.args)
    ]
    assert not short


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


def test_parts_that_are_missing_leave_no_empty_lines() -> None:
    assert str(SettingError("gamma is 1.5.")) == "gamma is 1.5."
    assert str(SettingError("gamma is 1.5.", fix="gamma=0.99")) == "gamma is 1.5.\nFix: gamma=0.99"


@pytest.mark.parametrize(
    "name, known, expected",
    [
        ("pop", ALGORITHMS, ["ppo"]),
        ("DQN", ALGORITHMS, ["dqn"]),
        (
            "cartpole-v1",
            ["CartPole-v0", "Walker2d-v5", "CartPole-v1"],
            ["CartPole-v1", "CartPole-v0"],
        ),
        ("learning_rat", ["learning_rate", "gamma"], ["learning_rate"]),
        ("xyzzy", ALGORITHMS, []),
        ("", ALGORITHMS, []),
        ("ppo", [], []),
    ],
)
def test_nearest_names_best_first(name, known, expected) -> None:
    assert nearest(name, known) == expected


def test_nearest_gives_at_most_n() -> None:
    assert len(nearest("env-v0", [f"env-v{i}" for i in range(9)], n=2)) == 2


def test_an_unknown_name_says_what_is_known_and_what_is_near() -> None:
    error = UnknownNameError("algorithm", "qdn", {"ppo", "dqn", "sac"})
    assert (
        str(error)
        == "there is no algorithm 'qdn'.\nExpected: one of dqn, ppo, sac\nFix: did you mean 'dqn'?"
    )
    assert error.nearest == ["dqn"]


def test_an_unknown_name_like_nothing_else_still_has_a_fix() -> None:
    assert str(UnknownNameError("algorithm", "xyzzy", ALGORITHMS)).endswith(
        "\nFix: choose one of those."
    )
    assert str(UnknownNameError("folder", "xyzzy", ["runs"], "tandem list")).endswith(
        "\nFix: tandem list"
    )


@pytest.mark.parametrize("name", [None, 3, ["ppo"]])
def test_a_name_that_is_no_text_is_unknown(name) -> None:
    assert str(UnknownNameError("algorithm", name, ALGORITHMS)).startswith(
        f"there is no algorithm {name!r}.\nExpected: one of a2c"
    )


def test_a_long_list_of_known_names_is_cut() -> None:
    message = str(UnknownNameError("environment", "zzz", [f"env{i:03}" for i in range(100)]))
    assert "env039, ...\n" in message and "env040" not in message


@pytest.mark.parametrize(
    "name, kind",
    [
        ("UnknownNameError", ValueError),
        ("SettingError", ValueError),
        ("SpaceError", ValueError),
        ("NetworkError", ValueError),
        ("EnvironmentFault", RuntimeError),
        ("NonFiniteError", FloatingPointError),
        ("CheckpointError", RuntimeError),
        ("ResumeError", RuntimeError),
        ("EngineError", RuntimeError),
        ("MemoryBudgetError", MemoryError),
        ("RunFolderError", OSError),
    ],
)
def test_every_error_is_ours_and_of_the_expected_kind(name, kind) -> None:
    assert issubclass(getattr(errors, name), TandemError)
    assert issubclass(getattr(errors, name), kind)


@pytest.mark.parametrize(
    "error",
    [
        SettingError("what", "expected", "fix"),
        errors.MemoryBudgetError("what", "expected", "fix"),
        errors.RunFolderError("what", "expected", "fix"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_text_survives_a_way_between_processes(error) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)


@pytest.mark.parametrize("value", [0, -1.5, float("nan"), True, "3", None])
def test_at_least_refuses_what_is_below_or_no_number(value) -> None:
    with pytest.raises(
        SettingError,
        match="batch=.*\nExpected: at least 1\nFix: give batch=1, or any number from 1",
    ):
        errors.at_least("batch", value, 1)


def test_one_of_proposes_the_nearest() -> None:
    with pytest.raises(
        SettingError, match="Expected: one of 'future', 'final'\nFix: give strategy='final', say"
    ):
        errors.one_of("strategy", "finale", ("future", "final"))
    with pytest.raises(SettingError, match="Fix: give n=1, say"):
        errors.one_of("n", None, (1, 2))


@pytest.mark.parametrize("shape, found", [((2, 3), (2, 4)), ((2,), (2, 1)), ((-1, 3), (5, 2))])
def test_same_shape_names_both(shape, found) -> None:
    with pytest.raises(errors.SpaceError, match=r"q has shape \(.*\nExpected: shape \("):
        errors.same_shape("q", np.zeros(found), shape)


def test_what_is_right_passes_the_three() -> None:
    errors.at_least("batch", np.int64(1), 1)
    errors.one_of("n", None, (1, None))
    errors.same_shape("q", np.zeros((5, 3)), (-1, 3))


def test_lengths_that_are_not_known_yet_fit_any() -> None:
    """TensorFlow's arrays have such while a function is traced."""

    class Traced:
        def __init__(self, *shape: int | None) -> None:
            self.shape = shape

    errors.same_shape("q", Traced(None, 3), (5, 3))
    errors.same_shape("q", np.zeros((5, 3)), Traced(None, 3).shape)
    with pytest.raises(errors.SpaceError, match=r"Expected: shape \(any, 4\)"):
        errors.same_shape("q", Traced(None, 3), (None, 4))
    with pytest.raises(errors.SpaceError, match="q has shape"):
        errors.same_shape("q", Traced(None), (5, 3))


def test_same_shapes_names_the_one_that_differs() -> None:
    errors.same_shapes((5, 3), q=np.zeros((5, 3)), v=np.zeros((5, 3)))
    with pytest.raises(errors.SpaceError, match=r"v has shape \(5,\)"):
        errors.same_shapes((5, 3), q=np.zeros((5, 3)), v=np.zeros(5))
