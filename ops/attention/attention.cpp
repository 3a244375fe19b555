#include "ops/attention/attention.h"

#include "core/anomaly.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/kernels.h"
#include "core/op.h"
#include "core/strided_loop.h"
#include "ops/attention/kernels.h"
#include "ops/attention/reference.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/product.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>

namespace norma {

namespace {

constexpr std::string_view kOp = named<"scaled_dot_product_attention", CastRule::lower>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Sizes of the products q kᵀ.
Sizes score_sizes(const Tensor& q, const Tensor& k) {
  return {q.size(0), q.size(1), q.size(2), k.size(2)};
}

/// True where a query sees a key: keys 0 … i for query i. bool (L, S).
Tensor causal_mask(int64_t queries, int64_t keys, Device device) {
  return less_equal(unsqueeze(arange(keys, DType::int64, device), 0),
                    unsqueeze(arange(queries, DType::int64, device), 1));
}

void check_mask(const Tensor& mask, const Tensor& q, const Tensor& k) {
  check_device(kOp, "mask", mask, q.device());
  check(mask.dtype() == DType::boolean || mask.dtype() == q.dtype(), kOp, "mask: expected dtype bool or {}, got {}",
        to_string(q.dtype()), to_string(mask.dtype()));
  const Sizes target = score_sizes(q, k);
  bool fits = mask.rank() <= target.size();
  for (int64_t axis = 1; fits && axis <= mask.rank(); ++axis) {
    fits = mask.size(-axis) == 1 || mask.size(-axis) == target[target.size() - axis];
  }
  check(fits, kOp, "mask: expected sizes that broadcast to {}, got {}", target, mask.sizes());
}

void check_arguments(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                     const AttentionOptions& options) {
  check_rank(kOp, "q", q, 4);
  check_rank(kOp, "k", k, 4);
  check_rank(kOp, "v", v, 4);
  check_floating(kOp, "q", q);
  check(q.size(3) > 0, kOp, "q: expected at least one feature, got sizes {}", q.sizes());
  check_like(kOp, "k", k, {q.size(0), q.size(1), k.size(2), q.size(3)}, q);
  check_like(kOp, "v", v, {q.size(0), q.size(1), k.size(2), v.size(3)}, q);
  check(!options.scale || std::isfinite(*options.scale), kOp, "scale: expected a finite number, got {}",
        options.scale.value_or(0));
  if (mask.defined()) {
    check(!options.causal, kOp, "mask: expected none with causal, got sizes {}", mask.sizes());
    check_mask(mask, q, k);
  }
}

/// Attention in differentiable ops, for second derivatives.
Tensor composed(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool causal, double scale) {
  const AttentionScores scores = attention_scores(q, k, mask, causal, scale);
  Tensor p = softmax(scores.z, -1);
  if (scores.seen.defined()) {  // a row that sees no key gets finite probabilities, which become 0
    p = where(scores.seen, p, zeros({}, {.dtype = p.dtype(), .device = p.device()}));
  }
  return to(matmul(p, to(v, p.dtype())), q.dtype());
}

// --- by tiles -------------------------------------------------------------------------------------------------------

/// Uninitialized memory in the order (N, L, heads, features) as a tensor (N, heads, L, features).
Tensor empty_tokens(const Sizes& sizes, const TensorOptions& options) {
  if (sizes.numel() == 0) {
    return empty(sizes, options);
  }
  const int64_t token = sizes[1] * sizes[3];
  return empty_strided(sizes, {sizes[2] * token, sizes[3], token, 1}, options);
}

/// x in `dtype`. The conversion is a part of this op, so that no profile shows a copy.
Tensor widened(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) {
    return x;
  }
  const Tensor wide = empty(x.sizes(), {.dtype = dtype, .device = x.device()});
  if (wide.numel() > 0) {
    kernels::tensor_kernels.at(kOp, x.device())
        ->copy(make_strided_loop<2>(x.sizes(), {wide.strides(), x.strides()}), dtype, wide.device_pointer(), x.dtype(),
               x.device_pointer());
  }
  return wide;
}

/// A tensor (N, heads, rows, columns) by its strides, in elements.
struct HeadsView {
  Tensor tensor;
  int64_t image = 0, head = 0, row = 0, column = 0;

