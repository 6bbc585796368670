"""The programs that Note_rl documents, and, as its page says, `ported` to our import lines."""

import contextlib
import io
import os
import re
import tempfile
import traceback
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "coming-from" / "note_rl-details.md"

# Without the criterion of the lines before: where it is met, training ends before it saves.
FILES = """
model.set(policy=EpsGreedyQPolicy(0.01),pool_size=10000,batch=64,update_steps=10)
model.path = 'model.dat'
model.save_freq = 10
model. max_save_files = 2
{train}
found = sorted(os.listdir('.'))
assert len(found) == 2 and all(name.startswith('model-') for name in found), found
model.path = 'param.dat'
model.save_freq = 10
model. max_save_files = 2
model.save_param_only = True
{train}
assert sum(name.startswith('param-') for name in os.listdir('.')) == 2
model.path = 'model.dat'
model.max_save_files = None
model.save_param_only = False
model.save_best_only = True
{train}

from matplotlib import pyplot as plt
for show in (model.visualize_loss, model.visualize_reward, model.visualize_reward_loss):
    show()
    plt.savefig('figure.png')
    assert os.path.getsize('figure.png') > 5000
model.animate_agent(200)
assert any(name.endswith('.gif') for name in os.listdir('.'))
model.save_param('param.dat')
model.save('model.dat')
"""

RESTORES = """
import pickle
output_file=open('pickled.dat','wb')
pickle.dump(model.param,output_file)
output_file.close()
input_file=open('pickled.dat','rb')
param=pickle.load(input_file)
input_file.close()
episodes = model.total_episode
model = DQN(4,128,2)
model.restore_param('param.dat')
from Note import nn
param=nn.restore_param('param.dat')
assert [x.shape for x in param] == [tuple(x.shape) for x in model.param]
from Note_rl.assign_param import assign_param
assign_param(model.param, param)
model = DQN(4,128,2)
model.restore('model.dat')
assert model.total_episode == episodes and model.batch == 64
{optimizer}
{train}
assert model.total_episode > episodes"""

SCOPE, MORE = "with strategy.scope():", "assert model.total_episode > episodes"
STRATEGY = """strategy = tf.distribute.{1}MirroredStrategy()
BATCH_SIZE_PER_REPLICA = {0}
GLOBAL_BATCH_SIZE = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync"""

# name -> (policy or noise, module, model), arguments of set, (learning rates, arguments of train)
EPS_GREEDY, SOFTMAX = "policy import EpsGreedyQPolicy", "policy import SoftmaxPolicy"
NOISE, TWO = "noise import GaussianWhiteNoiseProcess", ["", ""]
ONE, SEVERAL_7 = "100, pool_network=False", "pool_network=True, processes=7"
GREEDILY = "policy=EpsGreedyQPolicy(0.01),pool_size=10000,batch=64,"
SOFTLY = "policy=SoftmaxPolicy(),pool_size=10000,batch=64,"
POINTS = "noise=GaussianWhiteNoiseProcess(),pool_size=10000,batch=256,trial_count=10,HER=True"
TEAM = "policy=SoftmaxPolicy(),pool_size=3000,batch=32,trial_count=10,MARL=True"
DDPG, LONG = "DDPG(128,0.1,0.98,0.005)", "2000, pool_network=False"
PPO = (SOFTMAX, "PPO", "PPO(4,128,2,0.7,0.7)")
POOL_DQN = (EPS_GREEDY, "pool_network.DQN", "DQN(4,128,2,7)")
POOL_DDPG = (NOISE, "pool_network.DDPG_HER", "DDPG(128,0.1,0.98,0.005,7)")
ROWS = {
    "DQN": ((EPS_GREEDY, "DQN", "DQN(4,128,2)"), GREEDILY + "update_steps=10", ([""], ONE)),
    "PPO": (PPO, SOFTLY + "update_steps=1000,PPO=True", (["1e-4", "5e-3"], ONE)),
    "DDPG_HER": ((NOISE, "DDPG_HER", DDPG), POINTS + ",criterion=-5", (TWO, LONG)),
    "MADDPG": ((SOFTMAX, "MADDPG", DDPG), TEAM, (TWO, ONE)),
    "pool DQN": (POOL_DQN, GREEDILY + "update_batches=17", ([""], f"100, {SEVERAL_7}")),
    # train is given a train_loss first there, which that program has not made
    "pool DDPG_HER": (POOL_DDPG, POINTS, (TWO, f"2000, {SEVERAL_7}, processes_her=4")),
}
EPISODES = dict(zip(ROWS, (21, 80, 12, 5, 14, 14), strict=True))


