"""The web dashboard: pages, what lies beside them, and what they are told while they are open.

Face: `Overviews`, `page`; the routers of `routes`. Pages are whole without
scripts; scripts bring what is live, and plots. Nothing is loaded from elsewhere.
"""
