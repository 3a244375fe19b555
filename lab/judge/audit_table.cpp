#include "base/error.h"
#include "lab/judge/audit.h"
#include "lab/judge/cases.h"
#include "lab/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

namespace norma::lab::judge {

namespace {

constexpr const char* kConvolutionUnits =
    "Errors of 3x3 convolutions in float32: root mean square of the difference from the same in float64, over that of\n"
    "the numbers themselves. exact: the direct sum; fast: what conv2d chooses.\n";

constexpr const char* kUnits =
    "Errors are differences from the definition, computed with plain loops in extended precision from the same\n"
    "rounded inputs. They are counted in steps of the dtype, the units in the last place of numbers from 1 to 2\n"
    "(float32 1.2e-7, float64 2.2e-16, bfloat16 7.8e-3, float16 9.8e-4), times these units:\n"
    "  outputs       1; or the root mean square of the set's true outputs, where that is above 1\n"
    "  dx            1 / sqrt(var + eps) of the set; times the root mean square of dx in it, where that is above 1\n"
    "  dweight, db   the sum of |dy| (or of |dy * xhat|, if larger) over the elements with that weight\n"
    "From ghost_batch on, units are taken over the whole tensor: outputs of grn and local_response relative to their\n"
    "root mean square; dx relative to that of the sum of |dy * dy/dx|, and at least 1 for dyt and derf.\n"
    "wrong: outputs and gradients that are NaN or infinite where the definition is not, or the other way round.\n"
    "The largest errors are shown; a dash means not measured.\n";

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
    const bool there = std::any_of(audit.measurements.begin(), audit.measurements.end(),
                                   [&](const Measurement& m) { return m.case_name == c.name; });
    if (there && !c.column.empty() && !c.is_published() &&
        std::find(columns.begin(), columns.end(), c.column) == columns.end()) {
      columns.push_back(c.column);
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
  std::vector<decltype(get(audit.measurements.front()))> values;
  for (const Measurement& m : audit.measurements) {
    if (std::find(values.begin(), values.end(), get(m)) == values.end()) {
      values.push_back(get(m));
    }
  }
  return values;
}

Table by_norm(const Audit& audit, const std::vector<std::string>& columns) {
  Table table{.heads = {"norm", "statistics", "dtype"}, .words = 3};
  add(table.heads, columns);
  add(table.heads, {"dx", "dweight", "db", "wrong"});
  for (const std::string& norm : distinct(audit, [](const Measurement& m) { return m.norm; })) {
    for (const DType dtype : distinct(audit, [](const Measurement& m) { return m.dtype; })) {
      for (const Statistics kind : distinct(audit, [](const Measurement& m) { return m.statistics; })) {
        const Filter filter = [&](const Measurement& m) {
          return m.norm == norm && m.dtype == dtype && m.statistics == kind;
        };
        if (std::any_of(audit.measurements.begin(), audit.measurements.end(), filter)) {
          table.add(norm, norm_called(norm).has_statistics ? to_string(kind) : "any", to_string(dtype));
          add_errors(audit, filter, columns, table.rows.back());
        }
      }
    }
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
    if (std::find(walks.begin(), walks.end(), cost.walk) == walks.end()) {
      walks.push_back(cost.walk);
    }
  }
  Table table{.heads = {"statistics", "dtype"}, .words = 2};
  add(table.heads, columns);
  add(table.heads, {"dx", "dweight", "db", "wrong"});
  add(table.heads, walks);
  for (const DType dtype : distinct(audit, [](const Measurement& m) { return m.dtype; })) {
    for (const Statistics kind : distinct(audit, [](const Measurement& m) { return m.statistics; })) {
      const Filter filter = [&](const Measurement& m) {
        return m.dtype == dtype && m.statistics == kind && norm_called(m.norm).has_statistics;
      };
      if (std::none_of(audit.measurements.begin(), audit.measurements.end(), filter)) {
        continue;
      }
      Table::Row& line = table.add(to_string(kind), to_string(dtype));
      add_errors(audit, filter, columns, line);
      for (const std::string& walk : walks) {
        const auto cost = std::find_if(audit.costs.begin(), audit.costs.end(), [&](const Cost& c) {
          return c.walk == walk && c.dtype == dtype && c.statistics == kind;
        });
        line.add(cost == audit.costs.end() ? "–" : fmt::format("{:.2f}", cost->relative));
      }
    }
  }
  return table;
}

/// Mean output errors; the worst of all norms.
Table means(const Audit& audit, const std::vector<std::string>& columns) {
  Table table{.heads = {"statistics", "dtype"}, .words = 2};
  add(table.heads, columns);
  for (const DType dtype : distinct(audit, [](const Measurement& m) { return m.dtype; })) {
    for (const Statistics kind : distinct(audit, [](const Measurement& m) { return m.statistics; })) {
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
    }
  }
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

std::string to_table(const Audit& audit) {
  const std::vector<std::string> columns = columns_of_cases(audit);
  std::string text = audit.measurements.empty() ? "" : kUnits;
  const auto section = [&](const std::string& head, const Table& table) {
    if (!table.rows.empty()) {
      text += "\n" + head + "\n" + to_text(table);
    }
  };
  const bool any_listed = std::any_of(audit.measurements.begin(), audit.measurements.end(),
                                      [](const Measurement& m) { return !case_called(m.case_name).is_published(); });
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
