#include "data/dataset.h"

#include "data/image_file.h"
#include "data/image_formats.h"
#include "data/loader.h"
#include "data/safetensors.h"
#include "data/survey.h"
#include "data/transform.h"
#include "files.h"
#include "paths.h"

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;
using norma::test::TemporaryFolder;
using norma::test::write_file;

namespace {

/// A PNG of one color, whose bytes are `value`, whatever the name says; folders are made as needed.
void write_image(const std::filesystem::path& file, uint8_t value, int64_t height = 2, int64_t width = 3) {
  std::filesystem::create_directories(file.parent_path());
  Image image;
  image.set_size(height, width, /* new_channels= */ 3);
  image.pixels.assign(image.pixels.size(), value);
  write_png(file, image);
}

struct Labelled {
  int value = 0;
  int64_t label = 0;

  friend bool operator==(const Labelled&, const Labelled&) = default;
};

/// Color and label of each image.
std::vector<Labelled> all_of(const Dataset& dataset) {
  std::vector<Labelled> all;
  Image image;
  for (int64_t i = 0; i < dataset.info().size; ++i) {
    const int64_t label = dataset.load(i, image);
    all.push_back({.value = image.pixels.at(0), .label = label});
  }
  return all;
}

std::shared_ptr<const Dataset> open(const TemporaryFolder& folder, Split split = Split::train, bool skip = false) {
  return make_dataset("imagefolder", {.split = split, .folder = folder.path(), .skip_bad_images = skip});
}

std::string error_in(const TemporaryFolder& folder, Split split = Split::train) {
  return error_of([&] { open(folder, split); });
}

}  // namespace

TEST_CASE("image folder: classes by name, images in torchvision's order, of any size") {
  const TemporaryFolder folder;
  write_image(folder / "train/b/x.png", 5, 7, 1);
  write_image(folder / "train/B/x.png", 0);
  write_image(folder / "train/a/sub/deep/w.png", 4);
  write_image(folder / "train/a/sub-1/y.JPG", 3);
  write_image(folder / "train/a/sub/x.jpeg", 2);
  write_image(folder / "train/a/z.png", 1, 4, 9);
  write_file(folder / "train/a/notes.txt", "no image");
  write_file(folder / "train/readme.png", "in no class");
  const auto dataset = open(folder);
  const DatasetInfo& info = dataset->info();
  CHECK(info.name == "imagefolder");
  CHECK(info.size == 6);
  CHECK(info.channels == 3);
  CHECK(info.height == 0);
  CHECK(info.width == 0);
  CHECK(info.sorted_by_label);
  CHECK(info.class_names == std::vector<std::string>{"B", "a", "b"});
  CHECK(info.mean == std::vector<float>(kImageNetMean.begin(), kImageNetMean.end()));
  CHECK(info.std == std::vector<float>(kImageNetStd.begin(), kImageNetStd.end()));
  // python3: [os.path.join(root, name) for root, _, names in sorted(os.walk("train/a")) for name in sorted(names)]
  CHECK(all_of(*dataset) == std::vector<Labelled>{{0, 0}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 2}});
  Image image;
  dataset->load(1, image);
  CHECK(image.height == 4);
  CHECK(image.width == 9);
  CHECK(image.channels == 3);
  CHECK(error_of([&] { dataset->load(6, image); }) == "imagefolder: index: expected a value in [0, 6), got 6");
  CHECK(error_of([&] { dataset->load(-1, image); }) == "imagefolder: index: expected a value in [0, 6), got -1");
}

