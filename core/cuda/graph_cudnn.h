#pragma once

#include "core/dtype.h"

#include <cudnn.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

// cuDNN's graph API with owners for its descriptors, and an Error for each failure.

namespace norma::cuda {

/// Throws Error("cuda: cudnnBackendFinalize: CUDNN_STATUS_NOT_SUPPORTED: …") unless the call succeeded.
void check(cudnnStatus_t status, const char* call);

/// "9.19.0, built with 9.19.0"
std::string cudnn_text();

/// cuDNN's name of a floating dtype. Throws Error for another one.
cudnnDataType_t cudnn_type(DType dtype);

/// One descriptor: attributes are set, then it is finalized, then attributes can be read.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;

  [[nodiscard]] cudnnBackendDescriptor_t get() const { return descriptor_; }

  /// Values: int64_t, float, double, descriptors, handles, or cuDNN's enums.
  template <class T>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    set_values(name, type_of<T>(), static_cast<int64_t>(values.size()), values.data());
    return *this;
  }
  template <class T>
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    set_values(name, type_of<T>(), 1, &value);
    return *this;
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    return set(name, value.get());
  }
  /// Sets addresses in the device's memory.
  CudnnDescriptor& set_pointers(cudnnBackendAttributeName_t name, const std::vector<void*>& pointers) {
    set_values(name, CUDNN_TYPE_VOID_PTR, static_cast<int64_t>(pointers.size()), pointers.data());
    return *this;
  }
  /// Throws Error where cuDNN refuses the descriptor.
  CudnnDescriptor& finalize();
  /// As finalize(), but returns false in place of the Error.
  [[nodiscard]] bool try_finalize();

  [[nodiscard]] int64_t get_integer(cudnnBackendAttributeName_t name) const;
  /// All values of a list, none where it is empty.
  template <class T>
  [[nodiscard]] std::vector<T> get_list(cudnnBackendAttributeName_t name) const {
    std::vector<T> values(static_cast<size_t>(count_of(name, type_of<T>())));
    values.resize(read_values(name, type_of<T>(), values.size(), values.data()));
    return values;
  }
  /// Reads into descriptors that the caller has made, and leaves as many as there were.
  void get_descriptors(cudnnBackendAttributeName_t name, std::vector<CudnnDescriptor>& into) const;
  /// As get_descriptors(), but returns false in place of the Error.
  [[nodiscard]] bool try_get_descriptors(cudnnBackendAttributeName_t name, std::vector<CudnnDescriptor>& into) const;
  void get_descriptor(cudnnBackendAttributeName_t name, CudnnDescriptor& into) const;
  [[nodiscard]] int64_t count_of(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const;

 private:
  template <class T>
  static constexpr cudnnBackendAttributeType_t type_of();
  void set_values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void* values);
  cudnnStatus_t read_descriptors(cudnnBackendAttributeName_t name, std::vector<CudnnDescriptor>& into) const;
  size_t read_values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, size_t count,
                     void* values) const;

  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

template <class T>
constexpr cudnnBackendAttributeType_t CudnnDescriptor::type_of() {
  if constexpr (std::is_same_v<T, int64_t>)
    return CUDNN_TYPE_INT64;
  if constexpr (std::is_same_v<T, float>)
    return CUDNN_TYPE_FLOAT;
  if constexpr (std::is_same_v<T, double>)
    return CUDNN_TYPE_DOUBLE;
  if constexpr (std::is_same_v<T, bool>)
    return CUDNN_TYPE_BOOLEAN;
  if constexpr (std::is_same_v<T, char>)
    return CUDNN_TYPE_CHAR;
  if constexpr (std::is_same_v<T, cudnnHandle_t>)
    return CUDNN_TYPE_HANDLE;
  if constexpr (std::is_same_v<T, cudnnBackendDescriptor_t>)
    return CUDNN_TYPE_BACKEND_DESCRIPTOR;
  if constexpr (std::is_same_v<T, cudnnDataType_t>)
    return CUDNN_TYPE_DATA_TYPE;
  if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>)
    return CUDNN_TYPE_CONVOLUTION_MODE;
  if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>)
    return CUDNN_TYPE_POINTWISE_MODE;
  if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>)
    return CUDNN_TYPE_HEUR_MODE;
  if constexpr (std::is_same_v<T, cudnnBackendNumericalNote_t>)
    return CUDNN_TYPE_NUMERICAL_NOTE;
  if constexpr (std::is_same_v<T, cudnnBackendBehaviorNote_t>)
    return CUDNN_TYPE_BEHAVIOR_NOTE;
  if constexpr (std::is_same_v<T, cudnnBackendKnobType_t>)
    return CUDNN_TYPE_KNOB_TYPE;
}

/// The device that plans are made for: this machine's, or one that is known by its properties alone.
class PlanTarget {
 public:
  /// The current device, with its cuDNN handle, whose work goes to current_stream(). Made at the first use.
  static const PlanTarget& device();
  /// A device that is not there: plans for it show whether cuDNN accepts a graph. `json`: its properties, as cuDNN
  /// writes them.
  static PlanTarget from_properties(const std::string& json);

  /// Sets this device on a heuristic or a plan.
  void put(CudnnDescriptor& on, cudnnBackendAttributeName_t handle, cudnnBackendAttributeName_t properties) const;
  [[nodiscard]] cudnnHandle_t handle() const { return handle_; }

 private:
  explicit PlanTarget(cudnnHandle_t handle) : handle_(handle) {}
  explicit PlanTarget(CudnnDescriptor properties);

  cudnnHandle_t handle_ = nullptr;
  std::vector<CudnnDescriptor> properties_;  // one, without a handle
};

/// The rules that a plan must keep.
struct PlanRules {
  bool tf32 = false;  ///< float32 products may lose digits to tensor cores
  /// The most that a plan may want. Strict float32 in channels_last is transposed: 514 MB for 1x1 convolutions of
  /// ResNet-50 at batch 64.
  int64_t workspace_bytes = int64_t{1} << 30;

  friend auto operator<=>(const PlanRules&, const PlanRules&) = default;
};

/// True iff an engine with these notes gives the same numbers on each run, and keeps the digits of its inputs: no sums
/// in fewer digits, no FFT and no Winograd, whose transforms lose some in every dtype, and no tensor cores for float32
/// without TF32.
bool keeps_rules(const std::vector<cudnnBackendNumericalNote_t>& notes, DType dtype, const PlanRules& rules);

/// A way to compute a graph.
struct GraphPlan {
  CudnnDescriptor plan;
  int64_t workspace_bytes = 0;
  std::string name;  ///< the engine and its settings, "38 2=1 7=0": the same for all of this version of cuDNN
  bool tensor_cores = false;
  /// The descriptors that the plan refers to; plans of one graph share those of the graph.
  std::vector<std::shared_ptr<const CudnnDescriptor>> kept;
};

/// Which plans of a graph are wanted.
struct PlanChoice {
  size_t most = 1;        ///< as many as that, the best by cuDNN's heuristics first
  std::string name = {};  ///< of the only one; empty: any
};

/// The plans that keep the rules, in the order of cuDNN's heuristics. Engines that are compiled when they are first
/// used come after those that are not, and cuDNN's fallback list only where the first one is empty. Throws Error("OP:
/// …") where there is none.
std::vector<GraphPlan> plan_graph(const char* op, const CudnnDescriptor& graph, DType dtype, const PlanRules& rules,
                                  const PlanTarget& target, const PlanChoice& choice = {});

}  // namespace norma::cuda
