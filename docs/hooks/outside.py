"""Brings pages from outside docs/ into the site, and turns links into what they are there.

In the repository, pages link to one another, to pictures, tables and programs by relative paths, so
that they can be read on a code host. On the site README.md, CHANGELOG.md, CONTRIBUTING.md and the
results of benchmarks are pages too, the pictures beside them are files, and the example programs
are shown, a page for each folder.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = "src/tandem/examples"
RESULTS = "benchmarks/results"

# path in the repository -> path in docs/, as the site has it
PLACES = {
    "README.md": "about.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.txt",
    "CITATION.cff": "citation.cff",
    EXAMPLES: "examples/index.md",
}
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)]*)?\)")
NAMED = re.compile(r"(docs|benchmarks/results)/[\w/.-]+\.md")  # links that are called by their file
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def site_path(path: str) -> str | None:
    """Where the site has a file of the repository; None where it has not."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith(f"{RESULTS}/"):
        return path.replace(RESULTS, "benchmarks", 1)
    if path.startswith(f"{EXAMPLES}/"):
        folder = path if (ROOT / path).is_dir() else posixpath.dirname(path)
        return f"examples/{posixpath.relpath(folder, EXAMPLES)}.md".replace("/..md", "/index.md")
    return PLACES.get(path)


def repository_path(site: str) -> str:
    """Which file of the repository a page of the site is."""
    for path, place in PLACES.items():
        if place == site:
            return path
    if site.startswith("benchmarks/"):
        return site.replace("benchmarks", RESULTS, 1)
    return f"docs/{site}"


def outside() -> dict[str, Path]:
    """The files from outside docs/ that the site has: path on the site -> file."""
    found = [ROOT / path for path in PLACES if (ROOT / path).is_file()]
    for pattern in ("*.md", "*.csv", "curves/*.png"):
        found += sorted((ROOT / RESULTS).glob(pattern))
    return {str(site_path(file.relative_to(ROOT).as_posix())): file for file in found}


def title(file: Path) -> str:
    """The title of a page."""
    found = re.search(r"^# (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else file.stem


def relinked(page: str, text: str) -> str:
    """A page's text with its relative links as they are on the site. `page`: its path there."""
    here = posixpath.dirname(repository_path(page))

    def moved(found: re.Match[str]) -> str:
        text, target, anchor = LINK.sub(moved, found[1]), found[2], found[3] or ""
        if re.match(r"[a-z]+:", target):
            return f"[{text}]({target}{anchor})"
        path = posixpath.normpath(posixpath.join(here, target))
        place = site_path(path)
        if place is None:
            return found[0]  # the build says that it is not there
        if NAMED.fullmatch(text):
            text = title(ROOT / path)
        to = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return f"[{text}]({to}{anchor})"

    parts, last = [], 0
    for block in FENCED.finditer(text):
        parts += [LINK.sub(moved, text[last : block.start()]), block[0]]
        last = block.end()
    return "".join([*parts, LINK.sub(moved, text[last:])])


TITLES = {  # folder of the example programs -> title of its page
    ".": "Trainer and drlbox names",
    "pytorch": "Agents in PyTorch",
    "pytorch/pool_network": "Agents in PyTorch, process pools",
    "keras": "Agents in Keras",
    "keras/pool_network": "Agents in Keras, process pools",
    "cluster": "Cluster",
}


def examples() -> dict[str, str]:
    """Pages that show the example programs: path on the site -> text."""
    pages, list_ = {}, ["# Example programs", "", "Programs to run with `python -m`.", ""]
    folders = sorted({f.parent for f in (ROOT / EXAMPLES).rglob("*.py") if f.name[0] != "_"})
    for folder in folders:
        inner = folder.relative_to(ROOT / EXAMPLES).as_posix()
        title = TITLES[inner]
        lines = [f"# {title}", ""]
        path = "examples/programs.md" if inner == "." else f"examples/{inner}.md"
        name = posixpath.relpath(path, "examples")
        list_ += [f"## [{title}]({name})", ""]
        for file in sorted(folder.glob("*.py")):
            if file.name[0] == "_":
                continue
            text = file.read_text(encoding="utf-8")
            about = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
            module = file.relative_to(ROOT / "src").with_suffix("").as_posix().replace("/", ".")
            use = f"`python -m {module}`" if "__main__" in text else "Imported by other examples."
            lines += [f"## {file.stem}", "", use, "", "```python"]
            lines += [text.rstrip(), "```", ""]
            list_ += [f"- `{file.stem}`: {' '.join(about.split())}"]
        list_.append("")
        pages[path] = "\n".join(lines)
    pages["examples/index.md"] = "\n".join(list_)
    return pages


def on_files(files: Files, config: Any) -> Files:
    for place, file in outside().items():
        files.append(File.generated(config, place, abs_src_path=str(file)))
    for place, text in examples().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place = page.file.src_uri
    if place.startswith(("examples/", "reference/")):
        return markdown
    return relinked(place, markdown)
