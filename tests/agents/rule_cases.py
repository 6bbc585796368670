"""What rules move, read from what acted or stepped: worked out beforehand, for every engine."""

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from tandem.exploration import AdaptiveEpsGreedyPolicy, EpsGreedyQPolicy, GreedyQPolicy
from tests.agents.clocks import Clock

BATCH, LENGTH, CHOICES = 10, 5, 50  # the pool is as long as a minibatch: two episodes


def clock() -> Clock:
    return Clock(LENGTH, choices=CHOICES)


class Notes:
    """What the loss says when it runs, or is traced: a counter would be one of its numbers."""

    def __init__(self) -> None:
        self.traces, self.sizes = 0, list[int]()


def framework(base: Any) -> Any:
    """What the loss needs of the framework of such agents."""
    if base.torch:
        import torch

        own = {"variable": lambda x: torch.nn.Parameter(torch.tensor(x)), "stop": torch.detach}
        return SimpleNamespace(ops=torch, read=lambda w: w.detach().numpy(), **own)
    import keras

    own = {"variable": keras.Variable, "stop": keras.ops.stop_gradient}
    return SimpleNamespace(ops=keras.ops, read=lambda w: np.asarray(w.value), **own)


def known(base: Any) -> Any:
    """Agents whose two weights' gradient is the mean number of ended episodes, less 3."""
    own = framework(base)

    class Known(base):  # type: ignore[misc]
        def __init__(self, **numbers: Any) -> None:
            super().__init__()
            self.w = own.variable(np.array([1.0, -2.0], np.float32))
            self.param, self.env = [self.w], clock()
            self.notes, self.copies = Notes(), list[int]()
            self.weights, self.updates = list[Any](), 0
            self.plan: Callable[[int], dict[str, Any] | None] = lambda update: None
            for name, value in numbers.items():
                setattr(self, name, value)

        def action(self, s: Any) -> Any:
            return s[:, :1] * 0.0 + self.best

        def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
            self.notes.traces += 1
            self.notes.sizes.append(s.shape[0])
            self.prioritized_replay.update(r)
            return self.told(own.ops.sum(self.w) * (own.ops.mean(s[:, 1]) - 3.0))

        def told(self, loss: Any) -> Any:
            """The loss with the agent's numbers: their value, whatever the weights are."""
            shown = loss - own.stop(loss)
            for name in ("tau", "gamma", "clip", "beta"):
                if (x := getattr(self, name, None)) is not None:
                    shown = shown + x
            return shown

        def update_param(self) -> None:
            self.copies.append(self.updates)

        def adjust_func(self) -> None:
            self.updates += 1
            self.weights.append(np.array(own.read(self.w)))
            if (what := self.plan(self.updates)) is not None:
                self.adjust(**{"target_ess": BATCH / 2, "smooth": 1.0, **what})

    Known.best = own.ops.eye(CHOICES)[:1]
    return Known


def hear(losses: list[float]) -> Any:
    """A callback that notes each minibatch's loss."""
    return SimpleNamespace(on_batch_end=lambda b, logs: losses.append(logs["loss"]))


def run(kind, optimizer: Callable[[Any], Any], plan, episodes: int = 8, **choices) -> Any:
    """An agent after training in which its rules are called as `plan(update)` says."""
    train = choices.pop("train", {})
    agent = kind(**choices.pop("numbers", {}))
    agent.plan, agent.heard = plan, list[float]()
    agent.set(**{"policy": GreedyQPolicy(), "pool_size": BATCH, "batch": BATCH, **choices})
    agent.callbacks.append(hear(agent.heard))
    first = () if agent.torch else (None,)
    agent.train(*first, optimizer(agent.param), episodes, p=0, **train)
    return agent


def numbers(first: float, change: float, updates: int, low: float, high: float) -> list[float]:
    """A number in each update: a rule moves it by half of `change`; an episode sets it back."""
    values, x = [], first
    for update in range(updates):
        if update == 0 or update % LENGTH == 1:
            x = first
        values.append(x)
        x = 0.5 * x + 0.5 * min(max(x + change, low), high)
    return values


def gradients(updates: int) -> list[float]:
    ended = np.arange(10 + updates) // LENGTH
    return [float(ended[k : k + 10].mean()) - 3.0 for k in range(updates)]


def adam(lr: list[float], decay: list[float], beta1: list[float], beta2: list[float]) -> Any:
    """Weights after each update of AdamW by such numbers (Loshchilov & Hutter 2019)."""
    w, m, v, seen = np.array([1.0, -2.0]), 0.0, 0.0, []
    each = zip(lr, decay, beta1, beta2, gradients(len(lr)), strict=True)
    for t, (rate, wd, b1, b2, g) in enumerate(each, 1):
        w = w * (1 - rate * wd)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        w = w - rate * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + 1e-7)
        seen.append(w)
    return np.array(seen)


