"""The package as users install it: wheel and sdist, in environments outside of the checkout."""

from pathlib import Path

ROOT = Path(__file__).parents[3]
