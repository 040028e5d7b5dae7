"""Leave Thebe out of the pages: Jupyter Book always loads it, and no page here runs code.

It would be fetched from another host, and its configuration comes twice when documents are read in
two goes, which is an error in the browser.
"""


def _is_thebe(asset) -> bool:
    return "thebe" in f"{asset.filename or ''} {asset.attributes.get('body', '')}".lower()


def _drop(app, pagename, templatename, context, doctree):
    for name in ("script_files", "css_files"):
        context[name] = [asset for asset in context.get(name, []) if not _is_thebe(asset)]


def setup(app):
    # Extensions add their own files in handlers of this event; this one comes after them.
    app.connect("html-page-context", _drop, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
