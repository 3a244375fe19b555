#include "lab/judge/audit.h"

#include "base/lists.h"
#include "data/json.h"
#include "lab/judge/norms.h"
#include "lab/report/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace norma::lab::judge {

namespace {

using Json = nlohmann::ordered_json;

/// JSON has no infinities and no NaN, so they are texts.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

Json to_json(const Errors& errors) {
  return {{"worst", number(errors.worst)}, {"mean", number(errors.mean)}};
}

Json to_json(const Measurement& m) {
  Json json = {{"norm", m.norm},
               {"statistics", to_string(m.statistics)},
               {"dtype", to_string(m.dtype)},
               {"case", m.case_name},
               {"layout", to_string(m.layout)},
               {"sizes", std::vector<int64_t>(m.sizes.begin(), m.sizes.end())},
               {"output", to_json(m.accuracy.output)},
               {"dx", to_json(m.accuracy.dx)}};
  if (m.accuracy.dweight.numbers > 0) {
    json["dweight"] = to_json(m.accuracy.dweight);
  }
  if (m.accuracy.dbias.numbers > 0) {
    json["dbias"] = to_json(m.accuracy.dbias);
  }
  json["wrong_outputs"] = m.accuracy.wrong_outputs;
  json["wrong_gradients"] = m.accuracy.wrong_gradients;
  return json;
}

/// Calls f(what, format, implementation, quantity, error) for each error of the layers and steps.
template <class F>
void for_each_convolution_error(const Audit& audit, F f) {
  const auto visit = [&](const std::vector<ConvolutionErrors>& all, const std::array<std::string, 3>& quantities) {
    for (const ConvolutionErrors& one : all) {
      for (size_t i = 0; i < quantities.size(); ++i) {
        f(one.what, to_string(one.format), one.implementation, quantities[i], one.errors[i]);
      }
    }
  };
  visit(audit.layers, layer_quantities());
  visit(audit.steps, step_quantities());
}

constexpr const char* kConvolutionUnits =
    "Errors of 3x3 convolutions in float32: root mean square of the difference from the same in float64, over that of\n"
    "the numbers themselves. exact: the direct sum; fast: what conv2d chooses.\n";

/// "1.3e-7", or "0".
std::string format_error(double error) {
  if (error == 0 || !std::isfinite(error)) {
    return error == 0 ? "0" : "inf";
  }
  const std::string text = fmt::format("{:.1e}", error);  // "1.3e-07"
  const size_t e = text.find('e');
  return fmt::format("{}e{}", text.substr(0, e), std::stoi(text.substr(e + 1)));
}

/// "3.9", "120" or "1.2e9", or a dash for none.
std::string format_steps(const std::optional<double>& steps) {
  if (!steps) {
    return "–";
  }
  if (*steps < 0.05 || *steps >= 9999.5) {
    return format_error(*steps);
  }
  return fmt::format("{:.{}f}", *steps, *steps < 99.95 ? 1 : 0);
}

/// The columns of the cases that were measured, in the order of all_cases().
std::vector<std::string> columns_of_cases(const Audit& audit) {
  std::vector<std::string> columns;
  for (const Case& c : all_cases()) {
    const bool there =
        std::ranges::any_of(audit.measurements, [&](const Measurement& m) { return m.case_name == c.name; });
    if (there && !c.column.empty() && !c.is_published()) {
      add_once(columns, c.column);
    }
  }
  return columns;
}

using Filter = std::function<bool(const Measurement&)>;

/// The cell of one result's errors: the largest of the measurements that pass `filter`, in steps of their dtype.
std::string largest(const Audit& audit, const Filter& filter, Errors Accuracy::*result,
                    double Errors::*which = &Errors::worst) {
  std::optional<double> steps;
  for (const Measurement& m : audit.measurements) {
    if (const Errors& errors = m.accuracy.*result; filter(m) && errors.numbers > 0) {
      steps = std::max(steps.value_or(0), errors.*which / step_of(m.dtype));
    }
  }
  return format_steps(steps);
}

/// Adds the cells of one line: the output error in each column, the gradient errors, the number of wrong places.
void add_errors(const Audit& audit, const Filter& filter, const std::vector<std::string>& columns, Table::Row& line) {
  const Filter listed = [&](const Measurement& m) { return filter(m) && !case_called(m.case_name).is_published(); };
  for (const std::string& column : columns) {
    const Filter here = [&](const Measurement& m) { return filter(m) && case_called(m.case_name).column == column; };
    line.add(largest(audit, here, &Accuracy::output));
  }
  for (Errors Accuracy::*result : {&Accuracy::dx, &Accuracy::dweight, &Accuracy::dbias}) {
    line.add(largest(audit, listed, result));
  }
  int64_t wrong = 0;
  bool any = false;
  for (const Measurement& m : audit.measurements) {
    if (listed(m)) {
      wrong += m.accuracy.wrong_outputs + m.accuracy.wrong_gradients;
      any = true;
    }
  }
  line.add(any ? std::to_string(wrong) : "–");
}

void add(std::vector<std::string>& line, const std::vector<std::string>& cells) {
  line.insert(line.end(), cells.begin(), cells.end());
}

/// The distinct values, in the order of their first place.
template <class Get>
auto distinct(const Audit& audit, Get get) {
  std::vector<std::decay_t<decltype(get(audit.measurements.front()))>> values;
  for (const Measurement& m : audit.measurements) {
    add_once(values, get(m));
  }
  return values;
}

/// Calls f for each dtype with each kind of statistics.
template <class F>
void for_each_choice(const Audit& audit, const F& f) {
  for (const DType dtype : distinct(audit, [](const Measurement& m) { return m.dtype; })) {
    for (const Statistics kind : distinct(audit, [](const Measurement& m) { return m.statistics; })) {
      f(dtype, kind);
    }
  }
}

Table by_norm(const Audit& audit, const std::vector<std::string>& columns) {
  Table table{.heads = {"norm", "statistics", "dtype"}, .words = 3};
  add(table.heads, columns);
  add(table.heads, {"dx", "dweight", "db", "wrong"});
  for (const std::string& norm : distinct(audit, [](const Measurement& m) { return m.norm; })) {
    for_each_choice(audit, [&](DType dtype, Statistics kind) {
      const Filter filter = [&](const Measurement& m) {
        return m.norm == norm && m.dtype == dtype && m.statistics == kind;
      };
      if (std::ranges::any_of(audit.measurements, filter)) {
        table.add(norm, norm_called(norm).has_statistics ? to_string(kind) : "any", to_string(dtype));
        add_errors(audit, filter, columns, table.rows.back());
      }
    });
  }
  return table;
}

Table published(const Audit& audit) {
  Table table{.heads = {"case", "dtype", "statistics", "output", "mean", "dx", "wrong"}, .words = 3};
  for (const Measurement& m : audit.measurements) {
    if (case_called(m.case_name).is_published()) {
      const double step = step_of(m.dtype);
      table.add(m.case_name, to_string(m.dtype), to_string(m.statistics), format_steps(m.accuracy.output.worst / step),
                format_steps(m.accuracy.output.mean / step), format_steps(m.accuracy.dx.worst / step),
                m.accuracy.wrong_outputs + m.accuracy.wrong_gradients);
    }
  }
  return table;
}

/// Worst errors over all norms with a choice of statistics, and the cost of each choice.
Table summary(const Audit& audit, const std::vector<std::string>& columns) {
  std::vector<std::string> walks;
  for (const Cost& cost : audit.costs) {
    add_once(walks, cost.walk);
  }
  Table table{.heads = {"statistics", "dtype"}, .words = 2};
  add(table.heads, columns);
  add(table.heads, {"dx", "dweight", "db", "wrong"});
  add(table.heads, walks);
  for_each_choice(audit, [&](DType dtype, Statistics kind) {
    const Filter filter = [&](const Measurement& m) {
      return m.dtype == dtype && m.statistics == kind && norm_called(m.norm).has_statistics;
    };
    if (std::ranges::none_of(audit.measurements, filter)) {
      return;
    }
    Table::Row& line = table.add(to_string(kind), to_string(dtype));
    add_errors(audit, filter, columns, line);
    for (const std::string& walk : walks) {
      const auto cost = std::ranges::find_if(
          audit.costs, [&](const Cost& c) { return c.walk == walk && c.dtype == dtype && c.statistics == kind; });
      line.add(cost == audit.costs.end() ? "–" : fmt::format("{:.2f}", cost->relative));
    }
  });
  return table;
}

/// Mean output errors; the worst of all norms.
Table means(const Audit& audit, const std::vector<std::string>& columns) {
  Table table{.heads = {"statistics", "dtype"}, .words = 2};
  add(table.heads, columns);
  for_each_choice(audit, [&](DType dtype, Statistics kind) {
    Table::Row& line = table.add(to_string(kind), to_string(dtype));
    for (const std::string& column : columns) {
      const Filter here = [&](const Measurement& m) {
        return m.dtype == dtype && m.statistics == kind && norm_called(m.norm).has_statistics &&
               case_called(m.case_name).column == column;
      };
      line.add(largest(audit, here, &Accuracy::output, &Errors::mean));
    }
    if (std::ranges::count(line.cells, "–") == std::ssize(columns)) {
      table.rows.pop_back();
    }
  });
  return table;
}

Table convolutions(const std::vector<ConvolutionErrors>& all, const std::array<std::string, 3>& quantities) {
  Table table{.heads = {"what", "memory format", "implementation"}, .words = 3};
  add(table.heads, {quantities.begin(), quantities.end()});
  for (const ConvolutionErrors& one : all) {
    Table::Row& line = table.add(one.what, to_string(one.format), one.implementation);
    for (const double error : one.errors) {
      line.add(format_error(error));
    }
  }
  return table;
}

}  // namespace

