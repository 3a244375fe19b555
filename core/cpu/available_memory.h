#pragma once

#include <cstddef>
#include <filesystem>

namespace norma {

/// Bytes that the system could still give to this process: what Linux takes to be available, free swap included, or
/// less where a control group (a container's limit) leaves less. What the system can drop, files in memory say, counts
/// as available; swap that a group may have does not. SIZE_MAX where nothing is known. `root` is where /proc and /sys
/// lie.
size_t available_memory(const std::filesystem::path& root = "/");

}  // namespace norma
