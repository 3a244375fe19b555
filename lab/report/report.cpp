#include "lab/report/report.h"

#include "core/error.h"
#include "core/excerpt.h"
#include "data/json.h"
#include "lab/report/text_table.h"
#include "nn/norm/factory.h"
#include "train/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

namespace norma::lab {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "norma comparison 1";

constexpr std::array kStates = {CellState::pending, CellState::finished, CellState::failed, CellState::interrupted};

CellState state_from_string(std::string_view name, std::string_view where) {
  for (const CellState state : kStates) {
    if (to_string(state) == name) {
      return state;
    }
  }
  fail(where, "state: expected pending, finished, failed or interrupted, got '{}'", excerpt(name));
}

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

/// True iff it is batch norm, whatever its options: what the others are measured against.
bool is_reference(const std::string& norm) {
  return nn::parse_norm(norm).name == "batch";
}

std::string problem_of(const std::vector<const Cell*>& cells) {
  for (const Cell* cell : cells) {
    switch (cell->state) {
      case CellState::finished: break;
      case CellState::failed: return "failed: " + cell->reason;
      case CellState::interrupted: return "interrupted";
      case CellState::pending: return "not started";
    }
  }
  return "";
}

Row row_of(const std::vector<const Cell*>& cells) {
  Row row;
  row.model = cells.front()->model;
  row.norm = cells.front()->norm;
  row.problem = problem_of(cells);
  row.seeds = static_cast<int64_t>(cells.size());
  std::vector<double> accuracy;
  std::vector<double> loss;
  std::vector<double> images_per_second;
  for (const Cell* cell : cells) {
    if (cell->state == CellState::finished) {
      ++row.finished;
      accuracy.push_back(cell->accuracy);
      loss.push_back(cell->loss);
      images_per_second.push_back(cell->images_per_second);
      row.peak_bytes = std::max(row.peak_bytes, cell->peak_bytes);
      row.peak_resident = std::max(row.peak_resident, cell->peak_resident);
      row.parameters = cell->parameters;
    }
  }
  row.accuracy = spread_of(accuracy);
  row.loss = spread_of(loss);
  row.images_per_second = spread_of(images_per_second);
  return row;
}

Json cell_to_json(const Cell& cell) {
  Json json = {{"model", cell.model}, {"norm", cell.norm}, {"seed", cell.seed}, {"state", to_string(cell.state)}};
  if (!cell.reason.empty()) {
    json["reason"] = cell.reason;
  }
  if (cell.state == CellState::finished) {
    json["accuracy"] = cell.accuracy;
    json["loss"] = cell.loss;
    json["images_per_second"] = cell.images_per_second;
    json["seconds"] = cell.seconds;
    json["peak_bytes"] = cell.peak_bytes;
    json["peak_resident"] = cell.peak_resident;
    json["parameters"] = cell.parameters;
    json["losses"] = cell.losses;
  }
  return json;
}

Cell cell_from_json(const nlohmann::json& json, const std::string& where) {
  Cell cell;
  const auto read = [&]<class T>(const char* name, T& value) { value = data::json_field<T>(where, json, name); };
  read("model", cell.model);
  read("norm", cell.norm);
  read("seed", cell.seed);
  cell.state = state_from_string(data::json_field<std::string>(where, json, "state"), where);
  if (json.contains("reason")) {
    read("reason", cell.reason);
  }
  if (cell.state == CellState::finished) {
    read("accuracy", cell.accuracy);
    std::optional<double> loss;  // JSON has no NaN: null stands for it
    read("loss", loss);
    cell.loss = loss.value_or(std::numeric_limits<double>::quiet_NaN());
    read("images_per_second", cell.images_per_second);
    read("seconds", cell.seconds);
    read("peak_bytes", cell.peak_bytes);
    read("peak_resident", cell.peak_resident);
    read("parameters", cell.parameters);
    read("losses", cell.losses);
    check(cell.accuracy >= 0 && cell.accuracy <= 1, where, "accuracy: expected a number from 0 to 1, got {}",
          cell.accuracy);
    const auto check_not_negative = [&](const char* name, auto value) {
      check(value >= 0, where, "{}: expected at least 0, got {}", name, value);
    };
    check_not_negative("images_per_second", cell.images_per_second);
    check_not_negative("seconds", cell.seconds);
    check_not_negative("peak_bytes", cell.peak_bytes);
    check_not_negative("peak_resident", cell.peak_resident);
    check_not_negative("parameters", cell.parameters);
  }
  return cell;
}

}  // namespace

std::string_view to_string(CellState state) {
  switch (state) {
    case CellState::pending: return "pending";
    case CellState::finished: return "finished";
    case CellState::failed: return "failed";
    case CellState::interrupted: return "interrupted";
  }
  return "unknown";
}

std::vector<Row> summarize(const Comparison& comparison) {
  std::vector<std::vector<const Cell*>> groups;
  for (const Cell& cell : comparison.cells) {
    const auto same = [&](const std::vector<const Cell*>& group) {
      return group.front()->model == cell.model && group.front()->norm == cell.norm;
    };
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
  for (Row& row : rows) {
    const auto reference = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
      return other.model == row.model && other.finished > 0 && is_reference(other.norm);
    });
    if (row.finished > 0 && reference != rows.end()) {
      row.tax = 1 - row.images_per_second.mean / reference->images_per_second.mean;
    }
  }
  return rows;
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

