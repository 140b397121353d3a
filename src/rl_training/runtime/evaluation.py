"""How good the policy is, found out without touching what it learns from."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from rl_training.algorithms.base import Algorithm
from rl_training.envs.pool import Evaluator
from rl_training.envs.repeats import NO_FUNCTION, episodes_from, episodes_state
from rl_training.runtime.rng import Stream, isolated_rng
from rl_training.types import EnvSpec, State

log = logging.getLogger(__name__)


class PolicyEvaluator:
    """Episodes of the deterministic policy, each with its own seed, the same ones every time.

    The environments stay open between evaluations. Torch's stream is put aside meanwhile, so that how often one
    evaluates cannot change what is learnt.
    """

    def __init__(self, evaluator: Evaluator, spec: EnvSpec, *, seed: int, device: torch.device) -> None:
        self.evaluator, self.spec, self.seed, self.device = evaluator, spec, seed, device
        self.before_step: Callable[[], None] | None = None  # may raise, to end an evaluation between two steps

    def __call__(self, algorithm: Algorithm, *, num_episodes: int) -> dict[str, Any]:
        if num_episodes == 0:
            return {"eval_return_mean": math.nan, "eval_return_std": math.nan, "eval_episodes": 0}

        policy, before_step = algorithm.episode_policy(), self.before_step

        def act(obs: np.ndarray, episodes: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
            if before_step is not None:
                before_step()
            allowed = {} if masks is None else {"action_masks": torch.from_numpy(masks).to(self.device)}
            return policy(torch.from_numpy(obs).to(self.device), episodes.tolist(), **allowed).cpu().numpy()

        with isolated_rng(self.seed):
            returns, lengths = self.evaluator.run(
                act, num_episodes=num_episodes, seed=self.seed, stream=Stream.EVAL_ENVS, tell_episodes=True
            )
        return {
            "eval_return_mean": float(returns.mean()),
            "eval_return_std": float(returns.std()),
            "eval_return_min": float(returns.min()),
            "eval_return_max": float(returns.max()),
            "eval_length_mean": float(lengths.mean()),
            "eval_episodes": num_episodes,
        }

    def state_dict(self) -> State:
        """A whole episode, for whoever goes on to repeat."""
        return episodes_state([self.evaluator.kept], self.spec)

    def repeat(self, state: Mapping[str, Any], *, num_episodes: int) -> bool:
        """Whether the saved episode comes out as it did, or there is none; where it does not, it is told."""
        (episode,) = episodes_from(state, self.spec, count=1)
        how = None if episode is None else self.evaluator.repeat(episode, num_episodes=num_episodes)
        if how is not None:
            what = f"when the first episode of the last evaluation was repeated, {how}"
            log.warning("NOT EXACT: %s: %s. %s", self.spec.env_id, what, NO_FUNCTION)
        return how is None

    def close(self) -> None:
        self.evaluator.close()