TEST_CASE("image folder: test images have the numbers of training's classes, of which some may be missing") {
  const TemporaryFolder folder;
  for (const char* name : {"ant", "bee", "cat"}) {
    write_image(folder / "train" / name / "1.png", 10);
  }
  write_image(folder / "test/ant/1.png", 1);
  CHECK(all_of(*open(folder, Split::test)) == std::vector<Labelled>{{1, 0}});
  write_image(folder / "validation/bee/1.png", 2);
  CHECK(all_of(*open(folder, Split::test)) == std::vector<Labelled>{{2, 1}});
  write_image(folder / "val/cat/1.png", 3);
  CHECK(all_of(*open(folder, Split::test)) == std::vector<Labelled>{{3, 2}});
  const auto dataset = open(folder, Split::test);
  CHECK(dataset->info().class_names == std::vector<std::string>{"ant", "bee", "cat"});
  CHECK(dataset->info().empty_classes == std::vector<std::string>{"ant", "bee"});
  CHECK(open(folder)->info().empty_classes.empty());
}

TEST_CASE("image folder: test images alone have classes of their own") {
  const TemporaryFolder folder;
  write_image(folder / "val/bee/1.png", 1);
  write_image(folder / "val/ant/1.png", 2);
  CHECK(all_of(*open(folder, Split::test)) == std::vector<Labelled>{{2, 0}, {1, 1}});
}

TEST_CASE("image folder: bad folders, each with its error") {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  CHECK(error_of([] { make_dataset("imagefolder"); }) ==
        "imagefolder: expected a folder with the folders train and val (option --data-dir), got none");
  CHECK(error_of([] { make_dataset("imagefolder", {.folder = "/no/such/folder"}); }) ==
        "imagefolder: /no/such/folder: no such folder");
  CHECK(error_in(folder) ==
        "imagefolder: " + path + ": expected a folder train with a folder for each class, found none");
  CHECK(error_in(folder, Split::test) ==
        "imagefolder: " + path +
            ": expected a folder val, validation or test with a folder for each class, found none");

  std::filesystem::create_directory(folder / "train");
  write_file(folder / "train/1.png", "beside the classes");
  CHECK(error_in(folder) == "imagefolder: " + path + "/train: expected a folder for each class, found none");

  write_image(folder / "train/ant/1.png", 1);
  std::filesystem::create_directories(folder / "train/bee/more");
  write_file(folder / "train/bee/more/1.txt", "");
  CHECK(error_in(folder) == "imagefolder: " + path +
                                "/train: class 'bee': expected images (.jpg .jpeg .png .ppm .bmp .pgm .tif .tiff "
                                ".webp .gif), found none");

  write_image(folder / "val/cat/1.png", 1);
  CHECK(error_in(folder, Split::test) ==
        "imagefolder: " + path + "/val: class 'cat': expected one of the 2 classes of " + path + "/train");
}

TEST_CASE(
    "image folder: names that begin with a point do not count, and what looks like an image and is not used is told") {
  const TemporaryFolder folder;
  write_image(folder / "train/ant/1.png", 1);
  write_image(folder / "train/ant/2.GIF", 2);  // by its name; its bytes decide when it is read
  write_image(folder / "train/ant/.hidden.jpg", 3);
  write_image(folder / "train/ant/.cache/4.png", 4);
  write_file(folder / "train/ant/._1.jpg", std::string("\0\5\x16\7", 4));  // macOS
  std::filesystem::create_directory(folder / "train/.ipynb_checkpoints");
  CHECK(open(folder)->info().class_names == std::vector<std::string>{"ant"});
  CHECK(all_of(*open(folder)) == std::vector<Labelled>{{1, 0}, {2, 0}});
  CHECK(open(folder)->left_out() == std::vector<std::string>{"4 whose names begin with a point"});
  write_image(folder / "train/beside.png", 5);
  write_image(folder / "train/ant/a.jfif", 6);
  write_file(folder / "train/ant/photo.heic", std::string("\0\0\0\x18"
                                                          "ftypheic",
                                                          12));
  write_file(folder / "train/ant/notes.txt", "a text");
  const std::string where = " and lie beside the classes or have another ending";
  CHECK(open(folder)->left_out() ==
        std::vector<std::string>{"4 whose names begin with a point", "2 that look like a PNG image" + where,
                                 "1 that look like an AVIF or HEIC image, or a film" + where});
  // Opens, but cannot be read, by root either.
  std::filesystem::create_symlink("/proc/self/mem", folder / "train/ant/of_others");
  CHECK(open(folder)->left_out().back() == "1 that may not be read" + where);
}