std::string to_csv(const Audit& audit) {
  Table table{.heads = {"norm", "statistics", "dtype", "case", "layout", "sizes", "output_worst", "output_mean",
                        "dx_worst", "dx_mean", "dweight_worst", "dweight_mean", "dbias_worst", "dbias_mean",
                        "wrong_outputs", "wrong_gradients"}};
  const auto text = [](const Errors& errors, double value) {
    return errors.numbers > 0 ? fmt::format("{}", value) : "";
  };
  for (const Measurement& m : audit.measurements) {
    const Accuracy& a = m.accuracy;
    table.add(m.norm, to_string(m.statistics), to_string(m.dtype), m.case_name, to_string(m.layout),
              sizes_text(m.sizes), a.output.worst, a.output.mean, a.dx.worst, a.dx.mean,
              text(a.dweight, a.dweight.worst), text(a.dweight, a.dweight.mean), text(a.dbias, a.dbias.worst),
              text(a.dbias, a.dbias.mean), a.wrong_outputs, a.wrong_gradients);
  }
  return lab::to_csv(table);
}

std::string costs_to_csv(const Audit& audit) {
  Table table{.heads = {"walk", "dtype", "sizes", "statistics", "seconds", "relative_to_stable"}};
  for (const Cost& cost : audit.costs) {
    table.add(cost.walk, to_string(cost.dtype), sizes_text(cost.sizes), to_string(cost.statistics), cost.seconds,
              cost.relative);
  }
  return lab::to_csv(table);
}

