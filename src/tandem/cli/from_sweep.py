"""`tandem train --from-sweep`: what a sweep found, as a file of settings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tandem.cli.seeds_command import value_of
from tandem.envs.factory import versioned
from tandem.errors import SettingError
from tandem.settings import shell_path
from tandem.tuning.sweep_report import BEST
from tandem.tuning.sweep_study import Plan


def with_config(words: list[str]) -> list[str]:
    """The words of a command, with the --config that their --from-sweep stands for. RunFolderError
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


def expect_env(args: argparse.Namespace, data: dict[str, Any]) -> None:
    """SettingError if a command names another environment than its sweep."""
    given = args.vector or (args.env and versioned(args.env))
    if args.from_sweep is not None and given not in (None, data["env"]):
        raise SettingError(
            f"the sweep in {args.from_sweep} is for {data['env']}, but the command names {given}.",
            "the sweep's environment",
            f"leave {'--vector' if args.vector else args.env} out.",
        )
