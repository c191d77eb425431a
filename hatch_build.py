"""Build hook: compile the C files of src/cvxnn where a C compiler is there.

The kernels are plain C behind ctypes, with no tie to a Python version. Without a compiler the
package installs all the same and uses its NumPy twins.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAMES = (
    "kernels.h",
    "native.c",
    "products.c",
    "losses.c",
    "systems.c",
    "vectors.h",
    "factors.h",
    "projections.c",
    "faces.c",
    "branching.c",
    "cones.h",
    "wolfe.h",
)
FILES = [Path("src/cvxnn/kernels") / name for name in NAMES]
LIBRARY = Path("src/cvxnn/kernels/libcvxnn.so")


class NativeKernels(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        files = [root / file for file in FILES]
        if self.target_name != "wheel" or not compile_kernels(files, root / LIBRARY):
            return
        build_data["artifacts"].append(str(LIBRARY))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag()}"


def platform_tag() -> str:
    """The platform that the kernels were compiled for, as names of wheels spell it.

    Python on macOS may be "universal2", made for two kinds of processor. A compiler that is not
    told otherwise (by ARCHFLAGS) makes code for one, the one that it runs on.
    """
    tag = sysconfig.get_platform()
    if tag.endswith("universal2") and not os.environ.get("ARCHFLAGS"):
        system, version, _ = tag.split("-")
        machine = platform.machine()
        if machine == "arm64" and version.startswith("10."):
            version = "11.0"  # the first macOS for this processor
        tag = f"{system}-{version}-{machine}"
    return tag.replace("-", "_").replace(".", "_")


def compile_kernels(files: list[Path], library: Path) -> bool:
    """Whether it could be built; a failure is said, not raised."""
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    if shutil.which(compiler[0]) is None or os.name != "posix":
        sys.stderr.write(f"cvxnn: no C compiler {compiler[0]!r}: using NumPy kernels\n")
        return False
    flags = ["-O3", "-std=gnu11", "-fPIC", "-shared", f"-DKERNELS_VERSION={version_of(files)}"]
    flags += shlex.split(os.environ.get("ARCHFLAGS", ""))  # macOS: which processors to compile for
    sources = [str(file) for file in files if file.suffix == ".c"]
    command = [*compiler, *flags, *sources, "-o", str(library), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(f"cvxnn: kernels were not built, using NumPy:\n{done.stderr}\n")
    return done.returncode == 0


def version_of(files: list[Path]) -> str:
    """A digest of the files; native.py compares it with that of those beside the library."""
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files))
    return f"0x{digest.hexdigest()[:16]}u"
