#include "nn/norm_factory.h"

#include "core/nearest_name.h"
#include "nn/batch_norm.h"
#include "nn/norm.h"
#include "nn/sequential.h"

#include <charconv>
#include <cmath>

namespace norma::nn {
namespace {

using Registry = std::vector<std::pair<std::string, NormDefinition>>;

// The whole text as a number, or none.
template <class T>
std::optional<T> parse_number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional<T>(value) : std::nullopt;
}

double eps_of(const NormChoice& choice, double otherwise) {
  const double eps = choice.number("eps", otherwise);
  check(std::isfinite(eps) && eps >= 0, "norm", "{}: eps: expected a number >= 0, got {}", choice.name, eps);
  return eps;
}

std::optional<double> momentum_of(const NormChoice& choice) {
  if (choice.text("momentum", "") == "none") {
    return std::nullopt;
  }
  const double momentum = choice.number("momentum", 0.1);
  check(momentum >= 0 && momentum <= 1, "norm", "{}: momentum: expected a number in [0, 1] or none, got {}",
        choice.name, momentum);
  return momentum;
}

Statistics statistics_of(const NormChoice& choice) {
  return statistics_from_string(choice.text("statistics", std::string(to_string(Statistics::stable))));
}

NormOptions norm_options(const NormChoice& choice, double eps) {
  return {.eps = eps_of(choice, eps), .statistics = statistics_of(choice)};
}

int64_t groups_of(const NormChoice& choice, int64_t channels) {
  if (choice.groups) {
    return *choice.groups;
  }
  if (choice.channels_per_group) {
    check(channels % *choice.channels_per_group == 0, "group_norm",
          "num_channels must be divisible by the channels per group, got num_channels {}, channels per group {}",
          channels, *choice.channels_per_group);
    return channels / *choice.channels_per_group;
  }
  int64_t groups = std::min<int64_t>(32, channels);
  while (channels % groups != 0) {
    --groups;
  }
  return groups;
}

std::shared_ptr<Module> make_batch(const NormChoice& choice, int64_t channels) {
  return std::make_shared<BatchNorm2d>(
      channels, BatchNormLayerOptions{
                    .eps = eps_of(choice, 1e-5), .momentum = momentum_of(choice), .statistics = statistics_of(choice)});
}

std::shared_ptr<Module> make_layer2d(const NormChoice& choice, int64_t channels) {
  return std::make_shared<LayerNorm2d>(channels, norm_options(choice, 1e-6));
}

std::shared_ptr<Module> make_group(const NormChoice& choice, int64_t channels) {
  return std::make_shared<GroupNorm>(groups_of(choice, channels), channels, norm_options(choice, 1e-5));
}

std::shared_ptr<Module> make_instance(const NormChoice& choice, int64_t channels) {
  return std::make_shared<InstanceNorm2d>(
      channels,
      InstanceNormLayerOptions{.eps = eps_of(choice, 1e-5), .affine = true, .statistics = statistics_of(choice)});
}

std::shared_ptr<Module> make_none(const NormChoice& /*choice*/, int64_t channels) {
  return std::make_shared<NoNorm>(channels);
}

Registry built_in_norms() {
  return {
      {"batch", {.make = make_batch, .options = {"eps", "momentum", "statistics"}}},
      {"layer2d", {.make = make_layer2d, .options = {"eps", "statistics"}}},
      {"group", {.make = make_group, .options = {"eps", "statistics"}, .takes_groups = true}},
      {"instance", {.make = make_instance, .options = {"eps", "statistics"}, .needs_pixels = true}},
      {"none", {.make = make_none, .options = {}}},
  };
}

Registry& registry() {
  static Registry norms = built_in_norms();
  return norms;
}

// Reads the values of the options that the built-in norms know, so that a mistake shows before anything is built.
void check_values(const NormChoice& choice) {
  if (choice.options.contains("eps")) {
    (void)eps_of(choice, 0);
  }
  if (choice.options.contains("momentum")) {
    (void)momentum_of(choice);
  }
  if (choice.options.contains("statistics")) {
    (void)statistics_of(choice);
  }
}

// "momentum=0.01,eps=1e-3"
void parse_options(const std::string& text, const std::string& inside, NormChoice& choice) {
  const NormDefinition& definition = norm_definition(choice.name);
  for (size_t start = 0; start <= inside.size();) {
    const size_t comma = std::min(inside.find(',', start), inside.size());
    const std::string entry = inside.substr(start, comma - start);
    const size_t equals = entry.find('=');
    check(equals != std::string::npos && equals > 0 && equals + 1 < entry.size(), "norm",
          "options: expected name[option=value,...], got '{}'", text);
    const std::string option = entry.substr(0, equals);
    check(!definition.options.empty(), "norm", "{}: takes no options, got '{}'", choice.name, option);
    bool known = false;
    for (const std::string& name : definition.options) {
      known = known || name == option;
    }
    check(known, "norm", "{}: {}", choice.name, unknown_name("option", option, definition.options));
    check(choice.options.emplace(option, entry.substr(equals + 1)).second, "norm", "{}: option '{}' is given twice",
          choice.name, option);
    start = comma + 1;
  }
}

}  // namespace

