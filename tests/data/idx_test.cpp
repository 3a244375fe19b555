#include "data/idx.h"
#include "data/dataset.h"

#include "files.h"

#include <algorithm>
#include <cmath>

using namespace norma;
using namespace norma::data;
using norma::test::BadFile;
using norma::test::check_bad_files;
using norma::test::error_of;
using norma::test::gzip;
using norma::test::idx_bytes;
using norma::test::TemporaryFolder;
using norma::test::write_file;

namespace {

/// Two images of 2 x 3 pixels.
const std::string kImages = idx_bytes({2, 2, 3}, std::string("\x01\x02\x03\x04\x05\x06\xF0\xF1\xF2\xF3\xF4\xF5", 12));
const std::string kLabels = idx_bytes({2}, std::string("\x03\x00", 2));

/// A folder with both splits; the test split holds the same two images.
void write_splits(const TemporaryFolder& folder) {
  write_file(folder / "train-images-idx3-ubyte", kImages);
  write_file(folder / "train-labels-idx1-ubyte.gz", gzip(kLabels));
  write_file(folder / "t10k-images-idx3-ubyte.gz", gzip(kImages));
  write_file(folder / "t10k-labels-idx1-ubyte", idx_bytes({2}, std::string("\x05\x01", 2)));
}

std::vector<uint8_t> image_of(const Dataset& dataset, int64_t index) {
  Image image;
  dataset.load(index, image);
  CHECK(image.height == dataset.info().height);
  CHECK(image.width == dataset.info().width);
  CHECK(image.channels == 1);
  return image.pixels;
}

}  // namespace

TEST_CASE("idx: sizes and values, plain and gzip") {
  const TemporaryFolder folder;
  write_file(folder / "plain", kImages);
  write_file(folder / "packed", gzip(kImages));
  for (const char* name : {"plain", "packed"}) {
    CAPTURE(name);
    const IdxArray array = read_idx(folder / name, 3);
    CHECK(array.sizes == std::vector<int64_t>{2, 2, 3});
    CHECK(array.values == std::vector<uint8_t>{1, 2, 3, 4, 5, 6, 0xF0, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5});
  }
}

TEST_CASE("idx: a gzip file of several parts is read as one") {
  const TemporaryFolder folder;
  write_file(folder / "parts", gzip(kImages.substr(0, 7)) + gzip(kImages.substr(7)));
  CHECK(read_idx(folder / "parts", 3).values.size() == 12);
}

TEST_CASE("idx: a file larger than the reader's buffers, gzip") {
  const TemporaryFolder folder;
  std::string values(3'000'000, '\0');
  uint32_t state = 1;
  for (char& value : values) {  // does not pack well, so that the packed file is large too
    state = state * 1664525 + 1013904223;
    value = static_cast<char>(state >> 24);
  }
  write_file(folder / "large.gz", gzip(idx_bytes({3'000'000}, values)));
  const IdxArray array = read_idx(folder / "large.gz", 1);
  CHECK(std::string(array.values.begin(), array.values.end()) == values);
}

