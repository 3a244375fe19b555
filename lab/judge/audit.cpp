#include "lab/judge/audit.h"

#include "base/error.h"
#include "base/nearest_name.h"
#include "lab/judge/cases.h"
#include "session/interrupt.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace norma::lab::judge {

namespace {

constexpr std::array kDtypes = {DType::float32, DType::float64, DType::bfloat16, DType::float16};

template <class T>
std::vector<std::string> names_of(const T& values) {
  std::vector<std::string> names;
  for (const auto& value : values) {
    names.emplace_back(to_string(value));
  }
  return names;
}

/// The given names, or all.
std::vector<std::string> chosen(std::string_view argument, std::string_view kind, const std::vector<std::string>& given,
                                const std::vector<std::string>& known) {
  for (auto name = given.begin(); name != given.end(); ++name) {
    check(std::find(known.begin(), known.end(), *name) != known.end(), "audit", "{}: {}", argument,
          unknown_name(kind, *name, known));
    check(std::find(given.begin(), name, *name) == name, "audit", "{}: expected each once, got {} twice", argument,
          *name);
  }
  return given.empty() ? known : given;
}

/// The norms, cases and dtypes to measure.
struct Plan {
  std::vector<Norm> norms;
  std::vector<Statistics> statistics;
  std::vector<DType> dtypes;
  std::vector<const Case*> cases;
};

Plan plan_of(const AuditOptions& options) {
  Plan plan;
  if (options.convolutions) {
    check_convolutions();
    if (options.norms.empty()) {
      check(options.statistics.empty() && options.dtypes.empty() && options.cases.empty(), "audit",
            "convolutions: expected norms with the choice of statistics, dtypes or cases, got none");
      return plan;
    }
  }
  std::vector<std::string> names;
  for (const std::string& name : options.norms) {
    plan.norms.push_back(norm_called(name));
    names.push_back(plan.norms.back().name);
  }
  if (names.empty()) {
    plan.norms = all_norms();
  }
  chosen("norms", "norm", names, names);
  for (const std::string& name : chosen("statistics", "statistics", options.statistics, names_of(all_statistics()))) {
    plan.statistics.push_back(statistics_from_string(name));
  }
  for (const std::string& name : chosen("dtypes", "dtype", options.dtypes, names_of(kDtypes))) {
    plan.dtypes.push_back(dtype_from_string(name));
  }
  for (const std::string& name : chosen("cases", "case", options.cases, case_names())) {
    plan.cases.push_back(&case_called(name));
  }
  return plan;
}

/// Adds the measurements of one case with every kind of statistics.
void measure_case(const Case& c, const Norm& norm, DType dtype, const std::vector<Statistics>& statistics, bool quick,
                  std::vector<Measurement>& measurements) {
  const Inputs inputs = make_inputs(c, norm, dtype, quick);
  const Truth truth(norm, inputs);
  std::vector<Layout> layouts = layouts_of(inputs.x.rank());
  if (quick || c.is_published()) {
    layouts.resize(1);
  }
  for (const Statistics kind : norm.has_statistics ? statistics : std::vector{Statistics::stable}) {
    for (const Layout layout : layouts) {
      if (train::interrupted()) {
        return;
      }
      measurements.push_back({.norm = norm.name,
                              .statistics = kind,
                              .dtype = dtype,
                              .case_name = c.name,
                              .layout = layout,
                              .sizes = inputs.x.sizes(),
                              .accuracy = truth.accuracy(apply(norm, inputs, kind, layout))});
    }
  }
}

/// Adds `what`, once.
void omit(Audit& audit, const std::string& what, const std::string& reason) {
  const auto same = [&](const Omission& omission) { return omission.what == what; };
  if (std::none_of(audit.omissions.begin(), audit.omissions.end(), same)) {
    audit.omissions.push_back({what, reason});
  }
}

}  // namespace

void check_options(const AuditOptions& options) {
  (void)plan_of(options);
}

Audit run_audit(const AuditOptions& options) {
  const Plan plan = plan_of(options);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  const auto say = [&](const std::string& text) {
    if (options.progress) {
      options.progress(text);
    }
  };
  Audit audit{.measurements = {},
              .omissions = {},
              .costs = {},
              .layers = {},
              .steps = {},
              .environment = train::environment(),
              .command = options.command,
              .date = train::local_time(),
              .quick = options.quick};
  for (const DType dtype : plan.dtypes) {
    for (const Norm& norm : plan.norms) {
      for (const Case* c : plan.cases) {
        if (train::interrupted()) {
          break;
        }
        if (const std::string reason = why_not_taken(*c, norm); !reason.empty()) {
          if (!c->is_published()) {
            omit(audit, norm.name + " " + c->name, reason);
          }
        } else if (const std::string too_much = why_not_held(*c, dtype); !too_much.empty()) {
          omit(audit, fmt::format("{} {}", to_string(dtype), c->name), too_much);
        } else {
          measure_case(*c, norm, dtype, plan.statistics, options.quick, audit.measurements);
        }
      }
      say(fmt::format("{} {}: {} measurements so far, {:.0f} s", to_string(dtype), norm.name, audit.measurements.size(),
                      seconds()));
    }
  }
  for (const DType dtype : plan.dtypes) {
    if (train::interrupted()) {
      break;
    }
    const std::vector<Cost> costs = measure_costs(dtype, plan.statistics, options.quick);
    audit.costs.insert(audit.costs.end(), costs.begin(), costs.end());
    say(fmt::format("{}: timed, {:.0f} s", to_string(dtype), seconds()));
  }
  if (options.convolutions) {
    const auto measuring = [&](const std::string& what) {
      say(fmt::format("convolutions: {}, {:.0f} s", what, seconds()));
    };
    audit.layers = measure_convolutions(options.quick, measuring);
    audit.steps = measure_steps(options.quick, measuring);
  }
  audit.complete = !train::interrupted();
  audit.seconds = seconds();
  return audit;
}

}  // namespace norma::lab::judge
