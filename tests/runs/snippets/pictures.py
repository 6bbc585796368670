"""DQN on stacks of pictures of which only the older one says what to do; prints its score, and how
the pictures were kept."""

import json
import sys

import gymnasium
import numpy as np
from gymnasium.wrappers import FrameStackObservation

from tandem import trainer
from tandem.envs.atari import declared


class Before(gymnasium.Env):
    """Shows a bright or a dark picture; the right action is the one that the picture before it
    named. Eight steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (36, 36), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.then, self.now, self.t = 0, int(self.np_random.integers(2)), 0
        return self.picture(), {}

    def picture(self):
        return np.full((36, 36), 40 + 200 * self.now, np.uint8)

    def step(self, action):
        reward = float(action == self.then)
        self.then, self.now, self.t = self.now, int(self.np_random.integers(2)), self.t + 1
        return self.picture(), reward, self.t == 8, False, {}


def make():
    return declared(FrameStackObservation(Before(), 2, padding_type="zero"), 2)


settings = {"steps": 1600, "learning_starts": 64, "train_every": 4, "target_every": 40}
settings |= {"learning_rate": 3e-4, "batch_size": 32, "buffer_size": 800, "gamma": 0.5}
settings |= {"epsilon": "1:0.1:0.5", "eval_every": 400, "final_episodes": 20}
run = trainer.session("dqn", make, framework=sys.argv[1], seed=1, **settings)
for _ in run:
    pass
kept = list(run.loop.learner.ring._columns["obs"].shape)
score = run.result()["eval_mean"]
print(json.dumps({"score": score, "kept": kept, "acts_on": run.observation.shape}))
