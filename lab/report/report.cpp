#include "lab/report/report.h"

#include "base/error.h"
#include "lab/report/decide_rows.h"
#include "session/output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

namespace norma::lab {

namespace {

Spread spread_of(const std::vector<double>& values) {
  Spread spread;
  if (values.empty()) {
    return spread;
  }
  const auto count = static_cast<double>(values.size());
  for (const double value : values) {
    spread.mean += value / count;
  }
  if (values.size() > 1) {
    double squares = 0;
    for (const double value : values) {
      squares += (value - spread.mean) * (value - spread.mean);
    }
    spread.deviation = std::sqrt(squares / (count - 1));
  }
  return spread;
}

std::string problem_of(const std::vector<const Cell*>& cells) {
  for (const Cell* cell : cells) {
    switch (cell->state) {
      case CellState::finished: break;
      case CellState::failed: return "failed: " + cell->reason;
      case CellState::interrupted: return "interrupted";
      case CellState::pending: return "not started";
      case CellState::elsewhere: return "in another part";
    }
  }
  return "";
}

Row row_of(const std::vector<const Cell*>& cells) {
  Row row;
  static_cast<Settings&>(row) = *cells.front();
  row.problem = problem_of(cells);
  row.seeds = static_cast<int64_t>(cells.size());
  std::vector<double> accuracy;
  std::vector<double> loss;
  std::vector<double> fit_loss;
  std::vector<double> images_per_second;
  for (const Cell* cell : cells) {
    if (cell->state == CellState::finished) {
      ++row.finished;
      accuracy.push_back(cell->accuracy);
      loss.push_back(cell->loss);
      if (cell->fit) {
        fit_loss.push_back(cell->fit->loss);
      }
      images_per_second.push_back(cell->images_per_second);
      row.peak_bytes = std::max(row.peak_bytes, cell->peak_bytes);
      row.peak_resident = std::max(row.peak_resident, cell->peak_resident);
      row.parameters = cell->parameters;
    }
  }
  row.accuracy = spread_of(accuracy);
  row.loss = spread_of(loss);
  if (!fit_loss.empty()) {
    row.fit_loss = spread_of(fit_loss);
  }
  row.images_per_second = spread_of(images_per_second);
  return row;
}

/// Cells that differ in the seed alone.
using SeedCells = std::vector<const Cell*>;

}  // namespace

double lr_of(const Comparison& comparison, const Settings& settings) {
  const auto tuning = std::find_if(comparison.tunings.begin(), comparison.tunings.end(),
                                   [&](const Tuning& other) { return same_but_seed(other.settings, settings); });
  const Trial* best = tuning == comparison.tunings.end() ? nullptr : best_trial(*tuning);
  return best == nullptr ? settings.lr : best->lr;
}

train::Recipe recipe_of(const Comparison& comparison, const Settings& settings) {
  train::Recipe recipe = recipe_of(comparison.recipe, settings);
  recipe.lr = lr_of(comparison, settings);
  return recipe;
}

std::vector<Axis> varying_axes(const Comparison& comparison) {
  std::vector<Axis> varying;
  std::copy_if(further_axes().begin(), further_axes().end(), std::back_inserter(varying), [&](const Axis& axis) {
    return std::any_of(comparison.cells.begin(), comparison.cells.end(),
                       [&](const Cell& cell) { return axis.value(cell) != axis.value(comparison.cells.front()); });
  });
  return varying;
}

std::string values_of(const Comparison& comparison, std::string_view axis) {
  const auto found =
      std::find_if(further_axes().begin(), further_axes().end(), [&](const Axis& other) { return other.name == axis; });
  check(found != further_axes().end(), "values_of", "axis: expected the name of one, got '{}'", axis);
  std::vector<std::string> values;
  for (const Cell& cell : comparison.cells) {
    const std::string value = found->value(cell);
    if (std::find(values.begin(), values.end(), value) == values.end()) {
      values.push_back(value);
    }
  }
  return fmt::format("{}", fmt::join(values, ", "));
}

std::string label_of(const Comparison& comparison, const Cell& cell) {
  std::string label = fmt::format("{} {}", cell.model, train::norm_label(cell.norm, comparison.recipe));
  for (const Axis& axis : varying_axes(comparison)) {
    label += fmt::format(", {} {}", axis.name, axis.value(cell));
  }
  const bool several_seeds = std::any_of(comparison.cells.begin(), comparison.cells.end(),
                                         [&](const Cell& other) { return other.seed != cell.seed; });
  return several_seeds ? fmt::format("{}, seed {}", label, cell.seed) : label;
}

std::string group_label(const Comparison& comparison, const Settings& settings) {
  std::vector<std::string> values;
  for (const Axis& axis : varying_axes(comparison)) {
    const std::string value = axis.value(settings);
    if (value.empty() || (axis.name == "lr" && settings.lr == 0)) {
      continue;  // a timing_group() has none
    }
    values.push_back(fmt::format("{} {}", axis.name, value));
  }
  return values.empty() ? settings.model : fmt::format("{} with {}", settings.model, fmt::join(values, ", "));
}

Settings comparison_group(Settings settings) {
  settings.norm.clear();
  settings.seed = 0;
  return settings;
}

std::vector<std::string> norms_of(const Comparison& comparison, const Settings& group) {
  std::vector<std::string> norms;
  for (const Cell& cell : comparison.cells) {
    if (timing_group(cell) == group && std::find(norms.begin(), norms.end(), cell.norm) == norms.end()) {
      norms.push_back(cell.norm);
    }
  }
  return norms;
}

std::string reference_of(const std::vector<std::string>& norms) {
  if (std::find(norms.begin(), norms.end(), "batch") != norms.end()) {
    return "batch";
  }
  const auto found = std::find_if(norms.begin(), norms.end(), [](const std::string& norm) {
    // The text is compared, since norms of a plug-in that is not loaded are unknown.
    return norm.substr(0, norm.find('[')) == "batch";
  });
  return found == norms.end() ? "" : *found;
}

std::string_view to_string(CellState state) {
  switch (state) {
    case CellState::pending: return "pending";
    case CellState::finished: return "finished";
    case CellState::failed: return "failed";
    case CellState::interrupted: return "interrupted";
    case CellState::elsewhere: return "elsewhere";
  }
  return "unknown";
}

std::vector<Row> summarize(const Comparison& comparison) {
  std::vector<SeedCells> groups;
  for (const Cell& cell : comparison.cells) {
    const auto same = [&](const SeedCells& group) { return same_but_seed(*group.front(), cell); };
    const auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end()) {
      groups.push_back({&cell});
    } else {
      found->push_back(&cell);
    }
  }
  std::vector<Row> rows;
  for (const auto& group : groups) {
    rows.push_back(row_of(group));
  }
  decide_rows(comparison, rows);
  return rows;
}

