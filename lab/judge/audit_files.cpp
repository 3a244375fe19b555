#include "lab/judge/audit.h"

#include "data/json.h"
#include "lab/judge/cases.h"
#include "lab/report/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace norma::lab::judge {

namespace {

using Json = nlohmann::ordered_json;

/// "16x12x18x17"
std::string sizes_text(const Sizes& sizes) {
  return fmt::format("{}", fmt::join(sizes.begin(), sizes.end(), "x"));
}

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
  Json measurements = Json::array();
  for (const Measurement& m : audit.measurements) {
    measurements.push_back(to_json(m));
  }
  json["measurements"] = std::move(measurements);
  Json costs = Json::array();
  for (const Cost& cost : audit.costs) {
    costs.push_back({{"walk", cost.walk},
                     {"dtype", to_string(cost.dtype)},
                     {"sizes", std::vector<int64_t>(cost.sizes.begin(), cost.sizes.end())},
                     {"statistics", to_string(cost.statistics)},
                     {"seconds", cost.seconds},
                     {"relative_to_stable", number(cost.relative)}});
  }
  json["costs"] = std::move(costs);
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
  Json omissions = Json::array();
  for (const Omission& omission : audit.omissions) {
    omissions.push_back({{"what", omission.what}, {"reason", omission.reason}});
  }
  json["omissions"] = std::move(omissions);
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

}  // namespace norma::lab::judge
