"""ResNet-18 in the form for small images. Needs PyTorch."""

from torch import Tensor, nn
from torch.nn import functional


class _Block(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, 3, stride)
        self.second = _convolution(outputs, outputs, 3, 1)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else _convolution(inputs, outputs, 1, stride)

    def forward(self, images: Tensor) -> Tensor:
        residual = self.second(functional.relu(self.first(images)))
        return functional.relu(residual + self.shortcut(images))


def resnet18(channels: int, num_outputs: int) -> nn.Module:
    """Four stages of two blocks (64, 128, 256, 512 channels) between a stem and a mean.

    References:
        K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016.
    """
    layers: list[nn.Module] = [_convolution(channels, 64, 3, 1), nn.ReLU()]
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [_Block(width, outputs, stride), _Block(outputs, outputs, 1)]
        width = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_outputs)]
    return nn.Sequential(*layers)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )
