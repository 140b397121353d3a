"""Acrobot, batched: two links, the torque at the joint between them, fourth-order Runge-Kutta."""

from __future__ import annotations

import numpy as np

from rl_training.envs.batched import BatchedEnvs, Outcome, squared


class BatchedAcrobot(BatchedEnvs):
    """State: both angles, both angular velocities. The start is in single precision, all that follows in double."""

    state_size = 4

    def start(self, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(low=-0.1, high=0.1, size=(4,)).astype(np.float32).astype(np.float64)

    def advance(self, state: np.ndarray, actions: np.ndarray, elapsed: np.ndarray) -> Outcome:  # noqa: ARG002
        core = self.core
        torque = np.asarray(core.AVAIL_TORQUE)[actions]
        new = self._runge_kutta(state, torque)
        for row in (0, 1):
            new[row] = _wrapped(new[row])
        for row, limit in ((2, core.MAX_VEL_1), (3, core.MAX_VEL_2)):
            new[row] = np.minimum(np.maximum(new[row], -limit), limit)
        high = -np.cos(new[0]) - np.cos(new[1] + new[0]) > 1.0
        return Outcome(new, np.where(high, 0.0, -1.0), high)

    def observe(self, state: np.ndarray) -> np.ndarray:
        obs = np.empty((state.shape[1], 6), dtype=np.float32)
        for column, angle in ((0, state[0]), (2, state[1])):
            obs[:, column], obs[:, column + 1] = np.cos(angle), np.sin(angle)
        obs[:, 4:] = state[2:].T
        return obs

    def first_obs(self, state: np.ndarray) -> np.ndarray:
        return self.observe(state.astype(np.float32))

    def _runge_kutta(self, state: np.ndarray, torque: np.ndarray) -> np.ndarray:
        dt = self.core.dt
        half = dt / 2.0
        k1 = self._derivatives(state, torque)
        k2 = self._derivatives(state + half * k1, torque)
        k3 = self._derivatives(state + half * k2, torque)
        k4 = self._derivatives(state + dt * k3, torque)
        new: np.ndarray = state + dt / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
        return new

    def _derivatives(self, state: np.ndarray, torque: np.ndarray) -> np.ndarray:
        core = self.core
        m1, m2, l1, lc1, lc2 = core.LINK_MASS_1, core.LINK_MASS_2, core.LINK_LENGTH_1, core.LINK_COM_POS_1, core.LINK_COM_POS_2
        i1 = i2 = core.LINK_MOI
        g = 9.8
        theta1, theta2, speed1, speed2 = state
        cos2, sin2 = np.cos(theta2), np.sin(theta2)
        square1, square2 = squared(state[2:])
        d1 = m1 * lc1**2 + m2 * (l1**2 + lc2**2 + 2 * l1 * lc2 * cos2) + i1 + i2
        d2 = m2 * (lc2**2 + l1 * lc2 * cos2) + i2
        phi2 = m2 * lc2 * g * np.cos(theta1 + theta2 - np.pi / 2.0)
        phi1 = (
            -m2 * l1 * lc2 * square2 * sin2
            - 2 * m2 * l1 * lc2 * speed2 * speed1 * sin2
            + (m1 * lc1 + m2 * l1) * g * np.cos(theta1 - np.pi / 2)
            + phi2
        )
        push = torque + d2 / d1 * phi1
        if core.book_or_nips != "nips":
            push = push - m2 * l1 * lc2 * square1 * sin2
        acceleration2 = (push - phi2) / (m2 * lc2**2 + i2 - squared(d2) / d1)
        acceleration1 = -(d2 * acceleration2 + phi1) / d1
        return np.stack([speed1, speed2, acceleration1, acceleration2])


def _wrapped(angle: np.ndarray) -> np.ndarray:
    """Into [-π, π] by whole turns, one at a time: their rounding adds up in Gymnasium too."""
    while (over := angle > np.pi).any():
        angle = np.where(over, angle - 2 * np.pi, angle)
    while (under := angle < -np.pi).any():
        angle = np.where(under, angle + 2 * np.pi, angle)
    return angle
