"""What is drawn: Vega-Lite specifications made of the API's JSON, and the drawing of a loop nest.

The same specification is drawn in a page, in a file and in a notebook. The modules here load
nothing heavy; `drawing` loads the renderer, `importance` loads Optuna, both when they are called.
"""
