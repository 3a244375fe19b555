#include "nn/norm_policy.h"

#include "core/error.h"
#include "nn/convert.h"
#include "nn/module.h"
#include "nn/norm.h"
#include "nn/norm_factory.h"

#include <fmt/format.h>
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <fnmatch.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

namespace norma::nn {
namespace {

std::string at(const std::string& source, const toml::source_region& region) {
  return fmt::format("{}:{}:{}", source, region.begin.line, region.begin.column);
}

toml::table parse_toml(std::string_view text, const std::string& source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    fail("norm policy", "{}: {}", at(source, error.source()), error.description());
  }
}

bool matches(const std::string& pattern, const std::string& path) {
  return fnmatch(pattern.c_str(), path.c_str(), 0) == 0;
}

}  // namespace

NormPolicy parse_norm_policy(std::string_view text, const std::string& source) {
  NormPolicy policy{.source = source, .rules = {}};
  std::vector<std::pair<toml::source_position, NormRule>> rules;
  const toml::table table = parse_toml(text, source);
  for (const auto& [key, node] : table) {
    const std::string place = at(source, node.source());
    const std::optional<std::string> norm = node.value_exact<std::string>();
    check(norm.has_value(), "norm policy", "{}: '{}': expected a norm spec such as \"group:32\", got another type",
          place, key.str());
    try {
      parse_norm(*norm);
    } catch (const Error& error) {
      fail("norm policy", "{}: '{}': {}", place, key.str(), error.what());
    }
    rules.emplace_back(node.source().begin, NormRule{.pattern = std::string(key.str()),
                                                     .norm = *norm,
                                                     .line = static_cast<int64_t>(node.source().begin.line)});
  }
  check(!rules.empty(), "norm policy", "{}: expected lines \"pattern\" = \"norm\", got none", source);
  // A TOML table is sorted by name; the order of the file is what counts here.
  std::sort(rules.begin(), rules.end(), [](const auto& a, const auto& b) {
    return a.first.line != b.first.line ? a.first.line < b.first.line : a.first.column < b.first.column;
  });
  for (auto& [position, rule] : rules) {
    policy.rules.push_back(std::move(rule));
  }
  return policy;
}

std::string read_norm_policy(const std::filesystem::path& file) {
  std::ifstream in(file);
  // A folder opens like a file, and fails only when it is read.
  check(in.good() && !std::filesystem::is_directory(file), "norm policy", "cannot read '{}'", file.string());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

int64_t apply_norm_policy(Module& model, const NormPolicy& policy,
                          const std::vector<std::pair<std::string, std::string>>& defaults) {
  std::map<std::string, const NormRule*> chosen;
  std::vector<std::string> layers;
  for (const auto& [path, module] : model.replaceable_modules()) {
    const auto* norm = dynamic_cast<const Norm*>(module);
    if (norm != nullptr && norm->channels() > 0) {
      layers.push_back(path);
    }
  }
  for (const NormRule& rule : policy.rules) {
    bool used = false;
    for (const std::string& path : layers) {
      if (matches(rule.pattern, path)) {
        chosen[path] = &rule;
        used = true;
      }
    }
    check(used, "norm policy", "{}:{}: '{}': expected the name of a norm layer, got none of {}", policy.source,
          rule.line, rule.pattern,
          layers.empty() ? "them: the model has no norms" : fmt::format("{}", fmt::join(layers, ", ")));
  }
  // All of them before the first is put in: groups may not divide the channels.
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> replacements;
  for (const auto& [path, module] : model.replaceable_modules()) {
    const auto found = chosen.find(path);
    if (found == chosen.end()) {
      continue;
    }
    NormChoice choice = parse_norm(found->second->norm);
    for (const auto& [option, value] : defaults) {
      choice = with_default(choice, option, value);
    }
    try {
      replacements.emplace_back(path, converted_norm(model, dynamic_cast<const Norm&>(*module), choice));
    } catch (const Error& error) {
      fail("norm policy", "{}:{}: '{}': {}: {}", policy.source, found->second->line, found->second->pattern, path,
           error.what());
    }
  }
  for (auto& [path, norm] : replacements) {
    model.replace_module(path, std::move(norm));
  }
  return static_cast<int64_t>(replacements.size());
}

}  // namespace norma::nn
