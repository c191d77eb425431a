"""The command line: its commands, their options and help.

What commands do is in `training.py`, `models.py` and `racing.py`, which are imported once the files
of a command are known to be right, so that `cvxnn --help` and errors are instant.

Exit codes: 0 done; 1 a failure that is cvxnn's fault; 2 bad input or options; 3 done, but the
tolerance was not met; 4 a certificate was not confirmed; 5 a file could not be read or written;
6 another process or a part of a cluster was lost; 130 interrupted, 143 terminated. With --json
there is one JSON object on stdout whatever happens.
"""

from __future__ import annotations

from pathlib import Path

import click

from cvxnn import __version__
from cvxnn.cli.options import (
    DATA,
    GENERATE,
    LEARNING,
    MEMORY,
    MODEL,
    READING,
    SAFE_CSV,
    SEED,
    SPEAKING,
    TOL,
    columns,
    data,
    kind,
    number,
    output,
    patterns,
    picture,
    printable,
    refuse_unread,
    seed,
    writable,
)
from cvxnn.cli.processes import several
from cvxnn.cli.running import Action, Commands, Options, runs


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="cvxnn COMMAND --help has options and examples.",
)
@click.version_option(__version__, prog_name="cvxnn")
def main() -> None:
    """Train two-layer ReLU networks to a certified optimum.

    \b
    From a CSV file to a page in the browser:
        cvxnn fit data.csv --target label -o model.cvxnn
        cvxnn predict model.cvxnn new.csv -o predictions.csv
        cvxnn report model.cvxnn data.csv -o report.html
    """


@main.command(short_help="Train a model of a column of a table.")
@DATA
@output("model.cvxnn", "The model file.")
@LEARNING
@MEMORY
@number("--alpha", None, "Strength of the penalty; by cross-validation unless given.", min=0)
@click.option(
    "--folds",
    default=5,
    show_default=True,
    type=click.IntRange(min=2),
    help="Number of folds.",
)
@click.option(
    "--rule",
    type=click.Choice(["best", "one_se"]),
    default="best",
    show_default=True,
    help="The alpha with the best score, or the largest alpha within one standard error of it.",
)
@click.option(
    "--ensemble",
    type=click.Choice(["folds", "variants"]),
    help="Predict by the mean of several networks, each certified: that of all rows and those of "
    "the folds, or these of three variants, weighted by their losses on rows held out.",
)
@click.option(
    "--jobs",
    default=1,
    show_default=True,
    type=int,
    help="Number of folds to run at the same time; -1 for one per processor.",
)
@click.option(
    "--prove",
    is_flag=True,
    help="Try to prove a bound over all ReLU networks of any width. Needs --patterns generate.",
)
@number(
    "--max-seconds",
    None,
    "Time limit of training, the choice of alpha and --prove (which takes up to a "
    "minute by default) included; the best network until then is kept.",
    min=1e-3,
)
@click.option(
    "--checkpoint",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=writable,
    help="Keep the training in this file, and continue from it. Needs --alpha.",
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Train on a Dask cluster, whose scheduler is there, such as tcp://host:8786: its workers "
    "read DATA.",
)
@READING
@SPEAKING
@runs
def fit(options: Options) -> Action:
    """Train a model of the column --target of DATA: CSV, TSV or Parquet, gzipped or not.

    Texts become categories; 73.3%, $772.93, 1,306,178 and dates become numbers; missing values are
    filled in; columns that look like identifiers are left out; and the strength of the penalty is
    chosen by cross-validation. The command says what it did to the data. A fifth of the rows is
    held out to score the model on.

    With --patterns generate, patterns that pay are searched for, instead of random ones: the
    objective is lower and training takes longer. What is proven is about these patterns. With
    --prove the command tries to bound the objective of all ReLU networks, and says what it has
    proven; few columns or a large alpha make that possible.

    With --checkpoint, training that was stopped in any way goes on where it was, if the same
    command is given again. The file is removed once the model is written.

    DATA may be a folder of such files or a name with * in quotes. Several processes train on them
    together where torchrun starts this command, or with --cluster on the workers of a Dask cluster:
    a gated network, or with --model relu and --alpha a ReLU network, on a sample of the rows.

    \b
    Examples:
        cvxnn fit data.csv --target label
        cvxnn fit data.csv --target label --patterns generate --prove
        cvxnn fit data.csv --target price --model gated --alpha 0.01 -o price.cvxnn
        cvxnn fit data.parquet --target label --drop id --jobs 2 --json
        cvxnn fit 'rows/*.parquet' --target label --cluster tcp://scheduler:8786
        torchrun --nproc-per-node 4 -m cvxnn fit 'rows/*.parquet' --target label
    """
    if options["alpha"] is not None:
        why = "is for cross-validation, and with --alpha there is none"
        refuse_unread(why, "folds", "rule", "ensemble", "jobs")
    elif options["checkpoint"] is not None:
        raise click.UsageError("--checkpoint needs --alpha: cross-validation cannot be continued.")
    if options["cluster"] is not None:
        why = "is for one process, and --cluster is for several"
        unread = "ensemble", "jobs", "checkpoint", "memory", "device", "components", "prove"
        refuse_unread(why, *unread)
    elif several():
        refuse_unread("is for one process, and torchrun has started several", "ensemble", "jobs")
    if options["patterns"] == GENERATE and options["checkpoint"] is not None:
        raise click.UsageError(
            "--checkpoint is for sampled patterns: rounds of generation cannot be continued."
        )
    if options["patterns"] != GENERATE:
        refuse_unread(f"is for --patterns {GENERATE}", "prove")
    if options["kind"] == "gated":
        refuse_unread("is for --model relu: gates are not all of the patterns", "prove")
    return "training.fit"