  /// q, k, v or dy in `dtype`: copied if libraries cannot read it as it lies.
  static HeadsView of(const Tensor& x, DType dtype) {
    const MatrixView view = matrix_view(widened(x, dtype));
    return {view.tensor, view.tensor.stride(0), view.tensor.stride(1), view.row, view.column};
  }
  /// A tensor whose last axis is innermost, or none.
  static HeadsView plain(const Tensor& x) {
    return x.defined() ? HeadsView{x, x.stride(0), x.stride(1), x.stride(2), 1} : HeadsView{};
  }
};

/// A matrix for each head of a task.
struct Matrices {
  void* memory;
  int64_t batch, row, column;  ///< strides; `batch` from head to head

  [[nodiscard]] Matrices transposed() const { return {memory, batch, column, row}; }
};

/// The dtype that the device's library multiplies q, k and v in: their own, or float32 where it would convert numbers
/// of 16 bits for each product anew.
DType product_dtype(const Tensor& q) {
  constexpr int64_t kSome = 64;
  kernels::MatmulCase product = kernels::dense_product(q.dtype(), kSome, kSome, kSome);
  product.wide = true;
  const bool converts = kernels::matmul_kernels.at(kOp, q.device())->choose(product).converts;
  return converts ? compute_dtype(q.dtype()) : q.dtype();
}

/// Attention as tiles of scores: some queries and all keys of one head, or of several heads where a library multiplies
/// many matrices in one call. The shape alone decides the tiles, and with them the bits.
class AttentionTiles {
 public:
  /// `product`: product_dtype(q)
  AttentionTiles(DType product, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                 const Tensor& stats, const AttentionBackward& kept)
      : device_(q.device()),
        factor_dtype_(product),
        dtype_(compute_dtype(q.dtype())),
        images_(q.size(0)),
        heads_(q.size(1)),
        queries_(q.size(2)),
        keys_(k.size(2)),
        features_(q.size(3)),
        values_(v.size(3)),
        causal_(kept.causal),
        scale_(kept.scale),
        q_(HeadsView::of(q, factor_dtype_)),
        k_(HeadsView::of(k, factor_dtype_)),
        v_(HeadsView::of(v, factor_dtype_)),
        mask_(HeadsView::plain(mask_rows(mask))),
        stats_(HeadsView::plain(stats)),
        along_images_(images_ > heads_) {
    constexpr int64_t kLine = 16;     // elements of a cache line of float32
    constexpr int64_t kRows = 64;     // of a head, before a tile gets another head
    constexpr int64_t kTasks = 16;    // keep the threads busy
    constexpr int64_t kFewRows = 32;  // a library packs the keys for each tile
    row_ = (keys_ + kLine - 1) / kLine * kLine;
    const int64_t tile_bytes = kernels::attention_kernels.at(kOp, device_)->tile_bytes();  // of this device
    const bool batched = kernels::attention_kernels.table(kOp, device_).batched;
    const int64_t rows = std::max<int64_t>(tile_bytes / (row_ * bytes(dtype_)), 1);
    const bool repeats = batch_stride(q_) == 0 || batch_stride(k_) == 0 || batch_stride(v_) == 0;
    if (batched && !repeats) {
      batch_ = std::clamp<int64_t>(rows / std::min(kRows, queries_), 1, along_images_ ? images_ : heads_);
    }
    rows_ = std::clamp<int64_t>(rows / batch_, std::min(kFewRows, queries_), queries_);
    if (!batched) {
      const int64_t parts = (kTasks + images_ * heads_ - 1) / (images_ * heads_);
      rows_ = std::min(rows_, std::max((queries_ + parts - 1) / parts, kFewRows));
    }
  }