std::string format_tax(const std::optional<double>& tax) {
  // The added 0 turns -0 into 0.
  return tax ? fmt::format("{:.1f} %", std::round(1000 * *tax) / 10 + 0.0) : "–";
}

std::string to_table(const Comparison& comparison) {
  const std::vector<std::string> heads = {"model", "norm", "accuracy %", "test loss",
                                          "img/s", "tax",  "memory",     "parameters"};
  constexpr size_t kTextColumns = 2;
  std::vector<std::vector<std::string>> lines = {heads};
  for (const Row& row : summarize(comparison)) {
    std::vector<std::string> line = {row.model, train::norm_label(row.norm, comparison.recipe)};
    if (row.finished > 0) {
      line.insert(line.end(), {format_spread(row.accuracy, 2, 100), format_spread(row.loss, 4),
                               format_spread(row.images_per_second, 1), format_tax(row.tax),
                               format_bytes(row.peak_bytes), format_count(row.parameters)});
    }
    if (!row.problem.empty()) {
      line.push_back(row.seeds > 1 ? fmt::format("{} of {} seeds; {}", row.finished, row.seeds, row.problem)
                                   : row.problem);
    }
    lines.push_back(line);
  }
  return align_table(lines, kTextColumns);
}

std::string to_csv(const Comparison& comparison) {
  std::string csv =
      "model,norm,seed,state,test_accuracy,test_loss,images_per_second,tax,peak_tensor_bytes,peak_process_bytes,"
      "parameters,steps,seconds,reason\n";
  const std::vector<Row> rows = summarize(comparison);
  for (const Cell& cell : comparison.cells) {
    csv += fmt::format("{},{},{},{},", csv_field(cell.model),
                       csv_field(train::norm_label(cell.norm, comparison.recipe)), cell.seed, to_string(cell.state));
    if (cell.state == CellState::finished) {
      // The tax of one seed, against the mean of the reference's seeds.
      std::string tax;
      for (const Row& row : rows) {
        if (row.model == cell.model && row.finished > 0 && is_reference(row.norm)) {
          tax = fmt::format("{:.6f}", 1 - cell.images_per_second / row.images_per_second.mean);
          break;
        }
      }
      csv += fmt::format("{},{},{:.3f},{},{},{},{},{},{:.3f},", cell.accuracy, cell.loss, cell.images_per_second, tax,
                         cell.peak_bytes, cell.peak_resident, cell.parameters, cell.losses.size(), cell.seconds);
    } else {
      csv += ",,,,,,,,,";
    }
    csv += csv_field(cell.reason) + "\n";
  }
  return csv;
}

std::string to_json(const Comparison& comparison) {
  Json json = {{"format", kFormat},
               {"date", comparison.date},
               {"command", comparison.command},
               {"environment", Json::parse(train::to_json(comparison.environment))},
               {"recipe", Json::parse(train::to_json(comparison.recipe))}};
  Json cells = Json::array();
  for (const Cell& cell : comparison.cells) {
    cells.push_back(cell_to_json(cell));
  }
  json["cells"] = std::move(cells);
  return data::json_text(json, 1) + "\n";
}

Comparison comparison_from_json(const std::string& text, const std::string& where) {
  const nlohmann::json json = data::parse_json(where, "the comparison", text);
  const auto format = data::json_field<std::string>(where, json, "format");
  check(format == kFormat, where, "format: expected '{}', got '{}'", kFormat, excerpt(format));
  for (const char* part : {"environment", "recipe", "cells"}) {
    check(json.contains(part), where, "{}: missing", part);
  }
  Comparison comparison;
  comparison.date = data::json_field<std::string>(where, json, "date");
  comparison.command = data::json_field<std::string>(where, json, "command");
  comparison.environment = train::environment_from_json(data::json_text(json["environment"]), where + ": environment");
  comparison.recipe = train::recipe_from_json(data::json_text(json["recipe"]), where + ": recipe");
  const nlohmann::json& cells = json["cells"];
  check(cells.is_array(), where, "cells: expected a list, got {}", data::json_excerpt(cells));
  check(!cells.empty(), where, "cells: expected at least one, got none");
  std::set<std::tuple<std::string, std::string, uint64_t>> seen;
  for (size_t i = 0; i < cells.size(); ++i) {
    Cell cell = cell_from_json(cells[i], fmt::format("{}: cell {}", where, i + 1));
    check(seen.emplace(cell.model, cell.norm, cell.seed).second, where,
          "cell {}: expected each once, got {} with norm {} and seed {} twice", i + 1, excerpt(cell.model),
          excerpt(cell.norm), cell.seed);
    comparison.cells.push_back(std::move(cell));
  }
  return comparison;
}

void write_report(const Comparison& comparison, const std::filesystem::path& folder) {
  train::write_text_file("compare", folder / "results.json", to_json(comparison));
  train::write_text_file("compare", folder / "results.csv", to_csv(comparison));
  train::write_text_file("compare", folder / "report.html", to_html(comparison));
}

}  // namespace norma::lab