std::vector<GroupRows> by_group(const std::vector<Row>& rows) {
  std::vector<GroupRows> groups;
  for (const Row& row : rows) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const GroupRows& group) {
      return comparison_group(group.front()) == comparison_group(row);
    });
    (found != groups.end() ? *found : groups.emplace_back()).push_back(row);
  }
  return groups;
}

int64_t finished_rows(const GroupRows& rows) {
  return std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.finished > 0; });
}

std::string format_spread(const Spread& spread, int digits, double factor) {
  return spread.deviation
             ? fmt::format("{:.{}f} ± {:.{}f}", factor * spread.mean, digits, factor * *spread.deviation, digits)
             : fmt::format("{:.{}f}", factor * spread.mean, digits);
}

std::string format_bytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return value >= 1e9 ? fmt::format("{:.2f} GB", value / 1e9) : fmt::format("{:.0f} MB", value / 1e6);
}

std::string format_count(int64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) {
      text += ',';
    }
    text += digits[i];
  }
  return text;
}

namespace {

/// The text for unknown figures: "not known yet: 2 of 24 rounds", "not known after 2 seeds".
std::string not_known(const Decision& decision, std::string_view pair) {
  return decision.state == Decision::State::waiting
             ? fmt::format("not known yet: {} of {} {}{}", decision.pairs, decision.planned, pair,
                           decision.planned == 1 ? "" : "s")
             : fmt::format("not known after {} {}{}", decision.pairs, pair, decision.pairs == 1 ? "" : "s");
}

}  // namespace

std::string format_tax(const std::optional<Decision>& tax) {
  if (!tax) {
    return "–";
  }
  return !tax->known() ? not_known(*tax, "round") : (tax->found() ? "" : "none found: ") + format_share(*tax);
}

std::string format_share(const Decision& tax) {
  return fmt::format("{} % ({} to {})", format_percent(tax.difference), format_percent(tax.low),
                     format_percent(tax.high));
}

std::string format_difference(const std::optional<Decision>& difference) {
  if (!difference) {
    return "–";
  }
  if (!difference->known()) {
    return not_known(*difference, "seed");
  }
  const std::string text = fmt::format("{:+.2f} ({:.2f} to {:.2f}), {}", difference->difference, difference->low,
                                       difference->high, format_chance(difference->chance));
  return difference->found() ? text
         : difference->equal ? fmt::format("none found, equal within {}: {}", kEqualPoints, text)
                             : "undecided: " + text;
}

