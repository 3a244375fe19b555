#include "lab/telemetry/sharpness.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "base/not_copied.h"
#include "core/allocator.h"
#include "core/autocast.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/random.h"
#include "core/tape.h"
#include "core/tf32.h"
#include "lab/telemetry/visit_tape.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "session/interrupt.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <new>
#include <utility>

namespace norma::lab {

namespace {

using Clock = std::chrono::steady_clock;

/// A vector with a part for each parameter.
using Parts = Tensors;

double total_of(const Tensor& x) {
  return sum(x).to_vector<double>().front();
}

double norm_of(const Parts& v) {
  return std::sqrt(total_of(sums_of_squares(v, v.front().device())));
}

double dot(const Parts& a, const Parts& b) {
  Tensor total;
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor part = to(sum(mul(a[i], b[i])), DType::float64);
    total = total.defined() ? add(total, part) : part;
  }
  return total_of(total);
}

/// Lets each op of a tape find out if its gradient is recorded. The gradient of every op is linear in the gradient that
/// comes in, so it requires a gradient if that does.
void watch(const Tensor& loss) {
  visit_tape({loss}, [](const Tape& tape) {
    for (const std::shared_ptr<Node>& node : tape.nodes()) {
      if (node->is_part()) {  // its part of the tape is watched when it is there
        continue;
      }
      node->backward = [name = node->name, inner = std::move(node->backward)](const Tensors& gradients,
                                                                              const BackwardContext& context) {
        bool recorded = false;
        for (const Tensor& gradient : gradients) {
          recorded = recorded || (gradient.defined() && gradient.requires_grad());
        }
        Tensors results = inner(gradients, context);
        for (const Tensor& result : results) {
          check(!recorded || !context.create_graph() || !result.defined() || result.requires_grad(), name,
                "backward: expected a gradient made by ops that are recorded, got one without a second derivative");
        }
        return results;
      };
    }
  });
}

/// The products of the Hessian of a loss with vectors.
class Hessian {
 public:
  Hessian(const Tensors& parameters, const std::function<Tensor()>& loss) : parameters_(parameters) {
    for (const Tensor& x : parameters) {
      check(x.dtype() == DType::float32 || x.dtype() == DType::float64, "sharpness",
            "parameters: expected float32 or float64, as with the amp precisions, got {}", to_string(x.dtype()));
    }
    const GradModeGuard on(true);
    const Tensor value = loss();
    watch(value);
    for (Tensor& gradient : grad({value}, parameters, {}, {.create_graph = true})) {
      const bool varies = gradient.defined() && gradient.requires_grad();
      gradients_.push_back(varies ? std::move(gradient) : Tensor());
    }
  }

  Parts times(const Parts& v) {
    ++products_;
    Tensors roots;
    Tensors starts;
    for (size_t i = 0; i < gradients_.size(); ++i) {
      if (gradients_[i].defined()) {
        roots.push_back(gradients_[i]);
        starts.push_back(v[i]);
      }
    }
    Parts product =
        roots.empty() ? Parts(parameters_.size()) : grad(roots, parameters_, starts, {.retain_graph = true});
    for (size_t i = 0; i < product.size(); ++i) {
      if (!product[i].defined()) {
        product[i] = zeros_like(v[i]);
      }
    }
    return product;
  }

  [[nodiscard]] int64_t products() const { return products_; }

 private:
  const Tensors& parameters_;
  Tensors gradients_;
  int64_t products_ = 0;
};

/// Of H + shift · I.
struct Estimate {
  double eigenvalue = 0;  ///< of H
  double change = 0;
};

Estimate iterate(Hessian& hessian, Parts v, double shift, const PowerIteration& options) {
  constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();
  Estimate found{.eigenvalue = kNotKnown, .change = kNotKnown};
  double length = norm_of(v);
  for (int64_t i = 0; i < options.most_products; ++i) {
    check(!train::interrupted(), "sharpness", "a signal ended it");
    for (Tensor& part : v) {
      part = div(part, length);
    }
    Parts product = hessian.times(v);
    const double eigenvalue = dot(v, product);
    found.change = std::abs(eigenvalue - found.eigenvalue) / std::abs(eigenvalue);
    found.eigenvalue = eigenvalue;
    if (shift != 0) {
      for (size_t part = 0; part < v.size(); ++part) {
        product[part] = add(product[part], mul(v[part], shift));
      }
    }
    length = norm_of(product);
    if (length == 0) {  // v is an eigenvector: of a random vector, only where all are
      return {.eigenvalue = eigenvalue, .change = 0};
    }
    if (!std::isfinite(length) || found.change <= options.tolerance) {
      break;
    }
    v = std::move(product);
  }
  return found;
}

Parts start_vector(const Tensors& parameters) {
  Generator random(/* seed= */ 0);
  Parts v;
  for (const Tensor& x : parameters) {
    Tensor part = empty_like(x);
    copy_into(randn(x.sizes(), {.dtype = x.dtype(), .device = x.device()}, random), part);
    v.push_back(part);
  }
  return v;
}

/// Keeps the buffers of a network and the default generator, and restores them at the end of the scope.
class Kept : NotCopied {
 public:
  explicit Kept(const nn::Module& model) {
    for (const auto& [name, x] : model.named_buffers()) {
      buffers_.push_back(x.detach());
      Tensor copy = empty_like(x);
      copy_into(x.detach(), copy);
      copies_.push_back(copy);
    }
  }
  ~Kept() {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      copy_into(copies_[i], buffers_[i]);
    }
    default_generator() = random_;
  }

 private:
  Tensors buffers_;
  Tensors copies_;
  Generator random_ = default_generator();
};

}  // namespace

Sharpness largest_eigenvalue(const Tensors& parameters, const std::function<Tensor()>& loss,
                             const PowerIteration& options) {
  check(!parameters.empty(), "sharpness", "parameters: expected at least one, got none");
  const Clock::time_point start = Clock::now();
  const Tf32Guard exact(false);
  const AutocastOff no_autocast;
  Hessian hessian(parameters, loss);
  const NoGradGuard no_grad;
  Estimate found = iterate(hessian, start_vector(parameters), /* shift= */ 0, options);
  if (found.eigenvalue < 0) {
    found = iterate(hessian, start_vector(parameters), -found.eigenvalue, options);
  }
  return {.value = found.eigenvalue,
          .change = found.change,
          .products = hessian.products(),
          .seconds = std::chrono::duration<double>(Clock::now() - start).count()};
}

Sharpness sharpness_of(const nn::Module& model, const std::function<Tensor()>& loss, const PowerIteration& options) {
  Sharpness found;
  const Device device = model.device();
  const auto start = Clock::now();
  {
    const Kept kept(model);
    const Tensors parameters = filtered(model.parameters(), &Tensor::requires_grad);
    try {
      found = largest_eigenvalue(parameters, loss, options);
      check(std::isfinite(found.value), "sharpness", "expected a finite loss and Hessian, got {}", found.value);
    } catch (const OutOfMemory& error) {
      found.problem = fmt::format("sharpness: {}", error.what());
    } catch (const std::bad_alloc&) {
      found.problem = "sharpness: the system has no memory left";
    } catch (const Error& error) {
      found.problem = plain_text(error.what());
    }
  }
  if (!found.problem.empty()) {  // what was tried took its time, too
    found.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  // Its peak is not the training's.
  Allocator& memory = allocator(device);
  memory.empty_cache();
  memory.reset_peak();
  return found;
}

}  // namespace norma::lab
