"""The running environments of a run, and the truth about what happened in them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rl_training.envs.books import ActionLog, Book, checked_state, with_origins
from rl_training.envs.episodes import Evaluator, run_episodes
from rl_training.envs.faults import ActionFault, EnvFault, NumberFault, all_finite, not_finite, shown_action
from rl_training.envs.repeats import NO_FUNCTION, Episode, episodes_from, most_steps, origins_from, repeat
from rl_training.envs.seeds import episode_seeds
from rl_training.envs.source import EnvSource
from rl_training.envs.vector import Transitions, VectorEnvs, action_dtype, make_envs
from rl_training.errors import EnvError
from rl_training.rows import layout_of
from rl_training.types import EnvSpec, State

__all__ = ["EnvPool", "Evaluator", "PoolStep", "run_episodes"]

log = logging.getLogger(__name__)


class PoolStep(NamedTuple):
    """One step in every environment, and the episodes that ended in it."""

    next_obs: np.ndarray  # [N, obs_dim] rows: what the action led to, never the start of the next episode
    rewards: np.ndarray  # [N] float64
    terminated: np.ndarray  # [N] bool: the episode is really over, the future is worth nothing
    truncated: np.ndarray  # [N] bool: cut by a limit
    episode_returns: list[float]
    episode_lengths: list[int]


class EnvPool:
    """`num_envs` environments, each going through its own numbered episodes.

    The seed of an episode comes from (seed, stream, environment, episode), so neither the number of environments nor of
    workers changes it, and an environment's exact state is its episode's number and the actions since; or, where it offers
    `get_state()`, what that gave and the actions since.
    """

    def __init__(
        self,
        source: EnvSource,
        spec: EnvSpec,
        *,
        num_envs: int,
        seed: int,
        stream: int,
        backend: str = "local_sync",
        timeout: float | None = None,
        num_workers: int | None = None,
        clip_rewards: bool = False,
        max_skips: int = 0,
    ) -> None:
        """With `clip_rewards` steps tell the signs of rewards alone. `max_skips` first episodes may be passed over because they
        begin with a number that is not finite."""
        self.spec, self.num_envs, self._layout = spec, num_envs, layout_of(spec)
        self.exact = True  # whether every episode that was restored came out as it was saved
        self._seed, self._stream = int(seed), int(stream)
        self._shape = (num_envs, *spec.action_shape)
        self._most_kept = most_steps(spec, num_envs=num_envs)
        self._dtype, self._clips = action_dtype(spec), clip_rewards
        self._log = ActionLog(self._shape, self._dtype)
        self._ones = np.ones(num_envs, dtype=np.int64)  # adding a python number takes twice the time
        self._in_place = True  # False while the environments are elsewhere than the book says
        self._marked: Book | None = None
        self._envs = make_envs(source, spec, num_envs=num_envs, backend=backend, timeout=timeout, num_workers=num_workers)
        try:
            episodes, seeds, obs = self._begin_first(max_skips)
            none = np.zeros(num_envs, dtype=np.int64)
            book = Book(0, episodes, seeds, none, np.zeros(num_envs), obs, [None] * num_envs, self._allowed(), [])
            self._book = with_origins(book, self._envs)
            self.spec = replace(spec, masked=book.masks is not None)
        except BaseException:
            self._envs.close()
            raise

    @property
    def obs(self) -> np.ndarray:
        """Current observations [N, obs_dim] as rows; a fresh array after every step."""
        return self._book.obs

    @property
    def masks(self) -> np.ndarray | None:
        """What is allowed as the next action, [N, action_dim] bool, where the environments say so."""
        return self._book.masks

    def step(self, actions: np.ndarray) -> PoolStep:
        """Give every environment its action; where that ends an episode, the next one is begun as well."""
        actions = np.asarray(actions, dtype=self._dtype)
        if actions.shape != self._shape or not self._in_place or not (self.spec.discrete or all_finite(actions)):
            raise self._refusal(actions)
        if self._book.time == len(self._log):
            self._book, self._marked = self._log.make_room(self._book, self._marked)
        book = self._book
        # before the step, as an environment may write into the action it is given; it counts once `time` does
        self._log.write(book.time, actions)
        self._in_place = False
        done = self._step_all(actions)
        lengths, returns, ended = book.lengths + self._ones, book.returns + done.rewards, done.terminated | done.truncated
        if self._clips:  # for the learner; episodes are worth what they are
            done = done._replace(rewards=np.sign(done.rewards))
        kept, allowed = (book.episodes, book.seeds), self._allowed()
        book = Book(book.time + 1, *kept, lengths, returns, done.obs, book.finished, allowed, book.origins)
        if 1 not in ended.tobytes():  # a tenth of the time of .any()
            self._book, self._in_place = book, True
            return PoolStep(*done, [], [])
        index = np.flatnonzero(ended)
        over = PoolStep(*done, returns[index].tolist(), lengths[index].tolist())
        finished = book.finished.copy()
        for env, total, length in zip(index.tolist(), over.episode_returns, over.episode_lengths, strict=True):
            if length <= self._most_kept and not book.origins:  # those need not come back by their seeds
                given = self._log.last(book.time, env, length).copy()
                finished[env] = Episode(book.seeds[env], given, total, done.obs[env].copy())
        self._next_episodes(book._replace(finished=finished), index)
        return over

    def mark(self) -> None:
        """Remember this moment, to `rewind` to it. Costs nothing; the actions since are kept until the next mark."""
        self._marked = self._book

    def rewind(self) -> None:
        """Go back to the last `mark` in the books, for saving; the environments stay where they are until `restore`."""
        if self._marked is None:
            raise EnvError("there is no mark to rewind to")
        self._in_place = self._in_place and self._marked is self._book
        self._book = self._marked

    def state_dict(self) -> State:
        book = with_origins(self._book, self._envs) if self._in_place and self._book.origins else self._book
        return {
            "seed": self._seed,
            "stream": self._stream,
            "exact": self.exact,
            **self._log.state_of(book, self.spec),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Repeat finished episodes to see whether they come out as they did; then put every environment back into its running
        one by repeating that. Where it fails, say so and begin the next one."""
        origins, keeps = origins_from(state, count=self.num_envs), bool(self._book.origins)
        arrays = checked_state(state, self.spec, self._book, origins, seed=self._seed, stream=self._stream)
        finished: list[Episode | None] = [None] * self.num_envs
        if "finished" in state:  # checkpoints of older versions have none
            finished = episodes_from(state["finished"], self.spec, count=self.num_envs)
        steps = np.array([origin.steps for origin in origins] or [0] * self.num_envs)
        time = self._log.load(arrays["actions"], (arrays["lengths"] - steps).tolist())
        log.info("%s: repeating episodes to put the environments back into those that run", self.spec.env_id)
        episodes, lengths = arrays["episodes"].astype(np.int64), arrays["lengths"].astype(np.int64)
        returns, obs = arrays["returns"].astype(np.float64), arrays["obs"].astype(self._layout.dtype)
        seeds = self._seeds(np.arange(self.num_envs), episodes)
        self._book = Book(time, episodes, seeds, lengths, returns, obs, finished, arrays.get("masks"), origins)
        self._marked = None
        self.exact = bool(state["exact"])
        self._in_place = False
        kept = {env: episode for env, episode in enumerate(finished) if episode is not None}
        for env, how in repeat(self._envs, self.spec, kept, over=True).items():
            self._note_inexact(env, f"when its last finished episode was repeated, {how}")
        self.restore()
        if keeps and not origins:  # saved by a version that did not ask for states
            self._book = with_origins(self._book, self._envs)

    def restore(self) -> None:
        """Bring the environments to where the books say they are: seed the episodes and repeat their actions."""
        book = self._book
        differ = repeat(self._envs, self.spec, {env: self._episode(book, env) for env in range(self.num_envs)}, over=False)
        self._in_place = True
        for env, how in differ.items():
            self._note_inexact(env, f"when its episode {book.episodes[env]} was repeated, {how}; it begins the next one")
        if differ:
            self.begin_next(np.array(list(differ)))

    def _note_inexact(self, env: int, what: str) -> None:
        self.exact = False
        log.warning("NOT EXACT: %s, environment %d: %s. %s", self.spec.env_id, env, what, NO_FUNCTION)

    def begin_next(self, index: np.ndarray, *, passing: int = 0) -> None:
        """Leave the running episodes of these environments and begin their next ones, or later ones, passing some over."""
        self._next_episodes(self._book, np.asarray(index), passing=passing)

    @contextmanager
    def lend(self) -> Iterator[VectorEnvs]:
        """The environments themselves, for episodes of another kind; afterwards they are back in their training episodes."""
        if self._in_place and self._book.origins:
            self._book = with_origins(self._book, self._envs)
        self._in_place = False
        try:
            yield self._envs
        finally:
            self.restore()

    def close(self) -> None:
        self._envs.close()

    def _begin_first(self, max_skips: int) -> tuple[np.ndarray, list[int], np.ndarray]:
        """Which episodes come first, their seeds, and what is observed at their beginning."""
        episodes, self.passed_over = np.zeros(self.num_envs, dtype=np.int64), 0
        while True:
            try:
                return episodes, *self._begin(np.arange(self.num_envs), episodes)
            except NumberFault as fault:  # noqa: PERF203 (one that begins so is rare)
                if self.passed_over >= max_skips:
                    raise
                log.warning("%s; this episode is left and the next begun (on_nan: skip)", fault)
                episodes[fault.index] += 1
                self.passed_over += 1

    def _next_episodes(self, book: Book, index: np.ndarray, *, passing: int = 0) -> None:
        """Commit `book` with new episodes in the environments named; if one of them cannot begin, nothing is committed."""
        episodes, lengths, returns, obs = book.episodes.copy(), book.lengths.copy(), book.returns.copy(), book.obs.copy()
        episodes[index] += 1 + passing
        self._in_place = False
        begun, obs[index] = self._begin(index, episodes[index])
        seeds = book.seeds.copy()
        for env, seed in zip(index.tolist(), begun, strict=True):
            seeds[env] = seed
        lengths[index], returns[index] = 0, 0.0
        new = book._replace(episodes=episodes, seeds=seeds, lengths=lengths, returns=returns, obs=obs, masks=self._allowed())
        self._book, self._in_place = with_origins(new, self._envs, index.tolist()) if book.origins else new, True

    def _allowed(self) -> np.ndarray | None:
        masks = self._envs.masks
        return None if masks is None else masks.copy()

    def _episode(self, book: Book, env: int) -> Episode:
        """The running one, up to now."""
        so_far = book.seeds[env], self._log.since(book, env), float(book.returns[env]), book.obs[env]
        masks, origin = None if book.masks is None else book.masks[env], book.origins[env] if book.origins else None
        return Episode(*so_far, masks, origin)

    def _seeds(self, index: np.ndarray, episodes: np.ndarray) -> list[int]:
        return episode_seeds(
            [(self._seed, self._stream, *pair) for pair in zip(index.tolist(), episodes.tolist(), strict=True)]
        )

    def _begin(self, index: np.ndarray, episodes: np.ndarray) -> tuple[list[int], np.ndarray]:
        """The seeds of these episodes, and what is observed at their beginning."""
        numbers = dict(zip(index.tolist(), episodes.tolist(), strict=True))
        seeds = self._seeds(index, episodes)
        try:
            obs = self._envs.reset(index, seeds)
        except EnvFault as fault:
            raise self._located(fault.index, numbers[fault.index], 0, fault.what) from fault
        if bad := not_finite(obs, self._layout):
            env = int(index[bad[0]])
            raise self._located(env, numbers[env], 0, bad[1], kind=NumberFault)
        return seeds, obs

    def _step_all(self, actions: np.ndarray) -> Transitions:
        try:
            done = self._envs.step(actions)
        except EnvFault as fault:
            raise self._in_step(fault.index, fault.what) from fault
        if bad := not_finite(done.obs, self._layout, done.rewards):
            raise self._in_step(*bad, kind=NumberFault)
        return done

    def _in_step(self, env: int, what: str, kind: type[EnvFault] = EnvFault) -> EnvFault:
        book = self._book
        what = f"{what}; the action was {shown_action(self._log.last(book.time + 1, env, 1)[0])}"
        return self._located(env, book.episodes[env], book.lengths[env] + 1, what, kind=kind)

    def _located(self, env: int, episode: int, step: int, what: str, kind: type[EnvFault] = EnvFault) -> EnvFault:
        return kind(self.spec.env_id, env, what, where=f"episode {episode}, step {step}")

    def _refusal(self, actions: np.ndarray) -> Exception:
        if actions.shape != self._shape:
            return ValueError(f"actions must have shape {self._shape}, one row per environment; got {actions.shape}")
        if not self._in_place:
            return EnvError(f"the environments of {self.spec.env_id} are not where the books say; restore() brings them back")
        env = int(np.flatnonzero(~np.isfinite(actions).all(axis=1))[0])
        where = f"environment {env}, episode {self._book.episodes[env]}, step {self._book.lengths[env] + 1}"
        return ActionFault(f"{self.spec.env_id}, {where}: the policy chose the action {shown_action(actions[env])}", index=env)
