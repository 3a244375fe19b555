#include "virtual_gpu/descriptor_cudnn.h"

#include "virtual_gpu/refusal.h"
#include "virtual_gpu/registry.h"

#include <algorithm>
#include <utility>

namespace virtual_gpu {

namespace {

constexpr cudnnStatus_t kBad = CUDNN_STATUS_BAD_PARAM;

/// Never destroyed: objects of static lifetime may hold descriptors.
Registry<Descriptor>& registry() {
  static auto* const all = new Registry<Descriptor>;
  return *all;
}

const AttributeRule& rule_of(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  const AttributeRule* const rule = find_rule(descriptor.type, name);
  expect(rule != nullptr, kBad, "{}: attribute {}: expected one of such a descriptor that the virtual GPU knows",
         text_of(descriptor.type), static_cast<int>(name));
  return *rule;
}

void check_type(const Descriptor& descriptor, const AttributeRule& rule, cudnnBackendAttributeType_t type) {
  expect(rule.type == type || (rule.or_float && type == CUDNN_TYPE_FLOAT), CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
         "{}: {}: expected values of {}, got {}", text_of(descriptor.type), rule.text, text_of(rule.type),
         text_of(type));
}

}  // namespace

void Descriptor::put_descriptors(cudnnBackendAttributeName_t name, std::vector<DescriptorCopy> all) {
  const auto count = static_cast<int64_t>(all.size());
  values[name] = {.type = CUDNN_TYPE_BACKEND_DESCRIPTOR, .count = count, .bytes = {}, .descriptors = std::move(all)};
}

cudnnBackendDescriptor_t create_descriptor(cudnnBackendDescriptorType_t type) {
  expect(!rules_of(type).empty(), CUDNN_STATUS_NOT_SUPPORTED,
         "cudnnBackendCreateDescriptor: the virtual GPU does not know {}", text_of(type));
  return registry().create<cudnnBackendDescriptor_t>({.type = type, .finalized = false, .values = {}});
}

void destroy_descriptor(cudnnBackendDescriptor_t descriptor, const char* call) {
  descriptor_at(descriptor, call);
  registry().destroy(descriptor);
}

Descriptor& descriptor_at(cudnnBackendDescriptor_t descriptor, const char* call) {
  Descriptor* const found = registry().find(descriptor);
  expect(found != nullptr, descriptor == nullptr ? CUDNN_STATUS_BAD_PARAM_NULL_POINTER : kBad,
         "{}: descriptor: expected one that cudnnBackendCreateDescriptor made, got {}", call,
         registry().describe(descriptor));
  return *found;
}

void set_attribute(Descriptor& on, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                   const void* values) {
  const AttributeRule& rule = rule_of(on, name);
  const std::string owner = text_of(on.type);
  expect(!on.finalized, kBad, "{}: {}: expected to be set before cudnnBackendFinalize, got set after it", owner,
         rule.text);
  expect(rule.use != AttributeRule::Use::kRead, kBad, "{}: {}: expected to be read only, got set", owner, rule.text);
  check_type(on, rule, type);
  expect(count >= 1 && count <= rule.most, kBad, "{}: {}: expected {}, got {}", owner, rule.text,
         rule.most == 1 ? "1 value" : fmt::format("1 to {} values", rule.most), count);
  expect(values != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "{}: {}: expected values, got null", owner, rule.text);
  AttributeValue made{.type = type, .count = count, .bytes = {}, .descriptors = {}};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* const handles = static_cast<const cudnnBackendDescriptor_t*>(values);
    for (int64_t i = 0; i < count; ++i) {
      const Descriptor& one = descriptor_at(handles[i], rule.text);
      const bool fits = rule.refers_to ? one.type == *rule.refers_to : is_operation(one.type);
      expect(fits, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "{}: {}: expected {}, got {}", owner, rule.text,
             rule.refers_to ? text_of(*rule.refers_to) : "an operation", text_of(one.type));
      made.descriptors.push_back(std::make_shared<const Descriptor>(one));
    }
  } else {
    const auto* const first = static_cast<const std::byte*>(values);
    made.bytes.assign(first, first + count * bytes_of(type));
  }
  on.values[name] = std::move(made);
}

void get_attribute(const Descriptor& of, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t requested, int64_t* count, void* values) {
  const AttributeRule& rule = rule_of(of, name);
  const std::string owner = text_of(of.type);
  expect(of.finalized, CUDNN_STATUS_NOT_INITIALIZED,
         "{}: {}: expected to be read after cudnnBackendFinalize, got read before it", owner, rule.text);
  check_type(of, rule, type);
  expect(requested >= 0, kBad, "{}: {}: expected a count of at least 0, got {}", owner, rule.text, requested);
  expect(requested == 0 || values != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
         "{}: {}: expected room for {} values, got null", owner, rule.text, requested);
  const auto found = of.values.find(name);
  const int64_t available = found == of.values.end() ? 0 : found->second.count;
  const int64_t copied = std::min(requested, available);
  if (count != nullptr) {
    // cuDNN tells of more plans than it has: the number is only a bound until they are asked for.
    const bool is_bound = name == CUDNN_ATTR_ENGINEHEUR_RESULTS && available > 0;
    *count = requested == 0 ? available + (is_bound ? 1 : 0) : copied;
  }
  if (copied == 0) {
    return;
  }
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    std::memcpy(values, found->second.bytes.data(), static_cast<size_t>(copied * bytes_of(type)));
    return;
  }
  const auto* const handles = static_cast<const cudnnBackendDescriptor_t*>(values);
  for (int64_t i = 0; i < copied; ++i) {
    Descriptor& into = descriptor_at(handles[i], rule.text);
    const Descriptor& from = *found->second.descriptors[static_cast<size_t>(i)];
    expect(into.type == from.type, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "{}: {}: expected room in {}, got {}", owner,
           rule.text, text_of(from.type), text_of(into.type));
    expect(!into.finalized, kBad, "{}: {}: expected room in a new descriptor, got a finalized one", owner, rule.text);
    into = from;
  }
}

void check_complete(const Descriptor& descriptor) {
  const std::string owner = text_of(descriptor.type);
  expect(!descriptor.finalized, kBad, "{}: expected one cudnnBackendFinalize, got two", owner);
  for (const AttributeRule& rule : rules_of(descriptor.type)) {
    const auto found = descriptor.values.find(rule.name);
    if (found == descriptor.values.end()) {
      expect(rule.use != AttributeRule::Use::kRequired, kBad, "{}: {}: expected a value before cudnnBackendFinalize",
             owner, rule.text);
      continue;
    }
    for (const DescriptorCopy& one : found->second.descriptors) {
      expect(one->finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
             "{}: {}: expected a finalized descriptor, got {} that was not when it was set", owner, rule.text,
             text_of(one->type));
    }
  }
}

}  // namespace virtual_gpu
