#pragma once

#include "virtual_gpu/kernel.h"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace virtual_gpu {

/// The types that an opcode can name.
enum class Type : uint8_t {
  kNone,
  kPred,
  kU8,
  kS8,
  kB8,
  kU16,
  kS16,
  kB16,
  kF16,
  kBf16,
  kU32,
  kS32,
  kB32,
  kF32,
  kU64,
  kS64,
  kB64,
  kF64
};

/// Bytes of a value; 0 for predicates.
int bytes_of(Type type);
/// The type of this name ("u32"), or kNone.
Type type_of(std::string_view name);
bool is_signed(Type type);
bool is_float(Type type);

/// An opcode with its modifiers: "ld.global.v4.f32".
struct Opcode {
  explicit Opcode(std::string_view whole);
  [[nodiscard]] bool has(std::string_view modifier) const;
  /// The last type, which most opcodes go by.
  [[nodiscard]] Type type() const { return types.empty() ? Type::kNone : types.back(); }

  std::string_view text;
  std::string_view name;
  std::vector<std::string_view> modifiers;  ///< all but the name
  std::vector<Type> types;                  ///< those of the modifiers that are types
};

/// A handler with the bytes of each operand that it takes: outputs first, 0 for predicates.
struct Choice {
  Handler run = nullptr;
  std::array<int8_t, 6> bytes = {-1, -1, -1, -1, -1, -1};
  int count = 0;
  int outputs = 1;
  bool registers_only = true;
  bool meets = false;
  uint64_t immediate = 0;

  Choice() = default;
  Choice(Handler handler, std::initializer_list<int> operand_bytes);
};

// Each finds the handler of an opcode of its kind, or none. `register_bytes` has the sizes of the operands that are
// registers (-1 for others), which conversions go by.
Choice integer_choice(const Opcode& opcode);
Choice carry_choice(const Opcode& opcode);
Choice bits_choice(const Opcode& opcode);
Choice float_choice(const Opcode& opcode);
Choice approximate_choice(const Opcode& opcode);
Choice compare_choice(const Opcode& opcode, int operand_count);
Choice convert_choice(const Opcode& opcode, int to_bytes, int from_bytes);
Choice move_choice(const Opcode& opcode);
Choice split_choice(int part_bytes, int parts);
Choice join_choice(int part_bytes, int parts);
Choice warp_choice(const Opcode& opcode);

/// The handler of a load or store of elements of `type`, `vector` of them, into registers of `register_bytes`.
Handler load_handler(Type type, int register_bytes, int vector);
Handler store_handler(Type type, int register_bytes, int vector);

}  // namespace virtual_gpu
