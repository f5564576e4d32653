// The operators tilewise::prepare and tilewise::call.
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <torch/library.h>

#include "kernels.h"

namespace {

at::Tensor prepare(const at::Tensor &weights, std::string_view symbol) {
  const auto &kernel = tilewise::find(symbol);
  auto from = weights.contiguous();
  auto packed = at::Tensor(at::detail::empty_cpu({kernel.packed_bytes}, at::kByte));
  tilewise::prepare(kernel, from.const_data_ptr(), packed.mutable_data_ptr());
  return packed;
}

at::Tensor call(const at::Tensor &a, const at::Tensor &b, const std::optional<at::Tensor> &bias,
                const std::optional<at::Tensor> &add, std::string_view symbol, at::IntArrayRef shape) {
  const auto &kernel = tilewise::find(symbol);
  auto out = kernel.accumulates ? add->clone()
                                : at::Tensor(at::detail::empty_cpu(shape, a.scalar_type()));
  void *pointers[6];
  int count = 0;
  auto take = [&](const at::Tensor &tensor) {
    TORCH_CHECK(tensor.is_contiguous(), "tilewise: ", symbol, ": operands must be contiguous");
    pointers[count++] = tensor.data_ptr();
  };
  take(a);
  take(b);
  if (bias) take(*bias);
  if (add && !kernel.accumulates) take(*add);
  take(out);
  pointers[count++] = tilewise::scratch(kernel.scratch_bytes);
  if (kernel.parts == 1) {
    tilewise::run(kernel, count, pointers);
  } else {
    at::parallel_for(0, kernel.parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        tilewise::run_part(kernel, count, pointers, part);
    });
  }
  return out;
}

}  // namespace

TORCH_LIBRARY(tilewise, library) {
  const std::vector<at::Tag> tags = {at::Tag::needs_contiguous_strides, at::Tag::pt2_compliant_tag};
  library.def("prepare(Tensor weights, str symbol) -> Tensor", tags);
  library.def(
      "call(Tensor a, Tensor b, Tensor? bias, Tensor? add, str symbol, int[] shape) -> Tensor", tags);
}

TORCH_LIBRARY_IMPL(tilewise, CPU, library) {
  library.impl("prepare", &prepare);
  library.impl("call", &call);
}
