#include "cli/missing_plugin.h"

#include "cli/config_file.h"
#include "cli/option.h"
#include "core/error.h"
#include "core/excerpt.h"
#include "lab/report/repeat_command.h"
#include "nn/norm/factory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace norma::cli {

void check_norm_is_loaded(std::string_view op, const std::string& norm, const std::vector<std::string>& plugins) {
  const std::string name = norm.substr(0, norm.find_first_of(":["));
  const std::vector<std::string> known = nn::norm_names();
  if (norm.empty() || plugins.empty() || std::ranges::find(known, name) != known.end()) {
    return;
  }
  fail(op, "norm '{}' comes from a plug-in, which is not loaded: add --plugin {}", excerpt(name),
       lab::shell_word(excerpt(fmt::format("{}", fmt::join(plugins, ",")), 1000)));
}

std::vector<std::string> plugins_beside(const std::filesystem::path& checkpoint) {
  try {
    for (const ConfigLine& line : read_config("args.toml", checkpoint.parent_path() / "args.toml")) {
      if (line.name == "plugin") {
        return split_list(line.value);
      }
    }
  } catch (const Error&) {  // there is none, or nobody's: it says nothing
  }
  return {};
}

}  // namespace norma::cli
