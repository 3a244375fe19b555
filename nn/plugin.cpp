#include "nn/plugin.h"

#include "base/error.h"
#include "base/lists.h"

#include <dlfcn.h>

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

/// What a norm of a plug-in throws, of whatever kind, becomes an Error that names the norm.
void name_in_errors(const std::string& name) {
  NormDefinition definition = norm_definition(name);
  definition.make = [name, make = definition.make](const NormChoice& choice, int64_t channels) {
    try {
      std::shared_ptr<Module> norm = make(choice, channels);
      if (norm != nullptr) {
        norm->name_in_errors(name);
      }
      return norm;
    } catch (...) {
      Module::rethrow_named(name);
    }
  };
  register_norm(name, std::move(definition));
}

/// Opens a library at a path and calls its registration, unless one of the same bytes is loaded.
void register_norms(const std::string& path, PluginRecord record) {
  if (is_in(records(), record.sha256, &PluginRecord::sha256)) {
    return;
  }
  void* const library = open_library(path, record.file);
  check(path != record.file || PluginFile(path).record().sha256 == record.sha256, kOp,
        "{}: it was changed while it was loaded", path);
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
  } catch (...) {
    fail(kOp, "{}: it threw something that is no std::exception", record.file);
  }
  const std::vector<std::string> after = norm_names();
  check(after.size() > before.size(), kOp, "{}: expected it to register a norm with a name of its own, got none",
        record.file);
  record.norms = filtered(after, [&](const std::string& name) { return !is_in(before, name); });
  for (const std::string& name : record.norms) {
    name_in_errors(name);
  }
  records().push_back(std::move(record));
}

}  // namespace

void load_plugin(const std::filesystem::path& file) {
  const PluginRecord record = PluginFile(file).record();
  register_norms(record.file, record);  // absolute: without a slash the system would look among its own libraries
}

void load_plugin(const PluginFile& file) {
  register_norms(file.sealed_path(), file.record());
}

const std::vector<PluginRecord>& loaded_plugins() {
  return records();
}

}  // namespace norma::nn
