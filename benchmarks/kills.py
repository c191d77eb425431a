"""What is left of files after kills, with a full disk, and when two write at once.

Every command has to leave its output as it was or as it is meant to be, nothing else in the folder
and no process, and has to give the same when it is run again.
"""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as parse_tensors

from benchmarks.record import Benchmark, Options, Row, Rows, markdown_table

CVXNN = str(Path(sys.executable).with_name("cvxnn"))
FAULTS = Path(__file__).with_name("faults.c")
SEED = 0
KILLS = 4  # of each command with each signal, at random moments
ROUNDS = 12  # of two writers, both of which are killed
WANTED = 100
STEPS = ("open", "write", "fsync", "linkat", "rename", "sync")  # of one write, in their order
SIGNALS = {"kill -9": signal.SIGKILL, "TERM": signal.SIGTERM, "INT": signal.SIGINT}
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
LEFT = ".cvxnn-"  # what temporary names begin with
WRITER = """
import sys
from pathlib import Path
from cvxnn.files import write_atomically
while True:
    write_atomically(Path("output"), sys.argv[1].encode() * 200_000)
"""

# what may go wrong, and what the page calls it
FINDINGS = {
    "lost": "lost",
    "half": "half-written",
    "stray": "stray files",
    "processes": "processes left",
    "words": "wrong code or words",
    "differs": "run again: differs",
}


@dataclass(frozen=True)
class Command:
    """A command that writes `output`; the same one with `other` makes what is there before."""

    arguments: str
    output: str
    other: str = "--seed 1"

    def line(self, extra: str = "") -> list[str]:
        return [CVXNN, *self.arguments.split(), "-o", self.output, *extra.split()]


FIT = "fit data.csv --target label"
QUICK = "--model gated --patterns 15"
COMMANDS = {
    "fit": Command(f"{FIT} --patterns 40 --alpha 0.01", "output.cvxnn"),
    "path": Command(f"path data.csv --target label {QUICK} --points 10", "output.csv"),
    "report": Command("report model.cvxnn data.csv", "output.html", "--title other"),
    "fit --jobs 2": Command(f"{FIT} {QUICK} --folds 2 --jobs 2", "output.cvxnn"),
}


class Scene:
    """A folder with a table, a model, and the output of a command as it was before."""

    def __init__(self, folder: Path, command: Command) -> None:
        folder.mkdir()
        self.command, self.folder, self.output = command, folder, folder / command.output
        _write_table(folder / "data.csv")
        self._run(COMMANDS["fit"].line())
        (folder / "output.cvxnn").rename(folder / "model.cvxnn")
        self._run(command.line(command.other))
        self.before = self.output.read_bytes()
        start = time.perf_counter()
        self._run(command.line())
        self.seconds = time.perf_counter() - start
        self.meant = self.output.read_bytes()
        self.own = {path.name for path in folder.iterdir()} | {command.output + ".checkpoint"}
        self.reset()

    def reset(self) -> None:
        self.output.write_bytes(self.before)

    def _run(self, line: list[str]) -> None:
        subprocess.run(line, cwd=self.folder, check=True, capture_output=True)

    def start(self, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command.line(),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **{"preexec_fn": _heed_interrupts, **options},
        )

    def findings(self) -> Counter[str]:
        """Of the folder, whatever ended the command."""
        found: Counter[str] = Counter()
        if not self.output.exists():
            found["lost"] += 1
        elif not any(self.is_like(wanted) for wanted in (self.before, self.meant)):
            found["half"] += not self._is_sound()
        names = {path.name for path in self.folder.iterdir()}
        found["stray"] += len(names - self.own)
        return found

    def is_like(self, wanted: bytes) -> bool:
        """Whether the output is the same, up to the times in a model file and, for a path that was
        gone on with, up to the tolerance of its points."""
        content = self.output.read_bytes()
        if self.output.suffix == ".cvxnn":
            return _facts(content) == _facts(wanted)
        if content != wanted and self.output.suffix == ".csv":
            return _agree(content, wanted)
        return content == wanted

    def _is_sound(self) -> bool:
        """Whether it is a model that an interrupt has left: the best network so far."""
        import cvxnn

        try:
            model = cvxnn.Model.load(self.output)
        except ValueError:
            return False
        return bool(not model.estimator.converged_)

    def again(self) -> Counter[str]:
        """Run it undisturbed, after whatever happened."""
        self._run(self.command.line())
        found = self.findings()
        found["differs"] += not self.is_like(self.meant)
        found["stray"] += (self.folder / f"{self.output.name}.checkpoint").exists()
        return found


