"""What is said of a setting that an algorithm does not have, to programs and commands alike."""

import inspect
import re
from dataclasses import fields
from typing import Any

import pytest

import tandem
from tandem import algorithms, trainer
from tandem.cli import main
from tandem.errors import UnknownNameError
from tandem.learning.config import Options
from tandem.settings import hints_of
from tandem.zoo.other_names import ARGUMENTS, COUNTS, FORMS, OTHER_NAMES
from tests.advice.net import follows
from tests.helpers import ROOT

QUIET: dict[str, Any] = {"framework": "torch", "plots": False, "tensorboard": False}


def refused(algorithm: str, env: str, **given: Any) -> UnknownNameError:
    with pytest.raises(UnknownNameError) as caught:
        tandem.train(algorithm, env, **given)
    return caught.value


def trains(algorithm: str, env: str = "CartPole-v1", **given: Any) -> None:
    trainer.session(algorithm, env, **QUIET, **given).backend.close()


def test_the_algorithms_are_named_that_have_it() -> None:
    for setting, fewer in (("burn_in", {"crossq"}), ("rollout", set()), ("munchausen", set())):
        having = {n for n, k in algorithms.built_in().items() if setting in hints_of(k.Settings)}
        stranger = next(n for n in algorithms.NAMES if n not in having)
        fix = refused(stranger, "CartPole-v1", **{setting: 1}).fix
        listed = re.match(r"leave it out: it is a setting of ([\w, ]+)\. `tandem", fix)
        assert listed and {*listed[1].split(", ")} == having - fewer  # crossq refuses a memory


@pytest.mark.parametrize(
    ("env", "given", "says"),
    [
        ("CartPole-v1", {"munchausen": True}, "it is a setting of dqn."),
        ("CartPole-v1", {"quantiles": 4}, "it is a setting of dqn, tqc. "),
        ("CartPole-v1", {"munchausn": True}, "{munchausen} is a setting of dqn."),
        ("CartPole-v1", {"learning_rat": 1e-3}, "did you mean {learning_rate} "),
        ("CartPole-v1", {"framewrk": "torch"}, "did you mean {framework}"),
        (
            "CartPole-v1",
            {"quite_unknown_zz": 1},
            "leave it out. `tandem train ppo --help settings`",
        ),
    ],
)
def test_programs_and_commands_are_told_the_same(env, given, says, capsys) -> None:
    def flag(name: str) -> str:
        return f"--{name.replace('_', '-')}"

    error = refused("ppo", env, **given)
    ((name, value),) = given.items()
    assert main(["train", "ppo", env, flag(name), *([] if value is True else [str(value)])]) == 2
    told = {"setting": (str(error), str), "flag": (capsys.readouterr().err, flag)}
    for kind, (text, spelled) in told.items():
        assert f"there is no {kind} of ppo " in text and f"'{spelled(name)}'" in text
        names = {n: f"'{spelled(n)}'" for n in re.findall(r"{(\w+)}", says)}
        assert says.format_map(names) in text


