#include "virtual_gpu/ptx_test_support.h"

#include <bit>

namespace virtual_gpu::test {
namespace {

const std::vector<int32_t> kInts = {0, 1, -1, 2, -3, 7, 31, 33, 1000003, -65536, 2147483647, -2147483647 - 1};
const std::vector<uint32_t> kUnsigned = {0, 1, 2, 3, 5, 31, 32, 65535, 65536, 2147483648U, 4294967294U, 4294967295U};
const std::vector<int64_t> kLongs = {0, 1, -1, 3, -7, 1LL << 32, -(1LL << 33), 123456789012345, INT64_MAX, INT64_MIN};
const std::vector<int16_t> kShorts = {0, 1, -1, 5, -300, 255, 32767, -32768};

uint32_t u(int32_t x) {
  return static_cast<uint32_t>(x);
}

TEST_CASE("ptx integers: sums and products wrap around") {
  const Pairs<int32_t> p(kInts);
  CHECK(compute<int32_t>("add.s32 %d, %a, %b;", p.first, p.second) ==
        p.map<int32_t>([](int32_t a, int32_t b) { return u(a) + u(b); }));
  CHECK(compute<int32_t>("sub.s32 %d, %a, %b;", p.first, p.second) ==
        p.map<int32_t>([](int32_t a, int32_t b) { return u(a) - u(b); }));
  CHECK(compute<int32_t>("mul.lo.s32 %d, %a, %b;", p.first, p.second) ==
        p.map<int32_t>([](int32_t a, int32_t b) { return u(a) * u(b); }));
  CHECK(compute<int32_t>("mad.lo.s32 %d, %a, %b, -3;", p.first, p.second) ==
        p.map<int32_t>([](int32_t a, int32_t b) { return u(a) * u(b) - 3; }));
  const Pairs<int64_t> q(kLongs);
  CHECK(compute<int64_t>("add.s64 %d, %a, %b;", q.first, q.second) ==
        q.map<int64_t>([](int64_t a, int64_t b) { return static_cast<uint64_t>(a) + static_cast<uint64_t>(b); }));
  CHECK(compute<int64_t>("mul.lo.s64 %d, %a, %b;", q.first, q.second) ==
        q.map<int64_t>([](int64_t a, int64_t b) { return static_cast<uint64_t>(a) * static_cast<uint64_t>(b); }));
  const Pairs<int16_t> s(kShorts);
  CHECK(compute<int16_t>("add.s16 %d, %a, %b;", s.first, s.second) ==
        s.map<int16_t>([](int a, int b) { return a + b; }));
  CHECK(compute<int16_t>("mul.lo.s16 %d, %a, %b;", s.first, s.second) ==
        s.map<int16_t>([](int a, int b) { return u(a) * u(b); }));
}

TEST_CASE("ptx integers: wide and high products") {
  const Pairs<int32_t> p(kInts);
  CHECK(compute<int64_t>("mul.wide.s32 %d, %a, %b;", p.first, p.second) ==
        p.map<int64_t>([](int64_t a, int64_t b) { return a * b; }));
  CHECK(compute<int32_t>("mul.hi.s32 %d, %a, %b;", p.first, p.second) ==
        p.map<int32_t>([](int64_t a, int64_t b) { return (a * b) >> 32; }));
  const Pairs<uint32_t> q(kUnsigned);
  CHECK(compute<uint64_t>("mul.wide.u32 %d, %a, %b;", q.first, q.second) ==
        q.map<uint64_t>([](uint64_t a, uint64_t b) { return a * b; }));
  CHECK(compute<uint64_t>("mov.u64 %y, 5; mad.wide.u32 %d, %a, %b, %y;", q.first, q.second) ==
        q.map<uint64_t>([](uint64_t a, uint64_t b) { return a * b + 5; }));
  CHECK(compute<uint32_t>("mul.hi.u32 %d, %a, %b;", q.first, q.second) ==
        q.map<uint32_t>([](uint64_t a, uint64_t b) { return (a * b) >> 32; }));
  const Pairs<int16_t> s(kShorts);
  CHECK(compute<int32_t>("mul.wide.s16 %d, %a, %b;", s.first, s.second) ==
        s.map<int32_t>([](int a, int b) { return a * b; }));
  CHECK(compute<uint32_t>("mul.wide.u16 %d, %a, 4;", std::vector<uint16_t>{0, 1, 65535}) ==
        std::vector<uint32_t>{0, 4, 262140});
  CHECK(compute<int64_t>("mul.hi.s64 %d, %a, %b;", std::vector<int64_t>{INT64_MIN, -1, 1LL << 62},
                         std::vector<int64_t>{INT64_MIN, 1, 12}) == std::vector<int64_t>{1LL << 62, -1, 3});
}

TEST_CASE("ptx integers: quotients, remainders, extremes and signs") {
  const Pairs<int32_t> p({1, -1, 7, -7, 2147483647, -2147483647 - 1});
  CHECK(compute<int32_t>("div.s32 %d, %a, %b;", p.first, p.second) ==
        p.map<int32_t>([](int64_t a, int64_t b) { return a / b; }));  // of the lowest by -1: itself
  CHECK(compute<int32_t>("rem.s32 %d, %a, %b;", p.first, p.second) ==
        p.map<int32_t>([](int64_t a, int64_t b) { return a % b; }));
  const Pairs<uint32_t> q({1, 2, 7, 65536, 4294967295U});
  CHECK(compute<uint32_t>("div.u32 %d, %a, %b;", q.first, q.second) ==
        q.map<uint32_t>([](uint32_t a, uint32_t b) { return a / b; }));
  CHECK(compute<uint64_t>("rem.u64 %d, %a, %b;", std::vector<uint64_t>{17, ~0ULL}, std::vector<uint64_t>{5, 10}) ==
        std::vector<uint64_t>{2, 5});
  const Pairs<int32_t> r(kInts);
  CHECK(compute<int32_t>("min.s32 %d, %a, %b;", r.first, r.second) ==
        r.map<int32_t>([](int32_t a, int32_t b) { return std::min(a, b); }));
  CHECK(compute<int32_t>("max.u32 %d, %a, %b;", r.first, r.second) ==
        r.map<int32_t>([](int32_t a, int32_t b) { return std::max(u(a), u(b)); }));
  CHECK(compute<int32_t>("neg.s32 %d, %a;", kInts) == map<int32_t>(kInts, [](int32_t a) { return 0U - u(a); }));
  CHECK(compute<int64_t>("abs.s64 %d, %a;", kLongs) == map<int64_t>(kLongs, [](int64_t a) {
          return a < 0 ? 0U - static_cast<uint64_t>(a) : static_cast<uint64_t>(a);
        }));
}

TEST_CASE("ptx integers: a division by zero is a fault") {
  const std::string text = fault_of(Fault::Kind::kUndefined, [] {
    compute<int32_t>(".loc 1 5 3\ndiv.s32 %d, %a, %b;", std::vector<int32_t>{1, 2, 3}, std::vector<int32_t>{1, 2, 0});
  });
  CHECK(text ==
        "name(float*), kernel.cu:5: block (0, 0, 0), thread (2, 0, 0), div.s32: a division by zero, whose result "
        "PTX does not define");
}

TEST_CASE("ptx integers: carries go through chains of instructions") {
  const Pairs<int64_t> p(kLongs);
  const std::string split =
      ".reg .b32 %al, %ah, %bl, %bh, %lo, %hi, %t;\nmov.b64 {%al,%ah}, %a;\nmov.b64 {%bl,%bh}, %b;\n";
  const std::string join = "mov.b64 %d, {%lo,%hi};";
  CHECK(compute<int64_t>(split + "add.cc.u32 %lo, %al, %bl;\naddc.u32 %hi, %ah, %bh;\n" + join, p.first, p.second) ==
        p.map<int64_t>([](int64_t a, int64_t b) { return static_cast<uint64_t>(a) + static_cast<uint64_t>(b); }));
  CHECK(compute<int64_t>(split + "sub.cc.u32 %lo, %al, %bl;\nsubc.u32 %hi, %ah, %bh;\n" + join, p.first, p.second) ==
        p.map<int64_t>([](int64_t a, int64_t b) { return static_cast<uint64_t>(a) - static_cast<uint64_t>(b); }));
  // The upper half of al * bl + b, with the carry of the lower half.
  const std::string multiply =
      "mad.lo.cc.u32 %lo, %al, %bl, %bl;\nmadc.hi.cc.u32 %hi, %al, %bl, %bh;\naddc.u32 %t, 0, 0;\nadd.s32 %lo, %lo, "
      "%t;\n";
  CHECK(compute<int64_t>(split + multiply + join, p.first, p.second) == p.map<int64_t>([](int64_t a, int64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide sum = Wide{u(static_cast<int32_t>(a))} * u(static_cast<int32_t>(b)) + static_cast<uint64_t>(b);
    const uint64_t low = static_cast<uint64_t>(sum);
    const uint32_t carry = static_cast<uint32_t>(sum >> 64);
    return (low & 0xffffffff00000000) | static_cast<uint32_t>(static_cast<uint32_t>(low) + carry);
  }));
}

TEST_CASE("ptx bits: logic and shifts") {
  const Pairs<uint32_t> p(kUnsigned);
  CHECK(compute<uint32_t>("and.b32 %d, %a, %b;", p.first, p.second) ==
        p.map<uint32_t>([](uint32_t a, uint32_t b) { return a & b; }));
  CHECK(compute<uint32_t>("or.b32 %d, %a, %b;", p.first, p.second) ==
        p.map<uint32_t>([](uint32_t a, uint32_t b) { return a | b; }));
  CHECK(compute<uint32_t>("xor.b32 %d, %a, %b;", p.first, p.second) ==
        p.map<uint32_t>([](uint32_t a, uint32_t b) { return a ^ b; }));
  CHECK(compute<uint32_t>("not.b32 %d, %a;", kUnsigned) == map<uint32_t>(kUnsigned, [](uint32_t a) { return ~a; }));
  // A shift by 32 and more leaves nothing, or the sign.
  CHECK(compute<uint32_t>("shl.b32 %d, %a, %b;", p.first, p.second) ==
        p.map<uint32_t>([](uint32_t a, uint32_t b) { return b >= 32 ? 0 : a << b; }));
  CHECK(compute<uint32_t>("shr.u32 %d, %a, %b;", p.first, p.second) ==
        p.map<uint32_t>([](uint32_t a, uint32_t b) { return b >= 32 ? 0 : a >> b; }));
  CHECK(compute<uint32_t>("shr.s32 %d, %a, %b;", p.first, p.second) ==
        p.map<uint32_t>([](uint32_t a, uint32_t b) { return static_cast<int32_t>(a) >> std::min(b, 31U); }));
  CHECK(compute<uint64_t>("shl.b64 %d, %a, 3;", std::vector<uint64_t>{1, 1ULL << 62}) == std::vector<uint64_t>{8, 0});
  CHECK(compute<int64_t>("shr.s64 %d, %a, 63;", kLongs) == map<int64_t>(kLongs, [](int64_t a) { return a >> 63; }));
  CHECK(compute<uint16_t>("shr.u16 %d, %a, 8;", std::vector<uint16_t>{0xabcd, 255}) == std::vector<uint16_t>{0xab, 0});
}

TEST_CASE("ptx bits: counts, fields and permutations") {
  CHECK(compute<uint32_t>("clz.b32 %d, %a;", kUnsigned) ==
        map<uint32_t>(kUnsigned, [](uint32_t a) { return std::countl_zero(a); }));
  CHECK(compute<uint32_t>("clz.b64 %d, %a;", kLongs) ==
        map<uint32_t>(kLongs, [](int64_t a) { return std::countl_zero(static_cast<uint64_t>(a)); }));
  CHECK(compute<uint32_t>("popc.b32 %d, %a;", kUnsigned) ==
        map<uint32_t>(kUnsigned, [](uint32_t a) { return std::popcount(a); }));
  CHECK(compute<uint32_t>("brev.b32 %d, %a;", std::vector<uint32_t>{1, 0x80000000, 6}) ==
        std::vector<uint32_t>{0x80000000, 1, 0x60000000});
  CHECK(compute<uint32_t>("bfi.b32 %d, %a, %b, 4, 8;", std::vector<uint32_t>{0xff, 0xabc},
                          std::vector<uint32_t>{0, ~0U}) == std::vector<uint32_t>{0xff0, 0xfffffbcf});
  CHECK(compute<uint64_t>("bfi.b64 %d, %a, %b, 32, 32;", std::vector<uint64_t>{7}, std::vector<uint64_t>{~0ULL}) ==
        std::vector<uint64_t>{0x7ffffffff});
  CHECK(compute<uint32_t>("bfe.u32 %d, %a, 4, 8;", std::vector<uint32_t>{0xabcd}) == std::vector<uint32_t>{0xbc});
  CHECK(compute<int32_t>("bfe.s32 %d, %a, 4, 8;", std::vector<int32_t>{0xabcd, 0x7bcd}) ==
        std::vector<int32_t>{-0x44, -0x44});
  CHECK(compute<int32_t>("bfe.s32 %d, %a, 28, 16;", std::vector<int32_t>{-2147483647 - 1}) == std::vector<int32_t>{-8});
  CHECK(compute<uint32_t>("prmt.b32 %d, %a, %b, 30212;", std::vector<uint32_t>{0x33221100},
                          std::vector<uint32_t>{0x77665544}) == std::vector<uint32_t>{0x77660044});  // 30212 is 0x7604
  CHECK(compute<uint32_t>("prmt.b32 %d, %a, %b, 0x0098;", std::vector<uint32_t>{0x000080}, std::vector<uint32_t>{0}) ==
        std::vector<uint32_t>{0x808000ff});
  CHECK(compute<uint32_t>("shf.l.wrap.b32 %d, %a, %b, 36;", std::vector<uint32_t>{0x12345678},
                          std::vector<uint32_t>{0x9abcdef0}) == std::vector<uint32_t>{0xabcdef01});
  CHECK(compute<uint32_t>("shf.r.clamp.b32 %d, %a, %b, 36;", std::vector<uint32_t>{1},
                          std::vector<uint32_t>{0x9abcdef0}) == std::vector<uint32_t>{0x9abcdef0});
  CHECK(compute<uint32_t>("lop3.b32 %d, %a, %b, 0xff00, 0xe8;", std::vector<uint32_t>{0xf0f0f0f0},
                          std::vector<uint32_t>{0xcccccccc}) ==
        std::vector<uint32_t>{0xc0c0fcc0});  // the majority of three
  CHECK(compute<int32_t>("bfind.s32 %d, %a;", std::vector<int32_t>{0, 1, -1, -2, 256}) ==
        std::vector<int32_t>{-1, 0, -1, 0, 8});
}

TEST_CASE("ptx predicates: comparisons, their combinations and choices") {
  const Pairs<int32_t> p(kInts);
  const std::string select = " selp.u32 %d, 1, 0, %p;";
  const auto flag = [&](const std::string& code) { return compute<uint32_t>(code + select, p.first, p.second); };
  CHECK(flag("setp.lt.s32 %p, %a, %b;") == p.map<uint32_t>([](int32_t a, int32_t b) { return a < b; }));
  CHECK(flag("setp.lt.u32 %p, %a, %b;") == p.map<uint32_t>([](int32_t a, int32_t b) { return u(a) < u(b); }));
  CHECK(flag("setp.ne.s32 %p, %a, %b;") == p.map<uint32_t>([](int32_t a, int32_t b) { return a != b; }));
  CHECK(flag("setp.hs.u32 %p, %a, %b;") == p.map<uint32_t>([](int32_t a, int32_t b) { return u(a) >= u(b); }));
  CHECK(flag("setp.gt.s32 %q, %a, 5; setp.eq.and.s32 %p, %b, 7, %q;") ==
        p.map<uint32_t>([](int32_t a, int32_t b) { return a > 5 && b == 7; }));
  CHECK(flag("setp.gt.s32 %q, %a, 5; setp.le.xor.s32 %p, %b, 7, %q;") ==
        p.map<uint32_t>([](int32_t a, int32_t b) { return (b <= 7) != (a > 5); }));
  CHECK(flag("setp.le.s32 %q|%p, %a, %b;") == p.map<uint32_t>([](int32_t a, int32_t b) { return !(a <= b); }));
  CHECK(flag("setp.gt.s32 %p, %a, 0; setp.gt.s32 %q, %b, 0; not.pred %q, %q; or.pred %p, %p, %q;") ==
        p.map<uint32_t>([](int32_t a, int32_t b) { return a > 0 || b <= 0; }));
  CHECK(flag("setp.gt.s32 %q, %a, 0; mov.pred %p, 1; @!%q mov.pred %p, 0;") ==
        p.map<uint32_t>([](int32_t a, int32_t /*b*/) { return a > 0; }));
  CHECK(compute<int32_t>("setp.gt.s32 %p, %a, %b; mov.u32 %d, 9; @%p add.s32 %d, %a, 1;", p.first, p.second) ==
        p.map<int32_t>([](int32_t a, int32_t b) { return a > b ? u(a) + 1 : 9; }));
}

TEST_CASE("ptx: an instruction that is not known is named") {
  CHECK(fault_of(Fault::Kind::kUnsupported, [] { compute<float>("tanh.approx.f64 %d, %a;", std::vector<float>{1}); }) ==
        "name(float*): the virtual GPU does not know the instruction tanh.approx.f64 %d, %a");
  CHECK(fault_of(Fault::Kind::kUnsupported, [] { compute<float>("add.f32 %d, %a, %y;", std::vector<float>{1}); }) ==
        "name(float*): the virtual GPU does not know the instruction add.f32 %d, %a, %y (in PTX: %y has 8 bytes, "
        "expected 4)");
  CHECK(fault_of(Fault::Kind::kUnsupported, [] { compute<float>("bra $elsewhere;", std::vector<float>{1}); }) ==
        "name(float*): PTX: a branch to $elsewhere, which is not there");
  CHECK(fault_of(Fault::Kind::kUnsupported, [] {
          Module module(kernel_text(0, "ret;"));
          (void)module.kernel("_Z5otherv");
        }) == "the module has no kernel other()");
}

}  // namespace
}  // namespace virtual_gpu::test