std::string convolutions_to_csv(const Audit& audit) {
  Table table{.heads = {"what", "memory_format", "implementation", "quantity", "error"}};
  for_each_convolution_error(audit, [&](const auto&... cells) { table.add(cells...); });
  return lab::to_csv(table);
}

std::string to_json(const Audit& audit) {
  Json cases = Json::object();
  for (const Case& c : all_cases()) {
    cases[c.name] = c.description;
  }
  Json json = {{"format", "norma audit 1"},
               {"date", audit.date},
               {"command", audit.command},
               {"quick", audit.quick},
               {"complete", audit.complete},
               {"seconds", audit.seconds},
               {"environment", Json::parse(train::to_json(audit.environment))},
               {"cases", std::move(cases)}};
  json["measurements"] = mapped(audit.measurements, [](const Measurement& m) { return to_json(m); });
  json["costs"] = mapped(audit.costs, [](const Cost& cost) {
    return Json{{"walk", cost.walk},
                {"dtype", to_string(cost.dtype)},
                {"sizes", std::vector<int64_t>(cost.sizes.begin(), cost.sizes.end())},
                {"statistics", to_string(cost.statistics)},
                {"seconds", cost.seconds},
                {"relative_to_stable", number(cost.relative)}};
  });
  Json convolutions = Json::array();
  for_each_convolution_error(
      audit, [&](const auto& what, auto format, const auto& implementation, const auto& quantity, double error) {
        convolutions.push_back({{"what", what},
                                {"memory_format", format},
                                {"implementation", implementation},
                                {"quantity", quantity},
                                {"error", number(error)}});
      });
  json["convolutions"] = std::move(convolutions);
  json["omissions"] = mapped(audit.omissions, [](const Omission& omission) {
    return Json{{"what", omission.what}, {"reason", omission.reason}};
  });
  return data::json_text(json, 1) + "\n";
}

void write_report(const Audit& audit, const train::HeldFolder& folder) {
  folder.write_text("results.json", to_json(audit));
  folder.write_text("results.csv", to_csv(audit));
  folder.write_text("costs.csv", costs_to_csv(audit));
  if (!audit.layers.empty()) {
    folder.write_text("convolutions.csv", convolutions_to_csv(audit));
  }
  folder.write_text("table.txt", to_table(audit));
}

std::string to_table(const Audit& audit) {
  const std::vector<std::string> columns = columns_of_cases(audit);
  std::string text(audit.measurements.empty() ? "" : error_units());
  const auto section = [&](const std::string& head, const Table& table) {
    if (!table.rows.empty()) {
      text += "\n" + head + "\n" + to_text(table);
    }
  };
  const bool any_listed = std::ranges::any_of(
      audit.measurements, [](const Measurement& m) { return !case_called(m.case_name).is_published(); });
  if (any_listed) {
    section("Each norm", by_norm(audit, columns));
  }
  section("Published cases (layer norm without weight and bias, dy = 1)", published(audit));
  if (any_listed) {
    section("All norms that have a choice of statistics; rows, columns, runs: time of forward, stable = 1",
            summary(audit, columns));
    if (!columns.empty()) {
      section("The same, mean output error: that of the worst norm and case", means(audit, columns));
    }
  }
  if (!audit.layers.empty()) {
    text += (text.empty() ? "" : "\n") + std::string(kConvolutionUnits);
    section("Single convolutions", convolutions(audit.layers, layer_quantities()));
    section("One training step of a network at its start values, lower quartile over seeds",
            convolutions(audit.steps, step_quantities()));
  }
  Table omissions{.heads = {"left out", "because"}, .words = 2};
  for (const Omission& omission : audit.omissions) {
    omissions.add(omission.what, omission.reason);
  }
  section("Not measured", omissions);
  return text;
}

}  // namespace norma::lab::judge
