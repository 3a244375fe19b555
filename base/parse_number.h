#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace norma {

/// The number that the whole text spells. None if the text is not a number alone, or one that T cannot hold.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional<T>(value) : std::nullopt;
}

}  // namespace norma
