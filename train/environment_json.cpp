#include "train/environment.h"

#include "core/version.h"

#include "data/json.h"

namespace norma::train {

using Json = nlohmann::ordered_json;

std::string to_json(const Environment& e) {
  Json libraries = Json::object();
  for (const auto& [name, version] : e.libraries) {
    libraries[name] = version;
  }
  const Json json = {{"norma", e.norma},       {"cpu", e.cpu},
                     {"system", e.system},     {"compiler", e.compiler},
                     {"build", e.build},       {"cores", e.cores},
                     {"threads", e.threads},   {"memory", e.memory},
                     {"libraries", libraries}, {"instruction_sets", e.instruction_sets},
                     {"devices", e.devices},   {"device", e.device}};
  return data::json_text(json);
}

std::string versions_json() {
  Json versions = {{"norma", version()}};
  for (const auto& [name, number] : compute_libraries()) {
    versions[name] = number;
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
  for (const auto& library : data::json_field<std::map<std::string, std::string>>(where, json, "libraries")) {
    e.libraries.push_back(library);
  }
  return e;
}

}  // namespace norma::train
