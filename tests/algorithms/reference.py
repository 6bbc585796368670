"""Every algorithm once more, straight from their papers: float64, torch's autograd and plain loops
over named weights, and nothing of tandem's ops, losses, distributions, networks or backends. Slow,
and meant to be read beside the papers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Weights = dict[str, torch.Tensor]
DOUBLE = {"dtype": torch.float64}


def tensor(x: Any) -> torch.Tensor:
    x = torch.as_tensor(np.asarray(x))
    return x.to(torch.float64) if x.is_floating_point() else x


class Reference:
    """Weights of every network by name, and `updates(batches)`, which moves them as the paper
    says."""

    def __init__(self, weights: dict[str, dict[str, Any]], settings: Any) -> None:
        self.nets = {
            n: {k: tensor(v).requires_grad_(True) for k, v in w.items()} for n, w in weights.items()
        }
        self.settings = settings

    def run(self, b: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for k in range(len(b.settings["learning_rate"])):
            row = self.row(b, k)
            for name in [n for n in row.settings if n.startswith("noise/")]:
                _, net, weight = name.split("/", 2)
                self.nets[net][weight] = row.settings[name]
            metrics, stopped = self.update(row)
            for name, value in metrics.items():
                found.setdefault(name, []).append(value.detach().numpy())
            if stopped:
                found["applied"] = [k]
                break
        return found

    def row(self, b: Any, k: int) -> Any:
        pick = lambda x: {n: pick(v) for n, v in x.items()} if isinstance(x, dict) else tensor(x[k])  # noqa: E731
        noise = tuple(pick(x) for x in b.noise) if isinstance(b.noise, tuple) else pick(b.noise)
        fields = {
            n: pick(x) for n, x in b._asdict().items() if n != "noise" and not isinstance(x, tuple)
        }
        return b._replace(noise=noise, **fields)

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        raise NotImplementedError

    def minimize_joint(
        self, loss: torch.Tensor, weights: list[torch.Tensor], rate: torch.Tensor, clip: Any = None
    ) -> None:
        grads = torch.autograd.grad(loss, weights)
        norm = torch.sqrt(sum((g * g).sum() for g in grads))
        scale = 1.0 if clip is None or norm <= clip else clip / norm
        with torch.no_grad():
            for w, g in zip(weights, grads, strict=True):
                w -= rate * scale * g

    def priority(self, *errors: torch.Tensor) -> dict[str, torch.Tensor]:
        """The mean size of critics' errors, where transitions are drawn by it."""
        if not self.settings.prioritized:
            return {}
        return {"priority": torch.stack([e.abs() for e in errors]).mean(0).detach()}

    def soft_update(self, tau: torch.Tensor, *nets: str) -> None:
        with torch.no_grad():
            for net in nets:
                for k, w in self.nets[f"{net}_target"].items():
                    if not k.endswith("_noise"):
                        w.copy_(tau * self.nets[net][k] + (1 - tau) * w)

    def seen(self, w: Weights, place: str, obs: torch.Tensor) -> torch.Tensor:
        """Standardised by a network's statistics, where the settings say so."""
        if not self.settings.normalize_observations:
            return obs
        mean, variance = w[f"{place}/mean"].detach(), w[f"{place}/variance"].detach()
        return ((obs - mean) / torch.sqrt(variance + 1e-8)).clamp(-10, 10)

    def weights(self, *names: str) -> list[torch.Tensor]:
        return [
            w
            for n in names
            for k, w in self.nets[n].items()
            if not (k.endswith(("/mean", "/variance", "_noise")) or "/moving_" in k)
        ]


def part(w: Weights, place: str) -> Weights:
    """The weights there, by their names behind it."""
    return {n.removeprefix(place): x for n, x in w.items() if n.startswith(place)}


def dense(w: Weights, place: str, x: torch.Tensor) -> torch.Tensor:
    kernel, bias = w[f"{place}/kernel"], w[f"{place}/bias"]
    if f"{place}/kernel_sigma" in w:  # Fortunato et al. 2018, eq. 9
        kernel = kernel + w[f"{place}/kernel_sigma"] * w[f"{place}/kernel_noise"]
        bias = bias + w[f"{place}/bias_sigma"] * w[f"{place}/bias_noise"]
    if f"{place}/scale" in w:  # Salimans & Kingma 2016, eq. 2
        columns = zip(w[f"{place}/scale"], kernel.T, strict=True)
        kernel = torch.stack([g * v / torch.sqrt((v**2).sum()) for g, v in columns], 1)
    return x @ kernel + bias


