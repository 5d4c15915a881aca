"""The built site, if there is one (`make docs`): it works without a network."""

import re

import pytest

from tests.docs.pages import ROOT

SITE = ROOT / "site"
LOADED = re.compile(r"""<(?:script|img|link|iframe|source)\b[^>]*\b(?:src|href)=["'](?:https?:)?//[^"']*["']""")
FETCHED = re.compile(r"""(?:@import|url\()\s*["']?(?:https?:)?//""")


@pytest.mark.docs
@pytest.mark.skipif(not (SITE / "index.html").exists(), reason="the site is not built; make docs builds it")
def test_nothing_is_loaded_from_elsewhere():
    """Links for people may lead elsewhere; scripts, styles, fonts and pictures may not."""
    pages = sorted(SITE.glob("**/*.html"))
    assert len(pages) > 50
    for page in pages:
        assert not LOADED.search(page.read_text()), f"{page.relative_to(SITE)} loads {LOADED.search(page.read_text())}"
    for style in SITE.glob("**/*.css"):
        assert not FETCHED.search(style.read_text()), f"{style.relative_to(SITE)} fetches from elsewhere"


def test_what_would_be_loaded_is_found():
    assert LOADED.search('<script src="https://cdn.example/x.js">')
    assert LOADED.search('<link rel="stylesheet" href="//fonts.example/x.css">')
    assert not LOADED.search('<a href="https://example.org">elsewhere</a>')
    assert not LOADED.search('<img src="../_images/demo.svg">')
