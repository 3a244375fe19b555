#include "ops/matmul/matmul.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"
#include "core/strided_loop.h"
#include "ops/matmul/product.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <cstddef>

namespace norma {

namespace {

Sizes leading(const Sizes& sizes, int64_t dropped) {
  return Sizes(std::span<const int64_t>(sizes.begin(), static_cast<size_t>(sizes.size() - dropped)));
}

void check_arguments(const Op& op, const Tensor& a, const Tensor& b) {
  check_floating(op, "a", a);
  check_dtype(op, "b", b, a.dtype());
  check_device(op, "b", b, a.device());
  check(a.rank() >= 1, op, "a: expected rank 1 or more, got rank 0");
  check(b.rank() >= 1, op, "b: expected rank 1 or more, got rank 0");
  const int64_t rows = b.size(b.rank() == 1 ? 0 : -2);
  check(a.size(-1) == rows, op, "b: expected {} rows, as a (sizes {}) has columns, got {} (sizes {})", a.size(-1),
        a.sizes(), rows, b.sizes());
}

/// The entry of a profile.
OpWork work_of(const kernels::MatmulCase& product, Device device) {
  return {.op = "matmul",
          .implementation = std::string(kernels::matmul_kernels.table("matmul", device).choose(product).name),
          .bytes = kernels::fewest_bytes(product),
          .flops = kernels::flops(product),
          .call = product};
}

/// The product of one matrix of a and one of b.
kernels::MatmulCase make_case(const MatrixView& a, const MatrixView& b, int64_t c_row) {
  return {.dtype = a.tensor.dtype(),
          .m = a.tensor.size(-2),
          .n = b.tensor.size(-1),
          .k = a.tensor.size(-1),
          .a_row = a.row,
          .a_column = a.column,
          .b_row = b.row,
          .b_column = b.column,
          .c_row = c_row};
}

/// The product of all matrices of a batch, without the tape. `out` is contiguous.
void multiply_batch(const Tensor& a, const Tensor& b, const Sizes& batch, const Tensor& out) {
  const MatrixView left = matrix_view(a);
  const MatrixView right = matrix_view(b);
  kernels::MatmulCase product = make_case(left, right, out.size(-1));
  const StridedLoop<3> loop = make_strided_loop<3>(
      batch,
      {leading(out.strides(), 2), broadcast_strides(leading(a.sizes(), 2), leading(left.tensor.strides(), 2), batch),
       broadcast_strides(leading(b.sizes(), 2), leading(right.tensor.strides(), 2), batch)});
  product.batch = loop.sizes.back();
  product.c_batch = loop.strides[0].back();
  product.a_batch = loop.strides[1].back();
  product.b_batch = loop.strides[2].back();
  if (product.b_batch == 0 && product.a_batch == product.m * product.a_row &&
      product.c_batch == product.m * product.c_row) {
    product.m *= product.batch;  // one tall matrix
    product.batch = 1;
  }
  const auto element = static_cast<std::ptrdiff_t>(size_of(a.dtype()));
  const auto device_kernels = kernels::matmul_kernels.at("matmul", a.device());
  const kernels::MatmulImplementation& implementation = device_kernels->choose(product);
  const int64_t outer = loop.numel() / loop.sizes.back();
  for (int64_t i = 0; i < outer; ++i) {
    std::array<int64_t, 3> offsets{};
    for (int64_t axis = loop.sizes.size() - 2, rest = i; axis >= 0; --axis) {
      for (size_t n = 0; n < offsets.size(); ++n) {
        offsets[n] += rest % loop.sizes[axis] * loop.strides[n][axis];
      }
      rest /= loop.sizes[axis];
    }
    const OpScope scope([&] { return work_of(product, a.device()); });
    implementation.multiply(product, static_cast<const std::byte*>(left.tensor.device_pointer()) + offsets[1] * element,
                            static_cast<const std::byte*>(right.tensor.device_pointer()) + offsets[2] * element,
                            /* bias= */ nullptr, static_cast<std::byte*>(out.device_pointer()) + offsets[0] * element,
                            /* keep= */ nullptr);
  }
}

/// The part of x with index 0 along each of these axes of `batch`; off the tape.
Tensor first_along(const Tensor& x, const Axes& axes, const Sizes& batch) {
  Sizes sizes = x.sizes();
  const int64_t added = batch.size() + 2 - x.rank();
  for (const int64_t axis : axes) {
    if (axis >= added) {
      sizes[axis - added] = 1;
    }
  }
  return alias(x, sizes, x.strides(), x.offset());
}

/// multiply_batch() with each product computed once: if neither operand changes along an axis of the batch, the result
/// is copied along it. No library is asked for the same product twice.
void multiply_distinct(const Tensor& a, const Tensor& b, const Sizes& batch, const Tensor& out) {
  const Strides a_strides = broadcast_strides(leading(a.sizes(), 2), leading(a.strides(), 2), batch);
  const Strides b_strides = broadcast_strides(leading(b.sizes(), 2), leading(b.strides(), 2), batch);
  Axes repeated;
  Sizes distinct = batch;
  for (int64_t axis = 0; axis < batch.size(); ++axis) {
    if (batch[axis] > 1 && a_strides[axis] == 0 && b_strides[axis] == 0) {
      repeated.push_back(axis);
      distinct[axis] = 1;
    }
  }
  multiply_batch(first_along(a, repeated, batch), first_along(b, repeated, batch), distinct,
                 first_along(out, repeated, batch));
  while (!repeated.empty()) {
    const int64_t axis = repeated.back();
    repeated.erase(repeated.size() - 1);
    // Along the axes that are left, only the first products are there.
    const Tensor there = first_along(out, repeated, batch);
    copy_into(part_of(there, axis, 0, 1), part_of(there, axis, 1, batch[axis] - 1));
  }
}

/// x (…, columns) as one matrix, also when it has no elements.
Tensor as_rows(const Tensor& x) {
  const int64_t columns = x.size(-1);
  return reshape(x, {leading(x.sizes(), 1).numel(), columns});
}

/// aᵀ dy, added up over the axes that b was broadcast along.
Tensor right_gradient(const Tensor& a, const Tensor& dy, const Sizes& b_sizes) {
  if (b_sizes.size() == 2) {  // the whole batch is one sum
    return matmul(transpose(as_rows(a), 0, 1), as_rows(dy));
  }
  return sum_to_size(matmul(transpose(a, -2, -1), dy), b_sizes);
}

/// True iff an axis begins again before the one inside it has ended, as windows into a sequence do. Libraries take no
/// such strides. Axes without steps do not count.
bool interleaves(const Tensor& x) {
  Axes order;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    if (x.sizes()[axis] > 1 && x.strides()[axis] > 0) {
      order.push_back(axis);
    }
  }
  order.sort([&](int64_t a, int64_t b) { return x.strides()[a] < x.strides()[b]; });
  int64_t end = 1;
  for (const int64_t axis : order) {
    if (x.strides()[axis] < end) {
      return true;
    }
    end = x.sizes()[axis] * x.strides()[axis];
  }
  return false;
}

}  // namespace

