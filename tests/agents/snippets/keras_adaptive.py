"""What is compiled anew, and measured, on the engine of KERAS_BACKEND: prints one JSON object."""

import json
import warnings
from typing import Any

import keras
import numpy as np

from tandem import RL, LambdaCallback
from tests.agents import rule_cases
from tests.agents.rule_cases import numbers, run

found: dict[str, Any] = {}
Known = rule_cases.known(RL)
RULE = {"rate": 0.1, "min": 0.25, "max": 0.75, "smooth": 0.5}


def sgd(w: Any) -> Any:
    return keras.optimizers.SGD(0.01)


def recorded(kind: Any, plan: Any, **choices: Any) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        agent = run(kind, sgd, plan, **choices)
    return agent, [str(w.message) for w in told if issubclass(w.category, UserWarning)]


# a variable, of Keras's: nothing is compiled anew, nothing said
variable = {"gamma": keras.Variable(0.5)}
agent, told = recorded(Known, lambda u: {"gamma_params": RULE}, numbers=variable)
expected = numbers(0.5, 0.1, len(agent.heard), 0.25, 0.75)
found["variable"] = not told and bool(np.allclose(agent.heard, expected, atol=1e-5))


# a number that decides a Python `if`: compiled anew, said once, and it is what the loss has
class Deciding(Known):  # type: ignore[misc,valid-type]
    def told(self, loss: Any) -> Any:
        return super().told(loss) + (10.0 if self.clip > 0.6 else 0.0)


plain = run(Known, sgd, lambda u: None).notes.traces
agent, told = recorded(Deciding, lambda u: {"clip_params": RULE}, numbers={"clip": 0.5})
expected = [x + 10.0 * (x > 0.6) for x in numbers(0.5, 0.1, len(agent.heard), 0.25, 0.75)]
found["constant"] = bool(np.allclose(agent.heard, expected, atol=1e-5))
found["said once"] = [
    ("self.clip cannot be an input" in m, m.count("recompiled")) for m in told
] == [(True, 1)] or told
# once to try; then for each change: 4 in each of 6 episodes, and back
found["compiled anew"] = agent.notes.traces > plain + 20


# moved by a callback of an agent without hooks: an input from the first move on
class Hookless(Known):  # type: ignore[misc,valid-type]
    adjust_func = None


agent = Hookless(gamma=0.5)
rules = {"gamma_params": RULE, "weight_decay_params": RULE}
move = lambda b, logs: agent.adjust(target_ess=5.0, smooth=1.0, **rules)  # noqa: E731
heard: list[float] = []
agent.callbacks += [LambdaCallback(on_batch_end=move), rule_cases.hear(heard)]
agent.set(pool_size=10, batch=10, policy=rule_cases.GreedyQPolicy())
with warnings.catch_warnings():
    warnings.simplefilter("error", UserWarning)
    agent.train(None, keras.optimizers.SGD(0.01, weight_decay=0.5), 8, p=0)
expected = numbers(0.5, 0.1, len(heard), 0.25, 0.75)
found["callback"] = bool(np.allclose(heard, expected, atol=1e-5)) or heard
found["callback compiles"] = agent.notes.traces <= 2 * plain + 1 or [agent.notes.traces, plain]


# the noise of gradients: what is measured, that nothing is changed, compiled or not
class Noisy(RL):
    """Its gradient is the mean of (reward, step); with statistics and chance."""

    def __init__(self, measures: bool, jit: bool = True) -> None:
        super().__init__()
        keras.utils.set_random_seed(0)
        self.w, self.env = keras.Variable(np.zeros(2, np.float32)), rule_cases.clock()
        self.norm, self.drop = keras.layers.BatchNormalization(), keras.layers.Dropout(0.5, seed=1)
        self.norm.build((None, 2))
        self.drop.build((None, 2))
        self.param, self.measures, self.jit = [self.w], measures, jit
        self.noise: list[float] = []

    def action(self, s: Any) -> Any:
        return keras.ops.eye(rule_cases.CHOICES)[:1] + s[:, :1] * 0.0

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        ops = keras.ops
        odd = self.drop(self.norm(s, training=True), training=True)
        both = ops.stack([ops.mean(r), ops.mean(s[:, 0])])
        return ops.sum(self.w * both) + 0.0 * ops.sum(odd)

    def update_param(self) -> None: ...

    def adjust_func(self) -> None:
        if self.measures:
            self.noise.append(self.estimate_gradient_variance(4, 8, jit_compile=self.jit))

    def state(self) -> list[Any]:
        layers = [v for layer in (self.norm, self.drop) for v in layer.variables]
        return [np.asarray(v.value) for v in [self.w, *layers]]


def after_training(agent: Any) -> Any:
    agent.set(policy=rule_cases.GreedyQPolicy(), pool_size=20, batch=5)
    agent.train(None, keras.optimizers.SGD(0.01), 5, p=0)
    return agent


still, compiled = after_training(Noisy(False)), after_training(Noisy(True))
eager = after_training(Noisy(True, jit=False))
states = zip(still.state(), compiled.state(), eager.state(), strict=True)
found["nothing changed"] = all(np.array_equal(x, y) and np.array_equal(x, z) for x, y, z in states)
close = bool(np.allclose(compiled.noise, eager.noise, rtol=1e-4))
found["alike"] = len(compiled.noise) > 10 and close
# the mean of 4 of 20 rows, 1 to 5 four times each, drawn without replacement
spread = np.var(np.tile([1, 2, 3, 4, 5], 4), ddof=1) / 4 * (1 - 4 / 20)
measured = np.mean([compiled.estimate_gradient_variance(4, 300) for _ in range(4)])
found["variance"] = bool(abs(measured / spread - 1) < 0.15) or [measured, spread]
found["scale"] = 0 < compiled.gradient_noise_scale < 10


# gradients are those of the numbers as they are now
class Scaled(Noisy):
    scale = 1.0

    def __call__(self, s: Any, a: Any, next_s: Any, r: Any, d: Any) -> Any:
        return self.scale * super().__call__(s, a, next_s, r, d)


one = after_training(Scaled(False))
first = np.mean([one.estimate_gradient_variance(4, 300) for _ in range(3)])
one.scale = 3.0
second = np.mean([one.estimate_gradient_variance(4, 300) for _ in range(3)])
found["scaled"] = bool(7 < second / first < 11) or second / first
print(json.dumps(found, default=bool))
