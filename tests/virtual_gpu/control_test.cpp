#include "virtual_gpu/ptx_test_support.h"

namespace virtual_gpu::test {
namespace {

const std::string kStore =  // %r9 to the thread's place of p0
    "ld.param.u64 %rd1, [p0];\nmov.u32 %r8, %tid.x;\nmul.wide.u32 %rd2, %r8, 4;\nadd.s64 %rd1, %rd1, %rd2;\n"
    "st.global.u32 [%rd1], %r9;\n";

/// What the threads of one block leave in %r9.
std::vector<uint32_t> results(const std::string& body, uint32_t threads, uint64_t shared_bytes = 0) {
  TestMemory memory;
  const uint64_t output = memory.empty<uint32_t>(threads);
  run_ptx(memory, kernel_text(1, body + kStore + "ret;", ".extern .shared .align 16 .b8 dynamic[];"),
          {.threads = threads, .shared_bytes = shared_bytes}, output);
  return memory.read<uint32_t>(output, threads);
}

template <class F>
std::vector<uint32_t> by_thread(uint32_t threads, F&& f) {
  std::vector<uint32_t> values;
  for (uint32_t t = 0; t < threads; ++t) {
    values.push_back(static_cast<uint32_t>(f(t)));
  }
  return values;
}

TEST_CASE("ptx control: the lanes of a warp part and meet again") {
  for (const uint32_t threads : {1U, 31U, 32U, 33U, 96U}) {
    CAPTURE(threads);
    // Lanes take one of two ways, and one of three within one of them.
    const std::vector<uint32_t> values = results(R"(
mov.u32 %r0, %tid.x;
and.b32 %r1, %r0, 1;
setp.eq.u32 %p1, %r1, 0;
mov.u32 %r9, 5;
@%p1 bra $even;
mul.lo.u32 %r9, %r0, 3;
rem.u32 %r2, %r0, 3;
setp.eq.u32 %p2, %r2, 1;
@!%p2 bra $end;
add.s32 %r9, %r9, 1000;
bra.uni $end;
$even:
add.s32 %r9, %r9, %r0;
$end:
shl.b32 %r9, %r9, 1;
)",
                                                 threads);
    CHECK(values ==
          by_thread(threads, [](uint32_t t) { return 2 * (t % 2 == 0 ? 5 + t : 3 * t + (t % 3 == 1 ? 1000 : 0)); }));
  }
}

TEST_CASE("ptx control: each lane leaves a loop in its own turn") {
  TestMemory memory;
  const uint64_t output = memory.empty<uint32_t>(32);
  const std::string text = kernel_text(1, R"(
mov.u32 %r0, %tid.x;
mov.u32 %r9, 0;
mov.u32 %r1, 0;
$loop:
add.s32 %r9, %r9, %r1;
add.s32 %r1, %r1, 1;
setp.le.u32 %p1, %r1, %r0;
@%p1 bra $loop;
)" + kStore + "ret;");
  const Counters counters = run_ptx(memory, text, {}, output);
  CHECK(memory.read<uint32_t>(output, 32) == by_thread(32, [](uint32_t t) { return t * (t + 1) / 2; }));
  // Lanes that have left wait, so that the store and the end come once.
  CHECK(counters.warp_instructions == 3 + 32 * 4 + 5 + 1);
  CHECK(counters.global_store_requests == 1);
  CHECK(counters.launches == 1);
}

TEST_CASE("ptx control: threads that have ended take no part any more") {
  TestMemory memory;
  const uint64_t output = memory.of(std::vector<uint32_t>(64, 7));
  run_ptx(memory, kernel_text(1, R"(
mov.u32 %r0, %tid.x;
setp.gt.u32 %p1, %r0, 40;
@%p1 exit;
mov.u32 %r9, 1;
bar.sync 0;
)" + kStore + "ret;"),
          {.threads = 64}, output);
  CHECK(memory.read<uint32_t>(output, 64) == by_thread(64, [](uint32_t t) { return t > 40 ? 7 : 1; }));
}

TEST_CASE("ptx control: a function is called, with a local array, from two places") {
  const std::string function = R"(
.func (.param .b32 func_retval0) table(
.param .b32 table_param_0
)
{
.local .align 4 .b8 depot[16];
.reg .b64 %SPL;
.reg .pred %p<2>;
.reg .b32 %r<4>;
.reg .b64 %rd<4>;
mov.u64 %SPL, depot;
ld.param.u32 %r0, [table_param_0];
st.local.u32 [%SPL], 10;
st.local.u32 [%SPL+4], 20;
st.local.u32 [%SPL+8], %r0;
and.b32 %r1, %r0, 1;
setp.eq.u32 %p1, %r1, 0;
@%p1 bra $LBB0_1;
ld.local.u32 %r2, [%SPL+4];
st.param.b32 [func_retval0+0], %r2;
ret;
$LBB0_1:
ld.local.u32 %r2, [%SPL+8];
st.param.b32 [func_retval0+0], %r2;
ret;
}
)";
  const std::string call = R"({
.reg .b32 temp_param_reg;
.param .b32 param0;
st.param.b32 [param0+0], %r1;
.param .b32 retval0;
call.uni (retval0),
table,
(
param0
);
ld.param.b32 %r2, [retval0+0];
}
)";
  TestMemory memory;
  const uint64_t output = memory.empty<uint32_t>(32);
  run_ptx(memory,
          kernel_text(1,
                      "mov.u32 %r1, %tid.x;\n" + call + "mov.u32 %r9, %r2;\nadd.s32 %r1, %r1, 1;\n" + call +
                          "mad.lo.s32 %r9, %r2, 1000, %r9;\n" + kStore + "ret;",
                      function),
          {}, output);
  const auto table = [](uint32_t x) { return x % 2 == 0 ? x : 20; };
  CHECK(memory.read<uint32_t>(output, 32) == by_thread(32, [&](uint32_t t) { return 1000 * table(t + 1) + table(t); }));
}

