"""The backend interface: the operations that a framework must provide. Algorithms are written
against it and import no framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tandem import ops
from tandem.backends import process, variables
from tandem.errors import NetworkError, SettingError
from tandem.networks import noisy
from tandem.networks.defaults import Source
from tandem.networks.plan import Plan, Weights, select
from tandem.types import AnyArray, Array, Batch, Tree, Update, Variable, leaves, tree_map

if TYPE_CHECKING:
    from tandem.networks.users import Module

# returns one loss per sample, and auxiliary outputs of the forward pass
Loss = Callable[[Batch], tuple[Array, dict[str, Array]]]

Each = Callable[[Batch], Array]  # one number per sample
# one loss per optimizer or one joint loss, each a scalar or one value per sample
Losses = Callable[[Batch], tuple[list[Array], dict[str, Array]]]
Gradient = list[Array]  # of all weights of an optimizer, as the optimizer takes it

RECORDER = "recorder"  # type of an optimizer that only records its gradient

# an update that may be discarded: (batch, whether earlier updates of the call took effect) ->
# (metrics and priority, status code, whether to keep its changes)
Guarded = Callable[[Batch, Array], tuple[Tree, Array, Array]]

NOISE = "noise/"  # prefix of settings that hold noise for an update: "noise/NETWORK/WEIGHT"


class Region(NamedTuple):
    """Parameters of the search for a step within a trust region."""

    damping: float  # coefficient of the identity added to the divergence's second derivative
    iterations: int  # conjugate gradient iterations
    backtracks: int  # steps to try, each `shrink` times as long as the previous one
    shrink: float


class Outcome(NamedTuple):
    """The result of a compiled call of K updates, as NumPy arrays. It has one row per update that
    took effect, plus one for the update that requested the stop."""

    metrics: dict[str, AnyArray]  # [rows] each
    priority: Array  # [rows, B] or ()
    applied: int  # number of updates that took effect
    stopped: bool  # the next update requested the stop
    fault: str  # name of the optimizer whose loss or gradient was not finite, else ""


class Trained:
    """Attributes of networks and scalars that optimizers read, with their defaults."""

    decays = True  # subject to the optimizer's weight decay
    unit: Sequence[Variable] = ()  # see `networks.unit`
    constrained: Sequence[Variable] = ()  # weights with Keras constraints
    seeds: Sequence[Array] = ()  # seeds of dropout and similar layers, if the network stores them


class Network(Trained, ABC):
    """A network handle: its module (torch) or model (Keras), and its plan if all layers are
    known."""

    name: str
    plan: Plan | None
    module: Module
    noise: dict[str, Variable]  # noise of noisy layers, by "place/name"

    @abstractmethod
    def __call__(self, x: Tree, training: bool | None = None) -> Array:
        """Return the output for x. Runs in training mode while `minimize` trains this network,
        unless `training` overrides it."""

    @abstractmethod
    def read(self) -> Weights:
        """Return the weights as NumPy arrays, by the plan's names, or by position without a
        plan."""

    @abstractmethod
    def parts(self) -> dict[str, Variable]:
        """Return the trainable weights by dotted names such as "0.kernel"; for a custom network, by
        the framework's names."""

    @property
    def convolves(self) -> bool:
        """True if the network has a convolution: only convolution kernels have four axes."""
        return any(x.ndim == 4 for x in self.read().values())

    def mode_dependent_layer(self) -> str:
        """Return the type of a layer in a custom network that behaves differently in training and
        when acting, such as dropout, or whose statistics change. Empty if there is none."""
        return ""

    def copy_to(self, weights: Weights) -> None:
        """Overwrite `weights`, which an earlier `read` returned, with the current weights."""
        for name, x in self.read().items():
            np.copyto(weights[name], x)

    @abstractmethod
    def write(self, weights: Weights) -> None:
        """Set the weights, in the format of `read`."""

    @abstractmethod
    def place(self, noise: dict[str, Array]) -> None:
        """Set weights that have no gradient: the noise of noisy layers, by its names in
        `self.noise` (inside an update or between calls), or the statistics of Normalize layers, by
        the plan's names (between calls)."""

    def draw(self, kind: str, rng: np.random.Generator, count: int) -> Weights:
        """Sample `count` sets of noise for `place`, [count, ...] each. `kind` is "independent" or
        "factorised"."""
        return noisy.draw(kind, rng, {n: tuple(x.shape) for n, x in self.noise.items()}, count)

    def read_noise(self) -> Weights:
        """Return the current noise."""
        return dict(zip(self.noise, variables.read(self.noise.values()), strict=True))

    def mean(self) -> Weights:
        """Return the weights, in the format of `read`, with the noise set to 0."""
        if not self.noise:
            return self.read()
        now = self.read_noise()
        self.place({n: np.zeros_like(x) for n, x in now.items()})
        weights = self.read()
        self.place(now)
        return weights

    @abstractmethod
    def predict(self, x: Tree) -> AnyArray:
        """Return NumPy outputs for NumPy inputs, without gradients and in inference mode. Networks
        without a NumPy version act with it."""

    @abstractmethod
    def frozen(self, weights: Weights) -> Callable[[Tree], AnyArray]:
        """Return `predict` with fixed weights (in the format of `read`), unaffected by later
        changes to the network."""


