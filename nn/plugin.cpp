#include "nn/plugin.h"

#include "core/error.h"

#include <dlfcn.h>

#include <set>
#include <string>

namespace norma::nn {

namespace {

constexpr auto kOp = "plugin";

/// What each number of a PluginAbi is.
constexpr std::array<const char*, std::tuple_size_v<PluginAbi>> kAbiNames = {
    "plug-in version",        "C++ ABI",          "ABI of std::string",     "size of Tensor", "size of Module",
    "size of NormDefinition", "size of NormSpec", "size of BackwardContext"};

std::string last_error() {
  const char* text = ::dlerror();
  return text == nullptr ? "no reason given" : text;
}

}  // namespace

void load_plugin(const std::filesystem::path& file) {
  // Without a slash the system would look for it among its own libraries.
  const std::string path = std::filesystem::absolute(file).string();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
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
  check(norm_names().size() > before.size(), kOp, "{}: expected it to register a norm with a name of its own, got none",
        file.string());
  loaded.insert(library);
}

}  // namespace norma::nn