  /// y is of the products' dtype.
  void forward(const Tensor& y) const {
    const HeadsView out = HeadsView::plain(y);
    const int64_t parts = (queries_ + rows_ - 1) / rows_;
    for_each_task(groups() * parts, score_bytes() + factor_bytes(), [&](int64_t number, std::byte* scratch) {
      const Task task = task_of(number / parts, number % parts);
      const Matrices scores = scores_in(scratch, task);
      const Matrices p = scores_in(place_of_factor(scratch, 0, /* of= */ 1), task);
      multiply(task, task.rows, task.keys, features_, of_queries(task, q_), of_keys(task, k_).transposed(), scores);
      kernels::attention_kernels.at(kOp, device_)->softmax(tile_of(task), scores.memory, p.memory);
      multiply(task, task.rows, values_, task.keys, p, of_keys(task, v_), of_queries(task, out), /* wide= */ false);
    });
  }

  /// Gradients that are undefined are not computed. They are of compute_dtype(). dmask has no gaps.
  void backward(const Tensor& dy, const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dmask) const {
    const HeadsView of_y = HeadsView::of(dy, factor_dtype_);
    const HeadsView to_q = HeadsView::plain(dq);
    const HeadsView to_k = HeadsView::plain(dk);
    const HeadsView to_v = HeadsView::plain(dv);
    const HeadsView to_mask = HeadsView::plain(dmask);
    for (const Tensor& x : {dk, dv}) {
      if (x.defined() && causal_ && queries_ < keys_) {
        zero_(x);  // no query sees the last keys
      }
    }
    const int64_t parts = (queries_ + rows_ - 1) / rows_;
    const int64_t sums = parts == 1 ? 0 : batch_ * keys_ * std::max(features_, values_);
    const int64_t tiles_bytes = 2 * (score_bytes() + factor_bytes());
    for_each_task(groups(), tiles_bytes + sums * bytes(dtype_), [&](int64_t group, std::byte* scratch) {
      std::byte* const sum = scratch + tiles_bytes;
      for (int64_t part = parts - 1; part >= 0; --part) {  // the last queries see the most keys
        const Task task = task_of(group, part);
        const Matrices scores = scores_in(scratch, task);
        const Matrices dscores = scores_in(scratch + score_bytes(), task);
        const Matrices p = scores_in(place_of_factor(scratch, 0, /* of= */ 2), task);
        const Matrices dz = scores_in(place_of_factor(scratch, 1, /* of= */ 2), task);
        const Matrices dy_rows = of_queries(task, of_y);
        const Matrices q_rows = of_queries(task, q_);
        multiply(task, task.rows, task.keys, features_, q_rows, of_keys(task, k_).transposed(), scores);
        multiply(task, task.rows, task.keys, values_, dy_rows, of_keys(task, v_).transposed(), dscores);
        const Matrices mask_rows = of_queries(task, to_mask);
        kernels::attention_kernels.at(kOp, device_)
            ->softmax_backward(tile_of(task), scores.memory, dscores.memory, p.memory, dz.memory, mask_rows.memory,
                               mask_rows.batch);
        if (dq.defined()) {
          multiply(task, task.rows, features_, task.keys, dz, of_keys(task, k_), of_queries(task, to_q));
        }
        if (dk.defined()) {
          add_product(task, features_, dz.transposed(), q_rows, of_keys(task, to_k), part + 1 < parts ? sum : nullptr);
        }
        if (dv.defined()) {
          add_product(task, values_, p.transposed(), dy_rows, of_keys(task, to_v), part + 1 < parts ? sum : nullptr);
        }
      }
    });
  }

 private:
  /// `rows` queries of `count` heads, which see `keys` keys.
  struct Task {
    int64_t image, head, count;
    int64_t first, rows, keys;
  };

  [[nodiscard]] static int64_t bytes(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }
  /// Bytes of a tile of scores, and of as many factors of products; 0: these are in the scores' place.
  [[nodiscard]] int64_t score_bytes() const { return rows_ * batch_ * row_ * bytes(dtype_); }
  [[nodiscard]] int64_t factor_bytes() const {
    return factor_dtype_ == dtype_ ? 0 : rows_ * batch_ * row_ * bytes(factor_dtype_);
  }

