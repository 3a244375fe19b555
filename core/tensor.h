#pragma once

#include "core/device.h"
#include "core/dtype.h"
#include "core/memory_format.h"
#include "core/sizes.h"
#include "core/storage.h"

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace norma {

class Tensor;
struct Node;
struct TensorImpl;

using Tensors = std::vector<Tensor>;
/// Sees the gradient of a tensor and returns the one to use from here on (or an undefined tensor to keep it). That one
/// must have the same sizes, dtype and device.
using GradientHook = std::function<Tensor(const Tensor& gradient)>;

/// A handle on an n-dimensional array: copies of the handle are the same tensor.
///
/// A tensor is a storage (shared with its views), sizes, strides and an offset in elements, a dtype, and its
/// place on the tape. An undefined tensor (default-constructed) stands for "none".
class Tensor {
 public:
  Tensor() = default;
  /// A new tensor on `storage`. For views, see alias() below. Throws Error for sizes or strides below 0, and for
  /// elements outside the storage.
  Tensor(std::shared_ptr<Storage> storage, const Sizes& sizes, const Strides& strides, int64_t offset, DType dtype);

  [[nodiscard]] bool defined() const { return impl_ != nullptr; }
  /// True iff both handles are the same tensor (not merely equal in value).
  [[nodiscard]] bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

  // --- layout -------------------------------------------------------------------------------------------------
  [[nodiscard]] const Sizes& sizes() const;
  [[nodiscard]] const Strides& strides() const;  ///< in elements
  [[nodiscard]] int64_t offset() const;          ///< of the first element in the storage, in elements
  [[nodiscard]] int64_t rank() const { return sizes().size(); }
  [[nodiscard]] int64_t numel() const;
  /// Size and stride of one axis; negative axes count from the end.
  [[nodiscard]] int64_t size(int64_t axis) const;
  [[nodiscard]] int64_t stride(int64_t axis) const;
  [[nodiscard]] DType dtype() const;
  [[nodiscard]] Device device() const;
  [[nodiscard]] const std::shared_ptr<Storage>& storage() const;

  /// True iff the elements lie in this format without gaps (see memory_format.h for axes of size 1).
  [[nodiscard]] bool is_contiguous(MemoryFormat format = MemoryFormat::contiguous) const;
  /// The format a result computed from this tensor should have.
  [[nodiscard]] MemoryFormat suggest_memory_format() const;

  // --- elements -----------------------------------------------------------------------------------------------
  /// A host pointer to the first element. Throws Error unless T is the tensor's dtype and the host may touch its
  /// memory. If you write through it after the tensor was used, call bump_version(): the checks of saved tensors and
  /// the copies of reordered weights depend on it.
  template <class T>
  [[nodiscard]] T* data() const;
  [[nodiscard]] void* raw_data() const;
  /// The address of the first element on the tensor's device, for kernels; the host must not follow it. The typed form
  /// throws Error unless T is the tensor's dtype.
  template <class T>
  [[nodiscard]] T* device_pointer() const {
    check_dtype_is(dtype_of<T>());
    return static_cast<T*>(device_pointer());
  }
  [[nodiscard]] void* device_pointer() const;
  /// The value of a tensor with one element, converted to T. Waits for the tensor's device. Throws Error for any other
  /// number of elements.
  template <class T>
  [[nodiscard]] T item() const;
  /// All values in row-major order of the sizes, converted to T. Waits for the tensor's device.
  template <class T>
  [[nodiscard]] std::vector<T> to_vector() const;

  // --- autograd (tape.h) ----------------------------------------------------------------------------------------
  /// True iff a gradient flows to this tensor: a leaf that asks for one, or the result of a recorded op.
  [[nodiscard]] bool requires_grad() const;
  /// Makes a leaf ask for a gradient. Throws Error for a non-floating dtype and for results of recorded ops.
  Tensor& set_requires_grad(bool value = true);
  [[nodiscard]] bool is_leaf() const;
  /// The accumulated gradient; undefined before the first backward().
  [[nodiscard]] const Tensor& grad() const;
  /// Replaces the gradient; an undefined one removes it. Throws Error unless its sizes, dtype and device are the
  /// tensor's.
  void set_grad(const Tensor& gradient);
  /// Same storage and version, no place on the tape.
  [[nodiscard]] Tensor detach() const;
  /// In-place changes so far, counted over all views of the storage.
  [[nodiscard]] int64_t version() const;
  void bump_version() const;
  /// Calls `hook` with the complete gradient of this tensor, before it goes further. Throws Error unless the tensor
  /// requires a gradient.
  void register_hook(GradientHook hook) const;
  /// backward() of tape.h with the default options.
  void backward(const Tensor& gradient = {}) const;

  [[nodiscard]] TensorImpl& impl() const { return *impl_; }
  [[nodiscard]] const std::shared_ptr<TensorImpl>& impl_pointer() const { return impl_; }
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}

 private:
  void check_dtype_is(DType expected) const;

  std::shared_ptr<TensorImpl> impl_;
};

