"""Finders of learning rates and optimizers: known answers, and that they leave no trace."""

import os
import random
import signal
import sys
import threading
import types
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from tandem import AgentFinder, LambdaCallback, LRFinder, OptFinder, ParallelFinder, RL_pytorch
from tandem import exploration as explore
from tandem.backends.torch_own import TorchOptimizerWrapper
from tandem.errors import NonFiniteError, SettingError, TandemError, WorkerError
from tandem.examples.pytorch import DDPG_HER, MADDPG
from tandem.examples.worlds import PointWorld, Relay
from tandem.runs import checkpoint
from tests.agents.agents import Clock, Probe
from tests.agents.test_contract import Walk
from tests.helpers import run_python
from tests.tuning.test_search import nothing_starts

TARGET, START = 3.0, 1.0
SNIPPET = Path(__file__).parent / "snippets" / "keras_finders.py"


class Aim:
    def __init__(self) -> None:
        self.action_space = spaces.Box(-1e6, 1e6, (1,), np.float32)

    def reset(self) -> Any:
        return np.zeros(1, np.float32)

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), -float((action[0] - TARGET) ** 2), True, {}


class Aimer(RL_pytorch):
    """Acts as its weight says; an update of SGD makes its distance (1 - lr) times what it was."""

    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([START]))
        self.param, self.env = [self.w], Aim()
        self.set(pool_size=10, batch=1, num_updates=1)

    def action(self, s: Any) -> Any:
        return 0 * s + self.w

    def __call__(self, s: Any, *transition: Any) -> Any:
        return ((self.w - TARGET) ** 2 / 2).expand(len(s))

    def update_param(self) -> None:
        pass


def sgd(agent: Any, lr: float = 0.1) -> Any:
    return torch.optim.SGD(agent.param, lr)


@pytest.mark.parametrize("metrics", ["reward", "loss"])
def test_the_sweep_of_a_quadratic_is_what_algebra_says(metrics: str) -> None:
    agent = Aimer()
    agent.optimizer = sgd(agent)
    finder, given = LRFinder(agent), {"start_lr": 0.01, "end_lr": 1.5, "episodes": 40, "p": 0}
    found = finder.find(N=20, window_size=1, metrics=metrics, **given)
    lrs = 0.01 * 150 ** (np.arange(21) / 20)
    assert np.allclose(finder.lrs, lrs)
    distance = (TARGET - START) * np.cumprod([1.0, *(1 - lrs)])[:-1]
    assert np.allclose(finder.losses, distance**2 / 2, atol=1e-5)
    if metrics == "reward":
        assert np.allclose(finder.rewards, -(distance**2), atol=1e-5)
    # the steepest fall of d ** 2 is where d_i ** 2 - d_(i-1) ** 2 is least
    steepest = 1 + int(np.argmin(np.diff(distance**2)))
    assert found == finder.best_lr == finder.get_best_lr(1, 0, 0) == pytest.approx(lrs[steepest])