MatrixView matrix_view(const Tensor& x) {
  const int64_t rows = x.size(-2);
  const int64_t columns = x.size(-1);
  // An axis of size 1 has any stride; give it one that kernels accept.
  const int64_t row = rows == 1 ? std::max<int64_t>(columns, 1) : x.stride(-2);
  const int64_t column = columns == 1 ? 1 : x.stride(-1);
  const int64_t down = rows == 1 ? 1 : x.stride(-2);
  if (!interleaves(x)) {
    if (column == 1 && row >= columns) {
      return {x, row, column};
    }
    if (down == 1 && x.stride(-1) >= rows) {
      return {x, down, x.stride(-1)};
    }
  }
  const Tensor copy = copy_of(x, MemoryFormat::contiguous);
  return {copy, std::max<int64_t>(columns, 1), 1};
}

void multiply_into(const MatrixView& a, const MatrixView& b, const Tensor& bias, void* c, int64_t c_row, bool keep_b) {
  const kernels::MatmulCase product = make_case(a, b, c_row);
  if (product.m == 0 || product.n == 0) {
    return;
  }
  const Device device = a.tensor.device();
  Op("matmul")
      .run(kernels::matmul_kernels, device, [&] { return work_of(product, device); })
      ->choose(product)
      .multiply(product, a.tensor.device_pointer(), b.tensor.device_pointer(), pointer_or_null(bias), c,
                keep_b ? b.tensor.storage().get() : nullptr);
}