/// The state that all handles of one tensor share.
struct TensorImpl {
  std::shared_ptr<Storage> storage;
  Sizes sizes;
  Strides strides;
  int64_t offset = 0;
  int64_t numel = 0;
  DType dtype = DType::float32;
  bool is_view = false;  ///< made by alias(): an in-place change also changes other tensors

  bool requires_grad = false;
  std::shared_ptr<Node> node;  ///< the op that made it; none for leaves
  size_t output_index = 0;     ///< which output of `node`
  int64_t node_version = 0;    ///< version of the storage when `node` was recorded, or when a view was made
  uint64_t family = 0;         ///< of a tensor and its views: a recorded change of one gives history to all
  Tensor grad;
  std::vector<GradientHook> hooks;  ///< of a leaf; those of other tensors are kept by their node
};

/// A view of x's storage with other sizes, strides and offset (in elements), off the tape: shares storage and version.
/// Throws Error if it would reach outside the storage.
Tensor alias(const Tensor& x, const Sizes& sizes, const Strides& strides, int64_t offset);

/// True iff x's elements fill a range of memory, in any order, each with a place of its own.
inline bool is_non_overlapping_and_dense(const Tensor& x) {
  return is_non_overlapping_and_dense(x.sizes(), x.strides());
}

/// Somebody's tensors, seen for the length of a call: {x, weight}, x alone, or Tensors.
class TensorList : public std::span<const Tensor> {
 public:
  TensorList() = default;
  TensorList(std::initializer_list<Tensor> list) : span(list.begin(), list.size()) {}  // NOLINT: all three are lists
  TensorList(const Tensors& list) : span(list) {}                                      // NOLINT
  TensorList(const Tensor& x) : span(&x, 1) {}                                         // NOLINT
};

/// x.device_pointer(); null for an undefined tensor.
inline void* pointer_or_null(const Tensor& x) {
  return x.defined() ? x.device_pointer() : nullptr;
}

/// Short description for messages: "float32 [2, 3, 4, 5] channels_last".
std::string describe(const Tensor& x);
/// Values in row-major order with the shape, for looking at; long axes are shortened.
std::string to_string(const Tensor& x);

// --- checks every op uses, so that each text names the op, the argument, what was expected and what came ----------
/// "op: argument: expected a tensor, got none"
void check_defined(std::string_view op, std::string_view argument, const Tensor& x);
/// "op: argument: expected rank 4, got rank 3 (sizes [2, 3, 4])"
void check_rank(std::string_view op, std::string_view argument, const Tensor& x, int64_t rank);
/// "op: argument: expected sizes [3], got [4]"
void check_sizes(std::string_view op, std::string_view argument, const Tensor& x, const Sizes& expected);
/// "op: argument: expected dtype float32, got int64"
void check_dtype(std::string_view op, std::string_view argument, const Tensor& x, DType expected);
/// "op: argument: expected a floating dtype, got int64"
void check_floating(std::string_view op, std::string_view argument, const Tensor& x);
/// "op: argument: expected device cpu, got cuda:0"
void check_device(std::string_view op, std::string_view argument, const Tensor& x, Device expected);
/// check_sizes(), then check_dtype() and check_device() for those of `like`.
void check_like(std::string_view op, std::string_view argument, const Tensor& x, const Sizes& expected,
                const Tensor& like);

}  // namespace norma
