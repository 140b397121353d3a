"""CartPole, Pendulum and MountainCarContinuous, batched."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rl_training.envs.batched import BatchedEnvs, Outcome, each, squared
from rl_training.types import EnvSpec


class BatchedCartPole(BatchedEnvs):
    """State: position, velocity, angle, angular velocity."""

    state_size = 4

    def __init__(self, core: Any, spec: EnvSpec, *, num_envs: int, max_episode_steps: int | None) -> None:
        super().__init__(core, spec, num_envs=num_envs, max_episode_steps=max_episode_steps)
        # as arrays, made once: with a python number an operation on few environments takes half as long again
        names = ("gravity", "length", "polemass_length", "total_mass", "tau")
        self._gravity, self._length, self._polemass_length, self._total_mass, self._tau = (
            np.asarray(getattr(core, name), dtype=np.float64) for name in names
        )
        self._four_thirds = np.asarray(4.0 / 3.0)
        self._forces = np.array([-core.force_mag, core.force_mag])
        self._factors = np.array([[core.polemass_length], [core.masspole]])
        self._limits = np.array([[core.x_threshold], [core.theta_threshold_radians]])
        self._euler = core.kinematics_integrator == "euler"

    def start(self, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(low=-0.05, high=0.05, size=(4,))

    def advance(self, state: np.ndarray, actions: np.ndarray, elapsed: np.ndarray) -> Outcome:  # noqa: ARG002
        places, speeds = state[0::2], state[1::2]
        new = np.empty_like(state)
        new_speeds = self._accelerations(state[2], state[3], self._forces.take(actions))
        new_speeds *= self._tau
        new_speeds += speeds
        # Euler's rule moves places by the speeds before the step, the other rule by those after it
        np.add(places, (speeds if self._euler else new_speeds) * self._tau, out=new[0::2])
        new[1::2] = new_speeds
        out = np.abs(new[0::2]) > self._limits
        fell = out[0] | out[1]
        rewards = np.where(fell, -1.0, 0.0) if self.core._sutton_barto_reward else np.ones(len(fell))
        return Outcome(new, rewards, fell)

    def _accelerations(self, theta: np.ndarray, theta_dot: np.ndarray, force: np.ndarray) -> np.ndarray:
        """Of the cart and of the pole [2, n]; the two quotients by the total mass are taken together."""
        cosine, sine = np.cos(theta), np.sin(theta)
        quotients = np.empty((2, len(theta)))
        temp, share = quotients
        np.square(theta_dot, out=temp)
        np.square(cosine, out=share)
        quotients *= self._factors
        temp *= sine
        temp += force
        quotients /= self._total_mass
        bottom = self._four_thirds - share
        bottom *= self._length
        sine *= self._gravity
        sine -= cosine * temp
        accelerations = np.empty_like(quotients)
        pole = np.divide(sine, bottom, out=accelerations[1])
        pull = pole * self._polemass_length
        pull *= cosine
        pull /= self._total_mass
        np.subtract(temp, pull, out=accelerations[0])
        return accelerations

    def observe(self, state: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(state.T, dtype=np.float32)


class BatchedPendulum(BatchedEnvs):
    """State: the angle's cosine and sine, angular velocity, the angle in [-π, π), the angle as it was added up.

    With so few numbers an operation's time is that of its call: what the next step needs again is kept in the state,
    results go to memory that is there, and constants are arrays, which numpy need not make from Python's numbers.
    """

    state_size = 5

    def __init__(self, core: Any, spec: EnvSpec, *, num_envs: int, max_episode_steps: int | None) -> None:
        super().__init__(core, spec, num_envs=num_envs, max_episode_steps=max_episode_steps)
        # of single precision where Gymnasium multiplies the torque, which is
        self._torques = [np.array(sign * core.max_torque, dtype=np.float32) for sign in (-1, 1)]
        self._push = np.array(3.0 / (core.m * core.l**2), dtype=np.float32)
        self._torque_cost, self._speed_reward = np.array(0.001, dtype=np.float32), np.array(-0.1)
        self._speeds = [np.array(sign * float(core.max_speed)) for sign in (-1, 1)]
        self._pull, self._dt = np.array(3 * core.g / (2 * core.l)), np.array(core.dt)
        self._half_turn, self._turn = np.array(np.pi), np.array(2 * np.pi)

    def start(self, rng: np.random.Generator) -> np.ndarray:
        # Gymnasium draws both in one call, which gives the same numbers in four times the time
        return np.array([rng.uniform(low=-np.pi, high=np.pi), rng.uniform(low=-1.0, high=1.0)])

    def begun(self, drawn: np.ndarray) -> np.ndarray:
        state = np.empty((5, drawn.shape[1]))
        state[4], state[2] = drawn
        self._look(state)
        return state

    def advance(self, state: np.ndarray, actions: np.ndarray, elapsed: np.ndarray) -> Outcome:  # noqa: ARG002
        torque = np.maximum(actions[:, 0], self._torques[0])
        np.minimum(torque, self._torques[1], out=torque)
        new = np.empty_like(state)
        speed, theta = new[2], new[4]
        np.multiply(state[1], self._pull, out=speed)
        speed += self._push * torque
        speed *= self._dt
        speed += state[2]
        np.maximum(speed, self._speeds[0], out=speed)
        np.minimum(speed, self._speeds[1], out=speed)
        np.multiply(speed, self._dt, out=theta)
        theta += state[4]
        self._look(new)
        rewards, angles = squared(state[2:4])
        rewards *= self._speed_reward  # subtracting costs rounds as adding them up and taking the negative does
        rewards -= angles
        rewards -= self._torque_cost * squared(torque)
        return Outcome(new, rewards, self.all_false(len(torque)))

    def observe(self, state: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(state[:3].T, dtype=np.float32)

    def _look(self, state: np.ndarray) -> None:
        """Put in what follows from the angle."""
        theta, angle = state[4], state[3]
        np.cos(theta, out=state[0])
        np.sin(theta, out=state[1])
        np.add(theta, self._half_turn, out=angle)
        np.remainder(angle, self._turn, out=angle)
        angle -= self._half_turn


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
