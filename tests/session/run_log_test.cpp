#include "session/run_log.h"
#include "file_size_limit.h"
#include "train/two_classes.h"

#include "base/error.h"
#include "core/parallel.h"
#include "files.h"
#include "json.h"
#include "session/progress.h"
#include "session/trainer.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

using namespace norma;
using namespace norma::train;
using test::error_of;
using test::read_file;
using test::TemporaryFolder;
using test::write_file;

namespace {

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  std::istringstream in(read_file(file));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

/// The cells of a row of a CSV file.
std::vector<std::string> cells_of(const std::string& row) {
  std::istringstream in(row);
  std::vector<std::string> cells;
  for (std::string cell; std::getline(in, cell, ',');) {
    cells.push_back(cell);
  }
  return cells;
}

/// What time it is in the tests of the loading warning.
double fake_time = 0;

/// Twelve black images of two classes, each of which takes 10 ms of the fake time.
class SlowImages final : public test::TwoClasses {
 public:
  SlowImages() : TwoClasses("slow_images", 12, 32) {}
  int64_t load(int64_t index, data::Image& image) const override {
    image.set_size(info().height, info().width, info().channels);
    std::fill(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t>(10 * index));
    fake_time += 0.01;
    return index % 2;
  }
};

/// Epochs of six steps of two images.
Recipe slow_images(int64_t images) {
  static const bool known = [] {
    data::register_dataset("slow_images", "a test's",
                           [](const data::DatasetOptions&) { return std::make_shared<SlowImages>(); });
    return true;
  }();
  REQUIRE(known);
  Recipe recipe;
  recipe.model = "convnext_atto";
  recipe.patch_size = 4;
  recipe.dataset = "slow_images";
  recipe.opt = "sgd";
  recipe.batch_size = 2;
  recipe.images = images;
  return recipe;
}

/// A whole evaluation.
Evaluation tested(double loss, double accuracy) {
  return {.accuracy = accuracy, .loss = loss, .complete = true};
}

/// What a run says whose steps take `seconds` of the fake time beside loading.
std::string said_by_run(double seconds, const std::filesystem::path& folder) {
  const int threads = num_threads();
  set_num_threads(1);
  TrainerOptions options{.output = folder, .workers = 0, .log_interval = 0, .evaluate = false};
  options.clock = [] { return fake_time; };
  options.before_stage = [seconds](std::string_view stage) { fake_time += stage == "step" ? seconds : 0; };
  std::fflush(stdout);
  const int kept = ::dup(STDOUT_FILENO);
  const std::filesystem::path file = folder / "said.txt";
  std::filesystem::create_directories(folder);
  REQUIRE(std::freopen(file.c_str(), "w", stdout) != nullptr);
  Trainer(slow_images(60), options).run();
  std::fflush(stdout);
  ::dup2(kept, STDOUT_FILENO);
  ::close(kept);
  set_num_threads(threads);
  return read_file(file);
}

}  // namespace

TEST_CASE("run log: summary.csv has timm's columns, a row per epoch, and log.jsonl each row as an object") {
  const TemporaryFolder folder;
  const int threads = num_threads();
  set_num_threads(1);
  Recipe recipe = slow_images(20);  // an epoch of six steps and four steps of another
  recipe.sched = "constant";
  recipe.lr = 0.125;
  Trainer trainer(recipe, {.output = folder / "o", .workers = 0, .log_interval = 4, .log_json = true, .quiet = true});
  const TrainResult result = trainer.run();
  set_num_threads(threads);
  REQUIRE(result.losses.size() == 10);

  const std::vector<std::string> rows = lines_of(folder / "o/summary.csv");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0] == "epoch,train_loss,eval_loss,eval_top1,eval_top5,lr");
  const std::vector<std::string> first = cells_of(rows[1]);
  const std::vector<std::string> second = cells_of(rows[2]);
  REQUIRE(first.size() == 6);
  REQUIRE(second.size() == 6);
  CHECK(first[0] == "0");
  CHECK(second[0] == "1");
  const auto mean = [&](size_t from, size_t to) {
    return std::accumulate(result.losses.begin() + static_cast<std::ptrdiff_t>(from),
                           result.losses.begin() + static_cast<std::ptrdiff_t>(to), 0.0) /
           static_cast<double>(to - from);
  };
  CHECK(std::stod(first[1]) == doctest::Approx(mean(0, 6)).epsilon(1e-12));
  CHECK(std::stod(second[1]) == doctest::Approx(mean(6, 10)).epsilon(1e-12));
  CHECK(std::stod(second[2]) == result.test.loss);
  CHECK(std::stod(second[3]) == doctest::Approx(100 * result.test.accuracy));
  CHECK(second[4] == "100");  // of two classes
  CHECK(first[5] == "0.125");

  // metrics.csv: steps 4, 6, 8 and 10.
  const std::vector<std::string> metrics = lines_of(folder / "o/metrics.csv");
  const std::vector<std::string> names = cells_of(metrics.at(0));
  size_t row = 0;
  size_t epochs = 0;
  double last_epoch = 0;
  for (const std::string& line : lines_of(folder / "o/log.jsonl")) {
    const nlohmann::json object = test::parse_json(line);
    if (object["type"] == "epoch") {
      ++epochs;
      CHECK(object["epoch"] == static_cast<int64_t>(epochs));  // from 1: that of the row before, but for its fraction
      CHECK(object["epoch"] == std::ceil(last_epoch));
      CHECK(object["train_loss"] == std::stod(cells_of(rows.at(epochs)).at(1)));
      CHECK(object["step"] == (epochs == 1 ? 6 : 10));
      continue;
    }
    CHECK(object["type"] == "metrics");
    last_epoch = object["epoch"].get<double>();
    const std::vector<std::string> cells = cells_of(metrics.at(++row));
    for (size_t i = 0; i < cells.size(); ++i) {
      if (!cells[i].empty() && names[i] != "images_per_second" && names[i] != "epoch") {
        CHECK(object.at(names[i]).get<double>() == std::stod(cells[i]));
      }
    }
    CHECK(object.contains("test_loss") == (row == 2 || row == 4));
  }
  CHECK(row == 4);
  CHECK(epochs == 2);
}

