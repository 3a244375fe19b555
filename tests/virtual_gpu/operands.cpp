#include "virtual_gpu/decoder.h"
#include "virtual_gpu/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace virtual_gpu {

namespace {

struct SpecialName {
  std::string_view name;
  Special special;
};

constexpr std::array kSpecials = {
    SpecialName{"%tid.x", Special::kTidX},       SpecialName{"%tid.y", Special::kTidY},
    SpecialName{"%tid.z", Special::kTidZ},       SpecialName{"%ntid.x", Special::kNtidX},
    SpecialName{"%ntid.y", Special::kNtidY},     SpecialName{"%ntid.z", Special::kNtidZ},
    SpecialName{"%ctaid.x", Special::kCtaidX},   SpecialName{"%ctaid.y", Special::kCtaidY},
    SpecialName{"%ctaid.z", Special::kCtaidZ},   SpecialName{"%nctaid.x", Special::kNctaidX},
    SpecialName{"%nctaid.y", Special::kNctaidY}, SpecialName{"%nctaid.z", Special::kNctaidZ},
    SpecialName{"%laneid", Special::kLane},      SpecialName{"%warpid", Special::kWarp},
};

/// "0f3F800000" and "0d3FF0000000000000".
std::optional<uint64_t> parse_float(std::string_view text) {
  const bool is_float = text.starts_with("0f") || text.starts_with("0F");
  const bool is_double = text.starts_with("0d") || text.starts_with("0D");
  if ((!is_float || text.size() != 10) && (!is_double || text.size() != 18)) {
    return std::nullopt;
  }
  uint64_t bits = 0;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(bits) : std::nullopt;
}

Fault unsupported_operand(std::string_view text) {
  return {Fault::Kind::kUnsupported, fmt::format("PTX: the operand {}", text)};
}

}  // namespace

uint32_t Decoder::new_register(uint8_t bytes, bool pinned) {
  register_bytes_.push_back(bytes);
  pinned_.push_back(pinned);
  return static_cast<uint32_t>(register_bytes_.size() - 1);
}

Operand Decoder::special(std::string_view text) {
  for (const SpecialName& each : kSpecials) {
    if (each.name == text) {
      const auto [found, added] = specials_.try_emplace(each.special, 0);
      if (added) {
        found->second = new_register(4, true);
        kernel_->specials.emplace_back(each.special, found->second);
      }
      return found->second;
    }
  }
  return kNoOperand;
}

Operand Decoder::constant(uint64_t bits, int bytes) {
  const auto [found, added] = constants_.try_emplace({bits, bytes}, 0);
  if (added) {
    std::vector<std::byte>& pool = kernel_->constants;
    const size_t begin = pool.size();
    if (bytes == 0) {
      const uint32_t word = bits != 0 ? kAllLanes : 0;
      pool.resize(begin + 64);
      std::memcpy(pool.data() + begin, &word, sizeof word);
    } else {
      pool.resize(begin + static_cast<size_t>(bytes) * kLanes);
      for (size_t lane = 0; lane < kLanes; ++lane) {
        std::memcpy(pool.data() + begin + lane * static_cast<size_t>(bytes), &bits, static_cast<size_t>(bytes));
      }
    }
    found->second = kConstant | static_cast<Operand>(begin);
  }
  return found->second;
}

Operand Decoder::symbol_address(const Symbol& symbol, uint64_t offset, int bytes) {
  if (bytes != 4 && bytes != 8) {
    throw Fault(Fault::Kind::kUnsupported, "PTX: an address in a register of other than 4 or 8 bytes");
  }
  if (!symbol.dynamic) {
    return constant(symbol.address + offset, bytes);
  }
  // A constant of its own, which gets its value when the kernel's own shared memory is known.
  constants_.erase({offset, bytes});
  const Operand place = constant(offset, bytes);
  constants_.erase({offset, bytes});
  dynamic_constants_.emplace_back(place, bytes);
  return place;
}

