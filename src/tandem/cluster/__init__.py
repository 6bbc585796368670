"""The cluster API: named agents and runners, in this process or, with Ray, in many processes on
many machines. May import any package but `examples`."""

from tandem.cluster.agent_host import Agent
from tandem.cluster.algorithm_agent import AlgorithmAgent
from tandem.cluster.cluster import Cluster, WiseRL
from tandem.cluster.runner import Runner

__all__ = ["Agent", "AlgorithmAgent", "Cluster", "Runner", "WiseRL"]
