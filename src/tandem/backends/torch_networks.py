"""Torch modules and separate tensors for the backend interface."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable

import cloudpickle
import numpy as np
import torch
from torch import nn

from tandem.backends import backend, not_picklable, process
from tandem.errors import NetworkError
from tandem.networks import torch_layers as modules
from tandem.networks.onnx import entries
from tandem.networks.plan import Plan, Weights
from tandem.networks.torch_bodies import as_written
from tandem.networks.unit import is_unit
from tandem.types import AnyArray, Array, Tree, Variable, tree_map

Buffers = dict[str, torch.Tensor | None]
MEMBERS = "_parameters", "_buffers", "_modules"  # attributes that every module has


class TorchNetwork(backend.Network):
    """A torch module, and its plan if all layers are known."""

    def __init__(
        self,
        name: str,
        module: nn.Module,
        plan: Plan | None,
        device: torch.device,
        named: dict[str, Variable] | None = None,
    ) -> None:
        self.name = name
        self.plan = plan
        self.module = module.to(device).eval()
        self.device = device
        # depends on training mode
        self.stateful_forward = any(
            isinstance(m, _MOODY) or not _known(m) for m in module.modules()
        )
        self.learning = False
        # trained, or those of a target network
        self.weights: list[nn.Parameter] = list(module.parameters())
        if named is None:  # computed once: there are many names
            of_plan = {} if plan is None else modules.tensors(plan, module)
            named = {n: t for n, (t, _) in of_plan.items()}
        self.noise = modules.noise(module, named)
        self.named = {**named, **self.noise}  # by the plan's names if there is one
        direct = (m for m in module.modules() if isinstance(m, modules.Direct))
        ours = named.items() or [x for m in direct for x in m.named_parameters()]
        self.unit = [t for n, t in ours if is_unit(n)]  # see `networks.unit`
        noise = {id(t) for t in self.noise.values()}
        buffers = {n: t for n, t in module.named_buffers() if id(t) not in noise}
        self._names, self._statistics = list(buffers), list(buffers.values())
        # modules of unknown types may rebind their buffers to other tensors
        self.rebinds = plan is None and self.stateful_forward and bool(self._statistics)

    @property
    def statistics(self) -> list[torch.Tensor]:
        """Buffers that a forward pass may change, always the same number. The shape of a rebound
        buffer may change, for example if a module stores its latest input."""
        if not self.rebinds:
            return self._statistics
        now = dict(self.module.named_buffers())
        return [now.get(n, t) for n, t in zip(self._names, self._statistics, strict=True)]

    def bound(self) -> list[tuple[Buffers, Buffers]]:
        """Return the buffers of each module with their current tensors, for `bind`."""
        return [(m._buffers, dict(m._buffers)) for m in self.module.modules()]

    def mode_dependent_layer(self) -> str:
        found = (type(m).__name__ for m in self.module.modules() if _depends_on_mode(m))
        return next(found, "")

    def __call__(self, x: Tree, training: bool | None = None) -> Array:
        if self.stateful_forward:
            wanted = self.learning if training is None else training
            if self.module.training != wanted:
                self.module.train(wanted)
        return self.module(x)

    def tensors(self) -> list[torch.Tensor]:
        """Return parameters and buffers, in the same order in every process."""
        return list(self.module.state_dict().values())

    def parts(self) -> dict[str, Variable]:
        named = self.named if self.plan is not None else dict(self.module.named_parameters())
        kept = {id(p) for p in self.weights}
        return {n.replace("/", "."): t for n, t in named.items() if id(t) in kept}

    def read(self) -> Weights:
        if self.plan is not None:
            return modules.read(self.plan, self.module)
        return {str(i): np.array(t.detach().cpu().numpy()) for i, t in enumerate(self.tensors())}

    def write(self, weights: Weights) -> None:
        if self.plan is not None:
            modules.write(self.plan, self.module, weights)
        else:
            with torch.no_grad():
                for i, t in enumerate(self.tensors()):
                    t.copy_(torch.as_tensor(weights[str(i)], device=t.device))

    @torch.no_grad()
    def place(self, noise: dict[str, Array]) -> None:
        for n, x in noise.items():
            self.named[n].copy_(torch.as_tensor(x, device=self.device))

    @torch.inference_mode()
    def predict(self, x: Tree) -> AnyArray:
        return (
            self(tree_map(lambda a: torch.as_tensor(a, device=self.device), x), training=False)
            .cpu()
            .numpy()
        )

    def frozen(self, weights: Weights) -> Callable[[Tree], AnyArray]:
        parts = [x for m in self.module.modules() for n, x in vars(m).items() if n not in MEMBERS]
        # such as those that hooks store in a module; deepcopy rejects them
        computed = {
            id(x): x.detach() for x in parts if isinstance(x, torch.Tensor) and not x.is_leaf
        }
        try:
            module = copy.deepcopy(self.module, dict(computed))
        except Exception:  # deepcopy also rejects locks and files: the copy shares those
            shared = {id(x): x for x in parts if not _can_be_copied(x)}
            module = copy.deepcopy(self.module, shared | computed)
        other = TorchNetwork(self.name, module, self.plan, self.device)
        other.write(weights)
        return FrozenModule(other)


def _can_be_copied(x: object) -> bool:
    try:
        copy.deepcopy(x)
    except Exception:
        return False
    return True


def bind(bound: list[tuple[Buffers, Buffers]]) -> None:
    """Restore the buffers that `TorchNetwork.bound` returned."""
    for buffers, before in bound:
        buffers.update(before)


class FrozenModule:
    """A torch module for acting only, from NumPy to NumPy."""

    def __init__(self, network: TorchNetwork) -> None:
        self.network = network

    @property
    def weights(self) -> Weights:
        """Weights in the format of `Network.read`."""
        return self.network.read()

    def __call__(self, x: Tree) -> AnyArray:
        if process.is_float32():
            return self.network.predict(x)
        with process.restored():  # new tensors must match the dtype of the weights
            process.use_float32()
            return self(x)

    def onnx(self, obs: Tree) -> tuple[bytes, dict[str, str]]:
        """Export the module as an ONNX graph with torch's exporter, for observations like `obs` [B,
        ...]. Return it with the `entries` of the observation by input name. Raises NetworkError if
        torch cannot export it."""
        named = entries(obs)
        names = list(named)
        given = tuple(torch.as_tensor(x, device=self.network.device) for x in named.values())
        file = io.BytesIO()
        whole = _WithInputs(self.network.module.eval(), obs)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the deprecated exporter and traced shapes
                torch.onnx.export(
                    whole,
                    given,
                    file,
                    dynamo=False,  # the newer exporter needs onnxscript
                    opset_version=17,  # as in networks.onnx
                    input_names=names,
                    output_names=["output"],
                    dynamic_axes={name: {0: "batch"} for name in (*names, "output")},
                )
        except Exception as error:  # the exporter and the module may raise anything
            raise NetworkError(
                f"torch.onnx.export cannot export the network: {str(error).strip()[:300]}",
                "a module of operations that ONNX supports",
                "replace the operation named above, or use tandem.load for deployment.",
            ) from error
        return file.getvalue(), {name: name for name in names}

    def __deepcopy__(self, memo: object) -> FrozenModule:
        return self  # immutable

    def __reduce__(self) -> tuple[object, ...]:
        try:  # includes classes that cannot be imported
            packed = cloudpickle.dumps(self.network.module)
        except Exception as error:  # a module's attributes may raise anything
            raise not_picklable(error) from error
        return _unfrozen, (self.network.name, packed, str(self.network.device))


class _WithInputs(nn.Module):
    """A module that takes a tree like this one, called with its leaves as separate arguments."""

    def __init__(self, module: nn.Module, tree: Tree) -> None:
        super().__init__()
        self.module, self.tree = module, tree

    def forward(self, *inputs: Array) -> Array:
        leaves = iter(inputs)
        return self.module(tree_map(lambda _: next(leaves), self.tree))


def _unfrozen(name: str, packed: bytes, device: str) -> FrozenModule:
    module = cloudpickle.loads(packed)
    here = device if device == "cpu" or torch.cuda.is_available() else "cpu"
    return FrozenModule(TorchNetwork(name, module, None, torch.device(here)))


class TorchScalar(nn.Module, backend.Trained):
    """A trainable scalar."""

    decays = False
    rebinds = False

    def __init__(self, name: str, value: float, device: torch.device) -> None:
        super().__init__()
        self.name, self.plan, self.learning, self.stateful_forward = name, None, False, False
        self.value = nn.Parameter(torch.tensor(float(value), device=device))
        self.weights = [self.value]

    @property
    def module(self) -> nn.Module:
        return self

    def forward(self) -> Array:
        return self.value

    def tensors(self) -> list[torch.Tensor]:
        return [self.value.detach()]

    def read(self) -> Weights:
        return {"value": self.value.detach().cpu().numpy().copy()}

    @torch.no_grad()
    def write(self, weights: Weights) -> None:
        self.value.copy_(torch.as_tensor(weights["value"]))


class TorchFreeVariable(TorchScalar):
    """A tensor of a user's agent outside its modules."""

    decays = True

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        nn.Module.__init__(self)
        self.name, self.plan, self.learning, self.stateful_forward = name, None, False, False
        self.value, self.weights = tensor, [tensor]


_MOODY = (
    nn.modules.batchnorm._NormBase,
    nn.modules.dropout._DropoutNd,
    nn.MultiheadAttention,
    nn.RNNBase,
    nn.RReLU,
    nn.utils.parametrizations._SpectralNorm,  # runs power iterations
    modules.TorchNormalization,
)


def _known(module: nn.Module) -> bool:
    """True if a module is known not to depend on training mode: torch's and tandem's, except for
    the few that do, and those with hooks, which may read it."""
    ours = type(module).__module__.startswith(("torch.nn.", "tandem."))
    return ours and as_written(module) and not isinstance(module, _MOODY)


def _depends_on_mode(module: nn.Module) -> bool:
    """True if a module depends on training mode with its current options; False for tandem's
    own."""
    if isinstance(module, nn.modules.batchnorm._NormBase):
        return bool(module.track_running_stats)
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return bool(module.p > 0)
    if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
        return bool(module.dropout > 0)
    return isinstance(module, _MOODY) and not isinstance(module, modules.TorchNormalization)
