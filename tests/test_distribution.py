"""The wheel and the sdist: what is in them, and what is not."""

import os
import subprocess
import sys
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

from tests import distribution
from tests.distribution import sdist_faults, wheel_faults
from tests.helpers import ROOT


def build(source: Path, out: Path, kind: str) -> Path:
    """What hatchling makes of a folder, without a network: in this environment."""
    pytest.importorskip("hatchling", reason="hatchling builds them: pip install 'tandem-rl[dev]'")
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    """Built while the folder has what work leaves behind, by names of this process."""
    left = [
        ROOT / "runs" / f"left-by-test-{os.getpid()}" / "progress.csv",
        ROOT / "docs" / "__pycache__" / f"left-by-test-{os.getpid()}.pyc",
    ]
    parents = [parent for file in left for parent in (file.parent, file.parent.parent)]
    made = [parent for parent in parents if not parent.exists()]
    for file in left:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("left")
    try:
        return build(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")
    finally:
        for file in left:
            file.unlink()
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory) -> Path:
    """Built from the sdist, as installers do."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(sdist) as file:
        file.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return build(source, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.mark.slow
def test_both_hold_what_they_should_and_nothing_else(sdist: Path, wheel: Path, capsys) -> None:
    assert list(sdist_faults(sdist)) == []
    assert list(wheel_faults(wheel)) == []
    assert distribution.main(wheel.parent) == 1  # there is no sdist beside it
    assert "1 wheels and 0 sdists" in capsys.readouterr().out


@pytest.mark.slow
def test_a_wheel_s_package_has_its_data(wheel: Path, tmp_path: Path) -> None:
    """Out of the wheel alone: the zoo is read, and the self-test is there."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path)
    program = (
        "import tandem, tandem.testing.self_test; from tandem import zoo; "
        "print(tandem.__file__, zoo.entry('ppo', 'CartPole-v1').source)"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", program]
    told = subprocess.check_output(command, cwd=tmp_path, env=env, text=True)
    assert told.startswith(str(tmp_path))


def test_what_is_missing_or_too_much_is_noticed(tmp_path: Path) -> None:
    wheel = tmp_path / "tandem_rl-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in distribution.sources() - {"py.typed", "zoo/ppo.toml"}:
            file.writestr(f"tandem/{name}", "")
        file.writestr("tests/__init__.py", "")
        file.writestr("tandem_rl-0.1.0.dist-info/METADATA", "")
    faults = "\n".join(wheel_faults(wheel))
    for part in ("tandem/py.typed", "tandem/zoo/ppo.toml", "its licence"):
        assert f"is without {part}" in faults
    assert "has tests/__init__.py" in faults and "has no command tandem" in faults
    sdist = tmp_path / "tandem_rl-0.1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as file:
        for name in ("pyproject.toml", "runs/a/progress.csv", "tests/__pycache__/x.pyc"):
            file.addfile(tarfile.TarInfo(f"tandem_rl-0.1.0/{name}"))
    faults = "\n".join(sdist_faults(sdist))
    for part in ("has runs", "x.pyc", "is without README.md", "is without src/tandem/py.typed"):
        assert part in faults
