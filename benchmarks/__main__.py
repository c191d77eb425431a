"""The command line: `python -m benchmarks [NAME ...]`, from the root of the repository."""

from __future__ import annotations

from benchmarks import (
    all_patterns,
    comparison,
    decompositions,
    growth,
    images,
    kills,
    limits,
    load,
    memory,
    mnist,
    newton_gated,
    newton_path,
    newton_relu,
    oracle,
    out_of_core,
    peer,
    precision,
    products,
    projections,
    proofs,
    pruning,
    relu_oracle,
    relu_peer,
    rigour,
    size,
    startup,
    threads,
    ties,
    versions,
)
from benchmarks.command import command_line
from benchmarks.record import BENCHMARKS

MEASUREMENTS = {
    module.BENCHMARK.name: module.BENCHMARK
    for module in (  # the quick ones first
        oracle,
        memory,
        products,
        projections,
        startup,
        ties,
        kills,
        limits,
        threads,
        load,
        versions,
        size,
        out_of_core,
        growth,
        mnist,
        rigour,
        relu_oracle,
        decompositions,
        pruning,
        peer,
        relu_peer,
        precision,
        newton_gated,
        newton_relu,
        newton_path,
        comparison,
        proofs,
        images,
        all_patterns,
    )
}

main = command_line(
    BENCHMARKS,
    MEASUREMENTS,
    "Measure what cvxnn promises (all benchmarks, or those named). Fails if a target is missed.",
)

if __name__ == "__main__":
    main()
