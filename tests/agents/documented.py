"""The programs that Note_rl documents for one machine and one device: their calls with their
numbers, after the import lines as they stand there. `ported` changes those lines as
docs/coming-from/note_rl-details.md says."""

from __future__ import annotations

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
"""

LOOKS = """
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
assert model.total_episode > episodes
"""

KERAS = {
    "DQN": (
        """
import tensorflow as tf
from Note_rl.policy import EpsGreedyQPolicy
from Note_rl.examples.keras.DQN import DQN

model=DQN(4,128,2)
model.set(policy=EpsGreedyQPolicy(0.01),pool_size=10000,batch=64,update_steps=10)
optimizer = tf.keras.optimizers.Adam()
train_loss = tf.keras.metrics.Mean(name='train_loss')
model.train(train_loss, optimizer, 100, pool_network=False)
model.set(policy=EpsGreedyQPolicy(0.01),pool_size=10000,batch=64,update_steps=10,trial_count=10,criterion=200)
model.train(train_loss, optimizer, 100, pool_network=False)
"""
        + FILES.format(train="model.train(train_loss, optimizer, 100, pool_network=False)")
        + LOOKS
        + RESTORES.format(
            optimizer="optimizer = tf.keras.optimizers.Adam()",
            train="model.train(train_loss, optimizer, 100, pool_network=False)",
        )
    ),
    "PPO": """
import tensorflow as tf
from Note_rl.policy import SoftmaxPolicy
from Note_rl.examples.keras.PPO import PPO

model=PPO(4,128,2,0.7,0.7)
model.set(policy=SoftmaxPolicy(),pool_size=10000,batch=64,update_steps=1000,PPO=True)
optimizer = [tf.keras.optimizers.Adam(1e-4),tf.keras.optimizers.Adam(5e-3)]
train_loss = tf.keras.metrics.Mean(name='train_loss')
model.train(train_loss, optimizer, 100, pool_network=False)
""",
    "DDPG_HER": """
import tensorflow as tf
from Note_rl.noise import GaussianWhiteNoiseProcess
from Note_rl.examples.keras.DDPG_HER import DDPG

model=DDPG(128,0.1,0.98,0.005)
model.set(noise=GaussianWhiteNoiseProcess(),pool_size=10000,batch=256,criterion=-5,trial_count=10,HER=True)
optimizer = [tf.keras.optimizers.Adam(),tf.keras.optimizers.Adam()]
train_loss = tf.keras.metrics.Mean(name='train_loss')
model.train(train_loss, optimizer, 2000, pool_network=False)
""",
    "MADDPG": """
import tensorflow as tf
from Note_rl.policy import SoftmaxPolicy
from Note_rl.examples.keras.MADDPG import DDPG

model=DDPG(128,0.1,0.98,0.005)
model.set(policy=SoftmaxPolicy(),pool_size=3000,batch=32,trial_count=10,MARL=True)
optimizer = [tf.keras.optimizers.Adam(),tf.keras.optimizers.Adam()]
train_loss = tf.keras.metrics.Mean(name='train_loss')
model.train(train_loss, optimizer, 100, pool_network=False)
""",
    "pool DQN": """
import tensorflow as tf
from Note_rl.policy import EpsGreedyQPolicy
from Note_rl.examples.keras.pool_network.DQN import DQN

model=DQN(4,128,2,7)
model.set(policy=EpsGreedyQPolicy(0.01),pool_size=10000,update_batches=17)
optimizer = tf.keras.optimizers.Adam()
train_loss = tf.keras.metrics.Mean(name='train_loss')
model.train(train_loss, optimizer, 100, pool_network=True, processes=7)
""",
}

TORCH = {
    "DQN": (
        """
import torch
from Note_rl.policy import EpsGreedyQPolicy
from Note_rl.examples.pytorch.DQN import DQN

model=DQN(4,128,2)
model.set(policy=EpsGreedyQPolicy(0.01),pool_size=10000,batch=64,update_steps=10)
optimizer = torch.optim.Adam(model.param)
model.train(optimizer, 100)
model.set(policy=EpsGreedyQPolicy(0.01),pool_size=10000,batch=64,update_steps=10,trial_count=10,criterion=200)
model.train(optimizer, 100)
model.set(policy=EpsGreedyQPolicy(0.01),pool_size=10000,batch=64,update_steps=10,trial_count=10,criterion=200,PR=True,initial_TD=7,alpha=0.7)
model.train(optimizer, 100)
"""
        + FILES.format(train="model.train(optimizer, 100)")
        + LOOKS
        + RESTORES.format(
            optimizer="optimizer = torch.optim.Adam(model.param)",
            train="model.train(optimizer, 100)",
        )
    ),
    "DDPG_HER": """