TEST_CASE("run log: what is not finite is null, and a line that was cut is dropped") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "o");
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  {
    RunLog log({.folder = folder / "o", .json = true});
    log.write({.step = 2, .loss = 1});
    log.write({.step = 4, .epoch = 1, .loss = 1, .test = tested(nan, 0.5), .epoch_loss = nan});
  }
  const std::string whole = read_file(folder / "o/log.jsonl");
  CHECK(whole ==
        "{\"type\": \"metrics\", \"step\": 2, \"epoch\": 0, \"images\": 0, \"lr\": 0, \"loss\": 1, "
        "\"images_per_second\": 0}\n"
        "{\"type\": \"metrics\", \"step\": 4, \"epoch\": 1, \"images\": 0, \"lr\": 0, \"loss\": 1, "
        "\"images_per_second\": 0, \"test_loss\": null, \"test_accuracy\": 0.5}\n"
        "{\"type\": \"epoch\", \"step\": 4, \"epoch\": 1, \"train_loss\": null, \"eval_loss\": null, "
        "\"eval_top1\": 50, \"eval_top5\": 100, \"lr\": 0}\n");
  CHECK(read_file(folder / "o/summary.csv") == "epoch,train_loss,eval_loss,eval_top1,eval_top5,lr\n0,,nan,50,100,0\n");
  write_file(folder / "o/log.jsonl", whole + "{\"type\": \"metrics\", \"st");
  const RunLogOptions again{
      .folder = folder / "o", .earlier = folder / "o", .last_step = 4, .evaluated = true, .steps_per_epoch = 4};
  CHECK(RunLog(again).has_last_step());
  CHECK(read_file(folder / "o/log.jsonl") == whole);
  // A longer run begins inside the epoch in which the shorter one ended.
  RunLogOptions longer = again;
  longer.steps_per_epoch = 5;
  const RunLog goes_on(longer);
  CHECK(read_file(folder / "o/summary.csv") == "epoch,train_loss,eval_loss,eval_top1,eval_top5,lr\n");
  CHECK(read_file(folder / "o/log.jsonl") == whole.substr(0, whole.find("{\"type\": \"epoch\"")));
}

namespace {

struct Killed {};

/// Six steps in two epochs, with rows after steps 2, 3, 4 and 6 and a checkpoint before those of 3 and 6, up to the
/// writing of row number `last` of any file. Goes on from the checkpoint. False: it was killed.
bool log_until(const std::filesystem::path& folder, int last, int64_t& checkpoint) {
  int written = 0;
  RunLog log({.folder = folder,
              .earlier = folder,
              .last_step = checkpoint,
              .evaluated = checkpoint > 0,
              .steps_per_epoch = 3,
              .ended = checkpoint == 6,
              .json = true,
              .before_file = [&] {
                if (written++ == last) {
                  throw Killed();
                }
              }});
  const auto write = [&](int64_t step) {
    const bool ends = step % 3 == 0;
    LogRow row{.step = step, .epoch = static_cast<double>(step) / 3, .loss = 0.5 * static_cast<double>(step)};
    if (ends) {
      row.test = tested(0.25, 0.25);
      row.epoch_loss = 0.5;
    }
    log.write(row);
  };
  try {
    if (checkpoint > 0 && !log.has_last_step()) {
      write(checkpoint);
    }
    for (int64_t step = checkpoint + 1; step <= 6; ++step) {
      checkpoint = step % 3 == 0 ? step : checkpoint;
      if (step % 2 == 0 || step % 3 == 0) {
        write(step);
      }
    }
    return true;
  } catch (const Killed&) {
    return false;
  }
}

}  // namespace

