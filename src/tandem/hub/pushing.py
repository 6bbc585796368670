"""`tandem.push`: a run's folder as a repository of the hub."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from tandem.errors import CheckpointError, RunFolderError
from tandem.hub import api
from tandem.hub.card import card
from tandem.hub.public import Cleaner, copy_checkpoint
from tandem.hub.pulling import NAMES
from tandem.reports.animation import mp4
from tandem.runs import checkpoint
from tandem.runs.atomic_files import write_json, writing
from tandem.runs.folder import Run, expect_json, runs_in
from tandem.settings import as_path

PICTURES = ("curve.png", "animation.gif")
TEMPORARY = "free some space there, or set TMPDIR to another folder."
VIDEO = "replay.mp4"  # what the hub shows beside a card


class Pushed(NamedTuple):
    """Where a run is now. files: what was sent; changed: what was made shorter, since it told of
    the machine."""

    url: str
    repo: str
    files: tuple[str, ...]
    changed: tuple[str, ...]


def push(
    folder: str | Path,
    repo: str,
    *,
    private: bool = False,
    message: str = "",
    resumable: bool = False,
) -> Pushed:
    """Puts a run on the hub: the best checkpoint, curve and animation, settings, versions, scores,
    and a model card with the commands to use it and to train it again.

    repo: as "user/name"; made where it is not there yet, private if `private`. message: of the
    commit. resumable: sends last.zip too, with the replay memory in it, so that others can go on
    with the run. Paths, addresses and names of other services are left out of what is sent.

    Raises RunFolderError for what is no run, CheckpointError where it has no checkpoint,
    SettingError for a name that no repository can have, HubError where the hub cannot be reached or
    refuses, EngineError without huggingface_hub.
    """
    hub, folder = api.library(), as_path("folder", folder)
    run = _the_run(folder)
    with tempfile.TemporaryDirectory() as place, api.told(repo):
        client = api.client()
        hub.utils.validate_repo_id(repo)
        api.expect_token()
        with writing(Path(place), TEMPORARY):
            changed = stage(run, repo, Path(place), resumable)
        made = client.create_repo(repo, private=private or None, exist_ok=True)
        names = sorted(
            f.relative_to(place).as_posix() for f in Path(place).rglob("*") if f.is_file()
        )
        # what an earlier push left would be taken for this run's
        there = {each.rfilename for each in client.model_info(made.repo_id).siblings or ()}
        old = sorted(set(NAMES) & there - set(names))
        client.create_commit(
            made.repo_id,
            [
                *(hub.CommitOperationAdd(name, str(Path(place) / name)) for name in names),
                *(hub.CommitOperationDelete(name) for name in old),
            ],
            commit_message=message or f"{run.config['algorithm']} on {run.config['env']}",
        )
    return Pushed(str(made), made.repo_id, tuple(names), changed)


def stage(run: Run, repo: str, into: Path, resumable: bool = False) -> tuple[str, ...]:
    """Writes what `push` sends into a folder; gives back what was made shorter."""
    clean = Cleaner()
    folder, config = run.folder, clean.config(run.config)
    write_json(into / "config.json", config, TEMPORARY)
    if (folder / "result.json").is_file():
        result = clean.any(expect_json(folder / "result.json"))
        result |= {"versions": config.get("versions", {})}
        write_json(into / "result.json", result, TEMPORARY)
    shutil.copyfile(folder / "progress.csv", into / "progress.csv")
    best = checkpoint.find(folder, "best")
    copy_checkpoint(best, into / "checkpoints" / "best.zip", False, clean)
    if resumable:
        last = checkpoint.find(folder, "last")
        copy_checkpoint(last, into / "checkpoints" / "last.zip", True, clean)
    for name in PICTURES:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, into / name)
    if (into / "animation.gif").is_file():
        _as_video(into / "animation.gif", into / VIDEO)
    files = [f.relative_to(into).as_posix() for f in into.rglob("*") if f.is_file()]
    shown = Run.of(folder, config, run.table)
    (into / "README.md").write_text(card(shown, repo, files), encoding="utf-8")
    return tuple(sorted(clean.changed))


def _the_run(folder: Path) -> Run:
    """The one run in a folder. RunFolderError for several."""
    if len(runs := runs_in(folder)) > 1:
        raise RunFolderError(
            f"{folder} has {len(runs)} runs.",
            "the folder of one run",
            f"push one of them, such as {runs[0]}.",
        )
    run = Run(folder)
    if not (folder / "checkpoints").is_dir():
        raise CheckpointError(
            f"{folder} has no checkpoints.",
            "a run with an agent to share",
            "train it for a while (resume=, --resume).",
        )
    return run


def _as_video(gif: Path, out: Path) -> None:
    """The same images as MP4; the card has the GIF."""
    with Image.open(gif) as picture:
        rate = 1000 / max(float(picture.info.get("duration", 40)), 1.0)
        size = (picture.width // 2 * 2, picture.height // 2 * 2)
        with closing(mp4(out, size, rate)) as video:
            for frame in _frames(picture):
                video.send(frame.crop((0, 0, *size)).tobytes())


def _frames(picture: Any) -> Iterator[Image.Image]:
    for i in range(picture.n_frames):
        picture.seek(i)
        yield picture.convert("RGB")
