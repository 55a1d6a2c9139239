"""The networks are the published ones: parameter counts, layer names and shapes, and a seed names the weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from deep.models import GROUPS, LeNet5, build  # noqa: E402
from nqm import InvalidInput  # noqa: E402


def size(model) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "classes", "stem", "count"),
    [
        ("mlp", (1, 28, 28), 10, None, 784 * 200 + 200 + 200 * 10 + 10),
        ("lenet5", (1, 32, 32), 10, None, 61_706),
        ("lenet5", (1, 28, 28), 10, None, 44_426),
        ("resnet18", (3, 224, 224), 1000, "imagenet", 11_689_512),  # torchvision
        ("resnet50", (3, 224, 224), 1000, "imagenet", 25_557_032),  # torchvision
        ("resnet18", (3, 32, 32), 10, "cifar", 11_173_962),  # the customary CIFAR variant
        ("resnet50", (3, 32, 32), 10, "cifar", 23_520_842),
    ],
)
def test_parameter_counts(name, shape, classes, stem, count) -> None:
    with torch.device("meta"):
        assert size(build(name, shape, classes, stem=stem)) == count


def test_group_norm_has_the_parameters_of_batch_norm_and_no_state() -> None:
    with torch.device("meta"):
        batch, group = (build("resnet18", (3, 32, 32), 10, norm=norm) for norm in ("batch", "group"))
    assert size(batch) == size(group)
    assert len(list(batch.buffers())) == 60
    assert not list(group.buffers())
    assert all(m.num_groups == GROUPS for m in group.modules() if isinstance(m, torch.nn.GroupNorm))


def torchvision_shapes(depths: tuple[int, ...], bottleneck: bool) -> dict[str, tuple[int, ...]]:
    """Names and shapes of torchvision's ResNets with 1000 classes, written out from He et al.'s table."""
    shapes: dict[str, tuple[int, ...]] = {}

    def add(conv: str, norm: str, shape: tuple[int, int, int, int]) -> None:
        shapes[f"{conv}.weight"] = shape
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{norm}.{part}"] = shape[:1]
        shapes[f"{norm}.num_batches_tracked"] = ()

    add("conv1", "bn1", (64, 3, 7, 7))
    inside = 64
    for level, depth in enumerate(depths, start=1):
        width = 32 * 2**level
        outside = 4 * width if bottleneck else width
        for k in range(depth):
            at = f"layer{level}.{k}."
            kernels = [(width, 1), (width, 3), (outside, 1)] if bottleneck else [(width, 3), (width, 3)]
            before = inside
            for number, (after, kernel) in enumerate(kernels, start=1):
                add(f"{at}conv{number}", f"{at}bn{number}", (after, before, kernel, kernel))
                before = after
            if inside != outside:
                add(f"{at}downsample.0", f"{at}downsample.1", (outside, inside, 1, 1))
            inside = outside
    return shapes | {"fc.weight": (1000, inside), "fc.bias": (1000,)}


@pytest.mark.parametrize(
    ("name", "depths", "entries"), [("resnet18", (2, 2, 2, 2), 122), ("resnet50", (3, 4, 6, 3), 320)]
)
def test_resnets_have_torchvisions_names_and_shapes(name, depths, entries) -> None:
    with torch.device("meta"):
        state = build(name, (3, 224, 224), 1000).state_dict()
    assert len(state) == entries
    assert {k: tuple(v.shape) for k, v in state.items()} == torchvision_shapes(depths, name == "resnet50")


@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_feature_maps_shrink_as_published(stem) -> None:
    """224 -> 7 behind the ImageNet stem, 32 -> 4 behind the CIFAR one."""
    side = 224 if stem == "imagenet" else 32
    seen = []
    with torch.device("meta"):
        model = build("resnet50", (3, side, side), 10, stem=stem)
        for level in (1, 2, 3, 4):
            getattr(model, f"layer{level}").register_forward_hook(lambda *args: seen.append(tuple(args[2].shape[1:])))
        assert model(torch.empty(2, 3, side, side)).shape == (2, 10)
    first = 56 if stem == "imagenet" else 32
    assert seen == [(256 * 2**k, first >> k, first >> k) for k in range(4)]


@pytest.mark.parametrize("name", ["mlp", "lenet5", "resnet18"])
def test_a_seed_names_the_weights_and_leaves_torch_alone(name) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, same, other = (build(name, (1, 16, 16), 4, seed=s) for s in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    x = torch.rand(3, 1, 16, 16)
    loss = torch.nn.functional.cross_entropy(one(x), torch.tensor([0, 1, 2]))
    loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in one.parameters())


def test_group_norm_model_maps_over_stacked_parameters() -> None:
    """What works in place or by data would fail here."""
    from torch.func import functional_call, stack_module_state

    models = [build("resnet18", (1, 8, 8), 3, norm="group", seed=s) for s in (0, 1)]
    params, buffers = stack_module_state(models)
    x = torch.rand(2, 4, 1, 8, 8)
    both = torch.func.vmap(lambda p, b, v: functional_call(models[0], (p, b), (v,)))(params, buffers, x)
    for k in (0, 1):
        torch.testing.assert_close(both[k], models[k](x[k]), rtol=1e-4, atol=1e-4)


def test_bad_requests_are_one_line() -> None:
    for call in (
        lambda: build("vgg", (1, 28, 28), 10),
        lambda: build("resnet18", (1, 28, 28), 10, norm="layer"),
        lambda: build("resnet18", (1, 28, 28), 10, stem="none"),
        lambda: build("mlp", (28, 28), 10),
        lambda: build("mlp", (1, 28, 28), 0),
        lambda: build("lenet5", (1, LeNet5.SMALLEST - 1, 28), 10),
    ):
        with pytest.raises(InvalidInput) as caught:
            call()
        assert "\n" not in str(caught.value)
    build("lenet5", (1, LeNet5.SMALLEST, LeNet5.SMALLEST), 10)


def test_deep_without_torch_says_what_to_install() -> None:
    code = "import sys; sys.modules['torch'] = None; import deep"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent.parent
    )
    assert done.returncode != 0
    assert done.stderr.strip().endswith("ImportError: deep needs torch: pip install 'driftproof[deep]'")
