#include "core/device.h"

#include "core/error.h"

#include <charconv>

namespace norma {

std::string to_string(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

Device device_from_string(std::string_view name) {
  if (name == "cpu") {
    return kCpu;
  }
  if (name == "cuda") {
    return {DeviceType::cuda, 0};
  }
  constexpr std::string_view kPrefix = "cuda:";
  if (name.starts_with(kPrefix)) {
    const std::string_view digits = name.substr(kPrefix.size());
    int index = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc{} && end == digits.data() + digits.size() && index >= 0) {
      return {DeviceType::cuda, index};
    }
  }
  fail("device", "expected cpu, cuda or cuda:N, got '{}'", name);
}

}  // namespace norma