TEST_CASE("image folder: the sixteen kinds of pictures that people have") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "train/ant");
  const auto kept = [](const std::string& file, const std::string& name) {
    return load_safetensors(test::source_folder() / "tests/reference" / file).find(name).to_vector<uint8_t>();
  };
  std::vector<std::vector<uint8_t>> expected;
  const auto add = [&](const std::string& file, const std::string& name, const std::string& ending) {
    if (read_kinds().find(ending == ".webp"  ? "WebP"
                          : ending == ".tif" ? "TIFF"
                          : ending == ".gif" ? "GIF"
                          : ending == ".JPG" ? "JPEG"
                                             : "PNG") != std::string::npos) {
      const std::vector<uint8_t> bytes = kept(file, name + ".file");
      write_file(folder / fmt::format("train/ant/{:02}{}", expected.size(), ending),
                 std::string(bytes.begin(), bytes.end()));
      expected.push_back(kept(file, name + ".color"));
    }
  };
  add("pictures.safetensors", "jpeg, turned", ".JPG");
  for (const char* name : {"cmyk", "progressive", "4:2:0"}) {
    add("jpeg.safetensors", name, ".JPG");
  }
  for (const char* name : {"png, palette", "png, palette and transparency", "png, grey of 16 bits",
                           "png, grey with alpha", "png, 1 bit", "png, rgba", "png, 1 x 1", "png, 2 x 3000"}) {
    add("pictures.safetensors", name, ".png");
  }
  for (const auto& [name, ending] :
       {std::pair("bmp", ".bmp"), {"webp", ".webp"}, {"tiff, lzw", ".tif"}, {"gif", ".gif"}}) {
    add("pictures.safetensors", name, ending);
  }
  const auto dataset = open(folder);
  REQUIRE(dataset->info().size == static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    Image image;
    dataset->load(static_cast<int64_t>(i), image);
    CHECK(image.pixels == expected[i]);
  }
}

TEST_CASE("image folder: photographs are turned upright where that is asked for") {
  const TemporaryFolder folder;
  const Safetensors pictures = load_safetensors(test::source_folder() / "tests/reference/pictures.safetensors");
  const std::vector<uint8_t> bytes = pictures.find("png, turned 6.file").to_vector<uint8_t>();
  std::filesystem::create_directories(folder / "train/ant");
  write_file(folder / "train/ant/1.png", std::string(bytes.begin(), bytes.end()));
  write_image(folder / "train/ant/2.png", 2);
  for (const bool turns : {false, true}) {
    const auto dataset = make_dataset("imagefolder", {.folder = folder.path(), .exif_orientation = turns});
    Image image;
    dataset->load(0, image);
    CHECK(image.pixels ==
          pictures.find(std::string("png, turned 6.") + (turns ? "turned" : "color")).to_vector<uint8_t>());
    CHECK(survey(*dataset, 10).turned == (turns ? 0 : 1));
  }
}

TEST_CASE("image folder: what the system says of folders that cannot be looked into") {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("train", folder / "train");  // a link to itself
  CHECK(error_in(folder) ==
        "imagefolder: cannot read " + (folder / "train").string() + ": Too many levels of symbolic links");
  CHECK(error_of([&] { make_dataset("imagefolder", {.folder = folder / "train"}); }) ==
        "imagefolder: cannot read " + (folder / "train").string() + ": Too many levels of symbolic links");
  CHECK(error_of([&] { make_dataset("idx", {.folder = folder / "train"}); }) ==
        "idx: cannot read " + (folder / "train").string() + ": Too many levels of symbolic links");
}

