#include "cli/program.h"
#include "core/random.h"
#include "metrics_log.h"
#include "session/run_folder.h"
#include "train/checkpoint.h"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>

using namespace norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr int kKills = 12;  // a start takes several times as long
#else
constexpr int kKills = 50;
#endif
/// How many of them must leave a half-written checkpoint behind.
constexpr int kHalfWritten = kKills / 10 + 1;

/// Twelve images for training and four for testing.
void write_idx(const std::filesystem::path& folder) {
  for (const auto& [name, count] : {std::pair<std::string, uint32_t>{"train", 12}, {"t10k", 4}}) {
    std::string pixels;
    std::string labels;
    for (uint32_t i = 0; i < count; ++i) {
      for (uint32_t k = 0; k < 28 * 28; ++k) {
        pixels.push_back(static_cast<char>((i * 37 + k * k % 251) % 256));
      }
      labels.push_back(static_cast<char>(i % 2));
    }
    test::write_file(folder / (name + "-images-idx3-ubyte"), test::idx_bytes({count, 28, 28}, pixels));
    test::write_file(folder / (name + "-labels-idx1-ubyte"), test::idx_bytes({count}, labels));
  }
}

/// All files of a run by their names, the log without its column of times.
std::map<std::string, std::string> files_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name != ".norma-lock") {
      files[name] = name == "metrics.csv" ? test::without_times(read_file(entry.path())) : read_file(entry.path());
    }
  }
  return files;
}

uintmax_t size_of_file(const std::filesystem::path& file) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(file, error);
  return error ? 0 : size;
}

/// Names of checkpoints that are not whole: those that are being written, and those that a kill has left.
std::set<std::string> half_written_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.find(".safetensors.") != std::string::npos && name.ends_with(".tmp")) {
      names.insert(name);
    }
  }
  return names;
}

/// The first name that is in `after` alone; none: "".
std::string new_name(const std::set<std::string>& before, const std::set<std::string>& after) {
  const auto found =
      std::find_if(after.begin(), after.end(), [&](const std::string& name) { return !before.contains(name); });
  return found == after.end() ? "" : *found;
}

/// Counts how often a file has been replaced by another one.
class Replacements {
 public:
  explicit Replacements(std::filesystem::path file) : file_(std::move(file)), last_(current()) {}
  int64_t count() {
    if (const auto now = current(); now != last_) {
      last_ = now;
      ++count_;
    }
    return count_;
  }

 private:
  struct Version {
    ino_t inode = 0;
    int64_t seconds = 0;
    int64_t nanoseconds = 0;
    bool operator==(const Version&) const = default;
  };
  [[nodiscard]] Version current() const {
    struct stat status {};
    return ::stat(file_.c_str(), &status) == 0 ? Version{status.st_ino, status.st_mtim.tv_sec, status.st_mtim.tv_nsec}
                                               : Version{};
  }

  std::filesystem::path file_;
  Version last_;
  int64_t count_ = 0;
};

/// Starts the program and sends it SIGKILL as soon as `now()` is true, unless it has ended by then.
Outcome kill_when(const std::filesystem::path& folder, const std::string& arguments, const std::function<bool()>& now) {
  const pid_t program = test::start_norma(folder, arguments);
  int status = 0;
  bool killed = false;
  while (::waitpid(program, &status, killed ? 0 : WNOHANG) == 0) {
    if (now()) {
      ::kill(program, SIGKILL);
      killed = true;
    } else {
      ::sched_yield();  // a checkpoint of megabytes is written in a millisecond or two
    }
  }
  return test::outcome_in(folder, status);
}

