"""Environments in worker processes, for simulators that cost more than the way there and back.

Measured on two cores that had other work too: that way adds 0.2 to 0.6 ms to a step of 4 environments, which loses clearly for
Pendulum-v1 (0.07 ms in the loop of `SyncEnvs`) and HalfCheetah-v5 (0.27 ms). So the loop is the default.
"""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from multiprocessing import util
from typing import Any

import numpy as np

from rl_training.envs import processes
from rl_training.envs.faults import EnvFault
from rl_training.envs.source import EnvFactory, EnvSource
from rl_training.envs.states import GET_STATES, PUT_STATES, AskedStates, packed, unpacked
from rl_training.envs.vector import Indices, SyncEnvs, Transitions, action_dtype
from rl_training.errors import EnvError, words_of
from rl_training.rows import layout_of
from rl_training.types import EnvSpec

RESET, STEP, CLOSE = 0.0, 1.0, 2.0  # every order is one row of float64, which holds float32, seeds and indices exactly
NUMBERS = {RESET: 0, STEP: 3}  # that stand before the observations in an answer, for each environment
DONE, FAILED = 0.0, 1.0
GRACE = 5.0  # seconds for workers to close their environments before they are killed
LOOK = 0.5  # seconds between two looks at whether a worker that does not answer is still there
START_TIMEOUT = 120.0  # importing and making an environment may be slow even where steps are not


@dataclass(frozen=True, slots=True)
class Share:
    """The environments of one worker: `first` to `last`, exclusive."""

    recipe: EnvFactory
    spec: EnvSpec
    first: int
    last: int
    flush_denormals: bool  # as the process does that computes with what comes out
    from_main_thread: bool  # whether the thread that begins the worker lasts as long as its process


@dataclass(frozen=True, slots=True)
class Worker:
    """One process, the pipe to it, and its share."""

    process: Any
    pipe: Any
    progress: Any  # shared memory: which environment it is at work on, counted from the share's first
    first: int
    last: int


