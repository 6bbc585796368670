"""The cluster API: agents and runners by name, in this process or, by Ray, in many on many
machines. May import any package but `examples`."""

from tandem.cluster.agent_host import Agent
from tandem.cluster.algorithm_agent import AlgorithmAgent
from tandem.cluster.cluster import Cluster, WiseRL
from tandem.cluster.runner import Runner

__all__ = ["Agent", "AlgorithmAgent", "Cluster", "Runner", "WiseRL"]
