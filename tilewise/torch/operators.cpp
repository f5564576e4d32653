// The operators tilewise::prepare and tilewise::call.
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <torch/library.h>

#include <mutex>

#include "kernels.h"

namespace {

at::Tensor prepare(const at::Tensor &weights, std::string_view symbol) {
  const auto &kernel = tilewise::find(symbol);
  auto from = weights.contiguous();
  auto packed = at::Tensor(at::detail::empty_cpu({kernel.packed_bytes}, at::kByte));
  tilewise::prepare(kernel, from.const_data_ptr(), packed.mutable_data_ptr());
  return packed;
}

// Return packed weights at an address that kernels accept: constants of AOTInductor's packages have
// the alignment of malloc. A copy serves as long as the constant exists.
at::Tensor aligned(const at::Tensor &packed) {
  const void *data = packed.const_data_ptr();
  if (reinterpret_cast<uintptr_t>(data) % 64 == 0) return packed;
  using Copy = std::pair<c10::weak_intrusive_ptr<c10::StorageImpl>, at::Tensor>;
  static std::mutex mutex;
  static auto *copies = new std::unordered_map<const void *, Copy>;
  const std::lock_guard lock(mutex);
  auto found = copies->find(data);
  if (found == copies->end() || found->second.first.expired()) {
    std::erase_if(*copies, [](const auto &one) { return one.second.first.expired(); });
    found = copies->insert_or_assign(data, Copy(packed.storage().getWeakStorageImpl(), packed.clone()))
                .first;
  }
  return found->second.second;
}

at::Tensor call(const at::Tensor &a, const at::Tensor &b, const std::optional<at::Tensor> &bias,
                const std::optional<at::Tensor> &add, std::string_view symbol,
                at::OptionalIntArrayRef shape, at::OptionalIntArrayRef sizes) {
  const auto &kernel = tilewise::find(symbol);
  auto out = kernel.accumulates
                 ? add->clone()
                 : at::Tensor(at::detail::empty_cpu(shape.value_or(kernel.shape), a.scalar_type()));
  void *pointers[6];
  int count = 0;
  auto take = [&](const at::Tensor &tensor) {
    TORCH_CHECK(tensor.is_contiguous(), "tilewise: ", symbol, ": operands must be contiguous");
    pointers[count++] = tensor.data_ptr();
  };
  const auto weights = kernel.packed_bytes ? aligned(b) : b;
  take(a);
  take(weights);
  if (bias) take(*bias);
  if (add && !kernel.accumulates) take(*add);
  take(out);
  pointers[count++] = tilewise::scratch(kernel.scratch_bytes);
  const auto given = sizes ? std::span(sizes->data(), sizes->size()) : std::span<const int64_t>();
  if (kernel.parts == 1) {
    tilewise::check(tilewise::call_with(kernel.run, count, pointers, given), kernel);
  } else {
    at::parallel_for(0, kernel.parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        tilewise::check(tilewise::call_with(kernel.part, count, pointers, given, part), kernel);
    });
  }
  return out;
}

}  // namespace

TORCH_LIBRARY(tilewise, library) {
  const std::vector<at::Tag> tags = {at::Tag::needs_contiguous_strides, at::Tag::pt2_compliant_tag};
  library.def("prepare(Tensor weights, str symbol) -> Tensor", tags);
  library.def(
      // Lists take half a microsecond each, so that only kernels of ranges are given any.
      "call(Tensor a, Tensor b, Tensor? bias, Tensor? add, str symbol, SymInt[]? shape=None,"
      " SymInt[]? sizes=None) -> Tensor",
      tags);
}

TORCH_LIBRARY_IMPL(tilewise, CPU, library) {
  library.impl("prepare", &prepare);
  library.impl("call", &call);
}
