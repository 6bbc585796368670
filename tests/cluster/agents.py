"""Agents and runners, for other processes to import: no test framework."""

import os
import sys
import time

import numpy as np

from tandem.cluster import Agent, AlgorithmAgent, Runner


class Recorder(Agent):
    """Writes down every call; an action is the number of calls before it."""

    def __init__(self, sync=True, **kwargs) -> None:
        super().__init__(sync)
        self.__dict__.update(kwargs)
        self.calls = []

    def choose_action(self, state):
        self.calls.append(("choose", state))
        return len(self.calls)

    def update(self, *transition) -> None:
        self.calls.append(("update", transition))

    def history(self):
        return list(self.calls)

    def fail(self, what):
        raise ValueError(f"no {what} here")

    def here(self) -> int:
        return os.getpid()


class Counter(Agent):
    """Acts by the number of updates that it knows of, and learns for `seconds` each time."""

    def __init__(self, sync=True, **kwargs) -> None:
        super().__init__(sync)
        self.seconds, self.at, self.known = 0.0, 0, 0
        self.__dict__.update(kwargs)

    def choose_action(self, state):
        return self.known

    def update(self, *transition) -> None:
        time.sleep(self.seconds)
        self.at += 1
        if self.sync:
            self.known = self.at

    def _sync_model(self) -> None:
        self._fire({"at": np.array(self.at)})

    def _update_model(self, param) -> None:
        # what learns and what acts are one, as a network is: a restarted agent is given its copy's
        self.at = self.known = int(param["at"])

    def here(self) -> int:
        return os.getpid()


class Plain:
    def __init__(self, gain=1) -> None:
        self.gain, self.seen = gain, []

    def choose_action(self, state):
        return self.gain * state

    def update(self, s, a, r, s2, done) -> None:
        self.seen.append(a)


def program(agent, steps=20):
    """The documented loop, with numbers for states: what it chose."""
    chosen = []
    for s in range(steps):
        a = agent.choose_action(s)
        agent.update(s, a, 1.0, s + 1, s % 5 == 4)
        chosen.append(a)
    return chosen


class Documented(Runner):
    """As the documentation has it: the runner of rank 0 makes the agent."""

    def __init__(self, args) -> None:
        self.cluster, self.config = args.cluster, args
        setattr(args, "state_dim", 4)  # noqa: B010
        if self.rank == 0:
            hyper = {k: v for k, v in vars(args).items() if k != "cluster"}
            self.cluster.make_agent(name="recorder", agent_class=Recorder, sync=True, **hyper)
        self.agent = self.cluster.getAgent("recorder")

    def run(self):
        return program(self.agent), self.agent.state_dim, self.rank, self.local_rank


class Fails(Runner):
    def __init__(self, args=None, local_rank=0) -> None:
        self.where = args

    def run(self):
        if self.local_rank == 1:
            raise KeyError("the map is lost")
        time.sleep(60)


class FailsAtOnce(Runner):
    def __init__(self) -> None:
        raise OSError("no environment")

    def run(self) -> None:
        pass


class Exits(Runner):
    def __init__(self, args) -> None:
        self.code, self.where = args
        if self.where == "__init__":
            sys.exit(self.code)

    def run(self) -> str:
        if self.where == "run":
            sys.exit(self.code)
        return "ran"


class Bare:
    def run(self):
        return self.rank, self.local_rank


class Steady(Runner):
    """Steps until a file says stop; writes down its own starts in a folder."""

    def __init__(self, args) -> None:
        self.args = args
        (args["folder"] / f"runner-{self.local_rank}-{os.getpid()}").touch()
        cluster = args["cluster"]
        if self.rank == 0:
            cluster.make_agent("counter", Counter, sync=args["sync"], seconds=0.0)
        self.agent = cluster.get_agent("counter", act=args.get("act", "remote"))

    def run(self):
        known = []
        while not (self.args["folder"] / "stop").exists():
            known.append(self.agent.choose_action(0))
            self.agent.update(0, 0, 0.0, 0, False)
            time.sleep(0.002)
        return known


def spaces(env) -> dict:
    """What an agent of an algorithm has to know of an environment."""
    names = ("observation_space", "action_space", "rewards_space")
    return {name: getattr(env, name) for name in names if hasattr(env, name)}


def step(agent, env, s, told=True):
    """What is seen next, and whether an episode is over."""
    a = agent.choose_action(s)
    s2, r, terminated, truncated, info = env.step(a)
    over = terminated or truncated
    ended = (over, truncated and not terminated) if told else (terminated,)
    agent.update(s, a, info.get("rewards", r), s2, *ended)
    return s2, over


class Learns(Runner):
    """Steps in an environment, up to a limit or until a file says stop; gives what it imported."""

    def __init__(self, args) -> None:
        self.args, self.env = args, args["make"]()
        if self.rank == 0:
            args["cluster"].make_agent("a", AlgorithmAgent, **spaces(self.env), **args["settings"])
        self.agent = args["cluster"].get_agent("a", act=args.get("act", "remote"))

    def run(self):
        s, _ = self.env.reset(seed=self.rank)
        for _ in range(self.args["limit"]):
            if "stop" in self.args and self.args["stop"].exists():
                break
            s, over = step(self.agent, self.env, s)
            s = self.env.reset()[0] if over else s
        return sorted({"torch", "keras", "jax", "tensorflow"} & set(sys.modules))


class Where(Runner):
    """Tells its node, after it has seen that the others run as well."""

    def __init__(self, args) -> None:
        self.folder, self.others = args

    def run(self):
        import ray

        node = ray.get_runtime_context().get_node_id()
        (self.folder / f"{self.local_rank}").write_text(node)
        until = time.monotonic() + 60
        while len(list(self.folder.iterdir())) < self.others and time.monotonic() < until:
            time.sleep(0.05)
        return node
