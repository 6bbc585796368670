"""Networks that `build` and `build_` make for acting."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tandem.errors import SettingError
from tandem.exploration import GreedyQPolicy
from tests.agents.agents import Clock, Probe, Walk, alike, own, trained


class Builds(Probe):
    """Acts by a network that nothing but its hook makes."""

    def __init__(self, env: Any = None) -> None:
        super().__init__(env)
        self.shared_param, self.built = list(self.net.parameters()), 0
        self.acted: list[bool] = []

    def build(self) -> None:
        self.built += 1
        self.inference = torch.nn.Linear(2, 2)

    def action(self, s: Any) -> Any:
        self.acted.append(torch.equal(self.inference.weight, self.net.weight))
        return self.inference(s)


class BuildsFrom(Builds):
    def build_(self, shared: Any) -> None:
        self.handed = shared
        self.build()


@pytest.mark.parametrize("kind", [Builds, BuildsFrom])
def test_what_is_built_follows_what_is_shared(kind: Any) -> None:
    agent = trained(kind([Clock(), Clock(4)]), 6, PPO=True, update_steps=12)
    assert agent.built == 1 and agent.copies and len(agent.acted) > 15
    # after the hook has begun
    assert all(agent.acted[2:]) and torch.equal(agent.inference.weight, agent.net.weight)
    agent.set(policy=GreedyQPolicy(), pool_size=50, batch=4)
    agent.train(None, 2, p=0)
    assert agent.built == 1
    if kind is BuildsFrom:
        assert [x.shape for x in agent.handed] == [(2, 2), (2,)]


def test_it_is_the_training_of_an_agent_that_has_made_it(tmp_path: Path) -> None:
    class Made(Builds):
        def __init__(self) -> None:
            super().__init__()
            self.inference = torch.nn.Linear(2, 2)
            self.update_param()

        def update_param(self) -> None:
            super().update_param()
            self.inference.load_state_dict(self.net.state_dict())

    built, plain = (trained(kind(), 6, update_steps=3, num_updates=2) for kind in (Builds, Made))
    assert (built.built, plain.built) == (1, 0) and alike(built, plain)
    first, again = trained(Builds(Walk()), 3, update_steps=3), Builds(Walk())
    first.save(tmp_path / "agent")
    again.restore(tmp_path / "agent")
    again.train(torch.optim.SGD(again.param, 0.01), 2, p=0)
    first.train(None, 2, p=0)
    assert torch.equal(first.inference.weight, again.inference.weight) and alike(first, again)


def test_what_cannot_follow_is_refused_and_a_missing_attribute_still_said() -> None:
    for count, match in ((None, "no shared_param"), (1, "shared_param has")):
        agent = Builds()
        agent.shared_param = count and agent.shared_param[:count]
        with pytest.raises(SettingError, match=match):
            trained(agent)
    with pytest.raises(AttributeError, match="inference_"):
        trained(own(Builds, action=lambda self, s: self.inference_(s))())