Symbol Decoder::symbol(std::string_view name, const Frame& frame) {
  if (const std::optional<Symbol> found = frame.names.find(name)) {
    return *found;
  }
  if (const auto shared = parts_.shared.find(name); shared != parts_.shared.end()) {
    const SharedVariable& variable = shared->second;
    Symbol symbol{.kind = Symbol::Kind::kAddress, .space = Space::kShared, .dynamic = variable.dynamic};
    if (variable.dynamic) {
      dynamic_alignment_ = std::max(dynamic_alignment_, variable.alignment);
      return symbol;
    }
    const auto [place, added] = shared_offsets_.try_emplace(std::string(name), 0);
    if (added) {
      place->second = align_up(kernel_->static_shared_bytes, variable.alignment);
      kernel_->static_shared_bytes = place->second + variable.bytes;
    }
    symbol.address = kSharedBegin + place->second;
    return symbol;
  }
  if (const auto global = parts_.globals->offsets.find(name); global != parts_.globals->offsets.end()) {
    return {.kind = Symbol::Kind::kAddress, .space = Space::kGlobal, .address = kGlobalsBegin + global->second};
  }
  throw unsupported_operand(name);
}

int Decoder::bytes_of_register(std::string_view text, const Frame& frame) const {
  if (const std::optional<Symbol> found = frame.names.find(text); found && found->kind == Symbol::Kind::kRegister) {
    return found->bytes;
  }
  for (const SpecialName& each : kSpecials) {
    if (each.name == text) {
      return 4;
    }
  }
  return -1;
}

/// An operand that is a register of so many bytes, or a constant of as many. `text` "_" is one that nobody reads.
Operand Decoder::operand(std::string_view text, int bytes, const Frame& frame) {
  if (text == "_") {
    return new_register(static_cast<uint8_t>(bytes));
  }
  if (const int found = bytes_of_register(text, frame); found >= 0) {
    if (found != bytes) {
      throw Fault(Fault::Kind::kUnsupported, fmt::format("PTX: {} has {} bytes, expected {}", text, found, bytes));
    }
    const Operand place = special(text);
    return place != kNoOperand ? place : frame.names.find(text)->id;
  }
  if (const std::optional<uint64_t> number = parse_float(text)) {
    const int literal_bytes = text.size() == 10 ? 4 : 8;
    if (literal_bytes != bytes) {
      throw unsupported_operand(text);
    }
    return constant(*number, bytes);
  }
  if (const std::optional<uint64_t> number = parse_integer(text)) {
    return constant(bytes == 8 || bytes == 0 ? *number : *number & ((uint64_t{1} << (8 * bytes)) - 1), bytes);
  }
  if (text == "WARP_SZ") {
    return constant(kLanes, bytes);
  }
  const size_t plus = text.find('+');
  const Symbol found = symbol(trimmed(text.substr(0, plus)), frame);
  const uint64_t offset =
      plus == std::string_view::npos ? 0 : parse_integer(trimmed(text.substr(plus + 1))).value_or(0);
  if (found.space == Space::kLocal && !frame.kernel) {
    return symbol_address(found, offset, bytes);
  }
  return symbol_address(found, offset, bytes);
}

/// "[%rd1+16]", "[name]", "[name+8]": the operand of the base, and the instruction's displacement.
Operand Decoder::address(std::string_view text, Instruction& instruction, const Frame& frame) {
  if (!text.starts_with("[") || !text.ends_with("]")) {
    throw unsupported_operand(text);
  }
  const std::string_view inside = trimmed(text.substr(1, text.size() - 2));
  const size_t plus = inside.find('+');
  const std::string_view base = trimmed(inside.substr(0, plus));
  if (plus != std::string_view::npos) {
    const std::optional<uint64_t> displacement = parse_integer(trimmed(inside.substr(plus + 1)));
    if (!displacement) {
      throw unsupported_operand(text);
    }
    instruction.immediate = *displacement;
  }
  instruction.wide_address = true;
  if (const int bytes = bytes_of_register(base, frame); bytes >= 0) {
    instruction.wide_address = bytes == 8;
    return operand(base, bytes == 8 ? 8 : 4, frame);
  }
  if (const std::optional<uint64_t> number = parse_integer(base)) {
    return constant(*number, 8);
  }
  const Symbol found = symbol(base, frame);
  if (instruction.space == Space::kParameter || instruction.space == Space::kGeneric) {
    instruction.space = found.space;  // parameters of a call lie in local memory
  }
  return symbol_address(found, 0, 8);
}

}  // namespace virtual_gpu
