#include "core/excerpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace norma {

std::string excerpt(std::string_view text, size_t limit) {
  const bool cut = text.size() > limit;
  if (cut) {
    const auto inside_character = [&](size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80; };
    while (limit > 0 && inside_character(limit)) {
      --limit;
    }
    text = text.substr(0, limit);
  }
  std::string result(text);
  for (char& c : result) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20 || code == 0x7F) {
      c = '?';
    }
  }
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
