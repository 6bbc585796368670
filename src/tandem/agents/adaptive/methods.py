"""Adaptation of an agent's training to its effective sample size or its gradient noise."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

import numpy as np

from tandem.agents.adaptive.adjustable import Values, values_of
from tandem.agents.assembly import Assembly
from tandem.agents.contract import Adjusted, AgentMembers, check_count
from tandem.agents.train_call import say_once
from tandem.errors import SettingError, one_of
from tandem.math import adaptive as rules
from tandem.math.adaptive import RULES, Noise, Parameters, Signal
from tandem.math.effective import effective_sample_size, rows_to_drop, smoothed
from tandem.replay.scored import ScoredSampler
from tandem.types import Array, Batch, tree_map

Params = dict[str, Any] | None  # parameters of a rule: see `math.adaptive.Parameters`


class RuleParams(TypedDict, total=False):
    """Parameters of rules, in the order in which rules are applied; see `math.adaptive.RULES`."""

    alpha_params: Params
    lr_params: Params
    eps_params: Params
    tau_params: Params
    gamma_params: Params
    clip_params: Params
    beta_params: Params
    weight_decay_params: Params
    beta1_params: Params
    beta2_params: Params
    freq_params: Params
    store_params: Params
    num_updates_params: Params


class AdaptiveMethods(AgentMembers):
    """Methods that a subclass's hooks, or its callbacks, can call to adapt the training.

    The signal e is the effective sample size (ESS) of the pool, 1 / sum p ** 2 for priorities p, or
    the gradient variance. Either is an exponential moving average: smooth * new + (1 - smooth) *
    old. `smooth_alpha` and `smooth` are the same. T is the target of e. The parameters of a rule
    are a dict, such as lr_params={"rate": 1e-4, "min": 1e-5, "max": 1e-3, "smooth": 0.2}; see
    docs/advanced/adaptive.md for the table. Changed values return to their originals when a phase
    starts.
    """

    _assembly: Assembly | None = None

    # The effective sample size

    def compute_ess_from_weights(self, weights: Array) -> float:
        """Return 1 / sum p ** 2 with p = weights / sum weights: from 1 to the number of weights, or
        0 if there are none. Raises SettingError for weights that are negative or not finite."""
        return effective_sample_size(weights)

    def compute_ess(
        self, ema: float | None = None, smooth: float = 0.2, p: int | None = None
    ) -> float:
        """Return the effective sample size of the pool, or of the transitions from process p's
        environments; with `ema`, its moving average with that old value. 0 for an empty pool."""
        return smoothed(
            ema, effective_sample_size(self.prioritized_replay.powers(p)), _share(smooth)
        )

    @property
    def ema_ess(self) -> float | list[float | None] | None:
        """Moving average of the ESS that `compute_ess` and `adjust_window_size` keep; with several
        processes, a list with one per process. None before the first one. (`adjust` and
        `adjust_batch_size` keep one of the whole pool, which is not available here with several
        processes.)"""
        columns = self.prioritized_replay.columns
        if len(columns) < 2:
            return self._sample_sizes.get(self._process(None))
        return [self._sample_sizes.get(p) for p in range(len(columns))]

    @property
    def ema_noise(self) -> float | None:
        """Moving average of the gradient variance."""
        return self._adjusted.noise

    def adjust_window_size(
        self,
        p: int | None = None,
        scale: float = 1.0,
        smooth_alpha: float = 0.2,
        *,
        smooth: float | None = None,
    ) -> int:
        """Return the number of oldest transitions to drop so that the pool shrinks to its effective
        sample size: n - clip(int(e * scale), 1, n - 1). 0 for fewer than two. The pool itself is
        not changed.

        p: index of a process, whose environments' transitions determine n and e; None for the whole
        pool.
        """
        powers = self.prioritized_replay.powers(p)
        if len(powers) < 2:
            return 0
        size = self._smoothed_size(effective_sample_size(powers), smooth_alpha, smooth, p)
        return rows_to_drop(size, len(powers), scale)

    def _smoothed_size(
        self, size: float, smooth_alpha: float, smooth: float | None, p: int | None = None
    ) -> float:
        key, share = self._process(p), _share(smooth_alpha if smooth is None else smooth)
        self._sample_sizes[key] = smoothed(self._sample_sizes.get(key), size, share)
        return self._sample_sizes[key]

    def _process(self, p: int | None) -> int | None:
        """Return the key of a moving average: with one process, the whole pool's is that of process
        0."""
        return 0 if p is None and len(self.prioritized_replay.columns) < 2 else p

    # Gradient noise

    def estimate_gradient_variance(
        self, batch_size: int, num_samples: int, jit_compile: bool = True
    ) -> float:
        """Return the gradient variance over `num_samples` independent minibatches, sampled like
        those of updates: the mean over weights of the mean of (g - mean g) ** 2.

        The random streams and networks of the training are not changed. 0 for fewer than two
        minibatches, and for an empty pool. Sets `gradient_noise_scale` to the simple noise scale of
        the same gradients (McCandlish et al. 2018, arXiv:1812.06162, equation 2.9).
        """
        return self._noise(batch_size, num_samples, jit_compile).variance

    def _noise(self, batch_size: int, num_samples: int, jit: bool) -> Noise:
        check_count("batch_size", batch_size, none=False)
        check_count("num_samples", num_samples, none=False)
        assembly = self._assembly
        if assembly is None or not len(assembly.learner.ring):
            return Noise(0.0, 0.0)
        gradient = assembly.algorithm.gradients(jit)
        size = min(batch_size, len(assembly.learner.ring))
        gradients = [gradient(_mini_batch(assembly, size)) for _ in range(num_samples)]
        noise = rules.gradient_noise(np.stack(gradients), size)
        self.gradient_noise_scale = noise.scale
        return noise

    def measured(self) -> dict[str, float]:
        """Measure and record the noise scale of an episode if the agent requests it
        (`gradient_noise`). Return it for the logs of callbacks."""
        if not self.gradient_noise or self._assembly is None:
            return {}
        size = self._assembly.learner.schedule.batch_size
        scale = self._noise(size, self.gradient_noise, True).scale
        self.noise_scale_list.append(scale)
        return {"noise_scale": scale}

    # Rules

    def adjust_batch_size(
        self,
        smooth_alpha: float = 0.2,
        batch_params: Params = None,
        target_ess: float | None = None,
        *,
        smooth: float | None = None,
        scale: float = 1.0,
        min_batch: int | None = None,
        max_batch: int | None = None,
        align: int | None = None,
        **params: Unpack[RuleParams],
    ) -> int:
        """Return a minibatch size based on the ESS: round(e * scale), or with a target the current
        size times e / T * scale.

        The size is in [min_batch, max_batch] (default: half the initial size; the pool) and one of
        at most eight sizes. This is all that `batch_size_fn` needs. With batch_params={"scale",
        "min", "max", "align"}, it becomes the size of the next minibatches. With lr_params and the
        like, those rules change their values. target_ess: T; None for the ESS at the start of the
        phase.
        """
        given = self._parameters(params)
        ess = self.compute_ess()
        e = self._smoothed_size(ess, smooth_alpha, smooth)
        if given:
            target = self._start_size() if target_ess is None else float(target_ess)
            self._apply("ess", e, target, given)
        if batch_params is not None:
            return self.adjust_batch(batch_params, e, target_ess)
        if given:
            return self._present_batch()
        parameters = Parameters(scale=scale, min=min_batch, max=max_batch, align=align)
        return self._batch_size(e, target_ess, parameters)

    def adjust_batch(
        self, batch_params: Params = None, ema: float | None = None, target: float | None = None
    ) -> int:
        """Set the size of the next minibatches, and return it: see `adjust_batch_size`. ema: the
        signal e; None for the ESS. target: T; None for round(e * scale)."""
        parameters = Parameters.of("batch", {} if batch_params is None else batch_params)
        size = self._batch_size(self.compute_ess() if ema is None else ema, target, parameters)
        if (assembly := self._assembly) is not None:
            values = values_of("batch", self, assembly)
            self._move("batch", values, [size])
        return size

    def adabatch(
        self,
        num_samples: int,
        target_noise: float = 1e-3,
        smooth_alpha: float = 0.2,
        batch_params: Params = None,
        *,
        smooth: float | None = None,
        jit_compile: bool = True,
        **params: Unpack[RuleParams],
    ) -> int:
        """Adapt values to gradient noise: e is the variance over `num_samples` independent
        minibatches of the current size, T is target_noise. With batch_params, set the size of the
        next minibatches to the current one times e / T * scale. Return the size; see
        `adjust_batch_size`."""
        given = self._parameters(params)
        variance = self._noise(self._present_batch(), num_samples, jit_compile).variance
        share = _share(smooth_alpha if smooth is None else smooth)
        e = self._adjusted.noise = smoothed(self._adjusted.noise, variance, share)
        self._apply("noise", e, float(target_noise), given)
        if batch_params is not None:
            return self.adjust_batch(batch_params, e, target_noise)
        return self._present_batch()

    def adjust(
        self,
        target_ess: float | None = None,
        target_noise: float | None = None,
        num_samples: int | None = None,
        smooth_alpha: float = 0.2,
        batch_params: Params = None,
        *,
        smooth: float | None = None,
        jit_compile: bool = True,
        **params: Unpack[RuleParams],
    ) -> int:
        """Call `adabatch` if target_noise is given, which requires num_samples; else
        `adjust_batch_size`."""
        if target_noise is None:
            return self.adjust_batch_size(
                smooth_alpha, batch_params, target_ess, smooth=smooth, **params
            )
        check_count("num_samples", num_samples, none=False)
        assert num_samples is not None
        return self.adabatch(
            num_samples,
            target_noise,
            smooth_alpha,
            batch_params,
            smooth=smooth,
            jit_compile=jit_compile,
            **params,
        )

    def initialize_adjusting(self) -> None:
        """Reset values that rules changed to their originals when a phase starts, unless something
        else has changed them since. The current ESS becomes the default target of rules. Training
        calls this method; override it with one that does nothing to keep changed values."""
        self._undo_moves()
        assembly = self._assembly
        if assembly is None:
            self._adjusted.start_size = self.compute_ess()
        elif isinstance(sampler := assembly.learner.sampler, ScoredSampler):
            assembly.start_powers = sampler.present_powers()
        else:
            self._adjusted.start_size = float(len(assembly.learner.ring))

    def _start_size(self) -> float:
        """Return the ESS at the start of the phase. With priorities it is computed on first use,
        from the priorities at that time."""
        if (assembly := self._assembly) is not None and assembly.start_powers is not None:
            powers, assembly.start_powers = assembly.start_powers(), None
            self._adjusted.start_size = effective_sample_size(powers)
        return self._adjusted.start_size

    def _undo_moves(self) -> None:
        adjusted, assembly = self._adjusted, self._assembly
        if assembly is None:
            return
        for name, originals in adjusted.originals.items():
            values = values_of(name, self, assembly)
            for value, first, last in zip(values, originals, adjusted.values[name], strict=True):
                if value.get() == last:
                    value.set(first)
        adjusted.originals, adjusted.values, adjusted.exact = {}, {}, {}

    def _parameters(self, params: RuleParams) -> dict[str, Parameters]:
        """Return the given parameters by rule, in the order of rules. Raises SettingError for an
        unknown name."""
        for name in params:
            one_of("an argument", name, RuleParams.__annotations__)
        given = {name: params.get(f"{name}_params") for name in RULES}
        return {n: Parameters.of(n, x) for n, x in given.items() if x is not None}

    def _apply(self, signal: Signal, e: float, target: float, given: dict[str, Parameters]) -> None:
        """Change the values of these rules. Before the first training there are none."""
        signs = {n: RULES[n].by_ess if signal == "ess" else RULES[n].by_noise for n in given}
        for name in (n for n in given if not signs[n]):
            say_once(
                f"{name}_params",
                f"{name}_params: this value depends only on the effective sample size, not on "
                "gradient noise, so it does not change.",
            )
        if (assembly := self._assembly) is None:
            return
        places = {n: values_of(n, self, assembly) for n in given if signs[n]}
        for name, values in places.items():  # first: two rules may change the same value
            self._adjusted.originals.setdefault(name, [v.original() for v in values])
        ratio = rules.relative(e, target)
        for name, values in places.items():
            sign, parameters, old = signs[name], given[name], [v.get() for v in values]
            if RULES[name].count:
                new = [self._counted(name, sign, ratio, parameters, x) for x in old]
            else:
                new = [rules.moved(x, sign, ratio, parameters, RULES[name]) for x in old]
            self._move(name, values, new)

    def _counted(
        self, name: str, sign: int, ratio: float, parameters: Parameters, old: float
    ) -> float:
        """Return a count changed by a rule. It continues from the value before rounding, unless
        something else has changed it."""
        before = self._adjusted.exact.get(name, old)
        before = before if round(before) == old else old
        exact = rules.multiplied(before, sign, ratio, parameters, RULES[name])
        self._adjusted.exact[name] = exact
        return round(exact)

    def _move(self, name: str, values: Values, new: list[float]) -> None:
        self._adjusted.originals.setdefault(name, [v.original() for v in values])
        for value, x in zip(values, new, strict=True):
            value.set(x)
        self._adjusted.values[name] = [v.get() for v in values]

    def _present_batch(self) -> int:
        if self._assembly is not None:
            return self._assembly.learner.schedule.batch_size
        return self._arguments.minibatch if self._arguments is not None else 1

    def _batch_size(self, e: float, target: float | None, parameters: Parameters) -> int:
        """Return the minibatch size for a signal e."""
        arguments, assembly = self._arguments, self._assembly
        first = 1 if arguments is None else arguments.minibatch
        ring = None if assembly is None else assembly.learner.ring
        pool = ring.capacity if ring is not None else 1 if arguments is None else arguments.size
        low = max(1, first // 2) if parameters.min is None else int(parameters.min)
        high = max(low, pool) if parameters.max is None else int(parameters.max)
        if low < 1 or high < low or (ring is not None and pool < low):
            raise SettingError(
                f"minibatch sizes from {low} to {high} with a pool of {pool}.",
                "sizes from 1 to the capacity of the pool, with min first",
                "give a smaller min, a larger max, or a larger pool_size.",
            )
        sizes = rules.batch_sizes(low, max(low, min(high, pool)), parameters.align)
        rows = 0 if ring is None else len(ring)
        if target is None:
            exact = min(max(e * parameters.scale, low), high)
        else:
            now, before = self._present_batch(), self._adjusted.exact.get("batch")
            fresh = before is None or rules.size_below(before, sizes, pool) != now
            old = float(now) if fresh or before is None else before
            bounded = Parameters(scale=parameters.scale, min=low, max=high)
            ratio = rules.relative(e, target)
            exact = rules.multiplied(old, 1, ratio, bounded, RULES["batch"])
            self._adjusted.exact["batch"] = exact
        return rules.size_below(exact, sizes, rows)

    # Files

    def _load_adjusted(self, assembly: Assembly) -> None:
        """Load values that rules changed in the training of a file, or in one with other
        processes."""
        for name, numbers in self._adjusted.values.items():
            for value, x in zip(values_of(name, self, assembly), numbers, strict=True):
                value.load(x)

    def _forget_moves(self, assembly: Assembly) -> None:
        """Discard the changes of rules, since the file's training had other arguments. Only the
        optimizers' numbers come with the file, and these are reset."""
        for name in ("lr", "weight_decay", "beta1", "beta2"):
            if name in self._adjusted.originals:
                first = self._adjusted.originals[name]
                for value, x in zip(values_of(name, self, assembly), first, strict=True):
                    value.set(x)
        self._adjusted = Adjusted()

    def _keep_store(self, assembly: Assembly, num_store: int | None) -> None:
        """Keep a rule's change of num_store when `train` is called again with the same
        num_store."""
        adjusted, schedule = self._adjusted, assembly.learner.schedule
        if "store" not in adjusted.originals or schedule.store_episodes is None:
            return
        if adjusted.originals["store"] == [num_store]:
            schedule.store_episodes = int(adjusted.values["store"][0])
        else:
            for moves in (adjusted.originals, adjusted.values, adjusted.exact):
                moves.pop("store", None)


def _share(smooth: float) -> float:
    if not 0 <= smooth <= 1:
        raise SettingError(f"smooth={smooth!r}.", "a number from 0 to 1", "use smooth=0.2.")
    return smooth


def _mini_batch(assembly: Assembly, size: int) -> Batch:
    """Return a minibatch like those of updates, [B, ...], sampled with a separate generator."""
    learner = assembly.learner
    rng = learner.generators("gradient noise")
    ids, weight = learner.sampler.draw(rng, 1, size, np.full(1, learner.beta))
    batch = learner.fetch(ids)
    if learner.relabel is not None:
        batch = learner.relabel(rng, ids, batch)
    batch = batch._replace(
        obs=learner.preprocess(batch.obs),
        next_obs=learner.preprocess(batch.next_obs),
        weight=weight,
        settings={},
    )
    return tree_map(lambda x: x[0], batch)