def _write_table(path: Path) -> None:
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((150, 5))
    label = np.where(np.maximum(X[:, 0], 0) + X[:, 1] * X[:, 2] > 0.2, "yes", "no")
    rows = [",".join(f"{x:.5f}" for x in row) for row in X]
    lines = ["a,b,c,d,e,label", *(f"{row},{word}" for row, word in zip(rows, label, strict=True))]
    path.write_text("\n".join(lines) + "\n")


def _facts(content: bytes) -> Any:
    """What a model file holds, without the times of its history and its checksum."""
    try:
        tensors = {name: array.tobytes() for name, array in parse_tensors(content).items()}
    except Exception:  # half a file: anything may be wrong with it
        return content
    tensors.pop("model.history", None)
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["cvxnn"])
    return tensors, {name: value for name, value in header.items() if name != "sha256"}


def _agree(content: bytes, wanted: bytes) -> bool:
    """Whether two paths have the same points, certified to the same tolerance."""
    first, second = (_columns(text) for text in (content, wanted))
    if first is None or second is None or first.keys() != second.keys():
        return False
    close = np.allclose(first["objective"], second["objective"], rtol=1e-4, atol=0)
    return bool(close and np.array_equal(first["alpha"], second["alpha"]))


def _columns(content: bytes) -> dict[str, np.ndarray] | None:
    header, *rows = content.decode().splitlines()
    try:
        values = np.array([[float(cell) for cell in row.split(",")] for row in rows])
        return dict(zip(header.split(","), values.T, strict=True))
    except ValueError:
        return None


# -- kills


def random_kills(scene: Scene, number: signal.Signals, kills: int) -> Row:
    """Kill the command at random moments, then let it finish. A path goes on all the time."""
    rng = random.Random(f"{SEED} {scene.command} {number}")
    found: Counter[str] = Counter()
    while found["kills"] < kills and found["finished"] < 3 * kills:
        if not (scene.folder / f"{scene.output.name}.checkpoint").exists():
            scene.reset()
        process = scene.start()
        time.sleep(rng.uniform(0.1, 1.0) * scene.seconds)
        if process.poll() is None:
            send = os.killpg if number == signal.SIGINT else os.kill  # as a terminal does
            send(process.pid, number)
        said = process.communicate()[1]
        found["kills" if process.returncode else "finished"] += 1
        found["processes"] += _left(process.pid)
        found["words"] += not _honest(scene, number, process.returncode, said)
        found += scene.findings()
    return dict(found + scene.again())


def _left(session: int) -> int:
    """The processes of a session that are still there after some seconds."""
    end = time.monotonic() + 5
    while time.monotonic() < end and _members(session):
        time.sleep(0.05)
    return len(_members(session))


def _members(session: int) -> list[int]:
    """From /proc; zombies do not count."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, own, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if own == str(session) and state != "Z":
            found.append(int(stat.parent.name))
    return found


def _honest(scene: Scene, number: signal.Signals, code: int, said: str) -> bool:
    """Whether the exit code is that of the signal, and "nothing was written" true."""
    if "Traceback" in said:
        return False
    if "nothing was written" in said and scene.output.read_bytes() != scene.before:
        return False
    return code in (0, -number, CODES.get(number, 0))


def kills_at_steps(scene: Scene, library: Path) -> Row:
    """Kill the command at each step of its first write. Between naming and renaming a temporary
    file is left, which running it again has to remove."""
    found: Counter[str] = Counter()
    for step in STEPS:
        scene.reset()
        process = scene.start(env=_faulty(scene, library, step, "kill"))
        process.communicate()
        found["kills"] += process.returncode == -signal.SIGKILL
        left = [path.name for path in scene.folder.iterdir() if path.name.startswith(LEFT)]
        found["between"] += len(left)
        found += scene.findings()
        if step == "rename":
            found["stray"] -= len(left)
            found += scene.again()
    return dict(found + scene.again())


def full_disks(scene: Scene, library: Path) -> Row:
    """Let the steps of every write fail for want of room, and files be limited in size."""
    found: Counter[str] = Counter()
    faults = [_faulty(scene, library, step, str(errno.ENOSPC)) for step in STEPS[:-2]]
    runs: list[dict[str, Any]] = [{"env": fault} for fault in faults]
    for options in [*runs, {"preexec_fn": _small_files}]:
        scene.reset()
        process = scene.start(**options)
        said = process.communicate()[1]
        succeeded = process.returncode == 0  # without nameless files, or without links
        found["faults"] += 1
        found["words"] += not succeeded and not (
            process.returncode == 5 and "could not be written" in said
        )
        found["words"] += succeeded and not scene.is_like(scene.meant)
        found += scene.findings()
    return dict(found + scene.again())


def _heed_interrupts() -> None:
    """Background jobs of a shell ignore them, and so do their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