@pytest.mark.parametrize(
    ("algorithm", "name", "value", "here"),
    [
        ("ppo", "lr", 1e-3, {"learning_rate": 1e-3}),
        ("ppo", "n_steps", 256, {"rollout": 256}),
        ("dqn", "n_steps", 2, {"n_step": 2}),
        ("ppo", "ent_coef", 0.1, {"entropy": 0.1}),
        ("sac", "ent_coef", 0.1, {"temperature": 0.1}),
        ("sac", "alpha", 0.1, {"temperature": 0.1}),
        ("sac", "use_sde", True, {"action_noise": "gsde"}),
        ("ppo", "policy_kwargs", 1, {"hidden": "64,64"}),
        ("ppo", "verbose", 1, {"progress": True}),
        ("dqn", "exploration_fraction", 0.2, {"epsilon": "1:0.05:0.1"}),
        ("ppo", "num_minibatches", 4, {"batch_size": 64}),
        ("ppo", "anneal_lr", True, {"learning_rate": "3e-4:0"}),
        ("ppo", "lam", 0.9, {"gae_lambda": 0.9}),
        ("dqn", "alpha", 0.6, {"priority_alpha": 0.6}),
        ("sac", "polyak", 0.995, {"tau": 0.005}),
        ("sac", "autotune", True, {"temperature": "auto"}),
        ("sac", "qf_arch", 1, {"critic_hidden": "256,256"}),
    ],
)
def test_names_of_other_libraries_are_known(algorithm, name, value, here, capsys) -> None:
    env = "Pendulum-v1" if algorithm == "sac" else "CartPole-v1"
    ((own, right),) = here.items()
    fix = refused(algorithm, env, **{name: value}).fix
    assert fix.startswith(f"{name!r} is {own!r} here"), fix
    if isinstance(right, str):
        assert f"as in {own}={right!r}." in fix
    trains(algorithm, env, **here)  # which it takes
    flag = f"--{name.replace('_', '-')}"
    words = [flag] if value is True else [flag, str(value)]
    assert main(["train", algorithm, env, *words]) == 2
    told = capsys.readouterr().err
    if name == "verbose":
        assert "unless --quiet is given" in told
    else:
        assert f"{flag!r} is '--{own.replace('_', '-')}' here" in told


@pytest.mark.parametrize(
    ("algorithm", "name", "fix", "here"),
    [
        ("ppo", "lstm", "'lstm' is a choice of a setting here: memory='lstm'. ", {"recurrent": 8}),
        ("ppo", "simbav2", "'simbav2' is a choice of a setting here: body='simbav2'. ", {}),
        ("dqn", "sarsa", "leave it out: bootstrap='sarsa' is a setting of nstep_q, pqn. ", None),
        ("dqn", "rainbow", "'rainbow' is a choice of a setting here: entry='rainbow'. ", {}),
        ("ppo", "tf", "'tf' is a choice of a setting here: framework='tensorflow'. ", None),
        ("ppo", "auto", "did you mean 'out'?", None),
    ],
)
def test_choices_that_were_given_as_settings(algorithm, name, fix, here) -> None:
    assert refused(algorithm, "CartPole-v1", **{name: True}).fix.startswith(fix)
    if here is not None:  # it takes that
        ((setting, value),) = re.findall(r"(\w+)='(\w+)'", fix)
        trains(algorithm, **{setting: value}, **here)


def test_an_entry_or_a_choice_of_another_algorithm() -> None:
    trains("pqn", bootstrap="sarsa")
    with pytest.raises(UnknownNameError) as caught:
        trainer.resolve("ppo", "CartPole-v1", {"entry": "rainbow"})
    assert caught.value.fix == "leave entry out, or train dqn, which has it."
    trainer.resolve("dqn", "CartPole-v1", {"entry": "rainbow"})
    with pytest.raises(UnknownNameError) as caught:
        trainer.resolve("crossq", "Walker2d-v5", {"entry": "rainbow"})
    assert "dqn" in caught.value.fix


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train --algo ppo --env X-v0", "algorithm without a flag, as in `{}train ppo CART`"),
        ("train ppo --env-id=CartPole-v1", "environment without a flag, as in `{}train ppo CART`"),
        ("find lr ppo --env CartPole-v1", "environment without a flag, as in `{}find lr ppo CART`"),
        ("sweep --algorithm ppo CartPole-v1", "algorithm without a flag, as in `{}sweep ppo CART`"),
        ("config ppo --environment=X", "environment without a flag, as in `{}config ppo CART`"),
        ("check --env CartPole-v1", "environment without a flag, as in `{}check CART`"),
        ("evaluate --algo ppo", "run folder names its algorithm, as in `{}evaluate runs/first`"),
        ("record --env-id X", "the run folder names its environment, as in `{}record runs/first`"),
        ("train ppo CartPole-v1 --callback X", "it is 'callbacks' of tandem.train, in a program"),
        ("train ppo CartPole-v1 --track", "'--track' is '--wandb' here, as in --wandb my-project."),
    ],
)
def test_flags_that_commands_have_not(words: str, says: str, capsys: Any) -> None:
    assert main(words.split()) == 2
    assert says.format("tandem ").replace("CART", "CartPole-v1") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("policy_kwargs", "hidden='64,64'. A custom network is network=lambda space: "),
        ("features_extractor_class", "is 'network' here, "),
        ("model", "is 'network' here, "),
        ("seeds", "[tandem.train('ppo', env, seed=seed) for seed in range(3)], or on the command"),
        ("log", "progress=True prints progress, out='runs/first' writes"),
        ("tensorboard_log", "out='runs/first'. "),
        ("verbose", "progress=True. "),
        ("max_time", "callbacks=[tandem.runs.callbacks.TimeLimit(180)] ends a run after"),
        ("quiet", "leave it out. Nothing is printed"),
        ("algo", "'algo' is 'algorithm' here."),
        ("use_cuda", "'use_cuda' is 'device' here, as in device='cuda'."),
    ],
)
def test_advice_for_programs_that_is_more_than_a_name(name: str, says: str) -> None:
    fix = refused("ppo", "CartPole-v1", **{name: 3}).fix
    assert says in fix and (fix.startswith(says) or not says.startswith("'"))
    if "network" in fix:  # the line can be pasted
        line = re.search(r"network=(lambda .*\(\)\))\. ", fix)
        assert line
        trains("ppo", network=eval(line[1], {"torch": pytest.importorskip("torch")}))


