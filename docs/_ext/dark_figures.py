"""Figures for both themes: on dark pages `name_dark.png` (or `-dark`) replaces `name.png`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.transforms import SphinxTransform


class DarkFigures(SphinxTransform):
    """Puts the dark version of a figure beside the light one; the theme shows one of them."""

    default_priority = 200  # before Sphinx collects the files of all images

    def apply(self, **kwargs: Any) -> None:
        page = Path(self.env.doc2path(self.env.docname)).parent
        for image in list(self.document.findall(nodes.image)):
            light = Path(image["uri"])
            names = (f"{light.stem}{join}dark{light.suffix}" for join in "_-")
            for dark in (light.with_name(name) for name in names):
                if not (page / dark).exists():
                    continue
                twin = image.deepcopy()
                twin["uri"] = str(dark)
                image["classes"].append("only-light")
                twin["classes"].append("only-dark")
                image.parent.insert(image.parent.index(image) + 1, twin)
                break


def setup(app: Any) -> dict[str, bool]:
    app.add_transform(DarkFigures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