class Backend(ABC):
    """The operations of one framework. The names of networks, scalars and optimizers are their
    names in checkpoints."""

    framework: str
    device: str
    devices = 1  # number of devices that share each update
    layout: Any = None  # these devices, if there are several
    usable = True  # False once a process that holds one of the devices is lost
    # whether updates call networks with sequences in time-major order
    time_first = False
    # number of consecutive rows of an update that belong to one step: one per agent
    together = 1
    networks: dict[str, Any]  # networks, target networks and scalars by name
    # the user's optimizer, or a type; `optimizer` returns copies of it, whatever type is requested
    given_optimizer: object = None
    # "yes" or "no" once it is known whether updates are compiled, for backends that have the choice
    compiled = ""
    on_compile: Callable[[], object] = staticmethod(lambda: None)  # before compiling or loading
    compiles: bool = False  # torch's compiler is running, which a signal does not interrupt
    freeze: Sequence[str] = ()  # names, or prefixes of names, of weights to freeze
    frozen: frozenset[str] = frozenset()  # entries of `freeze` that matched a network's weights
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}  # shapes of each network's `parts`

    # whether new layers and tensors are float32, whatever the program's default
    float32 = False
    # status of the update: 0, 1 if it requested a stop, or 2 + i if a value of optimizer i was not
    # finite. An int, or an array while an update is traced
    _code: Array = 0
    _optimizers: list[Any]

    def enter_process(self) -> None:
        """Apply the process-wide settings of this backend's run; see `backends.process`."""
        if self.float32:
            process.use_float32()

    def leave_process(self) -> None:  # noqa: B027
        """Save the process-wide settings that the run changed, before the program's own are
        restored."""

    def held(self, name: str, parts: dict[str, Variable]) -> list[Variable]:
        """Return the weights among a network's `parts` (or its target's) to freeze. Records the
        matching names in `frozen`, and all shapes in `shapes`."""
        self.shapes = {**self.shapes, name: {n: tuple(x.shape) for n, x in parts.items()}}
        held = []
        for part, weight in parts.items():
            full = f"{name.removesuffix('_target')}.{part}."
            if fitting := {x for x in self.freeze if full.startswith(f"{x}.")}:
                self.frozen |= fitting
                held.append(weight)
        return held

    def expect_trainable(self, name: str, weights: Sequence[Variable]) -> None:
        """Raise SettingError if `freeze` leaves an optimizer without any of its `weights`."""
        if self.freeze and not weights:
            raise SettingError(
                f"freeze={', '.join(self.freeze)} leaves the optimizer {name!r} nothing to train.",
                "at least one trained weight for each optimizer",
                "freeze fewer layers.",
            )

    @abstractmethod
    def network(self, name: str, source: Source) -> Network:
        """Create a network from a plan with its initial weights, or from a custom network."""

    @abstractmethod
    def pair(self, name: str, source: Source) -> tuple[Network, Network]:
        """Create a network and its target network with equal weights. The target (named name +
        "_target") is not trained."""

    @abstractmethod
    def scalar(self, name: str, value: float) -> Any:
        """Create a trainable scalar. Calling it without arguments returns its value."""

    @abstractmethod
    def optimizer(
        self, name: str, networks: list[Any], kind: str = "adam", **options: float
    ) -> Any:
        """Create an optimizer of the trainable weights of networks and scalars.

        Types: "adam" (Kingma & Ba 2015, arXiv:1412.6980, algorithm 1: epsilon is added to the root
        of the corrected second moment; options epsilon, beta1, beta2), "radam" (Liu et al. 2020,
        arXiv:1908.03265, algorithm 2; same options), "rmsprop" (Mnih et al. 2016, arXiv:1602.01783,
        supplement: g <- decay g + (1 - decay) grad^2, weight -= rate grad / sqrt(g + epsilon); g
        starts at 1 so that the first steps are not too long; options decay, epsilon), "sgd", and
        RECORDER, which changes no weight: `recorded` of such an optimizer is the gradient of its
        latest update, a NumPy vector [size]. A copy of the user's optimizer has no weight decay if
        it trains only scalars.
        """

    def refuse_decay(self, options: dict[str, float]) -> None:
        """Raise SettingError for weight decay with a custom optimizer."""
        if not isinstance(self.given_optimizer, str | None) and "weight_decay" in options:
            raise SettingError(
                f"weight_decay={options['weight_decay']:g} is not supported with a custom "
                "optimizer.",
                "weight decay in one place",
                "leave weight_decay out, and set it in your optimizer.",
            )

    @property
    def optimizer_names(self) -> list[str]:
        """Names of all optimizers, in the order of the status codes."""
        return [o.name for o in self._optimizers]

    @abstractmethod
    def gradient(
        self, optimizers: list[Any], losses: Losses, batch: Batch
    ) -> tuple[list[Array], dict[str, Array], list[Gradient]]:
        """Return (losses, aux, gradient of each optimizer's weights), all computed at the same
        point.

        `losses(batch)` returns a scalar for each optimizer, or one for all, and `aux`. Several
        devices call it with one of `parts(batch)` equal parts each, whose losses must add up.
        """

    @abstractmethod
    def apply(
        self,
        optimizer: Any,
        gradient: Gradient,
        learning_rate: Array | None = None,
        keep: Array = True,
    ) -> None:
        """Inside an update, step against a gradient of `gradient`, or of
        `optimizer.from_vector`, unless `keep` is known to be false; a compiled update undoes the
        step then."""

    def parts(self, batch: Batch) -> int:
        """Return the number of devices that share the rows of a batch."""
        divides = self.layout is not None and self.layout.divides_rows
        return int(self.layout.parts(batch)) if divides else 1

    def minimize(
        self,
        optimizer: Any,
        loss: Loss,
        batch: Batch,
        learning_rate: Array,
        clip_norm: Array | None = None,
        count: Array | None = None,
        stop: Callable[[dict[str, Array]], Array] | None = None,
        over_batch: Callable[[Batch], Batch] | None = None,
    ) -> tuple[Array, dict[str, Array]]:
        """Make one gradient step on this optimizer's weights and no others. Return the reduced loss
        and `aux`.

        `loss(batch)` returns one value per sample. The values are multiplied by `batch.weight`,
        summed and divided by `count` (default: the number of samples). A loss must not mix samples,
        since a device may hold only some of them. `over_batch` computes quantities over all samples
        beforehand and adds them to the batch; no gradient passes through them. Gradients are
        clipped to the global norm `clip_norm`. If `stop(aux)` is true, or the loss or a gradient is
        not finite, this update and all later ones of the call change nothing.
        """
        batch = over_batch(batch) if over_batch else batch
        if count is None and self.parts(batch) > 1:
            like = leaves(batch.obs)[0]
            count = ops.of(like).constant(np.float32(rows(batch)), like)

        def reduced(b: Batch) -> tuple[list[Array], dict[str, Array]]:
            each, aux = loss(b)
            return [reduce(each, b, count)], aux

        for n in optimizer.networks:
            n.learning = True
        try:
            (value,), aux, (gradient,) = self.gradient([optimizer], reduced, batch)
        finally:
            for n in optimizer.networks:
                n.learning = False
        stopped = None if stop is None else stop(aux)
        self._guard(optimizer, value, gradient, clip_norm, stopped)
        self.apply(optimizer, gradient, learning_rate, self._code == 0)
        return value, aux

    def _guard(
        self,
        optimizer: Any,
        value: Array,
        gradient: Gradient,
        clip_norm: Array | None = None,
        stop: Array | None = None,
    ) -> None:
        """Set the status code if `stop` is true, or the loss `value` or the gradient is not finite.
        Clip the gradient to the global norm `clip_norm`, which may be infinite."""
        norm = self._norm(gradient)
        self._check(optimizer, norm + value, stop)  # the sum is finite only if both are
        if clip_norm is not None:
            scale = self._at_most_one(clip_norm / (norm + 1e-6))
            for i in range(len(gradient)):
                gradient[i] *= scale  # in place if arrays are mutable

    def _check(self, optimizer: Any, number: Array, stop: Array | None = None) -> Array:
        """Set the status code if `stop` is true or the number is not finite. Return whether the
        update may still take effect."""
        fault = 2 + self._optimizers.index(optimizer)
        if not isinstance(self._code, int):
            xp = ops.of(number)
            code = xp.where(xp.isfinite(number), 0 if stop is None else xp.where(stop, 1, 0), fault)
            self._code = xp.where(self._code == 0, code, self._code)
        elif not self._code:
            self._code = int(stop is not None and bool(stop)) if isfinite(float(number)) else fault
        return self._code == 0

    def _norm(self, gradient: Gradient) -> Array:
        """Return the global norm of a gradient."""
        xp = ops.of(gradient[0])
        return xp.sqrt(sum(xp.sum(g * g) for g in gradient))

    def _at_most_one(self, number: Array) -> Array:
        """Return the minimum of a number and 1."""
        return ops.of(number).minimum(number, 1.0)

    @abstractmethod
    def trust_region_step(
        self,
        optimizer: Any,
        objective: Each,
        divergence: Each,
        batch: Batch,
        radius: Array,
        region: Region,
        count: Array,
    ) -> dict[str, Array]:
        """Make one natural-gradient step on this optimizer's weights, whatever its type, that
        improves `objective` and keeps `divergence` within `radius` (Schulman et al. 2015,
        arXiv:1502.05477, appendix C). Makes no step if none qualifies.

        Both functions return one value per sample, reduced as in `minimize`. `divergence` is
        measured from the current policy, where its value and gradient must be 0. Returns
        {"improvement", "divergence"} of the step, both 0 if none was made.
        """

    @abstractmethod
    def cond(
        self, flag: Array, update: Callable[[], dict[str, Array]], names: tuple[str, ...]
    ) -> dict[str, Array]:
        """Return `update()`, metrics with these names, if `flag` is 1. If it is 0, nothing is
        computed or changed, and the metrics are NaN (not measured)."""

    @abstractmethod
    def derivative(self, f: Callable[[Array], Array], x: Array) -> Array:
        """Return the derivative at x of f, a function from an array to a scalar."""

    @abstractmethod
    def soft_update(
        self, source: Network, target: Network, tau: Array, seldom: bool = False
    ) -> None:
        """Update target += tau * (source - target). Statistics without a gradient are copied
        wherever tau > 0; noise is not changed.

        Set `seldom` if tau is 0 in most updates of a call and this update does not use the target
        again; updates with tau 0 then cost nothing. (Not allowed inside `cond`: it runs once the
        update is known to be kept.)
        """

    @abstractmethod
    def compile(
        self, update: Callable[[Batch], Update], jit: bool = True
    ) -> Callable[..., Outcome]:
        """Return a function that makes K updates per call: `run(batches)` from arrays [K, ...], or
        `run(data, indices)` from the rows indices[k] of data [N, ...]. In both cases `settings` are
        [K] each. If updates are compiled, each call is one compiled call and waits for the device
        once.

        Before an update, its settings created by `noise` are placed in the networks; the update
        does not see them. Without such settings, networks keep their current noise. `jit=False`
        disables the compiler, if there is one.

        Updates whose rows all have weight 0 are skipped: see `skip_empty`.
        """

    def noise(self, kind: str, rng: np.random.Generator, count: int) -> dict[str, Array]:
        """Sample noise for all noisy layers, including those of target networks, as settings of
        `count` updates, [count, ...] each."""
        networks = {n: x for n, x in self.networks.items() if isinstance(x, Network)}
        return {
            f"{NOISE}{name}/{n}": x
            for name, net in networks.items()
            for n, x in net.draw(kind, rng, count).items()
        }

    def _placing(self, update: Callable[[Batch], Update]) -> Callable[[Batch], Update]:
        """Return `update`, preceded by placing the noise among its settings."""
        noisy = {n: x for n, x in self.networks.items() if isinstance(x, Network) and x.noise}
        if not noisy:
            return update

        def placed(batch: Batch) -> Update:
            for name, network in noisy.items():
                network.place(select(batch.settings, NOISE + name))
            return update(
                batch._replace(
                    settings={n: x for n, x in batch.settings.items() if not n.startswith(NOISE)}
                )
            )

        return placed

    @abstractmethod
    def state(self) -> dict[str, AnyArray]:
        """Return everything that training changes: weights, optimizers, scalars, generators."""

    @abstractmethod
    def load_state(self, state: dict[str, AnyArray]) -> None:
        """Restore `state()` exactly."""

    def close(self) -> None:
        """End all updates, including the worker processes that make them."""
        return


