#include "nn/norm/factory.h"

#include "base/excerpt.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "base/parse_number.h"
#include "core/factory.h"
#include "core/tape.h"
#include "nn/norm/options.h"

#include <algorithm>
#include <iterator>

namespace norma::nn {
namespace {

bool new_norms_only = false;

/// The collection of complete_choice(): each option that a layer has read, with the value that it got.
thread_local std::map<std::string, std::string>* read_options = nullptr;

template <class T>
T noted(const std::string& option, const T& value) {
  if (read_options != nullptr) {
    (*read_options)[option] = fmt::format("{}", value);
  }
  return value;
}

NormRegistry& registry() {
  static NormRegistry norms = built_in_norms();
  return norms;
}

// Parses "momentum=0.01,eps=1e-3".
void parse_options(const std::string& text, const std::string& inside, NormChoice& choice) {
  const NormDefinition& definition = norm_definition(choice.name);
  for (size_t start = 0; start <= inside.size();) {
    const size_t comma = std::min(inside.find(',', start), inside.size());
    const std::string entry = inside.substr(start, comma - start);
    const size_t equals = entry.find('=');
    check(equals != std::string::npos && equals > 0 && equals + 1 < entry.size(), "norm",
          "options: expected name[option=value,...], got '{}'", excerpt(text));
    const std::string option = entry.substr(0, equals);
    check(!definition.options.empty(), "norm", "{}: takes no options, got '{}'", choice.name, excerpt(option));
    check(is_in(definition.options, option), "norm", "{}: {}", choice.name,
          unknown_name("option", option, definition.options));
    check(choice.options.emplace(option, entry.substr(equals + 1)).second, "norm", "{}: option '{}' is given twice",
          choice.name, option);
    start = comma + 1;
  }
}

}  // namespace

double NormChoice::number(const std::string& option, double otherwise) const {
  const auto found = options.find(option);
  if (found == options.end()) {
    return noted(option, otherwise);
  }
  const std::optional<double> value = parse_number<double>(found->second);
  check(value.has_value(), "norm", "{}: {}: expected a number, got '{}'", name, option, excerpt(found->second));
  return noted(option, *value);
}

int64_t NormChoice::count(const std::string& option, int64_t otherwise) const {
  const std::string given = text(option, std::to_string(otherwise));
  const std::optional<int64_t> value = parse_number<int64_t>(given);
  check(value && *value > 0, "norm", "{}: {}: expected a positive whole number, got '{}'", name, option,
        excerpt(given));
  return noted(option, *value);
}

bool NormChoice::flag(const std::string& option, bool otherwise) const {
  const std::string given = text(option, otherwise ? "true" : "false");
  check(given == "true" || given == "false", "norm", "{}: {}: expected true or false, got '{}'", name, option,
        excerpt(given));
  return noted(option, given == "true");
}

std::string NormChoice::text(const std::string& option, const std::string& otherwise) const {
  const auto found = options.find(option);
  return noted(option, found == options.end() ? otherwise : found->second);
}

std::string to_string(const NormChoice& choice) {
  std::string text = choice.name;
  if (choice.groups) {
    text += fmt::format(":{}", *choice.groups);
  }
  if (choice.channels_per_group) {
    text += fmt::format("/{}", *choice.channels_per_group);
  }
  std::string options;
  for (const auto& [option, value] : choice.options) {
    options += fmt::format("{}{}={}", options.empty() ? "" : ",", option, value);
  }
  return options.empty() ? text : fmt::format("{}[{}]", text, options);
}

NormChoice parse_norm(const std::string& text) {
  NormChoice choice;
  const size_t bracket = text.find('[');
  const std::string head = text.substr(0, bracket);
  const size_t separator = head.find_first_of(":/");
  choice.name = head.substr(0, separator);
  const NormDefinition& definition = norm_definition(choice.name);
  if (separator != std::string::npos) {
    check(definition.takes_groups, "norm", "{}: takes no groups, got '{}'", choice.name, excerpt(head));
    const std::optional<int64_t> count = parse_number<int64_t>(head.substr(separator + 1));
    check(count && *count > 0, "norm", "{}: groups: expected a positive whole number, got '{}'", choice.name,
          excerpt(head.substr(separator + 1)));
    (head[separator] == ':' ? choice.groups : choice.channels_per_group) = count;
  }
  if (bracket != std::string::npos) {
    check(text.back() == ']' && bracket + 2 < text.size(), "norm", "options: expected name[option=value,...], got '{}'",
          excerpt(text));
    parse_options(text, text.substr(bracket + 1, text.size() - bracket - 2), choice);
  }
  const int64_t least = least_channels(choice);
  check(least <= kMostChannels, "norm", "{}: groups: expected a whole number from 1 to {}, got {}", choice.name,
        kMostChannels, least);
  if (definition.check) {
    definition.check(choice);
  }
  return choice;
}

NormChoice with_default(NormChoice choice, const std::string& option, const std::string& value) {
  if (is_in(norm_definition(choice.name).options, option)) {
    choice.options.emplace(option, value);
  }
  return choice;
}

NormChoice complete_choice(const NormChoice& choice) {
  struct Collect {
    std::map<std::string, std::string> options;
    Collect() { read_options = &options; }
    ~Collect() { read_options = nullptr; }
  } collect;
  make_norm(choice, least_channels(choice));
  NormChoice complete = choice;
  complete.options.merge(collect.options);  // options that were given and not read stay
  for (auto& [option, value] : complete.options) {
    const auto read = collect.options.find(option);
    value = read == collect.options.end() ? value : read->second;
  }
  return complete;
}

std::shared_ptr<Module> make_norm(const NormChoice& choice, int64_t channels) {
  check(channels > 0, "norm", "channels: expected a positive number, got {}", channels);
  const auto make = norm_definition(choice.name).make;  // a copy: what it calls may register the norm anew
  std::shared_ptr<Module> norm = make(choice, channels);
  check(norm != nullptr, "norm", "{}: expected a module from its factory, got none", choice.name);
  return norm;
}

std::shared_ptr<Module> make_norm(const std::string& text, int64_t channels) {
  return make_norm(parse_norm(text), channels);
}

bool has_lazy_norms() {
  return std::any_of(registry().begin(), registry().end(), [](const auto& norm) { return norm.second.lazy; });
}

void make_lazy_parameters(Module& network, const Sizes& images) {
  Sizes one = images;
  one[0] = 1;
  const NoGradGuard guard;
  const Modes modes(network);
  network.eval();
  network(zeros(one));
}

std::vector<std::string> norm_names() {
  return mapped(registry(), [](const auto& norm) { return norm.first; });
}

const NormDefinition& norm_definition(const std::string& name) {
  for (const auto& [known, definition] : registry()) {
    if (known == name) {
      return definition;
    }
  }
  fail("norm", "{}", unknown_name("norm", name, norm_names()));
}

NewNormsOnly::NewNormsOnly() : Temporarily(new_norms_only, true) {}

void register_norm(const std::string& name, NormDefinition definition) {
  check(!name.empty() && name.find_first_of(":/[],= ") == std::string::npos, "register_norm",
        "name: expected letters without any of ':/[],= ', got '{}'", name);
  check(definition.make != nullptr, "register_norm", "make: expected a function, got none");
  NormRegistry& norms = registry();
  const auto known = std::ranges::find(norms, name, &NormRegistry::value_type::first);
  if (known == norms.end()) {
    norms.emplace_back(name, std::move(definition));
    return;
  }
  const bool built_in = known - norms.begin() < std::ssize(built_in_norms());  // which come first
  check(!built_in, "register_norm", "name: expected one that is not built in, got '{}'", name);
  check(!new_norms_only, "register_norm", "name: expected one that is not taken, got '{}'", name);
  known->second = std::move(definition);
}

void register_norm(const std::string& name, std::function<std::shared_ptr<Module>(int64_t channels)> make) {
  check(make != nullptr, "register_norm", "make: expected a function, got none");
  const auto ignore_choice = [make = std::move(make)](const NormChoice&, int64_t channels) { return make(channels); };
  register_norm(name, NormDefinition{.make = ignore_choice, .options = {}});
}

}  // namespace norma::nn