def program(name: str, how: str) -> str:
    """As documented for `how`: "torch", "keras", on several "devices" of one machine, or as one of
    a cluster's "workers" (num_episodes)."""
    (explorer, module, model), choices, (rates, train) = ROWS[name]
    torch, several = how == "torch", how in ("devices", "workers")
    long = name == "DQN" and how != "workers"  # documented with files, figures and restoring
    adams = [f"tf.keras.optimizers.Adam({rate})" for rate in rates]
    if torch:
        parts = [f"model.param[{i}]" for i in range(len(rates))] if rates[1:] else ["model.param"]
        adams = [f"torch.optim.Adam({part})" for part in parts]
        train = train.removesuffix(", pool_network=False")
    optimizer = f"optimizer = [{','.join(adams)}]" if rates[1:] else f"optimizer = {adams[0]}"
    loss = "train_loss = tf.keras.metrics.Mean(name='train_loss')"
    call, made, sets = f"model.train(optimizer, {train})", f"model={model}", f"model.set({choices})"
    if how == "keras":
        call = f"model.train(train_loss, optimizer, {train})"
    if several:
        train = f"num_episodes= {train}" if how == "workers" else train
        call = f"model.distributed_training(optimizer, strategy, {train})"
    start = [made, sets.replace("batch=64,", "") if (name, how) == ("pool DQN", "keras") else sets]
    start += [optimizer, loss, call] if how == "keras" else [optimizer, call]
    if several:
        sizes = re.findall(r"batch=(\d+)", choices)[0], "MultiWorker" * (how == "workers")
        choices = re.sub(r"batch=\d+", "batch=GLOBAL_BATCH_SIZE", choices)
        sets = sets if name == "DQN" else f"model.set({choices})"
        start = [STRATEGY.format(*sizes), SCOPE, f"  {made}", f"  {optimizer}", sets]
        start += [call.replace("(opt", "(GLOBAL_BATCH_SIZE, opt") if long else call]
    lines = ["import torch" if torch else "import tensorflow as tf", f"from Note_rl.{explorer}"]
    package = f"Note_rl.examples.{'pytorch' if torch else 'keras'}.{module}"
    lines += [f"from {package} import {model.split('(')[0]}", *start]
    if long:
        for more in ("", ",PR=True,initial_TD=7,alpha=0.7") if torch else ("",):
            lines += [f"model.set({choices},trial_count=10,criterion=200{more})", call]
        again = [SCOPE, f"  {made}", "  model.restore('model.dat')", f"  {optimizer}"]
        again = [*again, "episodes = model.total_episode", call, MORE]
        restores = RESTORES.format(optimizer=optimizer, train=call)
        lines += [FILES.format(train=call), *(again if several else [restores])]
    return "\n".join(lines)


SEVERAL = [name for name in ROWS if name != "pool DDPG_HER"]  # which is documented for torch alone
TORCH = {name: program(name, "torch") for name in ROWS if name != "PPO"}
KERAS, DISTRIBUTED, WORKERS = (
    {name: program(name, how) for name in SEVERAL} for how in ("keras", "devices", "workers")
)


def modules() -> dict[str, str]:
    """The modules of the table in docs/coming-from/note_rl-details.md, by theirs."""
    rows = re.findall(
        r"^\| `from (\S+) import (\w+)`[^|]*\| `(?:from (\S+) import \2|import (\w+) as \2)`",
        PAGE.read_text(encoding="utf-8"),
        re.M,
    )
    return {theirs: ours or f"import {whole}" for theirs, _, ours, whole in rows}


def ported(program: str, engine: str) -> str:
    """The program with our import lines; on JAX with Keras's own names for TensorFlow's."""
    known = modules()

    def line(match: re.Match[str]) -> str:
        ours, name = known[match[1]], match[2]
        return f"{ours} as {name}" if ours.startswith("import ") else f"from {ours} import {name}"

    program = re.sub(r"^from (Note\S*) import (\w+)$", line, program, flags=re.M)
    assert "Note" not in program
    if engine == "jax":
        program = program.replace("import tensorflow as tf", "import keras")
        program = program.replace("tf.keras", "keras")
    return program


def run(programs: dict[str, str], engine: str, names: list[str]) -> dict[str, Any]:
    """What becomes of each program, for fewer episodes, in its own folder: True, or the error."""
    found: dict[str, Any] = {}
    here = os.getcwd()
    for name in names:
        _seed(engine)  # the programs say none, and how well they learn decides how long they train
        program = ported(programs[name], engine)
        shorter = re.sub(r"(?<=[,=] )(100|2000)(?=[,)])", str(EPISODES[name]), program)
        assert shorter != program
        space: dict[str, Any] = {"os": os}
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(shorter, f"<{name}>", "exec"), space)
                model = space["model"]
                assert model.total_episode >= EPISODES[name], model.total_episode
                assert 0 < abs(model.loss) < 1e9, model.loss
                found[name] = True
            except BaseException:
                found[name] = traceback.format_exc()
            finally:
                os.chdir(here)
    return found


def _seed(engine: str) -> None:
    if engine == "torch":
        import torch

        torch.manual_seed(0)
    else:
        import keras

        keras.utils.set_random_seed(0)
