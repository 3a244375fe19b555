#include "models/residual.h"

#include "core/autocast.h"
#include "core/factory.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/module_scope.h"
#include "nn/norm/map_norms.h"
#include "ops/conv/conv.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <utility>

namespace norma::models {
namespace {

/// True iff an mlp computes x in channels_last and turns its result back. For contiguous images cuDNN transposes x and
/// the result of each 1x1 convolution, in forward and in both gradients. With the two convolutions of an mlp, that
/// makes 60 passes over x. Turning x and the result takes 8.
bool is_turned(const Tensor& x) {
  return conv2d_transposes_contiguous(x.device()) && !x.is_contiguous(MemoryFormat::channels_last);
}

/// f(x) in the format of x.
template <class F>
Tensor turned(const Tensor& x, F&& f) {
  return is_turned(x) ? contiguous(f(contiguous(x, MemoryFormat::channels_last))) : f(x);
}

/// activation(scale · (W x + b) + residual) for W of (out, in) or (out, in, 1, 1).
Tensor product_act(const Tensor& x, Tensor weight, Tensor bias, const LinearActOptions& then) {
  const int64_t out = weight.size(0);
  const int64_t in = weight.size(1);
  // channels_last pixels are the rows of a matrix; in contiguous ones a convolution keeps the format.
  if (x.suggest_memory_format() == MemoryFormat::channels_last) {
    const Tensor matrix = weight.rank() == 4 ? view(weight, {out, in}) : weight;
    const Tensor residual = then.residual.defined() ? channels_to_last(then.residual) : Tensor();
    return channels_to_second(linear_act(channels_to_last(x), matrix, bias,
                                         {.scale = then.scale, .activation = then.activation, .residual = residual}));
  }
  weight = weight.rank() == 2 ? view(weight, {out, in, 1, 1}) : weight;
  if (then.scale.defined()) {  // scale · (W x + b) = (scale · W) x + scale · b
    weight = mul(weight, view(then.scale, {-1, 1, 1, 1}));
    bias = bias.defined() ? mul(bias, then.scale) : bias;
  }
  return conv2d_act(x, weight, bias, {}, {.activation = then.activation, .residual = then.residual});
}

}  // namespace

Tensor channels_to_last(const Tensor& x) {
  return permute(x, {0, 2, 3, 1});
}

Tensor channels_to_second(const Tensor& x) {
  return permute(x, {0, 3, 1, 2});
}

Tensor scaled(const Tensor& x, const Tensor& scale) {
  return scale.defined() ? mul(x, view(scale, {-1, 1, 1})) : x;
}

Pointwise::Pointwise(int64_t in, int64_t out, const PointwiseOptions& options) {
  weight_ = register_parameter("weight", zeros(options.conv ? Sizes{out, in, 1, 1} : Sizes{out, in}));
  bias_ = register_parameter("bias", options.bias ? zeros({out}) : Tensor());
  if (options.generator != nullptr) {
    nn::trunc_normal_(weight_, kInitDeviation, *options.generator);
  }
}

Tensor Pointwise::forward_act(const Tensor& x, const LinearActOptions& then) {
  nn::ModuleScope scope(*this, x);
  return scope.leave(product_act(x, weight_, bias_, then));
}

Tensor Pointwise::part(const Tensor& x, int64_t start, int64_t count) {
  nn::ModuleScope scope(*this, x);
  const Tensor bias = bias_.defined() ? narrow(bias_, 0, start, count) : Tensor();
  return scope.leave(product_act(x, narrow(weight_, 0, start, count), bias, {}));
}

std::string Pointwise::name() const {
  return fmt::format("Pointwise({}, {})", weight_.size(1), weight_.size(0));
}

void Branch::register_last(const std::string& name, std::shared_ptr<Pointwise> last) {
  last_ = register_module(name, std::move(last));
}

Tensor Branch::forward(const Tensor& x) {
  return turned(x, [&](const Tensor& y) { return (*last_)(hidden(y)); });
}

Tensor Branch::forward_act(const Tensor& x, const Tensor& scale, const Tensor& residual) {
  const bool hooked = last_->has_forward_hooks();
  if (!hooked && !is_turned(x)) {
    return last_->forward_act(hidden(x), {.scale = scale, .residual = residual});
  }
  const Tensor branch = turned(x, [&](const Tensor& y) {
    return hooked ? scaled((*last_)(hidden(y)), scale) : last_->forward_act(hidden(y), {.scale = scale});
  });
  return residual.defined() ? add(residual, branch) : branch;
}

Mlp::Mlp(int64_t channels, const MlpOptions& options) {
  const int64_t hidden = options.ratio * channels;
  fc1_ = register_module("fc1", std::make_shared<Pointwise>(channels, hidden, options.layers));
  act_ = register_module("act", std::make_shared<nn::GELU>());
  if (options.grn) {
    grn_ = register_module("grn", std::make_shared<nn::GlobalResponseNorm>(hidden));
  }
  register_last("fc2", std::make_shared<Pointwise>(hidden, channels, options.layers));
}

Tensor Mlp::hidden(const Tensor& x) {
  const bool seen_between = fc1_->has_forward_hooks() || act_->has_forward_hooks();
  const Tensor y = seen_between ? (*act_)((*fc1_)(x)) : fc1_->forward_act(x, {.activation = Activation::gelu});
  return grn_ ? (*grn_)(y) : y;
}

Tensor ResidualSum::plus(const Tensor& x, const Tensor& branch) const {
  const Tensor y = scaled(branch, scale);
  return add(x, drop_path != nullptr ? (*drop_path)(y) : y);
}

Tensor ResidualSum::plus(const Tensor& x, Branch& branch, const Tensor& y) const {
  if (branch.has_forward_hooks()) {
    return plus(x, branch(y));
  }
  // Under autocast x has another dtype than the product.
  const bool drops = drop_path != nullptr && (drop_path->is_training() || drop_path->has_forward_hooks());
  if (!drops && !autocast_enabled()) {
    return branch.forward_act(y, scale, x);
  }
  const Tensor product = branch.forward_act(y, scale, {});
  return add(x, drop_path != nullptr ? (*drop_path)(product) : product);
}

double drop_path_rate(double last, int64_t block, int64_t blocks) {
  return last * static_cast<double>(block) / static_cast<double>(blocks - 1);
}

}  // namespace norma::models
