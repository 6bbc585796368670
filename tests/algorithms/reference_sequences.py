"""The algorithms that learn from sequences, as reference.py has the others: loops over sequences
and their steps, backwards."""

from typing import Any

import torch

from tests.algorithms import reference, reference_critics, reference_crossq, reference_teams
from tests.algorithms.reference import DOUBLE, MEMORIES, Reference, dense, hidden, part
from tests.algorithms.reference_bodies import simba


class Sequences(Reference):
    """Loops over sequences and their steps. Rows are time first: row t * B + i is step t of
    sequence i."""

    def out(self, net: str, obs: torch.Tensor) -> torch.Tensor:
        w = self.nets[net]
        if self.settings.body == "simba":
            h, last = simba(w, obs, len(self.settings.hidden), train=True)
            return torch.cat([dense(w, f"{last}/{n}/0", h) for n in ("policy", "value")], 1)
        if any(k.startswith("0/policy/") for k in w):  # two bodies
            parts = [part(w, f"0/{n}/") for n in ("policy", "value")]
            return torch.cat([dense(p, "3", hidden(p, obs, torch.tanh, 1)) for p in parts], 1)
        h, head = self.features(w, obs)
        return torch.cat([dense(w, f"{head}/{n}/0", h) for n in ("policy", "value")], 1)

    def row(self, b: Any, k: int) -> Any:
        row = super().row(b, k)
        self.extra = row.extra
        return row

    def features(self, w: Any, obs: torch.Tensor) -> tuple[torch.Tensor, str]:
        """What the head sees, and where it is; with a memory step by step."""
        if not self.settings.recurrent:
            return hidden(w, obs, torch.tanh, 1), "3"
        body, cell = part(w, "0/body/"), part(w, "0/cell/")
        x, start = self.over(hidden(body, obs, torch.tanh, 1)), self.over(self.extra["start"])
        (step, head), h, found = MEMORIES[self.settings.memory], self.extra["net_state"], []
        for t in range(len(x)):
            h = step(cell, x[t], torch.where(start[t, :, None] == 1, 0.0, h))
            found.append(h[:, : self.settings.recurrent])
        return torch.cat(found), f"0/head/{head}"

    def over(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(self.settings.rollout + 1, -1, *x.shape[1:])

    def policies(self, out: torch.Tensor) -> torch.distributions.Distribution:
        if self.action.kind == "discrete":
            return torch.distributions.Categorical(logits=out)
        mean, std = out[..., :-1], torch.nn.functional.softplus(out[..., -1:])
        std = torch.sqrt(std.clamp(min=1e-4)).expand_as(mean)
        return torch.distributions.Independent(torch.distributions.Normal(mean, std), 1)

    def settle(
        self, b: Any, loss: torch.Tensor, aux: dict[str, torch.Tensor], out: torch.Tensor
    ) -> Any:
        """Reduces, descends, and gives the metrics with the sequences' priorities."""
        s, weight, valid = self.settings, self.over(b.weight)[:-1], self.over(b.extra["valid"])[:-1]
        total = (loss * weight).sum() / (1.0 if s.reduction == "sum" else valid.sum())
        found = {}
        if s.replay == "prioritized" and s.priority == "error":
            found["priority"] = (aux["error"].abs() * valid).sum(0) / valid.sum(0)
        elif s.replay == "prioritized":
            (slope,) = torch.autograd.grad((loss * valid).sum(), out, retain_graph=True)
            found["priority"] = self.over(slope.abs().sum(1)).sum(0)
        rate, bound = b.settings["learning_rate"], b.settings["max_grad_norm"]
        self.minimize_joint(total, self.weights("net"), rate, bound)
        metrics = {n: (x * valid).sum() / valid.sum() for n, x in aux.items() if n != "error"}
        return {"loss": total, **metrics, **found}

    def back(self, b: Any, step: Any, start: torch.Tensor) -> torch.Tensor:
        """Goes backwards through each sequence: `step(t, i, after)` gives (what is noted for t,
        what the step before sees)."""
        steps, count = self.settings.rollout, start.shape[0]
        noted = torch.zeros(steps, count, **DOUBLE)
        for i in range(count):
            after = start[i]
            for t in reversed(range(steps)):
                noted[t, i], after = step(t, i, after)
        return noted


class A3C(Sequences):
    """Mnih et al. 2016, algorithm S3."""

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        over, s = self.over, self.settings
        out = self.out("net", b.obs)
        policy, value = self.policies(over(out[:, :-1])[:-1]), over(out[:, -1])
        v = value.detach()
        r, gamma, last, cut = map(over, (b.reward, b.discount, b.extra["last"], b.extra["cut"]))

        def step(t: int, i: int, after: Any) -> Any:
            R = v[t, i] if cut[t, i] else r[t, i] + (0.0 if last[t, i] else gamma[t, i] * after)
            return R, R

        error = self.back(b, step, v[-1]) - value[:-1]
        entropy = policy.entropy()
        log_prob = policy.log_prob(over(b.action)[:-1])
        loss = s.value_weight * error**2 - log_prob * error.detach()
        aux = {"value_loss": error**2, "entropy": entropy, "error": error}
        return self.settle(b, loss - b.settings["entropy"] * entropy, aux, out), False


class IMPALA(Sequences):
    """Espeholt et al. 2018, remark 1 (the recursion) and section 4.2."""

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        over, s = self.over, self.settings
        out = self.out("net", b.obs)
        policy, value = self.policies(over(out[:, :-1])[:-1]), over(out[:, -1])
        v = value.detach()
        r, gamma, last, cut = map(over, (b.reward, b.discount, b.extra["last"], b.extra["cut"]))
        log_prob = policy.log_prob(over(b.action)[:-1])
        ratio = torch.exp(log_prob - over(b.extra["log_prob"])[:-1]).detach()
        gain = torch.zeros_like(ratio)

        def step(t: int, i: int, after: Any) -> Any:  # after: (v_{t+1}, V_{t+1})
            reach = 0.0 if last[t, i] else gamma[t, i]
            reward = v[t, i] if cut[t, i] else r[t, i]
            rho, c = min(s.rho, float(ratio[t, i])), min(s.c, float(ratio[t, i]))
            target = v[t, i] + rho * (reward + reach * after[1] - v[t, i])
            target = target + reach * c * (after[0] - after[1])
            gain[t, i] = rho * (reward + reach * after[0] - v[t, i])
            return target, torch.stack([target, v[t, i]])

        error = self.back(b, step, torch.stack([v[-1], v[-1]], 1)) - value[:-1]
        entropy = policy.entropy()
        loss = s.value_weight * error**2 - log_prob * gain - b.settings["entropy"] * entropy
        aux = {"value_loss": error**2, "entropy": entropy, "ratio": ratio, "error": error}
        return self.settle(b, loss, aux, out), False


class ACER(Sequences):
    """Wang et al. 2017, eqs. 5 and 9 (its second term as a sum over all actions), without the trust
    region's projection."""

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        over, s, n = self.over, self.settings, self.action.sizes[0]
        out = self.out("net", b.obs)
        p, q = over(torch.softmax(out[:, :n], 1)), over(out[:, n:])
        p = (p - 1e-6 / n).clamp(min=1e-6)
        r, gamma, last, cut = map(over, (b.reward, b.discount, b.extra["last"], b.extra["cut"]))
        a = over(b.action)
        pi, known, mu = p.detach(), q.detach(), over(b.extra["probabilities"])
        value, ratio = (pi * known).sum(-1), pi / mu

        def step(t: int, i: int, after: Any) -> Any:
            own = known[t, i, a[t, i]]
            target = own if cut[t, i] else r[t, i] + (0.0 if last[t, i] else gamma[t, i] * after)
            return target, min(1.0, float(ratio[t, i, a[t, i]])) * (target - own) + value[t, i]

        target = self.back(b, step, value[-1])
        log_p, a = torch.log(p[:-1]), a[:-1, :, None]
        taken, rho = q[:-1].gather(-1, a)[..., 0], ratio[:-1].gather(-1, a)[..., 0]
        loss = -rho.clamp(max=s.truncation) * (target - value[:-1]) * log_p.gather(-1, a)[..., 0]
        for j in range(n):
            missed = (1 - s.truncation / ratio[:-1, :, j]).clamp(min=0)
            loss = loss - missed * pi[:-1, :, j] * (known[:-1, :, j] - value[:-1]) * log_p[:, :, j]
        entropy, error = -(p[:-1] * log_p).sum(-1), target - taken
        with torch.no_grad():
            average = over(torch.softmax(self.out("net_target", b.obs)[:, :n], 1))[:-1]
            average = (average - 1e-6 / n).clamp(min=1e-6)
        kl = (average * torch.log(average / p[:-1])).sum(-1)
        loss = loss + s.value_weight * error**2 - b.settings["entropy"] * entropy + s.kl * kl
        aux = {"value_loss": error**2, "entropy": entropy, "kl": kl, "ratio": rho, "error": error}
        found = self.settle(b, loss, aux, out)
        self.soft_update(b.settings["average_tau"], "net")
        return found, False


class NStepQ(Sequences):
    """Mnih et al. 2016, algorithm S2, with double targets and dueling streams on halves of the
    features."""

    def out(self, net: str, obs: torch.Tensor) -> torch.Tensor:
        w, obs = self.nets[net], obs["obs"] if isinstance(obs, dict) else obs
        h, at = self.features(w, obs)
        halves = zip(("value", "advantage"), h.chunk(2, 1), strict=True)
        v, a = (dense(w, f"{at}/{n}/2", torch.tanh(dense(w, f"{at}/{n}/1", x))) for n, x in halves)
        return v + a - a.mean(1, keepdim=True)

    def worth(self, q: torch.Tensor, later: torch.Tensor, b: Any) -> torch.Tensor:
        """[T + 1, B]: van Hasselt et al. 2016; of expected SARSA Sutton & Barto 2018, eq. 6.9, one
        state after the other."""
        s, mask = self.settings, None
        if isinstance(b.obs, dict):
            mask = self.over(b.obs["action_mask"])
        found = torch.zeros(q.shape[:2], **DOUBLE)
        for t in range(q.shape[0]):
            for i in range(q.shape[1]):
                may = [k for k in range(q.shape[2]) if mask is None or mask[t, i, k]]
                by = q if s.double else later
                greedy = max(may, key=lambda k: float(by[t, i, k]))
                if s.bootstrap != "expected":
                    found[t, i] = later[t, i, greedy]
                    continue
                for k in may:
                    chance = b.settings["epsilon"] / len(may)
                    chance = chance + (1 - b.settings["epsilon"] if k == greedy else 0.0)
                    found[t, i] += chance * later[t, i, k]
        return found

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        over = self.over
        out = self.out("net", b.obs)
        q = over(out)
        r, gamma, last, cut = map(over, (b.reward, b.discount, b.extra["last"], b.extra["cut"]))
        a = over(b.action)
        with torch.no_grad():
            later = over(self.out("net_target", b.obs))
            best = self.worth(q, later, b)
            taken_later = later.gather(-1, a[..., None])[..., 0]
        sarsa = self.settings.bootstrap == "sarsa"

        def step(t: int, i: int, after: Any) -> Any:
            own = taken_later[t, i] if sarsa else best[t, i]
            ahead = sarsa and t == self.settings.rollout - 1 and not last[t, i]
            if ahead or (cut[t, i] and not sarsa):
                return own, own
            target = r[t, i] + (0.0 if last[t, i] else gamma[t, i] * after)
            return target, target

        taken = q[:-1].gather(-1, a[:-1, :, None])[..., 0]
        error = self.back(b, step, best[-1]) - taken
        loss = torch.where(error.abs() <= 1, error**2 / 2, error.abs() - 0.5)
        found = self.settle(b, loss, {"q": taken, "error": error}, out)
        self.soft_update(b.settings["tau"], "net")
        return found, False


KINDS = reference_teams.KINDS | {
    "a2c": reference.A2C,
    "a3c": A3C,
    "acer": ACER,
    "ddpg": reference.DDPG,
    "dqn": reference.DQN,
    "impala": IMPALA,
    "nstep_q": NStepQ,
    "ppo": reference.PPO,
    "crossq": reference_crossq.CrossQ,
    "crossq xqc": reference_crossq.XQC,
    "pqn": reference.PQN,
    "sac": reference.SAC,
    "sac discrete": reference.DiscreteSAC,
    "sac categorical": reference_critics.CategoricalSAC,
    "sac simbav2": reference_critics.HypersphericalSAC,
    "sac discrete categorical": reference_critics.CategoricalDiscreteSAC,
    "td3": reference.TD3,
    "tqc": reference.TQC,
    "trpo": reference.TRPO,
}