def test_a_schedule_of_another_library_and_an_optimizer_that_has_no_name_here() -> None:
    # as Keras's, which is not to be imported here
    decay = type("CosineDecay", (), {"__module__": "keras.src.optimizers.schedules"})()
    for value, also in ((lambda left: 3e-4 * left, ""), (decay, "optimizer=keras.optimizers.Adam")):
        with follows("settings.py:convert") as advice:
            trainer.resolve("ppo", "", {"learning_rate": value})
        (schedule,) = re.findall(r"learning_rate='(\S+)', a linear", advice.fix)
        assert trainer.resolve("ppo", "", {"learning_rate": schedule})[0].learning_rate.end == 0.0
        assert also in advice.fix and ("optimizer=" in advice.fix) is bool(also)
    with follows("settings.py:convert") as advice:
        trainer.resolve("ppo", "", {"optimizer": "adamw"})
    assert "an optimizer of keras.optimizers or torch.optim" in advice.error.expected


def test_a_name_of_other_libraries_that_an_algorithm_has_not() -> None:
    # an environment that cannot be made leaves what settings say
    assert "it is a setting of dqn." in refused("ppo", "Nowhere-v0", munchausen=True).fix
    fix = refused("sac", "Pendulum-v1", target_update_interval=1).fix
    assert fix.startswith("leave it out: it is 'target_every' here, a setting of dqn,")
    # like nothing: no other algorithm's setting is proposed that is only somewhat alike
    assert "is a setting of" not in refused("ppo", "CartPole-v1", target_kernel=1).fix


def test_the_pages_and_the_errors_have_the_same_names() -> None:
    pages = [p.read_text(encoding="utf-8") for p in (ROOT / "docs/coming-from").glob("*.md")]
    rows = [row.split("|")[1:3] for p in pages for row in p.splitlines() if row.startswith("| ")]
    words = [[set(re.findall(r"\w+", cell.replace("-", "_"))) for cell in row] for row in rows]
    words = [[{w.removeprefix("__") for w in cell} for cell in row] for row in words]
    every = {f.name for n in algorithms.NAMES for f in fields(algorithms.get(n).Settings)}
    every |= {f.name for f in fields(Options)}
    arguments = {*inspect.signature(tandem.train).parameters}
    assert arguments == {*ARGUMENTS, "settings"}
    for name, names in OTHER_NAMES.items():
        assert name not in every
        assert any(name in there and {*names} & here for there, here in words), name
        assert {*names} <= every | arguments, name
    assert {*FORMS} <= {*OTHER_NAMES, *every, *arguments}
    assert {*COUNTS} <= {*OTHER_NAMES}
