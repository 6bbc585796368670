"""Writes the generated tables of the documentation: `python docs/settings.py`.

- docs/algorithms/*.md: the settings of each algorithm, from their dataclasses
- docs/algorithms/options.md: options and action spaces by algorithm, from the algorithms' checks
- docs/howto/zoo.md: the entries of the zoo
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gymnasium import spaces

from tandem import algorithms, zoo
from tandem.errors import SettingError, SpaceError
from tandem.settings import Declared, Schedule, apply, declared, offered
from tandem.spaces import action_leaf
from tandem.testing import fakes
from tandem.vector_actions import vector_space

PAGES = Path(__file__).parent / "algorithms"
BEGIN, END = "<!-- settings: written by docs/settings.py -->\n", "<!-- end of settings -->\n"


def table(algorithm: str) -> str:
    """Every setting of an algorithm that it does not always refuse: its flag, default, meaning and
    source."""
    rows = ["| flag | default | meaning | source of the default |", "|---|---|---|---|"]
    for name, default, meaning, source, *_ in offered(algorithms.get(algorithm).Settings):
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
        meaning = meaning.replace("|", r"\|")
        rows.append(f"| `--{name.replace('_', '-')}` | {shown} | {meaning} | {source} |")
    return "\n".join(rows) + "\n"


def renewed(page: str, algorithm: str) -> str:
    """The page with its table as it has to be."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + table(algorithm) + END + rest.split(END)[1]


BEGIN_SPACES = "<!-- spaces: written by docs/settings.py -->\n"
END_SPACES = "<!-- end of spaces -->"
BOX = spaces.Box(-1, 1, (2, 3), np.float32)
KINDS = {
    "Discrete": spaces.Discrete(3),
    "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
    "MultiBinary": spaces.MultiBinary(4),
    "bounded Box": BOX,
    "unbounded Box": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "Dict, Tuple": spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple((BOX,))}),
}
TEAMS = {"multi-agent Discrete": fakes.TEAM_DISCRETE, "multi-agent Box": fakes.TEAM_BOX}


def action_spaces() -> str:
    """The action spaces that each algorithm supports, according to its own check."""
    columns = [*KINDS, *TEAMS]
    rows = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name in algorithms.NAMES:
        cells = []
        for space in KINDS.values():
            flat = vector_space(space)
            leaf = action_leaf(space if flat is None else flat, fakes.VECTOR)
            cells.append(takes(name, fakes.VECTOR, leaf))
        cells += [takes(name, fakes.TEAM, leaf) for leaf in TEAMS.values()]
        rows.append(f"| `{name}` | {' | '.join('yes' if cell else '' for cell in cells)} |")
    return "\n".join(rows) + "\n"


def takes(name: str, observation: object, action: object) -> bool:
    """Whether the algorithm's check lets these spaces through."""
    kind = algorithms.get(name, action)
    if not kind.team and observation is fakes.TEAM:
        return False  # it would learn by one joint action
    try:
        kind.check(observation, action, kind.Settings())
    except SpaceError:
        return False
    return True


