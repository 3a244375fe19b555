#include "lab/audit/audit.h"

#include "core/error.h"
#include "core/nearest_name.h"
#include "core/tape.h"
#include "lab/audit/cases.h"
#include "nn/norm/factory.h"
#include "session/interrupt.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace norma::lab::audit {

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
  std::vector<std::string> norms;
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
  const std::vector<std::string> known = audited_names();
  for (const std::string& name : options.norms) {
    check(std::ranges::count(known, name) > 0 || std::ranges::count(nn::norm_names(), name) == 0, "audit",
          "norms: {} has no definition in plain loops; check-norm --norms {} compares it with its own float64", name,
          name);
  }
  plan.norms = chosen("norms", "norm", options.norms, known);
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
  const NormReferenceInputs inputs = make_inputs(c, norm, dtype, quick);
  const NormTruth truth(inputs);
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
                              .accuracy = truth.accuracy(apply_norm(norm, inputs, kind, layout)),
                              .has_bias = norm.has_bias});
    }
  }
}

/// Likewise for a composite.
void measure_case(const Case& c, const Composite& composite, DType dtype, const std::vector<Statistics>& statistics,
                  bool quick, std::vector<Measurement>& measurements) {
  const CompositeInputs inputs = make_inputs(c, composite, dtype);
  const CompositeDefinition definition(composite, inputs);
  std::vector<Layout> layouts = layouts_of(inputs.x.rank());
  if (quick) {
    layouts.resize(1);
  }
  for (const Statistics kind : composite.has_statistics ? statistics : std::vector{Statistics::stable}) {
    for (const Layout layout : layouts) {
      measurements.push_back({.norm = composite.name,
                              .statistics = kind,
                              .dtype = dtype,
                              .case_name = c.name,
                              .layout = layout,
                              .sizes = inputs.x.sizes(),
                              .accuracy = definition.accuracy(apply_composite(composite, inputs, kind, layout)),
                              .has_bias = composite.has_bias(),
                              .has_weight = !composite.parameters.empty()});
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

NormResults apply_norm(const Norm& norm, const NormReferenceInputs& inputs, Statistics statistics, Layout layout) {
  const auto leaf = [](const Tensor& x) { return x.defined() ? x.detach().set_requires_grad() : Tensor{}; };
  const Tensor x = leaf(in_layout(inputs.x, layout));
  const Tensor weight = leaf(inputs.weight);
  const Tensor bias = leaf(inputs.bias);
  const Tensor y = norm.apply(x, weight, bias, statistics, inputs.spec.eps);
  y.backward(in_layout(inputs.dy, layout));
  return {.y = y.detach(), .dx = x.grad(), .dweight = weight.grad(), .dbias = bias.defined() ? bias.grad() : Tensor{}};
}

CompositeResults apply_composite(const Composite& composite, const CompositeInputs& inputs, Statistics statistics,
                                 Layout layout) {
  const Tensor x = in_layout(inputs.x, layout).detach().set_requires_grad();
  Tensors parameters;
  for (const Tensor& parameter : inputs.parameters) {
    parameters.push_back(parameter.detach().set_requires_grad());
  }
  const Tensor y = composite.apply(x, parameters, statistics, inputs.eps);
  y.backward(in_layout(inputs.dy, layout));
  CompositeResults results{.y = y.detach(), .dx = x.grad(), .gradients = {}};
  for (const Tensor& parameter : parameters) {
    results.gradients.push_back(parameter.grad());
  }
  return results;
}

std::vector<std::string> audited_names() {
  std::vector<std::string> names = norm_names();
  for (const Composite& composite : all_composites()) {
    names.push_back(composite.name);
  }
  return names;
}

bool has_statistics(const std::string& name) {
  const Composite* composite = composite_called(name);
  return composite != nullptr ? composite->has_statistics : norm_called(name).has_statistics;
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
    for (const std::string& name : plan.norms) {
      const Composite* composite = composite_called(name);
      const Norm* norm = composite == nullptr ? &norm_called(name) : nullptr;
      for (const Case* c : plan.cases) {
        if (train::interrupted()) {
          break;
        }
        if (const std::string reason = composite != nullptr ? why_not_taken(*c, *composite) : why_not_taken(*c, *norm);
            !reason.empty()) {
          if (!c->is_published()) {
            omit(audit, name + " " + c->name, reason);
          }
        } else if (const std::string too_much = why_not_held(*c, dtype); !too_much.empty()) {
          omit(audit, fmt::format("{} {}", to_string(dtype), c->name), too_much);
        } else if (composite != nullptr) {
          measure_case(*c, *composite, dtype, plan.statistics, options.quick, audit.measurements);
        } else {
          measure_case(*c, *norm, dtype, plan.statistics, options.quick, audit.measurements);
        }
      }
      say(fmt::format("{} {}: {} measurements so far, {:.0f} s", to_string(dtype), name, audit.measurements.size(),
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

}  // namespace norma::lab::audit
