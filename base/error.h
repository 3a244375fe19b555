#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace norma {

/// Every mistake of a caller arrives as an Error. The text is "op: what was expected, what came".
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text) : std::runtime_error(text) {}
};

/// Throws Error("op: text").
template <class... Args>
[[noreturn]] void fail(std::string_view op, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(fmt::format("{}: {}", op, fmt::format(text, std::forward<Args>(args)...)));
}

/// Throws Error("op: text") unless `condition` holds. The text is only formatted on failure.
template <class... Args>
void check(bool condition, std::string_view op, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) [[unlikely]] {
    fail(op, text, std::forward<Args>(args)...);
  }
}

}  // namespace norma