double NormChoice::number(const std::string& option, double otherwise) const {
  const auto found = options.find(option);
  if (found == options.end()) {
    return otherwise;
  }
  const std::optional<double> value = parse_number<double>(found->second);
  check(value.has_value(), "norm", "{}: {}: expected a number, got '{}'", name, option, found->second);
  return *value;
}

std::string NormChoice::text(const std::string& option, const std::string& otherwise) const {
  const auto found = options.find(option);
  return found == options.end() ? otherwise : found->second;
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
    check(definition.takes_groups, "norm", "{}: takes no groups, got '{}'", choice.name, head);
    const std::optional<int64_t> count = parse_number<int64_t>(head.substr(separator + 1));
    check(count && *count > 0, "norm", "{}: groups: expected a positive whole number, got '{}'", choice.name,
          head.substr(separator + 1));
    (head[separator] == ':' ? choice.groups : choice.channels_per_group) = count;
  }
  if (bracket != std::string::npos) {
    check(text.back() == ']' && bracket + 2 < text.size(), "norm", "options: expected name[option=value,...], got '{}'",
          text);
    parse_options(text, text.substr(bracket + 1, text.size() - bracket - 2), choice);
    check_values(choice);
  }
  return choice;
}

NormChoice with_default(NormChoice choice, const std::string& option, const std::string& value) {
  for (const std::string& known : norm_definition(choice.name).options) {
    if (known == option) {
      choice.options.emplace(option, value);
    }
  }
  return choice;
}

std::shared_ptr<Module> make_norm(const NormChoice& choice, int64_t channels) {
  check(channels > 0, "norm", "channels: expected a positive number, got {}", channels);
  std::shared_ptr<Module> norm = norm_definition(choice.name).make(choice, channels);
  check(norm != nullptr, "norm", "{}: expected a module from its factory, got none", choice.name);
  return norm;
}

std::shared_ptr<Module> make_norm(const std::string& text, int64_t channels) {
  return make_norm(parse_norm(text), channels);
}

std::vector<std::string> norm_names() {
  std::vector<std::string> names;
  for (const auto& [name, definition] : registry()) {
    names.push_back(name);
  }
  return names;
}

const NormDefinition& norm_definition(const std::string& name) {
  for (const auto& [known, definition] : registry()) {
    if (known == name) {
      return definition;
    }
  }
  fail("norm", "{}", unknown_name("norm", name, norm_names()));
}

void register_norm(const std::string& name, NormDefinition definition) {
  check(!name.empty() && name.find_first_of(":/[],= ") == std::string::npos, "register_norm",
        "name: expected letters without any of ':/[],= ', got '{}'", name);
  check(definition.make != nullptr, "register_norm", "make: expected a function, got none");
  for (auto& [known, old] : registry()) {
    if (known == name) {
      old = std::move(definition);
      return;
    }
  }
  registry().emplace_back(name, std::move(definition));
}

void register_norm(const std::string& name, std::function<std::shared_ptr<Module>(int64_t channels)> make) {
  check(make != nullptr, "register_norm", "make: expected a function, got none");
  const auto ignore_choice = [make = std::move(make)](const NormChoice&, int64_t channels) { return make(channels); };
  register_norm(name, NormDefinition{.make = ignore_choice, .options = {}});
}

}  // namespace norma::nn
