"""What of an agent's training may follow its effective sample size or its gradient noise."""

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

Params = dict[str, Any] | None  # what is said of a rule: see `math.adaptive.Parameters`


class RuleParams(TypedDict, total=False):
    """What may be said of rules, in the order in which they act; see `math.adaptive.RULES`."""

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
    """What the hooks of a subclass, or its callbacks, may call to adapt the training.

    The signal e is the effective sample size of the pool (ESS), 1 / sum p ** 2 of the priorities p,
    or the variance of gradients, each an exponential moving average: smooth * new + (1 - smooth) *
    old. `smooth_alpha` and `smooth` are the same. T is what e should be. Each rule is a dict, such
    as lr_params={"rate": 1e-4, "min": 1e-5, "max": 1e-3, "smooth": 0.2}; see
    docs/advanced/adaptive.md for the table. Moved values go back to their originals when a phase
    begins.
    """

    _assembly: Assembly | None = None

    # The effective sample size

    def compute_ess_from_weights(self, weights: Array) -> float:
        """Returns 1 / sum p ** 2 with p = weights / sum weights: between 1 and their number; 0 for
        none. SettingError for weights that are negative or not finite."""
        return effective_sample_size(weights)

    def compute_ess(
        self, ema: float | None = None, smooth: float = 0.2, p: int | None = None
    ) -> float:
        """Returns the effective sample size of the pool, or of the transitions of process p's
        environments; with `ema` its moving average, of which that is the old value. 0 for an empty
        pool."""
        return smoothed(
            ema, effective_sample_size(self.prioritized_replay.powers(p)), _share(smooth)
        )

    @property
    def ema_ess(self) -> float | list[float | None] | None:
        """The moving average of the ESS that `compute_ess` and `adjust_window_size` keep; with
        several processes a list with that of each. None before there was one. (`adjust` and
        `adjust_batch_size` keep one of the whole pool, which with several processes is not
        shown.)"""
        columns = self.prioritized_replay.columns
        if len(columns) < 2:
            return self._sample_sizes.get(self._process(None))
        return [self._sample_sizes.get(p) for p in range(len(columns))]

    @property
    def ema_noise(self) -> float | None:
        """The moving average of the variance of gradients."""
        return self._adjusted.noise

    def adjust_window_size(
        self,
        p: int | None = None,
        scale: float = 1.0,
        smooth_alpha: float = 0.2,
        *,
        smooth: float | None = None,
    ) -> int:
        """Returns how many of the oldest transitions to drop, so that as many stay as their
        effective sample size says: n - clip(int(e scale), 1, n - 1). 0 for fewer than two. Changes
        nothing in the pool.

        p: the number of a process: then n and e are of its environments' transitions; None for the
        whole pool.
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
        """Returns whose average it is: with one process, the whole pool's is that of process 0."""
        return 0 if p is None and len(self.prioritized_replay.columns) < 2 else p

    # The noise of gradients

    def estimate_gradient_variance(
        self, batch_size: int, num_samples: int, jit_compile: bool = True
    ) -> float:
        """Returns the variance of the gradients of `num_samples` independent mini-batches, drawn as
        those of updates are: the mean over weights of the mean of (g - mean g) ** 2. Draws and
        networks of the training are left alone. 0 for fewer than two, and for an empty pool.
        `gradient_noise_scale` is then the simple noise scale of the same gradients (McCandlish et
        al. 2018, arXiv:1812.06162, equation 2.9)."""
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
        """Returns what an agent that asks for it (`gradient_noise`) is told of an episode beside
        its loss, and keeps it."""
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
        """Returns a size of mini-batches by the ESS: round(e scale), or with a target the present
        one times e / T scale; within [min_batch, max_batch] (half of the first one; the pool), one
        of eight sizes at most. That is all for `batch_size_fn`. With batch_params={"scale", "min",
        "max", "align"} it becomes the size of the next mini-batches; with lr_params and the like
        the values of those rules are moved. target_ess: T; None for the ESS when the phase began.
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
        """Sets the size of the next mini-batches, and returns it: see `adjust_batch_size`. ema: the
        signal e; None for the ESS. target: T; None for round(e scale)."""
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
        """Moves values by the noise of gradients: e is the variance over `num_samples` independent
        mini-batches of the present size, T is target_noise. Sets the size of the next mini-batches
        to the present one times e / T scale, where batch_params are given, and returns it; see
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
        """`adabatch` where there is a target_noise, which needs num_samples; else
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
        """A phase begins: what rules have moved goes back to its original, unless something else
        has moved it since, and the ESS of now is the target of rules that are given none. Training
        calls it; override it with a method that does nothing to keep moved values."""
        self._undo_moves()
        assembly = self._assembly
        if assembly is None:
            self._adjusted.start_size = self.compute_ess()
        elif isinstance(sampler := assembly.learner.sampler, ScoredSampler):
            assembly.start_powers = sampler.present_powers()
        else:
            self._adjusted.start_size = float(len(assembly.learner.ring))

    def _start_size(self) -> float:
        """Returns the ESS when the phase began; with priorities computed once, when it is first
        asked for, from those that were in the pool then."""
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
        """Returns what was said of rules, by their names in their order. SettingError for a name of
        none."""
        for name in params:
            one_of("an argument", name, RuleParams.__annotations__)
        given = {name: params.get(f"{name}_params") for name in RULES}
        return {n: Parameters.of(n, x) for n, x in given.items() if x is not None}

    def _apply(self, signal: Signal, e: float, target: float, given: dict[str, Parameters]) -> None:
        """Moves the values of these rules. Before the first training there are none."""
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
        for name, values in places.items():  # before any is moved: two may move the same value
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
        """Returns a count that a rule has moved. It goes on from what it was before it was rounded,
        unless something else has moved it."""
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
        """Returns the size of mini-batches for a signal e."""
        arguments, assembly = self._arguments, self._assembly
        first = 1 if arguments is None else arguments.minibatch
        ring = None if assembly is None else assembly.learner.ring
        pool = ring.capacity if ring is not None else 1 if arguments is None else arguments.size
        low = max(1, first // 2) if parameters.min is None else int(parameters.min)
        high = max(low, pool) if parameters.max is None else int(parameters.max)
        if low < 1 or high < low or (ring is not None and pool < low):
            raise SettingError(
                f"mini-batch sizes from {low} to {high} with a pool of {pool}.",
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
        """Gives a training the values that rules had moved in the one that a file is of, or that
        was in other processes."""
        for name, numbers in self._adjusted.values.items():
            for value, x in zip(values_of(name, self, assembly), numbers, strict=True):
                value.load(x)

    def _forget_moves(self, assembly: Assembly) -> None:
        """The training is of other choices than that of the file: of what rules had moved, only the
        optimizers' numbers come with it, and they go back."""
        for name in ("lr", "weight_decay", "beta1", "beta2"):
            if name in self._adjusted.originals:
                first = self._adjusted.originals[name]
                for value, x in zip(values_of(name, self, assembly), first, strict=True):
                    value.set(x)
        self._adjusted = Adjusted()

    def _keep_store(self, assembly: Assembly, num_store: int | None) -> None:
        """`train` was called again: what a rule made of the same num_store goes on."""
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
    """Returns a mini-batch like those of updates, [B, ...], drawn by a generator of its own."""
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
