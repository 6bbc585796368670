"""`tandem train --from-sweep`: the best settings of a sweep, as a settings file."""

from __future__ import annotations

from pathlib import Path

from tandem.cli.words import value_of
from tandem.errors import SettingError
from tandem.settings import shell_path
from tandem.tuning.sweep_report import BEST
from tandem.tuning.sweep_study import Plan


def with_config(words: list[str]) -> list[str]:
    """Return the words of a command with --from-sweep resolved to --config. Raises RunFolderError
    for a folder that is not a sweep, SettingError for a sweep without a complete trial."""
    if (named := value_of("--from-sweep", words)) is None:
        return words
    for flag in ("--config", "--resume"):
        if value_of(flag, words) is not None:
            raise SettingError(
                f"--from-sweep was given with {flag}.", "only one of them", f"leave {flag} out."
            )
    folder = Path(named)
    Plan.read(folder)
    if not (folder / BEST).is_file():
        raise SettingError(
            f"no trial of the sweep in {folder} is complete.",
            "at least one complete trial",
            f"tandem sweep --resume {shell_path(folder)}",
        )
    return [f"--config={folder / BEST}", *words]
