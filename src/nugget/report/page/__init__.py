"""Pages: one HTML file with plots, tables and 3D structures that needs no network access.

A page consists of three kinds of plain data, all of which become JSON:

- `Structures` holds the 3D structures. `add(atoms, label, values)` returns the number of a
  structure; `values` are arrays per atom by name, by which atoms can be coloured.
- `Data` holds named columns of equal length, such as the evaluations of a search. Its `structures`
  assign a structure (or None) to each row. A click on a point or a row shows that structure.
- Sections, from top to bottom, are built by the functions of `sections`: `figures`, `text`, `plot`,
  `gallery`, `film`, `table`, `rows`, `bars`, `code`, `side_by_side`.

    from nugget.report.page import Data, Structures, column, page, sections

    structures = Structures()
    numbers = [structures.add(atoms, f"structure {k}") for k, atoms in enumerate(images)]
    columns = {
        "true": column(true, "label", "eV"),
        "predicted": column(predicted, "prediction", "eV"),
        "std": column(std, "σ", "eV"),
    }
    layers = [sections.diagonal(), sections.points("true", "predicted", error="std")]
    html = page(
        "Gold", [sections.plot("test", layers, title="Parity")],
        structures=structures, data=[Data("test", columns, numbers)],
    )

Texts are escaped and may contain anything. Numbers that are not finite are omitted.
"""

from __future__ import annotations

from nugget.report.page import sections
from nugget.report.page.document import Data, Structures, as_html, column, page, page_spec
from nugget.storage.files import write_atomically as write_page

__all__ = ["Data", "Structures", "as_html", "column", "page", "page_spec", "sections", "write_page"]
