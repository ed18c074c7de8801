"""The calibration figure says what the metrics say."""

import io

import numpy as np
import pytest

from nugget.calibration import Residuals, calibration_error, ence
from nugget.errors import NuggetError
from nugget.report.figures import calibration_figure


def residuals(factor=1.0, n=200):
    rng = np.random.default_rng(1)
    std = rng.uniform(0.005, 0.05, n)
    pred = rng.normal(-2.0, 0.2, n)
    return Residuals(pred + factor * std * rng.normal(size=n), pred, std, np.full(n, 10))


@pytest.mark.parametrize(("number", "panels"), [(1, 3), (2, 4), (3, 4)])
def test_panels_and_numbers(number, panels):
    models = {f"model {k}": residuals(1.0 + k) for k in range(number)}
    figure = calibration_figure(models, np.random.default_rng(0), shown=30)
    assert len(figure.axes) == panels
    curves, bins = figure.axes[-2:]
    for name, found in models.items():
        data = (found.y_true, found.y_pred, found.y_std)
        labels = [text.get_text() for text in curves.get_legend().get_texts()]
        assert f"{name}, CE {calibration_error(*data):.3f}" in labels
        labels = [text.get_text() for text in bins.get_legend().get_texts()]
        assert f"{name}, ENCE {ence(*data):.2f}" in labels
    bars = figure.axes[0].containers[0]
    assert len(bars.lines[0].get_xdata()) == 30
    if number > 1:
        assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
        low, high = figure.axes[0].get_ylim()
        shown = bars.lines[2][0].get_segments()
        assert all(low <= segment[0, 1] and segment[1, 1] <= high for segment in shown)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    assert file.getbuffer().nbytes > 10_000


def test_nothing_to_draw():
    with pytest.raises(NuggetError, match="nothing to draw"):
        calibration_figure({}, np.random.default_rng(0))