OPTIONS: dict[str, dict[str, object]] = {
    "`--prioritized`": {"prioritized": True},
    "`--n-step 3`": {"n_step": 3},
    "`--hindsight future`": {"hindsight": "future"},
    "`--updates-per-step 2`": {"updates_per_step": 2.0},
    "`--reset-every 1000`": {"reset_every": 1000},
    "`--recurrent 64 --memory lstm`": {"recurrent": 64, "memory": "lstm"},
    "`--noisy factorised`": {"noisy": "factorised"},
    "`--action-noise gsde`": {"action_noise": "gsde"},
    "`--normalize-observations`": {"normalize_observations": True},
    "`--normalize-rewards`": {"normalize_rewards": True},
    "`--intrinsic rnd`": {"intrinsic": "rnd"},
    "`--layer-norm`": {"layer_norm": True},
    "`--weight-norm`": {"weight_norm": True},
    "`--body simba`": {"body": "simba", "hidden": (64,)},
    "`--body simbav2`": {"body": "simbav2", "hidden": (64,)},
    "`--critic-hidden 512,512`": {"critic_hidden": (512, 512)},
    "`--weight-decay 0.01`": {"weight_decay": 0.01},
    "`--learning-rate-warmup 1000`": {"learning_rate_warmup": 1000},
}
REPLAYS = ("prioritized", "n_step", "hindsight", "updates_per_step", "reset_every")
GROUPS = {
    "Replay": (
        "`--prioritized`",
        "`--n-step 3`",
        "`--hindsight future`",
        "`--updates-per-step 2`",
        "`--reset-every 1000`",
    ),
    "Exploration": ("`--noisy factorised`", "`--action-noise gsde`", "`--intrinsic rnd`"),
    "Normalization": ("`--normalize-observations`", "`--normalize-rewards`"),
    "Networks and optimization": (
        "`--recurrent 64 --memory lstm`",
        "`--layer-norm`",
        "`--weight-norm`",
        "`--body simba`",
        "`--body simbav2`",
        "`--critic-hidden 512,512`",
        "`--weight-decay 0.01`",
        "`--learning-rate-warmup 1000`",
    ),
}
ON_POLICY, SEQUENCES, DISCRETE, NETWORK = "on-policy", "sequences", "discrete", "network="
TEAM, FIXED, PROJECTED = "multi-agent", "fixed", "projected"
VALUE_NORM, ROLLOUTS, JOINT, SPHERICAL = "value norm", "ppo, a2c", "joint critic", "spherical"
REASONS = {  # the words that stand in a cell where an option is missing
    ON_POLICY: "The algorithm learns from each rollout and then discards it, so there is no replay "
    "buffer. Returns extend to the end of the rollout.",
    SEQUENCES: "The algorithm learns from sequences, and returns extend to the end of each. To "
    "replay older sequences, use `--replay uniform` or `--replay prioritized`, with "
    "`--replay-ratio`.",
    TEAM: "Not supported for multi-agent algorithms. Goals, novelty and noise would be separate "
    "for each agent, and normalization would distort the entries that tell agents apart.",
    DISCRETE: "The algorithm supports discrete actions only, to which no noise can be added.",
    SPHERICAL: "Exploration noise comes from the policy: a Gaussian with one standard deviation "
    "for all dimensions of an action (Mnih et al. 2016, section 9).",
    ROLLOUTS: "Intrinsic rewards belong to the rollout that earned them. Only PPO and A2C, which "
    "use each rollout once, have the second value head that learns them.",
    VALUE_NORM: "The critic learns standardized returns instead: `--value-norm`.",
    NETWORK: "The algorithm has a single value network, or a state-value critic that is as wide "
    "as the policy. To give such a critic other widths, pass a pair of networks: `network=`.",
    JOINT: "The critics judge the joint action of all agents, one step at a time.",
    FIXED: "The network architecture is fixed. CrossQ normalizes transitions and what follows "
    "them in one forward pass (batch renormalization); MAT is a transformer with layer "
    "normalization.",
    PROJECTED: "SimbaV2 projects the weights after each step, which would leave TRPO's trust "
    "region.",
}
BEGIN_OPTIONS = "<!-- options: written by docs/settings.py -->\n"
END_OPTIONS = "<!-- end of options -->"


def options() -> str:
    """Which algorithm supports which option, group by group, with the reasons for what is missing,
    and which settings accept schedules."""
    rows: list[str] = []
    for group, columns in GROUPS.items():
        rows += [f"### {group}", "", f"| | {' | '.join(columns)} |"]
        rows += ["|---" * (len(columns) + 1) + "|"]
        found = {n: [cell(n, OPTIONS[column]) for column in columns] for n in algorithms.NAMES}
        rows += [f"| [`{n}`]({n}.md) | {' | '.join(cells)} |" for n, cells in found.items()]
        used = {word for cells in found.values() for word in cells}
        rows += ["", "| in a cell | meaning |", "|---|---|", "| yes | The option is supported. |"]
        rows += [f"| {word} | {reason} |" for word, reason in REASONS.items() if word in used]
        rows += [""]
    rows += ["### Schedules", "", "| | settings that accept a schedule |", "|---|---|"]
    for name in algorithms.NAMES:
        moving = [s.name for s in declared(algorithms.get(name).Settings) if is_schedule(s)]
        flags = ", ".join(f"`--{n.replace('_', '-')}`" for n in moving)
        rows.append(f"| `{name}` | {flags} |")
    return "\n".join(rows) + "\n"


def is_schedule(setting: Declared) -> bool:
    """Whether it may change over a run."""
    return isinstance(setting.default, Schedule)


def cell(name: str, given: dict[str, object]) -> str:
    """Yes, or why not, in a word."""
    kind = algorithms.get(name)
    option = next(iter(given))
    if option not in {s.name for s in declared(kind.Settings)}:
        return why_absent(name, option)
    for observation, action in SPACES:
        kind = algorithms.get(name, action)
        if kind.team is not (observation is fakes.TEAM):
            continue
        try:
            settings = apply(kind.Settings(), given).settled(given)
            kind.check(observation, action, settings)
            kind.sources(
                observation, action, settings, None, None, lambda _: np.random.default_rng(0)
            )
        except (SpaceError, SettingError):
            continue
        return "yes"
    return why_absent(name, option)


SPACES = (
    (fakes.VECTOR, fakes.BOX),
    (fakes.VECTOR, fakes.DISCRETE),
    (fakes.TEAM, fakes.TEAM_DISCRETE),
    (fakes.TEAM, fakes.TEAM_BOX),
)


def why_absent(name: str, option: str) -> str:
    """Why an algorithm has not got an option, in a word that the page explains."""
    kind = algorithms.get(name)
    if option in REPLAYS and kind.needs == "rollouts":
        return ON_POLICY
    if option in REPLAYS and kind.needs == "sequences":
        return SEQUENCES
    if kind.team and option in (
        "hindsight",
        "intrinsic",
        "action_noise",
        "critic_hidden",
        "normalize_observations",
    ):
        return TEAM
    if kind.team and option == "normalize_rewards":
        return VALUE_NORM
    if option == "intrinsic":
        return ROLLOUTS
    if name == "trpo" and option == "body":
        return PROJECTED
    own = {s.name for s in declared(kind.Settings)}
    if option in ("layer_norm", "weight_norm", "body", "recurrent") and option in own:
        return FIXED
    if option == "recurrent":
        return JOINT
    if option == "action_noise":
        return SPHERICAL if takes(name, fakes.VECTOR, fakes.BOX) else DISCRETE
    if option == "critic_hidden" and (kind.valued or kind.needs != "transitions"):
        return NETWORK
    raise AssertionError(f"{name} has no {option}, and no word says why")


