#include "train/environment.h"

#include "core/error.h"
#include "core/excerpt.h"
#include "core/version.h"
#include "data/json.h"
#include "ops/conv/conv.h"

namespace norma::train {

using Json = nlohmann::ordered_json;

namespace {

Json plugins_to_json(const std::vector<nn::PluginRecord>& plugins) {
  Json list = Json::array();
  for (const nn::PluginRecord& plugin : plugins) {
    list.push_back({{"file", plugin.file}, {"sha256", plugin.sha256}, {"norms", plugin.norms}});
  }
  return list;
}

}  // namespace

std::string to_json(const Environment& e) {
  Json libraries = Json::object();
  for (const auto& [name, version] : e.libraries) {
    libraries[name] = version;
  }
  Json json = {{"norma", e.norma},       {"cpu", e.cpu},
               {"system", e.system},     {"compiler", e.compiler},
               {"build", e.build},       {"cores", e.cores},
               {"threads", e.threads},   {"memory", e.memory},
               {"libraries", libraries}, {"instruction_sets", e.instruction_sets},
               {"devices", e.devices},   {"device", e.device}};
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
  std::vector<nn::PluginRecord> plugins;
  for (const nlohmann::json& one : list) {
    plugins.push_back({.file = data::json_field<std::string>(where, one, "file"),
                       .sha256 = data::json_field<std::string>(where, one, "sha256"),
                       .norms = data::json_field<std::vector<std::string>>(where, one, "norms")});
  }
  return plugins;
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
  if (conv2d_is_exact()) {
    versions["conv"] = "exact";
  }
  return data::json_text(versions);
}

Environment environment_from_json(const std::string& text, const std::string& where) {
  const nlohmann::json json = data::parse_json(where, "the environment", text);
  Environment e;
  const auto read = [&]<class T>(const char* name, T& value) { value = data::json_field<T>(where, json, name); };
  read("norma", e.norma);
  read("cpu", e.cpu);
  read("system", e.system);
  read("compiler", e.compiler);
  read("build", e.build);
  read("cores", e.cores);
  read("threads", e.threads);
  read("memory", e.memory);
  read("instruction_sets", e.instruction_sets);
  read("devices", e.devices);
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
  for (const auto& library : data::json_field<std::map<std::string, std::string>>(where, json, "libraries")) {
    e.libraries.push_back(library);
  }
  return e;
}

}  // namespace norma::train
