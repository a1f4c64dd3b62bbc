"""The hostile-input campaign: every file of every table's log, and every deletion vector, broken in many ways.

``./dev campaign hostile [--seed N] [--flips N] [--values N] [--table NAME]`` breaks one file at a time (cut at some
places, emptied, bits flipped, replaced by noise, one value of its JSON replaced by an absurd one) and looks at what opening
and reading the table comes to; where a value was replaced, also at what every command does:

* ``right``: the same rows and state as before; the file was not needed, or its damage did not matter;
* ``refused``: a ``DeltaLogError`` that names the file (or, for a damage that another file shows, the one that does);
* ``plausible``: another answer from a file that is still well formed: a flipped bit turned one legal value into
  another, a value was replaced, or a cut fell between two lines, and neither the format nor a checksum of the table could
  tell;
* forbidden: ``wrong`` (any other damage that changed the answer), ``crash`` (an exception that is not ours, or a
  dead process), ``hang`` and ``memory`` (more than 2 GiB).

Each worker is a process with a memory limit; one that dies is replaced, and its mutation counts as a crash.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from tests.campaigns.hostile_values import foreign_exception, value_mutations

from delta_log import DeltaLogError, Table

FORBIDDEN = ("wrong", "crash", "hang", "memory")
_MEMORY_BYTES = 2 << 30
_SECONDS = 60


def targets(table: Path) -> list[str]:
    """The files of a table whose damage is tried, relative to it: the log's own, and deletion vectors."""
    log = [
        path for path in (table / "_delta_log").rglob("*") if path.is_file() and not path.name.startswith(".")
    ]
    vectors = [path for path in table.rglob("deletion_vector_*.bin") if path.is_file()]
    return sorted(str(path.relative_to(table)) for path in {*log, *vectors})