import torch
from Note_rl.noise import GaussianWhiteNoiseProcess
from Note_rl.examples.pytorch.DDPG_HER import DDPG

model=DDPG(128,0.1,0.98,0.005)
model.set(noise=GaussianWhiteNoiseProcess(),pool_size=10000,batch=256,criterion=-5,trial_count=10,HER=True)
optimizer = [torch.optim.Adam(model.param[0]),torch.optim.Adam(model.param[1])]
model.train(optimizer, 2000)
""",
    "MADDPG": """
import torch
from Note_rl.policy import SoftmaxPolicy
from Note_rl.examples.pytorch.MADDPG import DDPG

model=DDPG(128,0.1,0.98,0.005)
model.set(policy=SoftmaxPolicy(),pool_size=3000,batch=32,trial_count=10,MARL=True)
optimizer = [torch.optim.Adam(model.param[0]),torch.optim.Adam(model.param[1])]
model.train(optimizer, 100)
""",
    "pool DQN": """
import torch
from Note_rl.policy import EpsGreedyQPolicy
from Note_rl.examples.pytorch.pool_network.DQN import DQN

model=DQN(4,128,2,7)
model.set(policy=EpsGreedyQPolicy(0.01),pool_size=10000,batch=64,update_batches=17)
optimizer = torch.optim.Adam(model.param)
model.train(optimizer, 100, pool_network=True, processes=7)
""",
    # train is given a train_loss first there, which that program has not made
    "pool DDPG_HER": """
import torch
from Note_rl.noise import GaussianWhiteNoiseProcess
from Note_rl.examples.pytorch.pool_network.DDPG_HER import DDPG

model=DDPG(128,0.1,0.98,0.005,7)
model.set(noise=GaussianWhiteNoiseProcess(),pool_size=10000,batch=256,trial_count=10,HER=True)
optimizer = [torch.optim.Adam(model.param[0]),torch.optim.Adam(model.param[1])]
model.train(optimizer, 2000, pool_network=True, processes=7, processes_her=4)
""",
}
REPLICAS = """
import tensorflow as tf
{imports}

strategy = tf.distribute.MirroredStrategy()
BATCH_SIZE_PER_REPLICA = {size}
GLOBAL_BATCH_SIZE = BATCH_SIZE_PER_REPLICA * strategy.num_replicas_in_sync

with strategy.scope():
  model={model}
  optimizer = {optimizer}
model.set({set})
model.distributed_training({train})
"""
ADAM = "tf.keras.optimizers.Adam()"
ADAMS = f"[{ADAM},{ADAM}]"
EPS_GREEDY = "from Note_rl.policy import EpsGreedyQPolicy\n"
# on several devices of one machine, TensorFlow's alone
DISTRIBUTED = {
    "DQN": REPLICAS.format(
        imports=EPS_GREEDY + "from Note_rl.examples.keras.DQN import DQN",
        size=64,
        model="DQN(4,128,2)",
        optimizer=ADAM,
        set="policy=EpsGreedyQPolicy(0.01),pool_size=10000,batch=64,update_steps=10",
        train="GLOBAL_BATCH_SIZE, optimizer, strategy, 100, pool_network=False",
    )
    + """
model.set(policy=EpsGreedyQPolicy(0.01),pool_size=10000,batch=GLOBAL_BATCH_SIZE,update_steps=10,trial_count=10,criterion=200)
model.distributed_training(optimizer, strategy, 100, pool_network=False)
"""
    + FILES.format(train="model.distributed_training(optimizer, strategy, 100, pool_network=False)")
    + LOOKS
    + """
with strategy.scope():
  model=DQN(4,128,2)
  model.restore('model.dat')
  optimizer = tf.keras.optimizers.Adam()