  /// Where tile `number` of factors lies in scratch memory that begins with `of` tiles of scores.
  [[nodiscard]] std::byte* place_of_factor(std::byte* scratch, int64_t number, int64_t of) const {
    return scratch + (factor_bytes() == 0 ? number * score_bytes() : of * score_bytes() + number * factor_bytes());
  }

  /// The mask's numbers as (N, heads, L, S), with adjacent keys; undefined if there is none.
  [[nodiscard]] Tensor mask_rows(const Tensor& mask) const {
    if (!mask.defined()) {
      return {};
    }
    const AnomalyPause pause;  // -infinity hides a key
    const TensorOptions options{.dtype = dtype_, .device = device_};
    Tensor rows = mask.dtype() == DType::boolean ? where(mask, zeros({}, options), full({}, -kInfinity, options))
                                                 : widened(mask.detach(), dtype_);
    while (rows.rank() < 4) {
      rows = unsqueeze(rows, 0);
    }
    if (rows.size(3) != keys_ || (rows.stride(3) != 1 && keys_ > 1)) {
      rows = copy_of(expand(rows, {rows.size(0), rows.size(1), rows.size(2), keys_}), MemoryFormat::contiguous);
    }
    return expand(rows, {images_, heads_, queries_, keys_});
  }

  [[nodiscard]] int64_t batch_stride(const HeadsView& x) const { return along_images_ ? x.image : x.head; }

  /// Heads that share their tasks are a group: `batch_` neighbours along the longer of the axes N and heads.
  [[nodiscard]] int64_t groups_of_axis() const { return ((along_images_ ? images_ : heads_) + batch_ - 1) / batch_; }
  [[nodiscard]] int64_t groups() const { return groups_of_axis() * (along_images_ ? heads_ : images_); }

  [[nodiscard]] Task task_of(int64_t group, int64_t part) const {
    const int64_t across = group / groups_of_axis();
    const int64_t along = group % groups_of_axis() * batch_;
    const int64_t first = part * rows_;
    const int64_t end = std::min(first + rows_, queries_);
    // A library keeps a plan for each size. Kernels write zeros where a query does not see one of the task's keys.
    constexpr int64_t kSizes = 32;
    const int64_t step = (keys_ + kSizes - 1) / kSizes;
    return {.image = along_images_ ? along : across,
            .head = along_images_ ? across : along,
            .count = std::min(batch_, (along_images_ ? images_ : heads_) - along),
            .first = first,
            .rows = end - first,
            .keys = causal_ ? std::min((end + step - 1) / step * step, keys_) : keys_};
  }

  [[nodiscard]] Matrices of_keys(const Task& task, const HeadsView& x, int64_t row = 0) const {
    if (!x.tensor.defined()) {
      return {};
    }
    const int64_t offset = task.image * x.image + task.head * x.head + row * x.row;
    return {static_cast<std::byte*>(x.tensor.device_pointer()) + offset * bytes(x.tensor.dtype()), batch_stride(x),
            x.row, x.column};
  }
  [[nodiscard]] Matrices of_queries(const Task& task, const HeadsView& x) const { return of_keys(task, x, task.first); }
  [[nodiscard]] Matrices scores_in(std::byte* scratch, const Task& task) const {
    return {scratch, task.rows * row_, row_, 1};
  }

  [[nodiscard]] kernels::AttentionTile tile_of(const Task& task) const {
    const Matrices mask = of_queries(task, mask_);
    const Matrices stats = of_queries(task, stats_);
    return {.dtype = factor_dtype_,
            .batch = task.count,
            .rows = task.rows,
            .keys = task.keys,
            .row_stride = row_,
            .first_query = task.first,
            .scale = scale_,
            .causal = causal_,
            .mask = mask.memory,
            .mask_batch = mask.batch,
            .mask_row = mask.row,
            .stats = stats.memory,
            .stats_batch = stats.batch};
  }

  template <class F>
  void for_each_task(int64_t tasks, int64_t scratch_bytes, F&& f) const {
    kernels::attention_kernels.at(kOp, device_)->for_each_task(tasks, scratch_bytes, [&](int64_t task, void* memory) {
      f(task, static_cast<std::byte*>(memory));
    });
  }

