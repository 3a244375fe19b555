#pragma once

#include "core/sizes.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// A table as data; the functions below write it.
struct Table {
  struct Row {
    std::vector<std::string> cells;  ///< missing ones are empty
    std::string remark = {};         ///< free text about the row; text and Markdown have it, beside the figures

    /// Adds a cell for each value.
    template <class... Values>
    void add(const Values&... values) {
      (cells.push_back(fmt::format("{}", values)), ...);
    }
  };

  std::vector<std::string> heads;
  size_t words = 1;  ///< the first columns, which hold words, on the left; the others hold figures, on the right
  std::vector<Row> rows = {};

  /// Adds a row, a cell for each value.
  template <class... Values>
  Row& add(const Values&... values) {
    rows.emplace_back().add(values...);
    return rows.back();
  }
};

/// Text with aligned columns. A remark stands after all figures, or in their place, and sets no width. No line ends in
/// blanks.
std::string to_text(const Table& table);
/// GitHub's Markdown. A remark stands in brackets after the first figure, or in its place.
std::string to_markdown(const Table& table);
/// CSV (RFC 4180), without remarks.
std::string to_csv(const Table& table);
/// "-0.3" for -0.0031; never "-0.0".
std::string format_percent(double share);
/// "25,557,032", of at least 0
std::string format_count(int64_t count);
/// "64x128x28x28"
std::string sizes_text(const Sizes& sizes);

/// "a", "a and b", "a, b and c"
std::string listed(const std::vector<std::string>& items);
/// "a; b"; of more than four "a; b; c; d; and 3 more"
std::string first_four(const std::vector<std::string>& items);
/// "1 run", "3 runs"
std::string counted(int64_t count, std::string_view one);

}  // namespace norma::lab
