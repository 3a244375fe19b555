#include "base/nearest_name.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <limits>

namespace norma {
namespace {

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// distance[i][j] between the first i letters of a and the first j of b; only the last three rows are kept.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> two_back(b.size() + 1);
  std::vector<size_t> back(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    back[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t cost = lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1;
      row[j] = std::min({back[j] + 1, row[j - 1] + 1, back[j - 1] + cost});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
        row[j] = std::min(row[j], two_back[j - 2] + 1);
      }
    }
    std::swap(two_back, back);
    std::swap(back, row);
  }
  return back[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view given, const std::vector<std::string>& known) {
  constexpr size_t kLongest = 200;  // of names there are; more would take seconds
  given = given.substr(0, kLongest);
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string& name : known) {
    const size_t distance = edit_distance(given, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

std::string unknown_name(std::string_view kind, std::string_view given, const std::vector<std::string>& known) {
  const std::string nearest = nearest_name(given, known);
  return nearest.empty() ? fmt::format("unknown {} '{}'", kind, excerpt(given))
                         : fmt::format("unknown {} '{}'; did you mean '{}'?", kind, excerpt(given), nearest);
}

void check_names(std::string_view op, std::string_view argument, std::string_view kind,
                 const std::vector<std::string>& given, const std::vector<std::string>& known) {
  for (const std::string& name : given) {
    check(is_in(known, name), op, "{}: {}", argument, unknown_name(kind, name, known));
  }
  check_each_once(op, argument, given);
}

std::string or_list(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  }
  return text;
}

}  // namespace norma