def hidden(
    w: Weights, x: torch.Tensor, activation: Callable[[torch.Tensor], torch.Tensor], first: int
) -> torch.Tensor:
    """Two layers, each normalized over its outputs where there are weights for it (Ba et al.
    2016)."""
    for place in (first, first + (3 if normed(w, first) else 1)):
        x = dense(w, str(place), x)
        if normed(w, place):
            x = (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, False, keepdim=True) + 1e-5)
            x = x * w[f"{place + 1}/scale"] + w[f"{place + 1}/bias"]
        x = activation(x)
    return x


def mlp(w: Weights, *inputs: torch.Tensor) -> torch.Tensor:
    return dense(w, "3", hidden(w, torch.cat(inputs, 1), torch.relu, 1))


def normed(w: Weights, place: int) -> bool:
    return f"{place + 1}/scale" in w and f"{place + 1}/kernel" not in w


def head(w: Weights, first: int = 1) -> str:
    """The place behind such layers."""
    return str(first + (6 if normed(w, first) else 2))


def gru(w: Weights, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """One step (Cho et al. 2014, v1; z keeps the old state)."""
    (xz, xr, xn), (hz, hr, hn) = (
        (y @ w[name] + w["bias"][i]).chunk(3, 1)
        for i, (name, y) in enumerate((("kernel", x), ("recurrent", h)))
    )
    z, r = 1 / (1 + torch.exp(-xz - hz)), 1 / (1 + torch.exp(-xr - hr))
    return z * h + (1 - z) * torch.tanh(xn + r * hn)


def lstm(w: Weights, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """One step (Gers et al. 2000, without peepholes) from the output and the cell to those after
    it, side by side."""
    y, c = h.chunk(2, 1)
    i, f, g, o = (x @ w["kernel"] + y @ w["recurrent"] + w["bias"]).chunk(4, 1)
    c = c / (1 + torch.exp(-f)) + torch.tanh(g) / (1 + torch.exp(-i))
    return torch.cat([torch.tanh(c) / (1 + torch.exp(-o)), c], 1)


MEMORIES = {"gru": (gru, "0"), "lstm": (lstm, "1")}  # a step; where the head begins


class DQN(Reference):
    """Mnih et al. 2015, algorithm 1; van Hasselt et al. 2016, eq. 4; Wang et al. 2016, eq. 9;
    Schaul et al. 2016, alg. 1."""

    def q(self, net: str, obs: Any) -> torch.Tensor:
        """Of what is forbidden, the values are lower than any (Huang & Ontañón 2022)."""
        if isinstance(obs, dict):
            return self.q(net, obs["obs"]).masked_fill(obs["action_mask"] == 0, -torch.inf)
        return self.mean(self.spread(net, obs))

    def spread(self, net: str, obs: Any, tau: Any = None) -> torch.Tensor:
        """[rows, choices, numbers]; of implicit values one at each of the fractions tau."""
        if isinstance(obs, dict):
            obs = obs["obs"]
        s, w = self.settings, self.nets[net]
        if s.values == "implicit":
            if tau is None:  # those that it acts by
                count = s.acting_fractions
                tau = (torch.arange(count, dtype=torch.float64) + 0.5).expand(len(obs), -1) / count
            psi = torch.relu(dense(w, "0/obs/1", obs))
            return torch.stack([self.at(w, psi, t)[..., 0] for t in tau.T], -1)
        h = hidden(w, obs, torch.relu, 1)
        return self.numbers(w, "3", h)

    def at(self, w: Weights, psi: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
        """Dabney et al. 2018b, section 3.1 and eq. 4, at one fraction of each row."""
        cosines = torch.stack([torch.cos(torch.pi * i * tau) for i in range(self.settings.cosines)])
        x = psi * torch.relu(dense(w, "0/fractions/1", cosines.T))
        if self.settings.dueling:
            return self.numbers(w, "1", x)
        return self.numbers(w, "2", torch.relu(dense(w, "1", x)))

    def numbers(self, w: Weights, place: str, h: torch.Tensor) -> torch.Tensor:
        s = self.settings
        each = {"categorical": s.atoms, "quantile": s.quantiles}.get(s.values, 1)
        if not s.dueling:
            return dense(w, place, h).unflatten(1, (-1, each))
        inner = {n: torch.relu(dense(w, f"{place}/{n}/0", h)) for n in ("value", "advantage")}
        v, a = (dense(w, f"{place}/{n}/1", x).unflatten(1, (-1, each)) for n, x in inner.items())
        return v + (a - a.mean(1, keepdim=True))

    def atoms(self) -> torch.Tensor:
        s = self.settings
        return torch.linspace(s.v_min, s.v_max, s.atoms, dtype=torch.float64)

    def mean(self, x: torch.Tensor) -> torch.Tensor:
        if self.settings.values == "categorical":
            return (x.softmax(-1) * self.atoms()).sum(-1)
        return x.mean(-1)

    def distributed(self, b: Any, later: torch.Tensor) -> torch.Tensor:
        """Bellemare et al. 2017, algorithm 1, with its loop; Dabney et al. 2018, algorithm 1, and
        2018b, eq. 3. later: [rows, numbers], of the next states."""
        rows, tau = torch.arange(len(b.action)), b.noise[0] if b.noise else None
        now, losses = self.spread("q", b.obs, tau)[rows, b.action], []
        for k, (r, d, x, y) in enumerate(zip(b.reward, b.discount, now, later, strict=True)):
            if self.settings.values != "categorical":
                n, loss, kappa = len(x), 0.0, self.settings.kappa
                for i in range(n):
                    u = r + d * y - x[i]
                    error = torch.where(u.abs() <= kappa, u**2 / 2, kappa * (u.abs() - kappa / 2))
                    at = (2 * i + 1) / (2 * n) if tau is None else tau[k, i]
                    loss += (at - (u < 0).double()).abs().mul(error / kappa).mean()
                losses.append(loss)
                continue
            z = self.atoms()
            m = shared_out(y.softmax(0), r + d * z, z)
            losses.append(-(m * x.log_softmax(0)).sum())
        return torch.stack(losses)

    def munchausen(self, b: Any, later: torch.Tensor, then: torch.Tensor) -> tuple[Any, Any]:
        """Vieillard et al. 2020, eq. 2 and section 4, row by row and choice by choice: the batch
        with other rewards, and what is said of the next states under the policy there."""
        s, now, rewards, found = self.settings, self.q("q_target", b.obs), [], []
        t = s.munchausen_temperature
        for k, action in enumerate(b.action):
            log_pi = now[k, action] / t - torch.logsumexp(now[k] / t, 0)
            bonus = (t * log_pi).clamp(s.munchausen_clip, 0.0)
            rewards.append(b.reward[k] + s.munchausen_alpha * bonus)
            mean = torch.zeros(then.shape[-1], dtype=torch.float64)
            for q, z in zip(later[k], then[k], strict=True):
                if q > -torch.inf:
                    log_pi = q / t - torch.logsumexp(later[k] / t, 0)
                    mean += log_pi.exp() * (z - t * log_pi)
            found.append(mean)
        return b._replace(reward=torch.stack(rewards)), torch.stack(found)

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        rows, s = torch.arange(len(b.action)), self.settings
        with torch.no_grad():
            later = self.q("q_target", b.next_obs)
            then = self.spread("q_target", b.next_obs, b.noise[1] if b.noise else None)
            if s.munchausen:
                b, then = self.munchausen(b, later, then)
            else:
                best = (self.q("q", b.next_obs) if s.double else later).argmax(1)
                then = then[rows, best]
        if s.values == "scalar":
            delta = b.reward + b.discount * then[:, 0] - self.q("q", b.obs)[rows, b.action]
            error = torch.where(delta.abs() <= 1, delta**2 / 2, delta.abs() - 0.5)
        else:
            error = delta = self.distributed(b, then)
        loss = (b.weight * error).sum() / len(rows)
        rate, norm = b.settings["learning_rate"], b.settings["max_grad_norm"]
        self.minimize_joint(loss, self.weights("q"), rate, norm)
        self.soft_update(b.settings["tau"], "q")
        return {"loss": loss} | ({"priority": delta} if self.settings.prioritized else {}), False


def shared_out(p: torch.Tensor, places: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """Bellemare et al. 2017, algorithm 1: probabilities at any places, over the atoms z."""
    m = torch.zeros(len(z), dtype=torch.float64)
    for share, place in zip(p, places.clamp(z[0], z[-1]), strict=True):
        at = (place - z[0]) / (z[1] - z[0])
        low, high = at.floor(), at.ceil()
        if low == high:
            m[int(low)] += share
        else:
            m[int(low)] += share * (high - at)
            m[int(high)] += share * (at - low)
    return m


def flat(x: Any) -> Any:
    return {n: flat(y) for n, y in x.items()} if isinstance(x, dict) else x.flatten(0, 1)


def in_rows(b: Any) -> Any:
    """The steps of sequences, one behind the other; each has but one first state."""
    extra = {n: x if n.endswith("_state") else flat(x) for n, x in b.extra.items()}
    return b._replace(obs=flat(b.obs), action=flat(b.action), weight=flat(b.weight), extra=extra)


class PPO(Reference):
    """Schulman et al. 2017, eqs. 7 and 9; Schulman 2020 for the divergence."""

    action: Any = None
    extra: Any = None  # of the batch under way

    def row(self, b: Any, k: int) -> Any:
        row = super().row(b, k)
        self.extra = row.extra
        return in_rows(row) if getattr(self.settings, "recurrent", 0) else row

    def memory(self, net: str, features: torch.Tensor) -> torch.Tensor:
        """What the head says after each step of sequences one after the other."""
        w = {k[7:]: x for k, x in self.nets[net].items() if "/cell/" in k}
        h, (step, head) = self.extra[f"{net}_state"], MEMORIES[self.settings.memory]
        start = self.extra["start"]
        x, found = features.reshape(*start.shape, -1), []
        for t in range(start.shape[1]):
            h = step(w, x[:, t], torch.where(start[:, t, None] == 1, 0.0, h))
            found.append(h[:, : self.settings.recurrent])
        return dense(self.nets[net], f"0/head/{head}", torch.stack(found, 1).flatten(0, 1))

    @property
    def shared(self) -> bool:
        return getattr(self.settings, "shared", False)

    def output(self, net: str, obs: torch.Tensor) -> torch.Tensor:
        w, first, stream = self.nets["actor" if self.shared else net], 1, ""
        if self.shared:
            stream = "/policy/0" if net == "actor" else "/value/0"
        if getattr(self.settings, "recurrent", 0):
            w = {k.removeprefix("0/body/"): x for k, x in w.items()}
        if self.settings.normalize_observations:
            obs = ((obs - w["1/mean"]) / torch.sqrt(w["1/variance"] + 1e-8)).clamp(-10, 10).detach()
            first = 2
        features = hidden(w, obs, torch.tanh, first)
        if getattr(self.settings, "recurrent", 0):
            return self.memory(net, features)
        return dense(w, f"{head(w, first)}{stream}", features)

    @property
    def curious(self) -> bool:
        return getattr(self.settings, "intrinsic", "no") == "rnd"

    def value(self, obs: Any) -> torch.Tensor:
        out = self.output("critic", obs["obs"] if isinstance(obs, dict) else obs)
        return out if self.curious else out[:, 0]

    def of_both(self, error: torch.Tensor) -> torch.Tensor:
        return error[:, 0] + error[:, 1] if self.curious else error

    def predicted(self, b: Any) -> tuple[Any, dict[str, torch.Tensor]]:
        """The predictor's loss (Burda et al. 2019, section 2.2), and what is measured."""
        if not self.curious:
            return 0.0, {}
        w, x, share = self.nets["rnd"], b.extra["followed"], self.settings.rnd_share
        last = max(int(n.split("/")[0]) for n in w)
        for place in range(1, last):
            x = torch.relu(dense(w, str(place), x))
        error = ((dense(w, str(last), x) - b.extra["features"]) ** 2).mean(1)
        chosen = ((b.extra["draw"] + b.settings["draw_offset"]) % 1.0 < share) / share
        weight = b.weight / b.weight.sum()
        return (weight * chosen * error).sum(), {"prediction_error": (weight * error).sum()}

    @property
    def learned(self) -> list[torch.Tensor]:
        nets = ("actor", *(() if self.shared else ("critic",)), *(("rnd",) * self.curious))
        return self.weights(*nets)

    def policy(self, obs: Any) -> Any:
        if isinstance(obs, dict):
            return Some(self.output("actor", obs["obs"]), obs["action_mask"] != 0)
        out = self.output("actor", obs)
        if self.settings.policy == "beta":
            return Beta(*(torch.nn.functional.softplus(x) + 1 for x in out.chunk(2, 1)))
        if self.action.kind == "box":
            (log_std,) = (w for k, w in self.nets["actor"].items() if k.endswith("/log_std"))
            std = torch.exp(log_std).expand_as(out) if log_std.ndim == 1 else None
            if std is None:  # Raffin et al. 2021, eq. 7; features learn by the mean alone
                features = hidden(self.nets["actor"], obs, torch.tanh, 1).detach()
                std = torch.sqrt(features**2 @ torch.exp(2 * log_std) + 1e-6)
            return torch.distributions.Independent(torch.distributions.Normal(out, std), 1)
        parts = [torch.distributions.Categorical(logits=x) for x in out.split(self.action.sizes, 1)]
        return parts[0] if self.action.kind == "discrete" else Several(parts)

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        s, weight, old = b.settings, b.weight / b.weight.sum(), b.extra
        policy = self.policy(b.obs)
        ratio = torch.exp(policy.log_prob(b.action) - old["log_prob"])
        advantage = old["advantage"]
        if self.settings.normalize_advantage:
            mean = (weight * advantage).sum()
            deviation = torch.sqrt((weight * (advantage - mean) ** 2).sum())
            advantage = (advantage - mean) / (deviation + 1e-8)
        clipped = ratio.clamp(1 - s["clip"], 1 + s["clip"])
        surrogate = torch.minimum(ratio * advantage, clipped * advantage)
        value = self.value(b.obs)
        error = (value - old["return"]) ** 2
        if reach := self.settings.value_clip:
            near = old["value"] + (value - old["value"]).clamp(-reach, reach)
            error = torch.maximum(error, (near - old["return"]) ** 2)
        error, entropy = self.of_both(error), policy.entropy()
        predicted, aux = self.predicted(b)
        each = self.settings.value_weight * error - surrogate - s["entropy"] * entropy
        loss = (weight * each).sum() + predicted
        kl = (weight * (ratio - 1 - torch.log(ratio))).sum()
        aux |= {"value_loss": (weight * error).sum(), "entropy": (weight * entropy).sum()}
        metrics = {"loss": loss, "kl": kl, **aux}
        if self.settings.max_kl and kl > self.settings.max_kl:
            return metrics, True
        self.minimize_joint(loss, self.learned, s["learning_rate"], s["max_grad_norm"])
        return metrics, False


class PQN(PPO):
    """Gallici et al. 2024, algorithm 1: the squared error of given returns, by the code's half."""

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        s, w, first, place = self.settings, self.nets["q"], 1, "1"
        obs = b.obs
        if s.recurrent:
            w = {k.removeprefix("0/body/"): x for k, x in w.items()}
        if isinstance(obs, dict):
            obs, place = obs["obs"], "0/obs/1"
        if s.normalize_observations:
            obs = (obs - w[f"{place}/mean"]) / torch.sqrt(w[f"{place}/variance"] + 1e-8)
            obs, first = obs.clamp(-10, 10).detach(), 2 if place == "1" else 1
        assert normed(w, first) is s.layer_norm
        h = hidden(w, obs, torch.relu, first)
        q = self.memory("q", h) if s.recurrent else dense(w, head(w, first), h)
        q = q[torch.arange(len(b.action)), b.action]
        weight = b.weight / b.weight.sum()
        loss = (weight * (b.extra["return"] - q) ** 2 / 2).sum()
        rate, norm = b.settings["learning_rate"], b.settings["max_grad_norm"]
        self.minimize_joint(loss, self.weights("q"), rate, norm)
        return {"loss": loss, "q": (weight * q).sum()}, False


class A2C(PPO):
    """Mnih et al. 2016, section 4 and algorithm S3, as a mean over the rows that count."""

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        s, weight = b.settings, b.weight / b.weight.sum()
        policy, value = self.policy(b.obs), self.value(b.obs)
        error, entropy = self.of_both((b.extra["return"] - value) ** 2), policy.entropy()
        predicted, aux = self.predicted(b)
        gain = policy.log_prob(b.action) * b.extra["advantage"] + s["entropy"] * entropy
        loss = (weight * (self.settings.value_weight * error - gain)).sum() + predicted
        self.minimize_joint(loss, self.learned, s["learning_rate"], s["max_grad_norm"])
        aux |= {"value_loss": (weight * error).sum(), "entropy": (weight * entropy).sum()}
        return {"loss": loss, **aux}, False


class TRPO(PPO):
    """Schulman et al. 2015, appendix C, with the Fisher matrix written out; the same number of
    conjugate gradients."""

    def gain(self, b: Any, weight: torch.Tensor) -> torch.Tensor:
        mean = (weight * b.extra["advantage"]).sum()
        deviation = torch.sqrt((weight * (b.extra["advantage"] - mean) ** 2).sum())
        advantage = (b.extra["advantage"] - mean) / (deviation + 1e-8)
        ratio = torch.exp(self.policy(b.obs).log_prob(b.action) - b.extra["log_prob"])
        return (weight * ratio * advantage).sum()

    def far(self, old: Any, b: Any, weight: torch.Tensor) -> torch.Tensor:
        each = torch.distributions.kl_divergence(old, self.policy(b.obs))
        return (weight * each.reshape(len(weight), -1).sum(1)).sum()

    def natural(self, b: Any, weight: torch.Tensor) -> dict[str, torch.Tensor]:
        s, names = self.settings, self.weights("actor")
        flatten = lambda xs: torch.cat([x.reshape(-1) for x in xs])  # noqa: E731
        with torch.no_grad():
            old = self.policy(b.obs)
        before = self.gain(b, weight)
        g = flatten(torch.autograd.grad(before, names))
        slope = flatten(torch.autograd.grad(self.far(old, b, weight), names, create_graph=True))
        fisher = torch.stack(
            [flatten(torch.autograd.grad(x, names, retain_graph=True)) for x in slope]
        )
        fisher = fisher + s.damping * torch.eye(len(g), **DOUBLE)
        x, r = torch.zeros_like(g), g.clone()
        p = r.clone()
        for _ in range(s.conjugate_steps):
            step = (r @ r) / (p @ fisher @ p)
            x, after = x + step * p, r - step * fisher @ p
            p, r = after + (after @ after) / (r @ r) * p, after
        whole = x * torch.sqrt(2 * b.settings["radius"] / (x @ fisher @ x))
        first = [w.detach().clone() for w in names]
        for k in range(s.backtracks):
            with torch.no_grad():
                parts = whole.split([w.numel() for w in names])
                for w, old_w, d in zip(names, first, parts, strict=True):
                    w.copy_(old_w + s.shrink**k * d.reshape(w.shape))
                better, far = self.gain(b, weight) - before, self.far(old, b, weight)
            if better > 0 and far <= b.settings["radius"]:
                return {"improvement": better, "divergence": far}
        raise AssertionError("no step was accepted: the case shows nothing")

    def run(self, b: Any) -> dict[str, list[Any]]:
        """Where the critic has batches of its own, the policy's step comes before them."""
        if not self.settings.batch_size:
            return super().run(b)
        whole = self.row(b, 0)
        step = self.natural(whole, whole.weight / whole.weight.sum())
        return {f"whole {n}": [x.detach().numpy()] for n, x in step.items()} | super().run(b)

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        s, weight = b.settings, b.weight / b.weight.sum()
        nothing, found = torch.tensor(float("nan"), **DOUBLE), dict[str, torch.Tensor]()
        if not self.settings.batch_size:
            found = {"improvement": nothing, "divergence": nothing}
            found = self.natural(b, weight) if s["policy"] else found
        loss = (weight * (self.output("critic", b.obs)[:, 0] - b.extra["return"]) ** 2).sum()
        self.minimize_joint(loss, self.weights("critic"), s["learning_rate"], s["max_grad_norm"])
        return {"value_loss": loss, **found}, False


class Some:
    """Choices of which some are allowed: softmax over those alone."""

    def __init__(self, logits: torch.Tensor, allowed: torch.Tensor) -> None:
        weights = torch.where(allowed, torch.exp(logits), 0.0)
        self.p = weights / weights.sum(1, keepdim=True)

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        return self.p.gather(1, action[:, None])[:, 0].log()

    def entropy(self) -> torch.Tensor:
        return -torch.stack([(q := p[p > 0]) @ q.log() for p in self.p])


class Beta(torch.distributions.Beta):
    """Chou et al. 2017 over [-1, 1], independently in every dimension; 1e-6 from the bounds the
    density is held."""

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        a, b = self.concentration1, self.concentration0
        near, far = ((1 + action) / 2).clamp(min=1e-6), ((1 - action) / 2).clamp(min=1e-6)
        norm = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
        return ((a - 1) * near.log() + (b - 1) * far.log() - norm - np.log(2)).sum(1)

    def entropy(self) -> torch.Tensor:
        return (super().entropy() + np.log(2)).sum(1)


class Several:
    """Independent choices at several positions."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def log_prob(self, action: torch.Tensor) -> torch.Tensor:
        return sum(p.log_prob(action[:, i]) for i, p in enumerate(self.parts))

    def entropy(self) -> torch.Tensor:
        return sum(p.entropy() for p in self.parts)


def squashed(mean: Any, std: Any, noise: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Actions, and the logarithms of their densities (Haarnoja et al. 2018, eq. 21)."""
    u = mean + std * noise
    density = torch.distributions.Normal(mean, std).log_prob(u)
    return torch.tanh(u), (density - torch.log(1 - torch.tanh(u) ** 2)).sum(1)


class SAC(Reference):
    """Haarnoja et al. 2018 (arXiv:1812.05905), algorithm 1, eqs. 5, 7 and 18."""

    alpha: torch.Tensor | None = None  # its logarithm

    def policy(self, obs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        w = self.nets["actor"]
        features = hidden(w, obs, torch.relu, 1)
        if "3/log_std" in w:  # Raffin et al. 2021, eq. 7
            mean = dense(w, "3", features).clamp(-2, 2)
            std = torch.sqrt(features**2 @ torch.exp(2 * w["3/log_std"]) + 1e-6)
        else:
            mean, log_std = dense(w, "3", features).chunk(2, 1)
            std = torch.exp(log_std.clamp(-20, 2))
        return squashed(mean, std, noise)

    def judged(self, net: str, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return mlp(self.nets[net], obs, action)

    def q(self, net: str, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.judged(net, obs, action)[:, 0]

    def drawn(self, obs: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the policy is sampled by where its loss is not minimised."""
        return self.policy(obs, noise)

    def rewards(self, b: Any) -> torch.Tensor:
        """Of n steps, with alpha times the discounted entropies between, row by row and step by
        step."""
        if self.settings.n_step == 1:
            return b.reward
        found = []
        for i, reward in enumerate(b.reward):
            total = reward
            for k in range(self.settings.n_step - 1):
                obs, noise = b.extra["between"][i, k], b.noise[2][i, k]
                _, log_prob = self.drawn(obs[None], noise[None])
                total = total - b.extra["between_discount"][i, k] * self.alpha.exp() * log_prob[0]
            found.append(total)
        return torch.stack(found)

    def critics(self, b: Any) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        """The loss of each row, the first critic's values, and the priorities' errors."""
        with torch.no_grad():
            action, log_prob = self.policy(b.next_obs, b.noise[0])
            later = torch.minimum(*(self.q(f"q{i}_target", b.next_obs, action) for i in (1, 2)))
            y = self.rewards(b) + b.discount * (later - self.alpha.exp() * log_prob)
        q1, q2 = (self.q(f"q{i}", b.obs, b.action) for i in (1, 2))
        return ((q1 - y) ** 2 + (q2 - y) ** 2) / 2, q1, [q1 - y, q2 - y]

    @property
    def judges(self) -> list[str]:
        return ["q1", "q2"]

    def actor(self, b: Any) -> tuple[torch.Tensor, torch.Tensor, float]:
        """The loss and the entropy of each row, and the entropy that is aimed at."""
        action, log_prob = self.policy(b.obs, b.noise[1])
        gain = self.worth(b.obs, action)
        return self.alpha.exp().detach() * log_prob - gain, -log_prob, -b.action.shape[1]

    def worth(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return torch.minimum(*(self.q(n, obs, action) for n in self.judges))

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        s, rate = self.settings, b.settings["learning_rate"]
        if self.alpha is None:
            first = s.initial_temperature if s.temperature == "auto" else s.temperature
            self.alpha = torch.tensor(first, **DOUBLE).log().requires_grad_(True)
        error, q, errors = self.critics(b)
        critic = (b.weight * error).mean()
        self.minimize_joint(critic, self.weights(*self.judges), rate)
        losses, entropy, aim = self.actor(b)
        actor = (b.weight * losses).mean()
        self.minimize_joint(actor, self.weights("actor"), rate)
        if s.temperature == "auto":
            far = entropy.detach() - aim
            self.minimize_joint((b.weight * self.alpha * far).mean(), [self.alpha], rate)
        with torch.no_grad():
            for n in self.judges:
                for k, w in self.nets[f"{n}_target"].items():
                    share = 1.0 if "/moving_" in k else b.settings["tau"]
                    w += share * (self.nets[n][k] - w)
        metrics = {"critic_loss": critic, "actor_loss": actor, "q": q.mean()}
        metrics |= {"entropy": entropy.mean(), **self.priority(*errors)}
        return {**metrics, "temperature": self.alpha.exp()}, False


class TQC(SAC):
    """Kuznetsov et al. 2020, algorithm 1, eqs. 6 to 12."""

    @property
    def judges(self) -> list[str]:
        return [f"q{i + 1}" for i in range(self.settings.critics)]

    def worth(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.judged(n, obs, action) for n in self.judges], 1).mean(1)

    def critics(self, b: Any) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        s, names, m = self.settings, self.judges, self.settings.quantiles
        with torch.no_grad():
            action, log_prob = self.policy(b.next_obs, b.noise[0])
            atoms = [self.judged(f"{n}_target", b.next_obs, action) for n in names]
            atoms = torch.cat(atoms, 1).sort(1).values[:, : len(names) * (m - s.dropped)]
            entropy = self.alpha.exp() * log_prob
            y = self.rewards(b)[:, None] + b.discount[:, None] * (atoms - entropy[:, None])
        losses, means = [], []
        for n in names:
            now = self.judged(n, b.obs, b.action)
            means.append(now.mean(1))
            for i, theta in enumerate(now.T):
                u, tau = y - theta[:, None], (2 * i + 1) / (2 * m)
                huber = torch.where(u.abs() <= 1, u**2 / 2, u.abs() - 0.5)
                losses.append((torch.where(u < 0, 1 - tau, tau) * huber).mean(1))
        return torch.stack(losses).mean(0), means[0], [x - y.mean(1) for x in means]


class DiscreteSAC(SAC):
    """Christodoulou 2019, algorithm 1, eqs. 10 to 12."""

    def out(self, net: str, obs: torch.Tensor) -> torch.Tensor:
        return mlp(self.nets[net], obs)

    def q(self, net: str, obs: torch.Tensor) -> torch.Tensor:
        return self.out(net, obs)

    def critics(self, b: Any) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        rows = torch.arange(len(b.action))
        with torch.no_grad():
            p = torch.softmax(self.out("actor", b.next_obs), 1)
            later = torch.minimum(self.q("q1_target", b.next_obs), self.q("q2_target", b.next_obs))
            y = b.reward + b.discount * (p * (later - self.alpha.exp() * torch.log(p))).sum(1)
            for k in range(self.settings.n_step - 1):
                p = torch.softmax(self.out("actor", b.extra["between"][:, k]), 1)
                entropy = -(p * torch.log(p)).sum(1)
                y = y + b.extra["between_discount"][:, k] * self.alpha.exp() * entropy
        q1, q2 = (self.q(f"q{i}", b.obs)[rows, b.action] for i in (1, 2))
        return ((q1 - y) ** 2 + (q2 - y) ** 2) / 2, q1, [q1 - y, q2 - y]

    def actor(self, b: Any) -> tuple[torch.Tensor, torch.Tensor, float]:
        p = torch.softmax(self.out("actor", b.obs), 1)
        with torch.no_grad():
            least = torch.minimum(self.q("q1", b.obs), self.q("q2", b.obs))
        entropy = -(p * torch.log(p)).sum(1)
        losses = -self.alpha.exp().detach() * entropy - (p * least).sum(1)
        return losses, entropy, 0.98 * np.log(p.shape[1])


class Deterministic(Reference):
    """What DDPG and TD3 have in common."""

    def policy(self, net: str, obs: torch.Tensor) -> torch.Tensor:
        w, first = self.nets[net], 1 + self.settings.normalize_observations
        features = hidden(w, self.seen(w, "1", obs), torch.relu, first)
        return torch.tanh(dense(w, str(first + 2), features))

    def q(self, net: str, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        w = self.nets[net]
        return mlp(w, self.seen(w, "0/obs/1", obs), action)[:, 0]


class DDPG(Deterministic):
    """Lillicrap et al. 2016, algorithm 1."""

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        s = b.settings
        with torch.no_grad():
            later = self.policy("actor_target", b.next_obs)
            y = b.reward + b.discount * self.q("q_target", b.next_obs, later)
        q = self.q("q", b.obs, b.action)
        critic = (b.weight * (y - q) ** 2).mean()
        self.minimize_joint(critic, self.weights("q"), s["learning_rate"])
        actor = (b.weight * -self.q("q", b.obs, self.policy("actor", b.obs))).mean()
        self.minimize_joint(actor, self.weights("actor"), s["actor_learning_rate"])
        self.soft_update(s["tau"], "q", "actor")
        metrics = {"critic_loss": critic, "actor_loss": actor, "q": q.mean()}
        return metrics | self.priority(q - y), False


class TD3(Deterministic):
    """Fujimoto et al. 2018, algorithm 1."""

    made = 0

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        s, given = b.settings, self.settings
        with torch.no_grad():
            noise = (b.noise * given.smoothing).clamp(-given.smoothing_clip, given.smoothing_clip)
            action = (self.policy("actor_target", b.next_obs) + noise).clamp(-1, 1)
            both = (self.q(f"q{i}_target", b.next_obs, action) for i in (1, 2))
            y = b.reward + b.discount * torch.minimum(*both)
        q1, q2 = (self.q(f"q{i}", b.obs, b.action) for i in (1, 2))
        critic = (b.weight * ((y - q1) ** 2 + (y - q2) ** 2)).mean()
        self.minimize_joint(critic, self.weights("q1", "q2"), s["learning_rate"])
        self.made += 1
        actor = torch.tensor(float("nan"), **DOUBLE)
        if self.made % given.policy_delay == 0:
            actor = (b.weight * -self.q("q1", b.obs, self.policy("actor", b.obs))).mean()
            self.minimize_joint(actor, self.weights("actor"), s["learning_rate"])
            self.soft_update(s["tau"], "q1", "q2", "actor")
        metrics = {"critic_loss": critic, "actor_loss": actor, "q": q1.mean()}
        return metrics | self.priority(q1 - y, q2 - y), False
