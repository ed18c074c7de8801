"""`nugget info`: what a model file holds."""

from __future__ import annotations

from typing import Any

import typer

from nugget.cli._common import emit, facts
from nugget.cli._options import Json, ModelFile


def info(model: ModelFile, json: Json = False) -> None:
    """Show settings, training set, calibration and provenance of a model.

    [bold]Examples[/bold]

        nugget info au.model
        nugget info au.model --json
    """
    from nugget.modelfile.file import read_header

    header = read_header(model)
    if json:
        emit({"model": model, "bytes": model.stat().st_size, **header})
        return
    summary, origin = header["summary"], header["provenance"]
    facts(
        str(model),
        [
            ("descriptor", _call(header["descriptor"])),
            ("kernel", _call(header["kernel"])),
            ("inducing", _call(header["inducing"])),
            ("uncertainty", _call(header["uncertainty"])),
            ("noise", f"{header['noise']:g} eV/atom, forces {header['force_noise']:g} eV/Å"),
            ("prior", _prior(header["fitted_prior"])),
            ("seed", header["seed"]),
        ],
    )
    forces = {None: "where present", True: "yes", False: "no"}[header["use_forces"]]
    facts(
        "Fitted",
        [
            ("structures", summary["structures"]),
            ("atoms", summary["atoms"]),
            ("labels", summary["labels"]),
            ("forces", forces),
            ("stress", "yes" if header["use_stress"] else "no"),
            ("inducing points", summary["inducing_points"]),
            ("features", summary["features"]),
            ("jitter", f"{summary['jitter']:.1e}"),
            ("σ multiplied by", f"{summary['scale']:g}"),
        ],
    )
    if header.get("choices"):
        from nugget.cli._chosen import choice_rows

        facts("Chosen by the data", choice_rows(header["choices"]))
    calibration = header["calibration"]
    if calibration is None:
        typer.echo("Calibration: none yet (error bars are those of the settings above).")
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


def _prior(settings: dict[str, Any]) -> str:
    if "parts" in settings:
        return " + ".join(_prior(part) for part in settings["parts"])
    if settings["name"] == "species":
        return ", ".join(f"{symbol} {energy:.4f} eV" for symbol, energy in settings["energies"])
    return _call(settings)
