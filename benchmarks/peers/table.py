"""The comparison as Markdown."""

from __future__ import annotations

from typing import Any

NAMES = {
    "agox": "AGOX",
    "ensemble": "ours, K = 10",
    "exact": "ours, exact committee",
    "projected": "ours, environments",
    "projected-structures": "ours, structures",
}
TITLES = {"ensemble": "Label-noise ensemble", "projected": "Projected process"}


def markdown(results: dict[str, Any]) -> str:
    lines = [
        f"{results['processor']}, one thread; load average {results['load'][0]:.1f} at the start, "
        f"{results['load'][1]:.1f} at the end. Processor time of one piece of work, median "
        "(range; none where it ran once); × is AGOX's time over ours in the same round, by "
        "processor time, and in square brackets by wall time. "
        + "; ".join(
            ", ".join(f"{name} {version}" for name, version in found.items())
            for found in results["versions"].values()
        ),
    ]
    for model, title in TITLES.items():
        part = results[model]
        lines += ["", f"### {title}", ""]
        own = [name for name in next(iter(part["training n"].values())) if name != "agox"]
        lines += _head(["work", "AGOX", *(f"{NAMES[name]}" for name in own)])
        for n, row in part["training n"].items():
            lines.append(_row(f"training, {n} structures, m = {row['agox']['m']}", row))
        for m, row in part["training m"].items():
            lines.append(_row(f"training, 200 structures, m = {m}", row))
        for count in (1, 50):
            for what, row in part[f"predict {count}"].items():
                lines.append(_row(f"{what} of {count}", row))
        if "predict 1, m = 2000" in part:
            lines.append(_row("E, F, σ, ∇σ of 1, m = 2000", part["predict 1, m = 2000"]))
        lines.append(_row("LCB relaxation, 1 structure, per 200 evaluations", _per(part, 200)))
        lines.append(
            _row("LCB relaxation in a batch of 30, each per 200 evaluations", _batch(part, 200))
        )
        lines.append(_row("3 structures relaxed to 0.05 eV/Å", part["relax to 0.05"]))
        lines.append(_row("search iteration (10 candidates, 100 steps)", part["iteration"]))
    lines += ["", "### Memory and start", "", *_head(["what", "value"])]
    lines += [f"| peak memory, {name} | {mb:.0f} MB |" for name, mb in results["memory MB"].items()]
    for name, found in results["start"].items():
        lines.append(f"| {name} | {found['cpu']:.2f} s cpu, {found['wall']:.2f} s wall |")
    lines += [
        "",
        "### Agreement on the same inducing points",
        "",
        "Largest difference over 10 structures, between the codes and of each from the same "
        "equations in 50 digits (for σ: from AGOX's own equation, with its jitter, by QR).",
        "",
    ]
    lines += _head(
        ["m", "cond K_mm", "E: apart, eV", "AGOX − exact", "ours − exact",
         "F: apart, eV/Å", "AGOX − exact", "ours − exact", "σ: apart", "AGOX − QR"]
    )  # fmt: skip
    for row in results["agreement"]:
        cells = [str(row["m"]), f"{row['condition']:.0e}"]
        for what in ("energy", "forces"):
            names = (what, f"{what}_peer_exact", f"{what}_own_exact")
            cells += [f"{row[name]:.0e}" if name in row else "" for name in names]
        cells += [f"{row['sigma']:.0e}", f"{row['sigma_peer_qr']:.0e}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _head(cells: list[str]) -> list[str]:
    return ["| " + " | ".join(cells) + " |", "|" + "---|" * len(cells)]


def _row(name: str, row: dict[str, Any]) -> str:
    cells = [_time(row["agox"]["cpu"])]
    for own, found in row.items():
        if own == "agox":
            continue
        cpu, wall = (_ratio(found[clock]["ratio"]) for clock in ("cpu", "wall"))
        cells.append(f"{_time(found['cpu'])} **{cpu}×** [{wall}×]")
    return f"| {name} | " + " | ".join(cells) + " |"


def _ratio(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _time(clock: dict[str, Any]) -> str:
    low, high = clock["range"]
    scale, unit = (1.0, "s") if clock["median"] >= 1.0 else (1e3, "ms")
    if low == high:
        return f"{scale * low:.3g} {unit}"
    return f"{scale * clock['median']:.3g} ({scale * low:.3g} to {scale * high:.3g}) {unit}"


def _scaled(found: dict[str, Any], factor: float, peer: dict[str, Any] | None) -> dict[str, Any]:
    """Times multiplied by a factor; the ratio is that of medians to the peer's."""
    out: dict[str, Any] = {}
    for clock in ("cpu", "wall"):
        median = factor * found[clock]["median"]
        out[clock] = {
            "median": median,
            "range": [factor * value for value in found[clock]["range"]],
            "ratio": 1.0 if peer is None else peer[clock]["median"] / median,
        }
    return out


def _per(part: dict[str, Any], evaluations: int) -> dict[str, Any]:
    row, out = part["relax 1"], {}
    for name, found in row.items():
        out[name] = _scaled(found, evaluations / found["evaluations"], out.get("agox"))
    return out


def _batch(part: dict[str, Any], evaluations: int) -> dict[str, Any]:
    out = {"agox": _per(part, evaluations)["agox"]}
    for name, found in part["relax 30"].items():
        out[name] = _scaled(found, evaluations / found["evaluations"], out["agox"])
    return out
