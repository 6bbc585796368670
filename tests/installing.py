"""Installs a package of the tests into a folder as pip would, without a network."""

from __future__ import annotations

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
    called = project["name"].replace("-", "_")
    info = folder / f"{called}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = project.get("entry-points", {})
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def path_with(*folders: Path) -> dict[str, str]:
    """The variable that has a child find packages in `folders`, beside tandem and the tests."""
    places = [*folders, ROOT / "src", ROOT]
    return {"PYTHONPATH": os.pathsep.join(map(str, places))}
