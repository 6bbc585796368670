"""The site of the documentation: built without a warning, whole, and without another host."""

import ast
import html
import importlib.util
import json
import os
import re
import subprocess
import sys
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from filelock import FileLock

from tandem import algorithms
from tandem.cli import COMMANDS, completion, find
from tests.browser import needs_browser, shown
from tests.helpers import ROOT
from tests.pages import blocks, pages

pytestmark = pytest.mark.timeout(600)  # the first one that needs the site waits until it is built
DOCS = ROOT / "docs"


def module_of(path: Path) -> Any:
    """A program of docs/, imported."""
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


notebooks = module_of(DOCS / "notebooks.py")


@pytest.mark.parametrize("page", notebooks.pages(), ids=lambda page: page.stem)
def test_a_tutorials_notebook_is_made_from_its_page(page) -> None:
    text = page.read_text(encoding="utf-8")
    made = page.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert made == notebooks.notebook(text), "run: python docs/notebooks.py"
    cells = json.loads(made)["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    ran = [block for block in blocks(text) if block.language in ("sh", "python")]
    marks = {"sh": "!", "python": ""}
    assert code == [re.sub("^", marks[b.language], b.text.strip(), flags=re.M) for b in ran]
    assert len(code) >= 3
    assert len({cell["id"] for cell in cells}) == len(cells)


def test_a_notebook_has_commands_and_text() -> None:
    first = "# A\n\n```sh\ntandem list\n```\n\n<!-- tolerance: 20% -->\n\n"
    made = notebooks.notebook(f"{first}```output\nppo\n```\n\n```console\npip\n```\n\nB\n")
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(made)["cells"]]
    text = "Expected output:\n\n```text\nppo\n```\n\n```console\npip\n```\n\nB"
    assert found == [("markdown", "# A"), ("code", "!tandem list"), ("markdown", text)]


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The site as `make docs` builds it; one of the processes that test builds it for all."""
    if find_spec("material") is None or find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs-material is not installed (make test does so)")
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    built, made = folder / "site", folder / "site-made"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(made)]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    with FileLock(folder / "site.lock"):
        if not (built / "index.html").is_file():
            done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
            made.rename(built)
    return built


def texts(site: Path, *endings: str) -> dict[str, str]:
    """The site's files of some kinds: path -> text."""
    return {
        path.relative_to(site).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(site.rglob("*"))
        if path.suffix in endings
    }


@pytest.mark.slow
def test_every_page_is_on_the_site(site) -> None:
    there = texts(site, ".html")
    names = {p.relative_to(DOCS).with_suffix("").as_posix() for p in DOCS.rglob("*.md")}
    names |= {"about", "changelog", "contributing", "security", "benchmarks/speed"}
    assert {f"{name}.html" for name in names} <= set(there)
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in there:
        assert page == "404.html" or page.replace(".html", ".md") in nav, "a page outside of nav"


def public_names() -> list[str]:
    """module.name of whatever an `__all__` names."""
    names = []
    files = (ROOT / "src" / "tandem").rglob("*.py")
    for path in sorted(path for path in files if "examples" not in path.parts):
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names += [f"{module}.{name}" for name in ast.literal_eval(node.value)]
    return names


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site) -> None:
    names = public_names()
    assert {"tandem.train", "tandem.extending.setting", "tandem.cluster.Runner"} <= set(names)
    import griffe

    package = griffe.load("tandem", search_paths=[ROOT / "src"], allow_inspection=False)
    listed = zlib.decompress((site / "objects.inv").read_bytes().split(b"zlib.\n", 1)[1]).decode()
    there = {line.split()[0] for line in listed.splitlines()}
    shown = (site / "reference" / "index.html").read_text(encoding="utf-8").replace("<wbr>", "")
    for name in names:
        member = package[name.removeprefix("tandem.")]
        home = member.final_target.path if member.is_alias else name
        assert home in there or name in there, name
        assert f"<code>{name.rpartition('.')[2]}</code>" in shown, name