class AgentBackend(Backend):
    """The additional operations for agents whose networks, loss and optimizers are the user's."""

    @abstractmethod
    def adopt(self, modules: dict[str, Module], variables: dict[str, Variable]) -> None:
        """Take over the networks and variables of a user's agent: from now on they are part of
        updates and of `state`."""

    @abstractmethod
    def wrap_optimizer(self, name: str, optimizer: object, weights: list[Variable]) -> Any:
        """Wrap the user's optimizer itself for `minimize_joint`. `weights` are the agent's weights
        that it trains."""

    def minimize_joint(
        self, optimizers: list[Any], losses: Losses, batch: Batch
    ) -> tuple[list[Array], dict[str, Array]]:
        """Make one step per optimizer of `wrap_optimizer`, each on its own loss or all on the only
        one. All gradients are computed at the same point, before any step. Return the reduced
        losses and `aux`; non-finite values are handled as in `minimize`."""
        reduced = all_reduced(losses, self.parts(batch))
        values, aux, gradients = self.gradient(optimizers, reduced, batch)
        for i, (o, gradient) in enumerate(zip(optimizers, gradients, strict=True)):
            self._guard(o, values[min(i, len(values) - 1)], gradient)
        for o, gradient in zip(optimizers, gradients, strict=True):
            self.apply(o, gradient, keep=self._code == 0)
        return values, aux

    @abstractmethod
    def joint_gradients(
        self, optimizers: list[Any], losses: Losses, jit: bool = True
    ) -> Callable[[Batch], AnyArray]:
        """Return a function that computes the gradients of `minimize_joint` for a batch, without
        changing anything, as one vector [P] over the weights of all optimizers. It is compiled if
        updates are, unless `jit` is False."""

    @abstractmethod
    def forward(self, function: Callable[..., Array]) -> Callable[..., Tree]:
        """Turn a user's function of arrays [B, ...] into one of NumPy arrays, without gradients,
        and compiled if possible."""

    @abstractmethod
    def call(self, function: Callable[..., Tree], *arrays: Tree) -> Tree:
        """Call `function` once on these arrays, uncompiled and without gradients. Return NumPy
        arrays."""


