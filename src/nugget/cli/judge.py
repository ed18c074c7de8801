"""`nugget judge`: how wrong a foundation model, or any other engine, is on labelled structures."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from typer import Option

from nugget.cli import _options as opt
from nugget.cli._console import Force, emit, progress, refuse_existing, show_verdict, table
from nugget.errors import NuggetError

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.potential.mean_choice import Errors, MeanChoice
    from nugget.potential.potential import Potential
    from nugget.report.judge_page import Judged


def judge(
    data: opt.DataFile,
    engine: str = Option(
        ..., "--engine", "-e", help="The engine to judge: sevennet, chgnet, gfn1-xtb, …"
    ),
    engine_option: list[str] | None = Option(
        None, "--option", metavar="KEY=VALUE", help="Option of that engine; repeat."
    ),
    index: opt.Index = ":",
    energy_key: opt.EnergyKey = None,
    forces_key: opt.ForcesKey = None,
    ask: str | None = Option(
        None,
        metavar="ENGINE",
        help="Label the most informative structures of DATA with this engine.",
    ),
    number: int = Option(10, "--number", "-n", min=5, help="Structures to label with --ask."),
    out: Path | None = Option(
        None, "--out", "-o", metavar="FILE", help="File for the structures labelled by --ask."
    ),
    preset: Literal["quick", "balanced", "accurate", "auto"] = Option(
        "balanced", help="Preset of the model that corrects the engine."
    ),
    html: Path | None = Option(
        None, help="A page: errors with and without correction, the worst in 3D.", metavar="FILE"
    ),
    seed: opt.RandomSeed = 0,
    threads: opt.Threads = 0,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Compare a foundation model with energies and forces of another method.

    [bold]Examples[/bold]

        nugget judge oxide.extxyz --engine sevennet
        nugget judge clusters.traj --engine chgnet --option model=r2scan
        nugget judge oxide.extxyz --engine sevennet --html sevennet.html
        nugget judge frames.traj --engine sevennet --ask gpaw -o asked.extxyz

    One energy per element is fitted first, because the zeros of energy differ. The table shows the
    errors of the engine alone, of models that correct it with different weights, and of a model
    without it. The errors of the models are leave-one-out errors. For the columns "groups", groups
    of similar structures are omitted together, which resembles structures of a new kind.

    With --ask, DATA needs no labels. The most informative structures are selected, labelled and
    written to FILE, as with `nugget select` and `nugget label`.
    """
    from nugget import set_threads
    from nugget.cli import _fit
    from nugget.potential.mean_choice import fit_with_mean
    from nugget.potential.mean_functions.base import MeanFunction
    from nugget.potential.mean_functions.foundation import engine_mean
    from nugget.potential.training import TrainingData
    from nugget.report.judge_page import judge_numbers, judge_verdict
    from nugget.structures.io import read_images, relabelled

    if html is not None:
        refuse_existing(html, force, inputs=(data,))
    set_threads(threads)
    mean = engine_mean(engine, tuple(_fit.given_options(engine_option).items()))
    images = read_images(data, index)
    if energy_key or forces_key:
        images = relabelled(images, energy_key, forces_key, None, None)
    if ask is not None:
        images = _asked(images, ask, number, out, data, seed, force, shown=not json)
    elif out is not None:
        raise NuggetError("--out is the file for structures that --ask labels; add --ask ENGINE.")
    _fit.check_energies(images)
    training = TrainingData.read(images, None, False)
    elements = sorted({symbol for atoms in images for symbol in atoms.symbols})
    with progress("Judging", not json) as step:
        tell = getattr(step, "phase", lambda name: None)

        fits: list[Potential] = []  # without the engine, with it, and with another weight

        def fitted(more: MeanFunction | None) -> Potential:
            settings = _fit.Settings(preset, elements, seed=seed, engine_mean=more)
            potential = _fit.make_potential(settings, images, training, None, tell)
            potential.fit_data(
                training, progress=step, calibrate="loo", choose_noise=True,
                choose_points=settings.points_are_free,
            )  # fmt: skip
            fits.append(potential)
            return potential

        potential, choice = fit_with_mean(engine, mean, fitted, training)
    judged = _judged(choice, images, str(data if out is None else out), fits, potential)
    if html is not None:
        from nugget.report.judge_page import judge_page
        from nugget.report.page import write_page

        words = ["nugget", "judge", judged.data, "--engine", engine, "--html", str(html)]
        words += [word for one in engine_option or [] for word in ("--option", one)]
        words += ["--preset", preset] if preset != "balanced" else []
        words += ["-i", index] if index != ":" and out is None else []
        write_page(html, judge_page(judged, shlex.join(words)))
    if json:
        emit(judge_numbers(judged))
        return
    _print(choice, len(images))
    verdict = judge_verdict(judged)
    show_verdict(verdict)
    for use in verdict.uses[:1]:
        _say(f"To {use.purpose}: {use.command}")
    if html is not None:
        _say(f"Written: {html}")


