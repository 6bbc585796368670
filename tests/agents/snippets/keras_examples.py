"""The Keras examples on the engine of this process: their losses, their programs for a few
episodes, and with an argument one learns to the end."""

import contextlib
import io
import json
import sys

import keras
import numpy as np

from tandem.examples.keras import DQN, PPO, PPO_pr
from tandem.exploration import EpsGreedyQPolicy, SoftmaxPolicy
from tests.agents import losses


def value(x):
    return keras.ops.convert_to_numpy(x)


def changed(agent):
    """An agent whose target or old network is another than the one that learns."""
    first = agent.param[0] if isinstance(agent.param[0], list) else agent.param
    for v in first:
        v.assign(v + 0.3 * np.random.default_rng(5).normal(size=v.shape))
    return agent


def ppo_loss(module):
    agent, b = changed(module.PPO(4, 16, 2, 0.2, 0.5)), losses.batch()
    found = [np.mean(value(x)) for x in agent(*map(keras.ops.convert_to_tensor, b.values()))]
    nets = [value(net(b["s"])) for net in (agent.actor, agent.old_actor, agent.critic)]
    each = losses.ppo(*nets, value(agent.critic(b["next_s"])), b["a"], b["r"], b["d"], 0.2, 0.5)
    return bool(np.allclose(found, [x.mean() for x in each], rtol=1e-4, atol=1e-5))


def dqn_loss():
    agent, b = changed(DQN.DQN(4, 16, 2)), losses.batch()
    found = value(agent(*map(keras.ops.convert_to_tensor, b.values())))
    wanted = losses.q_learning(
        value(agent.q_net(b["s"])),
        value(agent.target_q_net(b["next_s"])).max(1),
        b["a"],
        b["r"],
        b["d"],
    )
    return bool(np.allclose(found, wanted, rtol=1e-4))


def ppo_documented(module, **more):
    agent = module.PPO(4, 128, 2, 0.7, 0.7)
    agent.set(
        policy=SoftmaxPolicy(), pool_size=10000, batch=64, update_steps=1000, PPO=True, **more
    )
    optimizer = [keras.optimizers.Adam(1e-4), keras.optimizers.Adam(5e-3)]
    agent.train(keras.metrics.Mean(name="train_loss"), optimizer, 70, pool_network=False)
    return agent._assembly.learner.updates >= 150 and bool(np.isfinite(agent.loss_list[-1]))


def dqn_documented():
    agent = DQN.DQN(4, 128, 2)
    agent.set(policy=EpsGreedyQPolicy(0.01), pool_size=10000, batch=64, update_steps=10)
    agent.train(
        keras.metrics.Mean(name="train_loss"), keras.optimizers.Adam(), 10, pool_network=False
    )
    return agent.total_episode == 10 and agent.loss > 0


with contextlib.redirect_stdout(io.StringIO()):
    if sys.argv[1:]:
        found = {"PPO": PPO, "PPO_pr": PPO_pr, "DQN": DQN}[sys.argv[1]].main(0).average_reward()
    else:
        found = {
            "DQN's loss": dqn_loss(),
            "PPO's loss": ppo_loss(PPO),
            "PPO_pr's loss": ppo_loss(PPO_pr),
            "DQN as documented": dqn_documented(),
            "PPO as documented": ppo_documented(PPO),
            "PPO_pr": ppo_documented(PPO_pr, PR=True),
            "programs": all(
                module.main(1, episodes=2).total_episode == 2 for module in (DQN, PPO, PPO_pr)
            ),
        }
print(json.dumps(found))