def rows(batch: Batch) -> int:
    """Return the number of samples."""
    return int(leaves(batch.obs)[0].shape[0])


def reduce(loss: Array, batch: Batch, count: Array | None) -> Array:
    """Reduce losses of samples [B] to a scalar: the one place where weights and counts are
    applied."""
    xp, samples = ops.of(loss), rows(batch)
    weight = None if isinstance(batch.weight, tuple) else batch.weight
    for name, x in (("loss", loss), ("weight", weight)):
        # [B, 1] with [B] would broadcast to [B, B] and train on nonsense
        if x is not None and tuple(x.shape) != (samples,):
            raise ValueError(
                f"a {name} has shape {tuple(x.shape)} for {samples} samples; expected one number "
                f"each: ({samples},)"
            )
    weighted = loss if weight is None else loss * weight
    return xp.mean(weighted) if count is None else xp.sum(weighted) / count


def reduced(loss: Array, batch: Batch) -> Array:
    """Return a user's loss as a scalar: unchanged if it is one, else reduced over samples by
    `reduce`."""
    return reduce(loss, batch, None) if len(loss.shape) else loss


def all_reduced(losses: Losses, parts: int = 1) -> Losses:
    """Reduce each loss to a scalar for one of `parts` equal parts of a batch, so that the parts add
    up to the loss of the whole batch."""

    def function(batch: Batch) -> tuple[list[Array], dict[str, Array]]:
        each, aux = losses(batch)
        values = [reduced(x, batch) for x in each]
        return values if parts == 1 else [x / parts for x in values], aux

    return function


