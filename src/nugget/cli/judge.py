"""`nugget judge`: how wrong a foundation model, or any other engine, is on labelled structures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Option

from nugget.cli import _options as opt
from nugget.cli._console import Force, emit, progress, refuse_existing, show_verdict, table
from nugget.errors import NuggetError

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.potential.mean_choice import Errors, MeanChoice
    from nugget.report.verdict import Verdict


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
    seed: opt.RandomSeed = 0,
    threads: opt.Threads = 0,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Compare a foundation model with energies and forces of another method.

    [bold]Examples[/bold]

        nugget judge oxide.extxyz --engine sevennet
        nugget judge clusters.traj --engine chgnet --option model=r2scan
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
    from nugget.potential.potential import Potential
    from nugget.potential.training import TrainingData
    from nugget.structures.io import read_images, relabelled

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

        def fitted(more: MeanFunction | None) -> Potential:
            settings = _fit.Settings(preset, elements, seed=seed, engine_mean=more)
            potential = _fit.make_potential(settings, images, training, None, tell)
            return potential.fit_data(
                training, progress=step, calibrate="loo", choose_noise=True,
                choose_points=settings.points_are_free,
            )  # fmt: skip

        potential, choice = fit_with_mean(engine, mean, fitted, training)
    z = _rms_z(potential)
    verdict = judgement(choice, len(images), str(data if out is None else out), z)
    if json:
        emit(
            {
                "data": data,
                "structures": len(images),
                **choice.record(),
                "rms_z": z,
                "verdict": verdict.to_dict(),
            }
        )
        return
    _print(choice, len(images))
    show_verdict(verdict)
    for use in verdict.uses:
        _say(f"{use.purpose}: {use.command}")


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


def _rms_z(potential: Any) -> float:
    """The rms of leave-one-out errors of energies over their calibrated σ."""
    import numpy as np

    scores = np.asarray(potential.calibration["scores"]["energy"])
    return float(np.sqrt(np.mean(scores**2)))


def judgement(choice: MeanChoice, structures: int, data: str, z: float) -> Verdict:
    """What the errors mean for the user."""
    from nugget.report.verdict import MODEL_ERROR, Badge, Use, Verdict, calibration_badge, graded

    name = choice.engine
    without, corrected, chosen = (
        one.leave_one_out for one in (choice.without, choice.corrected, choice.chosen)
    )
    sentences = [
        f"{name} is wrong by {_text(choice.alone)} on these {structures} structures.",
        f"Corrected by a model of them it is wrong by {_text(corrected)}, and a model without "
        f"{name} by {_text(without)} (leave-one-out).",
    ]
    use = "nugget fit"
    if choice.weight == 0.0:
        sentences.append(f"The model is better without {name}.")
        command = f"{use} {data} -o my.model"
    else:
        new, old = (1e3 * one.leave_group_out.energy for one in (choice.chosen, choice.without))
        sentences.append(
            f"The best model uses {name} with weight {choice.weight:g}: {_text(chosen)}. For "
            f"groups of similar structures that are omitted together its error is {new:.3g} "
            f"meV/atom instead of {old:.3g} without {name}."
        )
        command = f"{use} {data} -o my.model --mean {name}"
    badge = Badge(
        f"{name} alone", _text(choice.alone), graded(choice.alone.energy, MODEL_ERROR),
        f"good up to {1e3 * MODEL_ERROR[0]:g}, bad above {1e3 * MODEL_ERROR[1]:g} meV/atom",
    )  # fmt: skip
    badges = (badge, calibration_badge(z, structures, ""))
    return Verdict(tuple(sentences), badges, (Use("To fit the model", command),))


def _text(errors: Errors) -> str:
    force = "" if errors.force != errors.force else f" and {errors.force:.2g} eV/Å"
    error = f"{1e3 * errors.energy:.3g} ± {1e3 * errors.energy_error:.2g}"
    return f"{error} meV/atom{force}"


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
    force = "–" if errors.force != errors.force else f"{errors.force:.3g}"
    return f"{1e3 * errors.energy:.3g} ± {1e3 * errors.energy_error:.2g}", force
