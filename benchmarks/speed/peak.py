"""What the processor can do at most: `python benchmarks/speed/peak.py`.

A loop of nothing but fused multiply-adds on registers, on one core and on two at once, and how many of them the matrix
products of a row's work are made of. No program can do that work in less time, whatever it multiplies with.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from about import HERE, avx512, circumstances
from plain_torch import gflop

REPEATS = 9
ROWS = (
    *(name + suffix for name in ("sac", "td3", "ddpg") for suffix in ("", "_halfcheetah")),
    *("rlpd", "cql", "mopo_model", "mopo_rollouts", "mopo_rollouts_preset", "pets_plan"),
)

LOOP = """
#include <stdio.h>
#include <time.h>
typedef float vec __attribute__((vector_size(BYTES)));
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
int main(void) {
    vec sums[12] = {{0}}, half = {0}, quarter = {0};
    half += 0.5f, quarter += 0.25f;
    for (int i = 0; i < 12; i++) sums[i] += (float)i; /* alike, they would be worked out once */
    const long rounds = 30000000;
    double began = now();
    for (long k = 0; k < rounds; k++) {
        _Pragma("GCC unroll 12") for (int i = 0; i < 12; i++) sums[i] = sums[i] * half + quarter;
    }
    double seconds = now() - began;
    for (int i = 1; i < 12; i++) sums[0] += sums[i];
    printf("%.2f %f\\n", rounds * 12.0 * 2 * (BYTES / 4) / seconds / 1e9, sums[0][0]);
    return 0;
}
"""


def rates(program: str, cores: int) -> list[float]:
    """Billions of operations a second, summed over so many copies at once."""
    found = []
    for _ in range(REPEATS):
        copies = [subprocess.Popen([program], stdout=subprocess.PIPE, text=True) for _ in range(cores)]
        found.append(round(sum(float(copy.communicate()[0].split()[0]) for copy in copies), 1))
    return found


def of_width(size: int) -> dict[str, list[float]]:
    """With so many bytes to a vector, on one core and on two."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "loop.c", str(Path(folder) / "loop")
        source.write_text(LOOP)
        flags = ["-O2", "-march=native", "-ffp-contract=fast", f"-DBYTES={size}"]
        subprocess.run(["cc", *flags, str(source), "-o", program], check=True)
        return {str(cores): rates(program, cores) for cores in (1, 2)}


def main() -> None:
    about = circumstances("python benchmarks/speed/peak.py")
    gflops = {size: of_width(size) for size in ((64, 32) if avx512() else (32,))}
    typical = {size: {cores: statistics.median(found) for cores, found in each.items()} for size, each in gflops.items()}
    record = {
        "gflops": gflops,  # by the bytes of a vector and the number of cores
        "typical": next(iter(typical.values())),  # of the widest
        "typical_of_width": typical,
        "gflop_of_a_unit": {name: float(f"{gflop(name):.4g}") for name in ROWS},
        **about,
    }
    (HERE / "results" / "peak.json").write_text(json.dumps(record, indent=1) + "\n")
    print(record["typical_of_width"])


if __name__ == "__main__":
    main()
