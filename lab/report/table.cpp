#include "lab/report/table.h"

#include "base/excerpt.h"
#include "base/lists.h"
#include "base/quoting.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace norma::lab {

std::string to_text(const Table& table) {
  std::vector<std::vector<std::string>> lines = mapped(table.rows, &Table::Row::cells);
  lines.insert(lines.begin(), table.heads);
  std::vector<size_t> widths(table.heads.size(), 0);
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], columns_of(line[i]));
    }
  }
  std::string text;
  for (size_t row = 0; row < lines.size(); ++row) {
    std::string line;
    for (size_t i = 0; i < lines[row].size(); ++i) {
      line += i > 0 ? "  " : "";
      line += i < table.words ? fmt::format("{:<{}}", lines[row][i], widths[i])
                              : fmt::format("{:>{}}", lines[row][i], widths[i]);
    }
    if (row > 0 && !table.rows[row - 1].remark.empty()) {
      line += "  " + table.rows[row - 1].remark;
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

std::string to_markdown(const Table& table) {
  const auto line = [](const std::vector<std::string>& cells) {
    return fmt::format("| {} |\n", fmt::join(cells, " | "));
  };
  std::vector<std::string> rule(table.heads.size(), "--:");
  std::fill_n(rule.begin(), table.words, ":--");
  std::string text = line(mapped(table.heads, escape_markdown)) + line(rule);
  for (const Table::Row& row : table.rows) {
    std::vector<std::string> cells = row.cells;
    std::transform(cells.begin(), cells.begin() + static_cast<std::ptrdiff_t>(table.words), cells.begin(),
                   [](const std::string& word) { return escape_markdown(word); });
    const bool has_figures = cells.size() > table.words;
    cells.resize(table.heads.size());
    if (!row.remark.empty()) {
      const std::string remark = escape_markdown(row.remark);
      cells[table.words] += has_figures ? fmt::format(" ({})", remark) : remark;
    }
    text += line(cells);
  }
  return text;
}

std::string to_csv(const Table& table) {
  std::string text = fmt::format("{}\n", fmt::join(table.heads, ","));
  for (const Table::Row& row : table.rows) {
    for (size_t i = 0; i < table.heads.size(); ++i) {
      text += (i > 0 ? "," : "") + (i < row.cells.size() ? csv_field(row.cells[i]) : "");
    }
    text += '\n';
  }
  return text;
}

std::string format_percent(double share) {
  return fmt::format("{:.1f}", std::round(1000 * share) / 10 + 0.0);  // the 0 turns -0 into 0
}

std::string format_count(int64_t count) {
  std::string text = std::to_string(count);
  for (size_t place = text.size(); place > 3; place -= 3) {
    text.insert(place - 3, ",");
  }
  return text;
}

std::string sizes_text(const Sizes& sizes) {
  return fmt::format("{}", fmt::join(sizes.begin(), sizes.end(), "x"));
}

std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    text += i == 0 ? "" : i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

std::string first_four(const std::vector<std::string>& items) {
  constexpr size_t kMost = 4;
  const size_t shown = std::min(items.size(), kMost);
  return fmt::format("{}{}", fmt::join(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(shown), "; "),
                     shown < items.size() ? fmt::format("; and {} more", items.size() - shown) : "");
}

std::string counted(int64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

}  // namespace norma::lab
