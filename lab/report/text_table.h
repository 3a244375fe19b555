#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// Letters of a UTF-8 text.
size_t columns_of(std::string_view text);

/// Lines of cells below each other, the first of which are the heads. The first `text_columns` cells stand on the left,
/// the others on the right. A line with fewer cells than heads ends in remarks, behind the text columns, and a longer
/// one behind all; remarks are free text and set no width. No line ends in blanks.
std::string align_table(const std::vector<std::vector<std::string>>& lines, size_t text_columns);

/// A field of a CSV line, quoted where it has to be.
std::string csv_field(const std::string& text);

/// "-0.3" of -0.0031; never "-0.0".
std::string format_percent(double share);

/// "a", "a and b", "a, b and c"
std::string listed(const std::vector<std::string>& items);

}  // namespace norma::lab
