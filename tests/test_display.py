"""Objects show themselves in one line and in a table, and nothing in them becomes HTML."""

from html.parser import HTMLParser

import pytest

from nugget.display import Contents, Shown, counted, spread

HOSTILE = "<script>alert('x')</script>&\"><img src=x onerror=alert(1)>"


class Page(HTMLParser):
    """Tags and text of a piece of HTML; every tag must be closed."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.text = [], [], []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)
        assert all(name == "style" for name, _ in attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


class Thing(Shown):
    def __init__(self, contents):
        self._contents = contents

    def contents(self):
        return self._contents


def test_a_line_and_a_table():
    thing = Thing(Contents("Thing", ["one", "two"], {"name": "value"}, ["a"], [["1"], ["2"]]))
    assert repr(thing) == "<Thing: one, two>"
    page = Page(thing._repr_html_())
    assert page.tags.count("tr") == 4
    assert page.text == ["Thing", " one, two", "name", "value", "a", "1", "2"]


def test_hostile_words_stay_words():
    contents = Contents(HOSTILE, [HOSTILE], {HOSTILE: HOSTILE}, [HOSTILE], [[HOSTILE]])
    page = Page(Thing(contents)._repr_html_())
    assert set(page.tags) <= {"div", "strong", "table", "tr", "td", "th"}
    assert page.text.count(HOSTILE) == 5
    assert page.text[1] == f" {HOSTILE}"


def test_long_tables_are_cut():
    thing = Thing(Contents("Thing", [], {}, ["n"], [[str(n)] for n in range(100)]))
    page = Page(thing._repr_html_())
    assert page.tags.count("tr") == 13
    assert page.text[-1] == "… and 88 more"


@pytest.mark.parametrize(("n", "text"), [(0, "0 atoms"), (1, "1 atom"), (2, "2 atoms")])
def test_counted(n, text):
    assert counted(n, "atom") == text


def test_spread():
    assert spread([1.0, 1.0]) == "1.000"
    assert spread([2.0, 1.0], ".1f") == "1.0 to 2.0"