@pytest.mark.slow
def test_commands_flags_arguments_and_errors_are_in_the_reference(site) -> None:
    reference = site / "reference"
    page = (reference / "commands.html").read_text(encoding="utf-8")
    text = html.unescape(re.sub(r"<[^>]*>", "", page))
    flags, parsers = set[str](), [completion.all_commands()]
    for parser in parsers:
        for action in parser._actions:
            flags |= {flag for flag in action.option_strings if flag.startswith("--")}
            if isinstance(action.choices, dict):  # its subcommands
                parsers += action.choices.values()
    assert len(flags) > 100 and not {f for f in flags - {"--help", "--version"} if f not in text}
    assert all(f'id="{name}"' in page for name in (*COMMANDS, *(f"find-{k}" for k in find.KINDS)))
    page = (reference / "trainer.html").read_text(encoding="utf-8")
    train = page[page.index('id="tandem.train"') : page.index('id="tandem.session"')]
    text = html.unescape(re.sub(r"<[^>]*>", "", train))
    for argument in ("algorithm", "env_kwargs", "steps", "catch_signals"):
        assert re.search(rf"{argument}\s*\(", text), argument
    errors = (reference / "errors.html").read_text(encoding="utf-8")
    assert 'id="tandem.errors.ResumeError"' in errors


@pytest.mark.slow
def test_nothing_comes_from_another_host(site) -> None:
    """What a page would load by itself: scripts, styles, pictures, fonts."""
    loading = [
        r"<(?:script|img|iframe|source|video|embed)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^\"' >]*",
        r"<link\b(?![^>]*rel=[\"']?canonical)[^>]*\bhref=[\"']?(?:https?:)?//[^\"' >]*",
        r"@import\s+[\"'(]?(?:url\()?[\"']?(?:https?:)?//[^\"')]*",
        r"url\([\"']?(?:https?:)?//[^\"')]*",
    ]
    for path, text in texts(site, ".html", ".css", ".js").items():
        kinds = loading if not path.endswith(".js") else loading[2:]
        for pattern in kinds:
            assert not (found := re.search(pattern, text)), f"{path}: {found and found[0]}"
        if path.endswith(".html"):
            assert "unpkg.com" not in text and "cdn" not in text.lower().split("<body")[0]


def test_formulas_have_the_spaces_of_tex_and_may_be_broken() -> None:
    for library in ("latex2mathml", "fontTools", "mkdocs"):
        pytest.importorskip(library, reason="comes with make test")
    mathml = module_of(DOCS / "hooks" / "mathematics.py").mathml
    space = '<mspace width="0.167em" />'
    assert f"<mi>α</mi>{space}<mi>log</mi>{space}<mi>π</mi>" in mathml(r"\alpha \log \pi")
    assert "<mi>min</mi><mo" in mathml(r"\min(a, b)") and space not in mathml(r"\min(a, b)")
    assert "<mo>∼</mo>" in mathml(r"a \sim \pi") and "<mi>KL</mi>" in mathml(r"\mathrm{KL}(p)")
    long = mathml(r"y = r + \gamma (\min Q(s', a') - \alpha \log \pi(a' \mid s'))")
    assert long.count("<wbr><math") == 3 and long.count("<math") == long.count("</math>") == 4
    norm = mathml(r"\max(\lVert z \rVert, -1)")
    assert norm.count('stretchy="false"') >= 2 and 'form="prefix">\u2212' in norm
    with pytest.raises(ValueError, match="known command"):
        mathml(r"\nonsense x")


def test_lines_break_where_they_may() -> None:
    pytest.importorskip("mkdocs", reason="comes with make test")
    made = module_of(DOCS / "hooks" / "tables.py").on_page_content
    flag = '<span class="flag">'
    assert made("<p>with --out or <code>tandem --seed 1</code></p>").count(flag + "--") == 2
    row = "ROW=ppo-cartpole-jax"
    assert made(f"<code>{row}</code>") == f"<code>{flag}{row}</span></code>"
    assert made("1,000.5 ± 2.0") == "1,000.5\u00a0±\u00a02.0"
    assert made("<math>x</math>, y") == f"{flag}<math>x</math>,</span> y"
    name = "math.returns.generalized_advantage"
    assert made(f"<td><code>f({name}, x)</code></td>").count("<wbr>") == 4
    assert made("<td><code>checkpoint.json</code></td>") == "<td><code>checkpoint.json</code></td>"
    assert made(f"<pre><code>--out {name} ± 1</code></pre>").count("<") == 4


