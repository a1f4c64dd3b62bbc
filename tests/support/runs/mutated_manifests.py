"""Manifests of a real run, mutated at random and met by its next try: ignored, refused, or harmless.

A template is made once: a table beside a neighbour's files, and a run on it that died after two of its three bins. Each
example copies it, changes manifests, bytes or fields, some of them signed again with the run's own key so that what lies
behind the signature is reached as well, and runs again. Whatever was changed:

1. what leaves the run is a report or a :class:`~delta_log.errors.DeltaLogError`;
2. no file outside of the table changes, and no commit that was there;
3. where the run commits, it commits its plan: two files of each partition become one, and the rows stay;
4. where it refuses, nothing was committed.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from delta_log import Table
from delta_log.errors import DeltaLogError
from delta_log.log.data_path import encode_path
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.engine.local import LocalEngine
from delta_maintenance.errors import NewerManifest
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.manifest.manifest_file import RunKey, parsed_text, unsealed
from delta_maintenance.rewrite.task import MANIFEST_VERSION, BinManifest, RewriteTask
from tests.support.runs.maintenance_runs import RUN_KEY, WatchedEngine
from tests.support.runs.maintenance_runs import run as maintain
from tests.support.tables.planted_manifests import forged_file
from tests.support.tables.small_tables import write_parts

PARTS = "abc"
ROWS = sorted((10 * number + n, part) for number in range(2) for n, part in enumerate(PARTS))
_RUN = "run"
_OTHER_KEY = RunKey("0f" * 32)


@dataclass
class Outcome:
    """
    :ivar committed: examples after which the run committed its plan, by what was changed; and ``refused`` nothing.
    """

    committed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def examples(self) -> int:
        return self.committed.total() + self.refused.total()


def run(examples: int, seed: int) -> Outcome:
    """So many examples.

    :raises AssertionError: one of them did harm; the message names it.
    """
    outcome = Outcome()
    with template() as place:
        for number in range(examples):
            rng = random.Random(f"{seed}-{number}")
            try:
                place.example(rng, outcome)
            except Exception as error:
                raise AssertionError(f"example {number} of seed {seed}: {place.last}") from error
    return outcome


class _Killed(BaseException):
    """What ends a process in the middle of its work."""


@contextmanager
def template() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="mutated-manifests-") as directory:
        place = Place(Path(directory))
        place.make()
        yield place


class Place:
    """
    :ivar last: what the last example changed.
    """

    def __init__(self, directory: Path) -> None:
        self._first, self._lake = directory / "first", directory / "lake"
        self.last = ""
        #: By name, what the run has left there.
        self._manifests: dict[str, bytes] = {}
        self._version = self._orphan_bytes = 0

    def make(self) -> None:
        table = write_parts(self._first / "t", PARTS)
        (self._first / "victim").mkdir()
        (self._first / "victim" / "x").write_text("a neighbour's")
        (self._first / "victim" / "a.json").write_text("{}")
        forged_file(self._first / "victim" / "part-0.parquet")
        # A file with one row that no manifest names.
        self._orphan_bytes = forged_file(table / _ORPHAN).stat().st_size

        def die(number: int) -> None:
            if number == len(PARTS) - 1:
                raise _Killed

        with pytest.raises(_Killed):
            maintain(table, run_id=_RUN, engine=WatchedEngine(die))
        directory = table / "_maintenance" / _RUN
        self._manifests = {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
        assert len(self._manifests) == len(PARTS) - 1
        self._version = Table(str(table)).snapshot().version

    def reading(self, rng: random.Random) -> None:
        """One file is changed and read; what a reader takes for a manifest is one in every member."""
        name = rng.choice(sorted(self._manifests))
        content = self._changed(rng.choice(("bytes", "foreign", "signed")), rng, self._manifests[name])
        try:
            found = unsealed(content, RUN_KEY, _RUN, name.removesuffix(".json"))
        except NewerManifest:
            return
        if found is not None:
            assert (found.run_id, f"{found.bin_id}.json") == (_RUN, name)
            assert parsed_text(found.to_json()) == found
            for output in found.outputs:
                assert output.path == encode_path(output.key)
                assert not {"..", ".", "", "_delta_log", "_maintenance"} & set(output.key.split("/"))

    def example(self, rng: random.Random, outcome: Outcome) -> None:
        shutil.rmtree(self._lake, ignore_errors=True)
        shutil.copytree(self._first, self._lake)
        table, directory = self._lake / "t", self._lake / "t" / "_maintenance" / _RUN
        before = _contents(self._lake)
        kind = rng.choice(("bytes", "foreign", "signed", "signed", "signed", "result"))
        changed, self.last = [], kind
        engine: LocalEngine | _Lying = LocalEngine({})
        if kind == "result":
            engine = _Lying(rng, self)
        else:
            for name in rng.sample(sorted(self._manifests), rng.randint(1, len(self._manifests))):
                there = self._changed(kind, rng, self._manifests[name])
                changed.append(there)
                place = name if rng.random() < 0.9 else f"{rng.getrandbits(128):032x}.json"
                (directory / place).write_bytes(there)
        try:
            report = maintain(table, run_id=_RUN, engine=engine)
        except DeltaLogError as error:
            self.last += f" {type(error).__name__}"
            outcome.refused[kind] += 1
            assert Table(str(table)).snapshot().version == self._version, "it refused, and committed"
        else:
            outcome.committed[kind] += 1
            assert report.status == "committed", report
            metrics = report.metrics
            assert (metrics["numRemovedFiles"], metrics["numAddedFiles"]) == (2 * len(PARTS), len(PARTS))
        self._check(before, _contents(self._lake))

    def _check(self, before: dict[str, bytes], after: dict[str, bytes]) -> None:
        for name, content in before.items():
            if not name.startswith("t/") or name.startswith("t/_delta_log/"):
                assert after.get(name) == content, f"{name} was changed"
        new = [name for name in after if name not in before]
        assert all(name.startswith("t/") for name in new), new
        opened = Table(str(self._lake / "t")).snapshot()
        assert opened.version in (self._version, self._version + 1)
        rows = opened.to_arrow(["id", "part"]).to_pylist()
        assert sorted((row["id"], row["part"]) for row in rows) == ROWS

    def _changed(self, kind: str, rng: random.Random, content: bytes) -> bytes:
        if kind == "bytes":
            change = rng.choice(_BYTES)
            self.last += f" {change.__name__}"
            return change(rng, content)
        manifest = json.loads(content)["body"]
        aimed = rng.random() < 0.25
        if aimed:
            self._aim(rng, manifest)
        for _ in range(rng.randint(0, 1) if aimed else rng.randint(1, 3)):
            manifest = self.mutated(rng, manifest)
        return _signed(manifest, RUN_KEY if kind == "signed" else _OTHER_KEY, rng)

    def _aim(self, rng: random.Random, manifest: dict[str, Any]) -> None:
        """As an attacker would, at a deletion or at the rows."""
        (output,) = manifest["outputs"]
        if rng.random() < 0.3:
            self.last += " claims a file with fewer rows"
            output.update(path=_ORPHAN, key=_ORPHAN, size_bytes=self._orphan_bytes)
            return
        key = rng.choice(HOSTILE_KEYS)
        self.last += f" of gone sources, {key!r}"
        for source in manifest["sources"]:
            source["path"] = source["key"] = f"{rng.getrandbits(32)}.parquet"
        output["path"] = output["key"] = key

    def mutated(self, rng: random.Random, manifest: dict[str, Any]) -> dict[str, Any]:
        """The same with one member changed, removed, or there twice."""
        found: dict[str, Any] = json.loads(json.dumps(manifest))
        holder, name = rng.choice(list(_places(found)))
        what = rng.random()
        if what < 0.1:
            del holder[name]
            self.last += f" without {name!r}"
        elif what < 0.2 and isinstance(holder, list):
            holder.append(holder[name])
            self.last += f" twice [{name}]"
        else:
            holder[name] = value = rng.choice(HOSTILE)
            self.last += f" {name!r}={repr(value)[:60]}"
            if name in ("key", "path") and rng.random() < 0.7:
                holder["key"] = holder["path"] = value
        return found


class _Lying:
    """The local engine, whose results are others than they were.

    A worker holds the key and is believed what its files are called, so a result with another proper name is left as it was.
    """

    name = "local"

    def __init__(self, rng: random.Random, place: Place) -> None:
        self._rng, self._place = rng, place

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        for result in LocalEngine({}).run(tasks, progress, run_key):
            assert isinstance(result, BinManifest)
            lie = parsed_text(json.dumps(self._place.mutated(self._rng, json.loads(result.to_json()))))
            same_files = [o.key for o in lie.outputs] == [o.key for o in result.outputs]
            yield lie if same_files else result


def _contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def _places(values: Any) -> Iterator[tuple[Any, Any]]:
    """Every member of JSON values, with what holds it."""
    items: list[tuple[Any, Any]] = []
    if isinstance(values, dict):
        items = list(values.items())
    elif isinstance(values, list):
        items = list(enumerate(values))
    for name, value in items:
        yield values, name
        yield from _places(value)


def _signed(manifest: dict[str, Any], key: RunKey, rng: random.Random) -> bytes:
    """Under the names that it claims, or had."""
    body = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    if rng.random() < 0.1:
        body = body[: rng.randrange(len(body))] + rng.choice(_NO_JSON)
    text = body.encode()
    mac = key.mac(_RUN, str(manifest.get("bin_id")).encode(errors="replace").decode(), text)
    return b'{"manifest_version":%d,"mac":"%s","body":%s}' % (MANIFEST_VERSION, mac.encode(), text)


_DEEP = "[" * 5_000 + "]" * 5_000
_NO_JSON = ("", "}", _DEEP, '{"a":' * 5_000, "9" * 5_000, "\x00", "NaN", '"\\ud800"')


def _flipped(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]


def _cut(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def _grown(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.randbytes(rng.randint(1, 40)) + content[at:]


def _without_proof(rng: random.Random, content: bytes) -> bytes:
    return json.dumps({**json.loads(content)["body"], "manifest_version": rng.choice((1, 2, 3))}).encode()


def _rubbish(rng: random.Random, content: bytes) -> bytes:
    head = content[: content.index(b'"body":') + 7]
    return rng.choice(
        (
            b"",
            b"null",
            rng.randbytes(200),
            _DEEP.encode(),
            b"\xff\xfe" + content,
            head,
            head + b"}",
            head + _DEEP.encode() + b"}",
            b"9" * 5_000,
        )
    )


_BYTES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flipped,
    _cut,
    _grown,
    _without_proof,
    _rubbish,
)

_ORPHAN = "part=a/orphan.parquet"
HOSTILE_KEYS = (
    "../victim/x",
    "../victim/part-0.parquet",
    "part=a/../../victim/x",
    "../../../victim/a",
    "/etc/hostname",
    "file:///etc/hostname",
    "s3://bucket/key",
    "_delta_log/00000000000000000000.json",
    "_delta_log/00000000000000000002.json",
    _ORPHAN,
    "part=a//x.parquet",
    "part=a/./x.parquet",
    "part=b/x.parquet",
    "_maintenance/run/x.json",
    ".hidden/x.parquet",
)
#: Values for any member of a manifest.
HOSTILE: tuple[Any, ...] = (
    *HOSTILE_KEYS,
    "a\x00b",
    "a\x1b[31m\nb",
    "a%2Fb",
    "%2e%2e/victim/x",
    "\ud800",
    "\u202e",
    "",
    ".",
    "..",
    "~",
    "x" * 5_000,
    '{"numRecords": 1e400}',
    '{"numRecords": 2}',
    _DEEP,
    0,
    1,
    -1,
    2,
    3,
    2**31,
    2**63 - 1,
    2**63,
    10**400,
    0.5,
    True,
    False,
    None,
    [],
    {},
    [None],
    [[]],
    {"a": None},
    {"part": "a"},
    {"part": "b"},
    {"part": None},
    {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1},
)
