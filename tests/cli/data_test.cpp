#include "cli/program.h"
#include "data/dataset.h"
#include "data/image_formats.h"
#include "data/safetensors.h"
#include "data/survey.h"

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

using namespace norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

TEST_CASE("norma data: what a dataset holds") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(), "data --dataset shapes --img-size 16 --hflip 0.5 --aa ta_wide");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  for (const char* text :
       {"dataset       shapes\n", "training      60000 images an epoch, new ones in each\n",
        "test          10000 images\n", "sizes         16 x 16, 3 channels\n", "augmentation  hflip 0.5, ta_wide\n"}) {
    CHECK_MESSAGE(outcome.out.find(text) != std::string::npos, outcome.out);
  }
  CHECK(folder.names().empty());
}

TEST_CASE("norma data: --show is a picture of the training images as they are augmented") {
  const TemporaryFolder folder;
  const auto show = [&](const std::string& words) {
    const Outcome outcome =
        run_norma(folder.path(), "data --dataset shapes --img-size 16 --count 6 --show x.png " + words);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    const data::Image image = data::read_image(folder / "x.png");
    std::filesystem::remove(folder / "x.png");
    return image;
  };
  // Without augmentation: the images of the dataset, byte for byte.
  const auto dataset = data::make_dataset("shapes", {.image_size = 16});
  std::vector<data::Image> images(6);
  for (int64_t i = 0; i < 6; ++i) {
    dataset->load(i, images[static_cast<size_t>(i)]);
  }
  const data::Image expected = data::contact_sheet(images, {.least_side = 64});
  const data::Image plain = show("");
  CHECK(plain.height == expected.height);
  CHECK((plain.pixels == expected.pixels));
  const std::string all = "--scale 0.3,1 --vflip 0.5 --aa rand-m9-mstd0.5-inc1 --reprob 0.5 --mixup 0.8 ";
  const data::Image augmented = show(all);
  CHECK((augmented.pixels != plain.pixels));
  CHECK((show(all).pixels == augmented.pixels));
  CHECK((show(all + "--epoch 1").pixels != augmented.pixels));
  CHECK((show(all + "--seed 1").pixels != augmented.pixels));
}

TEST_CASE("norma data: --time says what an image takes, also where there are fewer than a batch") {
  const TemporaryFolder folder;
  for (const char* split : {"train", "val"}) {
    std::filesystem::create_directories(folder / split / "a");
    data::write_png(folder / split / "a" / "1.png",
                    {.height = 20, .width = 30, .channels = 1, .pixels = std::vector<uint8_t>(600, 100)});
  }
  const Outcome outcome =
      run_norma(folder.path(), "data --dataset imagefolder --data-dir . --img-size 16 --scale 0.5,1 --time");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  std::smatch found;
  const std::regex lines(
      "an image      (\\S+) ms to load, (\\S+) ms to augment and resize, on one core\n"
      "loader        (\\d+) images/s with --workers 1");
  REQUIRE_MESSAGE(std::regex_search(outcome.out, found, lines), outcome.out);
  for (const int number : {1, 2, 3}) {
    CHECK(std::stod(found[number]) > 0);
  }
}

TEST_CASE("norma data: --show of a folder with fewer images than a batch") {
  const TemporaryFolder folder;
  for (const char* name : {"train/a/1.png", "train/a/2.png", "train/b/1.png", "val/a/1.png"}) {
    std::filesystem::create_directories((folder / name).parent_path());
    data::write_png(folder / name, {.height = 1, .width = 2, .channels = 3, .pixels = {1, 2, 3, 4, 5, 6}});
  }
  for (const char* words : {"", "--mixup 0.5", "--count 2"}) {
    const Outcome outcome = run_norma(
        folder.path(), std::string("data --dataset imagefolder --data-dir . --img-size 16 --show x.png ") + words);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    const char* count = std::string(words) == "--count 2" ? "x.png: 2 training images" : "x.png: 3 training images";
    CHECK_MESSAGE(outcome.out.find(count) != std::string::npos, outcome.out);
    std::filesystem::remove(folder / "x.png");
  }
}

