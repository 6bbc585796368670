"""A writer of a package: a line of JSON for each row."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Lines:
    """Rows in lines.jsonl of the run's folder, or in a file of another name (TEXT)."""

    def __init__(self, folder: Path, config: Mapping[str, Any], text: str = "lines.jsonl") -> None:
        self.path = folder / text
        if not self.path.exists():
            self.path.write_text(json.dumps({"algorithm": config["algorithm"]}) + "\n")

    def write(self, row: Mapping[str, Any]) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def rewind(self, env_steps: int) -> None:
        first, *rows = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [row for row in rows if json.loads(row)["env_steps"] <= env_steps]
        self.path.write_text("".join([first, *kept]))

    def close(self) -> None:
        with self.path.open("a") as file:
            file.write('{"env_steps": -1}\n')
