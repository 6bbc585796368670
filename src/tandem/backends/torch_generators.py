"""States of torch's random generators, which dropout samples from."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tandem.types import Array

GENERATOR = "generator/"  # prefix of their names in a backend's state


def seed(number: int, device: torch.device) -> None:
    """Seed the generators that networks on this device sample from."""
    if device.type == "cpu":  # does not change GPU generators
        torch.default_generator.manual_seed(number)
    else:
        torch.manual_seed(number)


def states(device: torch.device) -> dict[str, torch.Tensor]:
    """Return the generator states of this process, uint8 on the CPU: the CPU's and, on CUDA, this
    GPU's."""
    found = {f"{GENERATOR}cpu": torch.get_rng_state()}
    if device.type == "cuda":
        found[f"{GENERATOR}cuda"] = torch.cuda.get_rng_state(device)
    return found


def restore(given: Mapping[str, Array], device: torch.device) -> None:
    """Restore states given as tensors or arrays; missing ones are not changed."""
    if (cpu := given.get(f"{GENERATOR}cpu")) is not None:
        torch.set_rng_state(torch.as_tensor(cpu, device="cpu"))
    if device.type == "cuda" and (cuda := given.get(f"{GENERATOR}cuda")) is not None:
        torch.cuda.set_rng_state(torch.as_tensor(cuda, device="cpu"), device)
