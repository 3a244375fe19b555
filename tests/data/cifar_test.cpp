#include "data/dataset.h"

#include "files.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;
using norma::test::TemporaryFolder;
using norma::test::write_file;

namespace {

std::string numbered_names(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += fmt::format("class {}\n", i);
  }
  return text;
}

/// A file of this length, all zeros but for `bytes` at `offset`: a hole, which takes no room on the disk.
void write_sparse(const std::filesystem::path& file, uintmax_t size, uintmax_t offset = 0,
                  const std::string& bytes = "") {
  write_file(file, "");
  std::filesystem::resize_file(file, size);
  std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
  out.seekp(static_cast<std::streamoff>(offset));
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(out.good());
}

/// Planes of red, green and blue that say where a byte came from.
std::string planes() {
  std::string bytes;
  for (int channel = 0; channel < 3; ++channel) {
    for (int i = 0; i < 1024; ++i) {
      bytes.push_back(static_cast<char>((i * 7 + channel * 50) % 251));
    }
  }
  return bytes;
}

void check_planes(const Image& image) {
  REQUIRE(image.height == 32);
  REQUIRE(image.width == 32);
  REQUIRE(image.channels == 3);
  bool same = true;
  for (int64_t y = 0; y < 32; ++y) {
    for (int64_t x = 0; x < 32; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        same = same && image.at(y, x, c) == ((y * 32 + x) * 7 + c * 50) % 251;
      }
    }
  }
  CHECK(same);
}

constexpr uintmax_t kBatchBytes = 10'000 * 3073;

}  // namespace

TEST_CASE("cifar10: images, labels and names of both splits") {
  const TemporaryFolder folder;
  for (int i = 1; i <= 5; ++i) {
    // The last image of each file, of class i.
    write_sparse(folder / fmt::format("data_batch_{}.bin", i), kBatchBytes, kBatchBytes - 3073,
                 std::string(1, static_cast<char>(i)) + planes());
  }
  write_sparse(folder / "test_batch.bin", kBatchBytes, 3 * 3073, "\x09" + planes());
  write_file(folder / "batches.meta.txt", numbered_names(10) + "\r\n\n");
  const auto train = make_dataset("cifar10", {.folder = folder.path()});
  CHECK(train->info().name == "cifar10");
  CHECK(train->info().size == 50'000);
  CHECK(train->info().channels == 3);
  CHECK(train->info().height == 32);
  CHECK(train->info().width == 32);
  CHECK_FALSE(train->info().sorted_by_label);
  CHECK(train->info().num_classes() == 10);
  CHECK(train->info().class_names.at(9) == "class 9");
  CHECK(train->info().mean.at(2) == doctest::Approx(0.4465).epsilon(1e-3));
  CHECK(train->info().std.at(0) == doctest::Approx(0.2470).epsilon(1e-3));
  Image image;
  for (int64_t i = 1; i <= 5; ++i) {
    CHECK(train->load(i * 10'000 - 1, image) == i);
    check_planes(image);
  }
  CHECK(train->load(0, image) == 0);
  CHECK(image.at(5, 5, 1) == 0);
  CHECK(error_of([&] { train->load(50'000, image); }) == "cifar10: index: expected a value in [0, 50000), got 50000");

  const auto test = make_dataset("cifar10", {.split = Split::test, .folder = folder.path()});
  CHECK(test->info().size == 10'000);
  CHECK(test->load(3, image) == 9);
  check_planes(image);
}

TEST_CASE("cifar100: fine labels, in the folder that the archive unpacks to") {
  const TemporaryFolder folder;
  const auto inside = folder / "cifar-100-binary";
  std::filesystem::create_directory(inside);
  write_sparse(inside / "test.bin", 10'000 * 3074, 2 * 3074, std::string("\x13\x63", 2) + planes());
  write_file(inside / "fine_label_names.txt", numbered_names(100));
  const auto test = make_dataset("cifar100", {.split = Split::test, .folder = folder.path()});
  CHECK(test->info().size == 10'000);
  CHECK(test->info().num_classes() == 100);
  Image image;
  CHECK(test->load(2, image) == 99);
  check_planes(image);
  CHECK(error_of([&] { make_dataset("cifar100", {.folder = folder.path()}); }) ==
        "cifar100: cannot open " + (inside / "train.bin").string() + ": No such file or directory");
}

TEST_CASE("cifar: bad folders and files, each with its error") {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  const auto error = [&] {
    return error_of([&] { make_dataset("cifar10", {.split = Split::test, .folder = folder.path()}); });
  };
  CHECK(error_of([] { make_dataset("cifar10"); }) ==
        "cifar10: expected the folder of the binary version (option --data-dir), got none");
  CHECK(error_of([] { make_dataset("cifar100", {.folder = "/no/such/folder"}); }) ==
        "cifar100: /no/such/folder: no such folder");
  CHECK(error() == "cifar10: " + path +
                       ": expected batches.meta.txt and the other files of the binary version "
                       "(https://www.cs.toronto.edu/~kriz/cifar.html), found none");
  write_file(folder / "batches.meta.txt", numbered_names(9));
  CHECK(error() == "cifar10: " + path + "/batches.meta.txt: expected 10 names, one a line, got 9");
  write_file(folder / "batches.meta.txt", numbered_names(10));
  CHECK(error() == "cifar10: cannot open " + path + "/test_batch.bin: No such file or directory");
  for (const uintmax_t size : {kBatchBytes - 1, kBatchBytes + 1, uintmax_t{0}}) {
    write_sparse(folder / "test_batch.bin", size);
    CHECK(error() ==
          fmt::format("cifar10: {}/test_batch.bin: expected 30730000 bytes, 10000 images of 3073, got {}", path, size));
  }
  write_sparse(folder / "test_batch.bin", kBatchBytes, 17 * 3073, "\x0A");
  CHECK(error() == "cifar10: " + path + "/test_batch.bin: expected labels below 10, got 10 for image 17");
}
