"""Table 4: gated networks on MNIST and CIFAR-10."""
