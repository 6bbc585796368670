"""Names of settings in other libraries and papers -> names here. docs/coming-from lists the same
names by library."""

from __future__ import annotations

# arguments of tandem.train besides settings
ARGUMENTS = (
    "algorithm",
    "env",
    "framework",
    "network",
    "device",
    "steps",
    "stop_at",
    "seed",
    "envs",
    "env_kwargs",
    "wrappers",
    "eval_env",
    "out",
    "resume",
    "extend",
    "trust",
    "start_from",
    "which",
    "load",
    "callbacks",
    "catch_signals",
    "progress",
)

_SAME: dict[tuple[str, ...], str] = {
    # settings here, of which an algorithm's first one is meant -> names elsewhere
    ("algorithm",): "algo",
    ("env",): "environment env_id env_name gym_id",
    ("env_kwargs",): "env_args env_config",
    ("out",): "log_dir log_folder logdir save_path output_dir exp_name",
    ("resume",): "trained_agent load_model load_path",
    ("steps",): "total_timesteps num_timesteps max_timesteps n_timesteps timesteps total_steps "
    "total_frames",
    ("envs",): "n_envs num_envs",
    ("rollout", "n_step"): "n_steps num_steps",
    ("rollout",): "horizon unroll_length train_batch_size train_batch_size_per_learner "
    "frames_per_batch",
    ("epochs",): "n_epochs num_epochs update_epochs num_sgd_iter",
    ("batch_size",): "minibatch_size mini_batch_size sgd_minibatch_size num_minibatches "
    "n_minibatches",
    ("gamma",): "discount discount_factor",
    ("gae_lambda", "q_lambda"): "lam lambda_",
    ("learning_rate",): "lr policy_lr q_lr critic_lr alpha_lr anneal_lr lr_schedule",
    ("actor_learning_rate", "learning_rate"): "actor_lr",
    ("max_grad_norm",): "grad_clip clip_grad_norm",
    ("entropy", "temperature"): "ent_coef entropy_coef entropy_coeff",
    ("temperature", "priority_alpha"): "alpha",
    ("temperature",): "autotune",
    ("initial_temperature",): "init_alpha init_temperature",
    ("value_weight",): "vf_coef vf_coefficient vf_loss_coeff value_coef value_loss_coef",
    ("clip",): "clip_range clip_coef clip_param",
    ("value_clip",): "clip_range_vf clip_vloss",
    ("max_kl", "radius"): "target_kl",
    ("normalize_advantage",): "norm_adv",
    ("normalize_observations",): "norm_obs normalize_obs",
    ("normalize_rewards",): "norm_reward normalize_reward",
    ("train_every",): "train_freq train_frequency update_every",
    ("updates_per_call",): "gradient_steps",
    ("updates_per_step",): "utd utd_ratio",
    ("target_every",): "target_update_interval target_network_frequency target_update_freq",
    ("tau",): "polyak",
    ("policy_delay",): "policy_frequency policy_freq",
    ("learning_starts",): "warmup warmup_steps start_steps start_timesteps random_steps "
    "update_after",
    ("buffer_size",): "memory_size replay_buffer_size replay_capacity",
    ("prioritized",): "per prioritized_replay",
    ("priority_beta",): "beta",
    ("n_step",): "multi_step",
    ("double",): "double_q double_dqn",
    ("hindsight",): "her",
    ("exploration",): "exploration_noise",
    ("smoothing",): "target_policy_noise policy_noise",
    ("smoothing_clip",): "target_noise_clip noise_clip",
    ("critics",): "n_critics num_critics",
    ("quantiles",): "n_quantiles num_quantiles",
    ("dropped",): "top_quantiles_to_drop_per_net",
    ("atoms",): "n_atoms num_atoms",
    ("epsilon",): "exploration_initial_eps exploration_final_eps exploration_fraction start_e "
    "end_e eps eps_start eps_end eps_decay epsilon_start epsilon_end epsilon_decay",
    ("action_noise",): "use_sde sde gsde",
    ("recurrent",): "use_lstm",
    ("hidden",): "net_arch policy_kwargs hidden_size hidden_sizes hidden_dim fcnet_hiddens",
    ("critic_hidden", "hidden"): "qf_arch",
    ("activation",): "activation_fn",
    ("optimizer",): "optimizer_class",
    ("eval_every",): "eval_freq eval_interval",
    ("eval_episodes",): "n_eval_episodes",
    ("save_every",): "save_freq checkpoint_freq",
    ("workers",): "num_workers n_workers num_env_runners",
    ("device",): "gpu cuda use_gpu use_cuda",
    ("log_every",): "log_interval log_freq",
    ("threads",): "num_threads n_threads",
    ("tensorboard",): "tensorboard_log",
    ("wandb",): "wandb_project_name track",
    ("plots",): "capture_video",
    ("callbacks",): "callback",
    ("progress",): "verbose",
}
OTHER_NAMES = {name: here for here, names in _SAME.items() for name in names.split()}