@pytest.mark.slow
def test_mathematics_is_in_the_pages(site) -> None:
    """As MathML, with its font beside it; equations lead to their functions."""
    page = (site / "algorithms" / "ppo.html").read_text(encoding="utf-8")
    assert page.count("<math") >= 15 and "$`" not in page and "<mi>min</mi>" in page
    from fontTools.ttLib import TTFont

    font = TTFont(site / "assets" / "math.woff")
    assert "MATH" in font and "Open Font License" in font["name"].getDebugName(13)
    for algorithm in algorithms.NAMES:
        page = (site / "algorithms" / f"{algorithm}.html").read_text(encoding="utf-8")
        table = page[page.index('id="equations"') : page.index('id="settings"')]
        link = r'href="\.\./reference/(algorithms|math)\.html#tandem\.'
        assert table.count("<math") >= 3 and re.search(link, table), algorithm


# what users type -> the pages that answer it
QUERIES = {
    "learning rate schedule": {"howto/hyperparameters"},
    "save and load model": {"howto/save-load-deploy"},
    "custom environment": {"howto/environments"},
    "gpu": {"howto/gpu"},
    "callback": {"howto/callbacks"},
    "tensorboard": {"howto/logging"},
    "fine-tune": {"howto/fine-tune"},
    "vectorized environments": {"howto/vectorized-environments"},
    "hyperparameters": {"howto/hyperparameters", "howto/sweeps"},
    "onnx": {"howto/save-load-deploy"},
    "multi-agent": {"howto/multi-agent"},
}


@pytest.mark.slow
@needs_browser
def test_the_search_leads_to_the_guides_without_a_network_or_server(site, tmp_path) -> None:
    wrong, item = {}, rf'md-search-result__item"><a href="{site.as_uri()}/([^"]*)\.html'
    for query, answers in QUERIES.items():
        address = f"{site.as_uri()}/index.html?q={quote(query)}"
        page, log = shown(tmp_path, address, "--dump-dom", "--virtual-time-budget=10000")
        found = [*dict.fromkeys(re.findall(item, page))]
        if not answers & {*found[:2]}:
            wrong[query] = found[:4] or log[-2000:]
    assert not wrong


@pytest.mark.slow
def test_links_lead_to_files_and_headings(site) -> None:
    """In the built pages, those that hooks wrote too."""
    there = texts(site, ".html")
    ids = {page: set(re.findall(r'\bid="([^"]+)"', text)) for page, text in there.items()}
    for page, text in there.items():
        if page == "404.html":
            continue
        for target in re.findall(r'<(?:a|img)\b[^>]*(?:href|src)="([^"]+)"', text):
            address, _, anchor = html.unescape(target).partition("#")
            if re.match(r"(https?|mailto|data|javascript):", address):
                continue
            file = (site / page).parent / unquote(address) if address else site / page
            assert file.exists(), f"{page}: {target}"
            name = os.path.relpath(file, site)
            if anchor and name in ids and not anchor.startswith("__"):
                assert unquote(anchor) in ids[name], f"{page}: {target}"


@pytest.mark.slow
def test_lists_and_tables_are_what_a_code_host_makes_of_them(site) -> None:
    """The site's Markdown is another one than that of code hosts; both see the same pages."""
    from markdown_it import MarkdownIt  # comes with rich

    host = MarkdownIt("commonmark").enable("table")
    for path in pages():
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(DOCS if DOCS in path.parents else ROOT).with_suffix("").as_posix()
        name = {"README": "about"}.get(name, name.lower() if name.isupper() else name)
        whole = (site / f"{name}.html").read_text(encoding="utf-8")
        article = whole[whole.index("<article") : whole.index("</article>")]
        article = re.sub(r'<nav class="md-(?:tags|source-file).*?</nav>', "", article, flags=re.S)
        made = host.render(re.sub(r"</?div[^>]*>", "", text))
        for tag in ("li", "table", "tr", "h2", "h3", "blockquote", "ol"):
            here, there = (len(re.findall(rf"<{tag}[ >]", t)) for t in (article, made))
            assert here == there, f"{name}: <{tag}> {here} on the site, {there} on a code host"