def _faulty(scene: Scene, library: Path, step: str, what: str) -> dict[str, str]:
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "CVXNN_FAULT": f"{step}:1:{what}",
        "CVXNN_FAULT_FOLDER": f"{scene.folder}",
    }


def two_writers(folder: Path, rounds: int) -> Row:
    """Two processes write one file all the time and are killed; every look at it finds it whole."""
    rng = random.Random(SEED)
    found: Counter[str] = Counter()
    for _ in range(rounds):
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, letter], cwd=folder) for letter in "ab"
        ]
        _wait_for(folder / "output")
        for writer in writers:
            end = time.monotonic() + rng.uniform(0.05, 0.6)
            while time.monotonic() < end:
                found["looks"] += 1
                found["half"] += not _whole(folder / "output")
            writer.kill()
            writer.wait()
            found["kills"] += 1
        found["between"] += sum(path.name.startswith(LEFT) for path in folder.iterdir())
    from cvxnn.files import write_atomically

    write_atomically(folder / "output", b"c" * 200_000)
    found["half"] += not _whole(folder / "output")
    found["stray"] += len(list(folder.iterdir())) - 1
    return dict(found)


def _wait_for(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, f"nobody writes {path}"
        time.sleep(0.01)


def _whole(path: Path) -> bool:
    content = path.read_bytes()
    return len(content) == 200_000 and len(set(content)) == 1


# -- the benchmark


def measure(options: Options, rows: Rows) -> Iterator[tuple[str, Row]]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        library = _library(root)
        rivals = root / "rivals"
        rivals.mkdir()
        if (case := "two writers of one file") not in rows:
            yield case, two_writers(rivals, 1 if options.quick else ROUNDS)
        for label, command in list(COMMANDS.items())[: 1 if options.quick else None]:
            left = {
                case: run
                for how, run in _ways(options.quick, command, library).items()
                if (case := f"`{label}`, {how}") not in rows
            }
            if left:
                scene = Scene(root / label.replace(" ", ""), command)
                for case, run in left.items():
                    yield case, run(scene)


def _ways(quick: bool, command: Command, library: Path | None) -> dict[str, Callable[[Scene], Row]]:
    """To end a command before its time. Folds in other processes write nothing."""
    kills = 2 if quick else KILLS
    ways: dict[str, Callable[[Scene], Row]] = {
        f"{how} at random moments": partial(random_kills, number=number, kills=kills)
        for how, number in SIGNALS.items()
    }
    if library is not None and not quick and "--jobs" not in command.arguments:
        ways["kill -9 at each step of a write"] = partial(kills_at_steps, library=library)
        ways["a full disk at each step"] = partial(full_disks, library=library)
    return ways


def _library(folder: Path) -> Path | None:
    """The faults, compiled; None without a compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    library = folder / "faults.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(FAULTS), "-ldl"]
    subprocess.run(command, check=True)
    return library


def present(rows: Rows) -> str:
    header = ("what happens", "times", *FINDINGS.values())
    lines = [
        (case, _times(row), *(row.get(finding, 0) for finding in FINDINGS))
        for case, row in rows.items()
    ]
    looks = sum(row.get("looks", 0) for row in rows.values())
    between = sum(row.get("between", 0) for row in rows.values())
    return (
        f"{sum(map(_kills, rows.values()))} kills in all. The output is there before each, from "
        "another run. Afterwards it is as before or as meant, or after TERM and INT the best "
        "network so far; times inside model files are not compared, and a path that was gone on "
        "with has the same strengths and objectives within its tolerance. Nothing else may be in "
        f"the folder, but for kills between naming and renaming a file ({between} were hit, most "
        "of them on purpose): the next write has to remove what they leave. The file with two "
        f"writers was read {looks:,} times meanwhile.\n\n" + markdown_table(header, lines)
    )


def _kills(row: Row) -> int:
    return int(row.get("kills", 0))


def _times(row: Row) -> int:
    return _kills(row) or int(row.get("faults", 0))


def misses(rows: Rows) -> list[str]:
    missed = [
        f"{case}: {row[finding]} {name}"
        for case, row in rows.items()
        for finding, name in FINDINGS.items()
        if row.get(finding)
    ]
    missed += [f"{case}: nothing happened" for case, row in rows.items() if not _times(row)]
    kills = sum(map(_kills, rows.values()))
    if len(rows) > len(SIGNALS) + 1 and kills < WANTED:
        missed.append(f"{kills} kills, wanted {WANTED}")
    return missed


BENCHMARK = Benchmark(
    "kills", "Kills, full disks and rivals", measure, present, misses, resumable=True
)
