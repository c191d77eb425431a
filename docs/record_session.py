"""Record a session at the terminal to docs/session.txt: `python docs/record_session.py`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from sklearn.datasets import load_breast_cancer

DOCS = Path(__file__).parent
COMMANDS = (
    "cut -d, -f1-4,31 cancer.csv | head -4",
    "cvxnn fit cancer.csv --target diagnosis -o model.cvxnn",
    "cvxnn certify model.cvxnn cancer.csv",
    "cvxnn predict model.cvxnn new.csv -o predictions.csv",
    "head -4 predictions.csv",
    "cvxnn prune model.cvxnn cancer.csv -o small.cvxnn",
    "cvxnn predict model.cvxnn predictions.csv",
    "cvxnn report model.cvxnn cancer.csv -o report.html",
)


def main() -> None:
    data = load_breast_cancer(as_frame=True)
    frame = data.frame.drop(columns="target")
    frame["diagnosis"] = data.target_names[data.target]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        frame.to_csv(Path(folder, "cancer.csv"), index=False)
        frame.drop(columns="diagnosis").sample(10, random_state=0).to_csv(
            Path(folder, "new.csv"), index=False
        )
        for command in COMMANDS:
            process = subprocess.run(
                command,
                shell=True,
                cwd=folder,
                env={**os.environ, "PATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            lines.append(f"$ {command}\n{process.stdout.rstrip()}\n")
    text = re.sub(r"[ \t]+$", "", "\n".join(lines), flags=re.MULTILINE)
    text = re.sub(r"^\.\.\. .*\n", "", text, flags=re.MULTILINE)  # progress of a busy machine
    (DOCS / "session.txt").write_text(text)


if __name__ == "__main__":
    main()