TEST_CASE("run log: killed before any row of any file, all of them are those of a whole run") {
  const TemporaryFolder folder;
  int64_t none = 0;
  std::filesystem::create_directory(folder / "whole");
  REQUIRE(log_until(folder / "whole", 1000, none));
  constexpr int kRows = 2 * 2 + 2 * 4;  // of 2 and 4: one in two files; of 3 and 6: one in two files, two in log.jsonl
  for (int last = 0; last < kRows; ++last) {
    CAPTURE(last);
    const std::filesystem::path cut = folder / std::to_string(last);
    std::filesystem::create_directory(cut);
    int64_t checkpoint = 0;
    CHECK_FALSE(log_until(cut, last, checkpoint));
    CHECK(log_until(cut, 1000, checkpoint));
    for (const char* name : {"metrics.csv", "summary.csv", "log.jsonl"}) {
      CHECK(read_file(cut / name) == read_file(folder / "whole" / name));
    }
    CHECK(log_until(cut, 1000, checkpoint));  // a run that is complete changes nothing
    CHECK(read_file(cut / "log.jsonl") == read_file(folder / "whole/log.jsonl"));
    CHECK(read_file(cut / "summary.csv") == read_file(folder / "whole/summary.csv"));
  }
}

TEST_CASE("metrics log: rows, with test values where there are any") {
  const TemporaryFolder folder;
  {
    RunLog log({.folder = folder.path()});
    log.write({.step = 50, .epoch = 0.5, .images = 6400, .lr = 0.001, .loss = 1.25, .images_per_second = 100});
    log.write({.step = 100,
               .epoch = 1,
               .images = 12800,
               .lr = 0.002,
               .loss = 0.75,
               .images_per_second = 101.26,
               .test = tested(0.5, 0.81)});
  }
  CHECK(read_file(folder / "metrics.csv") ==
        "step,epoch,images,lr,loss,images_per_second,test_loss,test_accuracy\n"
        "50,0.5000,6400,0.001,1.25,100.0,,\n"
        "100,1.0000,12800,0.002,0.75,101.3,0.5,0.81\n");
}

TEST_CASE("metrics log: columns for averaged weights") {
  const TemporaryFolder folder;
  RunLogOptions options{.folder = folder.path(), .averaged_weights = true};
  {
    RunLog log(options);
    log.write({.step = 1, .images_per_second = 5});
    log.write({.step = 2, .images_per_second = 5, .test = tested(0.5, 0.75), .ema_test = tested(0.25, 1)});
  }
  const std::string text =
      "step,epoch,images,lr,loss,images_per_second,test_loss,test_accuracy,ema_test_loss,ema_test_accuracy\n"
      "1,0.0000,0,0,0,5.0,,,,\n"
      "2,0.0000,0,0,0,5.0,0.5,0.75,0.25,1\n";
  CHECK(read_file(folder / "metrics.csv") == text);
  options.earlier = folder.path();
  options.last_step = 2;
  options.evaluated = true;
  CHECK(RunLog(options).has_last_step());
  CHECK(read_file(folder / "metrics.csv") == text);
}

TEST_CASE("metrics log: resuming keeps the rows up to its step and drops those after it") {
  const TemporaryFolder folder;
  {
    RunLog log({.folder = folder.path()});
    for (int64_t step = 10; step <= 40; step += 10) {
      log.write({.step = step});
    }
  }
  RunLog({.folder = folder.path(), .earlier = folder.path(), .last_step = 25}).write({.step = 30, .loss = 7});
  const std::string text = read_file(folder / "metrics.csv");
  CHECK(text.find("\n10,") != std::string::npos);
  CHECK(text.find("\n20,") != std::string::npos);
  CHECK(text.find("\n40,") == std::string::npos);
  CHECK(text.find("\n30,0.0000,0,0,7,") == text.rfind("\n30,"));
}

