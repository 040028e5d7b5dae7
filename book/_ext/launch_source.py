"""Point launch buttons of executed pages at the source notebook they were made from.

A page lives at ``executed/<model>/<notebook>``, which is a build product: a launch button made
from that path would open a file that is in no repository.
"""

import re
from urllib.parse import urlsplit

EXECUTED = re.compile(r"executed/[^/]+/(?=[^/]+\.ipynb)")


def _to_source(buttons):
    for button in buttons:
        # The download button serves the executed copy itself, by a relative path.
        if urlsplit(button.get("url", "")).scheme:
            button["url"] = EXECUTED.sub("notebooks/", button["url"])
        _to_source(button.get("buttons", []))


def _rewrite(app, pagename, templatename, context, doctree):
    if pagename.startswith("executed/"):
        _to_source(context.get("header_buttons", []))


def setup(app):
    # sphinx-book-theme makes its buttons at priority 501; they must be there to be rewritten.
    app.connect("html-page-context", _rewrite, priority=502)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
