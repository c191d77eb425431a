"""
Networks that leave: ONNX and PyTorch
=====================================

A trained network is a handful of arrays. It can be written as an ONNX model, which many programs
run without Python, or become a torch module, which can be trained further. Both compute the same
function.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

import cvxnn

X, y = load_wine(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, random_state=0)
model = cvxnn.ReLUClassifier(n_patterns=100).fit(X, y)
print(f"{model.network_}, test accuracy {model.score(X_test, y_test):.3f}")

# %%
# The estimator scales columns while it trains. Its `network_` is mapped back and takes raw rows, so
# there is nothing to be done before it.
#
# ONNX
# ----
#
# `link="softmax"` adds the probabilities as a second output. A model in float32 is half the size,
# and some accelerators know nothing else.

folder = tempfile.TemporaryDirectory()
results = {}
for dtype in ("float64", "float32"):
    file = Path(folder.name) / f"{dtype}.onnx"
    model.network_.to_onnx(file, link="softmax", dtype=dtype)
    session = onnxruntime.InferenceSession(file)
    logits, probabilities = session.run(None, {"X": X_test.astype(dtype)})
    results[f"ONNX {dtype}"] = probabilities
    print(f"{dtype}: {file.stat().st_size / 1024:.0f} kB")
folder.cleanup()

# %%
# PyTorch
# -------
#
# A ReLU network becomes `Linear`, `ReLU`, `Linear`.

module = model.network_.to_torch(link="softmax")
print(module)
with torch.no_grad():
    results["torch float64"] = module(torch.tensor(X_test)).numpy()

# %%
# The same function
# -----------------
#
# What is left is rounding: about sixteen digits in float64, and about seven in float32.

expected = model.predict_proba(X_test)
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for name, probabilities in results.items():
    difference = np.abs(probabilities - expected).max(axis=1)
    ax.semilogy(np.sort(difference + 1e-18), ".", label=name)
    same = np.mean(model.classes_[probabilities.argmax(axis=1)] == model.predict(X_test))
    print(f"{name}: largest difference {difference.max():.1e}, same class for {same:.0%} of rows")
ax.set(xlabel="test rows, sorted", ylabel="difference")
ax.grid(alpha=0.25)
ax.legend(frameon=False)

# %%
# And back
# --------
#
# The weights of the module are parameters, so torch can train it further, and the result can come
# back. The certificate is about the weights that left: what comes back has none until `improve`
# gives it a new one.

again = cvxnn.ReLUNetwork.from_torch(model.network_.to_torch())
difference = np.abs(again.predict(X_test) - model.decision_function(X_test)).max()
print(f"{again}, difference {difference:.1e}")

# %%
# Shapes, links and what else there is to know: :doc:`/export`.

plt.show()
