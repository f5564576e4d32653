"""Models of `benchmarks.models.torch_backend` in plain PyTorch, with random weights."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Tensor = torch.Tensor
Made = tuple[nn.Module, Tensor]
WIDTH, HEADS = 768, 12
"""Of BERT base and ViT-B."""
HIDDEN, INNER, HEAD = 4096, 11008, 128
"""Of LLaMA 7B."""
_BOTTLENECKS = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
_INVERTED = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
             (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip


def _convolution(
    ci: int,
    co: int,
    size: int,
    stride: int = 1,
    groups: int = 1,
    end: type[nn.Module] | None = None,
) -> list[nn.Module]:
    conv = nn.Conv2d(ci, co, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(co), *([] if end is None else [end()])]


class Residual(nn.Module):
    """The sum of a branch and a shortcut, and what follows it."""

    def __init__(
        self, branch: Sequence[nn.Module], shortcut: Sequence[nn.Module], end: nn.Module
    ) -> None:
        super().__init__()
        self.branch, self.shortcut = nn.Sequential(*branch), nn.Sequential(*shortcut)
        self.end = end

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both."""
        out: Tensor = self.end(self.branch(x) + self.shortcut(x))
        return out


def resnet50() -> Made:
    """ResNet-50 v1.5 in f32, channels last."""
    layers = [*_convolution(3, 64, 7, 2, end=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for width, count, first in _BOTTLENECKS:
        for block in range(count):
            stride = 1 if block else first
            branch = [
                *_convolution(channels, width, 1, end=nn.ReLU),
                *_convolution(width, width, 3, stride, end=nn.ReLU),
                *_convolution(width, 4 * width, 1),
            ]
            shortcut = [] if block else _convolution(channels, 4 * width, 1, stride)
            layers.append(Residual(branch, shortcut, nn.ReLU()))
            channels = 4 * width
    return _of_images(layers, channels)


def mobilenet_v2() -> Made:
    """MobileNetV2 in f32, channels last."""
    layers, channels = _convolution(3, 32, 3, 2, end=nn.ReLU6), 32
    for times, co, count, first in _INVERTED:
        for block in range(count):
            stride, inner = 1 if block else first, times * channels
            branch = [
                *([] if times == 1 else _convolution(channels, inner, 1, end=nn.ReLU6)),
                *_convolution(inner, inner, 3, stride, inner, end=nn.ReLU6),
                *_convolution(inner, co, 1),
            ]
            is_sum = stride == 1 and channels == co
            layers.extend([Residual(branch, (), nn.Identity())] if is_sum else branch)
            channels = co
    return _of_images([*layers, *_convolution(channels, 1280, 1, end=nn.ReLU6)], 1280)


def _of_images(layers: Sequence[nn.Module], channels: int) -> Made:
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))
    model = nn.Sequential(*layers, *head)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
        if isinstance(module, nn.BatchNorm2d):
            for values in (module.running_var, module.weight.data):
                values.uniform_(0.5, 1.0)
            for values in (module.running_mean, module.bias.data):
                values.normal_(0, 0.1)
    image = torch.randn(1, 3, 224, 224).to(memory_format=torch.channels_last)
    return model.to(memory_format=torch.channels_last), image


class Encoder(nn.Module):
    """A layer of a transformer, with norms behind the sums (BERT) or before the branches (ViT)."""

    def __init__(self, is_norm_first: bool) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.is_norm_first = is_norm_first

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens of the next layer."""
        for branch, norm in zip((self._attention, self._perceptron), self.norms, strict=True):
            x = x + branch(norm(x)) if self.is_norm_first else norm(x + branch(x))
        return x

    def _attention(self, x: Tensor) -> Tensor:
        parts = (of(x) for of in (self.query, self.key, self.value))
        heads = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in parts)
        mixed = functional.scaled_dot_product_attention(*heads)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    def _perceptron(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(functional.gelu(self.up(x)))
        return out


class Patches(nn.Module):
    """An image as tokens: patches of 16x16 pixels, a class token, and positions."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Conv2d(3, WIDTH, 16, 16)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, 197, WIDTH))

    def forward(self, image: Tensor) -> Tensor:
        """Return the tokens."""
        patches = self.project(image).flatten(2).transpose(1, 2)
        return torch.cat([self.token, patches], 1) + self.positions


class First(nn.Module):
    """The first token alone."""

    def forward(self, x: Tensor) -> Tensor:
        """Return it."""
        return x[:, 0]


def bert() -> Made:
    """BERT base in f32: 12 layers of 128 embedded tokens."""
    return nn.Sequential(*(Encoder(False) for _ in range(12))), torch.randn(1, 128, WIDTH)


def vit_b() -> Made:
    """ViT-B/16 in f32: 12 layers of 197 tokens."""
    head = (nn.LayerNorm(WIDTH), First(), nn.Linear(WIDTH, 1000))
    layers = (Encoder(True) for _ in range(12))
    return nn.Sequential(Patches(), *layers, *head), torch.randn(1, 3, 224, 224)


class Decoder(nn.Module):
    """A layer of LLaMA 7B: RMS norm, rotary embedding, causal attention, SwiGLU."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        linear = partial(nn.Linear, bias=False)
        self.query, self.key, self.value, self.out = (linear(HIDDEN, HIDDEN) for _ in range(4))
        self.gate, self.up = linear(HIDDEN, INNER), linear(HIDDEN, INNER)
        self.down = linear(INNER, HIDDEN)
        self.norms = nn.ModuleList([nn.RMSNorm(HIDDEN, 1e-5), nn.RMSNorm(HIDDEN, 1e-5)])
        angles = torch.arange(tokens)[:, None] * 1e4 ** (-torch.arange(0, HEAD, 2) / HEAD).repeat(2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens of the next layer."""
        y = self.norms[0](x)
        parts = (of(y) for of in (self.query, self.key, self.value))
        query, key, value = (one.unflatten(-1, (-1, HEAD)).transpose(1, 2) for one in parts)
        query, key = self._rotated(query), self._rotated(key)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        out: Tensor = x + self.down(functional.silu(self.gate(y)) * self.up(y))
        return out

    def _rotated(self, x: Tensor) -> Tensor:
        low, high = x.chunk(2, -1)
        return x * self.cos + torch.cat([-high, low], -1) * self.sin


def llama(tokens: int) -> Made:
    """Return a block of LLaMA 7B in bf16."""
    return Decoder(tokens).bfloat16(), torch.randn(1, tokens, HIDDEN).bfloat16()


MODELS: dict[str, Callable[[], Made]] = {
    "resnet50": resnet50,
    "mobilenet_v2": mobilenet_v2,
    "bert": bert,
    "vit_b": vit_b,
    **{f"llama_{tokens}": partial(llama, tokens) for tokens in (1, 16, 128)},
}


def made(name: str) -> tuple[Any, Tensor]:
    """Return a model and its input; the same at each call."""
    torch.manual_seed(0)
    model, given = MODELS[name]()
    return model.eval().requires_grad_(False), given