TEST_CASE("image folder: names that are not UTF-8") {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  // Latin-1, cut off, an overlong '/', a surrogate, beyond the last character, a byte that continues nothing.
  for (const std::string bad : {"caf\xE9", "x\xE2\x82", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\x80"}) {
    const TemporaryFolder classes;
    write_image(classes / "train" / bad / "1.png", 1);
    CHECK_MESSAGE(error_in(classes).starts_with("imagefolder: " + classes.path().string() +
                                                "/train: expected names in UTF-8, got '"),
                  error_in(classes));
    CHECK(error_in(classes).find(bad) == std::string::npos);
  }
  write_image(folder / "train/ant/caf\xE9.png", 1);
  CHECK(error_in(folder) == "imagefolder: " + path + "/train/ant: expected names in UTF-8, got 'caf?.png'");
  std::filesystem::remove(folder / "train/ant/caf\xE9.png");
  write_image(folder / "train/ant/\xE6\x97\xA5\xC3\xA9\xF0\x9F\x90\x9C.png", 1);
  CHECK(open(folder)->info().size == 1);
}

TEST_CASE("image folder: links are followed, one that leads back is an error") {
  const TemporaryFolder folder;
  write_image(folder / "elsewhere/1.png", 7);
  std::filesystem::create_directory(folder / "train");
  std::filesystem::create_directory_symlink(folder / "elsewhere", folder / "train/ant");
  CHECK(all_of(*open(folder)) == std::vector<Labelled>{{7, 0}});
  std::filesystem::create_directory_symlink("..", folder / "elsewhere/up");
  CHECK_MESSAGE(error_in(folder).ends_with(": expected at most 32 folders in each other, got more (a link to one "
                                           "above?)"),
                error_in(folder));
}

TEST_CASE("image folder: links that fan out end with an error") {
  const TemporaryFolder folder;
  write_image(folder / "train/ant/1.png", 7);
  std::filesystem::path next = folder / "train/ant";
  for (int i = 0; i < 20; ++i) {  // 2^20 ways
    const auto other = folder / fmt::format("other{}", i);
    std::filesystem::create_directory(other);
    std::filesystem::create_directory_symlink(other, next / "a");
    std::filesystem::create_directory_symlink(other, next / "b");
    next = other;
  }
  CHECK(error_in(folder) == "imagefolder: " + (folder / "train/ant").string() +
                                ": expected at most 65536 folders in a class, got more (links to the same ones?)");
}

TEST_CASE("image folder: a file that is no image is an error that names it, when it is read") {
  const TemporaryFolder folder;
  write_image(folder / "train/ant/1.png", 1);
  write_file(folder / "train/ant/2.jpg", "a text");
  write_file(folder / "train/ant/3.png", "");
  const auto dataset = open(folder);
  Image image;
  CHECK(dataset->load(0, image) == 0);
  const std::string path = (folder / "train/ant").string();
  CHECK(error_of([&] { dataset->load(1, image); }) ==
        "image: " + path + "/2.jpg: expected a " + read_kinds() +
            " image, got a text (--skip-bad-images takes the next image in its place)");
  CHECK(error_of([&] { dataset->load(2, image); }).starts_with("image: " + path + "/3.png: "));
  CHECK(dataset->skipped().empty());
}

TEST_CASE("image folder: bad images are replaced by the next good one, over the end of the split too") {
  const TemporaryFolder folder;
  write_image(folder / "val/ant/1.png", 1);
  write_file(folder / "val/ant/2.png", "bad");
  write_file(folder / "val/ant/3.png", "bad");
  write_image(folder / "val/bee/1.png", 4);
  std::string cut = test::read_file(folder / "val/bee/1.png");
  cut.resize(cut.size() / 2);
  write_file(folder / "val/bee/2.png", cut);
  const auto dataset = open(folder, Split::test, /* skip= */ true);
  CHECK(dataset->skipped().empty());
  for (int times = 0; times < 2; ++times) {
    CHECK(all_of(*dataset) == std::vector<Labelled>{{1, 0}, {4, 1}, {4, 1}, {4, 1}, {1, 0}});
  }
  CHECK(dataset->skipped() == std::vector<std::string>{"val/ant/2.png", "val/ant/3.png", "val/bee/2.png"});

  // What is not there may be there the next time: never replaced.
  std::filesystem::remove(folder / "val/ant/1.png");
  Image image;
  CHECK(error_of([&] { dataset->load(0, image); }) ==
        "imagefolder: cannot open " + (folder / "val/ant/1.png").string() + ": No such file or directory");
}

TEST_CASE("survey: the images of a folder, which of them cannot be read, and their mean and deviation") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "train/ant");
  write_png(folder / "train/ant/1.png", {.height = 1, .width = 2, .channels = 3, .pixels = {0, 51, 102, 255, 51, 0}});
  write_file(folder / "train/ant/2.png", "bad");
  write_png(folder / "train/ant/3.png", {.height = 2, .width = 1, .channels = 3, .pixels = {0, 51, 0, 255, 51, 102}});
  write_file(folder / "train/ant/4.png", "");
  const auto dataset = open(folder);
  const Survey all = survey(*dataset, 100);
  CHECK(all.looked_at == 4);
  REQUIRE(all.faults.size() == 2);
  CHECK(all.faults[0].starts_with("image: " + (folder / "train/ant/2.png").string() + ": expected a " + read_kinds()));
  CHECK(all.faults[1].starts_with("image: " + (folder / "train/ant/4.png").string() + ": expected a " + read_kinds()));
  const std::vector<double> mean = {0.5, 0.2, 0.2};
  const std::vector<double> deviation = {0.5, 0, 0.2};
  REQUIRE(all.mean.size() == 3);
  for (size_t c = 0; c < 3; ++c) {
    CHECK(std::abs(all.mean[c] - mean[c]) <= 1e-12);
    CHECK(std::abs(all.std[c] - deviation[c]) <= 1e-7);
  }
  // Half of them: the first and the third.
  const Survey half = survey(*dataset, 2);
  CHECK(half.looked_at == 2);
  CHECK(half.faults.empty());
  std::filesystem::remove(folder / "train/ant/1.png");
  std::filesystem::remove(folder / "train/ant/3.png");
  const Survey none = survey(*dataset, 4);
  CHECK(none.faults.size() == 4);
  CHECK(none.mean.empty());
}

