"""Ranks the pages of the site in its search: guides first, results and the changelog not at all."""

from __future__ import annotations

from typing import Any

EXCLUDED = (
    *("benchmarks/", "changelog.md", "results/", "examples/", "contributors/"),
    *("reference/math", "reference/algorithms", "reference/testing"),  # for contributors
)
BOOSTS = {  # the beginning of a page's path -> how much more its matches count
    "start/faq": 1.0,
    "start/": 4.0,
    "tutorials/": 2.0,
    "howto/": 4.0,
    "advanced/": 2.0,
    "algorithms/": 1.0,
    "coming-from/": 0.5,
    "reference/": 0.5,
}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place = page.file.src_uri
    if place.startswith(EXCLUDED):
        page.meta["search"] = {"exclude": True}
        return markdown
    fitting = [boost for beginning, boost in BOOSTS.items() if place.startswith(beginning)]
    if fitting:
        page.meta["search"] = {"boost": fitting[0]}
    return markdown
