"""What a fit chose by data, as lines of tables."""

from __future__ import annotations

from typing import Any

_UNITS = {"energy": ("meV/atom", 1e3), "force": ("eV/Å", 1.0), "stress": ("meV/Å³", 1e3)}


def choice_rows(choices: dict[str, Any] | None) -> list[tuple[str, object]]:
    """Preset, range and noise levels, with the errors that decided."""
    known = choices or {}
    rows: list[tuple[str, object]] = [(n, known[n]) for n in ("preset", "range") if n in known]
    for name, (energy, force) in known.get("left_out_mae", {}).items():
        forces = "" if force != force else f", {force:.3g} eV/Å"
        rows.append((f"tried {name}", f"{1e3 * energy:.3g} meV/atom{forces}"))
    if "noise" in known:
        rows.append(("noise", f"{known['noise']:.3g} eV/atom, {known['force_noise']:.3g} eV/Å"))
    if "log_marginal_likelihood" in known:
        rows.append(("log marginal likelihood", f"{known['log_marginal_likelihood']:.4g}"))
        rows.append(("length scale", f"{known['length_scale']:.4g}"))
        rows.append(("amplitude", f"{known['amplitude']:.4g} eV²"))
    return rows


def left_out_rows(calibration: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Errors and shares within the error bars of what was left out, one line per kind of label."""
    rows = []
    for name, error in calibration.get("mae", {}).items():
        unit, factor = _UNITS[name]
        one, two = calibration["within"][name]
        rows.append((name, f"{factor * error:.4g}", unit, f"{one:.0%}", f"{two:.0%}"))
    return rows
