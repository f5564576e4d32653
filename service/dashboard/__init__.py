"""The web dashboard: pages, the files that they load, and what open pages are sent.

Public: `Overviews`, `page`; the routers. Pages are whole without scripts; scripts add what is live,
and plots. Nothing is loaded from elsewhere.
"""
