"""Pictures of report pages, light and dark, from the directories in which tutorials were run.

python docs/images/screens.py PAGES [--browser chromium]

PAGES is the directory that docs/images/make.py reads. A page that was not run is skipped.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
WIDTH = 1280
#: Name of the picture: the page of a run, and the height that is shown.
SCREENS = {
    "report": ("au20/report.html", 1180),
    "page-search": ("first_search/au13/report.html", 1180),
    "page-slab": ("adsorbate/adsorbate/report.html", 1180),
    "page-alloy": ("alloy/alloy/report.html", 1180),
    "page-silicon": ("crystal/silicon/report.html", 1180),
    "page-hull": ("compositions/hull/report.html", 1180),
    "page-md": ("dynamics/md/report.html", 1180),
    "page-path": ("barrier/path/report.html", 1180),
    "page-campaign": ("campaign/kappas/report.html", 1180),
    "page-model": ("fit_a_model/model.html", 1180),
    "page-saddle": ("saddle/ts/report.html", 1180),
    "page-ways": ("saddle/ways/report.html", 1180),
    "page-select": ("select_label_fit/model.html", 1180),
    "page-foundation": ("foundation_models/corrected.html", 1180),
    "page-overlayer": ("overlayer/overlayer/report.html", 1180),
}
DARK = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0")


def picture(browser: str, page: Path, height: int, target: Path, dark: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "page.png"
        command = [browser, "--headless=new", "--no-sandbox", "--hide-scrollbars"]
        command += ["--virtual-time-budget=8000", f"--window-size={WIDTH},{height}"]
        command += [f"--screenshot={raw}", *(DARK if dark else ()), page.resolve().as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        # A palette of 192 colours makes the file three times smaller.
        Image.open(raw).convert("RGB").quantize(192).save(target, optimize=True)
    print(f"Written: {target}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path, help="directories of the tutorials")
    parser.add_argument("--browser", default="chromium")
    parser.add_argument("--only", default="", help="names of pictures, separated by commas")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else list(SCREENS)
    for name in names:
        page, height = SCREENS[name]
        if (given.pages / page).exists():
            for dark, ending in ((False, ""), (True, "_dark")):
                target = HERE / f"{name}{ending}.png"
                picture(given.browser, given.pages / page, height, target, dark)


if __name__ == "__main__":
    main()
