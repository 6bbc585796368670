"""The value and PPO examples: their losses by hand, their programs as documented, and that they
learn."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tandem.examples.pytorch import DQN, PPO, DoubleDQN, DuelingDQN, PPO_pr  # noqa: E402
from tandem.exploration import EpsGreedyQPolicy, SoftmaxPolicy  # noqa: E402
from tests.agents import losses  # noqa: E402
from tests.helpers import run_python  # noqa: E402

SNIPPET = Path(__file__).parent / "snippets" / "keras_examples.py"
VALUES = [DQN.DQN, DoubleDQN.DoubleDQN, DuelingDQN.DuelingDQN]
PROGRAMS = [DQN, DoubleDQN, DuelingDQN, PPO, PPO_pr]


def tensors(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.as_tensor(x) for name, x in batch.items()}


@pytest.mark.parametrize("kind", VALUES)
def test_losses_of_value_methods(kind: Any) -> None:
    torch.manual_seed(0)
    agent, b = kind(4, 16, 2), losses.batch()
    t = tensors(b)
    q, next_q, judged = (
        x.detach().numpy()
        for x in (agent.q_net(t["s"]), agent.q_net(t["next_s"]), agent.target_q_net(t["next_s"]))
    )
    following = (
        judged[np.arange(len(q)), next_q.argmax(1)]
        if kind is DoubleDQN.DoubleDQN
        else judged.max(1)
    )
    loss = agent(*t.values())
    np.testing.assert_allclose(
        loss.item(), losses.q_learning(q, following, b["a"], b["r"], b["d"]), rtol=1e-5
    )
    assert all(
        g is None
        for g in torch.autograd.grad(loss, list(agent.target_q_net.parameters()), allow_unused=True)
    )


def test_dueling_heads_are_joined_by_equation_9() -> None:
    net, s = DuelingDQN.DuelingNet(4, 16, 3), torch.randn(5, 4)
    h = net.body(s)
    torch.testing.assert_close(net(s).mean(1), net.value(h)[:, 0])
    torch.testing.assert_close(net(s) - net(s)[:, :1], net.advantage(h) - net.advantage(h)[:, :1])


@pytest.mark.parametrize("module", [PPO, PPO_pr])
def test_losses_of_ppo(module: Any) -> None:
    torch.manual_seed(0)
    agent, b = module.PPO(4, 16, 2, 0.2, 0.5), losses.batch()
    with torch.no_grad():
        for p in agent.actor.parameters():
            p += 0.3 * torch.randn_like(p)
    t = tensors(b)
    nets = [net(t["s"]).detach().numpy() for net in (agent.actor, agent.old_actor, agent.critic)]
    actor, critic = losses.ppo(
        *nets, agent.critic(t["next_s"]).detach().numpy(), b["a"], b["r"], b["d"], 0.2, 0.5
    )
    found = agent(*t.values())
    np.testing.assert_allclose(
        [x.mean().item() for x in found], [actor.mean(), critic.mean()], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(agent.action(t["s"]).detach(), nets[1])
    assert all(
        g is None
        for g in torch.autograd.grad(
            found[0].mean(), agent.param[1], allow_unused=True, retain_graph=True
        )
    )
    # of the value alone, not of the target
    bias = torch.autograd.grad(found[1].mean(), agent.param[1])[-1]
    TD = (
        b["r"]
        + losses.GAMMA * (1 - b["d"]) * agent.critic(t["next_s"]).detach().numpy()[:, 0]
        - nets[2][:, 0]
    )
    np.testing.assert_allclose(bias.item(), -2 * TD.mean(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize(
    "more", [{}, {"trial_count": 10, "criterion": 200, "PR": True, "initial_TD": 7, "alpha": 0.7}]
)
def test_value_methods_as_documented(kind: Any, more: dict[str, Any]) -> None:
    model = kind(4, 128, 2)
    model.set(policy=EpsGreedyQPolicy(0.01), pool_size=10000, batch=64, update_steps=10, **more)
    model.train(torch.optim.Adam(model.param), 10, p=0)
    assert model.total_episode == 10 and model.loss > 0


@pytest.mark.slow
@pytest.mark.parametrize(("module", "more"), [(PPO, {}), (PPO_pr, {"PR": True})])
def test_ppo_as_documented(module: Any, more: dict[str, Any]) -> None:
    model = module.PPO(4, 128, 2, 0.7, 0.7)
    model.set(
        policy=SoftmaxPolicy(), pool_size=10000, batch=64, update_steps=1000, PPO=True, **more
    )
    model.train(
        [torch.optim.Adam(model.param[0], 1e-4), torch.optim.Adam(model.param[1], 5e-3)], 70, p=0
    )
    learner = model._assembly.learner
    assert learner.updates >= 150 and np.isfinite(model.loss_list[-1])
    assert (
        len(learner.ring) < 1000
        if not more
        else len(learner.ring) == len(model.prioritized_replay.TD)
    )


@pytest.mark.parametrize("module", PROGRAMS)
def test_programs_run(module: Any, capsys: Any) -> None:
    assert module.main(1, episodes=2).reward_list == module.main(1, episodes=2).reward_list


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["jax", "tensorflow"])
def test_keras_examples(engine: Any) -> None:
    if importlib.util.find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    (found,) = run_python(SNIPPET, engine=engine, timeout=600)
    assert all(x is True for x in found.values()), found


@pytest.mark.learns
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("module", PROGRAMS)
def test_programs_learn(module: Any, capsys: Any) -> None:
    assert module.main(0).average_reward() >= 475


@pytest.mark.learns
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("engine", ["jax", "tensorflow"])
@pytest.mark.parametrize("name", ["DQN", "PPO", "PPO_pr"])
def test_keras_programs_learn(name: str, engine: Any) -> None:
    if importlib.util.find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    (reached,) = run_python(SNIPPET, name, engine=engine, timeout=1100)
    assert reached >= 475