/// A moment drawn at random of a run in `output` that is about to start: progress decides, and no clock.
std::function<bool()> draw_moment(Generator& random, const std::filesystem::path& output, uintmax_t checkpoint_bytes) {
  auto saved = std::make_shared<Replacements>(output / "last.safetensors");
  const auto checkpoints = static_cast<int64_t>(random.below(4));
  switch (random.below(3)) {
    case 0: {  // while a checkpoint is written: when it has so many bytes
      const uintmax_t bytes = 1 + random.below(checkpoint_bytes - 1);
      return [=, before = half_written_in(output)] {
        const std::string name = new_name(before, half_written_in(output));
        return saved->count() >= checkpoints && !name.empty() && size_of_file(output / name) >= bytes;
      };
    }
    case 1:  // when one has just got its name
      return [=] { return saved->count() > checkpoints; };
    default: {  // when the log has so many bytes more, anywhere between two checkpoints
      const uintmax_t bytes = size_of_file(output / "metrics.csv") + random.below(800);
      return [=] { return size_of_file(output / "metrics.csv") >= bytes; };
    }
  }
}

void remove_line(std::string& text, const std::string& line) {
  const size_t at = text.find(line);
  REQUIRE(at != std::string::npos);
  text.erase(at, line.size());
}

}  // namespace

TEST_CASE("norma train: killed at random moments, weights, averages and optimizer have the bits of a whole run") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "d");
  write_idx(folder / "d");
  const std::string plugin = (test::plugin_folder() / "tiny_network.so").string();
  const std::string run =
      "train --model tiny_network --dataset idx --data-dir d --batch-size 4 --epochs 30 --model-ema "
      "--random-crop 2 --reprob 0.5 --mixup 0.2 --quiet --threads 1 --log-interval 1 --checkpoint-hist 2 "
      "--recovery-interval 4 --plugin " +
      plugin;
  const Outcome whole = run_norma(folder.path(), run + " --workers 1 --output whole");
  REQUIRE_MESSAGE(whole.code == 0, whole.err);
  const std::map<std::string, std::string> expected = files_of(folder / "whole");
  const train::Checkpoint checkpoint = train::load_checkpoint(folder / "whole/last.safetensors");
  REQUIRE(checkpoint.step == 90);
  REQUIRE(checkpoint.ema.size() == checkpoint.model.size());
  REQUIRE(checkpoint.optimizer.size() > checkpoint.model.size());  // two moments of each parameter, and the step
  REQUIRE(checkpoint.generator_offset > 0);
  REQUIRE(expected.size() == 9);  // last, the best, two of an epoch, two for recovery, two logs, options

  Generator random(20261123);
  int kills = 0;
  int half_written = 0;
  for (int number = 0; kills < kKills || half_written < kHalfWritten; ++number) {
    const std::filesystem::path cut = folder / std::to_string(number);
    Outcome last{.code = 128 + SIGKILL};
    while (last.code == 128 + SIGKILL) {
      const bool begun = !train::read_run_folder(cut).whole.empty();
      // Whoever resumes it says nothing: it goes on as it began.
      const std::string start = begun ? "train --quiet --resume " + cut.filename().string()
                                      : run + " --workers 4 --output " + cut.filename().string();
      const bool enough = kills >= kKills && half_written >= kHalfWritten;
      const auto moment = draw_moment(random, cut, expected.at("last.safetensors").size());
      const std::set<std::string> before = half_written_in(cut);
      last = kill_when(folder.path(), start, [&] { return !enough && moment(); });
      kills += last.code == 128 + SIGKILL ? 1 : 0;
      half_written += new_name(before, half_written_in(cut)).empty() ? 0 : 1;
      REQUIRE(kills < 20 * kKills);
      CHECK(train::read_run_folder(cut).broken.empty());
    }
    REQUIRE_MESSAGE(last.code == 0, last.err);
    std::map<std::string, std::string> got = files_of(cut);
    remove_line(got.at("args.toml"), "workers = 4\n");
    CHECK(got.size() == expected.size());  // whoever writes a name next removes what was left half-written
    for (const auto& [name, bytes] : expected) {
      CHECK_MESSAGE((got.contains(name) && got.at(name) == bytes), name);
    }
    std::filesystem::remove_all(cut);
  }
  MESSAGE(kills, " kills, ", half_written, " of them in the middle of a checkpoint");
}
