#include "virtual_gpu/properties.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <stdexcept>

// NORMA_VIRTUAL_GPU_LIST is the path of gpus.json: by the data sheets, and for the H200 by cuDNN's own file of its
// properties. The library is never installed, so that the file is where the build found it.

namespace virtual_gpu {

Properties properties_of(const std::string& name) {
  std::ifstream file(NORMA_VIRTUAL_GPU_LIST);
  if (!file) {
    throw std::runtime_error("virtual GPU: cannot read " NORMA_VIRTUAL_GPU_LIST);
  }
  const nlohmann::json all = nlohmann::json::parse(file);
  if (!all.contains(name)) {
    std::string known;
    for (const auto& [key, value] : all.items()) {
      known += (known.empty() ? "" : ", ") + key;
    }
    throw std::runtime_error(fmt::format("NORMA_VIRTUAL_GPU: expected one of {}, got '{}'", known, name));
  }
  const nlohmann::json& gpu = all[name];
  Properties result;
  gpu.at("name").get_to(result.name);
  gpu.at("major").get_to(result.major);
  gpu.at("minor").get_to(result.minor);
  gpu.at("multiprocessors").get_to(result.multiprocessors);
  gpu.at("threads_per_multiprocessor").get_to(result.threads_per_multiprocessor);
  gpu.at("blocks_per_multiprocessor").get_to(result.blocks_per_multiprocessor);
  gpu.at("registers_per_multiprocessor").get_to(result.registers_per_multiprocessor);
  gpu.at("shared_bytes_per_multiprocessor").get_to(result.shared_bytes_per_multiprocessor);
  gpu.at("l2_bytes").get_to(result.l2_bytes);
  gpu.at("memory_bytes").get_to(result.memory_bytes);
  gpu.at("memory_bytes_per_second").get_to(result.memory_bytes_per_second);
  gpu.at("clock_hz").get_to(result.clock_hz);
  return result;
}

}  // namespace virtual_gpu