BEGIN_SUMMARY = "<!-- summary: written by docs/settings.py -->\n"
END_SUMMARY = "<!-- end of summary -->"
SUMMARY = {  # what an option does, and its column
    "Prioritized replay": "`--prioritized`",
    "n-step returns": "`--n-step 3`",
    "Hindsight replay, in environments with goals": "`--hindsight future`",
    "More (or fewer) updates per environment step": "`--updates-per-step 2`",
    "Recurrent policy: a GRU, or with `--memory lstm` an LSTM": "`--recurrent 64 --memory lstm`",
    "Observation normalization with running statistics": "`--normalize-observations`",
    "Reward normalization": "`--normalize-rewards`",
    "Noisy networks: learned noise in the output layers": "`--noisy factorised`",
    "State-dependent exploration (gSDE)": "`--action-noise gsde`",
    "Intrinsic rewards for novel states (RND)": "`--intrinsic rnd`",
    "Layer normalization": "`--layer-norm`",
    "Residual networks (SimBa)": "`--body simba`",
    "Critics with other layer widths than the policy": "`--critic-hidden 512,512`",
}


def summary() -> str:
    """The algorithms that support the options that people ask for most."""
    rows = ["| what it does | option | algorithms |", "|---|---|---|"]
    for text, column in SUMMARY.items():
        flag = column.replace(" --memory lstm", "")
        rows.append(f"| {text} | {flag} | {supporting(column)} |")
    return "\n".join(rows) + "\n"


def supporting(column: str) -> str:
    """The algorithms that support an option, as a list or as "all but" a list."""
    have = [f"`{n}`" for n in algorithms.NAMES if cell(n, OPTIONS[column]) == "yes"]
    lack = [f"`{n}`" for n in algorithms.NAMES if f"`{n}`" not in have]
    few = ", ".join(have) if len(have) <= len(lack) else f"all but {', '.join(lack)}"
    return few if lack else "all"


def replaced(page: str, begin: str, table: str, end: str) -> str:
    """The page with another table between two marks."""
    before, rest = page.split(begin)
    return before + begin + table + end + rest.split(end)[1]


def renewed_options(page: str) -> str:
    """The page of options with its tables as they have to be."""
    page = replaced(page, BEGIN_SUMMARY, summary(), END_SUMMARY)
    page = replaced(page, BEGIN_SPACES, action_spaces(), END_SPACES)
    return replaced(page, BEGIN_OPTIONS, options(), END_OPTIONS)


ZOO = Path(__file__).parent / "howto" / "zoo.md"
BEGIN_ZOO = "<!-- zoo: written by docs/settings.py -->\n"
END_ZOO = "<!-- end of zoo -->"


def entries() -> str:
    """Which algorithms have an entry for which environment, by where its settings come from."""
    rows = [
        "| environment | published settings | tuned by tandem | defaults |",
        "|---|---|---|---|",
    ]
    in_families = [env for ids in zoo.families().values() for env in ids]
    alone = [env for name in algorithms.NAMES for env in zoo.environments(name)]
    envs = dict.fromkeys([*in_families, *alone])
    for env in envs:
        twin = env.startswith("tandem/") and env.removeprefix("tandem/") in envs
        if env not in zoo.families() and not twin:
            rows.append(f"| {env.replace('*', '&#42;')} | {' | '.join(by_source(env))} |")
    return "\n".join(rows) + "\n"


def by_source(env: str) -> list[str]:
    """The algorithms with published settings for it, with settings found here, and the others."""
    cells: list[list[str]] = [[], [], []]
    for name in algorithms.NAMES:
        if (found := zoo.entry(name, env)) is not None:
            untuned, ours = "untuned" in found.source, found.source.startswith("tuned by tandem")
            cells[2 if untuned else 1 if ours else 0].append(name)
    return [", ".join(names) for names in cells]


def renewed_zoo(page: str) -> str:
    """The page of the zoo with its table as it has to be."""
    before, rest = page.split(BEGIN_ZOO)
    return before + BEGIN_ZOO + entries() + END_ZOO + rest.split(END_ZOO)[1]


if __name__ == "__main__":
    ZOO.write_text(renewed_zoo(ZOO.read_text(encoding="utf-8")), encoding="utf-8")
    path = PAGES / "options.md"
    path.write_text(renewed_options(path.read_text(encoding="utf-8")), encoding="utf-8")
    for name in algorithms.NAMES:
        path = PAGES / f"{name}.md"
        path.write_text(renewed(path.read_text(encoding="utf-8"), name), encoding="utf-8")
