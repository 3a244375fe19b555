#pragma once

#include <cstddef>
#include <filesystem>

namespace norma {

/// Bytes that the system could still give to this process: the memory that Linux calls available, free swap included,
/// or less where a control group (a container's limit) leaves less. Memory that the system can drop, such as cached
/// files, counts as available; swap that a group may have does not. SIZE_MAX if nothing is known. /proc and /sys lie in
/// `root`.
size_t available_memory(const std::filesystem::path& root = "/");

}  // namespace norma
