#include "virtual_gpu/ptx_test_support.h"

namespace virtual_gpu::test {
namespace {

/// %r0 the thread, %rd0 p0, %rd1 the thread's word of p0, %r1 dynamic shared memory, %r2 the thread's word of it.
const std::string kBegin = R"(mov.u32 %r0, %tid.x;
ld.param.u64 %rd0, [p0];
mul.wide.u32 %rd2, %r0, 4;
add.s64 %rd1, %rd0, %rd2;
mov.u32 %r1, dynamic;
shl.b32 %r2, %r0, 2;
add.s32 %r2, %r1, %r2;
)";

class RaceDevice {
 public:
  /// The fault of a kernel with this body, of `blocks` of `threads`.
  std::string race(const std::string& body, uint32_t threads = 64, uint32_t blocks = 1) {
    try {
      run_ptx(memory_, kernel_text(1, kBegin + body + "\nret;", ".extern .shared .align 16 .b8 dynamic[];"),
              {.threads = threads, .blocks = blocks, .shared_bytes = 4096}, words);
    } catch (const Fault& fault) {
      CHECK(fault.kind() == Fault::Kind::kRace);
      return fault.what();
    }
    return "no fault";
  }

 private:
  TestMemory memory_;

 public:
  uint64_t words = memory_.of(std::vector<uint32_t>(1024));
};

std::string at(int line, int thread, const std::string& rest, int block = 0) {
  return fmt::format("name(float*), kernel.cu:{}: block ({}, 0, 0), thread ({}, 0, 0), {}", line, block, thread, rest);
}

TEST_CASE("ptx races: shared memory that another thread wrote, and no barrier between") {
  RaceDevice device;
  const std::string write = ".loc 1 2 1\nst.shared.u32 [%r2], %r0;\n";
  const std::string read_next = ".loc 1 4 1\nxor.b32 %r3, %r2, 4;\nld.shared.u32 %r4, [%r3];\n";
  CHECK(device.race(write + read_next) ==
        at(4, 0,
           "ld.shared.u32: 4 bytes at byte 4 of shared memory: it reads what thread (1, 0, 0) wrote without a "
           "barrier between"));
  CHECK(device.race(write + "bar.sync 0;\n" + read_next) == "no fault");
  CHECK(device.race(write + "ld.shared.u32 %r4, [%r2];\n") == "no fault");
  // Lanes of one warp as well, unless they meet.
  CHECK(device.race(write + "bar.warp.sync -1;\n" + read_next, 32) == "no fault");
  CHECK(device.race(write + read_next, 32).find("without a barrier between") != std::string::npos);
}

TEST_CASE("ptx races: shared memory that another thread read, and no barrier between") {
  RaceDevice device;
  const std::string write = "st.shared.u32 [%r2], %r0;\nbar.sync 0;\n";
  const std::string read_other = "xor.b32 %r3, %r2, 128;\nld.shared.u32 %r4, [%r3];\n";
  const std::string write_again = ".loc 1 9 1\nst.shared.u32 [%r2], %r0;\n";
  // The first warp reads what the second has, and writes its own words, which the second reads next.
  CHECK(device.race(write + ".loc 1 8 1\n" + read_other + write_again) ==
        at(8, 32,
           "ld.shared.u32: 4 bytes at byte 0 of shared memory: it reads what thread (0, 0, 0) wrote without a "
           "barrier between"));
  CHECK(device.race(write + read_other + "bar.sync 0;\n" + write_again) == "no fault");
  CHECK(device.race(write + "setp.lt.u32 %p1, %r0, 32;\n@%p1 ld.shared.u32 %r4, [%r2+128];\n.loc 1 9 1\n@!%p1 "
                            "st.shared.u32 [%r2], %r0;\n") ==
        at(9, 32,
           "st.shared.u32: 4 bytes at byte 128 of shared memory: it writes what thread (0, 0, 0) read without a "
           "barrier between"));
  // All threads read one word.
  CHECK(device.race(
            write +
            "ld.shared.u32 %r4, [%r1];\nsetp.eq.u32 %p1, %r0, 63;\n.loc 1 9 1\n@%p1 st.shared.u32 [%r1], %r0;\n") ==
        at(9, 63,
           "st.shared.u32: 4 bytes at byte 0 of shared memory: it writes what several threads of the block read "
           "without a barrier between"));
}

TEST_CASE("ptx races: two threads write one word") {
  RaceDevice device;
  CHECK(device.race(".loc 1 3 1\nst.shared.u32 [%r1], 1;\n", 32) ==
        at(3, 1,
           "st.shared.u32: 4 bytes at byte 0 of shared memory: it writes what thread (0, 0, 0) wrote without a "
           "barrier between"));
  CHECK(device.race(".loc 1 3 1\nst.global.u32 [%rd0], 1;\n", 32) ==
        at(3, 1,
           fmt::format("st.global.u32: 4 bytes at {:#x}: it writes what thread (0, 0, 0) of block (0, 0, 0) wrote "
                       "without a barrier between",
                       device.words)));
  CHECK(device.race("setp.eq.u32 %p1, %r0, 5;\n@%p1 st.global.u32 [%rd0], 1;\n", 32) == "no fault");
}

TEST_CASE("ptx races: neighbours within a word are no race") {
  RaceDevice device;
  const std::string bytes = "cvt.u64.u32 %rd4, %r0;\nadd.s64 %rd4, %rd0, %rd4;\nst.global.u8 [%rd4], %r0;\n";
  const std::string halves = "mul.wide.u32 %rd4, %r0, 2;\nadd.s64 %rd4, %rd0, %rd4;\nst.global.u16 [%rd4], %rs0;\n";
  CHECK(device.race(bytes) == "no fault");
  CHECK(device.race(halves) == "no fault");
  CHECK(device.race("mov.u32 %r3, %r0;\nadd.s32 %r3, %r1, %r3;\nst.shared.u8 [%r3], %r0;\nbar.sync 0;\nst.shared.u8 "
                    "[%r3], %r0;\n") == "no fault");
  // What was written by word before is known for each of its bytes.
  CHECK(device.race("st.global.u32 [%rd1], %r0;\n.loc 1 5 1\n" + bytes) ==
        at(5, 1,
           fmt::format("st.global.u8: 1 bytes at {:#x}: it writes what thread (0, 0, 0) of block (0, 0, 0) wrote "
                       "without a barrier between",
                       device.words + 1)));
}

TEST_CASE("ptx races: global memory between the blocks of a launch") {
  RaceDevice device;
  const std::string mine = "mov.u32 %r5, %ctaid.x;\nmul.wide.u32 %rd4, %r5, 256;\nadd.s64 %rd5, %rd1, %rd4;\n";
  const std::string write = "st.global.u32 [%rd5], %r0;\n";
  CHECK(device.race(mine + write, 64, 4) == "no fault");
  CHECK(device.race(mine + write, 64, 4) == "no fault");  // another launch may write again
  // A barrier does not order blocks.
  CHECK(device.race(mine + write + "bar.sync 0;\n.loc 1 6 1\nld.global.u32 %r6, [%rd1];\n", 64, 2) ==
        at(6, 0,
           fmt::format("ld.global.u32: 4 bytes at {:#x}: it reads what thread (0, 0, 0) of block (0, 0, 0) wrote "
                       "without a barrier between",
                       device.words),
           1));
  CHECK(device.race(mine + "ld.global.u32 %r6, [%rd1+256];\n.loc 1 6 1\n" + write, 64, 2) ==
        at(6, 0,
           fmt::format("st.global.u32: 4 bytes at {:#x}: it writes what threads of several blocks read without a "
                       "barrier between",
                       device.words + 256),
           1));
  CHECK(device.race("ld.global.u32 %r6, [%rd1];\n", 64, 4) == "no fault");
}

TEST_CASE("ptx races: global memory between the threads of a block") {
  RaceDevice device;
  const std::string write = "st.global.u32 [%rd1], %r0;\n";
  const std::string read =
      ".loc 1 6 1\nxor.b32 %r3, %r0, 32;\nmul.wide.u32 %rd4, %r3, 4;\nadd.s64 %rd4, %rd0, %rd4;\n"
      "ld.global.u32 %r6, [%rd4];\n";
  CHECK(device.race(write + "bar.sync 0;\n" + read) == "no fault");
  // The first warp reads what the second is going to write.
  CHECK(device.race(write + read) ==
        fmt::format("name(float*): block (0, 0, 0), thread (32, 0, 0), st.global.u32: 4 bytes at {:#x}: it writes what "
                    "thread (0, 0, 0) of block (0, 0, 0) read without a barrier between",
                    device.words + 128));
  CHECK(device.race(write + "bar.sync 0;\n" + read + "bar.sync 0;\n" + write) == "no fault");
}

}  // namespace
}  // namespace virtual_gpu::test
