#include "core/cpu/host_memory.h"

#include "core/allocator.h"
#include "core/cpu/arena.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

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

/// The number after `key` in lines of "key number", with a colon after the key or none.
std::optional<size_t> number_of(const std::filesystem::path& file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    size_t value = 0;
    if (words >> name >> value && (name == key || (name.size() == key.size() + 1 && name.starts_with(key)))) {
      return value;
    }
  }
  return {};
}

/// The number in a file that holds nothing else; none for "max".
std::optional<size_t> number_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  size_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

/// The file names of one of the two versions of control groups.
struct Names {
  const char* limit;
  const char* usage;
  std::array<const char*, 3> droppable;  // in memory.stat
};
constexpr Names kVersion1 = {.limit = "memory.limit_in_bytes",
                             .usage = "memory.usage_in_bytes",
                             .droppable = {"total_inactive_file", "total_active_file", "total_slab_reclaimable"}};
constexpr Names kVersion2 = {.limit = "memory.max",
                             .usage = "memory.current",
                             .droppable = {"inactive_file", "active_file", "slab_reclaimable"}};

/// The bytes that the group at `path` below `top`, and the groups around it, leave.
size_t left_in_groups(const std::filesystem::path& top, const std::string& path, const Names& names) {
  size_t left = SIZE_MAX;
  std::filesystem::path relative = std::filesystem::path(path).relative_path();
  while (true) {
    const std::filesystem::path folder = top / relative;
    const std::optional<size_t> limit = number_in(folder / names.limit);
    const std::optional<size_t> usage = number_in(folder / names.usage);
    if (limit && usage) {
      size_t used = *usage;
      for (const char* key : names.droppable) {
        used -= std::min(used, number_of(folder / "memory.stat", key).value_or(0));
      }
      left = std::min(left, *limit - std::min(*limit, used));
    }
    if (relative.empty()) {
      return left;
    }
    relative = relative.parent_path();
  }
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

size_t available_memory(const std::filesystem::path& root) {
  constexpr size_t kKilobyte = 1024;
  size_t left = SIZE_MAX;
  if (const auto available = number_of(root / "proc/meminfo", "MemAvailable")) {
    left = kKilobyte * (*available + number_of(root / "proc/meminfo", "SwapFree").value_or(0));
  }
  // Lines of "number:controllers:path"; version 2 has the number 0 and names no controllers.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first, second - first) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ":,") {
      left = std::min(left, left_in_groups(root / "sys/fs/cgroup", path, kVersion2));
    } else if (controllers.find(",memory,") != std::string::npos || controllers.starts_with(":memory,")) {
      left = std::min(left, left_in_groups(root / "sys/fs/cgroup/memory", path, kVersion1));
    }
  }
  return left;
}

}  // namespace norma
