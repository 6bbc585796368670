"""Our settings in the words of Stable-Baselines3 (its contrib package included) and SBX, and their
agents made from them."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np

from tandem.envs.atari import is_atari, quiet

# Settings of ours that are not a keyword of theirs: how environments are made, and what has to have
# one value to be comparable.
ELSEWHERE = {"steps", "envs", "vectorization", "hidden", "activation", "memmap", "adam_epsilon"}
EACH = {"learning_rate_warmup": 0, "weight_decay": 0.0}
EACH |= {"body": "mlp", "layer_norm": False, "weight_norm": False, "recurrent": 0, "memory": "gru"}
REPLAYED = EACH | {
    "updates_per_step": "auto",
    "reset_every": 0,
    "hindsight": "no",
    "copy_info": False,
}
REPLAYED |= {"sequence": 16, "burn_in": 0, "start_state": "stored", "priority_eta": 0.9}
REPLAYED |= {"normalize_observations": False, "normalize_rewards": False}
CRITICS = REPLAYED | {"critic_hidden": (), "prioritized": False}
SOFT = CRITICS | {
    "n_step": 1,
    "temperature": "auto",
    "target_entropy": "auto",
    "initial_temperature": 1.0,
    "optimizer": "adam",
    "noisy": "no",
    "action_noise": "gaussian",
}
SCALAR = {"values": "scalar", "atoms": 51, "v_min": -10.0, "v_max": 10.0}
FIXED: dict[str, dict[str, Any]] = {
    "ppo": {
        **EACH,
        "intrinsic": "no",
        "value_clip": 0.0,
        "value_huber": 0.0,
        "value_norm": "no",
        "max_kl": 0.0,
        "normalize_observations": False,
        "normalize_rewards": False,
        "standardize_rewards": False,
        "policy": "gaussian",
        "optimizer": "adam",
        "noisy": "no",
        "action_noise": "gaussian",
    },
    "a2c": {
        **EACH,
        "intrinsic": "no",
        "normalize_observations": False,
        "normalize_rewards": False,
        "standardize_rewards": False,
        "policy": "gaussian",
        "optimizer": "rmsprop",
        "rms_decay": 0.99,
        "noisy": "no",
        "action_noise": "gaussian",
    },
    "ddpg": {
        **CRITICS,
        "n_step": 1,
        "optimizer": "adam",
        "noisy": "no",
        "action_noise": "gaussian",
    },
    "td3": {**CRITICS, "n_step": 1, "optimizer": "adam", "noisy": "no", "action_noise": "gaussian"},
    "dqn": {
        **REPLAYED,
        "values": "scalar",
        "munchausen": False,
        "double": False,
        "dueling": False,
        "prioritized": False,
        "n_step": 1,
        "optimizer": "adam",
        "noisy": "no",
    },
    "sac": {**SOFT, **SCALAR},
    "tqc": {**SOFT, "critics": 2},
    "crossq": {
        **SOFT,
        **SCALAR,
        "adam_beta1": 0.5,
        "renorm_momentum": 0.99,
        "renorm_warmup": 100_000,
        "weight_projection": False,
    },
}
FIXED["trpo"] = {n: x for n, x in FIXED["a2c"].items() if n != "rms_decay"}
FIXED["trpo"] |= {"optimizer": "adam", "max_grad_norm": 0.0}
FIXED["qrdqn"] = {**FIXED["dqn"], "values": "quantile", "kappa": 1.0}
# no effect with the fixed values
PRIORITIES = {"priority_alpha", "priority_beta", "relabel"}
CURIOSITY = {"intrinsic_weight", "extrinsic_weight", "intrinsic_gamma", "rnd_features", "rnd_share"}
UNUSED = {
    "dqn": {
        *PRIORITIES,
        *("atoms", "v_min", "v_max", "quantiles", "kappa"),
        *("fractions", "target_fractions", "acting_fractions", "cosines"),
        *("munchausen_alpha", "munchausen_temperature", "munchausen_clip"),
    },
    "ppo": {*CURIOSITY, "rms_decay", "rms_epsilon", "sequence", "sde_sample_freq"},
    "a2c": {*CURIOSITY, "sequence", "sde_sample_freq"},
    "trpo": {"sequence", "sde_sample_freq", "rms_decay", "rms_epsilon"},
    "sac": {*PRIORITIES, "sde_sample_freq", "log_std"},
    "tqc": {*PRIORITIES, "sde_sample_freq", "log_std"},
    "crossq": {*PRIORITIES, "sde_sample_freq", "log_std"},
    "td3": {*PRIORITIES, "sde_sample_freq"},
    "ddpg": {*PRIORITIES, "sde_sample_freq"},
}
UNUSED["qrdqn"] = UNUSED["dqn"] - {"quantiles", "kappa"}
SAME = ("gamma", "learning_rate", "batch_size")
NAMES: dict[str, dict[str, str]] = {  # ours -> theirs
    "ppo": {
        "rollout": "n_steps",
        "epochs": "n_epochs",
        "gae_lambda": "gae_lambda",
        "clip": "clip_range",
        "value_weight": "vf_coef",
        "entropy": "ent_coef",
        "max_grad_norm": "max_grad_norm",
        "normalize_advantage": "normalize_advantage",
    },
    "a2c": {
        "rollout": "n_steps",
        "gae_lambda": "gae_lambda",
        "value_weight": "vf_coef",
        "entropy": "ent_coef",
        "max_grad_norm": "max_grad_norm",
        "normalize_advantage": "normalize_advantage",
    },
    "trpo": {
        "rollout": "n_steps",
        "gae_lambda": "gae_lambda",
        "radius": "target_kl",
        "damping": "cg_damping",
        "conjugate_steps": "cg_max_steps",
        "backtracks": "line_search_max_iter",
        "shrink": "line_search_shrinking_factor",
        "epochs": "n_critic_updates",
        "normalize_advantage": "normalize_advantage",
    },
    "ddpg": {
        "buffer_size": "buffer_size",
        "train_every": "train_freq",
        "updates_per_call": "gradient_steps",
        "tau": "tau",
    },
    "td3": {
        "buffer_size": "buffer_size",
        "train_every": "train_freq",
        "updates_per_call": "gradient_steps",
        "tau": "tau",
        "policy_delay": "policy_delay",
        "smoothing": "target_policy_noise",
        "smoothing_clip": "target_noise_clip",
    },
    "dqn": {
        "buffer_size": "buffer_size",
        "train_every": "train_freq",
        "updates_per_call": "gradient_steps",
        "target_every": "target_update_interval",
        "tau": "tau",
        "max_grad_norm": "max_grad_norm",
    },
    "sac": {
        "buffer_size": "buffer_size",
        "train_every": "train_freq",
        "updates_per_call": "gradient_steps",
        "tau": "tau",
    },
}
NAMES["qrdqn"] = NAMES["dqn"]
NAMES["tqc"] = NAMES["sac"] | {"dropped": "top_quantiles_to_drop_per_net"}
NAMES["crossq"] = {n: x for n, x in NAMES["sac"].items() if n != "tau"}
NAMES["crossq"] |= {"policy_delay": "policy_delay"}
SPECIAL = {
    "ppo": {"orthogonal", "shared", "log_std"},
    "a2c": {"orthogonal", "shared", "log_std", "rms_epsilon"},
    "trpo": {"orthogonal", "shared", "log_std"},
    "dqn": {"epsilon", "learning_starts"},
    "qrdqn": {"epsilon", "learning_starts", "quantiles"},
    "sac": {"learning_starts"},
    "tqc": {"learning_starts", "quantiles"},
    "crossq": {"learning_starts"},
    "ddpg": {"learning_starts", "exploration", "actor_learning_rate"},
    "td3": {"learning_starts", "exploration"},
}
CLASSES = {"crossq": "CrossQ"}  # where a class is not its algorithm's name in capitals
CONTRIB = ("tqc", "crossq", "qrdqn", "trpo")  # Stable-Baselines3 has them in its contrib package
# what a peer does not have
ABSENT = {
    ("sbx", "dqn"): {"max_grad_norm"},
    ("sb3", "a2c"): {"batch_size"},
}


def theirs(algorithm: str, settings: Any) -> str:
    """The peers' name of our algorithm with such settings."""
    quantile = algorithm == "dqn" and settings.values == "quantile"
    return "qrdqn" if quantile else algorithm


