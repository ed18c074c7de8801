"""What a search and its result tell about themselves is true."""

from nugget.search import Search, make_config


def test_search_and_result(tmp_path):
    config = make_config(
        {
            "system": {"formula": "Au4"},
            "engine": {"name": "emt"},
            "search": {"budget": 3, "polish": 1, "candidates": 2},
        }
    )
    place = tmp_path / "<b>run</b>"
    search = Search.create(config, place)
    assert repr(search) == f"<Search: Au4 with emt, 0 of 3 evaluations, in {place}>"
    result = search.run()
    lowest = min(record.energy for record in search.store.records() if record.ok)
    assert f"3 of 3 evaluations, lowest evaluated {lowest:.4f} eV" in repr(search)
    assert "<b>" not in search._repr_html_()
    assert "&lt;b&gt;run&lt;/b&gt;" in search._repr_html_()
    minimum = result.minima[0]
    lowest = f"lowest minimum {minimum.energy:.4f} eV"
    assert repr(result) == f"<Result: finished after 3 evaluations, {lowest}, in {place}>"
    html = result._repr_html_()
    assert f">{minimum.energy:.4f}<" in html
    assert f">{minimum.point_group}<" in html
    (place / "search.db").write_text("no database")
    assert "search.db" in repr(search)  # an error is told, not raised
