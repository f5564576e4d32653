// The kernels that are loaded into this process, by symbol, and how they are called.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tilewise {

struct Kernel {
  std::string symbol;
  void *run, *part, *prepare;
  int64_t scratch_bytes, packed_bytes, parts;
  bool accumulates;
  std::vector<int64_t> shape;  // of the result; empty for a range
};

struct Hash : std::hash<std::string_view> {
  using is_transparent = void;
};

// Kernels are registered while others run. They stay where and as they are from then on.
struct Registry {
  std::shared_mutex mutex;
  std::unordered_map<std::string, const Kernel *, Hash, std::equal_to<>> kernels;
};

inline Registry &registry() {
  static auto *one = new Registry;
  return *one;
}

inline const Kernel &find(std::string_view symbol) {
  const std::shared_lock lock(registry().mutex);
  auto found = registry().kernels.find(symbol);
  if (found == registry().kernels.end())
    throw std::runtime_error("tilewise: kernel " + std::string(symbol) +
                             " is not loaded in this process; compile the model again");
  return *found->second;
}

inline void check(int code, const Kernel &kernel) {
  if (code)
    throw std::runtime_error("tilewise: " + kernel.symbol + " returned code " +
                             std::to_string(code) + " (docs/objects.md)");
}

// Memory of this thread, which grows to the largest size requested and is reused.
inline void *scratch(int64_t bytes) {
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
    if (!memory.begin)
      throw std::runtime_error("tilewise: cannot allocate " + std::to_string(bytes) +
                               " bytes of scratch");
  }
  return memory.begin;
}

inline void prepare(const Kernel &kernel, const void *weights, void *packed) {
  check(((int (*)(const void *, void *))kernel.prepare)(weights, packed), kernel);
}

template <typename... Last>
int call_pointers(void *function, int count, void *const *p, Last... last) {
  using P = void *;
  switch (count) {
    case 4: return ((int (*)(P, P, P, P, Last...))function)(p[0], p[1], p[2], p[3], last...);
    case 5: return ((int (*)(P, P, P, P, P, Last...))function)(p[0], p[1], p[2], p[3], p[4], last...);
    default:
      return ((int (*)(P, P, P, P, P, P, Last...))function)(p[0], p[1], p[2], p[3], p[4], p[5], last...);
  }
}

// Call a function with `count` pointers, the sizes of a range, and `last`: a part's number or nothing.
template <typename... Last>
int call_with(void *function, int count, void *const *pointers, std::span<const int64_t> sizes,
              Last... last) {
  switch (sizes.size()) {
    case 0: return call_pointers(function, count, pointers, last...);
    case 1: return call_pointers(function, count, pointers, sizes[0], last...);
    default: return call_pointers(function, count, pointers, sizes[0], sizes[1], last...);
  }
}

}  // namespace tilewise

extern "C" void tilewise_register(const char *symbol, void *run, void *part, void *prepare,
                                  int64_t scratch_bytes, int64_t packed_bytes, int64_t parts,
                                  int accumulates, const int64_t *shape, int64_t rank) {
  auto *kernel = new tilewise::Kernel{symbol,       run,   part, prepare, scratch_bytes,
                                      packed_bytes, parts, accumulates != 0, {shape, shape + rank}};
  const std::unique_lock lock(tilewise::registry().mutex);
  tilewise::registry().kernels.insert_or_assign(symbol, kernel);
}
