"""
A certified head on a frozen network
====================================

A common way to use deep networks: take one that was trained on other data, freeze it, and train a
small network, the head, on what its last layer gives. The head is a two-layer network, so it can be
trained to a certified optimum.

Large pre-trained networks have to be downloaded, which a lesson should not. Ours is a small
convolutional network that learns the digits 0 to 4 in a few seconds. The head then has to tell
apart the digits 5 to 9, which the frozen network has never seen.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifierCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cvxnn

images, labels = load_digits(return_X_y=True)
images = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
known = labels < 5

# %%
# The network that will be frozen
# -------------------------------

torch.manual_seed(0)
layers = torch.nn
body = layers.Sequential(
    layers.Conv2d(1, 16, 3, padding=1),
    layers.ReLU(),
    layers.MaxPool2d(2),
    layers.Conv2d(16, 32, 3),
    layers.ReLU(),
    layers.Flatten(),
    layers.Linear(128, 12),
)
first_task = layers.Sequential(body, layers.ReLU(), layers.Linear(12, 5))
optimizer = torch.optim.Adam(first_task.parameters(), lr=5e-3)
inputs, targets = images[known], torch.tensor(labels[known])
for _ in range(60):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(first_task(inputs), targets)
    loss.backward()
    optimizer.step()
print(f"cross-entropy on the digits 0 to 4 after training: {loss.item():.4f}")

# %%
# Embeddings
# ----------
#
# From here on the body is fixed. Each image of a new digit becomes 12 numbers.

body.requires_grad_(False)
embeddings = body(images[~known]).double().numpy()
digits = labels[~known]
X, X_test, y, y_test = train_test_split(embeddings, digits, train_size=300, random_state=0)

# %%
# Two heads
# ---------
#
# The usual head is linear. A ReLU head can bend, and costs more to train. Both choose their penalty
# by cross-validation.

head = cvxnn.ReLUClassifierCV(n_patterns=30, n_alphas=5, eps=3e-3, cv=3).fit(X, y)
linear = make_pipeline(StandardScaler(), RidgeClassifierCV(np.logspace(-3, 3, 13))).fit(X, y)
print(f"linear head: test accuracy {linear.score(X_test, y_test):.3f}")
print(f"ReLU head:   test accuracy {head.score(X_test, y_test):.3f}")

# %%
# Whether the bends are worth it depends on the embeddings: the better they separate the classes,
# the less is left to do. With the 600 rows of this test, a difference of one hundredth is chance.

print(head.certificate_)

# %%
# The certificate is about the head: given these embeddings, no head with the sampled patterns has a
# training objective below the bound. The body was trained by Adam, and nothing is proven about it.

cvxnn.plot_cv(head)

# %%
# One module
# ----------
#
# The head becomes a torch module, and both together a network from image to probabilities.

whole = torch.nn.Sequential(body.double(), head.network_.to_torch(link="softmax"))
pictures = images[~known][:8].double()
with torch.no_grad():
    probabilities = whole(pictures).numpy()
np.testing.assert_allclose(probabilities, head.predict_proba(embeddings[:8]), atol=1e-5)

figure, axes = plt.subplots(1, 8, figsize=(10, 1.8), layout="constrained")
for picture, row, ax in zip(pictures, probabilities, axes, strict=True):
    ax.imshow(picture[0], cmap="gray_r")
    ax.set_title(f"{head.classes_[row.argmax()]}\n{row.max():.2f}", fontsize=9)
    ax.axis("off")
# sphinx_gallery_thumbnail_number = 2
plt.show()
