#include "session/environment.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "core/device_functions.h"
#include "core/parallel.h"
#include "core/simd/target.h"
#include "core/version.h"
#include "data/image_file.h"
#include "data/json.h"
#include "nn/plugin.h"
#include "ops/conv/conv.h"
#include "parallel/process_group.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <zlib.h>
#include <Eigen/Core>
#include <nlohmann/json.hpp>

#include <dlfcn.h>
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace norma::train {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStatusFile = "/proc/self/status";

/// The value after "key" and a colon or equals sign in a file of such lines; "" if there is none.
std::string value_in_file(const char* file, std::string_view key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    const size_t separator = line.find_first_of(":=");
    if (!line.starts_with(key) || separator == std::string::npos ||
        line.find_first_not_of(" \t", key.size()) != separator) {
      continue;
    }
    const size_t first = line.find_first_not_of(" \t\"", separator + 1);
    const size_t last = line.find_last_not_of(" \t\"");
    return first == std::string::npos || last < first ? "" : line.substr(first, last - first + 1);
  }
  return "";
}

/// A number of KiB in a file of such lines, in bytes; 0 when there is none.
int64_t kibibytes_in_file(const char* file, std::string_view key) {
  std::istringstream in(value_in_file(file, key));
  int64_t value = 0;
  in >> value;
  return 1024 * value;
}

std::string cpu_name() {
  std::string name = value_in_file("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown" : name;
}

std::vector<std::string> cpu_instruction_sets() {
  static constexpr std::array kInteresting = {"sse4_2",      "avx",         "f16c",     "fma",      "avx2",
                                              "avx_vnni",    "avx512f",     "avx512bw", "avx512vl", "avx512dq",
                                              "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8",
                                              "asimd",       "sve",         "sve2",     "bf16"};
  std::string flags = value_in_file("/proc/cpuinfo", "flags");
  if (flags.empty()) {
    flags = value_in_file("/proc/cpuinfo", "Features");  // ARM
  }
  std::vector<std::string> found;
  std::istringstream in(flags);
  for (std::string flag; in >> flag;) {
    if (is_in(kInteresting, flag)) {
      found.push_back(flag);
    }
  }
  return found;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  return "unknown";
#endif
}

std::string build() {
#if defined(__OPTIMIZE__)
  const std::string_view optimized = "optimized";
#else
  const std::string_view optimized = "not optimized";
#endif
  return fmt::format("{}, kernels for {}{}", optimized, simd::target(),
                     conv2d_mode() == Conv2dMode::exact ? ", exact convolutions" : "");
}

/// "4.5 (libgomp)": the version of OpenMP, from the date in _OPENMP, and the loaded runtime.
std::string openmp_version() {
  std::string version = std::to_string(_OPENMP);
  switch (_OPENMP) {
    case 201511: version = "4.5"; break;
    case 201811: version = "5.0"; break;
    case 202011: version = "5.1"; break;
    case 202111: version = "5.2"; break;
    default: break;
  }
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&omp_get_max_threads), &library) != 0 && library.dli_fname != nullptr) {
    const std::string name = std::filesystem::path(library.dli_fname).filename().string();
    version += fmt::format(" ({})", name.substr(0, name.find('.')));
  }
  return version;
}

int64_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
}

/// Visits the fields that the files of all versions have, by their names there and in that order.
template <class E, class F>
void visit_fields(E& e, const F& visit) {
  visit("norma", e.norma);
  visit("cpu", e.cpu);
  visit("system", e.system);
  visit("compiler", e.compiler);
  visit("build", e.build);
  visit("cores", e.cores);
  visit("threads", e.threads);
  visit("memory", e.memory);
  visit("libraries", e.libraries);
  visit("instruction_sets", e.instruction_sets);
  visit("devices", e.devices);
}

Json plugins_to_json(const std::vector<nn::PluginRecord>& plugins) {
  return mapped(plugins, [](const nn::PluginRecord& plugin) {
    return Json{{"file", plugin.file}, {"sha256", plugin.sha256}, {"norms", plugin.norms}};
  });
}

}  // namespace

Environment environment() {
  Environment result;
  result.norma = version();
  result.cpu = cpu_name();
  result.system = value_in_file("/etc/os-release", "PRETTY_NAME");
  result.compiler = compiler();
  result.build = build();
  result.cores = usable_cores();
  result.threads = num_threads();
  result.memory = kibibytes_in_file("/proc/meminfo", "MemTotal");
  result.instruction_sets = cpu_instruction_sets();
  const auto add = [&](const auto& libraries) { result.libraries.insert(libraries.begin(), libraries.end()); };
  add(compute_libraries());
  add(data::image_libraries());
  add(std::map<std::string, std::string>{
      {"Eigen", fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION)},
      {"OpenMP", openmp_version()},
      {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
      {"nlohmann-json",
       fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
      {"zlib", zlibVersion()}});
  for (const auto& [name, text] : {std::pair("MPI", parallel::mpi_version()), {"NCCL", parallel::nccl_version()}}) {
    if (!text.empty()) {
      result.libraries.emplace(name, text);
    }
  }
  result.devices = {"cpu"};
  result.device = device_text();
  result.exact_convolutions = conv2d_mode() == Conv2dMode::exact;
  result.plugins = nn::loaded_plugins();
  for (const auto& [name, text] : cuda_facts()) {
    if (name.starts_with("cuda:")) {
      result.devices.push_back(name);
    } else if (name != "cuda" && text != "none") {
      result.libraries.emplace(name, text);
    }
  }
  return result;
}

std::string device_text() {
  const std::string device = to_string(default_device());
  for (const auto& [name, text] : cuda_facts()) {
    if (name == device) {
      return device + ", " + text;
    }
  }
  return device;
}

std::string local_time(bool compact) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return compact ? fmt::format("{:%Y%m%d-%H%M%S}", parts) : fmt::format("{:%Y-%m-%d %H:%M:%S}", parts);
}

