// The operators tilewise::prepare and tilewise::call, and the kernels that they call by symbol.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <unordered_map>

namespace {

struct Kernel {
  void *run, *part, *prepare;
  int64_t scratch_bytes, packed_bytes, parts;
  bool accumulates;
};

// Filled under Python's lock before a graph that calls a kernel exists. Elements never move.
std::unordered_map<std::string, Kernel> &kernels() {
  static auto *all = new std::unordered_map<std::string, Kernel>;
  return *all;
}

const Kernel &find(std::string_view symbol) {
  auto found = kernels().find(std::string(symbol));
  TORCH_CHECK(found != kernels().end(), "tilewise: kernel ", symbol,
              " is not loaded in this process; compile the model again");
  return found->second;
}

void check(int code, std::string_view symbol) {
  TORCH_CHECK(code == 0, "tilewise: ", symbol, " returned code ", code, " (docs/objects.md)");
}

// Memory of this thread, which grows to the largest size requested and is reused.
void *scratch(int64_t bytes) {
  struct Memory {
    void *begin = nullptr;
    int64_t bytes = 0;
    ~Memory() { std::free(begin); }
  };
  thread_local Memory memory;
  if (memory.bytes < bytes) {
    std::free(memory.begin);
    memory.bytes = (bytes + 4095) / 4096 * 4096;
    memory.begin = std::aligned_alloc(4096, memory.bytes);
    if (!memory.begin) memory.bytes = 0;
    TORCH_CHECK(memory.begin, "tilewise: cannot allocate ", bytes, " bytes of scratch");
  }
  return memory.begin;
}

at::Tensor prepare(const at::Tensor &weights, std::string_view symbol) {
  const Kernel &kernel = find(symbol);
  auto from = weights.contiguous();
  auto packed = at::empty({kernel.packed_bytes}, weights.options().dtype(at::kByte));
  using Function = int (*)(const void *, void *);
  check(((Function)kernel.prepare)(from.const_data_ptr(), packed.mutable_data_ptr()), symbol);
  return packed;
}

// Call a function with `count` pointers, and `last` behind them: a part's number or nothing.
template <typename... Last>
int call_with(void *function, int count, void *const *p, Last... last) {
  using P = void *;
  switch (count) {
    case 4: return ((int (*)(P, P, P, P, Last...))function)(p[0], p[1], p[2], p[3], last...);
    case 5: return ((int (*)(P, P, P, P, P, Last...))function)(p[0], p[1], p[2], p[3], p[4], last...);
    default:
      return ((int (*)(P, P, P, P, P, P, Last...))function)(p[0], p[1], p[2], p[3], p[4], p[5], last...);
  }
}

at::Tensor call(const at::Tensor &a, const at::Tensor &b, const std::optional<at::Tensor> &bias,
                const std::optional<at::Tensor> &add, std::string_view symbol, at::IntArrayRef shape) {
  const Kernel &kernel = find(symbol);
  auto out = kernel.accumulates ? add->clone() : at::empty(shape, a.options());
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
  pointers[count++] = scratch(kernel.scratch_bytes);
  if (kernel.parts == 1) {
    check(call_with(kernel.run, count, pointers), symbol);
  } else {
    at::parallel_for(0, kernel.parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part)
        check(call_with(kernel.part, count, pointers, part), symbol);
    });
  }
  return out;
}

}  // namespace

extern "C" void tilewise_register(const char *symbol, void *run, void *part, void *prepare,
                                  int64_t scratch_bytes, int64_t packed_bytes, int64_t parts,
                                  int accumulates) {
  kernels().insert_or_assign(symbol, Kernel{run, part, prepare, scratch_bytes, packed_bytes, parts,
                                            accumulates != 0});
}

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
