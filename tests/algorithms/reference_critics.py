"""Soft actor-critics whose critics give probabilities of atoms, as reference.py has the others: row
by row and atom by atom."""

from __future__ import annotations

from typing import Any

import torch

from tests.algorithms.reference import SAC, DiscreteSAC, dense, hidden, shared_out

Found = tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]


def atoms(settings: Any) -> torch.Tensor:
    return torch.linspace(settings.v_min, settings.v_max, settings.atoms, dtype=torch.float64)


def lower(p: torch.Tensor, other: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Of two distributions over the atoms that with the smaller mean."""
    return p if (p * z).sum() <= (other * z).sum() else other


class CategoricalSAC(SAC):
    """Lee et al. 2025, section 4.3: the distribution of one critic is the target of both."""

    def logits(self, net: str, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        w = self.nets[net]
        return dense(w, "3", hidden(w, torch.cat([obs, action], 1), torch.relu, 1))

    def q(self, net: str, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return (self.logits(net, obs, action).softmax(-1) * atoms(self.settings)).sum(-1)

    def critics(self, b: Any) -> Found:
        z, targets = atoms(self.settings), []
        with torch.no_grad():
            action, log_prob = self.policy(b.next_obs, b.noise[0])
            both = [self.logits(f"q{i}_target", b.next_obs, action).softmax(-1) for i in (1, 2)]
            for i, (p, other) in enumerate(zip(*both, strict=True)):
                place = b.reward[i] + b.discount[i] * (z - self.alpha.exp() * log_prob[i])
                targets.append(shared_out(lower(p, other, z), place, z))
        own = [self.logits(f"q{i}", b.obs, b.action).log_softmax(-1) for i in (1, 2)]
        losses = [-(torch.stack(targets) * x).sum(-1) for x in own]
        return losses[0] + losses[1], self.q("q1", b.obs, b.action), losses


class CategoricalDiscreteSAC(DiscreteSAC):
    """The same with Christodoulou 2019, eq. 10: distributions of all actions, mixed by the
    policy."""

    def logits(self, net: str, obs: torch.Tensor) -> torch.Tensor:
        return self.out(net, obs).unflatten(1, (-1, self.settings.atoms))

    def q(self, net: str, obs: torch.Tensor) -> torch.Tensor:
        return (self.logits(net, obs).softmax(-1) * atoms(self.settings)).sum(-1)

    def critics(self, b: Any) -> Found:
        z, rows, targets = atoms(self.settings), torch.arange(len(b.action)), []
        with torch.no_grad():
            policy = torch.softmax(self.out("actor", b.next_obs), 1)
            both = [self.logits(f"q{i}_target", b.next_obs).softmax(-1) for i in (1, 2)]
            for i, pi in enumerate(policy):
                target = torch.zeros_like(z)
                for share, p, other in zip(pi, both[0][i], both[1][i], strict=True):
                    soft = z - self.alpha.exp() * torch.log(share)
                    place = b.reward[i] + b.discount[i] * soft
                    target += share * shared_out(lower(p, other, z), place, z)
                targets.append(target)
        own = [self.logits(f"q{i}", b.obs)[rows, b.action].log_softmax(-1) for i in (1, 2)]
        losses = [-(torch.stack(targets) * x).sum(-1) for x in own]
        return losses[0] + losses[1], self.q("q1", b.obs)[rows, b.action], losses
