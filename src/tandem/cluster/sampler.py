"""Who acts for an algorithm and writes down what came of it, in blocks that stand for
themselves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tandem.collect.actor import PolicyActor, RandomActor
from tandem.collect.collector import reset_where
from tandem.collect.trained_agent import rows_of
from tandem.collect.trajectories import join_environments, pad
from tandem.envs.actions import to_environment
from tandem.errors import NonFiniteError, SettingError, SpaceError
from tandem.learning.seeds import Generators
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Cuts, Trajectory, Tree, leaves, tree_map


class Terms(NamedTuple):
    """What a sampler is made of. steps: of each environment in a block. lockstep: whether it is to
    wait until a block was learned from before it goes on. whole: whether only whole blocks are
    learned from, each by itself."""

    kind: Any  # the algorithm's class
    settings: Any
    observation: Spec
    action: Leaf
    steps: int
    lockstep: bool
    whole: bool
    seed: int
    each: tuple[int, ...]  # the shape of a step's rewards beside the mean, () for none
    demanded: bool  # whether those must be given


class Row(NamedTuple):
    """One step of n environments."""

    obs: Tree
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    after: Tree
    extra: dict[str, Array]


class Sampler:
    """Acts in n environments at once, n being that of the first observation; one is given and gets
    one without that axis.

    `update` takes what came of the actions chosen last, and gives back a Trajectory when `steps`
    steps are together. Where an episode was not said to be over and the next observation is not
    what followed, a limit cut it in between.

    forgives: the first step may be one that another chose the action of, who is no more; it is left
      out.
    """

    caller = ""

    def __init__(
        self, terms: Terms, networks: dict[str, Any], stream: str, forgives: bool = False
    ) -> None:
        self._forgives = forgives
        self.terms, self.lockstep, self.networks = terms, terms.lockstep, networks
        self.actor = PolicyActor(terms.kind, terms.settings, terms.action, networks)
        self.random_actor = RandomActor(terms.action, self.actor.initial_state)
        self._to_environment = to_environment(
            terms.action, terms.kind.action_mode(terms.settings, terms.action)
        )
        self._rng = Generators(terms.seed)(stream)
        self.n, self._steps = 0, 0  # environments; steps since the agent was heard of last
        self._begin, self._members = 0, 1
        self._rows: list[Row] = []
        self._chosen: tuple[Tree, Array, dict[str, Array], Tree] | None = None
        self._after: Tree = None  # what followed the last step, and whether its episodes ended
        self._over: Array = None
        self._state: Tree = ()
        self._initial: Tree = ()

    # What the proxy calls

    def choose_action(self, state: Any) -> Any:
        """The environment's action for one observation, or actions for a batch [n, ...] of them."""
        obs, single = rows_of(self.terms.observation, state)
        n = len(leaves(obs)[0])
        if self.n not in (0, n):
            raise SpaceError(
                f"{n} observations, after {self.n} of them.",
                "as many environments as at first",
                "get_agent gives another proxy.",
            )
        if not self.n:
            self.n, self._initial = n, self.actor.initial_state(n)
            self._state = self._initial
        self._see(obs)
        if not self._rows and self._chosen is None:
            self._draw()
        actor, noise = self._acting
        drawn = tree_map(lambda x: x[len(self._rows)], noise)
        found, extra, state_after = actor.act(obs, self._state, drawn)
        action = np.array(found, self.terms.action.dtype)
        self._chosen = (
            tree_map(np.array, obs),
            action,
            {k: _single_precision(v) for k, v in extra.items()},
            state_after,
        )
        taken = self._to_environment(action)
        return taken[0] if single else taken

    def update(
        self,
        state: Any,
        action: Any,
        reward: Any,
        next_state: Any,
        done: Any,
        truncated: Any = None,
    ) -> Any:
        """One step of each environment: the observation that choose_action was given last, the
        action it gave, the reward (or those of each agent of a team), the observation after it,
        whether the episode is over, and, if known, whether only a limit ended it. A Trajectory when
        a block is full, else None.

        Without `truncated`, `done` means that it terminated. NonFiniteError for NaN or infinity
        in rewards or observations."""
        obs, _ = rows_of(self.terms.observation, state)
        if (
            self._forgives and self._chosen is None
        ):  # the one that chose this action was lost, and the step with it
            self._forgives = False
            return None
        if self._chosen is None or not _same(obs, self._chosen[0]).all():
            raise SettingError(
                "update of a step whose observation choose_action was not given last.",
                "choose_action(s), a step of the environment, update(s, a, r, s2, done)",
                "call them in turn; for evaluation, which is not learned from, use another proxy.",
            )
        before, chosen, extra, self._state = self._chosen
        self._chosen = None
        over = _flags(done, self.n, "done")
        cut = (
            np.zeros(self.n, np.bool_)
            if truncated is None
            else _flags(truncated, self.n, "truncated")
        )
        paid, each = self._rewards(reward)
        after = tree_map(np.array, rows_of(self.terms.observation, next_state)[0])
        if not all(np.isfinite(x).all() for x in (paid, *leaves(after)) if x.dtype.kind == "f"):
            raise NonFiniteError(
                "a step came with a reward or an observation that is not finite.",
                "finite numbers",
                "look into the environment.",
            )
        ended = over | cut
        self._rows.append(Row(before, chosen, paid, over & ~cut, cut, after, extra | each))
        self._after, self._over, self._steps = after, ended, self._steps + self.n
        self._state = reset_where(self._state, self._initial, ended)
        return self._block() if len(self._rows) == self.terms.steps else None

    def finish(self) -> Any:
        """The steps that are not a block yet, filled up with rows that are not valid; None where
        there are none, or where only whole blocks are learned from."""
        if not self._rows or self.terms.whole:
            self._rows, self._chosen = [], None
            return None
        return self._block()

    def told(self, news: dict[str, Any]) -> None:
        """How far the agent is, and how many bring it steps."""
        self._begin, self._members, self._steps = (
            int(news["env_steps"]),
            max(1, int(news["members"])),
            0,
        )

    def load(self, param: dict[str, dict[str, Array]]) -> None:
        """Newer weights of the networks that act."""
        for role, weights in param.items():
            self.networks[role].load(weights)

    # Inside

    def _see(self, obs: Tree) -> None:
        """An episode that went on, by what was said, and now shows something else was cut."""
        if self._after is None:
            return
        cut = ~self._over & ~_same(obs, self._after)
        if cut.any():
            if self._rows:
                last = self._rows[-1]
                self._rows[-1] = last._replace(truncated=last.truncated | cut)
            self._over = self._over | cut
            self._state = reset_where(self._state, self._initial, cut)

    def _draw(self) -> None:
        """Who acts in the next block, and the randomness for it."""
        t = self.terms
        shape, s = (t.steps, self.n), t.settings
        at = self._begin + self._steps * self._members
        self._first = self._state
        if at < s.learning_starts:
            self._acting: tuple[Any, Tree] = (
                self.random_actor,
                self.random_actor.noise(self._rng, shape),
            )
            return
        progress = np.minimum(1.0, (at + np.arange(t.steps) * self.n * self._members) / s.steps)
        self._acting = (
            self.actor,
            t.kind.exploration_noise(s, t.action, self._rng, shape, progress),
        )

    def _rewards(self, reward: Any) -> tuple[Array, dict[str, Array]]:
        """Rewards [n], and those of each agent [n, A] where they are given."""
        x, each = np.asarray(reward, np.float32), self.terms.each
        if each and x.shape in (each, (self.n, *each)):
            x = x.reshape(self.n, *each)
            return x.mean(-1), {"rewards": x}
        if x.size != self.n or self.terms.demanded:
            known = (
                f"{self.n} rewards" if not each else f"the rewards of each agent, {(self.n, *each)}"
            )
            raise SpaceError(
                f"a reward of shape {x.shape}.",
                known,
                "give info['rewards'] of a team; see tandem.envs.team.",
            )
        return x.reshape(self.n), {
            "rewards": np.repeat(x.reshape(self.n, 1), each[0], 1)
        } if each else {}

    def _block(self) -> Trajectory:
        """What was written down, as a Trajectory [T, n, ...]. An episode that goes on after its
        last row is cut there."""
        rows, self._rows = self._rows, []
        count, missing = len(rows), self.terms.steps - len(rows)
        terminated = np.array([r.terminated for r in rows])
        last = terminated | np.array([r.truncated for r in rows])
        if not self.terms.whole:  # what comes next may stand elsewhere in a replay buffer
            last[-1] = True
        t, env = np.nonzero(last)
        cuts = Cuts(
            t.astype(np.int64),
            env.astype(np.int64),
            tree_map(lambda *xs: np.stack(xs)[t, env], *(r.after for r in rows)),
        )
        block = Trajectory(
            obs=tree_map(lambda *xs: np.stack(xs), *(r.obs for r in rows)),
            action=np.stack([r.action for r in rows]),
            reward=np.stack([r.reward for r in rows]),
            discount=np.where(terminated, np.float32(0), np.float32(self.terms.settings.gamma)),
            last=last,
            valid=np.ones((count, self.n), np.bool_),
            cuts=cuts,
            bootstrap=rows[-1].after,
            extra={k: np.stack([r.extra[k] for r in rows]) for k in rows[0].extra},
            state=self._first,
        )
        return pad(block, missing) if missing else block


def joined(parts: list[Trajectory]) -> Trajectory:
    """Blocks [T, 1, ...] side by side, with what all of them have beside."""
    names = sorted(set.intersection(*(set(p.extra) for p in parts)))
    alike = [p._replace(extra={k: p.extra[k] for k in names}) for p in parts]
    return join_environments(alike, range(len(alike)))


def _same(one: Tree, other: Tree) -> Array:
    """Which rows of two observations [n, ...] are alike."""
    alike = [
        (a == b).reshape(len(a), -1).all(1) for a, b in zip(leaves(one), leaves(other), strict=True)
    ]
    return np.logical_and.reduce(alike)


def _flags(value: Any, n: int, name: str) -> Array:
    x = np.asarray(value).reshape(-1).astype(np.bool_)
    if x.shape != (n,):
        raise SpaceError(
            f"{name} of shape {np.shape(value)} for {n} environments.",
            f"{n} of them",
            "give one for each.",
        )
    return x


def _single_precision(x: Any) -> Array:
    y = np.array(x)
    return y.astype(np.float32) if y.dtype == np.float64 else y