  /// c (m, n) = a (m, k) b (k, n) for each head; in the dtype of a and b if not `wide`.
  void multiply(const Task& task, int64_t m, int64_t n, int64_t k, const Matrices& a, const Matrices& b,
                const Matrices& c, bool wide = true) const {
    const kernels::MatmulCase product{.dtype = factor_dtype_,
                                      .batch = task.count,
                                      .m = m,
                                      .n = n,
                                      .k = k,
                                      .a_batch = a.batch,
                                      .a_row = a.row,
                                      .a_column = a.column,
                                      .b_batch = b.batch,
                                      .b_row = b.row,
                                      .b_column = b.column,
                                      .c_batch = c.batch,
                                      .c_row = c.row,
                                      .wide = wide};
    const auto library = kernels::matmul_kernels.at(kOp, device_);
    library->choose(product).multiply(product, a.memory, b.memory, /* bias= */ nullptr, c.memory, /* keep= */ nullptr);
  }

  /// c (keys, n) += a (keys, rows) b (rows, n) through `sum`; without it, c = a b.
  void add_product(const Task& task, int64_t n, const Matrices& a, const Matrices& b, const Matrices& c,
                   std::byte* sum) const {
    if (sum == nullptr) {
      return multiply(task, task.keys, n, task.rows, a, b, c);
    }
    const Matrices part{sum, task.keys * n, n, 1};
    multiply(task, task.keys, n, task.rows, a, b, part);
    const Strides to = {c.batch, c.row, 1};
    const auto loop = make_strided_loop<3>({task.count, task.keys, n}, {to, to, Strides{part.batch, part.row, 1}});
    kernels::tensor_kernels.at(kOp, device_)->add(loop, dtype_, c.memory, c.memory, part.memory);
  }

  Device device_;
  DType factor_dtype_;  ///< of q, k, v, dy, p and dz
  DType dtype_;         ///< of scores and sums
  int64_t images_, heads_, queries_, keys_, features_, values_;
  bool causal_;
  double scale_;
  HeadsView q_, k_, v_, mask_, stats_;
  bool along_images_;
  int64_t batch_ = 1;  ///< heads of a tile
  int64_t rows_ = 1;   ///< queries of a tile
  int64_t row_ = 1;    ///< from one row of scores to the next
};

}  // namespace

Tensors AttentionBackward::operator()(const Tensors& outputs, const BackwardContext& context) const {
  const Tensor& dy = outputs[0];
  const Tensor q = context.saved(0);
  const Tensor k = context.saved(1);
  const Tensor v = context.saved(2);
  const Tensor mask = context.saved(3);
  const Tensor stats = context.saved(4);
  if (context.create_graph()) {
    const auto f = [this](const Tensors& in) { return Tensors{composed(in[0], in[1], in[2], in[3], causal, scale)}; };
    return gradients_of_composed(f, {q, k, v, mask}, {dy}, context);
  }
  Tensors gradients(4);
  const DType wide = compute_dtype(q.dtype());
  const auto like = [&](size_t input, const Tensor& x) {
    return context.needs_grad(input) ? empty_tokens(x.sizes(), {.dtype = wide, .device = x.device()}) : Tensor();
  };
  gradients[0] = like(0, q);
  gradients[1] = like(1, k);
  gradients[2] = like(2, v);
  if (context.needs_grad(3)) {
    gradients[3] = empty(score_sizes(q, k), {.dtype = wide, .device = q.device()});
  }
  if (by_definition) {
    const AttentionReferenceResults results =
        attention_by_definition({.q = q, .k = k, .v = v, .mask = mask, .causal = causal, .scale = scale, .dy = dy});
    const Tensors found = {results.dq, results.dk, results.dv, results.dmask};
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) {
        copy_into(found[i], gradients[i]);
      }
    }
  } else if (stats.defined()) {
    const OpScope scope([&] {
      const double products = 3 * static_cast<double>(q.size(3)) + 2 * static_cast<double>(v.size(3));
      double bytes = bytes_of(q, k, v, dy);
      for (const Tensor& gradient : gradients) {
        bytes += bytes_of(gradient);
      }
      return OpWork{.op = std::string(kOp) + "_backward",
                    .bytes = bytes,
                    .flops = 2 * static_cast<double>(score_sizes(q, k).numel()) * products};
    });
    AttentionTiles(product_dtype(q), q, k, v, mask, stats, *this)
        .backward(dy, gradients[0], gradients[1], gradients[2], gradients[3]);
  } else {
    for (const Tensor& gradient : gradients) {
      if (gradient.defined()) {
        zero_(gradient);  // there are no scores
      }
    }
  }
  if (gradients[3].defined()) {
    gradients[3] = sum_to_size(gradients[3], mask.sizes());
  }
  for (Tensor& gradient : gradients) {
    gradient = converted(gradient, q.dtype());
  }
  return gradients;
}

