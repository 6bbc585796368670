"""The backend interface: what a framework has to provide, and nothing more. Algorithms are written
against it, and know no framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tandem import ops
from tandem.backends import process
from tandem.backends.reach import Reached
from tandem.errors import NetworkError, SettingError
from tandem.networks import noisy
from tandem.networks.defaults import Source
from tandem.networks.plan import Plan, Weights, select
from tandem.types import AnyArray, Array, Batch, Tree, Update, Variable, leaves, tree_map

if TYPE_CHECKING:
    from tandem.networks.users import Module

# one number per sample, and what else is wanted of the forward pass
Loss = Callable[[Batch], tuple[Array, dict[str, Array]]]


Each = Callable[[Batch], Array]  # one number per sample
# of several optimizers, or one of all; numbers, or per sample
Losses = Callable[[Batch], tuple[list[Array], dict[str, Array]]]

# an update that may take no effect: (batch, whether earlier ones of its call took effect) ->
# (metrics and priority, its code, whether its changes are kept)
Guarded = Callable[[Batch, Array], tuple[Tree, Array, Array]]

NOISE = "noise/"  # prefix of settings that are noise for an update: "noise/NETWORK/WEIGHT"


class Region(NamedTuple):
    """How a step within a trust region is found."""

    damping: float  # times the identity, added to the divergence's second derivative
    iterations: int  # of conjugate gradients
    backtracks: int  # steps tried, each `shrink` times as long as the one before
    shrink: float


class Outcome(NamedTuple):
    """The result of a compiled call of K updates; NumPy. Rows are those of the updates that took
    effect, and of the one that asked to stop."""

    metrics: dict[str, AnyArray]  # [rows] each
    priority: Array  # [rows, B] or ()
    applied: int  # how many updates took effect
    stopped: bool  # the next one asked to stop the call
    fault: str  # or it was not finite: the name of the optimizer, else ""


class Trained:
    """Attributes of networks and of single trained numbers that optimizers read, with defaults."""

    decays = True  # by an optimizer's weight decay
    unit: Sequence[Variable] = ()  # see `networks.unit`
    constrained: Sequence[Variable] = ()  # by Keras's constraints
    seeds: Sequence[Array] = ()  # of dropout and the like, where they are part of the network


class Network(Trained, ABC):
    """A network's handle: its module (torch) or model (Keras), and its plan where all its layers
    are known."""

    name: str
    plan: Plan | None
    module: Module
    noise: dict[str, Variable]  # of noisy layers, by "place/name"

    @abstractmethod
    def __call__(self, x: Tree, training: bool | None = None) -> Array:
        """The output for x, in training mode while `minimize` trains this network, unless
        `training` says otherwise."""

    @abstractmethod
    def read(self) -> Weights:
        """The weights as NumPy arrays: by the plan's names if there is one, else by their
        position."""

    @abstractmethod
    def parts(self) -> dict[str, Variable]:
        """The weights with a gradient by dotted names, as in "0.kernel"; those of a custom network
        by the framework's names."""

    @property
    def convolves(self) -> bool:
        """Whether there is a convolution in it: no other weights than its kernel have four axes."""
        return any(x.ndim == 4 for x in self.read().values())

    def mode_dependent_layer(self) -> str:
        """The kind of a layer that users bring whose output in training is another than where an
        agent acts, as of dropout, or whose statistics move; empty where there is none."""
        return ""

    def copy_to(self, weights: Weights) -> None:
        """Writes the weights over those that `read` gave before."""
        for name, x in self.read().items():
            np.copyto(weights[name], x)

    @abstractmethod
    def write(self, weights: Weights) -> None:
        """Puts such weights in."""

    @abstractmethod
    def place(self, noise: dict[str, Array]) -> None:
        """Sets weights without a gradient: the noise of noisy layers, by its names in `self.noise`,
        inside an update or between calls; statistics of Normalize layers, by the plan's names,
        between calls."""

    def draw(self, kind: str, rng: np.random.Generator, count: int) -> Weights:
        """Fresh noise for `place`, `count` times [count, ...], of one kind: "independent" or
        "factorised"."""
        return noisy.draw(kind, rng, {n: tuple(x.shape) for n, x in self.noise.items()}, count)

    @abstractmethod
    def read_noise(self) -> Weights:
        """The noise as it is."""

    def mean(self) -> Weights:
        """The weights, as `read` returns them, with noise 0."""
        if not self.noise:
            return self.read()
        now = self.read_noise()
        self.place({n: np.zeros_like(x) for n, x in now.items()})
        weights = self.read()
        self.place(now)
        return weights

    @abstractmethod
    def predict(self, x: Tree) -> AnyArray:
        """NumPy in, NumPy out; no gradient, inference mode: how a network without a twin acts."""

    @abstractmethod
    def frozen(self, weights: Weights) -> Callable[[Tree], AnyArray]:
        """`predict` with these weights (as `read` gives them), whatever becomes of the network's
        own."""