def outcome(
    metrics: dict[str, AnyArray], priority: Array, codes: list[int], faults: list[str]
) -> Outcome:
    """Build the Outcome from NumPy arrays [K, ...] and status codes: 0 applied, 1 stopped, 2 + i
    not finite in optimizer i, -1 not run."""
    applied = next((k for k, code in enumerate(codes) if code), len(codes))
    code = codes[applied] if applied < len(codes) else 0
    stopped = code == 1
    if code:
        metrics, priority = tree_map(lambda x: x[: applied + stopped], (metrics, priority))
    return Outcome(metrics, priority, applied, stopped, faults[code - 2] if code >= 2 else "")


Run = Callable[..., Outcome]  # (batches) or (data, indices), as returned by `Backend.compile`


def skip_empty(run: Run) -> Run:
    """Make `run` skip updates whose rows all have weight 0: they change nothing, have no metrics
    and are not counted. Their priorities are 0."""

    def without_empty(batches: Batch, indices: Array | None = None) -> Outcome:
        weight = batches.weight
        if isinstance(weight, tuple) or weight.all():
            return run(batches, indices)
        each = weight if indices is None else weight[indices]
        live = np.flatnonzero(each.reshape(len(each), -1).any(1))
        if len(live) == len(each):
            return run(batches, indices)
        if not len(live):
            return Outcome({}, (), 0, False, "")
        part = tree_map(lambda x: x[live], batches if indices is None else batches.settings)
        if indices is None:
            made = run(part)
        else:
            made = run(batches._replace(settings=part), indices[live])

        def placed(x: AnyArray) -> AnyArray:
            whole = np.zeros((len(each), *x.shape[1:]), x.dtype)
            whole[live[: len(x)]] = x
            return whole

        return made._replace(priority=tree_map(placed, made.priority))

    return without_empty


def keep_apart(name: str, network: Iterable[Variable], target: Iterable[Variable]) -> None:
    """Raise NetworkError if a network and its target, given by their variables, share any: the
    target would be the network itself."""
    if {id(v) for v in network} & {id(v) for v in target}:
        raise NetworkError(
            f"network= returned the same layers for {name!r} and its target.",
            "new layers at each call, since a target lags behind its network",
            "create the layers inside the function.",
        )
