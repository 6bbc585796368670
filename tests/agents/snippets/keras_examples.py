"""The Keras examples on the engine of this process: losses, and programs for a few episodes."""

import contextlib
import io
import json

import keras
import numpy as np

from tandem.examples.keras import DQN, PPO, PPO_pr
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
    q, following = value(agent.q_net(b["s"])), value(agent.target_q_net(b["next_s"])).max(1)
    wanted = losses.q_learning(q, following, b["a"], b["r"], b["d"])
    return bool(np.allclose(found, wanted, rtol=1e-4))


with contextlib.redirect_stdout(io.StringIO()):
    programs = [module.main(1, episodes=2).total_episode for module in (DQN, PPO, PPO_pr)]
found = {"DQN's loss": dqn_loss(), "programs": programs == [2, 2, 2]}
found |= {"PPO's loss": ppo_loss(PPO), "PPO_pr's loss": ppo_loss(PPO_pr)}
print(json.dumps(found))