bool multiply_act_into(const MatrixView& a, const MatrixView& b, const Tensor& bias, void* c, int64_t c_row,
                       const kernels::Epilogue& epilogue, bool keep_b) {
  const kernels::MatmulCase product = make_case(a, b, c_row);
  const Device device = a.tensor.device();
  if (kernels::matmul_kernels.table("matmul", device).choose(product).multiply_act == nullptr) {
    return false;
  }
  auto run = Op("matmul").run(kernels::matmul_kernels, device, [&] { return work_of(product, device); });
  const bool done = run->choose(product).multiply_act(product, a.tensor.device_pointer(), b.tensor.device_pointer(),
                                                      pointer_or_null(bias), c, epilogue,
                                                      keep_b ? b.tensor.storage().get() : nullptr);
  if (!done) {
    run.discard();
  }
  return done;
}

bool is_constant_weight(const Tensor& x) {
  return !grad_enabled() && x.is_leaf() && x.requires_grad();
}

namespace {

/// The product of checked operands of rank 2 or more.
Tensor product(const Op& op, const Tensor& a, const Tensor& b) {
  const Sizes batch = broadcast_sizes(op, leading(a.sizes(), 2), leading(b.sizes(), 2));
  Sizes sizes = batch;
  sizes.push_back(a.size(-2));
  sizes.push_back(b.size(-1));
  checked_numel(op, sizes);
  const Tensor out = empty(sizes, {.dtype = a.dtype(), .device = a.device()});
  if (a.size(-1) == 0) {
    zero_(out);  // an empty sum
  } else if (out.numel() > 0) {
    const NoGradGuard no_grad;
    multiply_distinct(a, b, batch, out);
  }
  // Each operand is needed for the other's gradient only.
  const Tensor a_saved = b.requires_grad() ? a : Tensor();
  const Tensor b_saved = a.requires_grad() ? b : Tensor();
  return op.record(
      {a, b}, out, {a_saved, b_saved},
      [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& context) -> Tensors {
        return {
            context.needs_grad(0) ? sum_to_size(matmul(dy, transpose(context.saved(1), -2, -1)), a_sizes) : Tensor(),
            context.needs_grad(1) ? right_gradient(context.saved(0), dy, b_sizes) : Tensor()};
      });
}

}  // namespace

Tensor matmul(const Tensor& uncast_a, const Tensor& uncast_b) {
  const Op op(named<"matmul", CastRule::lower>);
  const Tensor a = op.input("a", uncast_a);
  const Tensor b = op.like(a, uncast_b);
  check_arguments(op, a, b);
  if (a.rank() >= 2 && b.rank() >= 2) {
    return product(op, a, b);
  }
  const Tensor y = product(op, a.rank() == 1 ? unsqueeze(a, 0) : a, b.rank() == 1 ? unsqueeze(b, 1) : b);
  Sizes sizes = y.sizes();
  if (b.rank() == 1) {
    sizes.erase(sizes.size() - 1);
  }
  if (a.rank() == 1) {
    sizes.erase(sizes.size() - (b.rank() == 1 ? 1 : 2));
  }
  return view(y, sizes);
}

std::vector<std::string> matmul_implementations(Device device) {
  return kernels::matmul_kernels.at("matmul", device)->implementations().names();
}

void set_matmul_implementation(const std::string& name, Device device) {
  kernels::matmul_kernels.at("matmul", device)->implementations().force(name);
}

}  // namespace norma