def test_learning_rates_have_one_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep gives them by the wrapper that rules go by, to all groups of the optimizer."""
    agent, given = Aimer(), []
    unused = torch.nn.Parameter(torch.zeros(1))
    agent.param = [agent.w, unused]
    groups = [{"params": [agent.w]}, {"params": [unused], "lr": torch.tensor(0.5)}]
    agent.optimizer = torch.optim.SGD(groups, lr=0.1)
    write = TorchOptimizerWrapper.set_numbers

    def noted(own: TorchOptimizerWrapper, name: str, values: list[float]) -> None:
        write(own, name, values)
        given.append((name, [float(g["lr"]) for g in own.inner.param_groups]))

    monkeypatch.setattr(TorchOptimizerWrapper, "set_numbers", noted)
    finder = LRFinder(agent)
    finder.find(N=4, window_size=1, start_lr=0.01, end_lr=0.16, p=0)
    assert [name for name, _ in given] == ["lr"] * 5
    assert np.allclose([x for _, x in given], np.array([finder.lrs] * 2).T)


@pytest.mark.parametrize("metrics", ["reward", "loss"])
def test_a_sweep_ends_where_learning_is_lost(metrics: str) -> None:
    class Unsteady(Aimer):
        def __call__(self, s: Any, *transition: Any) -> Any:
            return (self.w - TARGET + 0.1 * torch.randn(len(s))) ** 2 / 2

    agent = Unsteady()
    agent.optimizer = sgd(agent)
    finder = LRFinder(agent)
    finder.find(N=60, window_size=2, start_lr=1e-3, end_lr=1e3, metrics=metrics, p=0)
    assert 2 < finder.lrs[-1] < 200 and len(finder.lrs) < 60  # above 2 the distance grows
    assert finder.best_lr is not None and 0.01 < finder.best_lr < 1
    best = -finder.best_reward if metrics == "reward" else finder.best_loss
    assert 0 < best < 0.1


def test_optimizers_are_ranked_as_they_learn() -> None:
    agent = Aimer()
    optimizers = [sgd(agent, 1e-9), sgd(agent, 0.5), sgd(agent, 3.0), torch.optim.Adam([agent.w])]
    finder = OptFinder(agent, optimizers)
    assert finder.find(episodes=6, p=0) is optimizers[1] is finder.best_opt
    d = TARGET - START
    for found, factor in zip(finder.mean_rewards, (1, 0.5, 2), strict=False):
        assert found == pytest.approx(-np.mean([(d * factor**k) ** 2 for k in range(6)]))
    assert finder.best_reward == finder.mean_rewards[1] and finder.best_index == 1
    assert finder.find(episodes=6, metrics="loss", p=0) is optimizers[1]
    assert finder.best_loss == pytest.approx(-finder.best_reward / 2)


def test_a_trial_that_is_not_finite_is_the_worst() -> None:
    agent = Aimer()
    finder = OptFinder(agent, [sgd(agent, 1e30), sgd(agent, 1e-3)])
    assert finder.find(episodes=8, p=0) is finder.optimizers[1]
    assert "not finite" in finder.faults[0] and finder.mean_rewards[0] == -np.inf
    with pytest.raises(NonFiniteError, match="no trial finished"):
        OptFinder(agent, [sgd(agent, 1e30)]).find(episodes=8, p=0)
    assert agent.w.item() == START


def test_the_best_learning_rate_is_in_the_middle_of_the_steepest_rise() -> None:
    finder = LRFinder(Aimer())
    finder.lrs = [2.0**i for i in range(30)]
    finder.rewards = [float(np.tanh((i - 14.5) / 3)) for i in range(30)]
    finder.losses = [-x for x in finder.rewards]
    for finder.metrics in ("reward", "loss"):
        for finder.window_size in (1, 5):
            for sma in (1, 3, 6):
                assert finder.get_best_lr(sma, 6, 0) in (2.0**14, 2.0**15)
    finder.window_size, finder.metrics = 1, "reward"
    derivatives = finder.get_derivatives(2)
    z = np.array(finder.normalized_rewards)
    assert derivatives[:2] == [0, 0] and np.allclose(derivatives[2:], (z[2:] - z[:-2]) / 2)
    assert abs(z.mean()) < 1e-9 and z.std() == pytest.approx(1)


class Moody(Probe):
    def __init__(self, env: Any = None, **choices: Any) -> None:
        super().__init__(env or Walk())
        self.net = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2))
        self.param, self.eps, self.calls = self.net.parameters(), 1.0, [0]
        self.memory = np.zeros(3)
        self.seen = deque(maxlen=0)  # tensors in attributes take part
        self.seed = 5
        self.callbacks = [LambdaCallback(on_episode_end=self.note)]
        given = {
            "policy": explore.BoltzmannGumbelQPolicy(),
            "pool_size": 60,
            "batch": 4,
            "update_steps": 3,
        }
        self.set(**given | choices)

    def note(self, i: int, logs: Any) -> None:
        self.eps *= 0.9
        self.calls[0] += 1
        self.memory[i % 3] += self.eps

    def update_param(self) -> None:
        self.target.load_state_dict(self.net[1].state_dict())


def points() -> Any:
    class Points(DDPG_HER.DDPG):
        def reward_done_func(self, next_state: Any, goal: Any) -> Any:
            return PointWorld.judge(next_state, goal)

    torch.manual_seed(0)
    agent = Points(16, 0.1, 0.98, 0.005)
    agent.env = [PointWorld() for _ in range(2)]
    agent.set(
        noise=explore.GaussianWhiteNoiseProcess(), pool_size=90, batch=32, HER=True, update_steps=9
    )
    return agent


def relay() -> Any:
    torch.manual_seed(0)
    agent = MADDPG.DDPG(16, 0.1, 0.98, 0.005)
    agent.env = [Relay() for _ in range(2)]
    agent.set(policy=explore.SoftmaxPolicy(), pool_size=600, batch=32, MARL=True)
    return agent


def clocks() -> list[Any]:
    return [Clock(5), Clock(7), Clock(4, cut=True)]


AGENTS: dict[str, Callable[[], Any]] = {
    "plain": Moody,
    "prioritized": lambda: Moody(PR=True),
    "PPO": lambda: Moody(PPO=True, update_steps=9),
    "several environments": lambda: Moody(clocks(), policy=explore.EpsGreedyQPolicy(0.3, seed=1)),
    "hindsight, two optimizers": points,
    "several agents": relay,
}


def adam(agent: Any) -> Any:
    if isinstance(agent.param[0], list):
        return [torch.optim.Adam(group, 1e-3) for group in agent.param]
    return torch.optim.Adam(agent.param, 1e-3)


def everything(agent: Any, path: Path) -> Any:
    """What a file of the agent holds and what it does not; the last are of this process alone."""
    agent.save(path)
    file = checkpoint.read(path)
    file.data["records"].pop("total_time")
    if loop := file.data.get("loop"):
        del loop["counters"], loop["collector"]["seconds"]
    groups = ("param", *(("engine", "collector", "learner") if loop else ()))
    arrays = {f"{g}/{n}": x.tobytes() for g in groups for n, x in file.group(g).items()}
    modules = [x for x in vars(agent).values() if isinstance(x, torch.nn.Module)]
    own = [x.clone().numpy().tobytes() for m in modules for x in m.state_dict().values()]
    numbers = {n: x for n, x in vars(agent).items() if isinstance(x, (int, float, list))}
    plain = {n: repr(x) for n, x in numbers.items() if n not in ("time", "total_time")}
    optimizers = agent.optimizer if isinstance(agent.optimizer, list) else [agent.optimizer]
    states = [repr(o.state_dict()) for o in optimizers if o is not None]
    rng = torch.get_rng_state().numpy().tobytes(), random.getstate()
    policy = agent._arguments.policy
    draws = repr(policy.state()) if policy is not None else ""
    return file.data, arrays, own, states, draws, rng, plain, id(agent.env)


def search(agent: Any) -> None:
    agent.optimizer = agent.optimizer or adam(agent)
    LRFinder(agent).find(N=3, start_lr=1e-4, end_lr=0.1, processes=1, p=0)
    OptFinder(agent, [adam(agent), agent.optimizer]).find(episodes=2, processes=1, p=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", AGENTS)
def test_an_agent_is_as_before_and_trains_as_if_nothing_had_been(kind: str, tmp_path: Path) -> None:
    searched, other = AGENTS[kind](), AGENTS[kind]()
    for untrained in (True, False):
        for agent in (searched, other):
            if untrained:
                agent.optimizer = adam(agent)
            else:
                agent.train(None, 3, processes=1, p=0)
        before = everything(searched, tmp_path / "before")
        search(searched)
        assert everything(searched, tmp_path / "after") == before
    for agent in (searched, other):
        agent.train(None, 4, processes=1, p=0)
    assert everything(searched, tmp_path / "a")[:5] == everything(other, tmp_path / "b")[:5]


@pytest.mark.slow
def test_trials_in_processes_are_those_of_one(tmp_path: Path) -> None:
    found = []
    for processes in (1, 2):
        agent = Moody([Walk() for _ in range(3)], policy=explore.EpsGreedyQPolicy(0.3, seed=1))
        agent.train(adam(agent), 4, processes=processes, p=0)
        before = everything(agent, tmp_path / "before")
        finder = OptFinder(agent, [torch.optim.SGD(agent.param, 0.1)])
        finder.find(episodes=6, processes=processes, p=0)
        assert everything(agent, tmp_path / "after") == before
        found.append((finder.rewards, finder.losses))
    assert found[0] == found[1]


def test_trials_are_independent_of_their_order() -> None:
    agent = Moody(PR=True)
    agent.train(adam(agent), 3, p=0)
    kinds = [adam(agent), torch.optim.SGD(agent.param, 0.1), torch.optim.RMSprop(agent.param)]
    first, second = OptFinder(agent, kinds), OptFinder(agent, kinds[::-1])
    first.find(episodes=4, p=0)
    second.find(episodes=4, p=0)
    assert first.rewards == second.rewards[::-1] and first.losses == second.losses[::-1]
    assert first.losses[0] != first.losses[1]


@pytest.mark.parametrize("how", ["raises", "interrupted", "told to stop"])
def test_it_is_as_before_whatever_ends_a_trial(how: str, tmp_path: Path) -> None:
    agent = Moody()
    agent.train(adam(agent), 3, p=0)

    def end(i: int, logs: Any) -> None:
        if i == 1 and how == "raises":
            raise ValueError("mine")
        if i == 1 and how == "interrupted":
            signal.raise_signal(signal.SIGINT)
        agent.stop_training = how == "told to stop"

    agent.callbacks.append(LambdaCallback(on_episode_end=end))
    before = everything(agent, tmp_path / "before")
    finder = OptFinder(agent, [adam(agent), adam(agent)])
    if how == "told to stop":
        finder.find(episodes=5, p=0)
        assert [len(x) for x in finder.rewards] == [1, 1]
    else:
        with pytest.raises(ValueError if how == "raises" else KeyboardInterrupt):
            finder.find(episodes=5, p=0)
    assert everything(agent, tmp_path / "after") == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_sweep_goes_on_from_where_training_is_also_from_a_file(tmp_path: Path) -> None:
    first, second = Moody(), Moody()
    first.train(adam(first), 6, p=0)
    first.save(tmp_path / "agent")
    second.restore(tmp_path / "agent")
    second.optimizer = adam(second)
    sweeps = []
    for agent in (first, second):
        sweeps.append(LRFinder(agent))
        sweeps[-1].find(N=4, metrics="loss", start_lr=1e-4, end_lr=1e-3, p=0)
    assert len(sweeps[0].losses) == 5  # at once: the pool is there
    second.train(None, 2, p=0)
    first.train(None, 2, p=0)
    assert first.loss_list == second.loss_list


def test_no_file_is_written_and_no_criterion_ends_a_trial(tmp_path: Path) -> None:
    agent = Moody(trial_count=1, criterion=-1e9)
    agent.path = tmp_path / "agent.dat"
    finder = OptFinder(agent, [adam(agent)])
    finder.find(episodes=3, p=0)
    assert len(finder.rewards[0]) == 3 and not list(tmp_path.iterdir())
    assert agent.criterion == -1e9 and agent.path == tmp_path / "agent.dat"


def test_an_environment_that_cannot_be_copied_is_used_itself_or_refused() -> None:
    class Locked(Clock):
        def __deepcopy__(self, memo: object) -> Any:
            raise TypeError("cannot copy")

    agent = Moody(Locked())
    env = agent.env
    OptFinder(agent, [adam(agent)]).find(episodes=2, p=0)
    assert agent.env is env and agent.reward_list == []
    agent.train(adam(agent), 2, p=0)
    with pytest.raises(SettingError, match="cannot be copied"):
        OptFinder(agent, [adam(agent)]).find(episodes=2, p=0)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["jax", pytest.param("tensorflow", marks=pytest.mark.thorough)])
def test_keras_agents_are_as_before_and_travel(engine: Any) -> None:
    (found,) = run_python(SNIPPET, engine=engine, timeout=400)
    assert "has a schedule for its learning rate" in found.pop("schedule")
    assert found.pop("rates") and all(found.values()), found


def test_trials_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    agent = Aimer()
    finder = OptFinder(agent, [sgd(agent, 0.5), torch.optim.Adam(agent.param)])
    finder.find(episodes=2)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("trial:1 of 2   SGD (0.5)   mean reward:-2.5   mean loss:1.2500")
    assert lines[-1] == "best optimizer:SGD (0.5)" and len(lines) == 3
    agent.optimizer = sgd(agent)
    LRFinder(agent).find(N=10, start_lr=0.01, end_lr=0.5)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "episode:1   learning rate:1.00e-02   reward:-4   loss:2.0000"
    assert lines[-1].startswith("best learning rate:") and 10 <= len(lines) <= 13
    LRFinder(agent).find(N=10, start_lr=0.01, end_lr=0.5, p=0)
    assert capsys.readouterr().out == ""
    OptFinder(agent, [sgd(agent), sgd(agent)]).find()
    same = "best optimizer:SGD (0.1)   the first of trials 1, 2, with the same mean reward"
    assert capsys.readouterr().out.splitlines()[-1] == same
    finder = LRFinder(agent)
    finder.rewards, finder.lrs = [1.0] * 4, [0.1, 0.2, 0.3, 0.4]
    finder._conclude(True)
    said = "best learning rate:0.2 (no real choice: the reward never changed)"
    assert capsys.readouterr().out.splitlines() == [said]


def test_pictures_are_figures_of_the_points(tmp_path: Path) -> None:
    agent = Aimer()
    agent.optimizer = sgd(agent)
    lr, opt = LRFinder(agent), OptFinder(agent, [sgd(agent, 0.5), sgd(agent, 0.1)])
    lr.find(N=20, window_size=1, start_lr=0.01, end_lr=0.5, p=0)
    opt.find(episodes=3, p=0)
    axes = lr.plot_reward(n_skip_beginning=4, n_skip_end=2).axes[0]
    assert axes.get_xscale() == "log" and axes.get_xlabel() == "learning rate"
    assert np.allclose(axes.lines[0].get_xdata(), lr.lrs[4:-2])
    assert np.allclose(axes.lines[0].get_ydata(), lr.normalized_rewards[4:-2])
    axes = lr.plot_loss_change(sma=3, n_skip_beginning=4, n_skip_end=2, y_lim=(-1, 1)).axes[0]
    assert axes.get_ylim() == (-1, 1)
    assert np.allclose(axes.lines[0].get_ydata(), lr.get_derivatives(3, "loss")[4:-2])
    assert np.allclose(opt.plot_reward().axes[0].lines[0].get_ydata(), opt.mean_rewards)
    assert opt.plot_loss().axes[0].get_xlabel() == "optimizer"
    assert np.allclose(opt.plot_loss().axes[0].lines[0].get_ydata(), opt.mean_losses)
    assert len(opt.plot_loss_change().axes) == len(lr.plot_reward_change().axes) == 1
    opt.plot_reward_change().savefig(tmp_path / "change.png")
    assert (tmp_path / "change.png").stat().st_size > 1000


# Side by side: who wins, what comes back, and what becomes of lost processes


class KilledOnce(Aim):
    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark, self.steps = mark, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 3 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def aimer(env: Any = None) -> Any:
    agent = Aimer()
    agent.env = env or agent.env
    return agent


@pytest.mark.slow
def test_the_best_comes_back_as_it_was_trained_and_a_lost_one_is_named(tmp_path, capsys) -> None:
    trained, twin, killed = Moody(), Moody(), aimer(KilledOnce(tmp_path / "mark"))
    for agent in (trained, twin):
        agent.train(adam(agent), 3, p=0)
    agents = [killed, aimer(), trained]
    optimizers = [sgd(killed, 0.5), sgd(agents[1], 1e-9), trained.optimizer]
    before = everything(agents[1], tmp_path / "before")
    capsys.readouterr()
    finder = ParallelFinder(agents, optimizers)
    with pytest.warns(UserWarning, match=r"agent 1 \(Aimer, SGD \(0.5\)\) was killed .* again"):
        assert finder.find(episodes=6, parallel=2) is trained
    d = TARGET - START
    assert np.allclose(finder.rewards[0], [-((d * 0.5**k) ** 2) for k in range(6)])
    assert np.allclose(finder.rewards[1], -(d**2)) and len(finder.losses[1]) == 6
    lines = capsys.readouterr().out.splitlines()
    assert {line[:12] for line in lines[:3]} == {f"trial:{i} of 3" for i in (1, 2, 3)}
    assert lines[3] == "best agent:agent 3 (Moody, Adam (0.001))" and len(lines) == 4
    # the winner is what training here would have made of it, and goes on so
    logs = finder.logs
    assert logs["best_index"] == 2 and logs["best_agent"] is trained
    assert logs["best_opt"] is trained.optimizer and len(logs["times"]) == 3
    assert logs["best_reward"] == pytest.approx(np.mean(finder.rewards[2]))
    twin.train(None, 6, p=0)
    assert trained.reward_list == twin.reward_list and trained.loss_list == twin.loss_list
    assert trained.eps == twin.eps and len(finder.rewards[2]) == 6
    for agent in (trained, twin):
        agent.train(None, 3, p=0)
    one, other = (everything(a, tmp_path / "x") for a in (trained, twin))
    assert one[1:4] == other[1:4] and trained.loss_list == twin.loss_list
    # the others are as before
    assert everything(agents[1], tmp_path / "after") == before
    assert killed.w.item() == START and killed.reward_list == []


@pytest.mark.slow
def test_several_optimizers_and_environments_and_least_loss(tmp_path: Path) -> None:
    pair, clock = points(), Moody(clocks(), PPO=True, update_steps=9)
    clock.path = tmp_path / "no-file"
    finder = AgentFinder([pair, clock], [adam(pair), adam(clock)])
    best = finder.find(episodes=2, metrics="loss", parallel=1, processes=2, p=0)
    assert finder.logs["best_loss"] == min(np.mean(finder.losses[i]) for i in (0, 1))
    assert isinstance(best.optimizer, list) == (best is pair)
    assert best.total_episode >= 2 and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_goes_wrong_there_leaves_all_as_before() -> None:
    class Broken(Aim):
        def step(self, action: Any) -> Any:
            raise ValueError("mine")

    good, broken = aimer(), aimer(Broken())
    with pytest.raises(WorkerError, match=r"agent 2 \(Aimer, SGD .* raised .*mine"):
        ParallelFinder([good, broken], [sgd(good), sgd(broken)]).find(episodes=3, p=0)
    with pytest.raises(NonFiniteError, match="no trial finished"):
        ParallelFinder([good], [sgd(good, 1e30)]).find(episodes=8, p=0)
    assert good.w.item() == START and good.reward_list == [] and good.optimizer is None


def in_memory() -> Any:
    """An agent of a class whose module is no file."""
    module = types.ModuleType("only_in_memory")
    source = "from tests.tuning.test_finders import Aimer\nclass Gone(Aimer):\n    pass\n"
    exec(source, module.__dict__)
    module.Gone.__module__ = module.__name__
    sys.modules["only_in_memory"] = module
    return module.Gone()


def altered(**attributes: Any) -> Any:
    agent = aimer()
    vars(agent).update(attributes)
    return agent


def searched(*agents: Any) -> Any:
    return ParallelFinder(agents, [sgd(a) for a in agents]).find(p=0)


@pytest.mark.parametrize(
    ("find", "part"),
    [
        (lambda a: LRFinder(a).find(strategy="two"), "strategy='two'"),
        (lambda a: OptFinder(a, [sgd(a)]).find(strategy=0), "strategy=0"),
        (lambda a: LRFinder(a).find(metrics="rewards"), "metrics='rewards'"),
        (lambda a: LRFinder(a).find(start_lr=1.0, end_lr=0.1), "start_lr=1 and end_lr=0.1"),
        (lambda a: LRFinder(a).find(start_lr=0), "start_lr=0"),
        (lambda a: LRFinder(a).find(N=1), "N=1"),
        (lambda a: LRFinder(a, 3).find(), "index=3 with 1 optimizers"),
        (lambda a: LRFinder(a).find(train_loss=len), "train_loss=.* a PyTorch agent"),
        (lambda a: OptFinder(a, []), "no optimizers"),
        (lambda a: OptFinder(a, [sgd(a)]).find(episodes=0), "episodes=0"),
        (lambda a: LRFinder(object()), "a finder was given a object"),
        (lambda a: LRFinder(a).plot_loss(), "first 10 and the last 5 of 0 points"),
        (lambda a: LRFinder(altered(optimizer=None)).find(), "the agent has no optimizer"),
        (lambda a: ParallelFinder([a], [sgd(a)]).find(strategy=0), "strategy=0"),
        (lambda a: ParallelFinder([a], [sgd(a)]).find(metrics="los"), "metrics='los'"),
        (lambda a: ParallelFinder([a], []), "1 agents and 0 optimizers"),
        (lambda a: ParallelFinder([a, a], [sgd(a)] * 2), "the same agent was given twice"),
        (lambda a: ParallelFinder([a], [sgd(a)]).find(parallel=0), "parallel=0"),
        (
            lambda a: searched(a, altered(lock=threading.Lock())),
            r"agent 2 \(Aimer, SGD .* cannot be sent .*lock",
        ),
        (lambda a: searched(a, in_memory()), "only_in_memory.Gone, but only_in_memory has no file"),
        (lambda a: searched(a, altered(_arguments=None)), "find was called before set"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(find, part, monkeypatch) -> None:
    nothing_starts(monkeypatch, "workers.jobs.Process")
    agent = Aimer()
    agent.optimizer = given = sgd(agent)
    with pytest.raises(TandemError, match=part) as caught:
        find(agent)
    assert isinstance(caught.value, SettingError) and caught.value.expected and caught.value.fix
    assert agent.w.item() == START and agent.path is None and agent.optimizer is given
