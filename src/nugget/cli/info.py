"""`nugget info`: the contents of a model file."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nugget.cli._console import emit, facts
from nugget.cli._options import Json, ModelFile

_PARTS = ("descriptor", "kernel", "inducing", "uncertainty")


def info(
    model: ModelFile,
    card: Annotated[
        bool, typer.Option("--card", help="Print a model card in Markdown, to go with the file.")
    ] = False,
    json: Json = False,
) -> None:
    """Show settings, training set, calibration and provenance of a model.

    [bold]Examples[/bold]

        nugget info au.model
        nugget info au.model --json
        nugget info au.model --card > au.md
    """
    if card:
        from nugget.potential.model_calculator import model_card

        typer.echo(model_card(model), nl=False)
        return
    from nugget.potential.model_file import read_header

    header = read_header(model)
    if json:
        emit({"model": model, "bytes": model.stat().st_size, **header})
        return
    summary, origin = header["summary"], header["provenance"]
    facts(
        str(model),
        [
            *((part, _call(header[part])) for part in _PARTS),
            ("noise", f"{header['noise']:g} eV/atom, forces {header['force_noise']:g} eV/Å"),
            ("mean function", _mean_function(header["fitted_prior"])),
            ("seed", header["seed"]),
        ],
    )
    forces = {None: "where present", True: "yes", False: "no"}[header["use_forces"]]
    facts(
        "Fitted",
        [
            *((name, summary[name]) for name in ("structures", "atoms", "labels")),
            ("forces", forces),
            ("stress", "yes" if header["use_stress"] else "no"),
            ("inducing points", summary["inducing_points"]),
            ("features", summary["features"]),
            ("jitter", f"{summary['jitter']:.1e}"),
            ("σ multiplied by", f"{summary['scale']:g}"),
        ],
    )
    if header.get("choices"):
        from nugget.cli._fit import choice_rows

        facts("Chosen by the data", choice_rows(header["choices"]))
    calibration = header["calibration"]
    if calibration is None:
        typer.echo("Calibration: none (error bars follow from the settings above).")
    else:
        facts("Calibration", [(k, _text(v)) for k, v in calibration.items() if k != "scores"])
    facts("Provenance", [("format", header["version"]), *((k, v) for k, v in origin.items())])


def _text(value: Any) -> str:
    """Numbers, lists and tables of a calibration, short enough for a line."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items())
    if isinstance(value, list):
        return " … ".join(_text(v) for v in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _call(settings: dict[str, Any]) -> str:
    inside = ", ".join(f"{k}={_short(v)}" for k, v in settings.items() if k != "name")
    return f"{settings['name']}({inside})"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return _call(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(map(_short, value)) if isinstance(value, list) else str(value)


def _mean_function(settings: dict[str, Any]) -> str:
    if "parts" in settings:
        return " + ".join(_mean_function(part) for part in settings["parts"])
    if settings["name"] == "species":
        return ", ".join(f"{symbol} {energy:.4f} eV" for symbol, energy in settings["energies"])
    return _call(settings)