def mutations(data: bytes, rng: random.Random, flips: int) -> Iterator[tuple[str, bytes]]:
    """Ways to break some content: a name, and the broken content."""
    yield "empty", b""
    for cut in sorted({1, len(data) // 2, max(len(data) - 1, 0), max(len(data) - 9, 0)}):
        if cut < len(data):
            yield f"cut {cut}", data[:cut]
    yield "noise", rng.randbytes(len(data))
    yield "noise behind", data + rng.randbytes(16)
    yield "zeros", bytes(len(data))
    for _ in range(flips if data else 0):
        at, bit = rng.randrange(len(data)), rng.randrange(8)
        yield f"flip {at}.{bit}", data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
    if len(data) >= 8:
        at = rng.randrange(len(data) - 4)
        yield f"huge {at}", data[:at] + b"\xff\xff\xff\x7f" + data[at + 4 :]


def observe(table: Path, rows: bool) -> Any:
    """All that a reader says of a table, as one value."""
    snapshot = Table(str(table)).snapshot()
    state = [
        snapshot.version,
        snapshot.num_files,
        snapshot.size_bytes,
        snapshot.num_deletion_vectors,
        snapshot.num_deleted_rows,
        snapshot.transactions,
        snapshot.domain_metadata,
        snapshot.metadata.schemaString,
        sorted(snapshot.files(["key"]).column(0).to_pylist()),
        sorted(snapshot.tombstones(["key"]).column(0).to_pylist()),
    ]
    if rows:
        table_rows = snapshot.to_arrow()
        state.append(sorted(map(repr, table_rows.to_pylist())))
    return json.loads(json.dumps(state))


def right_answers(table: Path, rows: bool) -> list[Any]:
    """What a correct reader may find: without checkpoints there may be tombstones that those had left out."""
    answers = [observe(table, rows)]
    hidden = {path: path.read_bytes() for path in (table / "_delta_log").glob("*.checkpoint.*")}
    for path in hidden:
        path.unlink()
    try:
        answers.append(observe(table, rows))
    except DeltaLogError:
        pass  # the commits do not reach back
    finally:
        for path, data in hidden.items():
            path.write_bytes(data)
    return answers


def judge(table: Path, target: str, name: str, expected: list[Any], rows: bool) -> tuple[str, str]:
    """The class of one mutation's outcome, and a word on it; the mutation is in place."""
    try:
        found = observe(table, rows)
    except DeltaLogError as error:
        foreign = foreign_exception(table) if name.startswith("value") else None
        if foreign is not None:
            return "crash", foreign
        named = os.path.basename(target).split(".")[0] in str(error)
        return ("refused" if named else "refused elsewhere"), str(error)[:160]
    except MemoryError as error:
        return "memory", repr(error)
    except Exception as error:
        return "crash", f"{type(error).__name__}: {error}"[:300]
    foreign = foreign_exception(table) if name.startswith("value") else None
    if foreign is not None:
        return "crash", foreign
    if found in expected:
        return "right", ""
    # A flipped bit can make another well-formed file, and so can a cut at the end of a line; nothing else can.
    whole_lines = name.startswith("cut") and (table / target).read_bytes().endswith((b"\n", b"}"))
    # Spark and delta-rs read a newest commit of no bytes as a version without changes.
    commits = [path.name for path in (table / "_delta_log").glob("*.json") if path.stem.isdecimal()]
    is_empty_version = name == "empty" and target == f"_delta_log/{max(commits, default='')}"
    is_plausible = whole_lines or is_empty_version or name.startswith(("flip", "huge", "value"))
    return ("plausible" if is_plausible else "wrong"), ""


def work(table: Path, rows: bool, seed: int, flips: int, values: int, start: int) -> None:
    """A worker: prints one JSON line before and one after each mutation of one table."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES * 3, _MEMORY_BYTES * 3))
    signal.alarm(0)
    try:
        expected = right_answers(table, rows)
    except DeltaLogError:
        rows = False  # its rows are refused by name, its state is not
        expected = right_answers(table, rows)
    number = 0
    for target in targets(table):
        path = table / target
        original = path.read_bytes()
        rng = random.Random(f"{seed}/{table.name}/{target}")
        for name, data in chain(mutations(original, rng, flips), value_mutations(original, rng, values)):
            number += 1
            if number <= start:
                continue
            print(json.dumps({"begin": number, "target": target, "mutation": name}), flush=True)
            path.write_bytes(data)
            signal.alarm(_SECONDS)
            outcome, word = judge(table, target, name, expected, rows)
            signal.alarm(0)
            path.write_bytes(original)
            print(json.dumps({"end": number, "outcome": outcome, "word": word}), flush=True)


def run_table(source: Path, rows: bool, seed: int, flips: int, values: int) -> Iterator[dict[str, Any]]:
    """All mutations of one table, each with its outcome."""
    start = 0
    while True:
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory) / source.name
            shutil.copytree(source, copy, symlinks=True)
            command = [
                sys.executable,
                "-m",
                "tests.campaigns.hostile_input",
                "--work",
                str(copy),
                "--seed",
                str(seed),
            ]
            command += ["--flips", str(flips), "--values", str(values), "--start", str(start)]
            command += ["--rows"] if rows else []
            process = subprocess.run(command, capture_output=True, text=True, check=False)
        begun: dict[str, Any] | None = None
        for line in process.stdout.splitlines():
            event = json.loads(line)
            if "begin" in event:
                begun = event
            elif begun is not None:
                yield {"table": source.name, **begun, **event}
                begun, start = None, event["end"]
        if process.returncode == 0:
            return
        if begun is None:
            raise SystemExit(f"{source.name}: a worker failed:\n{process.stderr[-2000:]}")
        outcome = "hang" if process.returncode == -signal.SIGALRM else "crash"
        yield {"table": source.name, **begun, "outcome": outcome, "word": f"exit {process.returncode}"}
        start = begun["begin"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev campaign hostile", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flips", type=int, default=8, help="bit flips of each file")
    parser.add_argument("--values", type=int, default=6, help="values replaced in each JSON file")
    parser.add_argument("--table", help="one table of the corpus only")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--rows", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work, options.rows, options.seed, options.flips, options.values, options.start)
        return
    from tests.support.environment.corpus import manifest, unpack_corpus

    outcomes: Counter[str] = Counter()
    by_kind: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        corpus = unpack_corpus(Path(directory))
        for entry in manifest():
            if not entry["readable"] or (options.table and entry["name"] != options.table):
                continue
            rows = bool(entry["data"] == "full" and (entry["logical_row_count"] or 0) <= 2000)
            for event in run_table(
                corpus.table(entry["name"]), rows, options.seed, options.flips, options.values
            ):
                outcomes[event["outcome"]] += 1
                by_kind[event["mutation"].split(" ")[0], event["outcome"]] += 1
                if event["outcome"] in FORBIDDEN:
                    print(json.dumps(event), flush=True)
    print(f"{outcomes.total()} mutations: " + ", ".join(f"{n} {name}" for name, n in outcomes.most_common()))
    for (kind, outcome), count in sorted(by_kind.items()):
        print(f"  {kind:<8} {outcome:<18} {count:>6}")
    if any(outcomes[name] for name in FORBIDDEN):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
