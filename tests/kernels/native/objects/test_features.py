"""What an object looks for in a processor is what LLVM says that there is."""

import ctypes

import llvmlite.binding as llvm
import pytest

from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import ObjectCode
from tilewise.kernels.native.objects import features
from tilewise.kernels.native.objects.features import (
    BASIC,
    CHECKED,
    Bit,
    supported_text,
    used_features,
)
from tilewise.kernels.native.objects.module import machine
from tilewise.kernels.target import Target


def answer(*wanted: str) -> int:
    """What the function says here that looks for extensions."""
    module = llvm.parse_assembly(supported_text("asked", wanted))
    module.triple = llvm.get_process_triple()
    owner = Loaded(ObjectCode(("asked_supported",), machine(()).emit_object(module)))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(owner.addresses[0])())


@pytest.mark.parametrize("name", CHECKED)
def test_each_extension_is_found_where_it_is(name: str, host: Target) -> None:
    assert answer(name) == (name in host.features)


def test_all_of_them_are_found_together(host: Target) -> None:
    here = [name for name in CHECKED if name in host.features]
    assert answer(*here) == 1 and answer() == 1


@pytest.mark.parametrize(
    "bit",
    [
        Bit(BASIC, 0, "ecx", 16),  # reserved in every processor
        Bit(0x40FFFFFF, 0, "eax", 0),  # beyond the last leaf
        Bit(0x8FFFFFFF, 0, "eax", 0),
    ],
)
def test_what_is_not_there_is_missed(
    bit: Bit, host: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(features.CHECKED, "absent", bit)
    here = [name for name in CHECKED if name in host.features]
    assert answer("absent") == 0 and answer(*here, "absent") == 0


def test_what_llvm_takes_for_granted_is_looked_for() -> None:
    assert "avx" in used_features({"avx2"}, "") and "sse3" in used_features({"fma"}, "")
    wide = used_features({"avx512f", "avx512bf16", "avx512vnni"}, "")
    assert "fma" in wide and "avx512vnni" not in wide
    assert "avx512vnni" in used_features({"avx512vnni"}, "call @llvm.x86.avx512.vpdpbusd.512")


@pytest.mark.parametrize("product", ["tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud"])
def test_each_product_of_byte_tiles_needs_their_extension(product: str) -> None:
    found = used_features({"amx-int8", "amx-bf16", "amx-tile"}, f"call void @llvm.x86.{product}(")
    assert found == ("amx-tile", "amx-int8")