TEST_CASE("image folder: a split without any good image") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "train/ant");
  write_file(folder / "train/ant/1.png", "bad");
  write_file(folder / "train/ant/2.png", "bad");
  Image image;
  CHECK(error_of([&] { open(folder, Split::train, /* skip= */ true)->load(1, image); }) ==
        "imagefolder: " + (folder / "train").string() + ": none of the 2 images can be decoded");
}

TEST_CASE("image folder: with bad images, batches are the same for any number of threads and after a resume") {
  const TemporaryFolder folder;
  for (int i = 0; i < 24; ++i) {
    const auto file = folder / fmt::format("train/{}/{:02}.png", i % 2 == 0 ? "ant" : "bee", i);
    write_image(file, static_cast<uint8_t>(10 * i), 3 + i % 5, 4 + i % 3);
    if (i % 5 == 3) {
      write_file(file, "bad");
    }
  }
  const auto take = [&](int workers, int64_t first_step) {
    const auto dataset = open(folder, Split::train, /* skip= */ true);
    Loader loader(dataset, Transform(dataset->info(), {.image_size = 4, .augment = true, .crop_padding = 1}),
                  {.batch_size = 5,
                   .shuffle = true,
                   .drop_last = true,
                   .epochs = 3,
                   .seed = 2,
                   .first_step = first_step,
                   .num_workers = workers});
    std::vector<std::vector<float>> batches;
    while (const std::optional<Batch> batch = loader.next()) {
      batches.push_back(batch->images.to_vector<float>());
      const std::vector<double> labels = batch->labels.to_vector<double>();
      batches.back().insert(batches.back().end(), labels.begin(), labels.end());
    }
    return batches;
  };
  const auto expected = take(/* workers= */ 0, /* first_step= */ 0);
  REQUIRE(expected.size() == 12);
  CHECK(take(3, 0) == expected);
  CHECK(take(2, 7) == std::vector(expected.begin() + 7, expected.end()));
}
