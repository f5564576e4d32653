// The target of XLA's foreign function interface that calls a kernel by its symbol.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace {

struct Work {
  const tilewise::Kernel &kernel;
  int count = 0;
  void *pointers[6];
  std::vector<int64_t> sizes;
  std::atomic<int64_t> next{0}, left;
  std::atomic<int> code{0};

  // Compute parts until all are taken. A task that starts late finds none.
  void take_parts() {
    for (int64_t part; (part = next++) < kernel.parts;) {
      if (int found = tilewise::call_with(kernel.part, count, pointers, sizes, part)) code = found;
      if (--left == 0) left.notify_all();
    }
  }
};

ffi::Error call(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::Result<ffi::AnyBuffer> out,
                std::string_view symbol, ffi::Span<const int64_t> sizes) try {
  const auto &kernel = tilewise::find(symbol);
  auto work = std::make_shared<Work>(kernel);
  work->sizes.assign(sizes.begin(), sizes.end());
  for (size_t index = 0; index < args.size(); ++index)
    work->pointers[work->count++] = args.get<ffi::AnyBuffer>(index)->untyped_data();
  if (kernel.accumulates) {  // the last argument shares its buffer with the result
    void *initial = work->pointers[--work->count];
    if (initial != out->untyped_data())
      std::memcpy(out->untyped_data(), initial, out->size_bytes());
  }
  work->pointers[work->count++] = out->untyped_data();
  work->pointers[work->count++] = tilewise::scratch(kernel.scratch_bytes);
  if (kernel.parts == 1) {
    tilewise::check(tilewise::call_with(kernel.run, work->count, work->pointers, work->sizes), kernel);
    return ffi::Error::Success();
  }
  work->left = kernel.parts;
  for (auto more = std::min(kernel.parts, pool.num_threads()) - 1; more > 0; --more)
    pool.Schedule([work] { work->take_parts(); });
  work->take_parts();
  for (int64_t left; (left = work->left) > 0;) work->left.wait(left);
  tilewise::check(work->code, kernel);
  return ffi::Error::Success();
} catch (const std::exception &error) {
  return ffi::Error::Internal(error.what());
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(tilewise_call, call,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .RemainingArgs()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<std::string_view>("symbol")
                                  .Attr<ffi::Span<const int64_t>>("sizes"));

extern "C" int tilewise_prepare(const char *symbol, const void *weights, void *packed) {
  const auto &kernel = tilewise::find(symbol);
  return ((int (*)(const void *, void *))kernel.prepare)(weights, packed);
}
