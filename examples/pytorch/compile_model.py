"""A small residual network with tuned kernels: python compile_model.py [--trials N] [--size N]."""

import argparse

import torch
from torch import nn

import tilewise.torch


class Block(nn.Module):
    """Two convolutions and what they add to."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the image and what the block adds, without negative values."""
        return torch.relu(image + self.second(torch.relu(self.norm(self.first(image)))))


def main() -> None:
    """Compile the network, compare it with PyTorch in f64, and print what was used."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--size", type=int, default=56)
    given = parser.parse_args()
    torch.manual_seed(0)
    pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    model = nn.Sequential(Block(64), pooled).eval().to(memory_format=torch.channels_last)
    image = torch.randn(1, 64, given.size, given.size).to(memory_format=torch.channels_last)

    print(*tilewise.torch.problems(model, image), sep="\n")
    fast = torch.compile(model, backend="tilewise", options={"trials": given.trials})
    with torch.no_grad():
        found = fast(image).double()
        expected = model.double()(image.double())
    print(f"error {(found - expected).norm() / expected.norm():.1e} of the norm")
    model.float()
    tilewise.torch.report(model)


if __name__ == "__main__":
    main()