def rules(base: Any, adamw: Callable[[Any], Any], sgd: Callable[[Any], Any]) -> dict[str, Any]:
    """What was found, True where right. adamw: AdamW(0.01, 0.9, 0.99, 0.1, 1e-7); sgd: 0.01."""
    found: dict[str, Any] = {}
    Known = known(base)

    def near(x: Any, y: Any, tolerance: float = 2e-4) -> Any:
        x, y = np.asarray(x, float), np.asarray(y, float)
        if x.shape != y.shape:
            return f"shapes {x.shape}, {y.shape}"
        return bool(np.allclose(x, y, rtol=tolerance, atol=tolerance)) or [x.tolist(), y.tolist()]

    def tell(name: str, **rule: Any) -> Any:
        return lambda update: {f"{name}_params": rule}

    # the optimizer's numbers, in the weights' change; e / T = 2
    for name, change, first, low, high in (
        ("lr", 0.002, 0.01, 0.001, 0.013),
        ("weight_decay", -0.05, 0.1, 0.02, 1.0),
        ("beta1", -0.4, 0.9, 0.2, 0.95),
        ("beta2", -0.2, 0.99, 0.3, 0.999),
    ):
        # the share that is given moves by half of the change: smooth=0.5
        sign = -1 if name == "weight_decay" else 1
        rule = {"rate": sign * change, "min": low, "max": high, "smooth": 0.5}
        agent = run(Known, adamw, tell(name, **rule))
        n = len(agent.weights)
        first_values = {"lr": 0.01, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.99}
        values = {key: [x] * n for key, x in first_values.items()}
        still = adam(*values.values())
        values[name] = numbers(first, change, n, low, high)
        found[name] = n == 31 and near(agent.weights, adam(*values.values()))
        found[f"{name} matters"] = bool(abs(still - adam(*values.values())).max() > 1e-3)
    plain = agent.notes.traces

    # the agent's own numbers, in the loss
    for name, change in (("tau", 0.1), ("gamma", 0.1), ("clip", 0.1), ("beta", -0.1)):
        sign = -1 if name == "beta" else 1
        rule = {"rate": sign * change, "min": 0.25, "max": 0.75, "smooth": 0.5}
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # such as of a loss that is compiled anew
            agent = run(Known, sgd, tell(name, **rule), numbers={name: 0.5})
        expected = numbers(0.5, change, len(agent.heard), 0.25, 0.75)
        found[name] = near(agent.heard, expected)
        if not base.torch:
            # traced once more, to see that it can be an input; then as often as without a rule
            compiled = agent.notes.traces
            found[f"{name} compiles"] = compiled == plain + 1 or [compiled, plain]

    # a policy's share of random actions: the third update of an episode raises it to 1
    for policy in (EpsGreedyQPolicy(0.0), AdaptiveEpsGreedyPolicy(0.0, 0.0)):
        raised = {"eps_params": {"rate": 2.0, "smooth": 0.0}, "target_ess": 2.0 * BATCH * BATCH}
        plan = lambda update: raised if update % LENGTH == 4 else None  # noqa: B023, E731
        agent = run(Known, sgd, plan, 40, policy=policy)
        moved = np.array(agent.env.actions[15:]).reshape(-1, LENGTH) != 0
        share = moved.mean(0)  # steps 4, 5 and the next 1 after that update
        right = (share[[1, 2]] == 0).all() and (share[[0, 3, 4]] > 0.8).all()
        found[type(policy).__name__] = bool(right) or share.tolist()

    # priorities: draws in proportion to (reward + eps) ** alpha
    rule = {"alpha_params": {"rate": 1.0, "smooth": 0.0, "max": 2.0}, "target_ess": 1e-9}
    agent = run(Known, sgd, lambda update: rule, PR=True, alpha=0.0, episodes=2)
    draw = agent.prioritized_replay.sampler.draw(np.random.default_rng(0), 4000, 1, np.ones(4000))
    shares = np.bincount((draw.ids.ravel() % LENGTH), minlength=LENGTH) / 4000
    squares = np.arange(1, LENGTH + 1) ** 2.0
    found["alpha"] = bool(abs(shares - squares / squares.sum()).max() < 0.03) or shares.tolist()

    # counts: they go back as well
    rule = {"freq_params": {"max": 9}, "target_ess": 2.0 * BATCH}
    agent = run(Known, sgd, lambda u: rule, update_batches=2)
    # 2, then 4, 8, 9, 9 after each update of an episode
    due, now = [], 2
    for update in range(1, 32):
        now = 2 if update == 1 or update % LENGTH == 2 else now
        due += [update] if update % now == 0 else []
        now = min(2 * now, 9)
    found["freq"] = agent.copies == due or [agent.copies, due]
    rule = {"store_params": {"max": 4}, "target_ess": 2.0 * BATCH}
    agent = run(Known, sgd, lambda u: rule, episodes=16, train={"num_store": 2})
    # two episodes, 10 updates, which leave 4; then 20 updates after four, and so on
    found["store"] = agent.updates == 10 + 20 * 3 or agent.updates
    rule = {"num_updates_params": {"max": 4}, "target_ess": 1e-9}
    agent = run(Known, sgd, lambda u: rule if u == 1 else None, episodes=3, num_updates=2, batch=1)
    # hooks are called once there are two transitions: after the first minibatch of the second step
    made = agent._assembly.learner.updates
    found["num_updates"] = made == 2 + 4 * 4 + 2 * 10 or made

    # sizes of minibatches: eight at most
    rule = {"batch_params": {"min": 2, "max": 512}}
    plan = lambda u: {**rule, "target_ess": 300.0 - 20 * (u % 15)}  # noqa: E731
    agent = run(Known, sgd, plan, episodes=100, pool_size=400, batch=8)
    sizes = set(agent.notes.sizes) - {11, 13}  # those are when the loss is looked at
    found["batch"] = bool(len(sizes - {2}) > 2 and len(sizes) <= 8) or sorted(sizes)
    return found
