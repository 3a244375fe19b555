#include "virtual_gpu/ptx_test_support.h"

namespace virtual_gpu::test {
namespace {

const std::string kFault = "name(float*), kernel.cu:4: block (0, 0, 0), thread ";

/// A kernel that loads from p0 + thread * step + begin with `load`, whose address is %rd1.
std::string loads(const std::string& load, int step, int begin = 0) {
  return kernel_text(1, fmt::format("mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [p0];\nmul.wide.u32 %rd2, %r0, {};\n"
                                    "add.s64 %rd1, %rd0, %rd2;\nadd.s64 %rd1, %rd1, {};\n.loc 1 4 2\n{}\nret;",
                                    step, begin, load));
}

TEST_CASE("ptx memory: vectors of every size come and go") {
  TestMemory memory;
  std::vector<uint32_t> values(32 * 4);
  for (size_t k = 0; k < values.size(); ++k) {
    values[k] = static_cast<uint32_t>(k * 2654435761U);
  }
  const auto copy = [&](const std::string& type, const std::string& registers, int bytes) {
    const uint64_t from = memory.of(values);
    const uint64_t to = memory.empty<uint32_t>(values.size());
    const std::string body = fmt::format(
        "mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [p0];\nld.param.u64 %rd1, [p1];\nmul.wide.u32 %rd2, %r0, {0};\n"
        "add.s64 %rd0, %rd0, %rd2;\nadd.s64 %rd1, %rd1, %rd2;\nld.global.{1} {2}, [%rd0];\nst.global.{1} [%rd1], "
        "{2};\nret;",
        bytes, type, registers);
    run_ptx(memory, kernel_text(2, body), {}, from, to);
    std::vector<uint32_t> expected = values;
    expected.resize(static_cast<size_t>(8 * bytes));
    CHECK(memory.read<uint32_t>(to, expected.size()) == expected);
  };
  copy("u8", "%r9", 1);
  copy("u16", "%rs1", 2);
  copy("f32", "%f1", 4);
  copy("b64", "%rd9", 8);
  copy("v2.u8", "{%rs1, %rs2}", 2);
  copy("v4.u16", "{%rs1, %rs2, %rs3, %rs4}", 8);
  copy("v4.f32", "{%f1, %f2, %f3, %f4}", 16);
  copy("v2.f64", "{%fd1, %fd2}", 16);
}

TEST_CASE("ptx memory: narrow loads are extended by their sign") {
  TestMemory memory;
  const uint64_t from = memory.of(std::vector<int8_t>{-1, 127, -128, 3});
  const uint64_t to = memory.empty<int64_t>(4);
  run_ptx(memory, kernel_text(2, R"(mov.u32 %r0, %tid.x;
ld.param.u64 %rd0, [p0];
ld.param.u64 %rd1, [p1];
cvt.u64.u32 %rd2, %r0;
add.s64 %rd0, %rd0, %rd2;
ld.global.s8 %rs1, [%rd0];
ld.global.u8 %r2, [%rd0];
cvt.s64.s16 %rd3, %rs1;
cvt.s64.s32 %rd4, %r2;
shl.b64 %rd4, %rd4, 32;
add.s64 %rd3, %rd3, %rd4;
shl.b64 %rd2, %rd2, 3;
add.s64 %rd1, %rd1, %rd2;
st.global.u64 [%rd1], %rd3;
ret;)"),
          {.threads = 4}, from, to);
  CHECK(memory.read<int64_t>(to, 4) ==
        std::vector<int64_t>{(255LL << 32) - 1, (127LL << 32) + 127, (128LL << 32) - 128, (3LL << 32) + 3});
}

TEST_CASE("ptx memory: parameters of any type, and a module's own variables") {
  TestMemory memory;
  const uint64_t to = memory.empty<float>(1);
  Module module(R"(.version 9.0
.target sm_90
.global .align 4 .b8 table[8] = {0, 0, 128, 63, 0, 0, 0, 64};
.visible .entry k(
.param .align 8 .b8 k_param_0[24],
.param .f32 k_param_1,
.param .u8 k_param_2
)
{
.reg .b64 %rd<4>;
.reg .f32 %f<8>;
.reg .b16 %rs<4>;
.reg .b32 %r<4>;
mov.u64 %rd1, k_param_0;
ld.param.u64 %rd2, [%rd1+8];
ld.param.v2.f32 {%f1, %f2}, [k_param_0+16];
ld.param.f32 %f3, [k_param_1];
ld.param.s8 %rs1, [k_param_2];
cvt.rn.f32.s16 %f4, %rs1;
mov.u64 %rd3, table;
ld.global.nc.f32 %f5, [%rd3+4];
mul.f32 %f5, %f5, 0f42C80000;
add.f32 %f1, %f1, %f2;
add.f32 %f1, %f1, %f3;
add.f32 %f1, %f1, %f4;
add.f32 %f1, %f1, %f5;
st.global.f32 [%rd2], %f1;
ret;
}
)");
  CHECK(module.parameter_bytes("k") == std::vector<uint32_t>{24, 4, 1});
  struct {
    uint64_t unused = 0;
    uint64_t pointer = 0;
    float numbers[2] = {1, 10};
  } first;
  first.pointer = to;
  Launch launch;
  launch.kernel = &module.kernel("k");
  launch.arguments = {bytes_of_value(first), bytes_of_value(0.5F), bytes_of_value(int8_t{-3})};
  run(launch, memory.memory, Properties{});
  CHECK(memory.read<float>(to, 1) == std::vector<float>{208.5F});
  launch.arguments.pop_back();
  CHECK(fault_of(Fault::Kind::kResources, [&] { run(launch, memory.memory, Properties{}); }) ==
        "k: expected 3 parameters, got 2");
  launch.arguments = {bytes_of_value(first), bytes_of_value(0.5), bytes_of_value(int8_t{-3})};
  CHECK(fault_of(Fault::Kind::kResources, [&] { run(launch, memory.memory, Properties{}); }) ==
        "k: parameter 1: expected 4 bytes, got 8");
}

TEST_CASE("ptx faults: accesses that are not aligned") {
  TestMemory memory;
  const uint64_t x = memory.of(std::vector<float>(256));
  CHECK(fault_of(Fault::Kind::kMisalignedAddress,
                 [&] { run_ptx(memory, loads("ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd1];", 16, 4), {}, x); }) ==
        kFault + fmt::format("(0, 0, 0), ld.global.v4.f32: 16 bytes at {:#x}, which is not a multiple of 16: byte 4 of "
                             "1024 bytes, allocated by cudaMalloc number 1",
                             x + 4));
  CHECK(fault_of(Fault::Kind::kMisalignedAddress,
                 [&] { run_ptx(memory, loads("st.global.u32 [%rd1], 1;", 6), {}, x); }) ==
        kFault + fmt::format("(1, 0, 0), st.global.u32: 4 bytes at {:#x}, which is not a multiple of 4: byte 6 of "
                             "1024 bytes, allocated by cudaMalloc number 1",
                             x + 6));
}

TEST_CASE("ptx faults: accesses outside of what was allocated") {
  TestMemory memory;
  const uint64_t x = memory.of(std::vector<float>(20));
  const auto fault = [&](const std::string& text, uint64_t address) {
    return fault_of(Fault::Kind::kIllegalAddress, [&] { run_ptx(memory, text, {}, address); });
  };
  CHECK(fault(loads("ld.global.f32 %f0, [%rd1];", 4), x) ==
        kFault +
            fmt::format("(20, 0, 0), ld.global.f32: 4 bytes at {:#x}: 0 bytes after the end of 80 bytes, allocated by "
                        "cudaMalloc number 1",
                        x + 80));
  CHECK(fault(loads("st.global.f32 [%rd1], 0f00000000;", 4, -8), x) ==
        kFault +
            fmt::format("(0, 0, 0), st.global.f32: 4 bytes at {:#x}: 8 bytes before 80 bytes, allocated by cudaMalloc "
                        "number 1",
                        x - 8));
  CHECK(fault(loads("ld.global.v2.u64 {%rd3, %rd4}, [%rd1];", 0, 80 - 16 + 16), x) ==
        kFault +
            fmt::format("(0, 0, 0), ld.global.v2.u64: 16 bytes at {:#x}: 0 bytes after the end of 80 bytes, allocated "
                        "by cudaMalloc number 1",
                        x + 80));
  CHECK(fault(loads("ld.global.f32 %f0, [%rd1];", 0), 0) ==
        kFault + "(0, 0, 0), ld.global.f32: 4 bytes at 0x0: a null pointer");
  REQUIRE(memory.memory.release(x));
  CHECK(fault(loads("ld.global.f32 %f0, [%rd1+16];", 4), x) ==
        kFault + fmt::format("(0, 0, 0), ld.global.f32: 4 bytes at {:#x}: byte 16 of 80 bytes, allocated by cudaMalloc "
                             "number 1, which were freed",
                             x + 16));
}

TEST_CASE("ptx faults: an access that begins inside and ends outside") {
  TestMemory memory;
  const uint64_t x = memory.of(std::vector<uint8_t>(40));
  CHECK(fault_of(
            Fault::Kind::kIllegalAddress,
            [&] { run_ptx(memory, loads("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];", 16), {.threads = 3}, x); }) ==
        kFault +
            fmt::format("(2, 0, 0), ld.global.v4.u32: 16 bytes at {:#x}: 0 bytes after the end of 40 bytes, allocated "
                        "by cudaMalloc number 1",
                        x + 32));
}

TEST_CASE("ptx faults: reads of what was never written") {
  TestMemory memory;
  const uint64_t x = memory.empty<float>(64);
  Allocation* const allocation = memory.memory.find(x);
  std::memset(allocation->written.data(), 1, size_t{4} * 21);
  const auto fault = [&](const std::string& text) {
    return fault_of(Fault::Kind::kUninitialized, [&] { run_ptx(memory, text, {}, x); });
  };
  CHECK(fault(loads("ld.global.f32 %f0, [%rd1];", 4)) ==
        kFault +
            fmt::format("(21, 0, 0), ld.global.f32: 4 bytes at {:#x}, which were never written: byte 84 of 256 bytes, "
                        "allocated by cudaMalloc number 1",
                        x + 84));
  CHECK(fault(loads("ld.global.f32 %f0, [%rd1];", 8)) ==  // no neighbours
        kFault +
            fmt::format("(11, 0, 0), ld.global.f32: 4 bytes at {:#x}, which were never written: byte 88 of 256 bytes, "
                        "allocated by cudaMalloc number 1",
                        x + 88));
  // What a kernel writes counts as written.
  run_ptx(memory, loads("st.global.f32 [%rd1], 0f3F800000;\nld.global.f32 %f0, [%rd1];", 4), {}, x);
  CHECK(fault_of(Fault::Kind::kUninitialized, [&] {
          run_ptx(memory,
                  kernel_text(1,
                              ".local .align 4 .b8 depot[8];\nmov.u64 %rd1, depot;\nst.local.u32 [%rd1], 1;\n"
                              ".loc 1 4 1\nld.local.u32 %r1, [%rd1+4];\nret;"),
                  {}, x);
        }) == kFault + "(0, 0, 0), ld.local.u32: 4 bytes at byte 4 of local memory, which were never written");
}

/// A struct of 4 bytes, padding and 8 bytes.
struct Padded {
  uint32_t small = 0;
  uint64_t large = 0;
};

TEST_CASE("ptx memory: padding goes with its struct, and stays unwritten") {
  TestMemory memory;
  const uint64_t from = memory.of(std::vector<Padded>(32, {7, 9}));
  const uint64_t to = memory.empty<Padded>(32);
  for (size_t k = 0; k < 32; ++k) {
    std::memset(memory.memory.find(from)->written.data() + 16 * k + 4, 0, 4);
  }
  const std::string begin =
      "mov.u32 %r0, %tid.x;\nld.param.u64 %rd0, [p0];\nld.param.u64 %rd1, [p1];\nmul.wide.u32 %rd2, "
      "%r0, 16;\nadd.s64 %rd0, %rd0, %rd2;\nadd.s64 %rd1, %rd1, %rd2;\n.loc 1 4 1\n"
      "ld.global.v2.u64 {%rd3, %rd4}, [%rd0];\n.loc 1 5 1\n";
  const auto written = [&](const std::string& body) {
    std::memset(memory.memory.find(to)->written.data(), 0, size_t{16} * 32);
    run_ptx(memory, kernel_text(2, begin + body + "\nret;"), {}, from, to);
    std::string bytes;
    for (size_t k = 16; k < 32; ++k) {
      bytes += memory.memory.find(to)->written[k] != 0 ? '1' : '0';
    }
    return bytes;
  };
  CHECK(written("st.global.v2.u64 [%rd1], {%rd3, %rd4};") == "1111000011111111");
  // Halves that are split, chosen, shuffled and joined again.
  CHECK(written(
            "mov.b64 {%r1, %r2}, %rd3;\nsetp.eq.u32 %p1, %r1, 7;\nselp.b32 %r2, %r2, 0, %p1;\nshfl.sync.bfly.b32 %r2, "
            "%r2, 1, 31, -1;\nmov.b64 %rd5, {%r1, %r2};\nst.global.v2.u64 [%rd1], {%rd5, %rd4};") ==
        "1111000011111111");
  CHECK(written(
            "cvt.u32.u64 %r1, %rd3;\nshr.u64 %rd5, %rd3, 32;\nshl.b64 %rd5, %rd5, 32;\ncvt.u64.u32 %rd6, %r1;\nor.b64 "
            "%rd5, %rd5, %rd6;\nst.global.u64 [%rd1], %rd5;") == "1111000000000000");
  CHECK(written("shr.u64 %rd5, %rd3, 32;\nmov.u64 %rd5, 3;\nst.global.u64 [%rd1], %rd5;") == "1111111100000000");
  CHECK(written("and.b64 %rd5, %rd3, 65535;\nst.global.u64 [%rd1], %rd5;") == "1111111100000000");
  CHECK(written("add.s64 %rd5, %rd3, 1;\nst.global.u64 [%rd1], %rd5;") == "0000000000000000");  // all of a sum
  const auto fault = [&](const std::string& body) {
    return fault_of(Fault::Kind::kUninitialized,
                    [&] { run_ptx(memory, kernel_text(2, begin + body + "\nret;"), {}, from, to); });
  };
  const std::string place = "name(float*), kernel.cu:5: block (0, 0, 0), thread (0, 0, 0), ";
  CHECK(fault("shr.u64 %rd5, %rd3, 32;\nsetp.eq.u64 %p1, %rd5, 0;\n@%p1 bra $end;\n$end:") ==
        place + "bra: its condition depends on memory that was never written, loaded at line 4");
  CHECK(fault("shr.u64 %rd3, %rd3, 36;\nld.global.u32 %r1, [%rd3];") ==
        place + "ld.global.u32: its address depends on memory that was never written, loaded at line 4");
}

const std::string kShared = ".extern .shared .align 16 .b8 dynamic[];";

TEST_CASE("ptx faults: shared memory") {
  TestMemory memory;
  const auto fault = [&](Fault::Kind kind, const std::string& access, int step) {
    const std::string body = fmt::format(
        ".shared .align 4 .b8 own[12];\nmov.u32 %r0, %tid.x;\nmov.u32 %r1, dynamic;\nmul.lo.u32 %r2, %r0, {};\n"
        "add.s32 %r1, %r1, %r2;\nmov.u32 %r5, own;\n.loc 1 4 2\n{}\nret;",
        step, access);
    return fault_of(kind, [&] { run_ptx(memory, kernel_text(0, body, kShared), {.shared_bytes = 100}); });
  };
  CHECK(fault(Fault::Kind::kIllegalAddress, "st.shared.u32 [%r1], %r0;", 4) ==
        kFault + "(25, 0, 0), st.shared.u32: 4 bytes at byte 116 of 116 bytes of shared memory");
  CHECK(fault(Fault::Kind::kIllegalAddress, "st.shared.u32 [%r5+-4], %r0;", 4) ==
        kFault + "(0, 0, 0), st.shared.u32: 4 bytes at byte -4 of 116 bytes of shared memory");
  CHECK(fault(Fault::Kind::kUninitialized, "ld.shared.u32 %r3, [%r1];", 0) ==
        kFault + "(0, 0, 0), ld.shared.u32: 4 bytes at byte 16 of shared memory, which were never written");
  CHECK(fault(Fault::Kind::kMisalignedAddress, "st.shared.u64 [%r1+4], %rd0;", 0) ==
        kFault + "(0, 0, 0), st.shared.u64: 8 bytes at 0x414, which is not a multiple of 8");
  Properties small;
  small.shared_bytes_per_multiprocessor = 64;
  Module module(kernel_text(0, "mov.u32 %r1, dynamic;\nret;", kShared));
  Launch launch;
  launch.kernel = &module.kernel("_Z4namePf");
  launch.dynamic_shared_bytes = 65;
  CHECK(fault_of(Fault::Kind::kResources, [&] { run(launch, memory.memory, small); }) ==
        "name(float*): expected at most 64 bytes of shared memory, got 65");
}

TEST_CASE("ptx counters: sectors of global memory") {
  TestMemory memory;
  const uint64_t x = memory.of(std::vector<float>(4096));
  const auto sectors = [&](const std::string& load, int step, int begin) {
    const Counters counters = run_ptx(memory, loads(load, step, begin), {}, x);
    CHECK(counters.global_load_requests == 1);
    CHECK(counters.global_store_requests == 0);
    CHECK(counters.warp_instructions == 7);
    return counters.global_load_sectors;
  };
  CHECK(sectors("ld.global.f32 %f0, [%rd1];", 4, 0) == 4);
  CHECK(sectors("ld.global.f32 %f0, [%rd1];", 4, 4) == 5);
  CHECK(sectors("ld.global.f32 %f0, [%rd1];", 8, 0) == 8);
  CHECK(sectors("ld.global.f32 %f0, [%rd1];", 128, 0) == 32);
  CHECK(sectors("ld.global.f32 %f0, [%rd1];", 0, 0) == 1);
  CHECK(sectors("ld.global.u16 %rs0, [%rd1];", 2, 0) == 2);
  CHECK(sectors("ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd1];", 16, 0) == 16);
  CHECK(sectors("ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd1];", 32, 0) == 32);
  const Counters stores = run_ptx(memory, loads("st.global.f32 [%rd1], 0f00000000;", 4), {.threads = 40}, x);
  CHECK(stores.global_store_requests == 2);
  CHECK(stores.global_store_sectors == 5);
  CHECK(stores.global_store_bytes == 160);
  CHECK(stores.global_load_bytes == 0);
}

TEST_CASE("ptx counters: passes over the banks of shared memory") {
  TestMemory memory;
  const auto wavefronts = [&](const std::string& store, int step) {
    const std::string body = fmt::format(
        "mov.u32 %r0, %tid.x;\nmov.u32 %r1, dynamic;\nmul.lo.u32 %r2, %r0, {};\nadd.s32 %r1, %r1, %r2;\n{}\nret;", step,
        store);
    const Counters counters = run_ptx(memory, kernel_text(0, body, kShared), {.shared_bytes = 32768});
    CHECK(counters.shared_requests == 1);
    return counters.shared_wavefronts;
  };
  CHECK(wavefronts("st.shared.u32 [%r1], %r0;", 4) == 1);
  CHECK(wavefronts("st.shared.u32 [%r1], %r0;", 8) == 2);
  CHECK(wavefronts("st.shared.u32 [%r1], %r0;", 12) == 1);
  CHECK(wavefronts("st.shared.u32 [%r1], %r0;", 128) == 32);
  CHECK(wavefronts("st.shared.u32 [%r1], %r0;", 132) == 1);
  CHECK(wavefronts("st.shared.f64 [%r1], %fd0;", 8) == 2);
  CHECK(wavefronts("st.shared.v4.f32 [%r1], {%f0, %f1, %f2, %f3};", 16) == 4);
  CHECK(wavefronts("st.shared.f64 [%r1], %fd0;", 16) == 4);
}

TEST_CASE("virtual memory: allocations, their notes and their ends") {
  Memory memory(10000);
  const uint64_t a = memory.allocate(768);
  const uint64_t b = memory.allocate(100);
  CHECK(a % 512 == 256);
  CHECK(memory.available() == 10000 - 868);
  CHECK(memory.allocate(10000) == 0);
  CHECK(memory.allocate(0) == 0);
  REQUIRE(memory.find(a + 767) != nullptr);
  CHECK(memory.find(a + 767)->begin == a);
  CHECK(memory.find(a + 768) == nullptr);
  CHECK(memory.find(a)->data[767] == std::byte{0xff});
  CHECK(memory.find(a)->written[767] == 0);
  CHECK(memory.describe(a + 5) == "byte 5 of 768 bytes, allocated by cudaMalloc number 1");
  CHECK(memory.describe(a + 772) == "4 bytes after the end of 768 bytes, allocated by cudaMalloc number 1");
  CHECK(memory.describe(b - 16) == "16 bytes before 100 bytes, allocated by cudaMalloc number 2");
  CHECK(memory.describe(8) == "a null pointer");
  CHECK_FALSE(memory.release(a + 1));
  CHECK(memory.release(a));
  CHECK_FALSE(memory.release(a));
  CHECK(memory.describe(a + 5) == "byte 5 of 768 bytes, allocated by cudaMalloc number 1, which were freed");
  CHECK(memory.available() == 10000 - 100);
  CHECK(memory.allocate(768) != a);
}

}  // namespace
}  // namespace virtual_gpu::test
