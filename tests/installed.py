"""What an installed cvxnn has to be able to do: be imported, fit, load its kernels, be a command.

python tests/installed.py [--kernels]      tries the cvxnn of this environment; with --kernels
                                           it must have compiled kernels
python tests/installed.py --try FILE       installs a wheel or an sdist into a new environment,
                                           without any extra, and tries it there
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTRAS = ("torch", "cvxpy", "pandas", "matplotlib", "onnx", "pyarrow")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", action="store_true", help="there must be compiled kernels")
    parser.add_argument("--try", dest="file", type=Path, help="a wheel or an sdist to install")
    arguments = parser.parse_args()
    if arguments.file is not None:
        try_file(arguments.file.resolve())
    else:
        check_package(arguments.kernels)
        run_the_readme()
        check_command()
        sys.stdout.write(f"cvxnn {metadata.version('cvxnn')} works, {kernels()} kernels\n")


def try_file(file: Path) -> None:
    """Install the file into an environment of its own and run this program there."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "Scripts" if os.name == "nt" else "bin", "python")
        quiet = ["--quiet", "--disable-pip-version-check"]
        limits = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([python, "-m", "pip", "install", *quiet, *limits, str(file)], check=True)
        pure = file.name.endswith("-none-any.whl") or os.name == "nt"
        options = [] if pure else ["--kernels"]
        # elsewhere, because a program in the checkout could find the sources beside it
        subprocess.run([python, __file__, *options], check=True, cwd=folder)


def check_package(needs_kernels: bool) -> None:
    import cvxnn

    assert cvxnn.__version__ == metadata.version("cvxnn")
    folder = Path(cvxnn.__file__).parent
    assert not folder.is_relative_to(ROOT / "src"), f"{folder} is the checkout"
    if needs_kernels:
        assert kernels() == "compiled", "the compiled kernels are missing, or out of date"


def kernels() -> str:
    from cvxnn.kernels import native

    return "NumPy" if native.library() is None else "compiled"


def run_the_readme() -> None:
    """The first example of the README, which no extra is needed for."""
    block = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert block is not None
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(block[1], "README.md", "exec"), names)
    loaded = [package for package in EXTRAS if package in sys.modules]
    assert not loaded, f"the example needs {loaded}"


def check_command() -> None:
    command = Path(sys.executable).with_name("cvxnn")
    told = subprocess.run([command, "--version"], check=True, capture_output=True, text=True)
    assert metadata.version("cvxnn") in told.stdout


if __name__ == "__main__":
    main()
