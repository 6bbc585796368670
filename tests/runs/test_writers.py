"""The run's table: what is written comes back, through kills, rewinds and new columns."""

import sys
import types
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

from tandem.errors import EngineError, RunFolderError
from tandem.runs.writers import CsvWriter, MlflowWriter, TensorBoardWriter, WandbWriter, read_table
from tests.helpers import run_python
from tests.runs.shared import rows


def steps_of(path: Path) -> list[int]:
    return [int(row["env_steps"]) for row in rows(path.parent)]


def filled(path: Path, steps: list[int]) -> CsvWriter:
    writer = CsvWriter(path)
    for step in steps:
        writer.write({"env_steps": step, "loss": step / 3, "fingerprint": f"a,{step}"})
    return writer


def test_rows_come_back_at_once_and_a_new_column_widens_the_table(tmp_path) -> None:
    path = tmp_path / "run" / "progress.csv"
    writer = CsvWriter(path, columns=("env_steps", "eval_mean", "fingerprint"))
    writer.write({"env_steps": 256, "fingerprint": 'odd "one",\nwith a break', "eval_mean": None})
    writer.write({"env_steps": 512, "eval_mean": 1 / 3})
    first, second = rows(path.parent)  # the writer is still open
    cells = [("env_steps", "256"), ("eval_mean", ""), ("fingerprint", 'odd "one", with a break')]
    assert list(first.items()) == cells and float(second["eval_mean"]) == 1 / 3
    assert read_table(path) == (list(first), [list(row.values()) for row in (first, second)])
    writer.close()
    path = tmp_path / "wide" / "progress.csv"
    writer = filled(path, [1, 2])
    writer.write({"env_steps": 3, "entropy": 0.5})
    writer.write({"env_steps": 4, "loss": 4.0})
    assert [row["entropy"] for row in rows(path.parent)] == ["", "", "0.5", ""]
    assert [row["loss"] for row in rows(path.parent)] == [str(1 / 3), str(2 / 3), "", "4.0"]
    assert [f.name for f in path.parent.iterdir()] == ["progress.csv"]


def test_rewind_drops_what_lies_beyond_the_checkpoint_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    filled(path, [10, 20, 30, 40]).close()
    writer = CsvWriter(path)
    writer.rewind(20)
    assert steps_of(path) == [10, 20]
    writer.write({"env_steps": 30, "loss": 1.0})
    assert steps_of(path) == [10, 20, 30]
    writer.rewind(0)
    assert steps_of(path) == []
    writer.write({"env_steps": 5, "loss": 1.0})
    assert rows(tmp_path) == [{"env_steps": "5", "loss": "1.0", "fingerprint": ""}]


def test_killed_at_any_byte_the_table_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    filled(path, [10, 20, 30]).close()
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        complete = max(whole[:cut].count(b"\n") - 1, 0)
        writer = CsvWriter(path)
        writer.write({"env_steps": 99, "loss": 1.0, "fingerprint": "x"})
        writer.close()
        assert steps_of(path) == [*[10, 20, 30][:complete], 99], cut


def test_other_peoples_files_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "progress.csv"
    for text, use, said in (
        (b"time,reward\n1,2\n", CsvWriter, "no column env_steps, but time, reward"),
        (b"env_steps,loss\n1,2\n1,2,3\n4,5\n", read_table, r"row 2 .* has 3 cells"),
        (b"\xff\xfe\x00", read_table, "cannot read"),
        (None, read_table, "cannot read"),
    ):
        path.unlink(missing_ok=True) if text is None else path.write_bytes(text)
        with pytest.raises(RunFolderError, match=said):
            use(path)


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for kind, path in (
        (CsvWriter, tmp_path / "file" / "a"),
        (TensorBoardWriter, tmp_path / "file"),
    ):
        with pytest.raises(RunFolderError, match="cannot write"):
            kind(path)
    if Path("/dev/full").exists():
        writer = CsvWriter(tmp_path / "progress.csv", columns=("env_steps",))
        writer.close()
        writer._file = open("/dev/full", "ab", buffering=0)
        with pytest.raises(RunFolderError, match="No space left"):
            writer.write({"env_steps": 1})
        writer._file.close()


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    # TensorBoard then reads by itself; it would import TensorFlow, and with it Keras
    sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("notf"))
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = module.EventAccumulator(str(folder))
    accumulator.Reload()
    return [(e.step, e.value) for e in accumulator.Scalars(tag)]


def test_tensorboard_reads_all_but_what_a_resumed_run_does_again(tmp_path: Path) -> None:
    first = TensorBoardWriter(tmp_path)
    for step in (10, 20, 30, 40):
        first.write({"env_steps": step, "loss": step, "return_mean": None, "fingerprint": "abc"})
    assert scalars(tmp_path, "loss")[-1] == (40, 40.0)  # while it is still open
    first.close()
    for tag in ("return_mean", "fingerprint"):
        with pytest.raises(KeyError):
            scalars(tmp_path, tag)
    second = TensorBoardWriter(tmp_path)  # within the same second: still read after the first
    second.rewind(20)
    assert scalars(tmp_path, "loss") == [(10, 10.0), (20, 20.0)]
    second.write({"env_steps": 35, "loss": -35.0})
    second.close()
    third = TensorBoardWriter(tmp_path)
    third.rewind(20)
    third.write({"env_steps": 30, "loss": -30.0})
    assert scalars(tmp_path, "loss") == [(10, 10.0), (20, 20.0), (30, -30.0)]
    assert len(list(tmp_path.iterdir())) == 3


