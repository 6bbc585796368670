"""Installs a package of the tests into a folder as pip would, without a network."""

import os
import shutil
import tomllib
from pathlib import Path

from tests.helpers import ROOT


def install(package: Path, folder: Path) -> None:
    """Puts what is in `package`'s folder src and the metadata of its pyproject.toml in `folder`."""
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(package / "src", folder, ignore=ignored, dirs_exist_ok=True)
    describe(folder, project["name"], project["version"], project.get("entry-points", {}))


def describe(folder: Path, name: str, version: str, groups: dict[str, dict[str, str]]) -> None:
    """Puts the metadata of a package with these entry points, by their groups, in `folder`."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        f"{line}\n"
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{n} = {v}" for n, v in points.items()))
    ]
    (info / "entry_points.txt").write_text("".join(lines))


def path_with(*folders: Path) -> dict[str, str]:
    """The variable that has a child find packages in `folders`, beside tandem and the tests."""
    places = [*folders, ROOT / "src", ROOT]
    return {"PYTHONPATH": os.pathsep.join(map(str, places))}
