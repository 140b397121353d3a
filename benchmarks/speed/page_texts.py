"""What docs/speed.md says around its tables; numbers stand in braces and come from the results."""

# ruff: noqa: E501 (its lines are the page's)

from __future__ import annotations

NAMES = {
    "ours": "ours",
    "ours_batched": "ours, batched env",
    "ours_ppo": "our PPO",
    "sb3": "SB3",
    "sbx": "SBX",
    "d3rlpy": "d3rlpy",
    "evotorch": "EvoTorch",
    "evotorch_vec": "EvoTorch, vectorised",
    "mbrl": "mbrl-lib",
    "separate": "separate nets",
    "modules": "modules in turn",
    "sgemm": "BLAS alone",
}
VARIANTS = {"avx2": "AVX2 only", "no_compiler": "without a compiler", "earlier": "an earlier machine"}

HEAD = """# Speed

This library beside others on the same work: same task, networks, batch sizes, number of updates and torch threads.
{machine}

{summary}

*Ratio* says how many times better ours is than the best of the others on that work with one thread: more steps, or less time.
*Reached* counts what the project asked of all rows of that algorithm, below.

## Every row

Ours is measured through the public API, or the command line. Where it trains, metrics are logged (to `metrics.jsonl` and TensorBoard) and
checkpoints written as by default, every 1,000 and every 10,000 steps; where less than that is timed, so often that at least one of each
falls into it. The others run by `model.learn` and its like with nothing logged or saved; nobody evaluates meanwhile. Environments are
Gymnasium's stock ones unless a row says otherwise, and nobody's are checked at every step. Ours flushes denormal numbers to zero, as all its
runs do, which is one of the things that make it faster; the others are left as they come. With one thread every program has one core to
itself and its helpers, but for start-up and checkpoints. Each repeat runs all programs one after the other, and a ratio is taken within the
repeat, as the machine is shared: rates wander, ratios less. ✓ and ✗ say whether what was asked was reached.{clocks}

| work | threads | measured | ours | others | ratio: median (range) | asked | |
|---|---|---|---|---|---|---|---|
"""

CLOCKS = """ Rows marked *cpu* are timed by the processor time of each program, as other
work ran beside them; the others by the clock on the wall."""

BOUNDS = """
## How near the limit

Two yardsticks. *BLAS alone*, in the table above, is the row's matrix products and nothing else, in the same run, by MKL or OpenBLAS, whichever is
faster there. It is no bound: ours can be faster, as [its products are its own](decisions/0011-one-text.md). What no program can pass is
the peak: a loop of nothing but fused multiply-adds on registers (`peak.py`) makes {one} GFLOP/s on one core of this processor and
{two} on both at once{half}. Below is what share of that the products of a row's work take up, at the speed that was asked for and at ours.
Environment, acting, batches, activations, losses, Adam and Python have to fit into the rest. (Of a plan's first step PETS makes a quarter of
the products counted, 4 % of a plan fewer: a member's particles are still in one place then, and it is asked once.)

{table}

{missed}
"""

HALF = ", and with vectors of half the width {one} and {two}"

ELSEWHERE = """
## On other processors, and without a compiler

How far ahead a program is depends on the processor: our passes use all of its vector units, MKL and OpenBLAS less of those of a wide one. So
some rows were measured in other ways as well: with AVX-512 hidden from every program (`run.py --variant avx2`); with ours as it is where
nothing could be compiled (`--variant no_compiler`), so that networks go through torch; and on an earlier machine of the same name whose
units made {narrow} GFLOP/s on one core, with the code of commit eaa74a6 (and its rows, which were shorter and whose peers had settings of their
own). Ratios to the peers, median of the repeats.

{table}
"""

PARTS = """
### Parts of a step

Rows of the table above, trained on one thread for longer, with timers around our own functions in every second stretch of some turns; by
processor time, each moment counted for the innermost timed call. *Passes in C* are all that networks do in an update, products, biases,
activations and norms; acting's own, over one row, count as acting. What a timer takes around an empty function is taken off; between passes
it takes more, so the parts come to {least} to {most} % of what the same work took without timers, in the stretches between. The load average
was {load} when it began, {date}.

{tables}
"""

PROFILE = """
## Where the time goes

The first preset of each algorithm is run twice and interrupted at every tick of its processor time. Ticks come every 4 ms or so, whatever is
asked for: the kernel counts no finer. In the first run the question is what the innermost of our functions was at:

![Shares of one training run by what is done](images/speed_profile.svg)

{table}

In the second it is whose machine code the processor was in. *Mathematics* adds up our own C, torch (with the MKL and oneDNN in it), the BLAS
under numpy, the rest of numpy, and the C library's functions. It is an upper bound: what torch and numpy do to find out what to compute is
in it. The rest is the simulator, Python, and the system's libraries, which copy memory and write files.

{code}
"""

SCALING = """
## How cost grows

![Microseconds per step against size, both logarithmic](images/speed_scaling.svg)

The cost of a step grows as its size to some power between two neighbouring sizes: here the last two, and where that power is largest.

{table}

{said}
"""

MEMORY = """
## Memory

Peak resident memory of a short run of each preset, with the replay buffer filled to its capacity at the start and a checkpoint written at the
end. A buffer takes its columns and nothing beside (a test holds it to 1.05 times that), and it is saved from where it lies (another test).
{said}

{table}
"""

TAIL = """
Made by `make bench`, this page by `python benchmarks/speed/page.py` from `benchmarks/speed/results`. {code}. {versions}.

What makes the difference: networks that go all the way forwards or backwards in [one call](decisions/0011-one-text.md), parameters as one
flat vector, all critics in that vector, gradients of the losses written down instead of an autograd graph, denormal numbers flushed to zero,
memory kept from one update to the next, and an environment loop without copies.
[Why it is built so](decisions/0011-one-text.md).
"""
