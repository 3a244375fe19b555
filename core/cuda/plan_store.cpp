#include "core/cuda/plan_store.h"

#include "base/error.h"

#include <cstdlib>
#include <fstream>
#include <system_error>
#include <utility>

namespace norma::cuda {

namespace {

constexpr const char* kEnd = "end";

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

PlanStore::PlanStore(std::filesystem::path file) : file_(std::move(file)) {
  read();
}

void PlanStore::read() {
  std::ifstream in(file_);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find('\t');
    const size_t second = first == std::string::npos ? first : line.find('\t', first + 1);
    if (second != std::string::npos && line.substr(second + 1) == kEnd) {
      choices_.try_emplace(line.substr(0, first), line.substr(first + 1, second - first - 1));
    }
  }
}

std::optional<std::string> PlanStore::find(const std::string& key) const {
  const auto found = choices_.find(key);
  return found == choices_.end() ? std::nullopt : std::optional(found->second);
}

std::string PlanStore::add(const std::string& key, const std::string& value) {
  for (const std::string& text : {key, value}) {
    check(text.find_first_of("\t\n") == std::string::npos, "plan_store", "expected a text of one line, got '{}'", text);
  }
  if (!file_.empty()) {
    std::error_code ignored;
    std::filesystem::create_directories(file_.parent_path(), ignored);
    // A line end in front: the line before may have been cut off. What others wrote before it is read then.
    std::ofstream(file_, std::ios::app) << "\n" + key + "\t" + value + "\t" + kEnd + "\n" << std::flush;
    read();
  }
  return choices_.try_emplace(key, value).first->second;
}

std::filesystem::path PlanStore::file_in_cache(const std::string& name) {
  if (const std::filesystem::path folder = from_environment("XDG_CACHE_HOME"); !folder.empty()) {
    return folder / "norma" / name;
  }
  if (const std::filesystem::path home = from_environment("HOME"); !home.empty()) {
    return home / ".cache" / "norma" / name;
  }
  return {};
}

}  // namespace norma::cuda
