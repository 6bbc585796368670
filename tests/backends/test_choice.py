"""Choosing an engine: what is refused, and what the refusal says."""

import importlib.util
import sys
from types import SimpleNamespace

import pytest

from tandem import backends
from tandem.errors import EngineError
from tests.helpers import run_python


@pytest.fixture
def only(monkeypatch):
    def hide(*present: str) -> None:
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: object() if name in present else None
        )
        monkeypatch.delitem(sys.modules, "keras", raising=False)

    return hide


def test_the_quickest_installed_engine_is_chosen(only) -> None:
    only("torch", "keras", "tensorflow", "jax")
    assert backends.installed() == ["jax", "tensorflow", "torch", "keras-torch"]
    assert backends.choose() == "jax"
    only("torch", "keras", "tensorflow")
    assert backends.choose() == "tensorflow"
    only("torch", "keras")
    assert backends.choose() == "torch"
    only("jax", "torch")  # without Keras
    assert backends.installed() == ["torch"]


def test_what_is_not_there_is_said_with_what_to_install(only) -> None:
    only("keras")
    with pytest.raises(EngineError, match=r"no backend is installed(.|\n)*pip install"):
        backends.choose()
    only("torch")
    said = r"'jax' needs keras and jax(.|\n)*installed backends: torch(.|\n)*tandem-rl\[jax\]"
    with pytest.raises(EngineError, match=said):
        backends.choose("jax")
    with pytest.raises(EngineError, match=r"tandem-rl\[torch,jax\]"):
        backends.choose("keras-torch")


def test_the_engine_that_keras_runs_on_comes_first_and_alone(only, monkeypatch) -> None:
    only("torch", "keras", "tensorflow", "jax")
    running = SimpleNamespace(backend=SimpleNamespace(backend=lambda: "torch"))
    monkeypatch.setitem(sys.modules, "keras", running)
    assert backends.choose() == "keras-torch" and backends.choose("torch") == "torch"
    said = r"imported Keras on torch(.|\n)*KERAS_BACKEND=jax(.|\n)*framework='keras-torch'"
    with pytest.raises(EngineError, match=said):
        backends.choose("jax")


@pytest.mark.slow
@pytest.mark.parametrize("engines", ["torch", "jax tensorflow", "tensorflow jax"])
def test_a_device_that_is_not_there_and_a_second_keras_engine_are_refused(engines) -> None:
    code = """
    import json, sys
    from tandem import backends
    from tandem.errors import EngineError

    framework, *others = sys.argv[1:]
    for chosen in ((framework, "cuda"), (framework, "cpu"), (framework, "auto"), *zip(others)):
        try:
            print(json.dumps(backends.make(*chosen).device))
        except EngineError as error:
            print(json.dumps(str(error)))
    """
    framework, *other = engines.split()
    said = run_python(code, framework, *other)
    assert said[0].startswith("device 'cuda' is not available") and "use device='cpu'" in said[0]
    assert said[1:3] == ["cpu", "cpu"] and len(said) == 3 + len(other)
    for name in other:
        assert f"KERAS_BACKEND={name}" in said[3] and f"framework={framework!r}" in said[3]
