"""`tandem.push`: upload of a run to the Hub."""

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
VIDEO = "replay.mp4"  # the Hub shows it next to the card


class Pushed(NamedTuple):
    """Result of `push`. files: names of the uploaded files; changed: names of entries that were
    shortened because they identified the machine."""

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
    """Upload a run to the Hugging Face Hub.

    Uploads the best checkpoint, learning curve, animation, settings, versions, scores, and a model
    card with the commands to use the agent and to retrain it. Paths, addresses and names of other
    services are removed first.

    Args:
        folder: The run's folder.
        repo: Repository, as "user/name". It is created if it does not exist.
        private: Create the repository as private.
        message: Commit message.
        resumable: Also upload last.zip, which includes the replay buffer, so that others can
            resume the run.

    Raises:
        RunFolderError: `folder` is not a run.
        CheckpointError: The run has no checkpoint.
        SettingError: The repository name is invalid.
        HubError: The Hub cannot be reached or refuses the request.
        EngineError: huggingface_hub is not installed.
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
        # delete files of an earlier push, which would appear to belong to this run
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
    """Write the files for `push` into a folder and return the names of shortened entries."""
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
    """Return the run in a folder. Raises RunFolderError for several runs."""
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
    """Write the GIF's frames as MP4; the card shows the GIF."""
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
