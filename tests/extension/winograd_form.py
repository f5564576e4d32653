"""An algorithm: Winograd's form of Strassen's product, of 15 additions."""

from dataclasses import dataclass
from typing import ClassVar

from tilewise.kernels.fast_algorithms import BilinearAlgorithm, signs
from tilewise.kernels.steps import Strassen


@dataclass(frozen=True)
class WinogradForm(Strassen):
    """Compute a product of matrices from seven products of their blocks, by longer sums."""

    name: ClassVar[str] = "winograd_form"
    choices: ClassVar[tuple[str, ...]] = ()
    matrices: ClassVar[BilinearAlgorithm] = BilinearAlgorithm(
        image=signs("+...", ".+..", "++--", "...+", "..++", "-.++", "+.-."),
        filter=signs("+...", "..+.", "...+", "+--+", "-+..", "+-.+", ".-.+"),
        result=signs("++.....", "+.+.++.", "+..-.++", "+...+++"),
    )
