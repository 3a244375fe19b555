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

/// Loads the library that the system finds at a path. Error texts name the file.
void* open_library(const std::string& path, const std::string& file) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::string text = last_error();
    if (text.starts_with(path)) {
      text.replace(0, path.size(), file);
    }
    fail(kOp, "cannot load {}", text);
  }
  return library;
}

/// Calls the registration of a library, unless that has been done.
void register_norms(void* library, PluginRecord record) {
  static std::set<void*> loaded;
  if (loaded.contains(library)) {
    return;
  }
  const auto* abi = static_cast<const PluginAbi*>(::dlsym(library, "norma_plugin_abi"));
  void* const symbol = ::dlsym(library, "norma_register_plugin");
  check(abi != nullptr && symbol != nullptr, kOp,
        "{}: expected a plug-in of Norma, with NORMA_PLUGIN in one of its files", record.file);
  for (size_t i = 0; i < abi->size(); ++i) {
    check((*abi)[i] == kPluginAbi[i], kOp, "{}: built for another Norma ({} {}, here {}): build it anew", record.file,
          kAbiNames[i], (*abi)[i], kPluginAbi[i]);
  }
  const std::vector<std::string> before = norm_names();
  try {
    const NewNormsOnly no_replacing;
    reinterpret_cast<void (*)()>(symbol)();
  } catch (const std::exception& error) {
    fail(kOp, "{}: {}", record.file, error.what());
  }
  const std::vector<std::string> after = norm_names();
  check(after.size() > before.size(), kOp, "{}: expected it to register a norm with a name of its own, got none",
        record.file);
  std::copy_if(after.begin(), after.end(), std::back_inserter(record.norms),
               [&](const std::string& name) { return std::find(before.begin(), before.end(), name) == before.end(); });
  records().push_back(std::move(record));
  loaded.insert(library);
}

}  // namespace

void load_plugin(const std::filesystem::path& file) {
  const PluginRecord record = PluginFile(file).record();
  // Absolute: without a slash the system would look for it among its own libraries.
  register_norms(open_library(record.file, record.file), record);
}

void load_plugin(std::unique_ptr<PluginFile> file) {
  // The loader knows libraries by their paths, too: a second file with this one's number would not be loaded.
  static std::vector<std::unique_ptr<PluginFile>> open;
  open.push_back(std::move(file));
  const PluginFile& kept = *open.back();
  register_norms(open_library(kept.descriptor_path(), kept.record().file), kept.record());
}

const std::vector<PluginRecord>& loaded_plugins() {
  return records();
}

}  // namespace norma::nn