def translate(peer: str, algorithm: str, settings: Any) -> dict[str, Any]:
    """Keywords for the peer's agent as JSON data; a schedule is {"start", "end"}. ValueError for
    what it cannot do."""
    s, algorithm = settings, theirs(algorithm, settings)
    for name, value in FIXED[algorithm].items():
        if getattr(s, name) != value:
            raise ValueError(
                f"{peer} has no {algorithm} with {name}={getattr(s, name)!r}; it needs {value!r}."
            )
    absent = ABSENT.get((peer, algorithm), ())
    names = {
        n: x for n, x in {**{n: n for n in SAME}, **NAMES[algorithm]}.items() if x not in absent
    }
    keywords = {theirs: _plain(getattr(s, ours)) for ours, theirs in names.items()}
    policy: dict[str, Any] = {
        "net_arch": list(s.hidden),
        "optimizer_kwargs": {"eps": s.adam_epsilon},
    }
    if algorithm in ("ppo", "a2c", "trpo"):
        policy["ortho_init"] = s.orthogonal
        if s.log_std:
            policy["log_std_init"] = s.log_std
        if s.shared:  # their convolutions are, and theirs alone; nothing is hidden behind them
            keywords["policy"], policy["net_arch"] = "CnnPolicy", []
        if algorithm != "trpo":
            keywords["ent_coef"] = s.entropy.start
    else:
        # We learn from n >= learning_starts steps on, they from n > learning_starts; we never draw
        # from less than a batch.
        keywords["learning_starts"] = max(s.learning_starts, s.batch_size) - 1
    if algorithm in ("tqc", "qrdqn"):
        policy["n_quantiles"] = s.quantiles
    if algorithm == "tqc":
        policy["n_critics"] = s.critics
    if algorithm == "crossq":
        first = {"b1": s.adam_beta1} if peer == "sbx" else {"betas": [s.adam_beta1, 0.999]}
        policy["optimizer_kwargs"] |= first
    if algorithm in ("dqn", "qrdqn"):
        e = s.epsilon
        keywords |= {
            "exploration_initial_eps": e.start,
            "exploration_final_eps": e.end,
            "exploration_fraction": e.fraction,
        }
    if algorithm in ("sac", "tqc", "crossq"):
        keywords["ent_coef"] = "auto"
    if algorithm in ("ddpg", "td3"):
        keywords["exploration"] = s.exploration.start
    if algorithm == "ddpg" and s.actor_learning_rate != s.learning_rate:
        raise ValueError(
            f"{peer}'s DDPG has one step size; ours are {s.learning_rate} and "
            f"{s.actor_learning_rate}."
        )
    if algorithm == "a2c":
        del policy["optimizer_kwargs"]  # they make their own for RMSProp, of rms_prop_eps,
        keywords["rms_prop_eps"] = s.rms_epsilon**0.5  # which they add to the root
    return {**keywords, "policy_kwargs": policy, "activation": s.activation}


