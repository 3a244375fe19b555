#include "lab/report/interaction.h"

#include "lab/report/paired.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

namespace norma::lab {

namespace {

/// Rows by their values on the axes: the models and those that vary.
class Grid {
 public:
  Grid(const Comparison& comparison, const std::vector<Row>& rows) : rows_(rows) {
    axes_ = {{.name = "model", .value = [](const Settings& settings) { return settings.model; }}};
    std::ranges::copy(varying_axes(comparison), std::back_inserter(axes_));
    for (const Row& row : rows) {
      std::vector<std::string>& values = values_.emplace_back();
      for (const Axis& axis : axes_) {
        values.push_back(axis.value(row));
      }
    }
    for (size_t axis = 0; axis < axes_.size(); ++axis) {
      std::vector<bool>& followers = followed_by_.emplace_back();
      for (size_t other = 0; other < axes_.size(); ++other) {
        followers.push_back(determines(axis, other));
      }
    }
  }

  [[nodiscard]] size_t axes() const { return axes_.size(); }
  /// True iff an axis has several values, and does more than follow an earlier one.
  [[nodiscard]] bool leads(size_t axis) const {
    const auto varies = [&](const auto& values) { return values[axis] != values_.front()[axis]; };
    bool leads = std::ranges::any_of(values_, varies);
    for (size_t other = 0; other < axis; ++other) {
      leads = leads && !(followed_by_[axis][other] && followed_by_[other][axis]);
    }
    return leads;
  }
  [[nodiscard]] std::string name(size_t axis) const { return std::string(axes_[axis].name); }
  [[nodiscard]] const std::string& value(size_t row, size_t axis) const { return values_[row][axis]; }

  /// The first row from which a norm's row differs by the axis alone, and by what follows the axis.
  [[nodiscard]] size_t base_of(size_t row, size_t axis) const {
    for (size_t other = 0; other < row; ++other) {
      bool same = rows_[other].norm == rows_[row].norm && rows_[other].reference == rows_[row].reference;
      for (size_t one = 0; one < axes_.size() && same; ++one) {
        same = followed_by_[axis][one] || values_[other][one] == values_[row][one];
      }
      if (same) {
        return other;
      }
    }
    return row;
  }

  /// All that varies beside an axis, in words.
  [[nodiscard]] std::string place_of(size_t row, size_t axis) const {
    std::vector<std::string> parts;
    for (size_t one = 0; one < axes_.size(); ++one) {
      if (one == 0 ? axis != 0 : !followed_by_[axis][one]) {
        parts.push_back(one == 0 ? values_[row][one] : fmt::format("{} {}", axes_[one].name, values_[row][one]));
      }
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }

 private:
  /// True iff rows with the same value on `axis` have the same on `other`.
  [[nodiscard]] bool determines(size_t axis, size_t other) const {
    std::map<std::string, std::string> seen;
    return std::ranges::all_of(values_, [&](const std::vector<std::string>& values) {
      return seen.emplace(values[axis], values[other]).first->second == values[other];
    });
  }

  const std::vector<Row>& rows_;
  std::vector<Axis> axes_;
  std::vector<std::vector<std::string>> values_;  // of each row
  std::vector<std::vector<bool>> followed_by_;    // of each axis, by each
};

PairedRuns runs_of(const Comparison& comparison, const Row& row) {
  Settings reference = row;
  reference.norm = row.reference;
  return paired_runs(comparison, row, reference);
}

}  // namespace

std::vector<Interaction> interactions_of(const Comparison& comparison) {
  std::vector<Row> rows = summarize(comparison);
  std::erase_if(rows, [](const Row& row) { return !row.accuracy_difference; });
  if (rows.empty()) {
    return {};
  }
  const Grid grid(comparison, rows);
  std::vector<std::pair<const Row*, const Row*>> pairs;  // of each interaction
  std::vector<Interaction> interactions;
  for (size_t axis = 0; axis < grid.axes(); ++axis) {
    for (size_t row = 0; grid.leads(axis) && row < rows.size(); ++row) {
      if (const size_t base = grid.base_of(row, axis); base != row) {
        pairs.emplace_back(&rows[base], &rows[row]);
        interactions.push_back({.norm = train::norm_label(rows[row].norm, comparison.recipe),
                                .axis = grid.name(axis),
                                .from = grid.value(base, axis),
                                .to = grid.value(row, axis),
                                .place = grid.place_of(row, axis)});
      }
    }
  }
  const auto tests = static_cast<int64_t>(interactions.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    const PairedRuns from = runs_of(comparison, *pairs[i].first);
    const PairedRuns to = runs_of(comparison, *pairs[i].second);
    Decision& decision = interactions[i].decision;
    if (!from.waiting && !to.waiting) {
      decision = decide_by_mean(scatter_between(from.runs, to.runs), tests);
    }
    decision.planned = std::min(from.planned, to.planned);
  }
  return interactions;
}

Table interaction_table(const Comparison& comparison) {
  Table table{.heads = {"axis", "from", "to", "norm", "in", "change of the difference, points"}, .words = 5};
  for (const Interaction& one : interactions_of(comparison)) {
    if (one.decision.state != Decision::State::waiting) {
      table.add(one.axis, one.from, one.to, one.norm, one.place, format_difference(one.decision));
    }
  }
  return table;
}

std::string interaction_note(const Comparison& comparison) {
  std::vector<std::string> found;
  int64_t none = 0;
  const std::vector<Interaction> all = interactions_of(comparison);
  for (const Interaction& one : all) {
    const Decision& decision = one.decision;
    if (decision.found()) {
      const bool gains = decision.difference > 0;
      const double low = gains ? decision.low : -decision.high;
      const double high = gains ? decision.high : -decision.low;
      found.push_back(fmt::format("from {} {} to {}, {} {} {:.1f} points ({:.1f} to {:.1f}) {} batch norm{}", one.axis,
                                  one.from, one.to, one.norm, gains ? "gains" : "loses", std::abs(decision.difference),
                                  low, high, gains ? "on" : "to", one.place.empty() ? "" : " in " + one.place));
    }
    none += decision.state == Decision::State::none_found ? 1 : 0;
  }
  if (found.empty()) {
    return none == 0 ? ""
                     : fmt::format(
                           "No difference between a norm and batch norm was found to change along an axis ({} "
                           "test{} of interactions).",
                           all.size(), all.size() == 1 ? "" : "s");
  }
  constexpr size_t kMostSaid = 4;
  const size_t left = found.size() - std::min(found.size(), kMostSaid);
  found.resize(found.size() - left);
  return fmt::format("Interactions: {}{}. {} of {} tests found one; the section Statistics of the report has all.",
                     fmt::join(found, "; "), left > 0 ? fmt::format("; and {} more", left) : "", found.size() + left,
                     all.size());
}

}  // namespace norma::lab
