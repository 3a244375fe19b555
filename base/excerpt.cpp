#include "base/excerpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace norma {

namespace {

/// The bytes of the UTF-8 character at the beginning of a text that is not empty; 0: there is none.
size_t character_size(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  if (byte(0) < 0x80) {
    return 1;
  }
  const size_t size = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC0 || byte(0) > 0xF4 || text.size() < size) {
    return 0;
  }
  uint32_t code = byte(0) & (0xFFU >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) {
      return 0;
    }
    code = code << 6 | (byte(i) & 0x3FU);
  }
  constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return code >= kLeast[size] && code <= 0x10FFFF && !surrogate ? size : 0;
}

/// plain_text() that keeps the control characters for which `keep` is true.
template <class F>
std::string without_control(std::string_view text, const F& keep) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t size = character_size(text);
    const auto code = static_cast<unsigned char>(text.front());
    const bool control =
        (size == 1 && (code < 0x20 || code == 0x7F)) || (size == 2 && text.starts_with('\xC2') && text[1] < '\xA0');
    if (size == 0 || (control && !keep(text.front()))) {
      result += '?';
    } else {
      result += text.substr(0, size);
    }
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return result;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = character_size(text);
    if (size == 0) {
      return false;
    }
    text.remove_prefix(size);
  }
  return true;
}

std::string plain_text(std::string_view text) {
  return without_control(text, [](char c) { return c == '\n' || c == '\t'; });
}

std::string excerpt(std::string_view text, size_t limit) {
  const bool cut = text.size() > limit;
  if (cut) {
    const auto inside_character = [&](size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80; };
    while (limit > 0 && inside_character(limit)) {
      --limit;
    }
    text = text.substr(0, limit);
  }
  const std::string result = without_control(text, [](char) { return false; });
  return cut ? result + "…" : result;
}

std::string excerpt_list(const std::vector<std::string>& names, std::string_view separator, size_t limit) {
  constexpr size_t kShown = 6;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    text += i == 0 ? "" : separator;
    text += excerpt(names[i], limit);
  }
  return names.size() <= kShown ? text : fmt::format("{} and {} more", text, names.size() - kShown);
}

size_t columns_of(std::string_view text) {
  // All bytes but those that continue a character.
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string byte_text(uint64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) {
    return fmt::format("{} bytes", bytes);
  }
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  const std::string number = fmt::format("{:.1f}", value);
  return fmt::format("{} {}", number.ends_with(".0") ? number.substr(0, number.size() - 2) : number, kUnits[unit]);
}

}  // namespace norma