def _judged(
    choice: MeanChoice, images: list[Atoms], data: str, fits: list[Potential], chosen: Potential
) -> Judged:  # fmt: skip
    """Residuals of each structure: of the engine, of both models, and scores of the chosen one."""
    import numpy as np

    from nugget.gp.labels import ENERGY
    from nugget.report.judge_page import Judged

    plain, whole = fits[:2]
    regression = whole.fitted.regression  # its labels are what the engine does not explain
    energies = regression.kind == ENERGY
    corrected, without = (
        np.array([-one.energy for one in model.leave_one_out()]) for model in (whole, plain)
    )
    scores = np.asarray((chosen.calibration or {})["scores"]["energy"])
    alone = -regression.y[energies] / regression.count[energies]
    return Judged(choice, images, data, alone, corrected, without, scores)


def _say(text: str) -> None:
    import typer

    typer.echo(text)


def _asked(
    images: list[Atoms], ask: str, count: int, out: Path | None, data: Path, seed: int,
    force: bool, shown: bool,
) -> list[Atoms]:  # fmt: skip
    """The most telling structures, with labels of the engine `ask`."""
    from nugget.cli._console import engine_config
    from nugget.dataset.labelling import directory_of, label
    from nugget.dataset.selection import select
    from nugget.structures.io import read_images

    if out is None:
        raise NuggetError("--ask writes its labels to a file: add --out FILE.")
    refuse_existing(out, force or directory_of(out).is_dir(), inputs=(data,))
    if count > len(images):
        raise NuggetError(f"DATA holds {len(images)} structures; choose a smaller --number.")
    bare = [atoms.copy() for atoms in images]
    chosen = [bare[one.index] for one in select(bare, count, seed=seed).choices]
    with progress("Labelling", shown) as step:
        report = label(chosen, engine_config(ask, []), out, progress=step)
    for failure in report.failures:
        _say(f"{ask} failed on {failure.formula}: {failure.reason}")
    if not report.labelled:
        raise NuggetError(f"{ask} gave no label; try `nugget engines --try {ask}`.")
    return read_images(out)


def _print(choice: MeanChoice, structures: int) -> None:
    rows: list[tuple[object, ...]] = [
        (f"{choice.engine} alone", *_numbers(choice.alone), "", ""),
    ]
    for one in choice.trials:
        name = "without it" if one.weight == 0.0 else f"weight {one.weight:g}"
        mark = " *" if one.weight == choice.weight else ""
        rows.append((name + mark, *_numbers(one.leave_one_out), *_numbers(one.leave_group_out)))
    columns = ("", "meV/atom", "eV/Å", "groups: meV/atom", "eV/Å")
    table(f"Errors of {choice.engine} on {structures} structures (*: chosen)", columns, rows)


def _numbers(errors: Errors) -> tuple[str, str]:
    from nugget.report.judge_page import energy_text

    force = "–" if errors.force != errors.force else f"{errors.force:.3g}"
    return energy_text(errors).removesuffix(" meV/atom"), force
