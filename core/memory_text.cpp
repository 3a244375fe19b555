#include "core/memory_text.h"

#include "core/allocator.h"
#include "core/cpu/arena.h"
#include "core/cpu/available_memory.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>

namespace norma {

namespace {

std::string byte_text(size_t bytes) {
  const auto value = static_cast<double>(bytes);
  return value >= 1e9   ? fmt::format("{:.1f} GB", value / 1e9)
         : value >= 1e5 ? fmt::format("{:.1f} MB", value / 1e6)
                        : fmt::format("{} bytes", bytes);
}

std::string limit_text() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    return fmt::format("the process may have {} of addresses (ulimit -v)", byte_text(limit.rlim_cur));
  }
  const size_t memory = physical_memory();
  return fmt::format("the machine has {}, of which {} are left", byte_text(memory),
                     byte_text(std::min(available_memory(), memory)));
}

}  // namespace

bool has_room(size_t bytes) {
  void* const pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages != MAP_FAILED && munmap(pages, bytes) == 0;
}

bool make_room(size_t bytes) {
  if (has_room(bytes)) {
    return true;
  }
  allocator(kCpu).empty_cache();
  malloc_trim(0);
  return has_room(bytes);
}

std::string no_room_text(size_t bytes, size_t in_use) {
  return fmt::format("expected room for {}, got none: tensors hold {}, and {}", byte_text(bytes), byte_text(in_use),
                     limit_text());
}

}  // namespace norma
