"""CartPole, Pendulum and MountainCarContinuous, batched."""

from __future__ import annotations

import math

import numpy as np

from rl_training.envs.batched import BatchedEnvs, Outcome, each, squared


class BatchedCartPole(BatchedEnvs):
    """State: position, velocity, angle, angular velocity."""

    state_size = 4

    def start(self, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(low=-0.05, high=0.05, size=(4,))

    def advance(self, state: np.ndarray, actions: np.ndarray, elapsed: np.ndarray) -> Outcome:  # noqa: ARG002
        core = self.core
        _, _, theta, theta_dot = state
        force = np.where(actions == 1, core.force_mag, -core.force_mag)
        cosine, sine = np.cos(theta), np.sin(theta)
        temp = (force + core.polemass_length * np.square(theta_dot) * sine) / core.total_mass
        bottom = core.length * (4.0 / 3.0 - core.masspole * np.square(cosine) / core.total_mass)
        theta_acc = (core.gravity * sine - cosine * temp) / bottom
        x_acc = temp - core.polemass_length * theta_acc * cosine / core.total_mass
        new = np.empty_like(state)
        speeds = state[1::2] + core.tau * np.stack([x_acc, theta_acc])
        # Euler's rule moves places by the speeds before the step, the other rule by those after it
        new[0::2] = state[0::2] + core.tau * (state[1::2] if core.kinematics_integrator == "euler" else speeds)
        new[1::2] = speeds
        fell = (np.abs(new[0]) > core.x_threshold) | (np.abs(new[2]) > core.theta_threshold_radians)
        if core._sutton_barto_reward:
            return Outcome(new, np.where(fell, -1.0, 0.0), fell)
        return Outcome(new, np.ones(len(theta)), fell)

    def observe(self, state: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(state.T, dtype=np.float32)


class BatchedPendulum(BatchedEnvs):
    """State: angle, angular velocity."""

    state_size = 2

    def start(self, rng: np.random.Generator) -> np.ndarray:
        high = np.array([np.pi, 1.0])
        return rng.uniform(low=-high, high=high)

    def advance(self, state: np.ndarray, actions: np.ndarray, elapsed: np.ndarray) -> Outcome:  # noqa: ARG002
        core = self.core
        theta, speed = state
        torque = np.minimum(np.maximum(actions[:, 0], -core.max_torque), core.max_torque)
        squares = squared(np.stack([(theta + np.pi) % (2 * np.pi) - np.pi, speed]))
        costs = squares[0] + 0.1 * squares[1] + 0.001 * squared(torque)
        pull = 3 * core.g / (2 * core.l) * np.sin(theta) + 3.0 / (core.m * core.l**2) * torque
        new = np.empty_like(state)
        np.minimum(np.maximum(speed + pull * core.dt, -core.max_speed), core.max_speed, out=new[1])
        np.add(theta, new[1] * core.dt, out=new[0])
        return Outcome(new, -costs, np.zeros(len(theta), dtype=bool))

    def observe(self, state: np.ndarray) -> np.ndarray:
        obs = np.empty((state.shape[1], 3), dtype=np.float32)
        obs[:, 0], obs[:, 1], obs[:, 2] = np.cos(state[0]), np.sin(state[0]), state[1]
        return obs


class BatchedMountainCarContinuous(BatchedEnvs):
    """State: position, velocity. Gymnasium keeps them in single precision, but for the start, which is in double."""

    state_size = 2

    def start(self, rng: np.random.Generator) -> np.ndarray:
        return np.array([rng.uniform(low=-0.6, high=-0.4), 0.0])

    def advance(self, state: np.ndarray, actions: np.ndarray, elapsed: np.ndarray) -> Outcome:
        core = self.core
        exact, first = state[0], elapsed == 0
        position, velocity = state.astype(np.float32)
        # written as Gymnasium's numbers come out: 3 · position is single precision except for the start
        angle = np.where(first, 3 * exact, (3 * position).astype(np.float64))
        slope = (0.0025 * each(math.cos, angle)).astype(np.float32)
        force = np.minimum(np.maximum(actions[:, 0], core.min_action), core.max_action)
        velocity = velocity + (force * core.power - slope)
        velocity = np.minimum(np.maximum(velocity, -core.max_speed), core.max_speed)
        position = np.where(first, (exact + velocity).astype(np.float32), position + velocity)
        position = np.minimum(np.maximum(position, core.min_position), core.max_position)
        velocity[(position == core.min_position) & (velocity < 0)] = 0
        there = (position >= core.goal_position) & (velocity >= core.goal_velocity)
        rewards = np.where(there, 100.0, 0.0) - squared(actions[:, 0].astype(np.float64)) * 0.1
        return Outcome(np.stack([position, velocity]).astype(np.float64), rewards, there)

    def observe(self, state: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(state.T, dtype=np.float32)