TEST_CASE("ptx control: inline assembly has registers of its own") {
  CHECK(results(
            "mov.u32 %r0, %tid.x;\n{\n.reg .b32 %r0;\nmov.u32 %r0, 3;\nmov.u32 %r9, %r0;\n}\nadd.s32 %r9, %r9, %r0;\n",
            4) == std::vector<uint32_t>{3, 4, 5, 6});
}

TEST_CASE("ptx control: the place of a thread and of its block") {
  TestMemory memory;
  const uint64_t output = memory.empty<uint32_t>(2 * 3 * 24);
  Module module(kernel_text(1, R"(
mov.u32 %r0, %tid.x;
mov.u32 %r1, %tid.y;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %ctaid.y;
mov.u32 %r4, %ntid.x;
mad.lo.s32 %r5, %r1, %r4, %r0;
mov.u32 %r6, %nctaid.x;
mad.lo.s32 %r7, %r3, %r6, %r2;
mad.lo.s32 %r10, %r7, 24, %r5;
ld.param.u64 %rd1, [p0];
mul.wide.u32 %rd2, %r10, 4;
add.s64 %rd1, %rd1, %rd2;
mov.u32 %r11, %laneid;
mad.lo.s32 %r11, %r7, 1000, %r11;
st.global.u32 [%rd1], %r11;
ret;
)"));
  Launch launch;
  launch.kernel = &module.kernel("_Z4namePf");
  launch.grid = {2, 3, 1};
  launch.block = {8, 3, 1};
  launch.arguments = {bytes_of_value(output)};
  run(launch, memory.memory, Properties{});
  CHECK(memory.read<uint32_t>(output, 2 * 3 * 24) ==
        by_thread(2 * 3 * 24, [](uint32_t t) { return t / 24 * 1000 + t % 24; }));
}

TEST_CASE("ptx control: shuffles") {
  const std::string set = "mov.u32 %r0, %tid.x;\nmul.lo.u32 %r1, %r0, 10;\n";
  CHECK(results(set + "shfl.sync.bfly.b32 %r9|%p1, %r1, 16, 31, -1;\n", 32) ==
        by_thread(32, [](uint32_t t) { return 10 * (t ^ 16); }));
  CHECK(results(set + "shfl.sync.idx.b32 %r9, %r1, 3, 31, -1;\n", 32) == by_thread(32, [](uint32_t) { return 30; }));
  CHECK(results(set + "shfl.sync.down.b32 %r9|%p1, %r1, 4, 31, -1;\n@!%p1 mov.u32 %r9, 1;\n", 32) ==
        by_thread(32, [](uint32_t t) { return t + 4 < 32 ? 10 * (t + 4) : 1; }));
  CHECK(results(set + "shfl.sync.up.b32 %r9, %r1, 2, 0, -1;\n", 32) ==
        by_thread(32, [](uint32_t t) { return 10 * (t < 2 ? t : t - 2); }));
  // Segments of eight lanes.
  CHECK(results(set + "shfl.sync.idx.b32 %r9, %r1, 3, 6175, -1;\n", 32) ==
        by_thread(32, [](uint32_t t) { return 10 * (t / 8 * 8 + 3); }));
}

TEST_CASE("ptx control: votes") {
  const std::string set = "mov.u32 %r0, %tid.x;\nsetp.gt.u32 %p1, %r0, 29;\n";
  CHECK(results(set + "vote.sync.any.pred %p2, %p1, -1;\nselp.u32 %r9, 1, 0, %p2;\n", 32) ==
        by_thread(32, [](uint32_t) { return 1; }));
  CHECK(results(set + "vote.sync.all.pred %p2, %p1, -1;\nselp.u32 %r9, 1, 0, %p2;\n", 32) ==
        by_thread(32, [](uint32_t) { return 0; }));
  CHECK(results(set + "vote.sync.ballot.b32 %r9, %p1, -1;\n", 32) ==
        by_thread(32, [](uint32_t) { return 0xc0000000; }));
  // Only the lanes that are there are asked.
  CHECK(results(set + "mov.u32 %r9, 7;\n@!%p1 bra $end;\nvote.sync.all.pred %p2, %p1, 0xc0000000;\nselp.u32 %r9, 1, 0, "
                      "%p2;\n$end:\n",
                32) == by_thread(32, [](uint32_t t) { return t > 29 ? 1 : 7; }));
}

TEST_CASE("ptx control: warps wait for one another at a barrier") {
  const std::string body = R"(
mov.u32 %r0, %tid.x;
mov.u32 %r1, dynamic;
shl.b32 %r2, %r0, 2;
add.s32 %r3, %r1, %r2;
st.shared.u32 [%r3], %r0;
bar.sync 0;
mov.u32 %r4, %ntid.x;
sub.s32 %r4, %r4, %r0;
shl.b32 %r4, %r4, 2;
add.s32 %r4, %r1, %r4;
ld.shared.u32 %r9, [%r4+-4];
)";
  CHECK(results(body, 96, 96 * 4) == by_thread(96, [](uint32_t t) { return 95 - t; }));
}

