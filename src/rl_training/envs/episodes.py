"""Whole episodes for evaluation: each with a seed of its own, so that their number and order change nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from rl_training.envs.faults import EnvFault, NumberFault, all_finite, not_finite, shown_action
from rl_training.envs.repeats import Episode, Recorder, most_steps, repeat
from rl_training.envs.seeds import episode_seed
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import VectorEnvs, make_envs
from rl_training.errors import NumericsError
from rl_training.rows import layout_of
from rl_training.types import EnvSpec

log = logging.getLogger(__name__)

LONG_EPISODE = 20_000  # steps, after which it is asked whether there is an end

Act: TypeAlias = Callable[[np.ndarray], np.ndarray]
"""From observations [n, obs_dim] to the learner's actions: [-1, 1] or indices."""

EpisodeAct: TypeAlias = Callable[[np.ndarray, np.ndarray, "np.ndarray | None"], np.ndarray]
"""The same, told which episode [n] each row is in, for those who remember something from one step to the next, and what is
allowed there [n, action_dim], where the environments say so."""


@runtime_checkable
class Lender(Protocol):
    """Somebody whose environments can be borrowed: the pool."""

    def lend(self) -> AbstractContextManager[VectorEnvs]: ...


def run_episodes(
    act: Act,
    envs: EnvSource | Lender | VectorEnvs,
    spec: EnvSpec,
    *,
    num_episodes: int,
    seed: int,
    stream: int,
    max_parallel: int = 16,
    max_steps: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (float64) and lengths (int64) of episodes; the seed of episode i comes from (seed, stream, i) alone.

    Environments come from a source (made for this call), from a pool (borrowed, then put back into its episodes) or are open.
    """
    evaluator = Evaluator(envs, spec, max_parallel=max_parallel)
    try:
        return evaluator.run(act, num_episodes=num_episodes, seed=seed, stream=stream, max_steps=max_steps)
    finally:
        evaluator.close()


class Evaluator:
    """Keeps its environments open between evaluations; closes those it made, never those it was given.

    When the source is one object that cannot be made twice, the training `pool` lends it.
    """

    def __init__(
        self,
        envs: EnvSource | Lender | VectorEnvs,
        spec: EnvSpec,
        *,
        pool: Lender | None = None,
        max_parallel: int = 16,
        backend: str = "local_sync",
        timeout: float | None = None,
    ) -> None:
        alone = isinstance(envs, EnvSource) and not envs.can_make_more
        self._given = pool if alone and pool is not None else envs
        self._spec, self._backend, self._timeout = spec, backend, timeout
        self._max_parallel = 1 if alone else max_parallel
        self._own: VectorEnvs | None = None
        self._said_long = False
        self.kept: Episode | None = None  # the first of the last evaluation, to be repeated

    def run(
        self,
        act: Act | EpisodeAct,
        *,
        num_episodes: int,
        seed: int,
        stream: int,
        max_steps: int | None = None,
        tell_episodes: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths; an environment that is free takes the next episode, one that has none left is not stepped.

        With `tell_episodes` an `EpisodeAct` is asked for actions.
        """
        choose: Callable[..., np.ndarray] = act
        with self.open(min(num_episodes, self._max_parallel)) as envs:
            turn = _Turn(envs, self._spec, num_episodes=num_episodes, path=(seed, stream))
            # how many run side by side depends on this call alone, not on how many happen to be open
            turn.begin(np.arange(min(num_episodes, self._max_parallel, envs.num_envs)))
            for step in count(1):
                if not len(turn.index):
                    break
                told = (turn.obs, turn.episode, turn.masks) if tell_episodes else (turn.obs,)
                turn.step(choose(*told), max_steps)
                if step % LONG_EPISODE == 0:
                    self._note_length(turn)
        self.kept = turn.first
        return turn.returns, turn.lengths

    def repeat(self, episode: Episode, *, num_episodes: int) -> str | None:
        """Play it once more, where evaluations of so many episodes are about to be; if it does not come out as it did, how."""
        with self.open(min(num_episodes, self._max_parallel)) as envs:
            self.kept = episode
            return repeat(envs, self._spec, {0: episode}, over=True).get(0)

    def _note_length(self, turn: _Turn) -> None:
        """Say once that an episode may be one that never ends: otherwise it looks as if nothing happened any more."""
        long = [episode for episode in turn.episode.tolist() if turn.lengths[episode] >= LONG_EPISODE]
        if long and not self._said_long:
            self._said_long = True
            log.warning(
                "%s: evaluation episode %d has lasted %s steps and goes on; an episode that may never end needs a limit: "
                "env_kwargs={'max_episode_steps': ...}, or gymnasium.wrappers.TimeLimit around an environment of your own",
                *(self._spec.env_id, long[0], f"{turn.lengths[long[0]]:,}"),
            )

    def close(self) -> None:
        """Close the environments that were made here."""
        own, self._own = self._own, None
        if own is not None:
            own.close()

    @contextmanager
    def open(self, wanted: int) -> Iterator[VectorEnvs]:
        """So many environments, or fewer; they stay open."""
        if isinstance(self._given, Lender):
            with self._given.lend() as envs:
                yield envs
        elif isinstance(self._given, EnvSource):
            if self._own is None or self._own.num_envs < wanted:
                self.close()
                num_envs = max(1, wanted)
                self._own = make_envs(self._given, self._spec, num_envs=num_envs, backend=self._backend, timeout=self._timeout)
            yield self._own
        else:
            yield self._given


class _Turn:
    """One evaluation under way: row k is environment `index[k]` in its episode `episode[k]`."""

    def __init__(self, envs: VectorEnvs, spec: EnvSpec, *, num_episodes: int, path: tuple[int, int]) -> None:
        self.returns, self.lengths = np.zeros(num_episodes), np.zeros(num_episodes, dtype=np.int64)
        self.index = self.episode = np.zeros(0, dtype=np.int64)
        self._layout = layout_of(spec)
        self.obs = self._layout.zeros(0)
        self._envs, self._spec, self._path = envs, spec, path
        self._begun = 0
        self._recorder = Recorder(episode_seed(*path, 0), most=most_steps(spec, num_envs=1))
        self.first: Episode | None = None  # once it is over

    @property
    def masks(self) -> np.ndarray | None:
        """What is allowed in each row."""
        return None if self._envs.masks is None else self._envs.masks[self.index]

    def begin(self, index: np.ndarray) -> None:
        """The next episodes, in the environments named."""
        if not len(index):
            return
        numbers = np.arange(self._begun, self._begun + len(index))
        self._begun += len(index)
        try:
            obs = self._envs.reset(index, [episode_seed(*self._path, int(number)) for number in numbers])
        except EnvFault as fault:
            raise self._located(fault.index, numbers[index.tolist().index(fault.index)], fault.what) from fault
        if bad := not_finite(obs, self._layout):
            raise self._located(int(index[bad[0]]), numbers[bad[0]], bad[1], kind=NumberFault)
        self.index, self.episode = np.append(self.index, index), np.append(self.episode, numbers)
        self.obs = np.concatenate([self.obs, obs])

    def step(self, learner_actions: np.ndarray, max_steps: int | None) -> None:
        actions = self._spec.to_env(learner_actions)
        if not all_finite(actions):
            raise NumericsError(f"the policy chose an action that is not finite, in an evaluation of {self._spec.env_id}")
        records = self.episode[0] == 0  # it is the first row as long as it runs
        if records:
            self._recorder.add(actions[0])
        try:
            done = self._envs.step_some(self.index, actions)
        except EnvFault as fault:
            raise self._in_step(self.index.tolist().index(fault.index), fault.what, actions) from fault
        if bad := not_finite(done.obs, self._layout, done.rewards):
            raise self._in_step(*bad, actions, kind=NumberFault)
        self.obs = done.obs
        self.returns[self.episode] += done.rewards
        self.lengths[self.episode] += 1
        over = done.terminated | done.truncated
        if records and over[0]:
            self.first = self._recorder.finished(float(self.returns[0]), done.obs[0])
        if max_steps is not None:
            over |= self.lengths[self.episode] >= max_steps
        if np.count_nonzero(over):
            free = self.index[over][: len(self.returns) - self._begun]
            self.index, self.episode, self.obs = self.index[~over], self.episode[~over], self.obs[~over]
            self.begin(free)

    def _in_step(self, row: int, what: str, actions: np.ndarray, kind: type[EnvFault] = EnvFault) -> EnvFault:
        what = f"{what}; the action was {shown_action(actions[row])}"
        return self._located(int(self.index[row]), self.episode[row], what, kind=kind)

    def _located(self, index: int, episode: int, what: str, kind: type[EnvFault] = EnvFault) -> EnvFault:
        where = f"evaluation episode {episode}, step {self.lengths[episode] + 1}"
        return kind(self._spec.env_id, index, what, where=where)
