#include "virtual_gpu/opcode.h"

#include <algorithm>
#include <array>
#include <utility>

namespace virtual_gpu {

namespace {

struct TypeName {
  std::string_view name;
  Type type;
  int bytes;
};

constexpr std::array kTypes = {
    TypeName{"pred", Type::kPred, 0}, TypeName{"u8", Type::kU8, 1},   TypeName{"s8", Type::kS8, 1},
    TypeName{"b8", Type::kB8, 1},     TypeName{"u16", Type::kU16, 2}, TypeName{"s16", Type::kS16, 2},
    TypeName{"b16", Type::kB16, 2},   TypeName{"f16", Type::kF16, 2}, TypeName{"bf16", Type::kBf16, 2},
    TypeName{"u32", Type::kU32, 4},   TypeName{"s32", Type::kS32, 4}, TypeName{"b32", Type::kB32, 4},
    TypeName{"f32", Type::kF32, 4},   TypeName{"u64", Type::kU64, 8}, TypeName{"s64", Type::kS64, 8},
    TypeName{"b64", Type::kB64, 8},   TypeName{"f64", Type::kF64, 8},
};

}  // namespace

int bytes_of(Type type) {
  for (const TypeName& each : kTypes) {
    if (each.type == type) {
      return each.bytes;
    }
  }
  return -1;
}

Type type_of(std::string_view name) {
  for (const TypeName& each : kTypes) {
    if (each.name == name) {
      return each.type;
    }
  }
  return Type::kNone;
}

bool is_signed(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}

bool is_float(Type type) {
  return type == Type::kF16 || type == Type::kBf16 || type == Type::kF32 || type == Type::kF64;
}

Opcode::Opcode(std::string_view whole) : text(whole) {
  size_t begin = 0;
  bool first = true;
  while (begin <= whole.size()) {
    const size_t end = std::min(whole.find('.', begin), whole.size());
    const std::string_view part = whole.substr(begin, end - begin);
    if (first) {
      name = part;
      first = false;
    } else {
      modifiers.push_back(part);
      if (const Type type = type_of(part); type != Type::kNone) {
        types.push_back(type);
      }
    }
    begin = end + 1;
  }
}

bool Opcode::has(std::string_view modifier) const {
  return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
}

Choice::Choice(Handler handler, std::initializer_list<int> operand_bytes)
    : run(handler), count(static_cast<int>(operand_bytes.size())) {
  int i = 0;
  for (const int each : operand_bytes) {
    bytes[static_cast<size_t>(i++)] = static_cast<int8_t>(each);
  }
}

}  // namespace virtual_gpu
