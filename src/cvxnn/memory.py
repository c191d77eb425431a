"""Memory that arrays will need, compared with what there is before any of them is made.

Only arrays that certainly exist at one time and have a known size are counted: bits, weights,
copies of the data. Solvers need scratch space on top, so a problem that passes may still be too
large; one that is refused certainly is. Nothing is refused where the system does not say how much
memory there is.
"""

from __future__ import annotations

import re
from pathlib import Path

DOUBLE = 8  # bytes of a number
NEVER_TOO_MUCH = 2**27  # bytes for which the available memory is not looked up
# weights (blocks, d, C) that exist at one time in a run of the leanest solver
WEIGHT_COPIES = 4
_SIZE = re.compile(r"(\d+(?:\.\d*)?)\s*((?:[kmgt]i?)?b?)", re.IGNORECASE)
_UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}
_FILES, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


class TooLargeError(MemoryError):
    """What was asked for does not fit into the memory that is available."""


def check_memory(need: float, what: str, **sizes: int) -> None:
    """Raise unless `need` bytes are available; `what` needs them, and `sizes` say why."""
    if need <= NEVER_TOO_MUCH:
        return
    there = available()
    if there is not None and need > there:
        listed = ", ".join(f"{name} = {size:,}" for name, size in sizes.items())
        raise TooLargeError(
            f"{what} with {listed}: needs about {size_text(need)}, {size_text(there)} are "
            "available; take fewer patterns or rows"
        )


def pattern_bytes(n: int, d: int, p: int) -> int:
    """The bits and the gates, as they are drawn and once more as they are kept."""
    return n * p // 4 + 2 * DOUBLE * d * p


def problem_bytes(n: int, d: int, p: int, *, dense: bool, cones: bool) -> int:
    """The bits of the patterns, in both directions; for cones their signs, an interior point each,
    and of dense data unit rows in the two layouts of the projections."""
    found = n * p // 4
    if cones:
        found += n * p + DOUBLE * d * p + (5 * DOUBLE * n * d // 2 if dense else 0)
    return found


def weight_bytes(blocks: int, d: int, C: int) -> int:
    return WEIGHT_COPIES * DOUBLE * blocks * d * C


def available() -> int | None:
    """Bytes that this process may still take; None if the system does not say."""
    known = [size for size in (_of_machine(), _of_groups(), _of_process()) if size is not None]
    return min(known, default=None)


def _of_machine() -> int | None:
    for line in _lines(_FILES / "meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _of_groups() -> int | None:
    """The least that the control groups of this process have left, of either version."""
    found = []
    for line in _lines(_FILES / "self" / "cgroup"):
        _, controllers, name = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = _CGROUPS if controllers == "" else _CGROUPS / "memory"
        group = root / name.strip("/")
        for folder in (group, *group.parents[: len(group.parts) - len(root.parts)]):
            limit = _number(folder, "memory.max", "memory.limit_in_bytes")
            used = _number(folder, "memory.current", "memory.usage_in_bytes")
            if limit is not None and used is not None:
                found.append(max(limit - used + _reclaimable(folder), 0))
    return min(found, default=None)


def _reclaimable(folder: Path) -> int:
    """What files hold in memory, which the system takes back."""
    for line in _lines(folder / "memory.stat"):
        if line.startswith("inactive_file "):
            return int(line.split()[1])
    return 0


def _of_process() -> int | None:
    """What is left of the address space where that is limited, as with `ulimit -v`."""
    try:
        import resource
    except ImportError:  # not on every system
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    pages = _lines(_FILES / "self" / "statm")
    if limit == resource.RLIM_INFINITY or not pages:
        return None
    return max(limit - int(pages[0].split()[0]) * resource.getpagesize(), 0)


def used() -> int | None:
    """Bytes of memory that this process has; None if the system does not say."""
    pages = _lines(_FILES / "self" / "statm")
    if not pages:
        return None
    import resource

    return int(pages[0].split()[1]) * resource.getpagesize()


def _number(folder: Path, *names: str) -> int | None:
    for name in names:
        lines = _lines(folder / name)
        if lines and lines[0].isdigit():  # "max" is no limit
            return int(lines[0])
    return None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def check_size_text(value: object, name: str) -> int:
    """Bytes, given as a number or as a text such as "2GB", "500 MB" or "1.5 GiB"."""
    if isinstance(value, str):
        found = _SIZE.fullmatch(value.strip())
        if found is None:
            raise ValueError(f"{name} must be bytes, such as '2GB' or '500MB', got {value!r}")
        value = float(found[1]) * _UNITS[found[2].upper().removesuffix("B")]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be bytes, such as '2GB', got {type(value).__name__}")
    if not 0 < value < 2**60:
        raise ValueError(f"{name} must be a positive number of bytes, got {value:g}")
    return int(value)


def size_text(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"
