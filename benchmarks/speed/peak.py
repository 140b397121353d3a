"""What the processor can do at most: `python benchmarks/speed/peak.py`.

A loop of nothing but fused multiply-adds on registers, on one core and on two at once, and how many of them the matrix
products of a row's work are made of. No program can do that work in less time, whatever it multiplies with.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from plain_torch import gflop
from run import HERE, avx512, machine

REPEATS = 9
ROWS = ("sac", "sac_halfcheetah", "td3", "ddpg", "rlpd", "cql", "mopo_model", "mopo_rollouts", "pets_plan")

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


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "loop.c", str(Path(folder) / "loop")
        source.write_text(LOOP)
        flags = ["-O2", "-march=native", "-ffp-contract=fast", f"-DBYTES={64 if avx512() else 32}"]
        subprocess.run(["cc", *flags, str(source), "-o", program], check=True)
        gflops = {str(cores): rates(program, cores) for cores in (1, 2)}
    record = {
        "gflops": gflops,
        "typical": {cores: statistics.median(values) for cores, values in gflops.items()},
        "gflop_of_a_unit": {name: float(f"{gflop(name):.4g}") for name in ROWS},
        "machine": machine(),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "command": "python benchmarks/speed/peak.py",
    }
    (HERE / "results" / "peak.json").write_text(json.dumps(record, indent=1) + "\n")
    print(record["typical"])


if __name__ == "__main__":
    main()
