"""A maker of plans that writes its number into the file that its order names, and sleeps."""

import os
import sys
import time
from pathlib import Path

from tilewise.service.cluster.task import ORDER

if __name__ == "__main__":
    Path((Path(sys.argv[1]) / ORDER).read_text()).write_text(str(os.getpid()))
    time.sleep(600)
