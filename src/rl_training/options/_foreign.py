"""What options are called in Stable-Baselines3, CleanRL, d3rlpy and other libraries, so that an error can name ours."""

from __future__ import annotations

from collections.abc import Iterable

from rl_training.errors import did_you_mean

CONFIG_FIELDS = ("env_id", "num_envs", "eval_episodes", "total_timesteps", "output_dir", "device")  # beside algo_kwargs

# their name: ours, the first of which the algorithm has
NAMES: dict[str, tuple[str, ...]] = {
    "action_noise": ("exploration_noise",),
    "activation_fn": ("activation",),
    "actor_lr": ("actor_learning_rate", "learning_rate"),
    "alpha_threshold": ("cql_target_gap",),
    "anneal_lr": ("learning_rate_schedule",),
    "autotune": ("alpha",),
    "batch_size": ("minibatch_size", "batch_size"),
    "buffer_size": ("buffer_capacity",),
    "clip_range": ("clip_coef",),
    "clip_range_vf": ("clip_value_loss",),
    "clip_vloss": ("clip_value_loss",),
    "conservative_weight": ("cql_alpha",),
    "critic_lr": ("learning_rate",),
    "critic_learning_rate": ("learning_rate",),
    "delta_std": ("noise_std",),
    "discount": ("gamma",),
    "ent_coef": ("alpha", "ent_coef"),
    "env": ("env_id",),
    "entropy_coef": ("ent_coef", "alpha"),
    "gradient_steps": ("gradient_updates_per_step",),
    "iql_tau": ("expectile",),
    "initial_temperature": ("initial_alpha",),
    "lr": ("learning_rate",),
    "max_weight": ("max_advantage_weight",),
    "n_action_samples": ("num_cql_samples",),
    "n_critics": ("num_critics",),
    "n_delta": ("num_directions",),
    "n_envs": ("num_envs",),
    "n_epochs": ("update_epochs",),
    "n_eval_episodes": ("eval_episodes",),
    "n_quantiles": ("num_quantiles",),
    "n_steps": ("num_steps",),
    "n_timesteps": ("total_timesteps",),
    "n_top": ("num_top_directions",),
    "net_arch": ("hidden_sizes",),
    "norm_adv": ("normalize_advantages",),
    "num_minibatches": ("minibatch_size",),
    "policy_frequency": ("policy_delay",),
    "features_extractor_class": ("network",),
    "features_extractor_kwargs": ("network_kwargs",),
    "policy_kwargs": ("network", "hidden_sizes"),
    "policy_lr": ("actor_learning_rate", "learning_rate"),
    "q_lr": ("learning_rate",),
    "sigma": ("noise_std", "exploration_noise"),
    "soft_q_backup": ("backup_entropy",),
    "target_noise_clip": ("noise_clip",),
    "target_policy_noise": ("policy_noise",),
    "temp_learning_rate": ("alpha_learning_rate",),
    "tensorboard_log": ("output_dir",),
    "top_quantiles_to_drop_per_net": ("num_dropped_quantiles",),
    "total_steps": ("total_timesteps",),
    "train_freq": ("train_frequency",),
    "utd_ratio": ("gradient_updates_per_step",),
    "weight_temp": ("inverse_temperature",),
}

# what is an option there and none here
ADVICE = {
    "policy": "networks are set by network, hidden_sizes and activation",
    "progress_bar": "in Python progress is told by logging, as after logging.basicConfig(level=logging.INFO)",
    "render_mode": "a film is made afterwards: agent.record_video('film.gif'), or rl-training eval RUN --video",
    "use_sde": "state-dependent exploration is not implemented",
    "verbose": "in Python progress is told by logging, as after logging.basicConfig(level=logging.INFO)",
}

SCHEDULES = "a value that changes goes by an option of its own, as learning_rate_schedule={'type': 'linear', 'end': 0}"

# keywords of methods there: what to do here
KEYWORDS: dict[str, dict[str, str]] = {
    "learn": {
        "callback": "it is callbacks=[...], a list of rl_training.Callback objects whose hooks are called once a turn",
        "eval_env": "evaluations are in environments of their own: eval_interval and eval_episodes of the agent",
        "eval_freq": "it is eval_interval of the agent: PPO(..., eval_interval=5_000)",
        "log_interval": "it is a setting of the agent, in steps: PPO(..., log_interval=1_000)",
        "n_eval_episodes": "it is eval_episodes of the agent: PPO(..., eval_episodes=10)",
        "progress_bar": ADVICE["progress_bar"],
        "reset_num_timesteps": "learn(n) goes on until n steps in all are done; a new agent begins anew",
        "tb_log_name": "every run has a directory of its own below output_dir of the agent, TensorBoard's files in it",
    },
    "evaluate": {
        "deterministic": "evaluations are of the deterministic policy",
        "env": "it is given when a run is loaded: PPO.load(path, env=...)",
        "n_episodes": "it is num_episodes",
        "n_eval_episodes": "it is num_episodes",
        "render": "a film is made by agent.record_video('film.gif')",
        "return_episode_rewards": "its mean, spread and extremes are in what evaluate returns",
    },
    "predict": {
        "episode_start": "policies here have no memory",
        "state": "policies here have no memory, and predict returns the action alone",
    },
}

# algorithms of other libraries: those here that do the nearest thing
ALGORITHMS: dict[str, str] = {
    "a2c": "ppo and ppg are its successors",
    "dqn": "for discrete actions: ppo, ppg, ars, openai_es",
    "dreamer": "with a learnt model there are pets and mopo",
    "dreamerv3": "with a learnt model there are pets and mopo",
    "impala": "ppo with more num_envs, or openai_es on a cluster",
    "mbpo": "with a learnt model there are pets and mopo",
    "qrdqn": "for discrete actions: ppo, ppg, ars, openai_es",
    "rainbow": "for discrete actions: ppo, ppg, ars, openai_es",
    "redq": "rlpd without prior data is it: offline_batch_ratio 0 and layer_norm false, as in the preset rlpd/redq_hopper",
    "td3_bc": "rebrac with the preset rebrac/td3_bc is it",
    "trpo": "ppo and ppg are its successors",
}


def keyword_hint(method: str, keyword: str, known: Iterable[str]) -> str:
    """A clause about a keyword that a method does not take."""
    advice = KEYWORDS.get(method, {}).get(keyword)
    return f"; {advice}" if advice else did_you_mean(keyword, known)


def algorithm_hint(name: str) -> str | None:
    """A sentence about an algorithm that is well known, but not here."""
    advice = ALGORITHMS.get(name.lower().replace("-", "_"))
    return None if advice is None else f"{name.upper()} is not here; {advice}"


def name_here(key: str, known: Iterable[str]) -> str | None:
    """The name this library has for an option of another, if it has the option."""
    names = {*known, *CONFIG_FIELDS}
    return next((name for name in NAMES.get(key, ()) if name in names), None)


def foreign_hint(key: str, known: Iterable[str]) -> str | None:
    """A clause to put behind an error message."""
    name = name_here(key, known)
    if name is None and key in ADVICE:
        return f"; {ADVICE[key]}"
    return None if name is None else f"; what other libraries call {key!r} is {name!r} here"
