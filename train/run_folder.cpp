#include "train/run_folder.h"

#include "core/error.h"
#include "data/safetensors.h"
#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <system_error>

namespace norma::train {

namespace {

/// True for "-1", "-1-20": the middle of a name between its beginning and its ending.
bool is_numbers(std::string_view text, int64_t count) {
  bool digit_before = false;
  for (const char c : text) {
    if (c == '-' && digit_before) {
      --count;
    } else if (c < '0' || c > '9') {
      return false;
    }
    digit_before = c != '-';
  }
  return digit_before && count == 1;
}

bool is_checkpoint_name(std::string_view name) {
  constexpr std::string_view kEnding = ".safetensors";
  if (name == kLastName || name == kBestName) {
    return true;
  }
  const auto numbered = [&](std::string_view prefix, int64_t numbers) {
    return name.starts_with(prefix) && name.ends_with(kEnding) && name.size() > prefix.size() + kEnding.size() &&
           is_numbers(name.substr(prefix.size(), name.size() - prefix.size() - kEnding.size()), numbers);
  };
  return numbered(kEpochPrefix, 1) || numbered(kRecoveryPrefix, 2);
}

bool is_last(const CheckpointFile& checkpoint) {
  return checkpoint.path.filename() == kLastName;
}

bool comes_first(const CheckpointFile& a, const CheckpointFile& b) {
  if (a.step != b.step) {
    return a.step > b.step;
  }
  return is_last(a) != is_last(b) ? is_last(a) : a.path < b.path;
}

/// True iff a file that is no checkpoint can be opened and is half-written. False: its state is unknown (permissions, a
/// failing disk), or it is whole and of another version or kind.
bool is_damaged(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::array<char, 4096> beginning{};
  if (!in.is_open() || in.read(beginning.data(), beginning.size()).bad()) {
    return false;
  }
  try {
    data::load_safetensors_metadata(file);
    return false;
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

RunFolder read_run_folder(const std::filesystem::path& folder) {
  RunFolder result;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!is_checkpoint_name(entry->path().filename().string())) {
      continue;
    }
    try {
      const Checkpoint head = load_checkpoint_metadata(entry->path());
      result.whole.push_back({.path = entry->path(), .step = head.step, .metric = head.metric});
    } catch (const Error& what) {
      result.broken.emplace(entry->path(), what.what());
    }
  }
  std::sort(result.whole.begin(), result.whole.end(), comes_first);
  return result;
}

std::filesystem::path newest_checkpoint(const std::filesystem::path& folder, std::vector<std::string>& warnings) {
  const RunFolder checkpoints = read_run_folder(folder);
  if (checkpoints.whole.empty()) {
    return folder / kLastName;
  }
  for (const auto& [file, text] : checkpoints.broken) {
    if (!is_damaged(file)) {  // it may be the newest: going on from an older one would lose its work
      throw Error(
          fmt::format("{}; to go on from another one all the same, resume that by its name ('{}' is at step {})", text,
                      checkpoints.whole.front().path.string(), checkpoints.whole.front().step));
    }
    warnings.push_back(text);
  }
  return checkpoints.whole.front().path;
}

void check_checkpoints_are_kept(const std::filesystem::path& folder, const std::filesystem::path& resumed,
                                int64_t step) {
  constexpr const char* kOp = "train";
  std::error_code none;
  const std::filesystem::path from = resumed.has_parent_path() ? resumed.parent_path() : ".";
  const bool same_folder = !resumed.empty() && std::filesystem::equivalent(from, folder, none);
  const RunFolder there = read_run_folder(folder);
  if (same_folder) {
    if (!there.whole.empty() && there.whole.front().step > step) {
      fail(kOp,
           "'{}' is at step {}, and '{}', at step {}, would be written over: resume that, or choose another output "
           "folder",
           resumed.string(), step, there.whole.front().path.string(), there.whole.front().step);
    }
    return;
  }
  if (!there.whole.empty() || !there.broken.empty()) {
    fail(kOp, "'{}' is the checkpoint of another run: resume it, or choose another output folder",
         (there.whole.empty() ? there.broken.begin()->first : there.whole.front().path).string());
  }
}

}  // namespace norma::train
