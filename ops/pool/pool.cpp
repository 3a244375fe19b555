#include "ops/pool/pool.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"
#include "ops/pool/kernels.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

namespace norma {

kernels::PoolAxis::PoolAxis(const PoolWindows& of) : formula(of) {
  for (int64_t i = 0; i < of.count; ++i) {
    windows.push_back(of.window(i));
  }
  for (int64_t position = 0; position < of.size; ++position) {
    holders.push_back(of.holders(position));
  }
}

namespace {

using kernels::PoolAxis;
using kernels::PoolCase;
using kernels::PoolWindow;
using kernels::PoolWindows;

/// The limit of an axis of an image or result: kernels count pixels in int32, and products of two such numbers fit.
constexpr int64_t kMaxPixels = std::numeric_limits<int32_t>::max();

/// The numbers that forward and backward need besides the values.
struct Geometry {
  PoolAxis rows, columns;
  int64_t divisor = 0;  ///< of averages; 0: the positions of each window
  Sizes x_sizes;
  MemoryFormat format;
  DType dtype;

  [[nodiscard]] Sizes y_sizes() const {
    return {x_sizes[0], x_sizes[1], static_cast<int64_t>(rows.windows.size()),
            static_cast<int64_t>(columns.windows.size())};
  }
  [[nodiscard]] PoolCase plain() const {
    const bool lanes = format == MemoryFormat::channels_last;
    return {.dtype = dtype,
            .images = lanes ? x_sizes[0] : x_sizes[0] * x_sizes[1],
            .lanes = lanes ? x_sizes[1] : 1,
            .h = x_sizes[2],
            .w = x_sizes[3],
            .rows = &rows,
            .columns = &columns,
            .divisor = divisor};
  }
};
using SharedGeometry = std::shared_ptr<const Geometry>;

void check_input(std::string_view op, const Tensor& x) {
  check_floating(op, "x", x);
  check_rank(op, "x", x, 4);
  check_available(op, x.device());
  check(x.size(1) > 0 && x.size(2) > 0 && x.size(3) > 0, op, "x: expected no size of 0 behind the first, got sizes {}",
        x.sizes());
  check(x.size(2) <= kMaxPixels && x.size(3) <= kMaxPixels, op, "x: expected at most {} rows and columns, got sizes {}",
        kMaxPixels, x.sizes());
}

int64_t floor_divide(int64_t a, int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

int64_t divide_up(int64_t a, int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}

/// The span of a dilated kernel.
int64_t spanned(std::string_view op, int64_t kernel, int64_t dilation) {
  return checked_add(op, "dilation", checked_mul(op, "dilation", kernel - 1, dilation), 1);
}

/// The windows of a kernel with span, stride > 0, padding and dilation along one axis.
PoolWindows sliding_windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                            const Pool2dOptions& options) {
  const int64_t span = size + 2 * padding - kernel;  // from the first window's begin to the last one's
  int64_t count = floor_divide(span, stride) + 1;
  if (options.ceil_mode && span % stride != 0) {
    ++count;
  }
  if (options.ceil_mode && count - 1 >= divide_up(size + padding, stride)) {
    --count;  // the last window would begin after the image
  }
  return {.size = size,
          .count = count,
          .span = kernel,
          .stride = stride,
          .padding = padding,
          .dilation = dilation,
          .count_padding = options.count_include_pad};
}

bool is_inside(const PoolWindow& window) {
  return window.first() < window.end;
}

SharedGeometry sliding_geometry(std::string_view op, const Tensor& x, const Pool2dOptions& options) {
  check_input(op, x);
  const Pair& kernel = options.kernel;
  const Pair& padding = options.padding;
  check(kernel.h >= 1 && kernel.w >= 1, op, "kernel: expected values of at least 1, got {}", to_string(kernel));
  check(options.stride.h >= 0 && options.stride.w >= 0, op,
        "stride: expected values of at least 1, or 0 for the kernel's, got {}", to_string(options.stride));
  check(padding.h >= 0 && padding.w >= 0 && padding.h <= kernel.h / 2 && padding.w <= kernel.w / 2, op,
        "padding: expected values from 0 to half the kernel {}, got {}", to_string(kernel), to_string(padding));
  const Pair stride(options.stride.h == 0 ? kernel.h : options.stride.h,
                    options.stride.w == 0 ? kernel.w : options.stride.w);
  const Pair padded(checked_add(op, "padding", x.size(2), 2 * padding.h),
                    checked_add(op, "padding", x.size(3), 2 * padding.w));
  const Pair& dilation = options.dilation;
  check(dilation.h >= 1 && dilation.w >= 1, op, "dilation: expected values of at least 1, got {}", to_string(dilation));
  const Pair span(spanned(op, kernel.h, dilation.h), spanned(op, kernel.w, dilation.w));
  const PoolWindows of_rows = sliding_windows(x.size(2), span.h, stride.h, padding.h, dilation.h, options);
  const PoolWindows of_columns = sliding_windows(x.size(3), span.w, stride.w, padding.w, dilation.w, options);
  check(of_rows.count > 0 && of_columns.count > 0, op,
        "kernel: expected to span no more than the padded input {}, got {}", to_string(padded), to_string(span));
  PoolAxis rows(of_rows);
  PoolAxis columns(of_columns);
  const auto all_inside = [](const PoolAxis& axis) {
    return std::all_of(axis.windows.begin(), axis.windows.end(), is_inside);
  };
  check(all_inside(rows) && all_inside(columns), op,
        "dilation: expected a position inside the image for every window, got {} for sizes {}", to_string(dilation),
        x.sizes());
  return std::make_shared<const Geometry>(Geometry{.rows = std::move(rows),
                                                   .columns = std::move(columns),
                                                   .divisor = options.divisor_override,
                                                   .x_sizes = x.sizes(),
                                                   .format = x.suggest_memory_format(),
                                                   .dtype = x.dtype()});
}

Tensor empty_for(const Geometry& geometry, const Sizes& sizes, DType dtype, Device device) {
  return empty(sizes, {.dtype = dtype, .device = device, .format = geometry.format});
}

// Pooling is linear once the maxima are known, so that a function below and the same with `gradient` are each other's
// gradients.

/// The values of x that the index points to; `gradient`: brings each x to where it points.
Tensor max_pool_pick(const Tensor& x, const Tensor& index, const SharedGeometry& geometry, bool gradient) {
  const Op op(gradient ? "max_pool2d_gradient" : "max_pool2d_pick");
  const Tensor x_read = contiguous_copy(x, geometry->format);
  const Tensor y = empty_for(*geometry, gradient ? geometry->x_sizes : geometry->y_sizes(), x.dtype(), x.device());
  {
    const auto run = op.run(kernels::pool_kernels, x_read, index, y);
    (gradient ? run->max_pool_gradient : run->max_pool_pick)(geometry->plain(), x_read.device_pointer(),
                                                             index.device_pointer<int32_t>(), y.device_pointer());
  }
  return op.record({x}, y, {index}, [geometry, gradient](const Tensor& dy, const BackwardContext& context) -> Tensors {
    return {max_pool_pick(dy, context.saved(0), geometry, !gradient)};
  });
}

Tensor average_pool(const Op& op, const Tensor& x, const SharedGeometry& geometry, bool gradient = false) {
  const Tensor x_read = contiguous_copy(x, geometry->format);
  const Tensor y = empty_for(*geometry, gradient ? geometry->x_sizes : geometry->y_sizes(), x.dtype(), x.device());
  {
    const auto run = op.run(kernels::pool_kernels, x_read, y);
    (gradient ? run->average_pool_gradient : run->average_pool)(geometry->plain(), x_read.device_pointer(),
                                                                y.device_pointer());
  }
  return op.record({x}, y, {}, [geometry, gradient](const Tensor& dy, const BackwardContext&) -> Tensors {
    return {average_pool(Op(gradient ? "avg_pool2d" : "avg_pool2d_gradient"), dy, geometry, !gradient)};
  });
}

void describe(Op& op, const Pool2dOptions& options) {
  const Pair& stride = options.stride;
  const Sizes kernel{options.kernel.h, options.kernel.w};
  op.describe({{"kernel", kernel},
               {"stride", Sizes{stride.h == 0 ? kernel[0] : stride.h, stride.w == 0 ? kernel[1] : stride.w}},
               {"padding", Sizes{options.padding.h, options.padding.w}},
               {"dilation", Sizes{options.dilation.h, options.dilation.w}},
               {"ceil_mode", options.ceil_mode},
               {"count_include_pad", options.count_include_pad},
               {"divisor_override", options.divisor_override}});
}

}  // namespace

Tensor max_pool2d(const Tensor& input, const Pool2dOptions& options) {
  Op op(named<"max_pool2d">);
  const Tensor x = op.input("x", input);
  const SharedGeometry geometry = sliding_geometry(op, x, options);
  check(options.divisor_override == 0, op, "divisor_override: expected 0, as a maximum divides nothing, got {}",
        options.divisor_override);
  check(x.size(2) * x.size(3) <= kMaxPixels, op, "x: expected at most {} pixels in an image, got sizes {}", kMaxPixels,
        x.sizes());
  const Tensor x_read = contiguous_copy(x, geometry->format);
  const Tensor y = empty_for(*geometry, geometry->y_sizes(), x.dtype(), x.device());
  const Tensor index = empty_for(*geometry, geometry->y_sizes(), DType::int32, x.device());
  op.run(kernels::pool_kernels, x_read, y, index)
      ->max_pool(geometry->plain(), x_read.device_pointer(), y.device_pointer(), index.device_pointer<int32_t>());
  describe(op, options);
  return op.record({x}, y, {index}, [geometry](const Tensor& dy, const BackwardContext& context) -> Tensors {
    return {max_pool_pick(dy, context.saved(0), geometry, /* gradient= */ true)};
  });
}

Tensor avg_pool2d(const Tensor& input, const Pool2dOptions& options) {
  Op op(named<"avg_pool2d">);
  const Tensor x = op.input("x", input);
  check(options.dilation.h == 1 && options.dilation.w == 1, op,
        "dilation: expected 1, which is all that an average has, got {}", to_string(options.dilation));
  const SharedGeometry geometry = sliding_geometry(op, x, options);
  describe(op, options);
  return average_pool(op, x, geometry);
}

Tensor adaptive_avg_pool2d(const Tensor& input, const Pair& output) {
  Op op(named<"adaptive_avg_pool2d">);
  const Tensor x = op.input("x", input);
  check_input(op, x);
  check(output.h >= 1 && output.w >= 1, op, "output: expected values of at least 1, got {}", to_string(output));
  check(output.h <= kMaxPixels && output.w <= kMaxPixels, op, "output: expected values of at most {}, got {}",
        kMaxPixels, to_string(output));
  op.describe({{"output", Sizes{output.h, output.w}}});
  return average_pool(
      op, x,
      std::make_shared<const Geometry>(Geometry{.rows = PoolAxis({.size = x.size(2), .count = output.h}),
                                                .columns = PoolAxis({.size = x.size(3), .count = output.w}),
                                                .x_sizes = x.sizes(),
                                                .format = x.suggest_memory_format(),
                                                .dtype = x.dtype()}));
}

}  // namespace norma
