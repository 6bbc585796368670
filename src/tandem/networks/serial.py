"""Conversion of plans to and from JSON data."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tandem.errors import NetworkError
from tandem.networks.plan import REGISTRY, Layer, Plan
from tandem.types import JSONDict


def to_json(plan: Plan) -> list[JSONDict]:
    """Return a plan as JSON data."""
    return [
        {
            "layer": type(layer).__name__,
            **{f.name: _to_json(getattr(layer, f.name)) for f in fields(layer)},
        }
        for layer in plan
    ]


def _to_json(value: object) -> object:
    if isinstance(value, dict):
        return {k: to_json(v) for k, v in value.items()}
    if isinstance(value, tuple) and value and isinstance(value[0], Layer):
        return to_json(value)
    return value


def from_json(data: list[JSONDict]) -> Plan:
    """Return the plan that `to_json` wrote."""
    plan: list[Layer] = []
    for item in data:
        kind = REGISTRY.get(item["layer"])
        if kind is None:
            raise NetworkError(
                f"a network's plan has an unknown layer {item['layer']!r}.",
                f"one of {', '.join(sorted(REGISTRY))}",
                "load it with the version of tandem that wrote it, or give network=.",
            )
        plan.append(kind(**{k: _from_json(v) for k, v in item.items() if k != "layer"}))
    return tuple(plan)


def _from_json(value: object) -> Any:
    if isinstance(value, dict):
        return {k: from_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return from_json(value) if value and isinstance(value[0], dict) else tuple(value)
    return value