def _plain(value: Any) -> Any:
    if not hasattr(value, "fraction"):
        return value
    if value.end is None:
        return value.start
    if value.fraction < 1:
        raise ValueError(
            f"the schedule {value} ends before the run does; the peers have no such one."
        )
    # one that ends after the run: what it has come to by then
    return {"start": value.start, "end": value.start + (value.end - value.start) / value.fraction}


def hide_tensorflow() -> None:
    """Importing either peer imports TensorFlow where it is installed, for seconds and for nothing
    (SBX even stops then, for want of tf_keras). Their users need not have it, so they are measured
    as without it."""
    sys.modules["tensorflow"] = None  # type: ignore[assignment]


def environments(env: str, envs: int, seed: int) -> Any:
    """Their fastest vector for quick environments: in the process, one after the other; games as
    their wrappers have them."""
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

    if is_atari(env):
        quiet()
        one_frame = {"frameskip": 1}  # their wrapper skips
        return VecFrameStack(
            make_atari_env(env, envs, seed, env_kwargs=one_frame, vec_env_cls=DummyVecEnv), 4
        )
    return make_vec_env(env, n_envs=envs, seed=seed, vec_env_cls=DummyVecEnv)


def library_of(peer: str, algorithm: str) -> str:
    """The package of the peer that has the algorithm."""
    if peer == "sb3" and algorithm in CONTRIB:
        return "sb3_contrib"
    return {"sb3": "stable_baselines3", "sbx": "sbx"}[peer]


def agent(peer: str, algorithm: str, keywords: dict[str, Any], envs: Any, seed: int) -> Any:
    """The peer's agent, made from what `translate` gave."""
    keywords = {
        k: _schedule(v) if isinstance(v, dict) and "start" in v else v for k, v in keywords.items()
    }
    activation = keywords.pop("activation")
    if "exploration" in keywords:
        from stable_baselines3.common.noise import NormalActionNoise

        zeros = np.zeros(envs.action_space.shape)
        keywords["action_noise"] = NormalActionNoise(zeros, zeros + keywords.pop("exploration"))
    library = import_module(library_of(peer, algorithm))
    if peer == "sb3":
        import torch

        torch.set_num_threads(1)
        functions = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}
    else:
        import jax

        functions = {"tanh": jax.nn.tanh, "relu": jax.nn.relu}
    keywords["policy_kwargs"] = {
        **keywords["policy_kwargs"],
        "activation_fn": functions[activation],
    }
    policy = keywords.pop("policy", "MlpPolicy")
    if (policy == "CnnPolicy") != (len(envs.observation_space.shape) == 3):
        raise ValueError(
            f"{peer} shares a body between actor and critic for pictures, and only for them."
        )
    return getattr(library, CLASSES.get(algorithm, algorithm.upper()))(
        policy, envs, seed=seed, device="cpu", verbose=0, **keywords
    )


def made_updates(model: Any) -> int:
    """Optimizer updates so far. Their PPO counts epochs."""
    batches = model.n_steps * model.n_envs // model.batch_size if hasattr(model, "n_epochs") else 1
    return int(model._n_updates) * batches


def _schedule(ends: dict[str, float]) -> Any:
    def at(remaining: float) -> float:
        return ends["end"] + remaining * (ends["start"] - ends["end"])

    return at
