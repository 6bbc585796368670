"""An agent of one's own: DDPG (Lillicrap et al. 2016, arXiv:1509.02971) in torch, on Pendulum.

All that the cluster asks of it is `choose_action` and `update`. With --no-sync another process
acts, by the parameters that the agent handed over last; with --no-sync --act local each runner does
so itself.

python -m tandem.examples.cluster.own_agent [--runners 4 | --local] [--no-sync [--act local]]
"""

from __future__ import annotations

import argparse
import copy
import itertools
import random
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from tandem.cluster import Agent, Cluster, Runner
from tandem.examples.cluster.common import main, parser, report

cluster = Cluster()


def network(inputs: int, hidden: list[int], outputs: int, *last: nn.Module) -> nn.Module:
    sizes = [inputs, *hidden]
    layers = [x for pair in itertools.pairwise(sizes) for x in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], outputs), *last)


class DDPGAgent(Agent):
    seed: int
    state_dim: int
    action_dim: int
    max_action: float
    net_dims: list[int]
    lr_a: float
    lr_c: float
    gamma: float
    tau: float
    batch_size: int
    buffer_size: int
    learning_starts: int

    def __init__(self, sync: bool = True, **kwargs: Any) -> None:
        super().__init__(sync, **kwargs)  # which become attributes: self.net_dims, ...
        torch.manual_seed(self.seed)
        self.actor = network(self.state_dim, self.net_dims, self.action_dim, nn.Tanh())
        self.critic = network(self.state_dim + self.action_dim, self.net_dims, 1)
        self.targets = nn.ModuleList(copy.deepcopy([self.actor, self.critic])).requires_grad_(False)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=self.lr_a)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=self.lr_c)
        self.replay_buffer: deque[torch.Tensor] = deque(maxlen=self.buffer_size)
        self.rng = random.Random(self.seed)

    @torch.no_grad()
    def choose_action(self, state: Any) -> Any:
        return self.max_action * self.actor(torch.as_tensor(state)).numpy()

    def update(self, *transition: Any) -> None:
        self.replay_buffer.append(torch.as_tensor(np.hstack(transition), dtype=torch.float32))
        if len(self.replay_buffer) < self.learning_starts:
            return
        batch = torch.stack(self.rng.sample(self.replay_buffer, self.batch_size))
        s, a, r, s2, done = batch.split([self.state_dim, self.action_dim, 1, self.state_dim, 1], 1)
        actor, critic = self.targets
        with torch.no_grad():
            target = r + self.gamma * (1 - done) * critic(
                torch.cat([s2, self.max_action * actor(s2)], 1)
            )
        self.descend(
            self.critic_optimizer, ((self.critic(torch.cat([s, a], 1)) - target) ** 2).mean()
        )
        self.descend(
            self.actor_optimizer,
            -self.critic(torch.cat([s, self.max_action * self.actor(s)], 1)).mean(),
        )
        for old, new in zip(
            self.targets.parameters(),
            [*self.actor.parameters(), *self.critic.parameters()],
            strict=True,
        ):
            old.lerp_(new, self.tau)

    def descend(self, optimizer: Any, loss: Any) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class GymRunner(Runner):
    def __init__(self, args: argparse.Namespace, local_rank: int = 0) -> None:
        super().__init__(args, local_rank)
        self.env = gymnasium.make(args.env)
        self.env.reset(seed=args.seed + self.rank)
        self.rng = np.random.default_rng([args.seed, self.rank])
        dims = {
            "state_dim": self.env.observation_space.shape[0],
            "action_dim": self.env.action_space.shape[0],
        }
        for name, value in {**dims, "max_action": float(self.env.action_space.high[0])}.items():
            setattr(args, name, value)
        if self.rank == 0:
            # with args.sync
            cluster.make_agent(name="own_agent", agent_class=DDPGAgent, **vars(args))
        self.agent = cluster.get_agent("own_agent", act=args.act)

    def run(self) -> list[float]:
        returns: list[float] = []
        limit = self.args.max_action
        for _ in range(self.args.steps // self.args.runners // self.args.max_step):
            state, total = self.env.reset()[0], 0.0
            for _ in range(self.args.max_step):
                noise = self.args.noise * self.rng.standard_normal(self.args.action_dim)
                action = np.clip(self.agent.choose_action(state) + noise, -limit, limit)
                next_state, reward, done, truncated, _ = self.env.step(action)
                self.agent.update(state, action, reward, next_state, done)
                state, total = next_state, total + float(reward)
                if done or truncated:
                    break
            returns.append(total)
            report(self.rank, returns)
        return returns


def settings(*argv: str) -> Any:
    flags = parser(__doc__, env="Pendulum-v1", steps=15_000)
    flags.set_defaults(act="remote")
    flags.add_argument(
        "--net_dims", type=int, nargs="+", default=[64, 64], help="units of the hidden layers"
    )
    flags.add_argument("--lr_a", type=float, default=1e-3, help="learning rate of the actor")
    flags.add_argument("--lr_c", type=float, default=1e-3, help="learning rate of the critic")
    flags.add_argument("--gamma", type=float, default=0.98)
    flags.add_argument(
        "--tau", type=float, default=0.005, help="soft update coefficient of the targets"
    )
    flags.add_argument(
        "--noise",
        type=float,
        default=0.3,
        help="standard deviation of the exploration noise, in units of torque",
    )
    flags.add_argument("--batch_size", type=int, default=128)
    flags.add_argument("--buffer_size", type=int, default=100_000)
    flags.add_argument(
        "--learning_starts", type=int, default=1_000, help="steps before the first update"
    )
    flags.add_argument("--max_step", type=int, default=200, help="maximum episode length")
    return flags.parse_args(argv or None)


if __name__ == "__main__":
    main(cluster, GymRunner, settings())
