"""The advice of completion, of the self-test, and about other systems."""

from __future__ import annotations

from typing import Any

import pytest

from tandem import platforms
from tandem.cli import completion
from tandem.errors import TandemError
from tandem.testing import self_test
from tests.advice.net import excepted, follows

excepted(
    "plugins.py:Plugin.fault",
    "plugins.py:Plugin.refuse_clash",
    "zoo/files.py:_clash",
    because="tests/test_plugins.py::test_others_do_not_notice: it says to mend or to uninstall a "
    "package, and there everything goes on beside it; tests/test_plugins.py::"
    "test_without_a_package_there_is_no_writer has none",
)


def test_completion(capsys: Any) -> None:
    with follows("cli/completion.py:run") as advice:
        completion.run(["bahs"])
    assert completion.run([advice.quoted()]) == 0 and "complete" in capsys.readouterr().out


def test_the_self_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    answer = {"check": "imports", "seconds": 0.0}
    monkeypatch.setattr(self_test, "_answers", lambda *_: iter([answer]))
    with follows("testing/self_test.py:self_test") as advice:
        self_test.self_test(["troch"])
    assert self_test.self_test([advice.quoted()], tell=lambda _: None) == 0
    with follows("testing/self_test.py:self_test 2"):
        self_test.self_test(["torch"], patience=0.0)
    (tmp_path / "there").mkdir()
    with follows("testing/self_test.py:_folder"):
        self_test.self_test(["torch"], keep=str(tmp_path / "there"))
    other = str(tmp_path / "another")
    assert self_test.self_test(["torch"], keep=other, tell=lambda _: None) == 0


def test_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(platforms.VARIABLE, "posxi")
    with follows("platforms.py:system") as advice:
        platforms.system()
    assert isinstance(advice.error, TandemError)
    monkeypatch.setenv(platforms.VARIABLE, advice.quoted())
    assert platforms.system() == platforms.POSIX
