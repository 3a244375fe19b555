#pragma once

#include "virtual_gpu/kernel.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace virtual_gpu {

/// What a name in a kernel's text stands for.
struct Symbol {
  enum class Kind : uint8_t { kRegister, kAddress };
  Kind kind = Kind::kRegister;
  uint32_t id = 0;    ///< of a register
  uint8_t bytes = 0;  ///< of a register; 0 for predicates
  Space space = Space::kNone;
  uint64_t address = 0;
  bool dynamic = false;  ///< the address counts from the end of the kernel's own shared memory
};

/// The names of a kernel or function, by their braces: inline assembly declares registers of its own.
class Names {
 public:
  void open() { scopes_.emplace_back(); }
  void close() { scopes_.pop_back(); }
  void add(std::string_view name, const Symbol& symbol) { scopes_.back().names[std::string(name)] = symbol; }
  /// `%r<92>`: 92 registers from `first` on.
  void add_range(std::string_view prefix, uint32_t first, uint32_t count, uint8_t bytes);
  [[nodiscard]] std::optional<Symbol> find(std::string_view name) const;

 private:
  struct Range {
    uint32_t first = 0;
    uint32_t count = 0;
    uint8_t bytes = 0;
  };
  struct Scope {
    std::map<std::string, Symbol, std::less<>> names;
    std::map<std::string, Range, std::less<>> ranges;
  };
  std::vector<Scope> scopes_ = std::vector<Scope>(1);
};

/// A variable as ".param", ".local", ".shared" and ".global" declare it: ".align 8 .b8 name[16]".
struct Declaration {
  std::string_view name;
  uint64_t bytes = 0;
  uint64_t element_bytes = 1;
  uint64_t alignment = 1;
  std::string_view initial;  ///< what follows '=', or nothing
};
/// Reads a declaration from after the word that names the memory. Throws Fault (kUnsupported) for another form.
Declaration parse_declaration(std::string_view text);

/// A whole number in PTX's notation, or none.
std::optional<uint64_t> parse_integer(std::string_view text);

/// Bytes of a register of this type name ("pred" has none). Throws Fault (kUnsupported) for another one.
uint8_t register_bytes(std::string_view type_name);

uint64_t align_up(uint64_t value, uint64_t alignment);

}  // namespace virtual_gpu