@main.command(short_help="Show what is in a model file.")
@MODEL
@SPEAKING
@runs
def info(options: Options) -> Action:
    """Show what MODEL is: its target and columns, how they become numbers, its scores and bounds.

    The bounds are those that the file claims; cvxnn certify checks them.

    \b
    Example:
        cvxnn info model.cvxnn
    """
    return "models.info"


@main.command(short_help="Predict the rows of a table.")
@MODEL
@DATA
@output(None, "The CSV file of predictions; printed unless given.", printable)
@click.option(
    "--keep",
    multiple=True,
    shell_complete=columns,
    help="Copy a column of DATA, such as a key, to the output. May be repeated.",
)
@SAFE_CSV
@READING
@SPEAKING
@runs
def predict(options: Options) -> Action:
    """Predict the rows of DATA, whose columns may be in any order.

    The predictions are a CSV table in the order of the rows: prediction, and for classes one
    column probability_<class> each. DATA may be -, the standard input.

    \b
    Examples:
        cvxnn predict model.cvxnn new.csv -o predictions.csv
        zcat new.csv.gz | cvxnn predict model.cvxnn - | head
    """
    return "models.predict"


@main.command(short_help="Train at many strengths of the penalty.")
@DATA
@output("path.csv", "The CSV file of the path.")
@LEARNING
@click.option(
    "--points",
    default=30,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of points on the path.",
)
@number("--eps", 1e-2, "The smallest alpha, relative to the largest one.", min=1e-12, max=1)
@number(
    "--max-seconds",
    None,
    "Time limit of the path; points that are done by then are kept, and the same command goes on.",
    min=1e-3,
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=picture,
    help="Draw the path to this file: .png, .pdf or .svg.",
)
@SAFE_CSV
@READING
@SPEAKING
@runs
def path(options: Options) -> Action:
    """Train at many strengths of the penalty, from the one where all neurons are zero down.

    Each point is certified. Until all points are done, those that are done are kept in a file
    beside the output: if the command is stopped, the same command continues from there.

    \b
    Examples:
        cvxnn path data.csv --target label
        cvxnn path data.csv --target label --points 50 --eps 1e-3 -o path.csv --plot path.png
    """
    return "training.path"


@main.command(short_help="Check the bounds of a model again.")
@MODEL
@DATA
@number(
    "--max-seconds",
    None,
    "Time limit of the check of a bound over all patterns; a check that is not finished by then "
    "confirms nothing.",
    min=1e-3,
)
@READING
@SPEAKING
@runs
def certify(options: Options) -> Action:
    """Check the bounds of MODEL again, on the DATA that it was trained on.

    The check shares no code with the solvers. It computes the objective of the network, and the
    lower bound that the dual point in the file proves for all networks with these patterns. If the
    model was trained with --prove and the file holds a proof over all ReLU networks of any width,
    that is checked as well, leaf by leaf, by code that shares nothing with the search for it.

    \b
    Examples:
        cvxnn certify model.cvxnn data.csv
        cvxnn certify model.cvxnn data.csv --max-seconds 60
    """
    return "models.certify"


@main.command(short_help="Solve again over the patterns of a model's network.")
@MODEL
@DATA
@output("improved.cvxnn", "The model file of the improved network.")
@patterns(0, "Number of patterns to sample in addition to those of the network.", least=0)
@number("--alpha", None, "Strength of the penalty; that of the model unless given.", min=1e-300)
@TOL
@number("--max-seconds", None, "Time limit; the best network until then is kept.", min=1e-3)
@seed("Seed for the sampled patterns.")
@READING
@SPEAKING
@runs
def improve(options: Options) -> Action:
    """Solve again over the patterns that the network of MODEL has on its training rows.

    The training objective never gets worse; how good the result is on other rows is not promised.

    \b
    Example:
        cvxnn improve model.cvxnn data.csv --patterns 1000 -o better.cvxnn
    """
    if options["n_patterns"] == 0:
        refuse_unread("is for sampled patterns, and --patterns asks for none", "seed")
    return "models.improve"


