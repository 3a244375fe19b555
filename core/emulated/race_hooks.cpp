#include "core/emulated/races.h"

#include <cstddef>
#include <cstring>

// What the compiler calls before each access of a file that is compiled with -fsanitize=thread. A program gets these
// functions where it has such a file and is linked without that option; otherwise they stay in the library.

#define NORMA_ACCESS(NAME, BYTES, WRITE)                                                \
  void __tsan_##NAME(void* address) {                                                   \
    norma::emulated::detail::touch(address, BYTES, WRITE, __builtin_return_address(0)); \
  }
#define NORMA_ACCESSES(BYTES)                       \
  NORMA_ACCESS(read##BYTES, BYTES, false)           \
  NORMA_ACCESS(write##BYTES, BYTES, true)           \
  NORMA_ACCESS(unaligned_read##BYTES, BYTES, false) \
  NORMA_ACCESS(unaligned_write##BYTES, BYTES, true)

// NOLINTBEGIN(readability-identifier-naming): the names are the compiler's
extern "C" {
void __tsan_init() {
  norma::emulated::detail::watch_races();
}
void __tsan_func_entry(void* caller) {
  norma::emulated::detail::enter_function(caller);
}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
NORMA_ACCESSES(1)
NORMA_ACCESSES(2)
NORMA_ACCESSES(4)
NORMA_ACCESSES(8)
NORMA_ACCESSES(16)
void __tsan_read_range(void* address, size_t bytes) {
  norma::emulated::detail::touch(address, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void* address, size_t bytes) {
  norma::emulated::detail::touch(address, bytes, true, __builtin_return_address(0));
}
// clang has these for the functions of the C library.
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  norma::emulated::detail::touch(from, bytes, false, __builtin_return_address(0));
  norma::emulated::detail::touch(to, bytes, true, __builtin_return_address(0));
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  norma::emulated::detail::touch(from, bytes, false, __builtin_return_address(0));
  norma::emulated::detail::touch(to, bytes, true, __builtin_return_address(0));
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  norma::emulated::detail::touch(to, bytes, true, __builtin_return_address(0));
  return std::memset(to, value, bytes);
}
}
// NOLINTEND(readability-identifier-naming)
