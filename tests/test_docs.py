"""The pages say what the code does: blocks run, names exist, links lead somewhere."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tandem import algorithms
from tandem.settings import declared, offered
from tests.helpers import ALONE, COMPILED_LIGHTLY, ON_CPU, ONE_THREAD, QUIET, ROOT
from tests.page_names import faults, importable
from tests.pages import LANGUAGES, Block, blocks, missing_line, pages, shortened
from tests.test_floors import KEPT_APART, LAYERS

SPEC = importlib.util.spec_from_file_location("docs_settings", ROOT / "docs" / "settings.py")
settings = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(settings)

CURVES = ROOT / "benchmarks" / "results" / "curves"
PAGES = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in pages()}


def run(folder: Path, *names: str, whole: bool = False) -> list[dict[str, Any]]:
    """Runs the blocks of pages in one process, with Keras on JAX; what became of each."""
    command = [sys.executable, "-m", "tests.pages", str(folder), *(str(ROOT / n) for n in names)]
    env = {**os.environ, **ONE_THREAD, **ON_CPU, **ALONE, **QUIET, "KERAS_BACKEND": "jax"}
    env.pop("COLUMNS", None)  # tables would be wrapped to it
    env["JAX_NUM_CPU_DEVICES"] = "2"  # one process runs all pages: they are there for devices.md
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    if whole:
        command.append("--whole")
    else:
        env |= COMPILED_LIGHTLY
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"page": ')]
    return [json.loads(line) for line in lines]


# what a visitor runs first: CI compares what these pages print; the thorough suite does for all
FRONT = ("README.md", "docs/start/first-run.md", "docs/tutorials/trainer.md")
GUIDES = [p for p in PAGES if p.startswith(("docs/start/", "docs/tutorials/", "docs/howto/"))]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(4))
def test_every_block_runs(part: int, tmp_path: Path) -> None:
    names = [page for page in PAGES if page not in FRONT][part::4]  # those run whole below
    ran = run(tmp_path, *names)
    assert not [f"{r['page']}.md, line {r['line']}:\n{r['error']}" for r in ran if r["error"]]
    expected = {*algorithms.NAMES, "multi-agent", "workers"} & {Path(name).stem for name in names}
    assert expected and {r["page"] for r in ran} >= expected


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [p if p in FRONT else pytest.param(p, marks=pytest.mark.thorough) for p in (FRONT[0], *GUIDES)],
)
def test_blocks_print_what_the_page_says(page: str, tmp_path: Path) -> None:
    """Run whole: scores within the page's tolerance, texts to the letter."""
    ran = run(tmp_path, page, whole=True)
    assert not [f"line {r['line']}:\n{r['error']}" for r in ran if r["error"]]


def test_an_output_that_is_not_printed_is_a_fault() -> None:
    printed = "evaluation: return 480.0 ± 3.1\nlast\n12.0 s"
    assert missing_line("evaluation: return 500.0 ± …\n…\n99.0 s", printed, 0.1) is None
    assert missing_line("evaluation: return 500.0 ± …", printed, 0.02) is not None
    assert missing_line("last\nevaluation: …", printed, 0.1) == "evaluation: …"
    assert missing_line("evaluation: score 480.0 ± 3.1", printed, 0.1) is not None
    assert missing_line("success 100%", "success 40%", 0.1) is not None
    assert missing_line("time: acting 60%", "time: acting 40%", 0.1) is None
    page = "```sh\nx\n```\n\n<!-- tolerance: 25% -->\n\n```output\n1\n```\n"
    assert [(b.output, b.tolerance) for b in blocks(page)] == [("1\n", 0.25), ("", 0.1)]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page) -> None:
    found = [(b.line, b.language) for b in blocks(PAGES[page]) if b.language not in LANGUAGES]
    assert not found, f"one of {sorted(LANGUAGES)} has to stand after the fence"
    outside = re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    assert not re.findall(r"(?<=\n\n)    .*", outside), "fence it: ```sh, ```python, …"


@pytest.mark.slow
def test_a_block_that_fails_is_told_of(tmp_path) -> None:
    page, made = tmp_path / "page.md", "```python\nmade = open('left', 'w')\n```\n\n"
    opened = "```python\nopen('left')\nopen('missing')\n```\n\n"
    page.write_text(f"{made}```text\nnothing\n```\n\n{opened}```sh\nls\n```\n")
    (tmp_path / "runs").mkdir()
    first, second, third = run(tmp_path / "runs", str(page))
    assert first["error"] is None and first["line"] == 2
    assert "FileNotFoundError" in second["error"] and "missing" in second["error"]
    assert "no command of tandem" in third["error"]


