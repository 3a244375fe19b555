#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace norma {

/// True iff the process can get `bytes` more of address space.
bool has_room(size_t bytes);
/// As has_room(), but it may give back all cached memory first. Call it before a library that takes memory by itself
/// and ends the program where there is none.
bool make_room(size_t bytes);

/// The error text for too little memory: "expected room for 4.2 MB, got none: tensors hold 257.2 MB, and the machine
/// has 25.1 GB, of which 20.3 GB are left", or the limit of addresses (ulimit -v) where the process has one.
std::string no_room_text(size_t bytes, size_t in_use);

/// Bytes that the system could still give to this process: the memory that Linux calls available, free swap included,
/// or less where a control group (a container's limit) leaves less. Memory that the system can drop, such as cached
/// files, counts as available; swap that a group may have does not. SIZE_MAX if nothing is known. /proc and /sys lie in
/// `root`.
size_t available_memory(const std::filesystem::path& root = "/");

}  // namespace norma
