"""A run as one HTML file: what is in it, that it needs nothing else, that a browser shows it."""

import csv
import json
import re
import shlex
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest

import tandem
from tandem.cli import main
from tandem.cli import train as training
from tandem.learning.figures import figures, mean_and_std
from tandem.reports.run_report import command_of, report
from tandem.runs.callbacks import Callback
from tests.browser import needs_browser, shown
from tests.reports.test_comparison import make

GIVEN = "--framework torch --steps 600 --hidden 16,8 --gamma 0.9 --no-orthogonal --seed 3"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A complete run with a curve and an animation."""
    folder = tmp_path_factory.mktemp("runs") / "two words"
    words = f"train ppo CartPole-v1 {GIVEN} --final-episodes 2 --eval-episodes 2 --quiet"
    more = ["--entropy=-0.01", "--no-tensorboard", "--out", str(folder)]
    assert main([*words.split(), *more]) == 0
    return folder


class Page(HTMLParser):
    """Tags that are open, whatever a page refers to, its text, and its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.sources, self.tags = list[str](), list[str](), set[str]()
        self.rows, self.text = list[list[str]](), ""
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.add(tag)
        self.sources += [value for name, value in attributes if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def json_of(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def test_everything_is_in_one_file(run, capsys) -> None:
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"wrote {run / 'report.html'}\n"
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    assert page.open == [] and not {"script", "link", "iframe"} & page.tags
    kinds = [source.partition(";")[0] for source in page.sources]
    assert kinds == ["data:image/svg+xml", "data:image/gif"]
    config, result = json_of(run / "config.json"), json_of(run / "result.json")
    assert "PPO, CartPole-v1, PyTorch, seed 3" in page.text
    scored_best = mean_and_std(result["eval_mean"], result["eval_std"])
    assert f"The best checkpoint: {scored_best}" in page.text
    named = {row[0]: row for row in page.rows if row}
    for name in (*config["settings"], *config["options"], *config["versions"]):
        assert name in named, name
    assert named["gamma"][1:3] == ["0.9", "0.99"] and named["hidden"][1] == "16, 8"
    assert named["orthogonal"][1] == "no"
    with open(run / "progress.csv", encoding="utf-8", newline="") as file:
        scored = [row for row in csv.DictReader(file) if row["eval_mean"]]
    shown = [row for row in page.rows if len(row) == 8][1:]  # below the head of the evaluations
    assert [row[0] for row in shown] == [f"{int(row['env_steps']):,}" for row in scored]
    assert [row[4] for row in shown] == [figures(float(row["eval_mean"])) for row in scored]
    assert len(scored) >= 3 and [row[7] for row in shown].count("best") == 1
    assert sum(result["shares"].values()) <= result["seconds"] * 1.01
    assert {"environment", "acting", "learning", "other"} <= set(named)
    assert set(result["shares"]) == {"environment", "acting", "learning"}


def test_its_command_makes_the_same_run(run, tmp_path) -> None:
    config = json_of(run / "config.json")
    program, train, *words = shlex.split(command_of(config))
    assert (program, train) == ("tandem", "train")
    args = training.arguments([*words, "--out", str(tmp_path / "again")])
    session = training._begun_or_resumed(args, args.seed, args.out, Callback())
    session.backend.close()
    again = json.loads(json.dumps(session.config.to_json()))
    config["options"]["compile"], config["compiled"] = config["compiled"], ""  # what "auto" chose
    assert again == {n: x for n, x in config.items() if n != "signature"}
    page = Page(report(run, tmp_path / "a.html").read_text(encoding="utf-8"))
    assert command_of(config) in page.text


TRAIN = "tandem train ppo E-v0"
TORCH = f"{TRAIN} --framework torch"
BY_A_PROGRAM = "# made by a program, which gave:"


@pytest.mark.parametrize(
    "more, command",
    [
        ({"settings": {"steps": 5, "gamma": 0.5}}, f"{TORCH} --steps 5 --gamma 0.5"),
        (
            {"env_kwargs": {"a": 1}, "device": "cpu"},
            f"""{TRAIN} --env-kwargs '{{"a": 1}}' --framework torch --device cpu""",
        ),
        ({"vector": "a.b:make"}, "tandem train ppo --vector a.b:make --framework torch"),
        (
            {"origin": {"env_module": "my.car"}, "settings": {"steps": 9}, "extended_from": 5},
            f"{TRAIN} --import my.car --framework torch --steps 5\n"
            "tandem train --resume DIR --steps 9 --extend --import my.car",
        ),
        ({"origin": {"env_module": "car; rm -r x"}}, TORCH),
        ({"vector": "id"}, TORCH),
        (
            {"algorithm": "mine:Own", "settings": {"b": [1, 2], "c": False}},
            "tandem train mine:Own E-v0 --framework torch --b 1,2 --no-c",
        ),
        (
            {"settings": {"steps": 9}, "extended_from": 5},
            f"{TORCH} --steps 5\ntandem train --resume DIR --steps 9 --extend",
        ),
        ({"own_env": True, "own_network": True}, f"{BY_A_PROGRAM} environment, network"),
        # of a file that somebody else wrote
        (
            {"framework": "torch; id", "device": "a b", "settings": {"x; id #": 1}},
            f"{TRAIN} --framework 'torch; id' --device 'a b' '--x; id #' 1",
        ),
        ({"vector": "own"}, f"{BY_A_PROGRAM} a vector"),
    ],
)
def test_commands(more, command) -> None:
    config = {"algorithm": "ppo", "env": "E-v0", "framework": "torch", "seed": 0}
    assert command_of({**config, **more}) == command


def test_a_run_that_is_not_complete_and_has_drawn_nothing(tmp_path) -> None:
    folder = make(tmp_path / "young", None, steps=1000)
    (folder / "result.json").unlink()
    (folder / "progress.csv").write_text("env_steps\n400\n")
    page = Page(tandem.report(folder).read_text(encoding="utf-8"))
    watch = f"tandem watch {folder} --out {folder / 'animation.gif'}"
    parts = "Not complete: 400 of 1,000 steps", "No curve: ", "There was none.", "Not recorded"
    assert all(part in page.text for part in (*parts, watch))


def test_what_a_file_says_stays_text_and_what_cannot_be_reported(tmp_path, capsys) -> None:
    odd = "<script>alert('&')</script>"
    folder = make(tmp_path / "odd", 5.0, env=odd, algorithm="a:B", versions={odd: odd}, source=odd)
    page = Page(report(folder).read_text(encoding="utf-8"))
    assert page.open == [] and "script" not in page.tags and page.text.count(odd) >= 5
    folder = make(tmp_path / "run", 5.0)
    assert main(["report", str(tmp_path / "rum")]) == 2
    assert f"did you mean {folder}?" in capsys.readouterr().err
    assert main(["report", str(folder), "--out", str(folder / "config.json" / "a.html")]) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.slow
@needs_browser
def test_a_browser_shows_it(run, tmp_path) -> None:
    """The curve's blue, the animation's picture in its frame, and text: without a network."""
    page, picture = report(run, tmp_path / "a.html"), tmp_path / "a.png"
    options = ["--hide-scrollbars", "--window-size=1100,2400", f"--screenshot={picture}"]
    _, log = shown(tmp_path, page.as_uri(), *options)
    assert picture.is_file(), log[-2000:]
    seen = imageio.imread(picture)[..., :3].astype(int)
    assert seen.shape == (2400, 1100, 3)

    def count(color: tuple[int, int, int]) -> int:
        return int((np.abs(seen - color).max(axis=-1) <= 12).sum())

    assert count((0x00, 0x72, 0xB2)) > 500  # the line of evaluations, and the bars of time
    assert count((0x22, 0x22, 0x22)) > 500  # text
    pole = imageio.imread(run / "animation.gif", index=0)[..., :3].reshape(-1, 3)
    colors, counts = np.unique(pole, axis=0, return_counts=True)
    bright = np.ptp(colors.astype(int), axis=1) > 40
    brown = colors[bright][counts[bright].argmax()]
    assert count(tuple(brown.astype(int))) > 100  # the pole


TELEPHONE = 390  # CSS pixels
FRAME = """<!DOCTYPE html>
<iframe width={width} height=800 style="border: 0" srcdoc="{page}"></iframe>
<script>
onload = () => {{
  const seen = document.querySelector("iframe").contentDocument;
  const widths = (what) => [...seen.querySelectorAll(what)].map((x) => x.scrollWidth);
  const root = seen.documentElement;
  document.title = JSON.stringify({{
    page: root.scrollWidth, screen: root.clientWidth, boxes: widths("div.wide"),
    pictures: widths("img")}});
}};
</script>
"""


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("kind", ["complete", "long words"])
def test_it_reads_well_on_a_telephone(run, tmp_path, kind) -> None:
    """In a frame of that width, since a browser's own window has a least one."""
    folder = run
    if kind == "long words":  # names and paths that nothing breaks
        folder = make(tmp_path / ("long" * 30), 5.0, env="E" * 100, source="s" * 200)
    page = report(folder, tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<meta name='viewport' content='width=device-width, initial-scale=1'>" in page
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(width=TELEPHONE, page=escape(page)), encoding="utf-8")
    whole, log = shown(tmp_path, frame.as_uri(), "--dump-dom", "--virtual-time-budget=5000")
    title = re.search(r"<title>(.*?)</title>", whole)
    assert title is not None, log[-2000:]
    seen = json.loads(title[1])
    assert 0 < seen["page"] <= seen["screen"] <= TELEPHONE, seen
    assert all(width <= TELEPHONE for width in seen["pictures"])
    if kind == "complete":
        assert max(seen["boxes"]) > TELEPHONE  # the settings' table, which scrolls in its box
        assert len(seen["pictures"]) == 2