class Backend(ABC):
    """The verbs of one framework. Names given to networks, scalars and optimizers are their names
    in a checkpoint."""

    framework: str
    device: str
    devices = 1  # that each update is divided among
    usable = True  # False once a process that has one of the devices was lost
    # whether networks are called with the steps of sequences in updates, time first
    time_first = False
    # how many rows of an update are one step's and follow one another: one of each agent
    together = 1
    # how many pairs of numbers the loss of an update compares, such as those of quantiles
    pairs = 0
    networks: dict[str, Any]  # networks, targets and scalars by name
    # the user's own, of which `optimizer` makes copies, whatever kind is asked for
    given_optimizer: object = None
    # "yes" or "no" once it is known whether updates are compiled, where there is a choice
    compiled = ""
    on_compile: Callable[[], object] = staticmethod(lambda: None)  # is called before it compiles
    # `minimize` leaves the weights alone, and gradients to `recorded_gradient`: another process
    # makes the steps
    gradients_only = False
    freeze: Sequence[str] = ()  # names, or beginnings of names, of weights that are not trained
    frozen: frozenset[str] = frozenset()  # those of `freeze` that a network had
    shapes: dict[str, dict[str, tuple[int, ...]]] = {}  # of each network's `parts`

    # whether new layers and tensors are of float32, whatever the program's default is
    float32 = False

    def enter_process(self) -> None:
        """Gives the process the settings of this backend's run; see `backends.process`."""
        if self.float32:
            process.use_float32()

    def leave_process(self) -> None:  # noqa: B027
        """Keeps what the run has changed of them, before the process has its own back."""

    def held(self, name: str, parts: dict[str, Variable]) -> list[Variable]:
        """Those of a network's `parts`, or of its target's, that are to be frozen. Notes them in
        `frozen`, and all their shapes in `shapes`."""
        self.shapes = {**self.shapes, name: {n: tuple(x.shape) for n, x in parts.items()}}
        held = []
        for part, weight in parts.items():
            full = f"{name.removesuffix('_target')}.{part}."
            if fitting := {x for x in self.freeze if full.startswith(f"{x}.")}:
                self.frozen |= fitting
                held.append(weight)
        return held

    def expect_trainable(self, name: str, weights: Sequence[Variable]) -> None:
        """SettingError where `freeze` leaves an optimizer none of its `weights`."""
        if self.freeze and not weights:
            raise SettingError(
                f"freeze={', '.join(self.freeze)} leaves the optimizer {name!r} nothing to train.",
                "at least one trained weight for each optimizer",
                "freeze fewer layers.",
            )

    @abstractmethod
    def network(self, name: str, source: Source) -> Network:
        """A network from a plan with its first weights, or from what the user made."""

    @abstractmethod
    def pair(self, name: str, source: Source) -> tuple[Network, Network]:
        """A network and its target, equal at first; the target (named name + "_target") takes no
        gradient."""

    @abstractmethod
    def scalar(self, name: str, value: float) -> Any:
        """A trained number; called without arguments it gives its value."""

    @abstractmethod
    def optimizer(
        self, name: str, networks: list[Any], kind: str = "adam", **options: float
    ) -> Any:
        """An optimizer of the networks' (and scalars') trainable weights: "adam" (Kingma & Ba 2015,
        arXiv:1412.6980, algorithm 1: epsilon is added to the root of the corrected second moment;
        options epsilon, beta1, beta2), "radam" (Liu et al. 2020, arXiv:1908.03265, algorithm 2; the
        same options), "rmsprop" (Mnih et al. 2016, arXiv:1602.01783, supplement: g
        <- decay g + (1 - decay) grad^2, weight -= rate grad / sqrt(g + epsilon); g begins at 1, so
        that the first steps are not too long; options decay, epsilon) or "sgd". A copy of the
        user's own has no weight decay where it trains numbers of `scalar` alone."""

    def refuse_decay(self, options: dict[str, float]) -> None:
        """SettingError for weight decay with an optimizer that the user made."""
        if self.given_optimizer is not None and "weight_decay" in options:
            raise SettingError(
                f"weight_decay={options['weight_decay']:g} is not supported with a custom "
                "optimizer.",
                "weight decay in one place",
                "leave weight_decay out, and set it in your optimizer.",
            )

    @abstractmethod
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
        """One gradient step on this optimizer's own weights; no other network is touched. Returns
        the reduced loss and `aux`.

        `loss(batch)` gives one number per sample; they are multiplied by `batch.weight` and summed,
        divided by `count` (default: the number of samples). A loss must not mix samples, since each
        device may have some of them only: what is computed over all of them, `over_batch` puts into
        the batch before, and no gradient passes through it. Gradients are clipped to the global
        norm `clip_norm`. Where `stop(aux)` is true, or the loss or a gradient is not finite, this
        update and the later ones of the call change nothing.
        """

    @abstractmethod
    def recorded_gradient(self, optimizer: Any) -> AnyArray:
        """The gradient of the latest `minimize`, clipped, as one vector [optimizer.size], where the
        backend `gradients_only` them."""

    @abstractmethod
    def step(self, optimizer: Any, gradient: Array, learning_rate: Array) -> None:
        """Inside an update: the step that `minimize` would have made with this gradient, which is
        one that was recorded."""

    @abstractmethod
    def minimize_joint(
        self, optimizers: list[Any], losses: Losses, batch: Batch
    ) -> tuple[list[Array], dict[str, Array]]:
        """One step of each optimizer of `wrap_optimizer` on its own of the losses, or on the only
        one: all gradients are taken at the same point, before any step. Returns the reduced losses
        and `aux`; what is not finite is handled as by `minimize`."""

    @abstractmethod
    def joint_gradients(
        self, optimizers: list[Any], losses: Losses, jit: bool = True
    ) -> Callable[[Batch], AnyArray]:
        """A function of a batch that gives the gradients which `minimize_joint` would take, as one
        vector [P] over the weights of all optimizers, and changes nothing; compiled where updates
        are, unless `jit` is False."""

    @abstractmethod
    def adopt(self, reached: Reached) -> None:
        """Takes in the networks and variables of a user's agent: from now on they are part of
        updates and of `state`."""

    @abstractmethod
    def wrap_optimizer(self, name: str, optimizer: object, weights: list[Variable]) -> Any:
        """The user's optimizer itself, for `minimize_joint`; `weights` are those of the agent's
        that it is meant for."""

    @abstractmethod
    def forward(self, function: Callable[..., Array]) -> Callable[..., Tree]:
        """A user's function of arrays [B, ...] as one of NumPy arrays: without gradients, and
        compiled where that can be."""

    @abstractmethod
    def call(self, function: Callable[..., Tree], *arrays: Tree) -> Tree:
        """The result of `function` for such arrays, once, not compiled, without gradients; as NumPy
        arrays."""

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
        """One natural-gradient step on this optimizer's own weights, of whatever kind it is, that
        betters `objective` and keeps `divergence` within `radius` (Schulman et al. 2015,
        arXiv:1502.05477, appendix C); none where no such step is found.

        Both functions give one number per sample, reduced as `minimize` does; `divergence` from
        what it is now, where it has to be 0 with gradient 0. Returns {"improvement", "divergence"}
        of the step that was made, 0 if none was.
        """

    @abstractmethod
    def cond(
        self, flag: Array, update: Callable[[], dict[str, Array]], names: tuple[str, ...]
    ) -> dict[str, Array]:
        """`update()`, which gives metrics of these names, where `flag` is 1; where it is 0, nothing
        is computed or changed, and the metrics are NaN: not measured."""

    @abstractmethod
    def gradient(self, f: Callable[[Array], Array], x: Array) -> Array:
        """The derivative of f, an array to one number, at x."""

    @abstractmethod
    def soft_update(
        self, source: Network, target: Network, tau: Array, seldom: bool = False
    ) -> None:
        """target += tau * (source - target); statistics without a gradient are copied wherever tau
        > 0. Noise is left alone. `seldom`: tau is 0 in most updates of a call, and the target not
        asked again in this one; then those cost nothing. (Not inside `cond`: it is done once the
        update is known to be kept.)"""

    @abstractmethod
    def compile(
        self, update: Callable[[Batch], Update], jit: bool = True
    ) -> Callable[..., Outcome]:
        """`run(batches)` makes K updates from arrays [K, ...]; `run(data, indices)` makes K from
        the rows indices[k] of data [N, ...]; either way `settings` are [K] each. If they are
        compiled, this is one compiled call and one wait for the device.

        Before an update, those of its settings that `noise` made are placed in the networks; the
        update does not see them. Without such settings networks keep the noise they have.
        `jit=False` leaves the compiler out, where there is one.

        Updates whose rows all have weight 0 are left out: see `skip_empty`."""

    def noise(self, kind: str, rng: np.random.Generator, count: int) -> dict[str, Array]:
        """Fresh noise for all noisy layers, those of targets too, as settings of `count` updates;
        [count, ...] each."""
        networks = {n: x for n, x in self.networks.items() if isinstance(x, Network)}
        return {
            f"{NOISE}{name}/{n}": x
            for name, net in networks.items()
            for n, x in net.draw(kind, rng, count).items()
        }

    def _placing(self, update: Callable[[Batch], Update]) -> Callable[[Batch], Update]:
        """`update`, after the noise among its settings has been placed."""
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
        """Everything that changes in training: weights, optimizers, scalars, generators."""

    @abstractmethod
    def load_state(self, state: dict[str, AnyArray]) -> None:
        """Puts `state()` back, exactly."""

    def close(self) -> None:
        """No more updates: ends the processes that make them too, where there are such."""
        return


