#include "train/output.h"

#include "core/error.h"
#include "files.h"
#include "train/file_size_limit.h"
#include "train/metrics_log.h"

#include <doctest/doctest.h>

#include <string>

using namespace norma;
using namespace norma::train;
using test::read_file;
using test::TemporaryFolder;

TEST_CASE("output: folders are made with those above, and no probe stays in them") {
  const TemporaryFolder folder;
  make_output_folder("train", folder.path() / "a" / "b");
  CHECK(std::filesystem::is_empty(folder.path() / "a" / "b"));
  make_output_folder("train", folder.path() / "a" / "b");  // again
}

TEST_CASE("output: trying whether a folder can be written touches nothing that is there") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "h");
  test::write_file(folder / "victim", "a letter");
  std::filesystem::create_symlink("../victim", folder / "h/.norma-write-test");
  make_output_folder("train", folder / "h");
  CHECK(read_file(folder / "victim") == "a letter");
  CHECK(std::filesystem::is_symlink(folder / "h/.norma-write-test"));
  CHECK(std::distance(std::filesystem::directory_iterator(folder / "h"), {}) == 1);
}

TEST_CASE("output: a folder that cannot be written is named with the reason") {
  const TemporaryFolder folder;
  test::write_file(folder / "file", "x");
  CHECK_THROWS_WITH_AS(make_output_folder("train", folder / "file"),
                       ("train: cannot write " + (folder / "file").string() + ": Not a directory").c_str(), Error);
  CHECK_THROWS_WITH_AS(make_output_folder("train", folder / "file/below"),
                       ("train: cannot write " + (folder / "file/below").string() + ": Not a directory").c_str(),
                       Error);
  CHECK_THROWS_AS(make_output_folder("train", "/proc/norma"), Error);
}

TEST_CASE("output: a text file is replaced by all of the text") {
  const TemporaryFolder folder;
  write_text_file("compare", folder / "a.txt", "first");
  write_text_file("compare", folder / "a.txt", "second text");
  CHECK(read_file(folder / "a.txt") == "second text");
}

TEST_CASE("output: on a full disk the file stays as it was and nothing else is left") {
  const TemporaryFolder folder;
  write_text_file("compare", folder / "a.txt", "first");
  {
    const test::FileSizeLimit limit(1000);
    CHECK_THROWS_WITH_AS(write_text_file("compare", folder / "a.txt", std::string(5000, 'x')),
                         ("compare: cannot write " + (folder / "a.txt").string() + ": File too large").c_str(), Error);
  }
  CHECK(read_file(folder / "a.txt") == "first");
  const auto entries = std::filesystem::directory_iterator(folder.path());
  CHECK(std::distance(begin(entries), end(entries)) == 1);
}

TEST_CASE("metrics log: rows, with test values where there are any") {
  const TemporaryFolder folder;
  {
    MetricsLog log(folder / "metrics.csv");
    log.write({.step = 50, .epoch = 0.5, .images = 6400, .lr = 0.001, .loss = 1.25, .images_per_second = 100});
    log.write({.step = 100,
               .epoch = 1,
               .images = 12800,
               .lr = 0.002,
               .loss = 0.75,
               .images_per_second = 101.26,
               .test_loss = 0.5,
               .test_accuracy = 0.81});
  }
  CHECK(read_file(folder / "metrics.csv") ==
        "step,epoch,images,lr,loss,images_per_second,test_loss,test_accuracy\n"
        "50,0.5000,6400,0.001,1.25,100.0,,\n"
        "100,1.0000,12800,0.002,0.75,101.3,0.5,0.81\n");
}

TEST_CASE("metrics log: columns for averaged weights") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "metrics.csv";
  {
    MetricsLog log(file, {}, MetricsColumns::ema);
    log.write({.step = 1, .images_per_second = 5});
    log.write({.step = 2,
               .images_per_second = 5,
               .test_loss = 0.5,
               .test_accuracy = 0.75,
               .ema_test_loss = 0.25,
               .ema_test_accuracy = 1});
  }
  const std::string text =
      "step,epoch,images,lr,loss,images_per_second,test_loss,test_accuracy,ema_test_loss,ema_test_accuracy\n"
      "1,0.0000,0,0,0,5.0,,,,\n"
      "2,0.0000,0,0,0,5.0,0.5,0.75,0.25,1\n";
  CHECK(read_file(file) == text);
  CHECK(MetricsLog(file, {.file = file, .last_step = 2, .evaluated = true}, MetricsColumns::ema).has_last_step());
  CHECK(read_file(file) == text);
}

TEST_CASE("metrics log: resuming keeps the rows up to its step and drops those after it") {
  const TemporaryFolder folder;
  {
    MetricsLog log(folder / "metrics.csv");
    for (int64_t step = 10; step <= 40; step += 10) {
      log.write({.step = step});
    }
  }
  {
    MetricsLog log(folder / "metrics.csv", {.file = folder / "metrics.csv", .last_step = 25});
    log.write({.step = 30, .loss = 7});
  }
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
    test::write_file(folder / "a.csv", text);
    const MetricsLog log(folder / "b.csv", {.file = folder / "a.csv", .last_step = last_step, .evaluated = evaluated});
    has = log.has_last_step();
    return read_file(folder / "b.csv");
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
    MetricsLog log(folder / "metrics.csv");
    for (int64_t step = 1; step <= 50; ++step) {
      log.write({.step = step});
    }
  }
  const std::string before = read_file(folder / "metrics.csv");
  {
    const test::FileSizeLimit limit(500);
    CHECK_THROWS_AS(MetricsLog(folder / "metrics.csv", {.file = folder / "metrics.csv", .last_step = 50}), Error);
  }
  CHECK(read_file(folder / "metrics.csv") == before);
}

TEST_CASE("metrics log: errors name the file") {
  const TemporaryFolder folder;
  const std::string file = (folder / "none/metrics.csv").string();
  CHECK_THROWS_WITH_AS(MetricsLog(file, {}), ("metrics: cannot write " + file + ": No such file or directory").c_str(),
                       Error);
  MetricsLog log(folder / "metrics.csv");
  const test::FileSizeLimit limit(100);
  CHECK_THROWS_WITH_AS(
      log.write({.step = 1, .loss = 1.0 / 3, .images_per_second = 1e9, .test_loss = 1.0 / 7, .test_accuracy = 1.0 / 7}),
      ("metrics: cannot write " + (folder / "metrics.csv").string() + ": File too large").c_str(), Error);
}