TEST_CASE("ptx control: a shuffle and a barrier wait for lanes that come another way") {
  // The even lanes reach the shuffle, which stands first in the text, before the odd ones.
  const std::string begin = R"(
mov.u32 %r0, %tid.x;
and.b32 %r1, %r0, 1;
setp.eq.u32 %p1, %r1, 1;
mul.lo.u32 %r2, %r0, 10;
@%p1 bra $odd;
$meet:
)";
  const std::string end = R"(
bra.uni $end;
$odd:
add.s32 %r2, %r2, 1;
bra.uni $meet;
$end:
)";
  const auto value = [](uint32_t t) { return 10 * t + t % 2; };
  CHECK(results(begin + "shfl.sync.bfly.b32 %r9, %r2, 1, 31, -1;" + end, 32) ==
        by_thread(32, [&](uint32_t t) { return value(t ^ 1); }));
  CHECK(results(begin + "bar.sync 0;\nshfl.sync.bfly.b32 %r9, %r2, 16, 31, -1;" + end, 32) ==
        by_thread(32, [&](uint32_t t) { return value(t ^ 16); }));
}

TEST_CASE("ptx faults: barriers and shuffles that not all lanes reach") {
  const std::string half = ".loc 1 7 1\nmov.u32 %r0, %tid.x;\nsetp.lt.u32 %p1, %r0, 16;\n@%p1 bra $end;\n.loc 1 8 1\n";
  CHECK(fault_of(Fault::Kind::kDivergence, [&] { results(half + "bar.sync 0;\n$end:\nmov.u32 %r9, 0;\n", 32); }) ==
        "name(float*), kernel.cu:8: block (0, 0, 0), thread (16, 0, 0), bar.sync: the lanes 0xffff0000 of its warp are "
        "at "
        "the barrier, and the lanes 0x0000ffff do not come");
  const std::string one_warp =
      ".loc 1 7 1\nmov.u32 %r0, %tid.x;\nsetp.lt.u32 %p1, %r0, 32;\n@%p1 bra $one;\n.loc 1 8 1\n"
      "bar.sync 0;\nbra $end;\n$one:\n.loc 1 9 1\nbar.sync 0;\n$end:\nmov.u32 %r9, 0;\n";
  CHECK(
      fault_of(Fault::Kind::kDivergence, [&] { results(one_warp, 64); }) ==
      "name(float*), kernel.cu:8: block (0, 0, 0), thread (32, 0, 0), bar.sync: its warp waits here, and warp 0 at the "
      "barrier of line 9");
  CHECK(fault_of(Fault::Kind::kDivergence,
                 [&] { results(half + "shfl.sync.bfly.b32 %r9, %r0, 1, 31, -1;\n$end:\nmov.u32 %r9, 0;\n", 32); }) ==
        "name(float*), kernel.cu:8: block (0, 0, 0), thread (16, 0, 0), shfl.sync.bfly.b32: its mask names the lanes "
        "0xffffffff, and the lanes 0xffff0000 are there");
  CHECK(fault_of(Fault::Kind::kDivergence,
                 [&] {
                   results(half + "shfl.sync.bfly.b32 %r9, %r0, 16, 31, 0xffff0000;\n$end:\nmov.u32 %r9, 0;\n", 32);
                 }) ==
        "name(float*), kernel.cu:8: block (0, 0, 0), thread (16, 0, 0), shfl.sync.bfly.b32: it reads lane 0, which "
        "is not there");
  CHECK(fault_of(Fault::Kind::kDivergence,
                 [&] { results(half + "vote.sync.any.pred %p2, %p1, -1;\n$end:\nmov.u32 %r9, 0;\n", 32); }) ==
        "name(float*), kernel.cu:8: block (0, 0, 0), thread (16, 0, 0), vote.sync.any.pred: its mask names the lanes "
        "0xffffffff, and the lanes 0xffff0000 are there");
}

}  // namespace
}  // namespace virtual_gpu::test
