"""A population spread over Ray workers, from the learner's side: who evaluates what, and what happens when one is lost."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from rl_training.cluster.ray_cluster import RayConnection, connect
from rl_training.envs.processes import num_processors
from rl_training.envs.source import EnvSource
from rl_training.errors import EnvError
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.metadata import environment_differences, numeric_environment
from rl_training.options._evolution import EvolutionOptions
from rl_training.runtime.generation import Fitness, Generation
from rl_training.types import EnvSpec

if TYPE_CHECKING:
    from rl_training.runtime.evolution import EvolutionLoop

log = logging.getLogger(__name__)

START_SECONDS = 60.0  # for the first worker to begin: it imports torch and makes its environments
LATE_SECONDS = 10.0  # that others may begin after the first, before the work does
SAME_HERE = "every machine of the cluster needs this package, its environments and the same versions as here"
MOST_LOSSES = 3  # workers lost with the same share, after which it is the share that is to blame


class Share(NamedTuple):
    """Directions `first` to `last`, exclusive, of a generation."""

    generation: int
    first: int
    last: int


@dataclass(eq=False)
class Worker:
    """A process somewhere, what it was asked last, and where it stands."""

    actor: Any
    answer: Any  # reference to what it will say; None when it has nothing to do
    share: Share | None = None
    ready: bool = False
    at: int | None = None  # the generation it stands at; None where it must be given the learner's state
    had_state: int | None = None  # the generation whose state it was given last


class Traffic(NamedTuple):
    """Bytes of what was sent and received, as plain numbers; the envelopes of Ray come on top."""

    sent: int = 0
    received: int = 0
    states: int = 0  # bytes of whole states among those sent


class RayPopulation:
    """Evaluates generations on a cluster. Whoever evaluates a direction, and however often, the numbers are the same.

    Workers hear the scores of a generation and make the learner's step themselves; one that finds itself elsewhere than
    the learner is given the learner's state. A worker that is lost is replaced, and whoever is free takes its share.
    """

    def __init__(self, config: TrainConfig, source: EnvSource, spec: EnvSpec) -> None:
        options = config.options
        assert isinstance(options, EvolutionOptions)
        self.config, self.traffic = config, Traffic()
        self._loop: EvolutionLoop | None = None
        self._workers: list[Worker] = []
        self._said: set[str] = set()
        self._state_there: tuple[int, Any, int] | None = None  # generation, reference and bytes of the state last put there
        env = _recipe(source)
        most = options.num_directions
        wanted = min(most, config.ray_workers or max(1, num_processors() // config.threads))
        self._connection: RayConnection = connect(config.ray_address, num_cpus=max(num_processors(), wanted * config.threads))
        try:
            ray = self._ray = self._connection.ray
            cores = ray.cluster_resources().get("CPU", 0)
            self.num_workers = min(most, config.ray_workers or max(1, int(cores // config.threads)))
            from rl_training.cluster.ray_worker import PopulationWorker

            share = -(-most // self.num_workers)
            episodes = 2 * share * options.episodes_per_direction
            self._class = ray.remote(PopulationWorker).options(
                num_cpus=config.threads, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
            )
            self._arguments = ray.put(config.to_dict() | {"output_dir": "."}), env, episodes
            for _ in range(self.num_workers):
                self._begin_worker()
            self._gather()
        except BaseException:
            self.close()
            raise
        self._env_id = spec.env_id

    def lead(self, loop: EvolutionLoop) -> None:
        """From now on the workers follow this loop."""
        self._loop = loop

    def evaluate(self, generation: Generation, directions: Sequence[int]) -> Fitness:
        """The fitness of a whole generation, from all workers."""
        count, total = self.num_workers, len(directions)
        edges = [directions[0] + total * i // count for i in range(count + 1)]
        waiting = deque(Share(generation.number, first, last) for first, last in pairwise(edges) if last > first)
        found: dict[Share, Fitness] = {}
        losses: Counter[Share] = Counter()
        wanted = len(waiting)
        digest = generation.digest()
        while len(found) < wanted:
            for worker in self._workers:
                if waiting and worker.ready and worker.answer is None:
                    self._ask(worker, waiting.popleft(), digest)
            for worker, answer in self._answers():
                share, worker.share = worker.share, None
                if share is None or share.generation != generation.number:
                    continue  # of a generation that was given up
                if isinstance(answer, BaseException):
                    losses[share] += 1
                    if losses[share] >= MOST_LOSSES:
                        raise _deadly(share, losses[share], answer)
                    waiting.appendleft(share)
                elif answer is None:
                    self._send_state(worker, share, digest)
                elif isinstance(answer, str):
                    raise EnvError(answer)
                else:
                    self.traffic = self.traffic._replace(received=self.traffic.received + answer.nbytes)
                    found[share] = Fitness.from_rows(answer, range(share.first, share.last), episodes=generation.episodes)
        return Fitness.join(list(found.values()))

    def close(self) -> None:
        """End the workers, and the cluster if it was started for this run."""
        for worker in self._workers:
            self._kill(worker)
        self._workers.clear()
        self._connection.close()

    def _send_state(self, worker: Worker, share: Share, digest: int) -> None:
        """To one that does not stand where the learner stands; where that has not helped, nothing will."""
        if worker.had_state == share.generation:
            raise EnvError(f"a Ray worker given the parameters of generation {share.generation} comes to others ({SAME_HERE})")
        self._say_once("a worker does not come to the learner's parameters by itself: they are sent to it")
        worker.at = None
        self._ask(worker, share, digest)

    def _ask(self, worker: Worker, share: Share, digest: int) -> None:
        assert self._loop is not None
        outcome = state = None
        if worker.at == share.generation - 1 and self._loop.outcome is not None:
            outcome = self._loop.outcome.pack()
        elif worker.at != share.generation:
            state, worker.had_state = self._state(share.generation), share.generation
        size = 4 * 8 + (len(outcome) if outcome is not None else 0)
        self.traffic = self.traffic._replace(sent=self.traffic.sent + size)
        worker.share, worker.at = share, share.generation
        worker.answer = worker.actor.evaluate.remote(share.first, share.last, digest, outcome, state)

    def _state(self, number: int) -> Any:
        """The learner's state as an object that is sent to each machine once, however many workers there ask for it."""
        from rl_training.cluster.ray_worker import state_of

        assert self._loop is not None
        assert self._loop.number == number
        if self._state_there is None or self._state_there[0] != number:
            state = state_of(self._loop.algorithm, self._loop)
            self._state_there = number, self._ray.put(state), _nbytes(state)
        _, reference, size = self._state_there
        self.traffic = self.traffic._replace(sent=self.traffic.sent + size, states=self.traffic.states + size)
        return reference

    def _answers(self, timeout: float = START_SECONDS) -> list[tuple[Worker, Any]]:
        """What workers have said, at least one unless the time is over; for one that was lost, the reason."""
        by_reference = {worker.answer: worker for worker in self._workers if worker.answer is not None}
        done, _ = self._ray.wait(list(by_reference), num_returns=1, timeout=timeout)
        if not done and not any(worker.ready for worker in self._workers):
            raise EnvError(self._nobody(timeout))
        answers = []
        for reference in done:
            worker = by_reference[reference]
            worker.answer = None
            try:
                answer = self._ray.get(reference)
            except (self._ray.exceptions.RayActorError, self._ray.exceptions.WorkerCrashedError) as error:
                self._replace(worker, error)
                answers.append((worker, error))
                continue
            except self._ray.exceptions.RayTaskError as error:
                raise EnvError(_cannot_work(error)) from error
            if worker.ready:
                answers.append((worker, answer))
            else:
                worker.ready = True
                self._compare(answer)
        return answers

    def _replace(self, worker: Worker, error: Exception) -> None:
        if getattr(error, "actor_init_failed", False):
            raise EnvError(_cannot_work(error)) from error
        log.warning("a Ray worker was lost and is replaced: %s", _last_words(error))
        self._workers.remove(worker)
        self._kill(worker)
        self._begin_worker()

    def _begin_worker(self) -> None:
        config, env, episodes = self._arguments
        actor = self._class.remote(config, env, num_episodes=episodes)
        self._workers.append(Worker(actor, actor.hello.remote()))

    def _gather(self) -> None:
        """Wait for the workers, but not for those that the cluster has no free cores for: they come when they can."""
        self._answers()
        deadline = time.monotonic() + LATE_SECONDS
        while not all(worker.ready for worker in self._workers) and (left := deadline - time.monotonic()) > 0:
            self._answers(timeout=left)
        ready = sum(worker.ready for worker in self._workers)
        if ready < self.num_workers:
            log.warning("%d of %d Ray workers have begun; the others wait for free cores", ready, self.num_workers)

    def _compare(self, there: dict[str, Any]) -> None:
        for difference in environment_differences(numeric_environment(), there):
            self._say_once(f"results may not be those of local_sync to the last bit: {difference} in a Ray worker")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            log.warning("%s", text)

    def _kill(self, worker: Worker) -> None:
        with suppress(Exception):  # it may be gone, or the cluster
            self._ray.kill(worker.actor, no_restart=True)

    def _nobody(self, seconds: float) -> str:
        cores, free = (int(found.get("CPU", 0)) for found in (self._ray.cluster_resources(), self._ray.available_resources()))
        needs = f"each needs {self.config.threads} core{'s' if self.config.threads > 1 else ''}"
        return f"no Ray worker began within {seconds:g} s: {needs}; the cluster has {cores}, of which {free} are free"


def _recipe(source: EnvSource) -> Any:
    """None where an id of Gymnasium's own says all; else what makes one environment elsewhere."""
    recipe: Any = source.recipe()
    if not source.named:
        return recipe
    entry_point = getattr(recipe.args[0], "entry_point", None)
    return None if isinstance(entry_point, str) and entry_point.startswith("gymnasium.") else recipe


def _deadly(share: Share, count: int, error: BaseException) -> EnvError:
    what = f"directions {share.first} to {share.last - 1} of generation {share.generation}"
    return EnvError(f"{what} were lost with {count} workers one after another; the last: {_last_words(error)}")


def _cannot_work(error: BaseException) -> str:
    return f"a Ray worker cannot work: {_last_words(error)}\n({SAME_HERE})"


def _last_words(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _nbytes(tree: Any) -> int:
    if isinstance(tree, dict):
        return sum(map(_nbytes, tree.values()))
    if isinstance(tree, list):
        return sum(map(_nbytes, tree))
    return int(getattr(tree, "nbytes", 8))
