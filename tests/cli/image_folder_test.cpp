#include "cli/program.h"
#include "data/image_file.h"
#include "json.h"
#include "train/checkpoint.h"

#include <filesystem>
#include <string>

using namespace norma;
using test::Outcome;
using test::run_norma;
using test::TemporaryFolder;
using test::write_file;

namespace {

/// A picture of one of two classes: dark above and bright below, or left and right. Sizes differ with `number`.
void write_picture(const std::filesystem::path& file, bool upright, int64_t number) {
  std::filesystem::create_directories(file.parent_path());
  data::Image image;
  image.set_size(40 + 13 * (number % 4), 50 + 17 * (number % 3), /* new_channels= */ 3);
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x) {
      const bool bright = upright ? 2 * y >= image.height : 2 * x >= image.width;
      for (int64_t c = 0; c < 3; ++c) {
        image.pixels[static_cast<size_t>((y * image.width + x) * 3 + c)] =
            static_cast<uint8_t>((bright ? 180 : 40) + 10 * c + number);
      }
    }
  }
  data::write_png(file, image);
}

/// Six training and three test images of each class.
void write_pictures(const std::filesystem::path& folder) {
  for (const bool upright : {false, true}) {
    const char* name = upright ? "upright" : "across";
    for (int64_t i = 0; i < 6; ++i) {
      write_picture(folder / "train" / name / fmt::format("{}.png", i), upright, i);
    }
    for (int64_t i = 0; i < 3; ++i) {
      write_picture(folder / "val" / name / fmt::format("{}.png", i), upright, i + 1);
    }
  }
}

const std::string kTrain =
    "train --dataset imagefolder --data-dir pictures --img-size 32 --model convnext_atto --patch-size 4 --batch-size 4 "
    "--flip "
    "-j 2 ";

}  // namespace

TEST_CASE("norma train, eval: a folder of images of differing sizes") {
  const TemporaryFolder folder;
  write_pictures(folder / "pictures");
  const Outcome trained = run_norma(folder.path(), kTrain + "--images 12 --quiet --output o");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  const Outcome evaluated = run_norma(folder.path(), "eval --checkpoint o");
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK(evaluated.err.empty());
  CHECK_MESSAGE(evaluated.out.starts_with("convnext_atto layer2d on imagefolder: accuracy "), evaluated.out);
  CHECK(evaluated.out.find("(6 images, ") != std::string::npos);
  const std::string accuracy = evaluated.out.substr(0, evaluated.out.find(" (6"));
  CHECK_MESSAGE(trained.out.find(accuracy.substr(accuracy.find("accuracy "), 14)) != std::string::npos, trained.out);
  CHECK(train::load_checkpoint(folder / "o/last.safetensors").options.at("class_names") == R"(["across","upright"])");

  // From another folder.
  std::filesystem::create_directory(folder / "other");
  for (const std::string command : {"eval --checkpoint", "train --resume"}) {
    const Outcome moved = run_norma(folder / "other", command + " ../o");
    CHECK(moved.code == 2);
    CHECK(moved.err ==
          "norma: " + command.substr(0, command.find(' ')) +
              ": data-dir: there is no 'pictures', as the checkpoint has it: --data-dir says where it is\n");
  }
  CHECK(run_norma(folder / "other", "eval --checkpoint ../o --data-dir ../pictures").code == 0);

  // The same classes under other names, then one more.
  std::filesystem::rename(folder / "pictures/train/upright", folder / "pictures/train/vertical");
  std::filesystem::rename(folder / "pictures/val/upright", folder / "pictures/val/vertical");
  const Outcome renamed = run_norma(folder.path(), "eval --checkpoint o");
  CHECK(renamed.code == 0);
  CHECK(renamed.err ==
        "norma: eval: warning: 1 of 2 classes have other names than in training: class 1 was 'upright' and is "
        "'vertical' in dataset 'imagefolder'\n");
  const Outcome resumed = run_norma(folder.path(), "train --resume o --images 24");
  CHECK(resumed.code == 2);
  CHECK(resumed.err ==
        "norma: resume: 1 of 2 classes have other names than in training: class 1 was 'upright' and is 'vertical' in "
        "dataset 'imagefolder'\n");
  write_picture(folder / "pictures/train/round/0.png", false, 0);
  const Outcome more = run_norma(folder.path(), "eval --checkpoint o");
  CHECK(more.code == 2);
  CHECK(more.err == "norma: eval: the network was trained on 2 classes, and dataset 'imagefolder' has 3\n");
}