TEST_CASE("metrics log: a row that is cut, or lacks its test figures, is written again") {
  const TemporaryFolder folder;
  const std::string head = "step,epoch,images,lr,loss,images_per_second,test_loss,test_accuracy\n";
  const std::string rows = "10,1.0000,40,0.1,2,5.0,,\n20,2.0000,80,0.1,1,5.0,,\n";
  bool has = false;
  const auto kept = [&](const std::string& text, int64_t last_step, bool evaluated) {
    std::filesystem::remove_all(folder / "b");
    std::filesystem::create_directories(folder / "b");
    std::filesystem::create_directories(folder / "a");
    write_file(folder / "a/metrics.csv", text);
    has = RunLog({.folder = folder / "b", .earlier = folder / "a", .last_step = last_step, .evaluated = evaluated})
              .has_last_step();
    return read_file(folder / "b/metrics.csv");
  };
  CHECK(kept(head + rows, 20, false) == head + rows);
  CHECK(has);
  CHECK(kept(head + rows, 20, true) == head + rows.substr(0, 25));
  CHECK_FALSE(has);
  CHECK(kept(head + rows + "30,3.0000,120,0.1", 30, false) == head + rows);
  CHECK_FALSE(has);
  CHECK(kept(head + rows.substr(0, rows.size() - 1), 20, false) == head + rows.substr(0, 25));
  CHECK_FALSE(has);
  CHECK(kept(head + rows, 0, false) == head);
  CHECK_FALSE(has);
}

TEST_CASE("metrics log: a full disk on resuming leaves the old rows") {
  const TemporaryFolder folder;
  {
    RunLog log({.folder = folder.path()});
    for (int64_t step = 1; step <= 50; ++step) {
      log.write({.step = step});
    }
  }
  const std::string before = read_file(folder / "metrics.csv");
  {
    const test::FileSizeLimit limit(500);
    CHECK_THROWS_WITH_AS(RunLog({.folder = folder.path(), .earlier = folder.path(), .last_step = 50}),
                         ("metrics: cannot write " + (folder / "metrics.csv").string() + ": File too large").c_str(),
                         Error);
  }
  CHECK(read_file(folder / "metrics.csv") == before);
}

TEST_CASE("metrics log: errors name the file") {
  const TemporaryFolder folder;
  const std::string file = (folder / "none/metrics.csv").string();
  CHECK(error_of([&] { RunLog({.folder = folder / "none"}); }) ==
        "metrics: cannot write " + file + ": No such file or directory");
  RunLog log({.folder = folder.path()});
  const test::FileSizeLimit limit(100);
  CHECK(error_of([&] {
          log.write({.step = 1, .loss = 1.0 / 3, .images_per_second = 1e9, .test = tested(1.0 / 7, 1.0 / 7)});
        }) == "metrics: cannot write " + (folder / "metrics.csv").string() + ": File too large");
}

TEST_CASE("run log: another program's summary.csv is not written over") {
  const TemporaryFolder folder;
  const std::string text = "epoch,train_loss,eval_loss,eval_top1,eval_top5,lr\n0,1,1,50,90,0.1\n";
  write_file(folder / "summary.csv", text);
  CHECK(error_of([&] { RunLog({.folder = folder.path()}); }) ==
        "train: '" + (folder / "summary.csv").string() +
            "' is not the log of a run of Norma: remove it, or choose another output folder");
  CHECK(read_file(folder / "summary.csv") == text);
  CHECK(folder.names() == std::vector<std::string>{"summary.csv"});
}

TEST_CASE("loading watch: both rates, where steps wait for their images") {
  const auto rates_of = [](int workers, double seconds, double waited) {
    StepTimes watch(workers);
    for (size_t i = 0; i < StepTimes::kFirstSteps + StepTimes::kWindow; ++i) {
      CHECK_FALSE(watch.bottleneck().has_value());
      watch.add(/* images= */ 10, seconds, waited);
    }
    return watch.bottleneck();
  };
  // Workers that never rest load ten images in half a second, which are computed in 0.4 s.
  const auto waiting = rates_of(4, 0.5, 0.1001);
  REQUIRE(waiting.has_value());
  CHECK(waiting->loading == doctest::Approx(20));
  CHECK(waiting->computing == doctest::Approx(10 / 0.3999));
  CHECK_FALSE(rates_of(4, 0.5, 0.09).has_value());
  // Without workers half of the time may go by.
  const auto alone = rates_of(0, 0.5, 0.3);
  REQUIRE(alone.has_value());
  CHECK(alone->loading == doctest::Approx(10 / 0.3));
  CHECK(alone->computing == doctest::Approx(50));
  CHECK_FALSE(rates_of(0, 0.5, 0.25).has_value());
}

TEST_CASE("loading watch: a run says once that its images come too slowly, with both rates") {
  const TemporaryFolder folder;
  const std::string text =
      "loading is the bottleneck: it gives 100.0 img/s, and the steps could take 400.0 img/s; more "
      "workers (-j, now 0) may help\n";
  const std::string said = said_by_run(/* seconds= */ 0.005, folder / "slow");
  CHECK_MESSAGE(said.find(text) != std::string::npos, said);
  CHECK(said.find("bottleneck") == said.rfind("bottleneck"));
  CHECK(said_by_run(/* seconds= */ 0.03, folder / "fast").find("bottleneck") == std::string::npos);
}
