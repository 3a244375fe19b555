#pragma once

#include <cstddef>
#include <string>

namespace norma {

/// True iff the process can get `bytes` more of addresses.
bool has_room(size_t bytes);
/// The same, if need be after everything cached is given back. For libraries that take memory by themselves and end the
/// program where there is none.
bool make_room(size_t bytes);

/// What the error says when memory does not suffice: "expected room for 4.2 MB, got none: tensors hold 257.2 MB, and
/// the machine has 25.1 GB, of which 20.3 GB are left", or the limit of addresses (ulimit -v) where the process has
/// one.
std::string no_room_text(size_t bytes, size_t in_use);

}  // namespace norma
