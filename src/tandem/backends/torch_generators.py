"""The states of torch's generators, by which dropout draws."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from tandem.types import Array

GENERATOR = "generator/"  # begins their names in a backend's state


def seed(number: int, device: torch.device) -> None:
    """Seeds those that a network there samples from."""
    if device.type == "cpu":  # leaves those of a GPU alone
        torch.default_generator.manual_seed(number)
    else:
        torch.manual_seed(number)


def states(device: torch.device) -> dict[str, torch.Tensor]:
    """Those of this process, uint8 on the processor: of the processor, and of its GPU."""
    found = {f"{GENERATOR}cpu": torch.get_rng_state()}
    if device.type == "cuda":
        found[f"{GENERATOR}cuda"] = torch.cuda.get_rng_state(device)
    return found


def restore(given: Mapping[str, Array], device: torch.device) -> None:
    """Puts them back, as tensors or arrays; those that are not given stay."""
    if (cpu := given.get(f"{GENERATOR}cpu")) is not None:
        torch.set_rng_state(torch.as_tensor(cpu, device="cpu"))
    if device.type == "cuda" and (cuda := given.get(f"{GENERATOR}cuda")) is not None:
        torch.cuda.set_rng_state(torch.as_tensor(cuda, device="cpu"), device)
