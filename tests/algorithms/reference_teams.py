"""The algorithms of several agents once more, agent by agent: see `reference`."""

from typing import Any

import torch

from tests.algorithms import reference
from tests.algorithms.reference import DOUBLE, MEMORIES, Reference, Weights, dense, hidden, part

STEPPED = ("obs", "next_obs", "action", "reward", "discount")


def at(x: Any, t: int) -> Any:
    """Step t of sequences [S, L, ...]."""
    return {n: at(y, t) for n, y in x.items()} if isinstance(x, dict) else x[:, t]


def over_those_here(errors: torch.Tensor, obs: Any) -> torch.Tensor:
    """The mean size of the errors [B, A] of those agents who act, row by row; 0 where none does."""
    found = []
    for row, here in zip(errors, obs["active"], strict=True):
        own = [abs(float(e)) for e, there in zip(row, here, strict=True) if there]
        found.append(sum(own) / len(own) if own else 0.0)
    return torch.tensor(found, **DOUBLE)


class Teams(Reference):
    """What they have in common: each agent's weights, and who is there."""

    def row(self, b: Any, k: int) -> Any:
        """`active` of observations: who acts; of the next ones: whose future counts."""
        row = super().row(b, k)
        acts, counts = row.obs["active"] == 1, row.next_obs["active"] > 0
        return row._replace(
            obs={**row.obs, "active": acts.to(torch.float64)},
            next_obs={**row.next_obs, "active": counts.to(torch.float64)},
        )

    def of(self, net: str, agent: int) -> Weights:
        """The weights of one agent's network, by the names that they have in a network of its
        own."""
        if self.settings.share:
            return self.nets[net]
        return part(self.nets[net], f"0/{agent}/")


