#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace virtual_gpu {

/// What cuDNN knows of one attribute of one kind of descriptor.
struct AttributeRule {
  enum class Use : uint8_t {
    kRequired,  ///< must be set before the descriptor is finalized
    kOptional,
    kRead,  ///< cuDNN sets it
  };

  cudnnBackendDescriptorType_t owner;
  cudnnBackendAttributeName_t name;
  const char* text;  ///< the name, as cuDNN's header writes it
  cudnnBackendAttributeType_t type;
  Use use;
  int64_t most = 1;  ///< values
  /// The kind of descriptor that a value is; none for any operation, and for values that are no descriptors.
  std::optional<cudnnBackendDescriptorType_t> refers_to = std::nullopt;
  bool or_float = false;  ///< values of CUDNN_TYPE_FLOAT are taken, too
};

/// The rule of an attribute, or nullptr where such descriptors have none.
const AttributeRule* find_rule(cudnnBackendDescriptorType_t owner, cudnnBackendAttributeName_t name);
/// The rules of one kind of descriptor; none where the virtual GPU does not know it.
std::span<const AttributeRule> rules_of(cudnnBackendDescriptorType_t owner);

/// "CUDNN_BACKEND_TENSOR_DESCRIPTOR", or "descriptor type 99"
std::string text_of(cudnnBackendDescriptorType_t type);
/// "CUDNN_TYPE_INT64", or "attribute type 99"
std::string text_of(cudnnBackendAttributeType_t type);
/// The bytes of one value of a type; 0 for a type that the virtual GPU does not know.
int64_t bytes_of(cudnnBackendAttributeType_t type);
bool is_operation(cudnnBackendDescriptorType_t type);

}  // namespace virtual_gpu
