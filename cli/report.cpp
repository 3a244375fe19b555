#include "base/input_file.h"
#include "base/lists.h"
#include "cli/command.h"
#include "cli/options.h"
#include "lab/report/merged.h"
#include "session/output.h"

#include <optional>
#include <system_error>

namespace norma::cli {

namespace {

struct State {
  std::vector<std::string> folders;
  std::string output;
};

lab::Parts load_report(const std::filesystem::path& folder) {
  check(train::is_folder("report", folder), "report", "'{}': expected the folder of a comparison", folder.string());
  const std::filesystem::path file = folder / "results.json";
  constexpr uint64_t kMaxBytes = uint64_t{256} << 20;  // ten million steps
  return lab::parts_from_json(read_text_file("report", file, kMaxBytes), "report: " + file.string());
}

/// Folders by their real paths, so that "." has a name, too.
std::vector<std::filesystem::path> real_paths(const std::vector<std::string>& folders) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& folder : folders) {
    std::error_code none;
    std::filesystem::path path = std::filesystem::weakly_canonical(folder, none);
    paths.push_back(none ? std::filesystem::path(folder) : std::move(path));
  }
  return paths;
}

/// True iff the folder holds only files of a report that was killed. It lacks results.json, which a report writes last
/// and a comparison first.
bool is_left_by_kill(const std::filesystem::path& folder) {
  return train::path_exists("report", folder / train::kLockName) &&
         train::holds_only(folder, {train::kLockName, "results.csv", "report.html", "report.md", "results.json."});
}

int run(const State& state) {
  check(!state.folders.empty(), "report", "expected the folder of a comparison, or several");
  check(state.folders.size() == 1 || !state.output.empty(), "report",
        "--output: expected the folder of the merged report, got nothing");
  const std::filesystem::path output = state.output.empty() ? state.folders.front() : state.output;
  const bool left = !state.output.empty() && is_left_by_kill(output);
  const auto check_free = [&] {
    train::check_free("report", output, {"results.json"});
    if (!left) {
      train::check_free("report", output, {"results.csv", "report.html", "report.md"});
    }
  };
  std::optional<train::FolderLock> lock;
  if (state.output.empty()) {
    check(train::is_folder("report", output), "report", "'{}': expected the folder of a comparison", output.string());
    lock.emplace("report", output);  // locked before reading: a comparison running there would overwrite it
  } else {
    check_free();
  }
  std::vector<lab::Parts> reports = mapped(state.folders, load_report);
  const lab::Parts parts =
      reports.size() == 1 ? std::move(reports.front()) : lab::merged(real_paths(state.folders), std::move(reports));
  if (!lock) {  // only now, so that a mistake leaves no folder
    train::make_output_folder("report", output);
    lock.emplace("report", output);
    check_free();  // another process may have written since
  }
  try {
    lab::write_report(parts, *lock);
  } catch (...) {  // a full disk
    for (const char* name : {"results.csv", "report.html", "report.md"}) {
      std::error_code none;
      if (!state.output.empty()) {
        std::filesystem::remove(output / name, none);
      }
    }
    throw;
  }
  const lab::Comparison& first = parts.front().comparison;
  if (state.folders.size() > 1 && static_cast<int64_t>(first.parts.size()) < first.part_count) {
    train::warn("report", "{}", lab::parts_note(first));
  }
  train::say("{}\nreport: {}\n", lab::to_table(parts), train::shown(output / "report.html"));
  return kSuccess;
}

}  // namespace

Command add_report(CLI::App& program) {
  CLI::App& app = add_subcommand(program, "report");
  auto state = std::make_shared<State>();
  add_words(app, "DIR", state->folders, "folders of comparisons, or of merged ones");
  add_path(app, "--output", state->output, "folder for the report",
           {.value = "FOLDER", .otherwise = "the folder itself, of one comparison"});
  return {&app, [state] { return run(*state); }};
}

}  // namespace norma::cli
