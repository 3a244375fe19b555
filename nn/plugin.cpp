#include "nn/plugin.h"

#include "core/error.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

namespace norma::nn {

namespace {

constexpr auto kOp = "plugin";

/// The meaning of each number of a PluginAbi.
constexpr std::array<const char*, std::tuple_size_v<PluginAbi>> kAbiNames = {
    "plug-in version",        "C++ ABI",          "ABI of std::string",     "size of Tensor", "size of Module",
    "size of NormDefinition", "size of NormSpec", "size of BackwardContext"};

std::string last_error() {
  const char* text = ::dlerror();
  return text == nullptr ? "no reason given" : text;
}

std::vector<PluginRecord>& records() {
  static std::vector<PluginRecord> instance;
  return instance;
}

}  // namespace

void load_plugin(const std::filesystem::path& file) {
  PluginRecord record = read_plugin(file);
  // The path is absolute: without a slash the system would look for it among its own libraries.
  void* library = ::dlopen(record.file.c_str(), RTLD_NOW | RTLD_LOCAL);
  check(library != nullptr, kOp, "cannot load {}", last_error());
  static std::set<void*> loaded;
  if (loaded.contains(library)) {
    return;
  }
  const auto* abi = static_cast<const PluginAbi*>(::dlsym(library, "norma_plugin_abi"));
  void* const symbol = ::dlsym(library, "norma_register_plugin");
  check(abi != nullptr && symbol != nullptr, kOp,
        "{}: expected a plug-in of Norma, with NORMA_PLUGIN in one of its files", file.string());
  for (size_t i = 0; i < abi->size(); ++i) {
    check((*abi)[i] == kPluginAbi[i], kOp, "{}: built for another Norma ({} {}, here {}): build it anew", file.string(),
          kAbiNames[i], (*abi)[i], kPluginAbi[i]);
  }
  const std::vector<std::string> before = norm_names();
  try {
    const NewNormsOnly no_replacing;
    reinterpret_cast<void (*)()>(symbol)();
  } catch (const std::exception& error) {
    fail(kOp, "{}: {}", file.string(), error.what());
  }
  const std::vector<std::string> after = norm_names();
  check(after.size() > before.size(), kOp, "{}: expected it to register a norm with a name of its own, got none",
        file.string());
  std::copy_if(after.begin(), after.end(), std::back_inserter(record.norms),
               [&](const std::string& name) { return std::find(before.begin(), before.end(), name) == before.end(); });
  records().push_back(std::move(record));
  loaded.insert(library);
}

const std::vector<PluginRecord>& loaded_plugins() {
  return records();
}

}  // namespace norma::nn