TEST_CASE("norma train, eval, data: a class without test images is said") {
  const TemporaryFolder folder;
  write_pictures(folder / "pictures");
  std::filesystem::remove_all(folder / "pictures/val/upright");
  const std::string note = "no test images of 1 of 2 classes: upright\n";
  const Outcome trained = run_norma(folder.path(), kTrain + "--images 4 --output o");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  CHECK_MESSAGE(trained.out.find(note) != std::string::npos, trained.out);
  for (const char* words : {"eval --checkpoint o", "data --dataset imagefolder --data-dir pictures"}) {
    const Outcome outcome = run_norma(folder.path(), words);
    CHECK_MESSAGE(outcome.code == 0, outcome.err);
    CHECK_MESSAGE(outcome.out.find(note) != std::string::npos, outcome.out);
  }
}

TEST_CASE("norma train, eval: --skip-bad-images, and the error without it") {
  const TemporaryFolder folder;
  write_pictures(folder / "pictures");
  write_file(folder / "pictures/train/across/3.png", "no image");
  write_file(folder / "pictures/val/upright/1.png", "no image");
  write_file(folder / "pictures/train/across/\x1B[31m\n.png", "no image");
  const Outcome first = run_norma(folder.path(), kTrain + "--epochs 1 --output first");
  CHECK_MESSAGE(first.err.find_first_of("\x1B\n") == first.err.size() - 1, first.err);
  std::filesystem::remove(folder / "pictures/train/across/\x1B[31m\n.png");
  const std::string options = kTrain + "--images 12 --output o ";
  const Outcome refused = run_norma(folder.path(), options);
  CHECK(refused.code == 2);
  CHECK_MESSAGE(refused.err.starts_with("norma: image: pictures/train/across/3.png: expected a "), refused.err);
  std::filesystem::remove_all(folder / "o");

  // --quiet is for progress, not for warnings.
  const Outcome trained = run_norma(folder.path(), options + "--skip-bad-images --quiet");
  CHECK_MESSAGE(trained.code == 0, trained.err);
  const std::string count = "warning: 1 image could not be decoded, and the next one took its place: ";
  CHECK(trained.err == "norma: train: " + count + "train/across/3.png\nnorma: train: " + count + "val/upright/1.png\n");
  CHECK_MESSAGE(trained.out.find("could not be decoded") == std::string::npos, trained.out);
  const Outcome evaluated = run_norma(folder.path(), "eval --checkpoint o --quiet --json -");
  CHECK_MESSAGE(evaluated.code == 0, evaluated.err);
  CHECK_MESSAGE(evaluated.err.ends_with("norma: eval: " + count + "val/upright/1.png\n"), evaluated.err);
  const nlohmann::json json = test::parse_json(evaluated.out);
  CHECK(json["evaluation"]["skipped_images"] == 1);
  CHECK(json["evaluation"]["images"] == 6);
  // A class that has lost all its images is named, and the exit code says so.
  for (const auto& entry : std::filesystem::directory_iterator(folder / "pictures/val/upright")) {
    write_file(entry.path(), "no image");
  }
  const Outcome lost = run_norma(folder.path(), "eval --checkpoint o --quiet");
  CHECK(lost.code == 1);
  CHECK_MESSAGE(lost.err.ends_with("norma: eval: 1 of 2 classes have no image that can be decoded: upright\n"),
                lost.err);
}

TEST_CASE("norma train --resume: images that have gone or come") {
  const TemporaryFolder folder;
  write_pictures(folder / "pictures");
  write_picture(folder / "pictures/train/across/6.png", false, 6);
  REQUIRE(run_norma(folder.path(), kTrain + "--images 16 --quiet --output inside").code == 0);
  REQUIRE(run_norma(folder.path(), kTrain + "--images 12 --quiet --output between").code == 0);
  std::filesystem::remove(folder / "pictures/train/across/6.png");
  const Outcome inside = run_norma(folder.path(), "train --resume inside --images 24 --quiet");
  CHECK(inside.code == 2);
  CHECK(
      inside.err ==
      "norma: resume: images: the run was trained on 13 images, and dataset 'imagefolder' in 'pictures' has 12: it is "
      "1 of 3 steps into an epoch, whose order is that of 13 images; put the same images there again, or begin a new "
      "run\n");
  const Outcome between = run_norma(folder.path(), "train --resume between --images 16 --quiet");
  CHECK_MESSAGE(between.code == 0, between.err);
  CHECK_MESSAGE(between.out.find("changed on resuming: images 13 → 12\n") != std::string::npos, between.out);
  // The checkpoint that this has written is of 12 images, inside an epoch.
  write_picture(folder / "pictures/train/across/6.png", false, 6);
  const Outcome again = run_norma(folder.path(), "train --resume between --images 24 --quiet");
  CHECK(again.code == 2);
  CHECK_MESSAGE(
      again.err.find("was trained on 12 images, and dataset 'imagefolder' in 'pictures' has 13: ") != std::string::npos,
      again.err);
}
