#include "train/environment.h"

#include <nlohmann/json.hpp>

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
                     {"devices", e.devices}};
  return json.dump();
}

Environment environment_from_json(const std::string& text) {
  const Json json = Json::parse(text);
  Environment e;
  json.at("norma").get_to(e.norma);
  json.at("cpu").get_to(e.cpu);
  json.at("system").get_to(e.system);
  json.at("compiler").get_to(e.compiler);
  json.at("build").get_to(e.build);
  json.at("cores").get_to(e.cores);
  json.at("threads").get_to(e.threads);
  json.at("memory").get_to(e.memory);
  json.at("instruction_sets").get_to(e.instruction_sets);
  json.at("devices").get_to(e.devices);
  for (const auto& [name, version] : json.at("libraries").items()) {
    e.libraries.emplace_back(name, version.get<std::string>());
  }
  return e;
}

}  // namespace norma::train