int64_t resident_bytes() {
  return kibibytes_in_file(kStatusFile, "VmRSS");
}

ResidentPeak::ResidentPeak(bool reset) {
  if (reset) {
    std::ofstream("/proc/self/clear_refs") << 5;  // 5: set the mark to what is held now
  }
  constexpr int64_t kMovesMeanwhile = 1 << 20;  // between reading the two figures
  first_mark_ = kibibytes_in_file(kStatusFile, "VmHWM");
  sample();
  exact_ = first_mark_ > 0 && first_mark_ <= highest_ + kMovesMeanwhile;
}

void ResidentPeak::sample() {
  highest_ = std::max(highest_, resident_bytes());
}

int64_t ResidentPeak::bytes() const {
  const int64_t mark = kibibytes_in_file(kStatusFile, "VmHWM");
  return exact_ || mark > first_mark_ ? mark : highest_;
}

std::string to_json(const Environment& e) {
  Json json;
  visit_fields(e, [&](const char* name, const auto& value) { json[name] = value; });
  json["device"] = e.device;
  if (e.processes > 1) {
    json["processes"] = e.processes;
  }
  if (e.exact_convolutions) {
    json["conv"] = *e.exact_convolutions ? "exact" : "fast";
  }
  if (!e.plugins.empty()) {
    json["plugins"] = plugins_to_json(e.plugins);
  }
  return data::json_text(json);
}

std::string threads_text(const Environment& e) {
  const std::string threads = fmt::format("{} {}", e.threads, e.threads == 1 ? "thread" : "threads");
  return e.processes == 1 ? threads : fmt::format("{} in each of {} processes", threads, e.processes);
}

std::string plugins_json(const std::vector<nn::PluginRecord>& plugins) {
  return data::json_text(plugins_to_json(plugins));
}

std::vector<nn::PluginRecord> plugins_from_json(const std::string& text, const std::string& where) {
  const nlohmann::json list = data::parse_json(where, "plugins", text);
  check(list.is_array(), where, "plugins: expected a list, got {}", data::json_excerpt(list));
  return mapped(list, [&](const nlohmann::json& one) {
    return nn::PluginRecord{.file = data::json_field<std::string>(where, one, "file"),
                            .sha256 = data::json_field<std::string>(where, one, "sha256"),
                            .norms = data::json_field<std::vector<std::string>>(where, one, "norms")};
  });
}

std::string plugins_text(const std::vector<nn::PluginRecord>& plugins) {
  std::string text;
  for (const nn::PluginRecord& plugin : plugins) {
    text += fmt::format("{}{} (sha256 {})", text.empty() ? "" : ", ", excerpt(plugin.file, plugin.file.size()),
                        excerpt(plugin.sha256));
  }
  return text;
}

std::string versions_json() {
  Json versions = {{"norma", version()}};
  for (const auto& [name, number] : compute_libraries()) {
    versions[name] = number;
  }
  if (conv2d_mode() == Conv2dMode::exact) {
    versions["conv"] = "exact";
  }
  return data::json_text(versions);
}

std::map<std::string, std::string> checkpoint_notes() {
  std::map<std::string, std::string> notes{{kVersionsKey, versions_json()}};
  if (!nn::loaded_plugins().empty()) {
    notes[kPluginsKey] = plugins_json(nn::loaded_plugins());
  }
  return notes;
}

Environment environment_from_json(const std::string& text, const std::string& where) {
  const nlohmann::json json = data::parse_json(where, "the environment", text);
  Environment e;
  const auto read = [&]<class T>(const char* name, T& value) { value = data::json_field<T>(where, json, name); };
  visit_fields(e, read);
  if (json.contains("device")) {  // files of version 0.1 have none
    read("device", e.device);
  }
  if (json.contains("processes")) {  // written only where there are several
    read("processes", e.processes);
  }
  if (json.contains("conv")) {
    const auto conv = data::json_field<std::string>(where, json, "conv");
    check(conv == "exact" || conv == "fast", where, "conv: expected exact or fast, got '{}'", excerpt(conv));
    e.exact_convolutions = conv == "exact";
  }
  if (json.contains("plugins")) {
    e.plugins = plugins_from_json(data::json_text(json["plugins"]), where);
  }
  return e;
}

}  // namespace norma::train
