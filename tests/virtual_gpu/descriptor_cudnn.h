#pragma once

#include "virtual_gpu/attributes_cudnn.h"

#include <cudnn_graph.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace virtual_gpu {

struct Descriptor;
/// A descriptor that another one refers to. As cuDNN does, the other one keeps a copy: what happens to the original
/// later does not reach it.
using DescriptorCopy = std::shared_ptr<const Descriptor>;

/// The values of one attribute.
struct AttributeValue {
  cudnnBackendAttributeType_t type = CUDNN_TYPE_INT64;
  int64_t count = 0;
  std::vector<std::byte> bytes;             ///< of all types but descriptors
  std::vector<DescriptorCopy> descriptors;  ///< of CUDNN_TYPE_BACKEND_DESCRIPTOR
};

/// One descriptor of cuDNN's graph API: attributes are set, then it is finalized, then they can be read.
struct Descriptor {
  cudnnBackendDescriptorType_t type = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, AttributeValue> values;

  [[nodiscard]] bool has(cudnnBackendAttributeName_t name) const { return values.count(name) != 0; }
  /// The values of an attribute that is there.
  template <class T>
  [[nodiscard]] std::vector<T> list(cudnnBackendAttributeName_t name) const {
    const AttributeValue& value = values.at(name);
    std::vector<T> result;
    for (int64_t i = 0; i < value.count; ++i) {
      T one;
      std::memcpy(&one, value.bytes.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
      result.push_back(one);
    }
    return result;
  }
  /// The first value of an attribute, `otherwise` where it is not set.
  template <class T>
  [[nodiscard]] T value(cudnnBackendAttributeName_t name, T otherwise = {}) const {
    return has(name) ? list<T>(name).front() : otherwise;
  }
  [[nodiscard]] const Descriptor& descriptor(cudnnBackendAttributeName_t name) const {
    return *values.at(name).descriptors.front();
  }

  /// Puts values in that cuDNN itself finds.
  template <class T>
  void put(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t value_type, const std::vector<T>& all) {
    AttributeValue& made = values[name];
    made = {.type = value_type, .count = static_cast<int64_t>(all.size()), .bytes = {}, .descriptors = {}};
    const auto* const first = reinterpret_cast<const std::byte*>(all.data());
    made.bytes.assign(first, first + all.size() * sizeof(T));
  }
  void put_descriptors(cudnnBackendAttributeName_t name, std::vector<DescriptorCopy> all);
};

/// What a program holds is a number that is never used again, so that a destroyed descriptor is known as such.
cudnnBackendDescriptor_t create_descriptor(cudnnBackendDescriptorType_t type);
/// Throws Refusal for what is no descriptor (`call` names who asked), as does descriptor_at().
void destroy_descriptor(cudnnBackendDescriptor_t descriptor, const char* call);
Descriptor& descriptor_at(cudnnBackendDescriptor_t descriptor, const char* call);

/// The checks of cudnnBackendSetAttribute, and the storing. Throws Refusal.
void set_attribute(Descriptor& on, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                   const void* values);
/// The checks of cudnnBackendGetAttribute, and the copying. Throws Refusal.
void get_attribute(const Descriptor& of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t requested, int64_t* count, void* values);
/// What holds for every kind of descriptor before it is finalized: it is not yet, all required attributes are set, and
/// the descriptors that it refers to are finalized. Throws Refusal.
void check_complete(const Descriptor& descriptor);

}  // namespace virtual_gpu