class VDN(Teams):
    """Sunehag et al. 2018, eq. 3, with van Hasselt et al. 2016; with a memory as Hausknecht &
    Stone 2015."""

    size: torch.Tensor  # of the latest errors, [B]

    def q(self, net: str, obs: Any, agent: int, h: Any = None) -> tuple[torch.Tensor, Any]:
        w, x = self.of(net, agent), obs["agents"][:, agent]
        if h is None:
            q = dense(w, reference.head(w), hidden(w, x, torch.relu, 1))
        else:
            step, place = MEMORIES[self.settings.memory]
            h = step(part(w, "0/cell/"), hidden(part(w, "0/body/"), x, torch.relu, 1), h)
            q = dense(part(w, "0/head/"), place, h[:, : self.settings.recurrent])
        if "action_mask" in obs:
            size = q.shape[1]
            mine = obs["action_mask"][:, agent * size : (agent + 1) * size]
            q = q.masked_fill(mine == 0, -torch.inf)
        return q, h

    def errors(self, b: Any, h: Any) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Of one step of all rows: squared errors, chosen values, and the memories after it, of
        each agent's networks."""
        rows, best, chosen, after = torch.arange(len(b.action)), [], [], []
        for i in range(b.action.shape[1]):
            mine, theirs = (None, None) if h is None else h[i]
            q, mine = self.q("q", b.obs, i, mine)
            with torch.no_grad():
                _, theirs = self.q("q_target", b.obs, i, theirs)
                later, _ = self.q("q_target", b.next_obs, i, theirs)
                choice = self.q("q", b.next_obs, i, mine)[0] if self.settings.double else later
            best.append(later[rows, choice.argmax(1)])
            chosen.append(q[rows, b.action[:, i]])
            after.append((mine, theirs))
        best, chosen = torch.stack(best, 1), torch.stack(chosen, 1)
        return self.error(b, best, chosen), chosen, None if h is None else after

    def mix(self, net: str, q: torch.Tensor, obs: Any) -> torch.Tensor:
        return (q * obs["active"]).sum(1)

    def error(self, b: Any, best: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = b.reward + b.discount * self.mix("mixer_target", best, b.next_obs)
        found = y - self.mix("mixer", chosen, b.obs)
        self.size = found.detach()
        return found**2

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        if not self.settings.recurrent:
            found, chosen, _ = self.errors(b, None)
            loss = (b.weight * found).mean()
        else:
            memory = [(b.extra["q_state"][:, i],) * 2 for i in range(b.action.shape[2])]
            found = []
            values = []
            burn_in = self.settings.burn_in
            for t in range(b.action.shape[1]):
                fields = {n: at(x, t) for n, x in b._asdict().items() if n in STEPPED}
                fresh = b.extra["start"][:, t, None] == 1
                memory = [tuple(torch.where(fresh, 0.0, h) for h in pair) for pair in memory]
                error, chosen, memory = self.errors(b._replace(**fields), memory)
                if t < burn_in:  # Kapturowski et al. 2019, section 3
                    memory = [tuple(h.detach() for h in pair) for pair in memory]
                    continue
                found.append(error)
                values.append(chosen)
            weight = b.weight[:, burn_in:]
            loss, chosen = (weight * torch.stack(found, 1)).mean(), torch.stack(values)
        mixed = [n for n in ("mixer",) if n in self.nets]
        s, learned = b.settings, self.weights("q", *mixed)
        self.minimize_joint(loss, learned, s["learning_rate"], s["max_grad_norm"])
        self.soft_update(b.settings["tau"], "q", *mixed)
        return {"loss": loss, "q": chosen.mean()} | self.priority(self.size), False


class QMIX(VDN):
    """Rashid et al. 2018, section 4 and appendix; without a mixer every agent for itself."""

    def mix(self, net: str, q: torch.Tensor, obs: Any) -> torch.Tensor:
        w, s, units = self.nets[net], obs["state"], self.settings.embedding
        made = lambda name: dense(w, f"1/{name}/1", torch.relu(dense(w, f"1/{name}/0", s)))  # noqa: E731
        total = []
        for k in range(len(q)):
            first = made("weight_1")[k].abs().reshape(-1, units)
            h = (q[k] * obs["active"][k]) @ first + dense(w, "1/bias_1/0", s)[k]
            h = torch.where(h > 0, h, torch.exp(h) - 1)
            total.append(h @ made("weight_2")[k].abs() + made("bias_2")[k, 0])
        return torch.stack(total)

    def error(self, b: Any, best: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        if self.settings.mixer:
            return super().error(b, best, chosen)
        y = b.extra["rewards"] + b.discount[:, None] * b.next_obs["active"] * best
        self.size = over_those_here((y - chosen).detach(), b.obs)
        return (b.obs["active"] * (y - chosen) ** 2).sum(1) / chosen.shape[1]


class MADDPG(Teams):
    """Lowe et al. 2017, eqs. 5 and 6; Ackermann et al. 2019; Jang et al. 2017, eq. 2."""

    action: Any = None

    def out(self, net: str, obs: Any, agent: int) -> torch.Tensor:
        return reference.mlp(self.of(net, agent), obs["agents"][:, agent])

    def q(self, net: str, obs: Any, agent: int, actions: list[torch.Tensor]) -> torch.Tensor:
        joint = [a * obs["active"][:, [j]] for j, a in enumerate(actions)]
        return reference.mlp(self.of(net, agent), obs["agents"][:, agent], obs["state"], *joint)[
            :, 0
        ]

    def draw(self, out: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        if self.action.kind == "box":
            return torch.tanh(out)
        return torch.nn.functional.one_hot((out + noise).argmax(1), out.shape[1]).to(torch.float64)

    def target(self, out: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        s = self.settings
        if self.action.kind != "box":
            return self.draw(out, noise)
        return (
            torch.tanh(out) + (s.smoothing * noise).clamp(-s.smoothing_clip, s.smoothing_clip)
        ).clamp(-1, 1)

    def through(self, out: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Drawn forwards; backwards the softmax."""
        if self.action.kind == "box":
            return torch.tanh(out)
        soft = torch.softmax(out + noise, 1)
        return self.draw(out, noise) - soft.detach() + soft

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        s = b.settings
        agents = range(b.action.shape[1])
        critics = ("q1", "q2") if self.settings.twin else ("q",)
        taken = [b.action[:, i] for i in agents]
        if self.action.kind != "box":
            count = self.action.sizes[0]
            taken = [torch.nn.functional.one_hot(a, count).to(torch.float64) for a in taken]
        critic, first, errors = 0.0, [], {n: [] for n in critics}
        with torch.no_grad():
            outs = [self.out("actor_target", b.next_obs, i) for i in agents]
            after = [self.target(out, b.noise[0][:, i]) for i, out in enumerate(outs)]
        for i in agents:
            with torch.no_grad():
                each = [self.q(f"{n}_target", b.next_obs, i, after) for n in critics]
                later = torch.stack(each).min(0).values
                y = b.extra["rewards"][:, i] + b.discount * b.next_obs["active"][:, i] * later
            for n in critics:
                q = self.q(n, b.obs, i, taken)
                errors[n].append((q - y).detach())
                loss = (b.weight * b.obs["active"][:, i] * (q - y) ** 2).mean()
                critic = critic + loss / len(agents)
                first += [q] if n == critics[0] else []
        self.minimize_joint(critic, self.weights(*critics), s["learning_rate"], s["max_grad_norm"])
        actor = torch.tensor(float("nan"), **DOUBLE)
        if s["policy"]:
            actor = 0.0
            for i in agents:
                out = self.out("actor", b.obs, i)
                own = self.through(out, b.noise[1][:, i])
                others = [own if j == i else a for j, a in enumerate(taken)]
                gain = self.q(critics[0], b.obs, i, others)
                loss = self.settings.logit_penalty * (out**2).mean(1) - gain
                actor = actor + (b.weight * b.obs["active"][:, i] * loss).mean() / len(agents)
            rate, own = s["actor_learning_rate"], self.weights("actor")
            self.minimize_joint(actor, own, rate, s["max_grad_norm"])
            self.soft_update(s["tau"], "actor", *critics)
        sizes = [over_those_here(torch.stack(errors[n], 1), b.obs) for n in critics]
        metrics = {"critic_loss": critic, "actor_loss": actor, "q": torch.stack(first).mean()}
        return metrics | self.priority(*sizes), False


class MAPPO(reference.PPO):
    """Yu et al. 2022, section 3 and appendix: PPO's loss over all agents' rows."""

    agents = 3

    def row(self, b: Any, k: int) -> Any:
        one = Reference.row(self, b, k)
        rows = {n: reference.flat(getattr(one, n)) for n in ("obs", "action", "weight", "extra")}
        one = one._replace(**rows)
        if self.settings.recurrent:  # sequences [S * A, L]
            self.extra = one.extra
            one = reference.in_rows(one)
        return one

    def output(self, net: str, obs: Any) -> torch.Tensor:
        if isinstance(obs[net], dict):
            obs = {net: torch.cat([obs[net]["own"], obs[net]["state"]], 1)}
        if self.settings.share:
            return self.units(super().output(net, obs[net]), self.nets[net])
        found = []
        for i in range(self.agents):
            w = part(self.nets[net], f"0/{i}/")
            h = hidden(w, obs[net][i :: self.agents], torch.tanh, 1)
            found.append(self.units(dense(w, "3", h), w))
        return torch.stack(found, 1).reshape(-1, found[0].shape[1])

    @staticmethod
    def units(out: torch.Tensor, w: Weights) -> torch.Tensor:
        """Values in their units (van Hasselt et al. 2016, eq. 1)."""
        mean, variance = (
            next((x.detach() for n, x in w.items() if n.endswith(f"value_{k}")), None)
            for k in ("mean", "variance")
        )
        return out if mean is None else out * torch.sqrt(variance) + mean

    def value(self, obs: Any) -> torch.Tensor:
        return self.output("critic", obs)[:, 0]

    def policy(self, obs: Any) -> Any:
        if "action_mask" in obs:
            return reference.Some(self.output("actor", obs), obs["action_mask"] != 0)
        if self.action.kind == "box":
            out = self.output("actor", obs)
            shared = self.settings.share
            mean, log_std = (out, self.log_std.expand_as(out)) if shared else out.chunk(2, 1)
            normal = torch.distributions.Normal(mean, torch.exp(log_std))
            return torch.distributions.Independent(normal, 1)
        return torch.distributions.Categorical(logits=self.output("actor", obs))

    @property
    def log_std(self) -> torch.Tensor:
        return next(w for k, w in self.nets["actor"].items() if k.endswith("/log_std"))

    def weights(self, *names: str) -> list[torch.Tensor]:
        return [w for n in names for k, w in self.nets[n].items() if "/value_" not in k]

    def update(self, b: Any) -> tuple[dict[str, torch.Tensor], bool]:
        s, old, weight = b.settings, b.extra, b.weight / b.weight.sum()
        acting = old.get("acting", torch.ones_like(b.weight))
        policy = self.policy(b.obs)
        ratio = torch.exp(policy.log_prob(b.action) - old["log_prob"])
        share = b.weight * acting / (b.weight * acting).sum()
        mean = (share * old["advantage"]).sum()
        deviation = torch.sqrt((share * (old["advantage"] - mean) ** 2).sum())
        advantage = (old["advantage"] - mean) / (deviation + 1e-8)
        clipped = ratio.clamp(1 - s["clip"], 1 + s["clip"])
        gain = torch.minimum(ratio * advantage, clipped * advantage)
        entropy, value, reach = policy.entropy(), self.value(b.obs), self.settings.value_clip
        scale = old.get("scale", torch.ones_like(b.weight))
        near = old["value"] + (value - old["value"]).clamp(-reach * scale, reach * scale)
        error = torch.maximum(*(self.huber((v - old["return"]) / scale) for v in (value, near)))
        loss = (weight * self.settings.value_weight * error).sum()
        loss = loss - (share * (gain + s["entropy"] * entropy)).sum()
        self.minimize_joint(loss, self.learned, s["learning_rate"], s["max_grad_norm"])
        kl = (share * (ratio - 1 - torch.log(ratio))).sum()
        found = {"value_loss": (weight * error).sum(), "entropy": (share * entropy).sum()}
        return {"loss": loss, "kl": kl, **found}, False

    def huber(self, x: torch.Tensor) -> torch.Tensor:
        """Twice Huber's loss: the square near 0."""
        d = self.settings.value_huber
        return torch.where(x.abs() <= d, x**2, 2 * d * x.abs() - d**2)


class MAT(MAPPO):
    """Wen et al. 2022, figure 2 and its losses: agent by agent, attention head by head, each
    agent's action after the actions of those before it."""

    taken: Any = None  # the actions of the batch under way, [B, A, ...]

    def row(self, b: Any, k: int) -> Any:
        self.taken = reference.tensor(b.action[k])
        return super().row(b, k)

    def norm(self, w: Weights, place: str, x: torch.Tensor) -> torch.Tensor:
        off = x - x.mean(1, keepdim=True)
        spread = torch.sqrt((off**2).mean(1, keepdim=True) + 1e-5)
        return off / spread * w[f"{place}scale"] + w[f"{place}bias"]

    def linear(self, w: Weights, place: str, x: torch.Tensor) -> torch.Tensor:
        return x @ w[f"{place}kernel"] + w[f"{place}bias"]

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.distributions.Normal(0.0, 1.0).cdf(x)

    def attention(self, w: Weights, place: str, ask: Any, told: Any, causal: bool) -> list[Any]:
        """Vaswani et al. 2017, eq. 1, of each agent's own list."""
        size, found = self.settings.embedding // self.settings.heads, []
        for i in range(self.agents):
            seen = range(i + 1 if causal else self.agents)
            query = self.linear(w, f"{place}query_", ask[i])
            keys = [self.linear(w, f"{place}key_", told[j]) for j in seen]
            values = [self.linear(w, f"{place}value_", told[j]) for j in seen]
            heads = []
            for own in (slice(h, h + size) for h in range(0, query.shape[1], size)):
                scores = [torch.exp((query[:, own] * k[:, own]).sum(1) / size**0.5) for k in keys]
                parts = [s[:, None] * v[:, own] for s, v in zip(scores, values, strict=True)]
                heads.append(sum(parts) / sum(scores)[:, None])
            found.append(self.linear(w, f"{place}output_", torch.cat(heads, 1)))
        return found

    def added(self, w: Weights, place: str, x: Any, more: Any) -> list[torch.Tensor]:
        return [self.norm(w, place, a + b) for a, b in zip(x, more, strict=True)]

    def fed(self, w: Weights, place: str, x: Any) -> list[torch.Tensor]:
        inner = [self.gelu(self.linear(w, f"{place}hidden0_", a)) for a in x]
        return [self.linear(w, f"{place}output_", a) for a in inner]

    def embedded(self, obs: Any) -> list[torch.Tensor]:
        w, found = self.nets["encoder"], []
        for i in range(self.agents):
            x = self.norm(w, "0/", obs["agents"][i :: self.agents])
            found.append(self.norm(w, "2/", self.gelu(self.linear(w, "1/", x))))
        for n in range(3, 3 + self.settings.blocks):
            found = self.added(
                w, f"{n}/norm1_", found, self.attention(w, f"{n}/attention_", found, found, False)
            )
            found = self.added(w, f"{n}/norm2_", found, self.fed(w, f"{n}/feed_", found))
        return found

    def head(self, net: str, first: int, x: list[torch.Tensor]) -> torch.Tensor:
        w, at = self.nets[net], [f"{first + k}/" for k in range(3)]
        inner = [self.norm(w, at[1], self.gelu(self.linear(w, at[0], a))) for a in x]
        out = torch.stack([self.linear(w, at[2], a) for a in inner], 1)
        return out.reshape(-1, out.shape[2])

    def value(self, obs: Any) -> torch.Tensor:
        return self.units(self.head("critic", 0, self.embedded(obs)), self.nets["critic"])[:, 0]

    def told(self, agent: int) -> torch.Tensor:
        """What an agent is told of the one before it."""
        if self.action.kind == "box":
            earlier = self.taken[:, agent - 1]
            return earlier if agent else torch.zeros_like(earlier)
        told = torch.zeros(len(self.taken), self.action.sizes[0] + 1, dtype=torch.float64)
        for k in range(len(told)):
            told[k, 1 + self.taken[k, agent - 1] if agent else 0] = 1
        return told

    def policy(self, obs: Any) -> Any:
        w, encoded, x = self.nets["actor"], self.embedded(obs), []
        for i in range(self.agents):
            told = self.gelu(self.linear(w, "0/embed_", self.told(i)))
            x.append(self.norm(w, "0/norm_", told))
        for n in range(self.settings.blocks):
            at = f"0/block{n}_"
            x = self.added(w, f"{at}norm1_", x, self.attention(w, f"{at}attention_", x, x, True))
            x = self.added(
                w, f"{at}norm2_", encoded, self.attention(w, f"{at}cross_", encoded, x, True)
            )
            x = self.added(w, f"{at}norm3_", x, self.fed(w, f"{at}feed_", x))
        out = self.head("actor", 1, x)
        if "action_mask" in obs:
            return reference.Some(out, obs["action_mask"] != 0)
        if self.action.kind != "box":
            return torch.distributions.Categorical(logits=out)
        normal = torch.distributions.Normal(out, torch.exp(self.log_std).expand_as(out))
        return torch.distributions.Independent(normal, 1)

    @property
    def learned(self) -> list[torch.Tensor]:
        return self.weights("encoder", "critic", "actor")


KINDS = {"vdn": VDN, "qmix": QMIX, "maddpg": MADDPG, "mappo": MAPPO, "mat": MAT}
