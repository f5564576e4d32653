"""The paths of the dashboard: pages, plots, forms, and what lies beside them.

Face: one `router` of each module.
"""