def rows(batch: Batch) -> int:
    """The number of samples."""
    return int(leaves(batch.obs)[0].shape[0])


def reduce(loss: Array, batch: Batch, count: Array | None) -> Array:
    """Losses of samples [B] to one number, in the one place where weights and counts come in."""
    xp, samples = ops.of(loss), rows(batch)
    weight = None if isinstance(batch.weight, tuple) else batch.weight
    for name, x in (("loss", loss), ("weight", weight)):
        # [B, 1] with [B] would become [B, B], and learn nonsense
        if x is not None and tuple(x.shape) != (samples,):
            raise ValueError(
                f"a {name} has shape {tuple(x.shape)} for {samples} samples; expected one number "
                f"each: ({samples},)"
            )
    weighted = loss if weight is None else loss * weight
    return xp.mean(weighted) if count is None else xp.sum(weighted) / count


def reduced(loss: Array, batch: Batch) -> Array:
    """A user's loss as one number: as it is, if it is one, else as `reduce` makes it of one per
    sample."""
    return reduce(loss, batch, None) if len(loss.shape) else loss


def all_reduced(losses: Losses, parts: int = 1) -> Losses:
    """Losses of which each is one number: of one of so many equal `parts` of a batch, where those
    of all parts add up to that of the batch."""

    def function(batch: Batch) -> tuple[list[Array], dict[str, Array]]:
        each, aux = losses(batch)
        values = [reduced(x, batch) for x in each]
        return values if parts == 1 else [x / parts for x in values], aux

    return function


def outcome(
    metrics: dict[str, AnyArray], priority: Array, codes: list[int], faults: list[str]
) -> Outcome:
    """The Outcome of NumPy arrays [K, ...] and of the updates' codes: 0 applied, 1 stopped, 2 + i
    not finite in the i-th optimizer, -1 not run."""
    applied = next((k for k, code in enumerate(codes) if code), len(codes))
    code = codes[applied] if applied < len(codes) else 0
    stopped = code == 1
    if code:
        metrics, priority = tree_map(lambda x: x[: applied + stopped], (metrics, priority))
    return Outcome(metrics, priority, applied, stopped, faults[code - 2] if code >= 2 else "")


Run = Callable[..., Outcome]  # (batches) or (data, indices), as `Backend.compile` returns it


def skip_empty(run: Run) -> Run:
    """`run` without those updates of a call whose rows all have weight 0: they change nothing, have
    no metrics, and are not counted. Their priorities are 0."""

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
    """NetworkError where a network, of these variables, and its target share some: the target would
    be the network itself."""
    if {id(v) for v in network} & {id(v) for v in target}:
        raise NetworkError(
            f"network= returned the same layers for {name!r} and its target.",
            "new layers at each call, since a target lags behind its network",
            "create the layers inside the function.",
        )