class AsyncEnvs:
    """Environments spread over worker processes; by default as many as there are processors.

    Each worker runs `SyncEnvs` over its share, so the numbers are the same bits. Workers start clean, and the user's
    script is not run again in them; only a factory that lives in this process alone (a lambda, a notebook cell, the
    script itself) makes them forks of it. `timeout` is for one environment's step or reset, in seconds.
    """

    def __init__(
        self,
        source: EnvSource,
        spec: EnvSpec,
        *,
        num_envs: int,
        timeout: float | None = None,
        num_workers: int | None = None,
        start_method: str | None = None,
    ) -> None:
        recipe = source.recipe()
        self._spec, self._num_envs, self._timeout = spec, num_envs, timeout
        self.masks: np.ndarray | None = None
        self.states = AskedStates(self._ask)
        self._masked = spec.masked  # unless it is known, the first answer says it
        self._workers: list[Worker] = []
        # it runs when this object is forgotten and, unlike atexit, before multiprocessing waits for its children
        self._finalize = util.Finalize(self, _shut_down, args=(self._workers,), exitpriority=10)
        context: Any = multiprocessing.get_context(start_method or processes.start_method(recipe, spec.env_id))
        count = min(num_envs, num_workers or processes.num_processors())
        edges = [num_envs * worker // count for worker in range(count + 1)]
        flush, main = processes.flushes_denormals(), threading.current_thread() is threading.main_thread()
        try:
            for first, last in pairwise(edges):
                self._workers.append(_start(context, Share(recipe, spec, first, last, flush, main)))
            for worker in self._workers:
                self._result(self._receive(worker, timeout and max(timeout, START_TIMEOUT)))
        except OSError as error:
            started = f"{len(self._workers)} of {count} worker processes"
            self.close()
            advice = "fewer num_envs need fewer; ulimit -n and -u say how many files and processes there may be"
            raise EnvError(f"{spec.env_id}: only {started} could be started: {error.strerror}; {advice}") from error
        except BaseException:
            self.close()
            raise

    @property
    def num_envs(self) -> int:
        return self._num_envs

    def reset(self, indices: Indices, seeds: Sequence[int]) -> np.ndarray:
        """Begin a new episode in the environments named; their first observations."""
        return self._exchange(RESET, indices, np.asarray(seeds, dtype=np.float64))[1]

    def step(self, actions: np.ndarray) -> Transitions:
        """One step in every environment."""
        return self.step_some(range(self._num_envs), actions)

    def step_some(self, indices: Indices, actions: np.ndarray) -> Transitions:
        """One step in the environments named, and none in the others."""
        numbers, obs = self._exchange(STEP, indices, np.asarray(actions, dtype=action_dtype(self._spec)).astype(np.float64))
        return Transitions(obs, numbers[:, 0].copy(), numbers[:, 1] != 0, numbers[:, 2] != 0)

    def close(self) -> None:
        """End the workers; one that does not end by itself is killed."""
        self._finalize()

    def _exchange(self, order: float, indices: Indices, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers that come back of each environment, and its observation."""
        index = np.asarray(indices, dtype=np.int64)
        answers = self._ask(order, index, lambda mine: values[mine].tobytes())
        numbers, obs = np.empty((len(index), NUMBERS[order])), layout_of(self._spec).empty(len(index))
        for worker, mine, result in answers:
            end = 8 * NUMBERS[order] * len(mine)
            last = end + obs.strides[0] * len(mine)
            numbers[mine] = np.frombuffer(result[:end]).reshape(len(mine), NUMBERS[order])
            obs[mine] = np.frombuffer(result[end:last], dtype=obs.dtype).reshape(len(mine), -1)
            self._take_masks(worker, index[mine], np.frombuffer(result[last:], dtype=np.bool_))
        return numbers, obs

    def _ask(
        self, order: float, index: np.ndarray, content: Callable[[np.ndarray], bytes]
    ) -> list[tuple[Worker, np.ndarray, memoryview]]:
        """The answers of the workers that have some of the environments, and which of those named they have; `content`, whole
        numbers of eight bytes, goes with the order."""
        if not self._workers:
            raise EnvError(f"the workers of {self._spec.env_id} are closed")
        asked: list[tuple[Worker, np.ndarray]] = []
        for worker in self._workers:
            mine = np.flatnonzero((index >= worker.first) & (index < worker.last))
            if len(mine):
                head = np.concatenate([[order, len(mine)], index[mine] - worker.first])
                worker.progress[0] = index[mine[0]] - worker.first
                # a dead worker is noticed when its answer does not come
                with suppress(OSError):
                    worker.pipe.send_bytes(head.tobytes() + content(mine))
                asked.append((worker, mine))
        # all answers are taken before any is judged, or the next question would get this one's answer
        answers = [self._receive(worker, self._timeout) for worker, _ in asked]
        return [(worker, mine, self._result(answer)) for (worker, mine), answer in zip(asked, answers, strict=True)]

    def _take_masks(self, worker: Worker, index: np.ndarray, told: np.ndarray) -> None:
        if self._masked is None:
            self._masked = bool(told.size)
        if self._masked != bool(told.size):
            what = "either it says what is allowed or the first environment does; all must, or none"
            raise EnvFault(self._spec.env_id, worker.first, what)
        if self._masked:
            if self.masks is None:
                self.masks = np.zeros((self._num_envs, self._spec.action_dim), dtype=np.bool_)
            self.masks[index] = told.reshape(len(index), -1)

    def _receive(self, worker: Worker, timeout: float | None) -> bytes:
        seen, began = worker.progress[0], time.monotonic()
        try:
            while not worker.pipe.poll(LOOK if timeout is None else min(LOOK, timeout)):
                if worker.process.exitcode is not None and not worker.pipe.poll():
                    raise EOFError  # noqa: TRY301 (it does not come by itself while somebody else holds the pipe)
                if worker.progress[0] != seen:  # it moved on to another environment: that one has its time too
                    seen, began = worker.progress[0], time.monotonic()
                elif timeout is not None and time.monotonic() - began >= timeout:
                    raise self._lost(worker, f"gave no answer within {timeout:g} s; its process was ended")
            return worker.pipe.recv_bytes()  # type: ignore[no-any-return]
        except (EOFError, OSError) as error:
            processes.ended_within(worker.process, 1.0)
            raise self._lost(worker, f"its process ended: {processes.exit_text(worker.process.exitcode)}") from error

    def _result(self, answer: bytes) -> memoryview:
        if np.frombuffer(answer, count=1)[0] == DONE:
            return memoryview(answer)[8:]
        report = json.loads(answer[8:])
        # the worker's traceback is shown as the cause
        raise EnvFault(self._spec.env_id, report["index"], report["what"]) from RuntimeError("\n" + report["trace"])

    def _lost(self, worker: Worker, what: str) -> EnvFault:
        fault = EnvFault(self._spec.env_id, worker.first + worker.progress[0], what)
        _shut_down(self._workers, grace=0.0)
        return fault


def _start(context: Any, share: Share) -> Worker:
    ours, theirs = context.Pipe()
    try:
        progress = context.RawArray("q", 1)
        # no daemon: those may have no processes of their own, which is what an environment may want
        process = context.Process(target=_serve, args=(theirs, progress, share), daemon=False)
        processes.start(process, method=context.get_start_method())
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()  # so that the worker's death reads as the end of the file
    return Worker(process, ours, progress, share.first, share.last)


def _shut_down(workers: list[Worker], grace: float = GRACE) -> None:
    ending = list(workers)
    workers.clear()
    deadline = time.monotonic() + grace
    try:
        for worker in ending:
            with suppress(OSError):
                worker.pipe.send_bytes(np.array([CLOSE]).tobytes())
            worker.pipe.close()
        for worker in ending:
            processes.ended_within(worker.process, deadline - time.monotonic())
    finally:  # also when Ctrl-C says that it takes too long
        for worker in ending:
            if worker.process.exitcode != 0:  # else its environments were closed, and what they leave running is their business
                processes.kill(worker.process)
            worker.process.close()


def _serve(pipe: Any, progress: Any, share: Share) -> None:
    """The life of a worker. Signals are the parent's business; a worker ends when told to, or when its parent is gone."""
    processes.leave_signals_to_parent()
    processes.end_with_parent(by_kernel=share.from_main_thread)
    processes.keep_to_itself(pipe)
    if share.flush_denormals:
        processes.flush_denormals()
    made: list[SyncEnvs] = []  # one, if it can be made

    def make() -> bytes:
        made.append(_made(share, progress))
        return b""

    with suppress(EOFError, OSError):
        pipe.send_bytes(_answer(make, share, progress))
        while made and (message := np.frombuffer(pipe.recv_bytes()))[0] != CLOSE:
            pipe.send_bytes(_answer(partial(_obey, made[0], message, share.spec), share, progress))
    for envs in made:
        envs.close()


def _answer(work: Callable[[], bytes], share: Share, progress: Any) -> bytes:
    """What the work gives, or a report of how an environment failed in it."""
    try:
        return np.array([DONE]).tobytes() + work()
    except EnvFault as fault:
        index, what, trace = fault.index, fault.what, traceback.format_exc()
    except BaseException as error:  # noqa: BLE001 (signals are the parent's: this too is an environment's doing)
        index, what, trace = share.first + progress[0], f"raised {words_of(error)}", traceback.format_exc()
    report = {"index": index, "what": what, "trace": trace}
    return np.array([FAILED]).tobytes() + json.dumps(report).encode()


def _made(share: Share, progress: Any) -> SyncEnvs:
    envs = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the parent made one already and has said what there was to say
        for index in range(share.first, share.last):
            progress[0] = index - share.first
            try:
                envs.append(share.recipe())
            except BaseException as error:
                what = f"could not be made in a worker process: {words_of(error)}"
                raise EnvFault(share.spec.env_id, index, what) from error
    return SyncEnvs(envs, share.spec, first_index=share.first, progress=progress)


def _obey(envs: SyncEnvs, message: np.ndarray, spec: EnvSpec) -> bytes:
    count = int(message[1])
    indices, values = message[2 : 2 + count].astype(np.int64).tolist(), message[2 + count :]
    if message[0] == GET_STATES:
        states = envs.states.get(indices)
        return b"" if states is None else packed(states)
    if message[0] == PUT_STATES:
        envs.states.put(indices, unpacked(values[count:].tobytes(), count), values[:count].tolist())
        return b""
    if message[0] == RESET:
        numbers, obs = np.empty(0), envs.reset(indices, values.astype(np.int64).tolist())
    else:
        actions = values.astype(action_dtype(spec)).reshape(count, *spec.action_shape)
        obs, *told = envs.step_some(indices, actions)
        numbers = np.column_stack(told)
    return numbers.tobytes() + obs.tobytes() + (b"" if envs.masks is None else envs.masks[indices].tobytes())
