"""A committed bench report as a roofline picture.

    python -m benchmarks.peers.roofline benchmarks/data/results/square.json docs/square.svg

`tilewise bench --plot` draws the same while it measures.
"""

from benchmarks.pictures import picture
from tilewise.plots import roofline_of_report

if __name__ == "__main__":
    picture(__doc__, roofline_of_report)
