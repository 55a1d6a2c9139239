"""The networks of the papers: a two-layer MLP, LeNet-5, ResNet-18 and ResNet-50.

Layers carry torchvision's names, so that its published weights load and the papers' "last block and fc layer" is
`layer4` and `fc`. Nothing works in place, so that every model can be mapped over stacked parameters.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from nqm.check import choice, fail, integer

MODELS = ("mlp", "lenet5", "resnet18", "resnet50")
NORMS = ("batch", "group")
STEMS = ("cifar", "imagenet")
GROUPS = 32  # of GroupNorm; every width of a ResNet is a multiple


class MLP(nn.Module):
    """Two layers of weights with a ReLU between. The papers leave the width open; 200 is that of the first FedAvg."""

    def __init__(self, shape: tuple[int, int, int], classes: int, hidden: int = 200) -> None:
        super().__init__()
        channels, height, width = shape
        self.fc1 = nn.Linear(channels * height * width, hidden)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(relu(self.fc1(x.flatten(1))))


class LeNet5(nn.Module):
    """LeNet-5 with ReLU and max-pooling, convolutions without padding: 61,706 parameters for 1x32x32 and ten
    classes, 44,426 for 1x28x28."""

    SMALLEST = 16  # the side of an image that leaves one pixel after two convolutions and two poolings

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        least = self.SMALLEST
        if min(height, width) < least:
            raise fail(
                "model", "lenet5", f"needs images of at least {least}x{least}, these are {height}x{width}: resize them"
            )
        side = [((n - 4) // 2 - 4) // 2 for n in (height, width)]
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * side[0] * side[1], 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc = nn.Linear(84, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = max_pool2d(relu(self.conv1(x)), 2)
        x = max_pool2d(relu(self.conv2(x)), 2)
        return self.fc(relu(self.fc2(relu(self.fc1(x.flatten(1))))))


def _norm(kind: str, width: int) -> nn.Module:
    return nn.BatchNorm2d(width) if kind == "batch" else nn.GroupNorm(GROUPS, width)


def _conv(inside: int, outside: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inside, outside, kernel, stride, padding=kernel // 2, bias=False)


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    growth = 1

    def __init__(self, inside: int, width: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(inside, width, 3, stride), _norm(norm, width)
        self.conv2, self.bn2 = _conv(width, width, 3), _norm(norm, width)
        self.downsample = _shortcut(inside, width, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.bn1(self.conv1(x)))
        return relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions to four times the width; the 3x3 strides, as in torchvision."""

    growth = 4

    def __init__(self, inside: int, width: int, stride: int, norm: str) -> None:
        super().__init__()
        outside = self.growth * width
        self.conv1, self.bn1 = _conv(inside, width, 1), _norm(norm, width)
        self.conv2, self.bn2 = _conv(width, width, 3, stride), _norm(norm, width)
        self.conv3, self.bn3 = _conv(width, outside, 1), _norm(norm, outside)
        self.downsample = _shortcut(inside, outside, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.bn1(self.conv1(x)))
        y = relu(self.bn2(self.conv2(y)))
        return relu(self.bn3(self.conv3(y)) + self.downsample(x))


def _shortcut(inside: int, outside: int, stride: int, norm: str) -> nn.Sequential:
    """The identity where shapes agree, else a strided 1x1 convolution."""
    if stride == 1 and inside == outside:
        return nn.Sequential()
    return nn.Sequential(_conv(inside, outside, 1, stride), _norm(norm, outside))


class ResNet(nn.Module):
    """stem ``"imagenet"``: 7x7 convolution of stride 2 and max-pooling; ``"cifar"``: one 3x3 convolution."""

    layer1: nn.Sequential
    layer2: nn.Sequential
    layer3: nn.Sequential
    layer4: nn.Sequential

    def __init__(
        self,
        block: type[Block] | type[Bottleneck],
        depths: tuple[int, ...],
        channels: int,
        classes: int,
        norm: str,
        stem: str,
    ) -> None:
        super().__init__()
        self.pool = stem == "imagenet"
        self.conv1 = _conv(channels, 64, 7, 2) if self.pool else _conv(channels, 64, 3)
        self.bn1 = _norm(norm, 64)
        inside = 64
        for level, depth in enumerate(depths):
            width, blocks = 64 * 2**level, []
            for k in range(depth):
                blocks.append(block(inside, width, 2 if level > 0 and k == 0 else 1, norm))
                inside = block.growth * width
            setattr(self, f"layer{level + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inside, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.bn1(self.conv1(x)))
        if self.pool:
            x = max_pool2d(x, 3, 2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def build(
    name: str,
    images_shape: tuple[int, int, int],
    classes: int,
    *,
    norm: str = "batch",
    stem: str | None = None,
    seed: int = 0,
) -> nn.Module:
    """The model ``name`` for images of shape (channels, height, width), its first weights named by ``seed``.

    norm: ``"batch"`` or ``"group"`` (`fedeve`), of the ResNets. stem: ``"cifar"`` or ``"imagenet"``; by default the
    latter from 128 pixels on. The random state of torch is left as it was.
    """
    choice("model", name, MODELS)
    choice("norm", norm, NORMS)
    if len(images_shape) != 3:
        raise fail("images_shape", images_shape, "must be (channels, height, width)")
    shape = tuple(integer("images_shape", n, 1) for n in images_shape)
    channels, height, width = shape
    classes = integer("classes", classes, 1)
    if stem is None:
        stem = "imagenet" if min(height, width) >= 128 else "cifar"
    choice("stem", stem, STEMS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(integer("seed", seed, 0))
        if name == "mlp":
            return MLP((channels, height, width), classes)
        if name == "lenet5":
            return LeNet5((channels, height, width), classes)
        if name == "resnet18":
            return ResNet(Block, (2, 2, 2, 2), channels, classes, norm, stem)
        return ResNet(Bottleneck, (3, 4, 6, 3), channels, classes, norm, stem)
