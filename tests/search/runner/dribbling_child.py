"""A child whose answer goes on and on, and never ends."""

import sys
import time

if __name__ == "__main__":
    sys.stdin.readline()
    print("{}", flush=True)
    sys.stdin.readline()
    while True:
        print(".", end="", flush=True)
        time.sleep(0.001)
