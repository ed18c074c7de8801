"""Pages: one HTML file with plots, tables and structures in 3D, without a request to anywhere.

A page is made of three kinds of plain data, all of which become JSON:

- `Structures`: what can be looked at in 3D. `add(atoms, label, values)` gives the number of a
  structure; `values` are numbers per atom by name, with which atoms can be coloured.
- `Data`: named columns of equal length, such as the evaluations of a search. `structures` of a
  `Data` says which structure each row belongs to (None: none). Whoever clicks a point or a row
  sees that structure in the inspector.
- sections: what stands on the page, from top to bottom, made by the functions of `sections`:
  `figures`, `text`, `plot`, `gallery`, `film`, `table`, `rows`, `bars`, `code`, `side_by_side`.

    from nugget.report.page import Data, Structures, page, sections

    structures = Structures()
    rows = [structures.add(atoms, f"structure {k}") for k, atoms in enumerate(images)]
    test = Data("test", {"true": column(e, "E of the engine", "eV"), ...}, rows)
    html = page(
        "Gold", [sections.plot("test", [sections.points("true", "predicted", error="std")],
                               title="Parity", lines=[sections.diagonal()])],
        structures=structures, data=[test],
    )

Text may hold anything: it is shown as text. Numbers that are not finite are left out.
"""

from nugget.report.page import sections
from nugget.report.page.data import Data, column
from nugget.report.page.document import page, write_page
from nugget.report.page.structures import Structures

__all__ = ["Data", "Structures", "column", "page", "sections", "write_page"]
