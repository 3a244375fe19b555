#include "parity/program.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/attention/attention.h"
#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/map_norm/norms.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pool/pool.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/join.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"

#include <cmath>
#include <map>

namespace norma::test {
namespace {

using json = nlohmann::json;

// --- reading and writing ------------------------------------------------------------------------------------------

Sizes sizes_of(const json& list) {
  return Sizes(std::span<const int64_t>(list.get<std::vector<int64_t>>()));
}

DType dtype_named(const std::string& name) {
  for (const DType dtype : {DType::float64, DType::float32, DType::int64}) {
    if (to_string(dtype) == name) {
      return dtype;
    }
  }
  fail("program", "dtype: expected float64, float32 or int64, got {}", name);
}

MemoryFormat format_named(const std::string& name) {
  return name == "channels_last" ? MemoryFormat::channels_last
         : name == "preserve"    ? MemoryFormat::preserve
                                 : MemoryFormat::contiguous;
}

PadMode mode_named(const std::string& name) {
  return name == "reflect" ? PadMode::reflect : name == "replicate" ? PadMode::replicate : PadMode::circular;
}

/// The values of x, with the axes in the other order in memory, or with gaps between elements.
Tensor laid_out(const Tensor& x, const std::string& layout) {
  if (layout == "channels_last") {
    return copy_of(x, MemoryFormat::channels_last);
  }
  if (layout == "reversed" || layout == "gapped") {
    Strides strides = Strides::filled(x.rank(), 0);
    int64_t step = layout == "gapped" ? 2 : 1;
    for (int64_t i = 0; i < x.rank(); ++i) {
      const int64_t axis = layout == "gapped" ? x.rank() - 1 - i : i;
      strides[axis] = step;
      step *= x.size(axis);
    }
    const Tensor all = zeros({step}, {.dtype = x.dtype(), .device = x.device()});
    const Tensor y = alias(all, x.sizes(), strides, 0);
    copy_into(x, y);
    return y.detach();
  }
  return x;
}

Tensor input_of(const json& input, Device device) {
  const Tensor wide = from_vector(numbers_of(input.at("values")), sizes_of(input.at("sizes")),
                                  {.dtype = DType::float64, .device = device});
  Tensor x = laid_out(copy_of(wide, MemoryFormat::contiguous, dtype_named(input.at("dtype"))), input.at("layout"));
  return input.at("grad").get<bool>() ? x.set_requires_grad() : x;
}

json list_of(const Tensor& x) {
  json result = json::array();
  for (const double value : x.to_vector<double>()) {
    if (std::isfinite(value)) {
      result.push_back(value);
    } else {
      result.push_back(std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    }
  }
  return result;
}

// --- the ops --------------------------------------------------------------------------------------------------------

/// The arguments of one step.
class Step {
 public:
  Step(const json& step, const Tensors& variables) : step_(step), variables_(variables) {}

  /// Argument number i; undefined where it is not there.
  [[nodiscard]] Tensor operator[](size_t i) const {
    const json& args = step_.at("args");
    return i < args.size() && !args[i].is_null() ? variables_.at(args[i].get<size_t>()) : Tensor{};
  }
  [[nodiscard]] Tensors all() const {
    Tensors result;
    for (size_t i = 0; i < step_.at("args").size(); ++i) {
      result.push_back((*this)[i]);
    }
    return result;
  }
  [[nodiscard]] double number(const char* name) const { return step_.at(name).get<double>(); }
  [[nodiscard]] int64_t integer(const char* name) const { return step_.at(name).get<int64_t>(); }
  [[nodiscard]] int64_t integer(const char* name, int64_t otherwise) const { return step_.value(name, otherwise); }
  [[nodiscard]] bool flag(const char* name) const { return step_.value(name, false); }
  [[nodiscard]] std::string text(const char* name) const { return step_.at(name).get<std::string>(); }
  [[nodiscard]] Sizes list(const char* name) const { return step_.contains(name) ? sizes_of(step_.at(name)) : Sizes{}; }
  [[nodiscard]] Pair pair(const char* name) const {
    const Sizes two = list(name);
    return {two[0], two[1]};
  }

 private:
  const json& step_;
  const Tensors& variables_;
};

using Op = std::function<Tensor(const Step&)>;

template <class F>
Op unary(F f) {
  return [f](const Step& s) { return f(s[0]); };
}
template <class F>
Op binary(F f) {
  return [f](const Step& s) { return f(s[0], s[1]); };
}
template <class F>
Op in_place(F f) {
  return [f](const Step& s) {
    Tensor x = s[0];
    return f(x, s);
  };
}

Pool2dOptions pool_options(const Step& s) {
  return {.kernel = s.pair("kernel"),
          .stride = s.pair("stride"),
          .padding = s.pair("padding"),
          .ceil_mode = s.flag("ceil_mode"),
          .count_include_pad = !s.flag("exclude_pad"),
          .dilation = s.integer("dilation", 1),
          .divisor_override = s.integer("divisor_override", 0)};
}

std::map<std::string, Op> pointwise_ops() {
  using T = const Tensor&;
  return {
      {"add", binary([](T a, T b) { return add(a, b); })},
      {"sub", binary([](T a, T b) { return sub(a, b); })},
      {"mul", binary([](T a, T b) { return mul(a, b); })},
      {"div", binary([](T a, T b) { return div(a, b); })},
      {"maximum", binary([](T a, T b) { return maximum(a, b); })},
      {"add_number", [](const Step& s) { return add(s[0], s.number("number")); }},
      {"mul_number", [](const Step& s) { return mul(s[0], s.number("number")); }},
      {"where", [](const Step& s) { return where(greater(s[0], s[1]), s[2], s[3]); }},
      {"neg", unary([](T x) { return neg(x); })},
      {"exp", unary([](T x) { return exp(x); })},
      {"log", unary([](T x) { return log(x); })},
      {"sqrt", unary([](T x) { return sqrt(x); })},
      {"rsqrt", unary([](T x) { return rsqrt(x); })},
      {"pow", binary([](T a, T b) { return pow(a, b); })},
      {"pow_number", [](const Step& s) { return pow(s[0], s.number("number")); }},
      {"abs", unary([](T x) { return abs(x); })},
      {"tanh", unary([](T x) { return tanh(x); })},
      {"sigmoid", unary([](T x) { return sigmoid(x); })},
      {"erf", unary([](T x) { return erf(x); })},
      {"relu", unary([](T x) { return relu(x); })},
      {"silu", unary([](T x) { return silu(x); })},
      {"gelu", unary([](T x) { return gelu(x); })},
      {"gelu_tanh", unary([](T x) { return gelu(x, GeluApproximation::tanh); })},
      {"clamp", [](const Step& s) { return clamp(s[0], s.number("low"), s.number("high")); }},
      {"to", [](const Step& s) { return to(s[0], dtype_named(s.text("dtype"))); }},
      {"detach", unary([](T x) { return x.detach(); })},
      {"add_", in_place([](Tensor& x, const Step& s) { return add_(x, s[1]); })},
      {"sub_", in_place([](Tensor& x, const Step& s) { return sub_(x, s[1]); })},
      {"mul_", in_place([](Tensor& x, const Step& s) { return mul_(x, s[1]); })},
      {"div_", in_place([](Tensor& x, const Step& s) { return div_(x, s[1]); })},
      {"relu_", in_place([](Tensor& x, const Step&) { return relu_(x); })},
      {"neg_", in_place([](Tensor& x, const Step&) { return neg_(x); })},
      {"exp_", in_place([](Tensor& x, const Step&) { return exp_(x); })},
      {"clamp_", in_place([](Tensor& x, const Step& s) { return clamp_(x, s.number("low"), s.number("high")); })},
  };
}

std::map<std::string, Op> shape_ops() {
  return {
      {"view", [](const Step& s) { return view(s[0], s.list("sizes")); }},
      {"reshape", [](const Step& s) { return reshape(s[0], s.list("sizes")); }},
      {"flatten", [](const Step& s) { return flatten(s[0], s.integer("start"), s.integer("end")); }},
      {"permute", [](const Step& s) { return permute(s[0], s.list("order")); }},
      {"transpose", [](const Step& s) { return transpose(s[0], s.integer("a"), s.integer("b")); }},
      {"expand", [](const Step& s) { return expand(s[0], s.list("sizes")); }},
      {"slice",
       [](const Step& s) {
         return slice(s[0], s.integer("axis"), s.integer("start"), s.integer("end"), s.integer("step"));
       }},
      {"select", [](const Step& s) { return select(s[0], s.integer("axis"), s.integer("index")); }},
      {"unsqueeze", [](const Step& s) { return unsqueeze(s[0], s.integer("axis")); }},
      {"squeeze", [](const Step& s) { return squeeze(s[0], s.integer("axis")); }},
      {"clone", [](const Step& s) { return clone(s[0], format_named(s.text("format"))); }},
      {"contiguous", [](const Step& s) { return contiguous(s[0], format_named(s.text("format"))); }},
      {"cat", [](const Step& s) { return cat(s.all(), s.integer("axis")); }},
      {"stack", [](const Step& s) { return stack(s.all(), s.integer("axis")); }},
      {"pad", [](const Step& s) { return pad(s[0], s.list("before"), s.list("after"), s.number("value")); }},
      {"pad_mode",
       [](const Step& s) { return pad(s[0], s.list("before"), s.list("after"), mode_named(s.text("mode"))); }},
      {"index_select",
       [](const Step& s) {
         const Sizes index = s.list("index");
         return index_select(s[0], s.integer("axis"),
                             from_vector(std::vector<int64_t>(index.begin(), index.end()), {index.size()},
                                         {.dtype = DType::int64, .device = s[0].device()}));
       }},
  };
}

std::map<std::string, Op> other_ops() {
  return {
      {"sum", [](const Step& s) { return sum(s[0], s.list("axes"), {.keepdim = s.flag("keepdim")}); }},
      {"mean", [](const Step& s) { return mean(s[0], s.list("axes"), {.keepdim = s.flag("keepdim")}); }},
      {"var",
       [](const Step& s) {
         return var(s[0], s.list("axes"), {.correction = s.integer("correction"), .keepdim = s.flag("keepdim")});
       }},
      {"max", [](const Step& s) { return max(s[0], s.list("axes"), {.keepdim = s.flag("keepdim")}); }},
      {"prod", [](const Step& s) { return prod(s[0], s.list("axes"), {.keepdim = s.flag("keepdim")}); }},
      {"max_along",
       [](const Step& s) { return max_along(s[0], s.integer("axis"), {.keepdim = s.flag("keepdim")}).values; }},
      {"matmul", [](const Step& s) { return matmul(s[0], s[1]); }},
      {"linear", [](const Step& s) { return linear(s[0], s[1], s[2]); }},
      {"conv2d",
       [](const Step& s) {
         return conv2d(s[0], s[1], s[2],
                       {.stride = s.pair("stride"),
                        .padding = s.pair("padding"),
                        .dilation = s.pair("dilation"),
                        .groups = s.integer("groups")});
       }},
      {"max_pool2d", [](const Step& s) { return max_pool2d(s[0], pool_options(s)); }},
      {"avg_pool2d", [](const Step& s) { return avg_pool2d(s[0], pool_options(s)); }},
      {"adaptive_avg_pool2d", [](const Step& s) { return adaptive_avg_pool2d(s[0], s.pair("output")); }},
      {"scaled_dot_product_attention",
       [](const Step& s) {
         return scaled_dot_product_attention(s[0], s[1], s[2],
                                             {.scale = s.number("scale"), .causal = s.flag("causal"), .mask = s[3]});
       }},
      {"softmax", [](const Step& s) { return softmax(s[0], s.integer("axis")); }},
      {"log_softmax", [](const Step& s) { return log_softmax(s[0], s.integer("axis")); }},
      {"cross_entropy",
       [](const Step& s) {
         return cross_entropy(s[0], s[1],
                              {.label_smoothing = s.number("label_smoothing"),
                               .reduction = s.flag("mean") ? Reduction::mean : Reduction::none,
                               .weight = s[2].defined() ? s[2].detach() : Tensor{},
                               .ignore_index = s.integer("ignore_index", -100)});
       }},
      {"batch_norm", [](const Step& s) { return batch_norm(s[0], {}, {}, s[1], s[2]); }},
      {"layer_norm", [](const Step& s) { return layer_norm(s[0], s.list("sizes"), s[1], s[2]); }},
      {"group_norm", [](const Step& s) { return group_norm(s[0], s.integer("groups"), s[1], s[2]); }},
      {"instance_norm", [](const Step& s) { return instance_norm(s[0], s[1], s[2]); }},
      {"rms_norm", [](const Step& s) { return rms_norm(s[0], s.list("sizes"), s[1], {.eps = 1e-5}); }},
      {"local_response_norm", [](const Step& s) { return local_response_norm(s[0], s.integer("size")); }},
      {"dynamic_tanh", [](const Step& s) { return dynamic_tanh(s[0], s[1], s[2], s[3]); }},
      {"dynamic_erf", [](const Step& s) { return dynamic_erf(s[0], s[1], s[2], s[3], s[4]); }},
      {"seed_norm", [](const Step& s) { return seed_norm(s[0], s[1], s[2], s[3]); }},
      {"global_response_norm", [](const Step& s) { return global_response_norm(s[0], s[1], s[2]); }},
  };
}

const std::map<std::string, Op>& ops() {
  static const std::map<std::string, Op> all = [] {
    std::map<std::string, Op> result = pointwise_ops();
    result.merge(shape_ops());
    result.merge(other_ops());
    return result;
  }();
  return all;
}

// --- running --------------------------------------------------------------------------------------------------------

/// 1, cos(1), cos(2), … in row-major order.
Tensor weights_of(const Tensor& x) {
  std::vector<double> values(static_cast<size_t>(x.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::cos(static_cast<double>(i));
  }
  return from_vector(values, x.sizes(), {.dtype = x.dtype(), .device = x.device()});
}

void put(json& result, const std::string& name, const Tensors& gradients, const std::vector<size_t>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (gradients[i].defined()) {
      result["values"][fmt::format("{}.{}", name, inputs[i])] = list_of(gradients[i]);
    }
  }
}

/// The sum of squares of those that are on the tape; undefined if none is.
Tensor squares(const Tensors& gradients) {
  Tensor total;
  for (const Tensor& g : gradients) {
    if (g.defined() && g.requires_grad()) {
      const Tensor square = to(sum(mul(g, g)), DType::float64);
      total = total.defined() ? add(total, square) : square;
    }
  }
  return total;
}

json run(const json& program, Device device) {
  Tensors variables;
  Tensors leaves;
  std::vector<size_t> leaf_numbers;
  for (const json& input : program.at("inputs")) {
    variables.push_back(input_of(input, device));
    if (variables.back().requires_grad()) {
      leaf_numbers.push_back(variables.size() - 1);
      leaves.push_back(variables.back());
    }
  }
  for (const json& step : program.at("steps")) {
    variables.push_back(ops().at(step.at("op"))(Step(step, variables)));
  }
  json result;
  Tensor loss;
  for (const json& output : program.at("outputs")) {
    const auto number = output.get<size_t>();
    const Tensor& y = variables.at(number);
    result["values"][fmt::format("y.{}", number)] = list_of(y);
    result["strides"][fmt::format("y.{}", number)] = std::vector<int64_t>(y.strides().begin(), y.strides().end());
    const Tensor part = to(sum(mul(mul(y, add(mul(y, 0.5), 1)), weights_of(y))), DType::float64);
    loss = loss.defined() ? add(loss, part) : part;
  }
  if (!loss.requires_grad()) {
    return result;
  }
  const bool twice = program.at("order").get<int>() == 2;
  const Tensors dx = grad({loss}, leaves, {}, {.retain_graph = true, .create_graph = twice});
  put(result, "dx", dx, leaf_numbers);
  if (const Tensor second = twice ? squares(dx) : Tensor{}; second.defined()) {
    put(result, "ddx", grad({second}, leaves, {}, {.retain_graph = true}), leaf_numbers);
    put(result, "ddx_create_graph", grad({second}, leaves, {}, {.create_graph = true}), leaf_numbers);
  }
  return result;
}

}  // namespace

std::vector<double> numbers_of(const json& list) {
  std::vector<double> result;
  for (const json& number : list) {
    result.push_back(!number.is_string() ? number.get<double>()
                     : number == "nan"   ? std::nan("")
                     : number == "inf"   ? INFINITY
                                         : -INFINITY);
  }
  return result;
}

json run_program(const json& program, Device device) {
  try {
    return run(program, device);
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace norma::test