@main.command(short_help="Drop the neurons that a model can do without.")
@MODEL
@DATA
@output("pruned.cvxnn", "The model file of the pruned network.")
@READING
@SPEAKING
@runs
def prune(options: Options) -> Action:
    """Drop the neurons that MODEL can do without on the rows that it was trained on.

    Predictions stay the same on these rows, and the objective does not rise. Elsewhere predictions
    may change.

    \b
    Example:
        cvxnn prune model.cvxnn data.csv -o small.cvxnn
    """
    return "models.prune"


@main.command(short_help="Write a model's network as ONNX, PyTorch or safetensors.")
@MODEL
@output(None, "The file to write; its suffix is the format: .onnx, .pt2 or .safetensors.")
@click.option(
    "--dtype",
    type=click.Choice(["float64", "float32"]),
    default="float64",
    show_default=True,
    help="Type of the numbers in .onnx and .pt2 files.",
)
@click.option(
    "--features", is_flag=True, help="Write the network alone, which takes features, not columns."
)
@SPEAKING
@runs
def export(options: Options) -> Action:
    """Write MODEL for other programs.

    \b
    .onnx          for onnxruntime and others; with labels and probabilities for classes
    .pt2           for torch.export.load; with probabilities for classes
    .safetensors   the arrays of the network alone, as cvxnn.load reads them

    An .onnx file takes the columns of the table, an input for each: texts for categories, numbers,
    and days since 1970 for dates. A .pt2 file takes a matrix with a column for each, in which
    categories are their places. What is missing is filled in. The network alone, with --features
    and in .safetensors files, takes numbers as they are, and categories as columns of 0 and 1. The
    command prints what the file takes. Scaling is part of the network.

    \b
    Example:
        cvxnn export model.cvxnn -o model.onnx
    """
    suffix = Path(str(options["output"] or "")).suffix.lower()
    if suffix not in (".onnx", ".pt2", ".safetensors"):
        raise click.UsageError("-o needs a name that ends in .onnx, .pt2 or .safetensors")
    if suffix == ".safetensors":
        refuse_unread(
            "is for .onnx and .pt2; .safetensors holds what the model has", "dtype", "features"
        )
    return "models.export"


@main.command(short_help="Write a page about a model for the browser.")
@MODEL
@DATA
@output("report.html", "The page.")
@click.option("--title", help="Title of the page.")
@READING
@SPEAKING
@runs
def report(options: Options) -> Action:
    """Write a page for the browser: what is proven of MODEL, how good it is, what matters in it.

    DATA is the table that the model was trained on, or another one with the same columns. The page
    is a single file and needs no network.

    \b
    Example:
        cvxnn report model.cvxnn data.csv -o report.html
    """
    return "models.report"


@main.command(short_help="Train on data of scikit-learn, and show what is proven.")
@output("demo.png", "The picture of the convergence: .png, .pdf or .svg.", picture)
@click.option("--patterns", default=1000, show_default=True, type=click.IntRange(min=1))
@number("--lam", 3e-3, "Strength of the penalty.", min=0)
@number("--tol", 1e-6, "Relative duality gap at which training ends.", min=0)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**32 - 1))
def demo(output: Path, patterns: int, lam: float, tol: float, seed: int) -> None:
    """Train a gated ReLU network on the breast-cancer data and show what is proven about it.

    \b
    Example:
        cvxnn demo --lam 1e-2 -o convergence.png
    """
    from cvxnn.cli.demo import run

    run(output, n_patterns=patterns, lam=lam, tol=tol, seed=seed)


@main.command(short_help="Race the solvers.")
@data(required=False)
@click.option("--target", shell_complete=columns, help="The column to predict.")
@kind("The problem to solve.")
@patterns(200)
@number("--alpha", 1e-2, "Strength of the penalty.", min=1e-300)
@TOL
@number("--max-seconds", 30.0, "Time limit of each solver.", min=1e-3)
@SEED
@READING
@SPEAKING
@runs
def bench(options: Options) -> Action:
    """Race the solvers on DATA, or on the breast-cancer data of scikit-learn.

    \b
    Examples:
        cvxnn bench
        cvxnn bench data.csv --target label --model gated --alpha 1e-3
    """
    if options["data"] is None:
        refuse_unread("is for a file, and none was given", "target", "delimiter", "encoding")
    return "racing.bench"


@main.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, options and names of columns.

    \b
    Examples:
        eval "$(cvxnn completion bash)"                                    # in ~/.bashrc
        cvxnn completion fish > ~/.config/fish/completions/cvxnn.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(main, {}, "cvxnn", "_CVXNN_COMPLETE").source())
