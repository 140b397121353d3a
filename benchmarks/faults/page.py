"""Make docs/promises.md from the committed results: `python benchmarks/faults/page.py [--check]`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "promises.md"

TEXT = """# What we promise

Each promise with the test that holds us to it, and the figures of the long version (`make faults`), from committed results. Tests in
`tests/faults/` and `tests/contracts/` run with every change and take in a new algorithm by themselves.

## A killed run loses nothing
**Kill it at any moment, resume it, and it ends with the same bytes as a run that nobody disturbed**: the last checkpoint (weights, optimisers,
buffers, generators, counters) as one file, the best policy, and the metrics history but for its clock.

`tests/faults/test_kill.py` does it to every algorithm and to a MuJoCo task: real processes, SIGKILL at random moments and inside of the writing
of a checkpoint, resumed until they end. The long version:

| family | small configurations | kills | before the first checkpoint | runs that came to their end | runs that differ |
|---|---|---|---|---|---|
{families}

**A kill during the writing of a checkpoint takes no checkpoint away.** {writes[kills]} kills were aimed into the write: {writes[point: byte]} after a random byte
of the file, {writes[point: written]} before its sync, {writes[point: synced]} after it, {writes[point: renamed]} after the renaming. What they leave of a
file has another name, which nobody reads. Checkpoints lost or runs that differ: {writes[differences]}. All {writes[runs]} runs came to the same end.

**SIGTERM and SIGINT lose not one step.** The turn is finished and saved. `tests/test_checkpoint_workflows.py` sends both to every algorithm within a turn,
`tests/faults/test_kill.py` at random moments to a run that makes no other checkpoint.
{signals}

## The same settings give the same bytes
Whatever the process, its hash seed and folder, the backend (`local_sync` or `local_async`), the progress bar, and how often one
evaluates, logs and saves: `tests/contracts/test_exact_resume.py`, `tests/faults/test_determinism.py`. It cannot hold across another number of
torch threads, another processor, compiled passes or none, or another version of torch, numpy, gymnasium or MuJoCo. Metadata record them, and a resume says which
differ ([exact resume](explanation/exact-resume.md)).

## Storage faults are told, and the last good checkpoint stays
`tests/faults/test_storage.py`, `tests/experiment/test_checkpoint_damage.py`: an error with the file and the reason, exit code 2.

| fault | what happens |
|---|---|
| disk full (a real one, of 128 kB), quota on file sizes | the run ends with the system's words; with room again it goes on, to the same end |
| read-only file system | `resume` is refused, `eval` works, nothing changes |
| run directory removed while it is worked in | the run ends at its next write and does not make the directory anew |
| two processes in one run | the second is refused by name of the first (exit code 3), the first is not disturbed |
| checkpoint cut at any 1/16, or with any byte changed | refused; the newest good checkpoint beside it is named, and taken when the run directory is given |
| other algorithm, environment, networks, missing or senseless parts | refused before a step is made |

## Nothing in a file is executed
There is no `pickle`, `torch.load`, `eval` or `exec` in the sources (`tests/contracts/test_structure.py`). Pickles in disguise, YAML tags and
npz arrays of objects are given to the command line and do nothing (`tests/faults/test_foreign_files.py`); a header that claims 10 GB
allocates nothing, and names that point out of the file are refused (`tests/experiment/test_checkpoint_hostile.py`).

Nor is anything that a stranger's file names imported unasked (`tests/faults/test_strangers_names.py`, over every algorithm), looking at a dataset included
(`test_strangers_data.py`), and nothing is followed out of a run directory (`test_strangers_folders.py`). The rule, and what is trusted: [Security](../SECURITY.md).
{mutations}
## A released checkpoint can be read for ever
`tests/kept/` keeps one of every format for every algorithm. It predicts its old numbers and can be trained on (`tests/faults/test_kept_formats.py`).

## Numbers and environments that break are named
A NaN or an infinite number stops the run at that turn, with a checkpoint from before it (`tests/faults/test_numbers.py`); an environment
that raises, hangs or returns nonsense is named and leaves no process behind (`tests/faults/test_environments.py`).

## Rubbish gets an answer
Generated configurations, command lines, npz files and checkpoint headers are taken, or refused by name; there is never a traceback (`tests/faults/test_fuzz_*.py`).
Some of them in every test run, 10,000 configurations in `make fuzz`. What they found is kept in `tests/faults/corpus` and tried every time.