episodes = model.total_episode
model.distributed_training(optimizer, strategy, 100, pool_network=False)
assert model.total_episode > episodes
""",
    "PPO": REPLICAS.format(
        imports="from Note_rl.policy import SoftmaxPolicy\n"
        "from Note_rl.examples.keras.PPO import PPO",
        size=64,
        model="PPO(4,128,2,0.7,0.7)",
        optimizer="[tf.keras.optimizers.Adam(1e-4),tf.keras.optimizers.Adam(5e-3)]",
        set="policy=SoftmaxPolicy(),pool_size=10000,batch=GLOBAL_BATCH_SIZE,update_steps=1000,"
        "PPO=True",
        train="optimizer, strategy, 100, pool_network=False",
    ),
    "DDPG_HER": REPLICAS.format(
        imports="from Note_rl.noise import GaussianWhiteNoiseProcess\n"
        "from Note_rl.examples.keras.DDPG_HER import DDPG",
        size=256,
        model="DDPG(128,0.1,0.98,0.005)",
        optimizer=ADAMS,
        set="noise=GaussianWhiteNoiseProcess(),pool_size=10000,batch=GLOBAL_BATCH_SIZE,"
        "criterion=-5,trial_count=10,HER=True",
        train="optimizer, strategy, 2000, pool_network=False",
    ),
    "MADDPG": REPLICAS.format(
        imports="from Note_rl.policy import SoftmaxPolicy\n"
        "from Note_rl.examples.keras.MADDPG import DDPG",
        size=32,
        model="DDPG(128,0.1,0.98,0.005)",
        optimizer=ADAMS,
        set="policy=SoftmaxPolicy(),pool_size=3000,batch=GLOBAL_BATCH_SIZE,trial_count=10,"
        "MARL=True",
        train="optimizer, strategy, 100, pool_network=False",
    ),
    "pool DQN": REPLICAS.format(
        imports=EPS_GREEDY + "from Note_rl.examples.keras.pool_network.DQN import DQN",
        size=64,
        model="DQN(4,128,2,7)",
        optimizer=ADAM,
        set="policy=EpsGreedyQPolicy(0.01),pool_size=10000,batch=GLOBAL_BATCH_SIZE,"
        "update_batches=17",
        train="optimizer, strategy, 100, pool_network=True, processes=7",
    ),
}
WORKERS = {  # of a cluster; their calls say num_episodes
    name: re.sub(
        r"strategy, (\d+), (pool_network=False)",
        r"strategy, num_episodes= \1, \2",
        program.split("\nmodel.set", 2)[0] + "\nmodel.set" + program.split("\nmodel.set", 2)[1],
    )
    .replace("GLOBAL_BATCH_SIZE, optimizer", "optimizer")
    .replace("MirroredStrategy()", "MultiWorkerMirroredStrategy()")
    .replace("strategy, 100, pool_network=True", "strategy, num_episodes= 100, pool_network=True")
    for name, program in DISTRIBUTED.items()
}
# as it is printed: the cluster is named, and not used; and DQN is not told of processes
PRINTED = """
from Note_rl.policy import EpsGreedyQPolicy
from Note_rl.examples.keras.pool_network.DQN import DQN
import tensorflow as tf
import sys
import os

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.pop('TF_CONFIG', None)
if '.' not in sys.path:
  sys.path.insert(0, '.')

tf_config = {
    'cluster': {
        'worker': ['localhost:12345', 'localhost:23456']
    },
    'task': {'type': 'worker', 'index': 0}
}

strategy = tf.distribute.MultiWorkerMirroredStrategy()
per_worker_batch_size = 64
num_workers = len(tf_config['cluster']['worker'])
global_batch_size = per_worker_batch_size * num_workers

with strategy.scope():
  multi_worker_model = DQN(4,128,2)
  optimizer = tf.keras.optimizers.Adam()

multi_worker_model.set(policy=EpsGreedyQPolicy(0.01),pool_size=10000,batch=global_batch_size,update_batches=17)
multi_worker_model.distributed_training(optimizer, strategy, num_episodes= 100,
                    pool_network=True, processes=7)
model = multi_worker_model
"""
WORKERS["as printed"] = PRINTED
EPISODES = {
    "as printed": 14,
    "DQN": 21,
    "PPO": 80,
    "DDPG_HER": 12,
    "MADDPG": 5,
    "pool DQN": 14,
    "pool DDPG_HER": 14,
}


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
        ours = known[match[1]]
        return (
            f"{ours} as {match[2]}"
            if ours.startswith("import ")
            else f"from {ours} import {match[2]}"
        )

    program = re.sub(r"^from (Note\S*) import (\w+)$", line, program, flags=re.M)
    assert "Note" not in program
    if engine == "jax":
        program = program.replace("import tensorflow as tf", "import keras").replace(
            "tf.keras", "keras"
        )
    return program


def run(programs: dict[str, str], engine: str, names: list[str]) -> dict[str, Any]:
    """What becomes of each program, for fewer episodes, in a folder of its own: True, or the
    error."""
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
