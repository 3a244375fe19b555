#pragma once

#include "parallel/process_group.h"

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace norma::parallel {

struct GradientReducerOptions {
  int64_t bucket_bytes = int64_t{25} << 20;  ///< gradients travel in buckets of about this size
};

/// Adds up the gradients of all ranks while the backward pass goes on:
///   backward(loss, {}, {.on_leaf = [&](const Tensor& leaf, const Tensor& g) { reducer.take(leaf, g); }});
///   reducer.finish();
/// Buckets have the order in which backward() makes the gradients. The first pass finds that order, so its own
/// gradients travel only at its end. Hooks of the parameters see the gradients of this rank, not the sums.
class GradientReducer {
 public:
  /// The parameters must be the same, in the same order, on all ranks. The group must outlive it.
  GradientReducer(ProcessGroup& group, Tensors parameters, const GradientReducerOptions& options = {});

  /// For BackwardOptions::on_leaf in the last backward pass of a step. What earlier passes left in .grad is added.
  void take(const Tensor& leaf, const Tensor& gradient);
  /// Call it after that pass. The .grad of each parameter becomes the sum over the ranks; it stays undefined where no
  /// rank has one.
  void finish();
  /// Forgets what take() got, for a step that all ranks leave out before finish().
  void reset();

 private:
  /// Gradients side by side in memory, followed by one number for each: 1, or 0 where this rank has no gradient.
  struct Bucket {
    std::vector<size_t> parameters;
    std::vector<int64_t> places;
    int64_t numel = 0;
    Tensor memory = {};
    size_t missing = 0;  ///< gradients that are still to come
    std::unique_ptr<Work> work = {};
  };

  void make_buckets(const std::vector<size_t>& order);
  /// The order of the first rank.
  [[nodiscard]] std::vector<size_t> agreed_order() const;
  void put(size_t parameter, const Tensor& gradient);
  void send_what_is_whole();
  [[nodiscard]] Tensor place_of(const Bucket& bucket, size_t i) const;

  ProcessGroup& group_;
  Tensors parameters_;
  GradientReducerOptions options_;
  DType dtype_ = DType::float32;
  std::unordered_map<const TensorImpl*, size_t> numbers_;
  std::vector<size_t> seen_;  // in the first pass
  std::vector<Bucket> buckets_;
  struct Place {
    size_t bucket = 0;
    size_t index = 0;
    bool is_there = false;
  };
  std::vector<Place> places_;
  size_t sent_ = 0;
};

}  // namespace norma::parallel
