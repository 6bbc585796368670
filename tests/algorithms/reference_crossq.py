"""CrossQ once more, straight from its paper and from that of batch renormalisation."""

from typing import Any

import torch

from tests.algorithms.reference import DOUBLE, SAC, dense, part, shared_out, squashed
from tests.algorithms.reference_critics import atoms, lower, project


class CrossQ(SAC):
    """Bhatt et al. 2024, section 3."""

    updates = 0

    def renormalized(self, net: str, place: str, x: torch.Tensor, train: bool) -> torch.Tensor:
        """Ioffe 2017, algorithm 1, feature by feature."""
        w = part(self.nets[net], f"{place}/")
        mean, variance = w["moving_mean"], w["moving_variance"]
        columns = []
        for i, column in enumerate(x.T):
            scale, bias = w["scale"][i], w["bias"][i]
            moving = torch.sqrt(variance[i] + 1e-3).detach()
            if not train:
                columns.append(scale * (column - mean[i].detach()) / moving + bias)
                continue
            batch = torch.sqrt(column.var(correction=0) + 1e-3)
            r, d = 1.0, 0.0
            if w["moving_count"][0] >= self.settings.renorm_warmup:
                r = min(max((batch / moving).item(), 1 / 3), 3)
                d = min(max(((column.mean() - mean[i]) / moving).item(), -5), 5)
            columns.append(scale * ((column - column.mean()) / batch * r + d) + bias)
        if train:
            keep, most = self.settings.renorm_momentum, self.settings.renorm_warmup
            with torch.no_grad():
                mean.copy_(keep * mean + (1 - keep) * x.mean(0))
                variance.copy_(keep * variance + (1 - keep) * x.var(0, correction=0))
                w["moving_count"].copy_((w["moving_count"] + 1).clamp(max=most))
        return torch.stack(columns, 1)

    def out(self, net: str, x: torch.Tensor, train: bool) -> torch.Tensor:
        w, x = self.nets[net], self.renormalized(net, "1", x, train)
        for place in (2, 4):
            hidden = torch.relu(self.dense(w, str(place), x))
            x = self.renormalized(net, str(place + 1), hidden, train)
        return dense(w, "6", x)

    def dense(self, w: dict[str, torch.Tensor], place: str, x: torch.Tensor) -> torch.Tensor:
        return dense(w, place, x)

    def q(self, net: str, x: torch.Tensor) -> torch.Tensor:
        return self.out(net, x, False)[:, 0]

    def sampled(
        self, obs: torch.Tensor, noise: torch.Tensor, train: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = self.out("actor", obs, train).chunk(2, 1)
        return squashed(mean, torch.exp(log_std.clamp(-20, 2)), noise)

    def drawn(self, obs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.sampled(obs, noise, False)

    def erring(self, b: Any, both: list[torch.Tensor], log_prob: torch.Tensor) -> Any:
        """Of what the critics say [2 B, 1] of the steps and of what followed: the losses, the first
        one's values, and the errors of each."""
        rows, (q1, q2) = len(b.reward), (x[:, 0] for x in both)
        later = torch.minimum(q1[rows:], q2[rows:]).detach()
        y = (self.rewards(b) + b.discount * (later - self.alpha.exp() * log_prob)).detach()
        errors = [q1[:rows] - y, q2[:rows] - y]
        return (errors[0] ** 2 + errors[1] ** 2) / 2, q1[:rows], errors

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        rate = b.settings["learning_rate"]
        if self.alpha is None:
            self.alpha = torch.tensor(1.0, **DOUBLE).log().requires_grad_(True)
        self.updates += 1
        with torch.no_grad():
            action, log_prob = self.sampled(b.next_obs, b.noise[0], False)
        inputs = torch.cat([torch.cat([b.obs, b.action], 1), torch.cat([b.next_obs, action], 1)])
        losses, q, errors = self.erring(
            b, [self.out(f"q{i}", inputs, True) for i in (1, 2)], log_prob
        )
        critic = (b.weight * losses).mean()
        self.minimize_joint(critic, self.weights("q1", "q2"), rate)
        metrics = {"critic_loss": critic, "q": q.mean()}
        actor = entropy = torch.tensor(torch.nan)
        if self.updates % self.settings.policy_delay == 0:
            action, log_prob = self.sampled(b.obs, b.noise[1], True)
            inputs = torch.cat([b.obs, action], 1)
            q = torch.minimum(*(self.q(f"q{i}", inputs) for i in (1, 2)))
            actor = (b.weight * (self.alpha.exp().detach() * log_prob - q)).mean()
            self.minimize_joint(actor, self.weights("actor"), rate)
            aim = log_prob.detach() - b.action.shape[1]
            self.minimize_joint((b.weight * -self.alpha * aim).mean(), [self.alpha], rate)
            entropy = -log_prob.mean()
        metrics |= self.priority(*errors)
        metrics |= {"actor_loss": actor, "entropy": entropy, "temperature": self.alpha.exp()}
        return metrics, False


class XQC(CrossQ):
    """Palenicek et al. 2025: hidden layers of weights that have length 1 and no bias, and atoms."""

    def dense(self, w: dict[str, torch.Tensor], place: str, x: torch.Tensor) -> torch.Tensor:
        kernel = f"{place}/unit_kernel"
        return x @ w[kernel] if kernel in w else dense(w, place, x)

    def q(self, net: str, x: torch.Tensor) -> torch.Tensor:
        return (self.out(net, x, False).softmax(-1) * atoms(self.settings)).sum(-1)

    def minimize_joint(self, loss: Any, weights: Any, rate: Any, clip: Any = None) -> None:
        super().minimize_joint(loss, weights, rate, clip)
        project(self.nets, weights)

    def erring(self, b: Any, both: list[torch.Tensor], log_prob: torch.Tensor) -> Any:
        z, rows, targets = atoms(self.settings), len(b.reward), []
        for i in range(rows):
            p, other = (x[rows + i].softmax(-1).detach() for x in both)
            place = b.reward[i] + b.discount[i] * (z - self.alpha.exp().detach() * log_prob[i])
            targets.append(shared_out(lower(p, other, z), place, z))
        own = [x[:rows].log_softmax(-1) for x in both]
        losses = [-(torch.stack(targets) * x).sum(-1) for x in own]
        return losses[0] + losses[1], (own[0].exp() * z).sum(-1), losses
