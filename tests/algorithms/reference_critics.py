"""Soft actor-critics whose critics give probabilities of atoms, as reference.py has the others: row
by row and atom by atom."""

from typing import Any

import torch

from tests.algorithms.reference import SAC, DiscreteSAC, shared_out, squashed
from tests.algorithms.reference_bodies import simbav2

Found = tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]


def atoms(settings: Any) -> torch.Tensor:
    return torch.linspace(settings.v_min, settings.v_max, settings.atoms, dtype=torch.float64)


def lower(p: torch.Tensor, other: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Of two distributions over the atoms that with the smaller mean."""
    return p if (p * z).sum() <= (other * z).sum() else other


class CategoricalSAC(SAC):
    """Lee et al. 2025, section 4.3: the distribution of one critic is the target of both."""

    def q(self, net: str, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return (self.judged(net, obs, action).softmax(-1) * atoms(self.settings)).sum(-1)

    def critics(self, b: Any) -> Found:
        z, targets = atoms(self.settings), []
        with torch.no_grad():
            action, log_prob = self.policy(b.next_obs, b.noise[0])
            both = [self.judged(f"q{i}_target", b.next_obs, action).softmax(-1) for i in (1, 2)]
            for i, (p, other) in enumerate(zip(*both, strict=True)):
                place = b.reward[i] + b.discount[i] * (z - self.alpha.exp() * log_prob[i])
                targets.append(shared_out(lower(p, other, z), place, z))
        own = [self.judged(f"q{i}", b.obs, b.action).log_softmax(-1) for i in (1, 2)]
        losses = [-(torch.stack(targets) * x).sum(-1) for x in own]
        return losses[0] + losses[1], (own[0].exp() * z).sum(-1), losses


class HypersphericalSAC(CategoricalSAC):
    """Lee et al. 2025, section 4: its networks, and weights of unit length after each step."""

    now: Any = None  # the batch under way

    def row(self, b: Any, k: int) -> Any:
        self.now = super().row(b, k)
        return self.now

    def policy(self, obs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        blocks = len(self.settings.hidden)
        out = simbav2(self.nets["actor"], obs, blocks, obs is self.now.obs)
        mean, log_std = out.chunk(2, 1)
        return squashed(mean, torch.exp(log_std.clamp(-20, 2)), noise)

    def judged(self, net: str, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        learns = action is self.now.action  # the actor's loss asks about other actions
        blocks, x = len(self.settings.critic_hidden), torch.cat([obs, action], 1)
        return simbav2(self.nets[net], x, blocks, learns)

    def minimize_joint(self, loss: Any, weights: Any, rate: Any, clip: Any = None) -> None:
        super().minimize_joint(loss, weights, rate, clip)
        project(self.nets, weights)


def project(nets: dict[str, dict[str, torch.Tensor]], moved: list[torch.Tensor]) -> None:
    """Each unit's weights to length 1, where a step has moved them."""
    with torch.no_grad():
        for w in nets.values():
            for kernel in (x for n, x in w.items() if n.endswith("unit_kernel")):
                if any(kernel is x for x in moved):
                    kernel.copy_(torch.stack([v / torch.sqrt((v**2).sum()) for v in kernel.T], 1))


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