## Long runs do not grow
`make soak` trains for {soak_minutes:.0f} minutes and watches the processes from outside. Memory and files: after a quarter of the time as warm-up, the first third of the rest
against the last third. Throughput: this machine's own speed moves by 12 to 20 % within minutes, so the old process is held against a young one. When the time is over the same training begins
anew in a second process, and after its warm-up the two take turns of {turn:.0f} seconds, {turns} each, while the other one is stopped; steps are counted per second of a process's own processor time.
Other work shared the cores during the hour, not during the turns.

| algorithm | steps | processor minutes | memory, MiB | open files | old: steps per processor second | young | old / young: median of turns [95 % interval] |
|---|---|---|---|---|---|---|---|
{soak_rows}

{soak_verdict} The limits are {soak[limits][memory_growth_percent]:.0f} % of memory, no further file and a slow-down of {soak[limits][slowdown_percent]:.0f} %.

Three earlier soaks compared the beginning of the time with its end. Memory and files were flat in all of them; their throughput moved with the machine's, by more than the limit in two, which is why the turns came in. By the same measure as theirs this one is the last line:

| soak | judged by | throughput of SAC | of OpenAI ES |
|---|---|---|---|
{soaks}

## The same faults, put to Stable-Baselines3
Version {peers[versions][stable-baselines3]}, by its documented calls. Each fault is written once (`benchmarks/faults/trials.py`); only how a program saves and loads differs.

| fault | rl_training | Stable-Baselines3 |
|---|---|---|
{peer_rows}

The kills here fall into a loop that saves the same small model under the same name. A full disk is a tmpfs of 1 MB that holds the first
model and not the second. In the hostile file of Stable-Baselines3 one entry was added to a model it had saved; ours has no place for one, so
it was given a pickle and a zip of one under a checkpoint's name.

Made by `{kills[command]}`, `{writes[command]}` and `{peers[command]}`; this page by
`python benchmarks/faults/page.py`. {machine}
"""

SIGNAL_HEAD = """
| signal | sent | during training | before or after training | runs that came to their end | runs that lost a step or differ |
|---|---|---|---|---|---|
"""


MUTATION_HEAD = """
**Sealed nonsense is refused before anything is restored**, by file and place, or does no harm. One leaf of a real checkpoint, anywhere in it
(networks, optimisers, buffers, generators, counters, metadata), is left out or gives way to something else, with right checksums; `predict` and `resume` try it.

