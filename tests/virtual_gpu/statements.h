#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace virtual_gpu {

/// One statement of a function's body.
struct Statement {
  enum class Kind : uint8_t { kInstruction, kDirective, kLabel, kOpen, kClose, kLocation, kEnd };
  Kind kind = Kind::kEnd;
  std::string_view text;   ///< without guard and semicolon; a label without its colon
  std::string_view guard;  ///< "%p1" of "@%p1 bra …"
  bool guard_negated = false;
};

/// Cuts a function's body into statements.
class StatementReader {
 public:
  explicit StatementReader(std::string_view body) : rest_(body) {}
  Statement next();

 private:
  void skip_space();

  std::string_view rest_;
};

/// The text without spaces at its ends.
std::string_view trimmed(std::string_view text);
/// Cuts at commas outside of brackets, and trims each piece.
std::vector<std::string_view> split_operands(std::string_view text);
/// The next word up to a space, removed from `text`.
std::string_view take_word(std::string_view& text);

}  // namespace virtual_gpu