TEST_CASE("idx: bad files, each with its error") {
  const TemporaryFolder folder;
  const std::string none = (folder / "none").string();
  CHECK(error_of([&] { read_idx(none, 3); }) == "idx: cannot open " + none + ": No such file or directory");
  CHECK(error_of([&] { read_idx(folder.path(), 3); }) ==
        "idx: cannot open " + folder.path().string() + ": expected a regular file, got a folder");
  const std::string packed = gzip(kImages);
  std::string corrupt = packed;
  corrupt[corrupt.size() - 8] ^= 0x55;  // the checksum
  const std::string four_bytes = "idx: FILE: expected 12 bytes of data for sizes [2, 2, 3], got 4";
  const std::string goes_on = "idx: FILE: expected the file to end after 12 bytes of data, but it goes on";
  const std::string too_large = "idx: FILE: the sizes in the header are too large";
  std::vector<BadFile> bad_images = {
      {"empty", "", "idx: FILE: expected a header of 16 bytes, got 0 bytes"},
      {"cut in the header", kImages.substr(0, 9), "idx: FILE: expected a header of 16 bytes, got 9 bytes"},
      {"labels where images were expected", kLabels,
       "idx: FILE: expected the magic number 0x00000803 (bytes with 3 axes), got 0x00000801"},
      {"cut in the data", kImages.substr(0, 20), four_bytes},
      {"trailing bytes", kImages + "x", goes_on},
      {"trailing bytes inside gzip", gzip(kImages + "x"), goes_on},
      {"gzip of cut data", gzip(kImages.substr(0, 20)), four_bytes},
      {"corrupt gzip", corrupt, "idx: FILE: incorrect data check"},
      {"a size of zero", idx_bytes({2, 0, 3}, ""), "idx: FILE: expected sizes of at least 1, got 0 on axis 1"},
      {"sizes beyond all memory", idx_bytes({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, "x"), too_large}};
  for (size_t length = 2; length < packed.size(); ++length) {
    bad_images.push_back(
        {fmt::format("gzip cut at {}", length), packed.substr(0, length), "idx: FILE: unexpected end of file"});
  }
  check_bad_files(bad_images, [](const std::filesystem::path& file) { read_idx(file, 3); });
  check_bad_files({{"another file", "PNG file, really",
                    "idx: FILE: expected the magic number 0x00000801 (bytes with 1 axis), got 0x504e4720"}},
                  [](const std::filesystem::path& file) { read_idx(file, 1); });
  check_bad_files({{"sizes beyond all memory", idx_bytes({0xFFFFFFFF, 0xFFFFFFFF}, "x"), too_large}},
                  [](const std::filesystem::path& file) { read_idx(file, 2); });
}

TEST_CASE("idx folder: images, labels and statistics of both splits") {
  const TemporaryFolder folder;
  write_splits(folder);
  const auto train = make_dataset("idx", {.split = Split::train, .folder = folder.path()});
  const auto test = make_dataset("idx", {.split = Split::test, .folder = folder.path()});
  for (const auto& dataset : {train, test}) {
    CHECK(dataset->info().name == "idx");
    CHECK(dataset->info().size == 2);
    CHECK_FALSE(dataset->info().endless);
    CHECK(dataset->info().channels == 1);
    CHECK(dataset->info().height == 2);
    CHECK(dataset->info().width == 3);
    // The largest label of both splits is 5.
    CHECK(dataset->info().class_names == std::vector<std::string>{"0", "1", "2", "3", "4", "5"});
    CHECK(image_of(*dataset, 1) == std::vector<uint8_t>{0xF0, 0xF1, 0xF2, 0xF3, 0xF4, 0xF5});
    // numpy: a = np.array([1, 2, 3, 4, 5, 6, 240, 241, 242, 243, 244, 245]) / 255; a.mean(), a.std()
    CHECK(dataset->info().mean.at(0) == doctest::Approx(0.4823529412).epsilon(1e-6));
    CHECK(dataset->info().std.at(0) == doctest::Approx(0.4686751342).epsilon(1e-6));
  }
  Image image;
  CHECK(train->load(0, image) == 3);
  CHECK(train->load(1, image) == 0);
  CHECK(test->load(0, image) == 5);
}

TEST_CASE("idx folder: other usual file names") {
  const TemporaryFolder folder;
  write_file(folder / "emnist-letters-train-images.idx3-ubyte", kImages);
  write_file(folder / "emnist-letters-train-labels.idx1-ubyte", kLabels);
  write_file(folder / "emnist-letters-test-images-idx3-ubyte.gz", gzip(kImages));
  write_file(folder / "emnist-letters-test-labels-idx1-ubyte.gz", gzip(kLabels));
  CHECK(make_dataset("idx", {.split = Split::train, .folder = folder.path()})->info().size == 2);
  CHECK(make_dataset("idx", {.split = Split::test, .folder = folder.path()})->info().size == 2);
}

TEST_CASE("idx folder: a file both packed and unpacked counts once") {
  const TemporaryFolder folder;
  write_splits(folder);
  write_file(folder / "train-images-idx3-ubyte.gz", gzip(kImages));
  CHECK(make_dataset("idx", {.folder = folder.path()})->info().size == 2);
}

TEST_CASE("idx folder: a training split alone, and images of one color") {
  const TemporaryFolder folder;
  write_file(folder / "train-images-idx3-ubyte", idx_bytes({1, 1, 2}, "zz"));
  write_file(folder / "train-labels-idx1-ubyte", idx_bytes({1}, std::string("\x01")));
  const auto dataset = make_dataset("idx", {.folder = folder.path()});
  CHECK(dataset->info().num_classes() == 2);
  CHECK(dataset->info().std.at(0) == 1.0F);  // any scale will do, but not 0
}

TEST_CASE("idx folder: bad folders, each with its error") {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  const auto error_for = [&](Split split) {
    return error_of([&] { make_dataset("idx", {.split = split, .folder = folder.path()}); });
  };

  SUBCASE("none given") {
    CHECK(error_of([] { make_dataset("idx"); }) ==
          "idx: expected a folder with IDX files (option --data-dir), got none");
  }
  SUBCASE("no such folder") {
    CHECK(error_of([] { make_dataset("idx", {.folder = "/no/such/folder"}); }) ==
          "idx: /no/such/folder: no such folder");
  }
  SUBCASE("no files") {
    CHECK(error_for(Split::train) ==
          "idx: " + path + ": expected a file train-images-idx3-ubyte or train-images-idx3-ubyte.gz, found none");
    CHECK(error_for(Split::test) ==
          "idx: " + path + ": expected a file t10k-images-idx3-ubyte or t10k-images-idx3-ubyte.gz, found none");
  }
  SUBCASE("no labels") {
    write_file(folder / "train-images-idx3-ubyte", kImages);
    CHECK(error_for(Split::train) ==
          "idx: " + path + ": expected a file train-labels-idx1-ubyte or train-labels-idx1-ubyte.gz, found none");
  }
  SUBCASE("several that fit") {
    write_file(folder / "a-train-images-idx3-ubyte", kImages);
    write_file(folder / "b-train-images-idx3-ubyte", kImages);
    CHECK(error_for(Split::train) == "idx: " + path +
                                         ": expected one file like train-images-idx3-ubyte, got "
                                         "a-train-images-idx3-ubyte, b-train-images-idx3-ubyte");
  }
  SUBCASE("fewer labels than images") {
    write_splits(folder);
    write_file(folder / "t10k-labels-idx1-ubyte", idx_bytes({1}, "\x05"));
    CHECK(error_for(Split::test) == "idx: " + path +
                                        "/t10k-labels-idx1-ubyte: expected 2 labels, one for each image of "
                                        "t10k-images-idx3-ubyte.gz, got 1");
  }
}

TEST_CASE("idx folder: indices out of range") {
  const TemporaryFolder folder;
  write_splits(folder);
  const auto dataset = make_dataset("idx", {.folder = folder.path()});
  Image image;
  CHECK(error_of([&] { dataset->load(2, image); }) == "idx: index: expected a value in [0, 2), got 2");
  CHECK(error_of([&] { dataset->load(-1, image); }) == "idx: index: expected a value in [0, 2), got -1");
}

TEST_CASE("emnist_letters: upright images, labels from 0, beside other files of EMNIST") {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  const auto error_for = [&](Split split) {
    return error_of([&] { make_dataset("emnist_letters", {.split = split, .folder = folder.path()}); });
  };
  CHECK(error_of([] { make_dataset("emnist_letters"); }) ==
        "emnist_letters: expected the folder with EMNIST's files (option --data-dir), got none");
  CHECK(error_of([] { make_dataset("emnist_letters", {.folder = "/no/such/folder"}); }) ==
        "emnist_letters: /no/such/folder: no such folder");
  write_file(folder / "emnist-digits-train-images-idx3-ubyte", kImages);
  write_file(folder / "emnist-digits-train-labels-idx1-ubyte", kLabels);
  CHECK(error_for(Split::train) == "emnist_letters: " + path +
                                       ": expected a file emnist-letters-train-images-idx3-ubyte or "
                                       "emnist-letters-train-images-idx3-ubyte.gz, found none");
  write_file(folder / "emnist-letters-train-images-idx3-ubyte.gz", gzip(kImages));
  write_file(folder / "emnist-letters-train-labels-idx1-ubyte.gz", gzip(idx_bytes({2}, "\x1A\x01")));
  const auto train = make_dataset("emnist_letters", {.folder = folder.path()});
  CHECK(train->info().name == "emnist_letters");
  CHECK(train->info().size == 2);
  CHECK(train->info().num_classes() == 26);
  CHECK(train->info().class_names.at(25) == "Z");
  CHECK(train->info().height == 3);
  CHECK(train->info().width == 2);
  CHECK(train->info().mean.at(0) == doctest::Approx(0.4823529412).epsilon(1e-6));
  Image image;
  CHECK(train->load(0, image) == 25);
  CHECK(image.pixels == std::vector<uint8_t>{1, 4, 2, 5, 3, 6});
  CHECK(train->load(1, image) == 0);
  CHECK(image.pixels == std::vector<uint8_t>{0xF0, 0xF3, 0xF1, 0xF4, 0xF2, 0xF5});

  write_file(folder / "emnist-letters-test-images-idx3-ubyte", idx_bytes({1, 2, 3}, "zzzzzz"));
  CHECK(error_for(Split::test) == "emnist_letters: " + path +
                                      ": expected a file emnist-letters-test-labels-idx1-ubyte or "
                                      "emnist-letters-test-labels-idx1-ubyte.gz, found none");
  const auto labels = folder / "emnist-letters-test-labels-idx1-ubyte";
  write_file(labels, idx_bytes({1}, std::string(1, '\0')));
  CHECK(error_for(Split::test) ==
        "emnist_letters: " + labels.string() + ": expected labels of at least 1, got 0 for image 0");
  write_file(labels, idx_bytes({1}, "\x1B"));
  CHECK(error_for(Split::test) ==
        "emnist_letters: " + labels.string() + ": expected labels below 27, got 27 for image 0");
}

TEST_CASE("fashion_mnist: missing files name Debian's package and the option") {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  const std::string advice =
      ", found none; install Debian's package dataset-fashion-mnist (apt-get install dataset-fashion-mnist) or give "
      "the "
      "folder with the files (option --data-dir)";
  CHECK(error_of([&] { make_dataset("fashion_mnist", {.folder = folder.path()}); }) ==
        "fashion_mnist: " + path + ": expected a file train-images-idx3-ubyte.gz" + advice);
  CHECK(error_of([&] { make_dataset("fashion_mnist", {.folder = folder / "none"}); }) ==
        "fashion_mnist: " + path + "/none: expected a file train-images-idx3-ubyte.gz" + advice);
  write_file(folder / "t10k-images-idx3-ubyte.gz", gzip(kImages));
  CHECK(error_of([&] { make_dataset("fashion_mnist", {.split = Split::test, .folder = folder.path()}); }) ==
        "fashion_mnist: " + path + ": expected a file t10k-labels-idx1-ubyte.gz" + advice);
}

TEST_CASE("fashion_mnist: a label that is no class") {
  const TemporaryFolder folder;
  write_splits(folder);
  write_file(folder / "train-labels-idx1-ubyte.gz", gzip(idx_bytes({2}, "\x09\x0A")));
  CHECK(error_of([&] { make_dataset("fashion_mnist", {.folder = folder.path()}); }) ==
        "fashion_mnist: " + (folder / "train-labels-idx1-ubyte.gz").string() +
            ": expected labels below 10, got 10 for image 1");
}

// ./run installs the package, so that a machine without these files is not set up as the other tests expect it either.
TEST_CASE("fashion_mnist: the real images of Debian's package") {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
  CHECK(error_of([&] {
          train = make_dataset("fashion_mnist");
          test = make_dataset("fashion_mnist", {.split = Split::test});
        }) == "no error");
  REQUIRE(train != nullptr);
  REQUIRE(test != nullptr);
  CHECK(train->info().size == 60000);
  CHECK(test->info().size == 10000);
  CHECK(train->info().height == 28);
  CHECK(train->info().width == 28);
  CHECK(train->info().class_names.at(9) == "Ankle boot");

  Image image;
  std::vector<int64_t> labels;
  double sum = 0;
  double squares = 0;
  for (int64_t i = 0; i < train->info().size; ++i) {
    labels.push_back(train->load(i, image));
    for (const uint8_t byte : image.pixels) {
      sum += byte;
      squares += byte * byte;
    }
  }
  CHECK(std::vector(labels.begin(), labels.begin() + 5) == std::vector<int64_t>{9, 0, 0, 3, 0});
  for (int64_t label = 0; label < 10; ++label) {
    CHECK(std::count(labels.begin(), labels.end(), label) == 6000);
  }
  const double mean = sum / (60000.0 * 28 * 28);
  CHECK(train->info().mean.at(0) == doctest::Approx(mean / 255).epsilon(1e-5));
  CHECK(train->info().std.at(0) ==
        doctest::Approx(std::sqrt(squares / (60000.0 * 28 * 28) - mean * mean) / 255).epsilon(1e-5));
  CHECK(test->info().mean == train->info().mean);
  CHECK(test->load(0, image) == 9);
}
