"""`tandem.pull`: download of a run from the Hub. The repository is not trusted: only known file
names are fetched, sizes are limited, and files that can run code on loading are rejected."""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from tandem.errors import HubError, SettingError
from tandem.hub import api
from tandem.runs import checkpoint
from tandem.runs.atomic_files import writing
from tandem.runs.new_folders import new_folder
from tandem.settings import as_path

# the files to fetch if present: everything that `push` uploads
NAMES = (
    "README.md",
    "config.json",
    "progress.csv",
    "result.json",
    "curve.png",
    "animation.gif",
    "replay.mp4",
    "checkpoints/best.zip",
    "checkpoints/last.zip",
)
MAX_GB = 2.0  # of all files together
# files that run code when loaded, or may do so
RUNS_CODE = {".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib", ".dill", ".npy", ".npz"}
RUNS_CODE |= {".h5", ".keras", ".py", ".pyc", ".so", ".dll", ".dylib", ".sh", ".exe", ".bat"}
ODD = re.compile(r"(^|/)(\.\.?|)(/|$)|[\\:\x00-\x1f]")
MEMBER = re.compile(r"[a-z]+\.(json|safetensors)")


def pull(
    repo: str,
    out: str | Path | None = None,
    *,
    revision: str | None = None,
    max_gb: float = MAX_GB,
) -> Path:
    """Download a run that was uploaded with `push`.

    The returned folder works with `tandem.load` and with `tandem evaluate`, `watch`, `report` and
    `plot`. A run pushed as resumable also works with `tandem train --resume`. On errors, no files
    are left behind.

    Args:
        repo: Repository, as "user/name".
        out: New folder. None: runs/NAME.
        revision: Branch, tag or commit.
        max_gb: Maximum total size of the files, in gigabytes.

    Returns:
        The run's folder.

    Raises:
        RunFolderError: `out` exists.
        SettingError: The repository name is invalid.
        EngineError: huggingface_hub is not installed.
        HubError: The Hub cannot be reached, the repository or revision does not exist, or its
            contents are not a run, too large, or unsafe.
    """
    if not max_gb > 0:
        raise SettingError(f"max_gb={max_gb!r}.", "a number above 0", f"try max_gb={MAX_GB}.")
    api.library()
    with api.told(repo, revision):
        api.library().utils.validate_repo_id(repo)
        folder = new_folder(
            Path("runs") / repo.rpartition("/")[2] if out is None else as_path("out", out)
        )
        client = api.client()
        info = client.model_info(repo, revision=revision, files_metadata=True)
        sizes = {each.rfilename: each.size for each in info.siblings or ()}
        chosen = checked(repo, sizes, max_gb)
        with writing(folder):
            temporary = tempfile.TemporaryDirectory(dir=folder.parent, prefix=".pull-")
        with temporary as place:
            for name in chosen:
                client.hf_hub_download(repo, name, revision=info.sha, local_dir=place)
            shutil.rmtree(Path(place) / ".cache", ignore_errors=True)
            _check_files(repo, Path(place), chosen, max_gb)
            if folder.is_dir():
                folder.rmdir()
            (made := Path(place) / "run").mkdir()
            for each in sorted(Path(place).iterdir()):
                if each != made:
                    each.rename(made / each.name)
            made.rename(folder)
    return folder


def checked(repo: str, sizes: dict[str, int | None], max_gb: float) -> list[str]:
    """Return the names of the repository's files to fetch. Raises HubError if the repository is
    unsafe, too large or not a run."""
    if odd := [name for name in sizes if ODD.search(name)]:
        raise _unsafe(repo, f"a file with an unexpected name: {odd[0]!r}")
    if bad := [n for n in sizes if PurePosixPath(n).suffix.lower() in RUNS_CODE]:
        raise _unsafe(repo, f"{bad[0]!r}, a file that may run code when loaded")
    chosen = [name for name in NAMES if name in sizes]
    total = sum(sizes[name] or 0 for name in chosen) / 1e9
    if total > max_gb:
        raise HubError(
            f"the files of {repo} take up {total:.2f} GB.",
            f"at most {max_gb} GB",
            f"allow more: max_gb={int(total) + 1} (--max-gb).",
        )
    needed = ("config.json", "progress.csv")
    missing = [name for name in needed if name not in chosen]
    if missing or not any(name.startswith("checkpoints/") for name in chosen):
        what = missing[0] if missing else "checkpoints/best.zip"
        raise HubError(
            f"{repo} is not a tandem run: it has no {what}.",
            "a repository created by tandem push",
            "check the name; load a model of another library with that library.",
        )
    return chosen


def _check_files(repo: str, place: Path, names: list[str], max_gb: float) -> None:
    """Raise HubError if the downloaded files differ from the listing, or if a checkpoint contains
    more than JSON and safetensors."""
    total = 0
    for name in names:
        file = place / name
        if file.is_symlink() or not file.is_file():
            raise _unsafe(repo, f"{name!r}, which is not a file")
        total += file.stat().st_size
        if name.endswith(".zip"):
            _check_zip(repo, name, file)
    if total / 1e9 > max_gb:
        raise HubError(
            f"the files of {repo} take up {total / 1e9:.2f} GB, more than the hub listed.",
            f"at most {max_gb} GB",
            "do not use it, unless you know why.",
        )


def _check_zip(repo: str, name: str, file: Path) -> None:
    """Raise HubError if a checkpoint contains more than uncompressed JSON and safetensors."""
    try:
        with zipfile.ZipFile(file) as opened:
            members: list[Any] = opened.infolist()
    except (OSError, zipfile.BadZipFile) as error:
        raise _unsafe(repo, f"{name!r}, which is not a checkpoint ({error})") from error
    for member in members:
        if not MEMBER.fullmatch(member.filename):
            raise _unsafe(repo, f"{name!r} with {member.filename!r} in it")
    size = sum(int(member.file_size) for member in members)
    packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    if packed or size > file.stat().st_size:
        raise _unsafe(repo, f"{name!r} with compressed files, which checkpoints never have")
    checkpoint.read(file)


def _unsafe(repo: str, what: str) -> HubError:
    return HubError(
        f"{repo} contains {what}.",
        "only the files of a run, as tandem push uploads them",
        "do not use it, or ask its owner to push the run again.",
    )