_NETWORK = (
    "network=lambda space: torch.nn.Sequential(torch.nn.Linear(space.shape[0], 64), "
    "torch.nn.Tanh())"
)
_TIME = "time_limit max_time max_seconds time_budget timeout"
# advice for Python programs where a new name alone would not help; {odd} is the given name
_INSTEAD = {
    "policy_kwargs": "{odd!r} is 'hidden' here, as in hidden='64,64'. A custom network is "
    f"{_NETWORK}.",
    "features_extractor_class features_extractor_kwargs features_extractor model": "{odd!r} is "
    f"'network' here, a function of the observation space or a class, as in {_NETWORK}.",
    "seeds n_seeds num_seeds": "train once per seed, as in [tandem.train({algorithm!r}, env, "
    "seed=seed) for seed in range(3)], or on the command line with --seeds 3.",
    "log logger": "progress=True prints progress, out='runs/first' writes progress.csv and "
    "TensorBoard events, and wandb, mlflow, writer and callbacks log elsewhere.",
    "tensorboard_log": "give the run's folder, as in out='runs/first'. It gets TensorBoard events "
    "unless tensorboard=False.",
    "verbose progress_bar": "{odd!r} is 'progress' here, as in progress=True.",
    _TIME: "callbacks=[tandem.runs.callbacks.TimeLimit(180)] ends a run after 180 seconds.",
    "quiet": "leave it out. Nothing is printed without progress=True.",
}
# the same for commands
_COMMANDS = {
    "verbose": "leave it out: progress is shown, unless --quiet is given.",
    _TIME: "`timeout -s INT 3m tandem train …` ends a run after 3 minutes and saves it, as Ctrl-C "
    "does.",
}
INSTEAD, COMMANDS = (
    {name: advice for names, advice in of.items() for name in names.split()}
    for of in (_INSTEAD, _COMMANDS)
)

# values with another format here, by the given name or the name of the setting
FORMS = {
    "epsilon": "1:0.05:0.1",
    "action_noise": "gsde",
    "hidden": "64,64",
    "critic_hidden": "256,256",
    "anneal_lr": "3e-4:0",
    "lr_schedule": "3e-4:0",
    "autotune": "auto",
    "her": "future",
    "use_lstm": "64",
    "device": "cuda",
    "out": "runs/first",
    "resume": "runs/first",
    "wandb": "my-project",
}
# settings with another meaning here
COUNTS = {
    "polyak": "the weight of the new parameters, 1 - polyak",
    "num_minibatches": "rows of each minibatch",
    "n_minibatches": "rows of each minibatch",
    "train_batch_size": "steps of each environment",
    "train_batch_size_per_learner": "steps of each environment",
    "frames_per_batch": "steps of each environment",
}
# names that are values here and not found in a setting's type -> (setting, value)
CHOICES = {
    "rainbow": ("entry", "rainbow"),
    "xqc": ("entry", "xqc"),
    "torch": ("framework", "torch"),
    "pytorch": ("framework", "torch"),
    "tensorflow": ("framework", "tensorflow"),
    "tf": ("framework", "tensorflow"),
    "jax": ("framework", "jax"),
    "rnn": ("memory", "lstm"),
}
