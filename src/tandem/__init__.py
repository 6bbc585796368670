"""tandem: reinforcement learning on Keras 3 and PyTorch.

Importing the package imports no framework: each name below imports its module, and that its
framework, on first use. docs/contributors/design.md is a map of the code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tandem.version import __version__

if TYPE_CHECKING:  # for type checkers; at run time, each is imported on first use
    from tandem import datasets, errors
    from tandem.agents.agent_checkpoint import restore_param
    from tandem.agents.distributed import parameter_server_strategy
    from tandem.agents.rl import RL, RL_pytorch, assign_param
    from tandem.agents.train_call import LambdaCallback
    from tandem.algorithms.base import Algorithm
    from tandem.cluster import Cluster, WiseRL
    from tandem.datasets.recording import record
    from tandem.drlbox.makers import make_evaluator, make_trainer
    from tandem.hub.pulling import pull
    from tandem.hub.pushing import push
    from tandem.learning.events import Evaluation
    from tandem.reports.comparison import compare
    from tandem.reports.onnx_export import export
    from tandem.reports.run_report import report
    from tandem.runs.folder import Run, find_runs
    from tandem.trainer import Agent, Result, evaluate, load, session, train
    from tandem.tuning.lr_finder import LRFinder
    from tandem.tuning.opt_finder import OptFinder
    from tandem.tuning.parallel_finder import AgentFinder, ParallelFinder
    from tandem.tuning.search import find_best, find_lr, find_optimizer
    from tandem.tuning.sweep import sweep

_HOMES = {  # public name -> (module, attribute of it); an empty attribute is the module itself
    "Agent": ("tandem.trainer", "Agent"),
    "AgentFinder": ("tandem.tuning.parallel_finder", "AgentFinder"),
    "Algorithm": ("tandem.algorithms.base", "Algorithm"),
    "Cluster": ("tandem.cluster", "Cluster"),
    "Evaluation": ("tandem.learning.events", "Evaluation"),
    "LRFinder": ("tandem.tuning.lr_finder", "LRFinder"),
    "LambdaCallback": ("tandem.agents.train_call", "LambdaCallback"),
    "OptFinder": ("tandem.tuning.opt_finder", "OptFinder"),
    "ParallelFinder": ("tandem.tuning.parallel_finder", "ParallelFinder"),
    "RL": ("tandem.agents.rl", "RL"),
    "RL_pytorch": ("tandem.agents.rl", "RL_pytorch"),
    "Result": ("tandem.trainer", "Result"),
    "Run": ("tandem.runs.folder", "Run"),
    "WiseRL": ("tandem.cluster", "WiseRL"),
    "assign_param": ("tandem.agents.rl", "assign_param"),
    "compare": ("tandem.reports.comparison", "compare"),
    "datasets": ("tandem.datasets", ""),
    "errors": ("tandem.errors", ""),
    "evaluate": ("tandem.trainer", "evaluate"),
    "export": ("tandem.reports.onnx_export", "export"),
    "find_best": ("tandem.tuning.search", "find_best"),
    "find_lr": ("tandem.tuning.search", "find_lr"),
    "find_runs": ("tandem.runs.folder", "find_runs"),
    "find_optimizer": ("tandem.tuning.search", "find_optimizer"),
    "make_evaluator": ("tandem.drlbox.makers", "make_evaluator"),
    "make_trainer": ("tandem.drlbox.makers", "make_trainer"),
    "parameter_server_strategy": ("tandem.agents.distributed", "parameter_server_strategy"),
    "pull": ("tandem.hub.pulling", "pull"),
    "push": ("tandem.hub.pushing", "push"),
    "record": ("tandem.datasets.recording", "record"),
    "report": ("tandem.reports.run_report", "report"),
    "restore_param": ("tandem.agents.agent_checkpoint", "restore_param"),
    "load": ("tandem.trainer", "load"),
    "session": ("tandem.trainer", "session"),
    "sweep": ("tandem.tuning.sweep", "sweep"),
    "train": ("tandem.trainer", "train"),
}

__all__ = [
    "RL",
    "Agent",
    "AgentFinder",
    "Algorithm",
    "Cluster",
    "Evaluation",
    "LRFinder",
    "LambdaCallback",
    "OptFinder",
    "ParallelFinder",
    "RL_pytorch",
    "Result",
    "Run",
    "WiseRL",
    "__version__",
    "assign_param",
    "compare",
    "datasets",
    "errors",
    "evaluate",
    "export",
    "find_best",
    "find_lr",
    "find_optimizer",
    "find_runs",
    "load",
    "make_evaluator",
    "make_trainer",
    "parameter_server_strategy",
    "pull",
    "push",
    "record",
    "report",
    "restore_param",
    "session",
    "sweep",
    "train",
]


def __getattr__(name: str) -> Any:
    """Find a public name on its first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tandem' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    loaded = import_module(module)
    value = getattr(loaded, attribute) if attribute else loaded
    globals()[name] = value  # later uses do not call this function
    return value


def __dir__() -> list[str]:
    return [*__all__]