@pytest.mark.parametrize(
    ("language", "text", "shorter"),
    [
        ("python", "train('ppo', steps=8_000)\n", "train('ppo', steps=300)\n"),
        ("python", "train(steps=200, episodes=20)\n", "train(steps=200, episodes=2)\n"),
        ("python", "train(update_steps=1000)\n", "train(update_steps=1000)\n"),
        ("sh", "tandem verify a \\\n  --steps 10\n", "tandem verify a   --steps 10\n"),
        ("sh", "tandem verify a --steps 10000\n", "tandem verify a --steps 300\n"),
        ("sh", "tandem train --resume a\n", "tandem train --resume a\n"),
        (
            "sh",
            "tandem train ppo X --steps 4000 --stop-at 2000 --framework jax  # on JAX\n",
            "tandem train ppo X --steps 300 --stop-at 150 --framework jax"
            " --eval-episodes 0 --final-episodes 1 --no-plots\n",
        ),
    ],
)
def test_shortened(language, text, shorter) -> None:
    assert shortened(Block(language, text, 1)).text == shorter


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_name_is_in_the_repository(page) -> None:
    assert not list(faults(PAGES[page]))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("`tandem.trainer.trainer`", "tandem.trainer.trainer"),
        ("`from tandem import RL, unload`", "unload"),
        ("`from tandem.examples.keras.DQN import DQNN`", "DQNN"),
        ("`math.returns.kappa_return`", "kappa_return"),
        ("`tandem train ppo --never-there`", "--never-there"),
        ("`--no-learning-rate`", "--no-learning-rate"),
        ("`tandem trane`", "trane"),
        ("`tandem train popo`", "popo"),
        ("`make learned`", "learned"),
        ("```console\nmake nothing\n```", "nothing"),
        ("`python -m benchmarks.unlearn`", "benchmarks.unlearn"),
        ("`algorithms/popo.py`", "algorithms/popo.py"),
        ("`training/`", "training/"),
        ("`progress.json.toml`", "progress.json.toml"),
        ("`WorkerPoool`", "WorkerPoool"),
    ],
)
def test_faults(text, fault) -> None:
    (found,) = faults(f"{text}\n")
    assert fault in found


def test_the_table_of_packages_has_every_package_in_the_order_of_layers() -> None:
    page = PAGES["docs/contributors/design.md"]
    table = page[page.index("## Packages") : page.index("## Words")]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    rows = [re.findall(r"`([\w/]*\w)", cell) for cell in cells]
    layer_of = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    layers = [{layer_of[name] for name in row} for row in rows]
    assert layers == sorted(layers, key=min) and all(len(layer) == 1 for layer in layers)
    assert {name for row in rows for name in row} == set(layer_of) - {"__init__", "__main__"}
    apart = dict(re.findall(r"^\| `([\w/]+)/` \|.*\| (`.*`) \|$", table, re.MULTILINE))
    assert {name: set(re.findall(r"`(\w+)`", apart[name])) for name in apart} == KEPT_APART


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGES[page]):
        if target.startswith("http"):
            continue
        path = Path(os.path.normpath((ROOT / page).parent / target))
        if CURVES in path.parents and not CURVES.exists():
            continue  # an sdist, which is without them
        assert path.exists(), target


@pytest.mark.parametrize("algorithm", algorithms.NAMES)
def test_the_table_of_settings_is_up_to_date(algorithm) -> None:
    page = PAGES[f"docs/algorithms/{algorithm}.md"]
    assert page == settings.renewed(page, algorithm), "run: python docs/settings.py"
    rows = settings.table(algorithm).splitlines()
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {6}
    # it and --help leave out options that are always refused
    kind = algorithms.get(algorithm).Settings
    own = {s.name for s in declared(kind)}
    cells = [(next(iter(x)), settings.cell(algorithm, x)) for x in settings.OPTIONS.values()]
    has = {option for option, cell in cells if cell == "yes"}
    never = own - {s.name for s in offered(kind)}
    assert {option for option, _ in cells if option in own} - has <= never
    assert not has & never


def test_the_pages_of_options_and_of_the_zoo_say_what_the_code_does() -> None:
    renewed = {"algorithms/options": settings.renewed_options, "howto/zoo": settings.renewed_zoo}
    for name, renew in renewed.items():
        page = PAGES[f"docs/{name}.md"]
        assert page == renew(page), "run: python docs/settings.py"


@pytest.mark.parametrize("algorithm", algorithms.NAMES)
def test_every_function_beside_an_equation_exists(algorithm) -> None:
    page = PAGES[f"docs/algorithms/{algorithm}.md"]
    table = page[page.index("## Equations") : page.index("## What differs")]
    cells = re.findall(r"\| `([\w.]+)`", table)
    assert len(cells) >= 4
    kind = algorithms.get(algorithm)
    for name in cells:
        first, _, rest = name.partition(".")
        assert hasattr(kind, rest) if first == kind.__name__ else importable(f"tandem.{name}"), name


def test_the_page_of_the_installation_has_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    of_users = set(project["optional-dependencies"]) - {"docs", "dev"}
    page = PAGES["docs/start/install.md"]
    table = set(re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\|([^|]*)\|", page, re.M))))
    engines = set(re.findall(r"[\w-]+", " ".join(re.findall(r"\[([\w,-]+)\]", page))))
    assert of_users <= table | engines
