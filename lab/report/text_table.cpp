#include "lab/report/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace norma::lab {

size_t columns_of(std::string_view text) {
  // All bytes but those that continue a letter.
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string align_table(const std::vector<std::vector<std::string>>& lines, size_t text_columns) {
  const size_t heads = lines.front().size();
  std::vector<size_t> widths(heads, 0);
  for (const auto& line : lines) {
    const size_t columns = line.size() >= heads ? heads : std::min(text_columns, line.size());
    for (size_t i = 0; i < columns; ++i) {
      widths[i] = std::max(widths[i], columns_of(line[i]));
    }
  }
  std::string table;
  for (const auto& line : lines) {
    const bool whole = line.size() >= heads;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string_view gap = i > 0 ? "  " : "";
      if (i >= heads || (!whole && i >= text_columns)) {
        table += fmt::format("{}{}", gap, line[i]);
      } else if (i < text_columns) {
        table += fmt::format("{}{:<{}}", gap, line[i], widths[i]);
      } else {
        table += fmt::format("{}{:>{}}", gap, line[i], widths[i]);
      }
    }
    table.erase(table.find_last_not_of(' ') + 1);
    table += '\n';
  }
  return table;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + '"';
}

std::string format_percent(double share) {
  return fmt::format("{:.1f}", std::round(1000 * share) / 10 + 0.0);  // the 0 turns -0 into 0
}

std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    text += i == 0 ? "" : i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

}  // namespace norma::lab
