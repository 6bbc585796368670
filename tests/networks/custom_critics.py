"""Custom critics that need the state beside the action. As a script: FRAMEWORK ALGORITHM..."""

import json
import sys
from typing import Any

import tandem
from tandem import trainer
from tandem.testing.environments import IdentityBox

ALGORITHMS = ("sac", "td3", "ddpg", "tqc", "crossq")
FORMS = ("default", "body", "pair", "roles")
SHORT: dict[str, Any] = {"steps": 600, "envs": 1, "seed": 1, "hidden": (32, 32), "gamma": 0.0}
SHORT |= {"learning_starts": 200, "train_every": 1, "batch_size": 64, "learning_rate": 3e-3}
SHORT |= {"eval_every": 0, "eval_episodes": 0, "final_episodes": 5}
SHORT |= {"plots": False, "tensorboard": False, "progress": False}
# what differs: little exploration by entropy, a policy that learns at each step
SOFT = {"temperature": "0.02"}
OWN: dict[str, dict[str, Any]] = {
    "sac": SOFT,
    "tqc": SOFT | {"quantiles": 5, "dropped": 0},
    "crossq": SOFT | {"policy_delay": 1},
    "td3": {"policy_delay": 1, "exploration": 0.3},
    "ddpg": {"actor_learning_rate": 3e-3, "exploration": 0.3, "action_noise": "gaussian"},
}


def torch_body(space: Any) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(space.shape[0], 64), nn.ReLU())


def keras_body(space: Any) -> Any:
    import keras

    return keras.Sequential([keras.Input(space.shape), keras.layers.Dense(64, "relu")])


def torch_roles(outputs: dict[str, int]) -> dict[str, Any]:
    """One network per role; the critics take the action from their first layer on."""
    import torch
    from torch import nn

    class Critic(nn.Sequential):
        def forward(self, x: Any) -> Any:
            return super().forward(torch.cat([x["obs"], x["action"]], -1))

    def whole(name: str, numbers: int) -> Any:
        if name != "actor":
            return Critic(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, numbers))
        # a deterministic actor's actions lie in [-1, 1]
        last = [] if numbers > 1 else [nn.Tanh()]
        return nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, numbers), *last)

    return {name: whole(name, numbers) for name, numbers in outputs.items()}


def keras_roles(outputs: dict[str, int]) -> dict[str, Any]:
    import keras
    from keras import layers

    def whole(name: str, numbers: int) -> Any:
        obs, action = keras.Input((1,), name="obs"), keras.Input((1,), name="action")
        if name == "actor":  # a deterministic actor's actions lie in [-1, 1]
            last = layers.Dense(numbers, "linear" if numbers > 1 else "tanh")
            return keras.Model(obs, last(layers.Dense(32, "relu")(obs)))
        inputs = {"obs": obs, "action": action}
        hidden = layers.Dense(32, "relu")(layers.Concatenate()([obs, action]))
        return keras.Model(inputs, layers.Dense(numbers)(hidden))

    return {name: whole(name, numbers) for name, numbers in outputs.items()}


def network(algorithm: str, framework: str, form: str) -> Any:
    body, roles = (torch_body, torch_roles) if framework == "torch" else (keras_body, keras_roles)
    if form == "default":
        return None
    if form == "body":
        return body
    if form == "pair":
        return lambda space: (body(space), body(space))
    actor = 1 if algorithm in ("td3", "ddpg") else 2
    critics = ("q",) if algorithm == "ddpg" else ("q1", "q2")
    numbers = OWN["tqc"]["quantiles"] if algorithm == "tqc" else 1
    return roles({"actor": actor} | dict.fromkeys(critics, numbers))


def session(algorithm: str, framework: str, form: str, **more: Any) -> Any:
    if framework == "torch":
        import torch

        torch.manual_seed(3)  # of the networks that are made here
    else:
        import keras

        keras.utils.set_random_seed(3)
    made = network(algorithm, framework, form)
    settings = SHORT | OWN[algorithm] | more
    return tandem.session(algorithm, IdentityBox, framework=framework, network=made, **settings)


def score(algorithm: str, framework: str, form: str) -> float:
    """The mean reward of a step, which is 0 at best; -2/3 for a policy by chance."""
    result = trainer.complete(session(algorithm, framework, form))
    return float(result.evaluation.mean) / IdentityBox().length


def main(framework: str, *algorithms: str) -> None:
    for algorithm in algorithms:
        for form in FORMS:
            print(json.dumps([algorithm, form, score(algorithm, framework, form)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