def test_writing_tensorboard_events_imports_no_framework(tmp_path: Path) -> None:
    program = """
        import json, sys
        from pathlib import Path
        from tandem.runs.writers import TensorBoardWriter
        writer = TensorBoardWriter(Path(sys.argv[1]))
        writer.write({"env_steps": 1, "loss": 2.0})
        writer.rewind(0)
        writer.close()
        print(json.dumps([m for m in ("tensorflow", "torch", "jax", "keras") if m in sys.modules]))
    """
    assert run_python(program, str(tmp_path)) == [[]]


def test_without_the_package_the_error_says_how_to_get_it(tmp_path, monkeypatch) -> None:
    for kind, package in ((WandbWriter, "wandb"), (MlflowWriter, r"'tandem-rl\[mlflow\]'")):
        monkeypatch.setitem(sys.modules, kind.__name__.removesuffix("Writer").lower(), None)
        with pytest.raises(EngineError, match=f"pip install {package}"):
            kind("project", "id", tmp_path, {})


def test_wandb_gets_numbers_and_none_twice(tmp_path, monkeypatch) -> None:
    wandb = Mock(init=Mock(return_value=Mock(step=21)))  # it has been here before, up to 20
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    writer = WandbWriter("tandem", "s0", tmp_path, {"lr": 1e-3})
    writer.rewind(10)
    for step in (15, 20, 25):
        writer.write({"env_steps": step, "loss": step / 2, "fingerprint": "x", "eval_mean": None})
    writer.close()
    run, asked = wandb.init.return_value, wandb.init.call_args.kwargs
    assert run.log.call_args_list == [call({"loss": 12.5}, step=25)] and run.finish.called
    assert asked["name"] == "s0" and asked["resume"] == "allow" and asked["config"] == {"lr": 1e-3}


def test_each_run_has_its_own_at_wandb_for_all_its_sittings(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", wandb := Mock())
    for experiment in ("one", "two", "one", "older"):
        (folder := tmp_path / experiment / "s0").mkdir(parents=True, exist_ok=True)
        if experiment == "older":  # begun by a tandem that took the folder's name
            (folder / "wandb").mkdir()
        WandbWriter("tandem", "s0", folder, {})
    one, two, again, older = (each.kwargs["id"] for each in wandb.init.call_args_list)
    assert one == again != two and older == "s0"


class FakeMlflow:
    """Refuses what MLflow does: changed parameters, long batches, a second experiment of a name."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, types.SimpleNamespace] = {}

    def get_experiment_by_name(self, name: str) -> Any:
        known = name in self.experiments
        return types.SimpleNamespace(experiment_id=self.experiments[name]) if known else None

    def create_experiment(self, name: str) -> str:
        assert name not in self.experiments
        return self.experiments.setdefault(name, str(len(self.experiments)))

    def create_run(self, experiment_id: str, run_name: str) -> Any:
        key = f"id{len(self.runs)}"
        of_it = {"name": run_name, "at": experiment_id, "status": "RUNNING"}
        self.runs[key] = types.SimpleNamespace(**of_it, params={}, rows=[])
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=key))

    def update_run(self, run_id: str, status: str) -> None:
        self.runs[run_id].status = status

    def set_terminated(self, run_id: str) -> None:
        self.runs[run_id].status = "FINISHED"

    def get_run(self, run_id: str) -> Any:
        latest = {key: value for key, value, _ in self.runs[run_id].rows}
        return types.SimpleNamespace(data=types.SimpleNamespace(metrics=latest))

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        assert len(metrics) <= 1000 and len(params) <= 100
        run = self.runs[run_id]
        for key, value in params:
            assert run.params.setdefault(key, value) == value and len(value) <= 500
        run.rows += [(key, value, step) for key, value, _, step in metrics]

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entities = types.SimpleNamespace(Metric=lambda *m: m, Param=lambda *p: p)
        module = types.SimpleNamespace(MlflowClient=lambda: self, entities=entities)
        monkeypatch.setitem(sys.modules, "mlflow", module)  # type: ignore[arg-type]
        monkeypatch.setitem(sys.modules, "mlflow.entities", entities)  # type: ignore[arg-type]


def test_mlflow_gets_parameters_and_numbers_and_none_twice(tmp_path, monkeypatch) -> None:
    server = FakeMlflow()
    server.install(monkeypatch)
    config = {"algorithm": "ppo", "options": {"x": ""}}
    config["settings"] = {f"s{n}": n for n in range(120)}
    for sitting in (1, 2):  # the second goes on from step 10
        writer = MlflowWriter("mine", "run-7", tmp_path, config | {"seed": sitting})
        assert server.runs["id0"].status == "RUNNING"
        writer.rewind(10)
        for step in (10, 15, 20) if sitting == 1 else (15, 20, 25):
            row = {"env_steps": step, "loss": step / 2, "fingerprint": "x", "eval_mean": None}
            writer.write(row | {"q": float("nan")})
        writer.close()
        assert server.runs["id0"].status == "FINISHED"
    assert list(server.experiments) == ["mine"]
    (run,) = server.runs.values()
    assert run.name == "run-7" and run.at == server.experiments["mine"]
    assert run.params["algorithm"] == "ppo" and run.params["s119"] == "119"
    assert run.params["seed"] == "1" and "x" not in run.params
    steps = (10, 15, 20, 25)
    assert run.rows == [each for s in steps for each in (("env_steps", s, s), ("loss", s / 2, s))]
    (tmp_path / "b").mkdir()
    MlflowWriter("mine", "another", tmp_path / "b", config | {"settings": {}})
    assert len(server.runs) == 2 and len(server.experiments) == 1
