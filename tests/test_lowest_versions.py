"""constraints-lowest.txt has the lower bounds of pyproject.toml, which `make test-lowest` tries."""

from __future__ import annotations

import re
import tomllib
from itertools import zip_longest

from tests.helpers import ROOT

# of these extras nothing is tried: they are large, and little of tandem needs them
UNTRIED = {"mlflow", "onnx-jax", "dev", "hub", "data", "docs"}
# the other extra for the same engine, which may not be installed beside the one that is tried
OTHERS = {"tensorflow", "all"}


def lower_bounds() -> dict[str, str]:
    """The lower bound of each dependency, by its name; "" where there is none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [line for name in extras.keys() - UNTRIED - OTHERS for line in extras[name]]
    found: dict[str, str] = {}
    for line in [*project["dependencies"], *lines]:
        requirement = line.partition(";")[0]
        name = re.split(r"[\[<>=; ]", requirement)[0].lower()
        bound = re.search(r">=([\d.]+)", requirement)
        if name not in ("tandem-rl", "tensorflow"):
            found[name] = max(found.get(name, ""), bound[1] if bound else "")
    return found


def same(bound: str, version: str) -> bool:
    """Whether a version is a bound, which may leave out zeros at its end, or a patch level."""
    parts = zip_longest(bound.split("."), version.split("."), fillvalue="0")
    return version == bound or version.startswith(f"{bound}.") or all(a == b for a, b in parts)


def test_they_are_the_bounds_of_the_project_which_has_them_all() -> None:
    text = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE))
    bounds = lower_bounds()
    assert {"numpy", "gymnasium", "torch", "keras", "jax", "tensorflow-cpu"} <= bounds.keys()
    for name, bound in bounds.items():
        assert name in pinned, f"{name} is not in constraints-lowest.txt"
        assert not bound or same(bound, pinned[name]), (
            f"{name}: pyproject.toml allows {bound}, constraints-lowest.txt has {pinned[name]}"
        )
    assert not [n for n in pinned if n.startswith(("nvidia", "cuda", "triton"))]
    assert [name for name, bound in lower_bounds().items() if not bound] == []
