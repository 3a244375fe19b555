#pragma once

#include "core/emulated/memory.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace norma::emulated {

// Races in kernels on the device cuda-emulated: accesses of one byte by two threads, of which one writes, without a
// barrier between. They are looked for in files that are compiled, not linked, with -fsanitize=thread: then the
// compiler calls a function before each access (race_hooks.cpp has them), and the launch throws Error. A shuffle is no
// barrier: CUDA does not promise that the lanes of a warp see each other's writes after it. What memcpy() and memset()
// of the C library do is not seen, unless the compiler made plain accesses of them. An access just past the end of a
// tensor is reported, too, and a barrier that some threads do not reach with its line.

/// Who touched a byte, and when.
struct Touch {
  uint32_t time = 0;           ///< 0: nobody yet
  uint32_t who = 0;            ///< the thread, among those of all blocks
  const void* code = nullptr;  ///< the address of the instruction after the access
};

/// Finds the first race of a launch, whose blocks run one after the other.
class Races {
 public:
  void begin_launch(int threads);
  void begin_block(int64_t block, const void* shared_memory, size_t shared_bytes);
  /// All threads of the block have come to a barrier.
  void pass_barrier() { barrier_ = ++now_; }
  /// An access of a thread of the block.
  void touch(int thread, const void* address, size_t bytes, bool write, const void* code);
  [[nodiscard]] bool found() const { return !text_.empty(); }
  /// True iff what was found is an access past the end of a tensor: the launch ends where its thread does.
  [[nodiscard]] bool is_past_end() const { return past_end_; }
  /// The race that was found, with both lines of the source where they are known.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  /// The last thread that wrote a byte, and the last two that read it.
  struct Byte {
    Touch write;
    std::array<Touch, 2> reads;
  };
  static constexpr size_t kPageBytes = 4096;
  using Page = std::array<Byte, kPageBytes>;

  [[nodiscard]] bool is_shared(uintptr_t address) const;
  Byte& byte_at(uintptr_t address);
  void check_inside(const Touch& mine, uintptr_t address, size_t bytes, bool write);
  [[nodiscard]] bool is_unordered(const Touch& other, uint32_t me) const;
  void report(const Touch& other, bool other_wrote, const Touch& mine, bool write, size_t bytes, uintptr_t address);

  uint32_t threads_ = 0;
  uint32_t block_ = 0;
  uint32_t now_ = 0;
  uint32_t barrier_ = 0;  ///< when the block began, or passed its last barrier
  uintptr_t shared_begin_ = 0;
  std::vector<Byte> shared_;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;  ///< of all other memory
  uintptr_t last_number_ = 0;
  Page* last_ = nullptr;  ///< the page used last
  std::string text_;
  bool past_end_ = false;
  std::vector<Block> blocks_;  ///< the tensors on the device when the launch began
  const Block* last_block_ = nullptr;
};

/// " (kernels.cpp:41)" for the address after an instruction, where that is known, else "".
std::string source_line(const void* code);

/// True iff a file of this program was compiled so that its accesses are seen. All launches then run on one thread.
bool races_are_watched();

/// Called at a race or an access past a tensor's end, in the kernel's thread: a place for a debugger's breakpoint.
void race_found();

namespace detail {
void watch_races();
/// A function that is watched begins, called from there.
void enter_function(const void* caller);
/// From where the function that began last was called.
const void* last_caller();
/// An access by the code that runs now; nothing unless that is a kernel.
void touch(const void* address, size_t bytes, bool write, const void* code);
}  // namespace detail

}  // namespace norma::emulated
