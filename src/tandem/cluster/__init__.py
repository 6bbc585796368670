"""The cluster door: agents and runners by name, in this process or, by Ray, in many on many
machines. May import any room but `examples`."""

from tandem.cluster.agent import Agent
from tandem.cluster.algorithm import AlgorithmAgent
from tandem.cluster.handle import Cluster, WiseRL
from tandem.cluster.runner import Runner

__all__ = ["Agent", "AlgorithmAgent", "Cluster", "Runner", "WiseRL"]