| algorithm | leaves spoilt | refused, with the file's name | ended by name later | taken to the end | anything else |
|---|---|---|---|---|---|
"""


def page() -> str:
    kills, writes, peers, soak = (read(name) for name in ("kills", "writes", "peers", "soak"))
    faults = peers["faults"]
    rows = [(title, *(words(faults[name][who]) for who in ("ours", "sb3"))) for name, (title, words) in PEER_ROWS.items()]
    versions = ", ".join(f"{name} {version}" for name, version in peers["versions"].items() if name != "rl_training")
    machine = f"{kills['date']}, {kills['machine']['cpu']}, {kills['machine']['cores']} cores; {versions}."
    return TEXT.format(
        families="\n".join(family_row(name, family, kills["differences"]) for name, family in kills["families"].items()),
        writes=writes,
        kills=kills,
        signals=signal_table(),
        mutations=mutation_table(),
        soak=soak,
        soak_minutes=min(found["minutes"] for found in soak["results"].values()),
        soaks="\n".join(soak_line(*words) for words in SOAKS),
        soak_rows="\n".join(soak_row(name, found) for name, found in soak["results"].items()),
        soak_verdict=verdict(soak),
        turn=soak["limits"]["turn_seconds"],
        turns=min(len(found["turns_of_old_and_young"]) for found in soak["results"].values()),
        peers=peers,
        peer_rows="\n".join(f"| {' | '.join(row)} |" for row in rows),
        machine=machine,
    )


def read(name: str) -> dict[str, Any]:
    return dict(json.loads((HERE / "results" / f"{name}.json").read_text()))


def family_row(name: str, family: dict[str, Any], differences: int) -> str:
    names = ", ".join(family["configurations"])
    early = family.get("before the first checkpoint", 0)
    return f"| {name} | {names} | {family['kills']} | {early} | {family['runs']} | {differences} |"


SOAKS = (
    ("soak_first", "first, an hour", "processor time"),
    ("soak_second", "second, an hour", "processor time beside fixed work"),
    ("soak_short", "third, 7.5 minutes, nothing of ours beside it", "processor time beside fixed work"),
    ("soak", "this one", "processor time beside fixed work"),
)


def soak_line(file: str, title: str, judged: str) -> str:
    changes = [found["throughput_change_percent"] for found in read(file)["results"].values()]
    return f"| {title} | {judged} | {' | '.join(f'{change:+.1f} %' for change in changes)} |"


def soak_row(name: str, found: dict[str, Any]) -> str:
    memory, files = found["memory_mib"], found["open_files"]
    old, young = found["steps_per_cpu_second_old_and_young"]
    low, high = found["old_over_young_interval"]
    cells = (
        f"{memory[0]:.1f} → {memory[1]:.1f} ({found['memory_growth_percent']:+.2f} %)",
        f"{files[0]:.0f} → {files[1]:.0f}",
        f"{old:,.0f}",
        f"{young:,.0f}",
        f"{found['old_over_young']:.3f} [{low:.3f}, {high:.3f}]",
    )
    return f"| {name} | {found['steps']:,} | {found['cpu_minutes']:.0f} | {' | '.join(cells)} |"


def verdict(soak: dict[str, Any]) -> str:
    if all(found["flat"] for found in soak["results"].values()):
        return "**Memory, open files and throughput are flat.**"
    names = " and ".join(name for name, found in soak["results"].items() if not found["flat"])
    return f"**Not flat: {names}.**"


def signal_table() -> str:
    """Nothing until the long version has been run."""
    if not (HERE / "results" / "signals.json").exists():
        return ""
    record = read("signals")
    rows = [signal_row(name, counts, record["differences"]) for name, counts in record["signals"].items()]
    return SIGNAL_HEAD + "\n".join(rows) + f"\n\nMade by `{record['command']}`.\n"


def mutation_table() -> str:
    """Nothing until the long version has been run."""
    if not (HERE / "results" / "mutations.json").exists():
        return ""
    record = read("mutations")
    rows = [mutation_row(name, found) for name, found in [*record["algorithms"].items(), ("all", record["outcomes"])]]
    return MUTATION_HEAD + "\n".join(rows) + f"\n\nMade by `{record['command']}`, {record['date']}.\n"


def mutation_row(name: str, found: dict[str, int]) -> str:
    counts = [found.get(outcome, 0) for outcome in ("refused", "ended by name", "taken", "unexpected", "endless")]
    return f"| {name} | {sum(counts):,} | {' | '.join(f'{count:,}' for count in counts[:3])} | {sum(counts[3:])} |"


def signal_row(name: str, counts: dict[str, int], differences: int) -> str:
    during, outside = (counts.get(when, 0) for when in ("during training", "before or after training"))
    return f"| {name} | {counts['signals']} | {during} | {outside} | {counts['runs']} | {differences} |"


def continued(result: dict[str, Any]) -> str:
    cases = [f"{name.upper()}: {case['different']:,} of {case['parameters']:,} numbers differ" for name, case in result.items()]
    return "; ".join(cases)


def full(result: dict[str, Any]) -> str:
    kept = result["previous checkpoint"] == "kept"
    told = f"told: `{result['told'].partition(':')[0]}`" if result["told"] else "nothing told"
    return f"previous checkpoint {'kept' if kept else '**lost**'}; {told}"


def killed(result: dict[str, Any]) -> str:
    return f"{result['files lost']} of {result['kills']} kills lost the file"


def nan(result: dict[str, Any]) -> str:
    told = f"stops: `{result['told'].partition(':')[0]}`" if result["told"] else "ends as if nothing had happened"
    return f"{told}; {result['of them not finite']} of {result['tensors left']} tensors left are not finite"


def hostile(result: dict[str, Any]) -> str:
    if result["payload ran"]:
        return "**the payload ran**"
    return f"refused: `{result['told'].partition(':')[0]}`; the payload did not run"


PEER_ROWS = {
    "save_load_continue": ("train N, save, load, train N, against 2 N in one go", continued),
    "full_disk": ("disk full while a model is saved over the last one", full),
    "kill_during_save": ("SIGKILL while a model is saved over the last one", killed),
    "nan_reward": ("one reward is NaN (TD3)", nan),
    "hostile_file": ("a model file with a pickle in it is loaded", hostile),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 when the page is not what the results give")
    if parser.parse_args().check:
        sys.exit(0 if PAGE.read_text() == page() else f"{PAGE.name} is out of date: run python benchmarks/faults/page.py")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
