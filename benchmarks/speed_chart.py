"""`python -m benchmarks.speed_chart`: docs/assets/speed.svg, the environment steps per second in
benchmarks/results/speed.json as bars."""

from __future__ import annotations

import sys
from typing import Any

import matplotlib as mpl

from benchmarks import tables
from benchmarks.measure import ROOT
from benchmarks.rows import ENGINES, NAMES, PEERS

SOURCE = ROOT / "benchmarks" / "results" / "speed.json"
CHART = ROOT / "docs" / "assets" / "speed.svg"
SHOWN = {  # row -> title
    "ppo-native": "PPO CartPole-v1",
    "a2c": "A2C CartPole-v1",
    "dqn": "DQN CartPole-v1",
    "sac": "SAC Pendulum-v1",
}
COLORS = {
    "jax": "#3f51b5",
    "tensorflow": "#7986cb",
    "torch": "#b0b7de",
    "sb3": "#ef8a62",
    "sbx": "#f7b799",
}


def main() -> int:
    """Draws the chart."""
    draw(tables.load(SOURCE)["rows"])
    print(f"Written: {CHART}")
    return 0


def draw(rows: dict[str, Any]) -> None:
    """A panel for each workload; a bar for each library that was measured in it."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "tandem"  # the same file from the same numbers
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(2, 2, figsize=(6.5, 3.2))
    for axes, (name, title) in zip(panels.flat, SHOWN.items(), strict=True):
        speeds = {
            who: rows[name]["contestants"][who]["steps_per_second"]
            for who in (*ENGINES, *PEERS)
            if who in COLORS and who in rows[name]["contestants"]
        }
        names = [NAMES[who] for who in speeds]
        colors = [COLORS[who] for who in speeds]
        bars = axes.barh(names, [*speeds.values()], color=colors)
        axes.bar_label(bars, [f"{speed:,.0f}" for speed in speeds.values()], padding=3, fontsize=8)
        axes.set_title(title, fontsize=9)
        axes.invert_yaxis()
        axes.set_xticks([])
        axes.margins(x=0.3)
        axes.tick_params(axis="y", length=0, labelsize=8)
        axes.spines[:].set_visible(False)
    figure.tight_layout()
    figure.savefig(CHART, metadata={"Date": None}, facecolor="white")
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
