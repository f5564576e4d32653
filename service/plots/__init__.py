"""Plots: Vega-Lite specifications from the API's JSON, and drawings of loop nests.

The same specification is drawn in a page, in a file and in a notebook. The modules here load
nothing heavy; `drawing` loads the renderer when it is called.
"""