Table results_table(const std::vector<NamedRow>& rows, const std::vector<Axis>& axes) {
  const bool tested =
      std::any_of(rows.begin(), rows.end(), [](const NamedRow& named) { return named.row->accuracy_difference; });
  const bool fitted = std::any_of(rows.begin(), rows.end(), [](const NamedRow& named) { return named.row->fit_loss; });
  Table table{.heads = {"model"}, .words = axes.size() + 2};
  for (const Axis& axis : axes) {
    table.heads.emplace_back(axis.name);
  }
  table.heads.insert(table.heads.end(), {"norm", "accuracy %"});
  if (tested) {
    table.heads.emplace_back("to reference");
  }
  if (fitted) {
    table.heads.emplace_back("train loss");
  }
  table.heads.insert(table.heads.end(), {"test loss", "img/s", "tax", "memory", "parameters"});
  for (const auto& [name, row] : rows) {
    Table::Row& line = table.add(row->model);
    for (const Axis& axis : axes) {
      line.add(axis.value(*row));
    }
    line.add(name);
    line.remark = row->problem;
    if (row->seeds > 1 && !row->problem.empty()) {
      line.remark = fmt::format("{} of {} seeds; {}", row->finished, row->seeds, row->problem);
    }
    if (row->finished > 0) {
      line.add(format_spread(row->accuracy, 2, 100));
      if (tested) {
        line.add(format_difference(row->accuracy_difference));
      }
      if (fitted) {
        line.add(row->fit_loss ? format_spread(*row->fit_loss, 4) : "–");
      }
      line.add(format_spread(row->loss, 4), format_spread(row->images_per_second, 1), format_tax(row->tax),
               format_bytes(row->peak_bytes), format_count(row->parameters));
    }
  }
  return table;
}

Table cell_table(const Comparison& comparison) {
  Table table{.heads = {"model", "norm", "seed", "batch_size", "lr", "precision", "memory_format", "dataset"}};
  std::vector<std::string> options;  // the axes of options that the comparison has
  for (const OptionAxis& axis : option_axes()) {
    if (!comparison.cells.empty() && comparison.cells.front().options.contains(axis.option)) {
      options.emplace_back(axis.option);
      std::string head = axis.option;
      std::replace(head.begin(), head.end(), '-', '_');
      table.heads.push_back(std::move(head));
    }
  }
  for (const char* head :
       {"state", "test_accuracy", "test_loss", "train_accuracy", "train_loss", "images_per_second", "tax", "tax_low",
        "tax_high", "peak_tensor_bytes", "peak_process_bytes", "parameters", "steps", "seconds", "reason"}) {
    table.heads.emplace_back(head);
  }
  const std::vector<Row> rows = summarize(comparison);
  for (const Cell& cell : comparison.cells) {
    Table::Row& line =
        table.add(cell.model, train::norm_label(cell.norm, comparison.recipe), cell.seed, cell.batch_size,
                  lr_of(comparison, cell), cell.precision, to_string(cell.format), cell.dataset);
    for (const std::string& option : options) {
      line.add(cell.option(option));
    }
    line.add(to_string(cell.state));
    if (cell.state == CellState::finished) {
      // The tax belongs to the norm, whatever the seed, and so do images per second of the same steps.
      const auto row =
          std::find_if(rows.begin(), rows.end(), [&](const Row& other) { return same_but_seed(other, cell); });
      const auto share = [&](double Decision::*value) {
        return row->tax && row->tax->known() ? fmt::format("{:.6f}", *row->tax.*value) : "";
      };
      const auto of_fit = [&](double Fit::*value) { return cell.fit ? fmt::format("{}", *cell.fit.*value) : ""; };
      const double rate = row->rate_in_turns ? row->images_per_second.mean : cell.images_per_second;
      line.add(cell.accuracy, cell.loss, of_fit(&Fit::accuracy), of_fit(&Fit::loss), fmt::format("{:.3f}", rate),
               share(&Decision::difference), share(&Decision::low), share(&Decision::high), cell.peak_bytes,
               cell.peak_resident, cell.parameters, cell.losses.size(), fmt::format("{:.3f}", cell.seconds));
    }
    line.cells.resize(table.heads.size() - 1);
    line.add(cell.reason);
  }
  return table;
}

std::string to_csv(const Comparison& comparison) {
  return to_csv(cell_table(comparison));
}

void write_report(const Comparison& comparison, const std::filesystem::path& folder, const train::FolderLock* lock) {
  const auto write = [&](const char* name, const std::string& text) {
    if (lock != nullptr) {
      lock->write_text(name, text);
    } else {
      train::write_text_file("compare", folder / name, text);
    }
  };
  write("results.json", to_json(comparison));
  write("results.csv", to_csv(comparison));
  write("report.html", to_html(comparison));
  write("report.md", to_markdown(comparison));
}

bool same_but_seed(const Settings& a, const Settings& b) {
  const auto all_but_seed = [](const Settings& s) {
    return std::tie(s.model, s.norm, s.batch_size, s.lr, s.precision, s.format, s.dataset, s.options);
  };
  return all_but_seed(a) == all_but_seed(b);
}

const Trial* best_trial(const Tuning& tuning) {
  const Trial* best = nullptr;
  for (const Trial& trial : tuning.trials) {
    if (trial.loss && (best == nullptr || *trial.loss < *best->loss)) {
      best = &trial;
    }
  }
  return best;
}

bool best_is_at_edge(const Tuning& tuning) {
  const Trial* best = best_trial(tuning);
  return best != nullptr && tuning.trials.size() > 1 &&
         (best == &tuning.trials.front() || best == &tuning.trials.back());
}

}  // namespace norma::lab
