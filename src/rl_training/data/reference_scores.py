"""Returns that count as 0 (a random policy) and as 100 (a good one) in normalised scores."""

from __future__ import annotations

# scores of other versions of a task do not compare
SCORES = {
    "Pendulum-v1": (-1200.0, -146.0),  # random (-1217 in 200 episodes here); planning with the true model
    "CartPole-v1": (22.0, 500.0),  # uniformly random (22.1 in 905 episodes here); the time limit
}


def normalized_score(episode_return: float, scores: tuple[float, float]) -> float:
    """0 for the first of `scores`, 100 for the second."""
    low, high = scores
    return 100.0 * (episode_return - low) / (high - low)
