#include "core/memory_text.h"

#include "core/cpu/arena.h"

#include <fmt/format.h>
#include <sys/resource.h>

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
  return fmt::format("the machine has {}", byte_text(physical_memory()));
}

}  // namespace

std::string no_room_text(size_t bytes, size_t in_use) {
  return fmt::format("expected room for {}, got none: tensors hold {}, and {}", byte_text(bytes), byte_text(in_use),
                     limit_text());
}

}  // namespace norma