AttentionScores attention_scores(const Tensor& q, const Tensor& k, const Tensor& mask, bool causal, double scale) {
  const DType wide = compute_dtype(q.dtype());
  Tensor z = matmul(mul(to(q, wide), scale), to(transpose(k, -2, -1), wide));
  if (!causal && !mask.defined()) {
    return {.z = z, .seen = {}};
  }
  // The lowest finite number, which no search for Inf finds, in place of -infinity.
  const double lowest = wide == DType::float64 ? std::numeric_limits<double>::lowest()
                                               : static_cast<double>(std::numeric_limits<float>::lowest());
  Tensor seen = causal ? causal_mask(q.size(2), k.size(2), q.device()) : mask;
  if (seen.dtype() != DType::boolean) {
    seen = not_equal(mask.detach(), -kInfinity);
    const Tensor none = zeros({}, {.dtype = mask.dtype(), .device = mask.device()});
    z = add(z, to(where(seen, mask, none), wide));
  }
  return {.z = where(seen, z, full({}, lowest, {.dtype = wide, .device = q.device()})), .seen = seen};
}

Tensor scaled_dot_product_attention(const Tensor& uncast_q, const Tensor& uncast_k, const Tensor& uncast_v,
                                    const AttentionOptions& options) {
  Op op(kOp);
  const Tensor q = op.input("q", uncast_q);
  const Tensor k = op.like(q, uncast_k);
  const Tensor v = op.like(q, uncast_v);
  const Tensor mask = [&] {
    const AnomalyPause pause;  // -infinity hides a key
    return op.like(q, options.mask);
  }();
  check_arguments(q, k, v, mask, options);
  const AttentionBackward kept{.causal = options.causal,
                               .scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3)))),
                               .by_definition = attention_reference()};
  const DType product = product_dtype(q);
  Tensor y = empty_tokens({q.size(0), q.size(1), q.size(2), v.size(3)}, {.dtype = product, .device = q.device()});
  Tensor stats;
  if (kept.by_definition) {
    copy_into(
        attention_by_definition({.q = q, .k = k, .v = v, .mask = mask, .causal = kept.causal, .scale = kept.scale}).y,
        y);
  } else if (y.numel() > 0 && k.size(2) > 0) {
    const NoGradGuard no_grad;
    const TracePause pause;
    stats = empty({q.size(0), q.size(1), q.size(2), 2}, {.dtype = compute_dtype(q.dtype()), .device = q.device()});
    const OpScope scope([&] {
      const double products = static_cast<double>(q.size(3)) + static_cast<double>(v.size(3));
      return OpWork{.op = std::string(kOp),
                    .bytes = bytes_of(q, k, v, y),
                    .flops = 2 * static_cast<double>(score_sizes(q, k).numel()) * products};
    });
    AttentionTiles(product, q, k, v, mask, stats, kept).forward(y);
  } else {
    zero_(y);  // no query sees a key
  }
  y = converted(y, q.dtype());
  op.describe({{"causal", kept.causal}, {"scale", kept.scale}});
  return op.record({q, k, v, mask}, y, {q, k, v, mask, stats}, kept);
}

}  // namespace norma
