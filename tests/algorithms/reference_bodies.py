"""Bodies of other kinds than dense layers once more, straight from their papers."""

import torch

from tests.algorithms.reference import Weights, dense, part


def simba(w: Weights, x: torch.Tensor, blocks: int, train: bool) -> tuple[torch.Tensor, str]:
    """Lee et al. 2024, section 4: features of x, and the place behind the body."""
    x = standardized(w, "1", x, train)
    x = dense(w, "2", x)
    for place in range(3, 3 + blocks):
        b = part(w, f"{place}/")
        normal = layer_normed(x, b["norm_scale"], b["norm_bias"])
        wide = torch.tanh(normal @ b["wide_kernel"] + b["wide_bias"])
        x = x + wide @ b["narrow_kernel"] + b["narrow_bias"]
    last = 3 + blocks
    return layer_normed(x, w[f"{last}/scale"], w[f"{last}/bias"]), str(last + 1)


def layer_normed(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Ba et al. 2016, eq. 4, row by row."""
    rows = [(row - row.mean()) / torch.sqrt(row.var(correction=0) + 1e-5) for row in x]
    return torch.stack(rows) * scale + bias


def standardized(w: Weights, place: str, x: torch.Tensor, train: bool) -> torch.Tensor:
    """By the mean and variance of all rows so far, these among them in training; both are kept as
    sums over rows, of which the weights are made anew."""
    mean, variance, count = (w[f"{place}/moving_{name}"] for name in ("mean", "variance", "count"))
    if train:
        with torch.no_grad():
            total = count * mean + x.sum(0)
            squares = count * (variance + mean**2) + (x**2).sum(0)
            count += len(x)
            mean.copy_(total / count)
            variance.copy_(squares / count - mean**2)
    return (x - mean.detach()) / torch.sqrt(variance.detach() + 1e-5)


def simbav2(w: Weights, x: torch.Tensor, blocks: int, train: bool) -> torch.Tensor:
    """Lee et al. 2025, section 4: the output for x, with the paper's scalers s = s_init / s_scale
    times what is learned."""
    x = standardized(w, "1", x, train)
    e = part(w, "2/")
    units = len(e["scaler"])
    x = torch.cat([x, torch.full((len(x), 1), 3.0, dtype=x.dtype)], 1)
    x = sphere(sphere(x) @ e["unit_kernel"] * e["scaler"])
    for place in range(3, 3 + blocks):
        b = part(w, f"{place}/")
        wide = torch.relu(x @ b["wide_unit_kernel"] * b["scaler"])
        far = sphere(wide @ b["narrow_unit_kernel"])
        alpha = b["alpha"] * (1 / (blocks + 1)) / (1 / units**0.5)
        x = sphere((1 - alpha) * x + alpha * far)
    h = part(w, f"{3 + blocks}/")
    return (x @ h["hidden_unit_kernel"] * h["scaler"]) @ h["unit_kernel"] + h["bias"]


def sphere(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([row / torch.sqrt((row**2).sum()) for row in x])
