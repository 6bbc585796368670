"""Algorithms that replay sequences once more, step by step: see `reference`. Kapturowski et al.
2019 (R2D2), sections 2.3 and 3; Ni et al. 2022 for where the action enters."""

from typing import Any

import torch

from tests.algorithms import reference
from tests.algorithms.reference import MEMORIES, Reference, dense, hidden, part

NOW, THEN = "now", "then"  # stand for the observations of the steps, and for what followed them


class Memory(Reference):
    """Gives an algorithm's reference rows, and the states that its networks had at each of them."""

    steps: Any = None  # the sequences of the update under way, [S, burn_in + L, ...]

    def states(self, net: str, which: Any) -> torch.Tensor:
        """What the memory puts out [L * S, units], step after step, by the weights of now."""
        b, w, (step, _) = self.steps, self.nets[net], MEMORIES[self.settings.memory]
        body, cell = part(w, "0/body/"), part(w, "0/cell/")
        h, found = b.extra[f"{net.removesuffix('_target')}_state"], []

        def after(obs: Any, t: int, h: torch.Tensor) -> torch.Tensor:
            x = (obs["obs"] if isinstance(obs, dict) else obs)[:, t]
            return step(cell, hidden(body, x, torch.relu, 1), h)

        for t in range(b.reward.shape[1]):
            h = torch.where(b.extra["start"][:, t, None] == 1, 0.0, h)
            if t < self.settings.burn_in:
                h = after(b.obs, t, h).detach()
                continue
            h = after(b.obs, t, h)
            found.append(h if which == NOW else after(b.next_obs, t, h))
        return torch.cat(found)[:, : self.settings.recurrent]

    @property
    def place(self) -> str:
        """Where the head of an actor or of values begins."""
        return MEMORIES[self.settings.memory][1]

    def reached(self, b: Any) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
        """Rewards and discounts of n steps, and at which row each window ends; rows are step after
        step."""
        length, count = b.reward.shape[1] - self.settings.burn_in, len(b.reward)
        rewards, discounts, ends = [], [], []
        for t in range(length):
            for s in range(count):
                total, product, at = 0.0, 1.0, t + self.settings.burn_in
                for _ in range(self.settings.n_step):
                    total = total + product * b.reward[s, at]
                    product = product * b.discount[s, at]
                    at += 1
                    if at == b.reward.shape[1] or b.extra["start"][s, at]:
                        break
                rewards.append(total)
                discounts.append(product)
                ends.append((at - 1 - self.settings.burn_in) * count + s)
        return torch.stack(rewards), torch.stack(discounts), ends

    def rows(self, b: Any) -> Any:
        """The batch as rows; what is seen there is looked up in the sequences."""
        flat = lambda x: x[:, self.settings.burn_in :].transpose(0, 1).flatten(0, 1)  # noqa: E731
        whole = lambda x: x.transpose(0, 1).flatten(0, 1)  # noqa: E731
        noise = tuple(map(whole, b.noise)) if isinstance(b.noise, tuple) else whole(b.noise)
        reward, discount, self.ends = self.reached(b)
        obs, next_obs = NOW, THEN
        if isinstance(b.obs, dict):
            obs, next_obs = (
                {"obs": name, "action_mask": flat(x["action_mask"])[at]}
                for name, x, at in ((NOW, b.obs, slice(None)), (THEN, b.next_obs, self.ends))
            )
        b = b._replace(action=flat(b.action), weight=flat(b.weight), noise=noise)
        return b._replace(obs=obs, next_obs=next_obs, reward=reward, discount=discount)

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        self.steps = b
        found, stopped = super().update(self.rows(b))
        if "priority" in found:
            size = found["priority"].abs().reshape(-1, len(b.reward))
            eta = self.settings.priority_eta
            largest = torch.stack([max(x) for x in size.T])
            found["priority"] = eta * largest + (1 - eta) * size.mean(0)
        return found, stopped


class DQN(Memory, reference.DQN):
    def spread(self, net: str, obs: Any, tau: Any = None) -> torch.Tensor:
        which = obs["obs"] if isinstance(obs, dict) else obs
        x = self.numbers(part(self.nets[net], "0/head/"), self.place, self.states(net, which))
        return x if which == NOW else x[self.ends]


class Continuous(Memory):
    """Policies over real numbers, and critics whose action enters behind the memory."""

    def head(self, net: str, which: str) -> torch.Tensor:
        return dense(part(self.nets[net], "0/head/"), self.place, self.states(net, which))

    def judged(self, net: str, which: str, action: torch.Tensor) -> torch.Tensor:
        w = part(self.nets[net], "0/head/")
        x = torch.cat([self.states(net, which), action], 1)
        return dense(w, "1", torch.relu(dense(w, "0", x)))

    def q(self, net: str, which: str, action: torch.Tensor) -> torch.Tensor:
        found = self.judged(net, which, action)[:, 0]
        return found if which == NOW else found[self.ends]


class SAC(Continuous, reference.SAC):
    def policy(self, which: str, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = self.head("actor", which).chunk(2, 1)
        return reference.squashed(mean, torch.exp(log_std.clamp(-20, 2)), noise)


class TQC(SAC, reference.TQC):
    pass


class DiscreteSAC(Memory, reference.DiscreteSAC):
    def out(self, net: str, which: str) -> torch.Tensor:
        return dense(part(self.nets[net], "0/head/"), self.place, self.states(net, which))


class DDPG(Continuous, reference.DDPG):
    def policy(self, net: str, which: str) -> torch.Tensor:
        return torch.tanh(self.head(net, which))


class TD3(Continuous, reference.TD3):
    def policy(self, net: str, which: str) -> torch.Tensor:
        return torch.tanh(self.head(net, which))


KINDS = {
    "ddpg": DDPG,
    "dqn": DQN,
    "sac": SAC,
    "sac discrete recurrent": DiscreteSAC,
    "td3": TD3,
    "tqc": TQC,
}
