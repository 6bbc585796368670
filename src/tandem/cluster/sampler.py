"""Acting for an algorithm, and recording steps in blocks that can be learned from independently."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tandem.algorithms.base import Algorithm, ReplaySettings, Settings
from tandem.envs.actions import to_environment
from tandem.errors import NonFiniteError, SettingError, SpaceError
from tandem.learning.collect.actor import PolicyActor, RandomActor
from tandem.learning.collect.collector import reset_where
from tandem.learning.collect.trained_agent import rows_of
from tandem.learning.collect.trajectories import join_environments, pad
from tandem.learning.seeds import Generators
from tandem.spaces import Leaf, Spec
from tandem.types import Array, Cuts, Trajectory, Tree, leaves, tree_map
from tandem.vector_actions import restored


class SamplerConfig(NamedTuple):
    """Configuration of a sampler."""

    algorithm_class: type[Algorithm]
    settings: Settings
    observation: Spec
    action: Leaf
    steps: int  # steps of each environment in a block
    lockstep: bool  # whether to wait until a block has been learned from
    whole_blocks: bool  # whether incomplete blocks are dropped
    seed: int
    team_rewards: tuple[int, ...]  # shape of a team's rewards per step, () without a team
    team_rewards_required: bool  # whether their mean alone is an error


class Row(NamedTuple):
    """One step of n environments."""

    obs: Tree
    action: Array
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Tree
    extra: dict[str, Array]


class TrajectorySampler:
    """Actor for n environments at once that records their steps. n is the size of the first batch
    of observations; for a single observation without that axis, actions have none either.

    `update` takes the results of the last actions and returns a Trajectory after every `steps`
    steps. An episode that was not reported as ended, but is followed by an unrelated observation,
    counts as truncated.

    after_restart: the first update may belong to an action that a lost sampler chose; it is
    dropped.
    """

    def __init__(
        self,
        config: SamplerConfig,
        networks: dict[str, Any],
        stream: str,
        after_restart: bool = False,
    ) -> None:
        self.config, self.lockstep, self.networks = config, config.lockstep, networks
        self._after_restart = after_restart
        action = config.action
        self.actor = PolicyActor(config.algorithm_class, config.settings, action, networks)
        self.random_actor = RandomActor(action, self.actor.initial_state)
        self._to_environment = to_environment(
            action, config.algorithm_class.action_mode(config.settings, action)
        )
        self._rng = Generators(config.seed)(stream)
        self.n = 0  # number of environments
        # the agent's steps and members as last reported, and steps taken here since then
        self._agent_steps, self._members, self._steps = 0, 1, 0
        self._rows: list[Row] = []
        self._chosen: tuple[Tree, Array, dict[str, Array], Tree] | None = None
        self._next_obs: Tree = None  # the last observation, and whether its episodes ended
        self._ended: Array = None
        self._state: Tree = ()  # recurrent state
        self._initial: Tree = ()

    # Called by the proxy

    def choose_action(self, state: Tree) -> Array:
        """Return the environment's action for one observation, or actions for a batch [n, ...] of
        them."""
        obs, single = rows_of(self.config.observation, state)
        n = len(leaves(obs)[0])
        if self.n not in (0, n):
            raise SpaceError(
                f"{n} observations were given, after {self.n} before.",
                "as many environments as before",
                "call get_agent for another proxy.",
            )
        if not self.n:
            self.n, self._initial = n, self.actor.initial_state(n)
            self._state = self._initial
        self._note_silent_cuts(obs)
        if not self._rows and self._chosen is None:
            self._begin_block()
        actor, noise = self._acting
        step_noise = tree_map(lambda x: x[len(self._rows)], noise)
        chosen, extra, next_state = actor.act(obs, self._state, step_noise)
        action = np.array(chosen, self.config.action.dtype)
        extra = {k: _float32(v) for k, v in extra.items()}
        self._chosen = (tree_map(np.array, obs), action, extra, next_state)
        env_action = self._to_environment(action.copy())  # the environment may modify it
        return restored(self.config.action)(env_action[0] if single else env_action)

    def update(
        self,
        state: Tree,
        action: Array,
        reward: Array,
        next_state: Tree,
        done: Array,
        truncated: Array = None,
    ) -> Trajectory | None:
        """Record one step of each environment. Returns a Trajectory when a block is full, else
        None.

        Args:
            state: The observation that was last passed to choose_action.
            action: The action that it returned.
            reward: The reward, or the rewards of each agent of a team.
            next_state: The next observation.
            done: Whether the episode ended. Without `truncated`, it counts as terminated.
            truncated: Whether only a limit ended the episode, if known.

        Raises:
            NonFiniteError: for NaN or infinity in rewards or observations.
        """
        obs, _ = rows_of(self.config.observation, state)
        if self._after_restart and self._chosen is None:
            self._after_restart = False
            return None
        next_obs = tree_map(np.array, rows_of(self.config.observation, next_state)[0])
        # the environment may have written the next observation into the same array
        given = self._chosen is not None and _equal_rows(obs, self._chosen[0])
        if self._chosen is None or not (given | _equal_rows(obs, next_obs)).all():
            raise SettingError(
                "update was called with a different observation than choose_action.",
                "choose_action(s), a step of the environment, update(s, a, r, s2, done)",
                "call them in turn; use another proxy for evaluation.",
            )
        before, chosen, extra, self._state = self._chosen
        self._chosen = None
        over, cut = _flags(done, self.n, "done"), np.zeros(self.n, np.bool_)
        if truncated is not None:
            cut = _flags(truncated, self.n, "truncated")
        mean_reward, team_rewards = self._rewards(reward)
        numbers = (x for x in (mean_reward, *leaves(next_obs)) if x.dtype.kind == "f")
        if not all(np.isfinite(x).all() for x in numbers):
            raise NonFiniteError(
                "a step has a non-finite reward or observation.",
                "finite numbers",
                "fix the environment; `tandem check` reports what is wrong.",
            )
        self._rows.append(
            Row(before, chosen, mean_reward, over & ~cut, cut, next_obs, extra | team_rewards)
        )
        self._next_obs, self._ended = next_obs, over | cut
        self._steps += self.n
        self._state = reset_where(self._state, self._initial, self._ended)
        return self._block() if len(self._rows) == self.config.steps else None

    def finish(self) -> Trajectory | None:
        """Return the steps of the incomplete block, padded with invalid rows; None if there are
        none, or if incomplete blocks are dropped."""
        if not self._rows or self.config.whole_blocks:
            self._rows, self._chosen = [], None
            return None
        return self._block()

    def set_progress(self, progress: dict[str, int]) -> None:
        """Set the number of the agent's steps so far ("env_steps") and of runners that send steps
        ("members")."""
        self._agent_steps, self._steps = int(progress["env_steps"]), 0
        self._members = max(1, int(progress["members"]))

    def load(self, param: dict[str, dict[str, Array]]) -> None:
        """Load newer weights into the acting networks."""
        for role, weights in param.items():
            self.networks[role].load(weights)

    # Internal

    def _note_silent_cuts(self, obs: Tree) -> None:
        """Truncate episodes that did not end but are followed by an unrelated observation."""
        if self._next_obs is None:
            return
        cut = ~self._ended & ~_equal_rows(obs, self._next_obs)
        if cut.any():
            if self._rows:
                last = self._rows[-1]
                self._rows[-1] = last._replace(truncated=last.truncated | cut)
            self._ended = self._ended | cut
            self._state = reset_where(self._state, self._initial, cut)

    def _begin_block(self) -> None:
        """Select the actor for the next block, and sample its randomness."""
        config, rng = self.config, self._rng
        shape, settings = (config.steps, self.n), config.settings
        begin = self._agent_steps + self._steps * self._members
        self._first_state = self._state
        # the actor of this block, and its noise
        self._acting: tuple[PolicyActor | RandomActor, Tree]
        if isinstance(settings, ReplaySettings) and begin < settings.learning_starts:
            self._acting = (self.random_actor, self.random_actor.noise(rng, shape))
            return
        steps = begin + np.arange(config.steps) * self.n * self._members
        progress = np.minimum(1.0, steps / settings.steps)
        draw_noise = config.algorithm_class.exploration_noise
        self._acting = (self.actor, draw_noise(settings, config.action, rng, shape, progress))

    def _rewards(self, reward: Array) -> tuple[Array, dict[str, Array]]:
        """Return the mean rewards [n], and a dict with the rewards of each agent [n, A] if there is
        a team."""
        x, shape = np.asarray(reward, np.float32), self.config.team_rewards
        if shape and x.shape in (shape, (self.n, *shape)):
            x = x.reshape(self.n, *shape)
            return x.mean(-1), {"rewards": x}
        if x.size != self.n or self.config.team_rewards_required:
            raise SpaceError(
                f"the reward has shape {x.shape}.",
                f"the rewards of all agents, {(self.n, *shape)}" if shape else f"{self.n} rewards",
                "pass info['rewards'] of the team; see tandem.envs.team."
                if shape
                else "give one number for each observation passed to choose_action.",
            )
        x = x.reshape(self.n)
        return x, {"rewards": np.repeat(x[:, None], shape[0], 1)} if shape else {}

    def _block(self) -> Trajectory:
        """Return the recorded steps as a Trajectory [T, n, ...]. An episode that continues after
        the last row is cut there."""
        rows, self._rows = self._rows, []
        count, missing = len(rows), self.config.steps - len(rows)
        terminated = np.array([r.terminated for r in rows])
        last = terminated | np.array([r.truncated for r in rows])
        if not self.config.whole_blocks:  # the next block may be elsewhere in a replay buffer
            last[-1] = True
        t, env = np.nonzero(last)
        cuts = Cuts(
            t.astype(np.int64),
            env.astype(np.int64),
            tree_map(lambda *xs: np.stack(xs)[t, env], *(r.next_obs for r in rows)),
        )
        gamma = np.float32(self.config.settings.gamma)
        block = Trajectory(
            obs=tree_map(lambda *xs: np.stack(xs), *(r.obs for r in rows)),
            action=np.stack([r.action for r in rows]),
            reward=np.stack([r.reward for r in rows]),
            discount=np.where(terminated, np.float32(0), gamma),
            last=last,
            valid=np.ones((count, self.n), np.bool_),
            cuts=cuts,
            bootstrap=rows[-1].next_obs,
            extra={k: np.stack([r.extra[k] for r in rows]) for k in rows[0].extra},
            state=self._first_state,
        )
        return pad(block, missing) if missing else block


def join_blocks(blocks: list[Trajectory]) -> Trajectory:
    """Concatenate blocks [T, 1, ...] along the environment axis, with the extras that all of them
    have."""
    names = sorted(set.intersection(*(set(block.extra) for block in blocks)))
    alike = [block._replace(extra={k: block.extra[k] for k in names}) for block in blocks]
    return join_environments(alike, range(len(alike)))


def _equal_rows(one: Tree, other: Tree) -> Array:
    """Return which rows of two observations [n, ...] are equal, [n]."""
    pairs = zip(leaves(one), leaves(other), strict=True)
    return np.logical_and.reduce([(a == b).reshape(len(a), -1).all(1) for a, b in pairs])


def _flags(value: Array, n: int, name: str) -> Array:
    x = np.asarray(value).reshape(-1).astype(np.bool_)
    if x.shape != (n,):
        raise SpaceError(
            f"{name} has shape {np.shape(value)} for {n} environments.",
            f"{n} values",
            "give one for each environment.",
        )
    return x


def _float32(x: Array) -> Array:
    array = np.array(x)
    return array.astype(np.float32) if array.dtype == np.float64 else array
