#include "virtual_gpu/names.h"

#include "virtual_gpu/fault.h"
#include "virtual_gpu/opcode.h"
#include "virtual_gpu/statements.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace virtual_gpu {

void Names::add_range(std::string_view prefix, uint32_t first, uint32_t count, uint8_t bytes) {
  scopes_.back().ranges[std::string(prefix)] = {first, count, bytes};
}

std::optional<Symbol> Names::find(std::string_view name) const {
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  uint32_t number = 0;
  const bool numbered = digits < name.size() && digits > 0;
  if (numbered) {
    std::from_chars(name.data() + digits, name.data() + name.size(), number);
  }
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (numbered) {
      const auto range = scope->ranges.find(name.substr(0, digits));
      if (range != scope->ranges.end() && number < range->second.count) {
        return Symbol{
            Symbol::Kind::kRegister, range->second.first + number, range->second.bytes, Space::kNone, 0, false};
      }
    }
    if (const auto found = scope->names.find(name); found != scope->names.end()) {
      return found->second;
    }
  }
  return std::nullopt;
}

Declaration parse_declaration(std::string_view text) {
  const std::string_view whole = text;
  const auto bad = [&]() -> Fault {
    return {Fault::Kind::kUnsupported, fmt::format("PTX: a declaration of an unknown form: {}", whole)};
  };
  Declaration declaration;
  if (const size_t equals = text.find('='); equals != std::string_view::npos) {
    declaration.initial = trimmed(text.substr(equals + 1));
    text = trimmed(text.substr(0, equals));
  }
  uint64_t element = 0;
  bool aligned = false;
  while (true) {
    std::string_view word = take_word(text);
    if (word == ".align") {
      declaration.alignment = parse_integer(take_word(text)).value_or(0);
      aligned = true;
    } else if (word.starts_with(".")) {
      const Type type = type_of(word.substr(1));
      element = type == Type::kNone ? element : static_cast<uint64_t>(bytes_of(type));
      if (type == Type::kNone && word != ".ptr" && word != ".global" && word != ".visible" && word != ".attribute") {
        throw bad();
      }
    } else {
      const size_t bracket = word.find('[');
      declaration.name = word.substr(0, bracket);
      uint64_t count = 1;
      if (bracket != std::string_view::npos) {
        const std::string_view inside = word.substr(bracket + 1, word.find(']') - bracket - 1);
        count = inside.empty() ? 0 : parse_integer(inside).value_or(0);
      }
      declaration.bytes = element * count;
      declaration.element_bytes = element;
      break;
    }
  }
  if (element == 0 || declaration.name.empty() || !text.empty()) {
    throw bad();
  }
  declaration.alignment = aligned ? declaration.alignment : element;
  return declaration;
}

std::optional<uint64_t> parse_integer(std::string_view text) {
  const bool negative = text.starts_with("-");
  text.remove_prefix(negative ? 1 : 0);
  if (text.ends_with("U")) {
    text.remove_suffix(1);
  }
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    base = 16;
    text.remove_prefix(2);
  } else if (text.starts_with("0b") || text.starts_with("0B")) {
    base = 2;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text.starts_with("0")) {
    base = 8;
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) {
    return std::nullopt;
  }
  return negative ? uint64_t{0} - value : value;
}

uint8_t register_bytes(std::string_view type_name) {
  const Type type = type_of(type_name);
  if (type == Type::kNone) {
    throw Fault(Fault::Kind::kUnsupported, fmt::format("PTX: registers of type .{}", type_name));
  }
  return static_cast<uint8_t>(type == Type::kPred ? 0 : std::max(2, bytes_of(type)));
}

uint64_t align_up(uint64_t value, uint64_t alignment) {
  return alignment == 0 ? value : (value + alignment - 1) / alignment * alignment;
}

}  // namespace virtual_gpu