TEST_CASE("norma data: image files that cannot be read, and their own mean beside ImageNet's") {
  const TemporaryFolder folder;
  const data::Image image{.height = 1, .width = 2, .channels = 3, .pixels = {0, 51, 102, 255, 51, 102}};
  for (const char* name : {"train/a/1.png", "train/a/2.png", "val/a/1.png"}) {
    std::filesystem::create_directories((folder / name).parent_path());
    data::write_png(folder / name, image);
  }
  const Outcome good = run_norma(folder.path(), "data --dataset imagefolder --data-dir .");
  CHECK_MESSAGE(good.code == 0, good.err);
  CHECK_MESSAGE(
      good.out.find("mean, std     0.5000 0.2000 0.4000; 0.5000 0.0000 0.0000 of the 2 train images\n"
                    "normalized by 0.4850 0.4560 0.4060; 0.2290 0.2240 0.2250, ImageNet's\n") != std::string::npos,
      good.out);
  CHECK(good.out.find("unreadable") == std::string::npos);
  for (int i = 3; i < 10; ++i) {
    test::write_file(folder / fmt::format("train/a/{}.png", i), "a text");
  }
  for (const char* skip : {"", " --skip-bad-images"}) {
    const Outcome bad = run_norma(folder.path(), std::string("data --dataset imagefolder --data-dir .") + skip);
    CHECK_MESSAGE(bad.code == 0, bad.err);
    CHECK_MESSAGE(bad.out.find("unreadable    7 of the 9 train images (a run ends there, or takes the next one for it "
                               "with --skip-bad-images)\n"
                               "              image: ./train/a/3.png: expected a " +
                               data::read_kinds() + " image, got a text\n") != std::string::npos,
                  bad.out);
    CHECK_MESSAGE(bad.out.find("              and 2 more\n") != std::string::npos, bad.out);
  }
  // What is not used, and what is used as it lies in the file.
  const data::Safetensors pictures =
      data::load_safetensors(test::source_folder() / "tests/reference/pictures.safetensors");
  const std::vector<uint8_t> turned = pictures.find("png, turned 6.file").to_vector<uint8_t>();
  test::write_file(folder / "val/a/3.png", std::string(turned.begin(), turned.end()));
  test::write_file(folder / "val/a/.3.png", "");
  for (const auto& [words, end] :
       {std::pair("", "--exif-orientation turns them upright"), {" --exif-orientation", "they are turned upright"}}) {
    const Outcome outcome = run_norma(folder.path(), std::string("data --dataset imagefolder --data-dir .") + words);
    CHECK_MESSAGE(outcome.out.find("left out      test: 1 whose names begin with a point\n"
                                   "turned        1 of the 2 test images by their EXIF data; " +
                                   std::string(end) + "\n") != std::string::npos,
                  outcome.out);
  }
  const Outcome batch = run_norma(
      folder.path(), "train --dataset imagefolder --data-dir . --img-size 16 --model resnet18 --output o -b 16");
  CHECK(batch.code == 2);
  CHECK(batch.err ==
        "norma: train: batch-size: expected at most the 9 training images of imagefolder (option -b), got 16\n");
}

TEST_CASE("norma data: what it refuses") {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& words) {
    const Outcome outcome = run_norma(folder.path(), "data --dataset shapes " + words);
    CHECK(outcome.code == 2);
    return outcome.err;
  };
  test::write_file(folder / "mine.png", "mine");
  CHECK(error("--show mine.png") == "norma: data: --show: expected a name that is not taken, got 'mine.png'\n");
  CHECK(read_file(folder / "mine.png") == "mine");
  CHECK(error("--count 0") == "norma: data: --count: expected a whole number from 1 to 4096, got 0\n");
  CHECK(error("--scale 1") == "norma: data: scale: expected two numbers, got 1\n");
  CHECK(error("--scale 1,x") == "norma: data: --scale: expected a number, got x\n");
  CHECK(error("--aa rand-q1").starts_with("norma: data: aa: rand-q1: unknown key 'q1'; known: m (magnitude), "));
  CHECK(error("--img-size 2048 --count 9 --show a.png") ==
        "norma: data: --count: expected at most 8 images of 2048 x 2048, got 9\n");
}
