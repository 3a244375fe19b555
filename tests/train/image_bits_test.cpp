#include "train/evaluate.h"

#include "error_text.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

using namespace norma;
using namespace norma::train;
using test::error_of;

namespace {

std::string error_for(int64_t images, const std::string& digits) {
  return error_of([&] { image_bits_from_hex("results.json: right", images, digits); });
}

}  // namespace

TEST_CASE("image bits: the first image is the highest bit of the first digit") {
  CHECK(to_hex({true, false, false, false, false, false, false, true, true}) == "8180");
  CHECK(to_hex({}).empty());
  CHECK(count_right({true, false, true}) == 2);
  CHECK(image_bits_from_hex("x", 9, "8180") == ImageBits{true, false, false, false, false, false, false, true, true});
}

TEST_CASE("image bits: any number of images comes back") {
  for (size_t images = 1; images <= 70; ++images) {
    ImageBits bits(images);
    for (size_t i = 0; i < images; ++i) {
      bits[i] = (i * i + images) % 3 == 0;
    }
    const std::string digits = to_hex(bits);
    CHECK(digits.size() == (images + 7) / 8 * 2);
    CHECK(image_bits_from_hex("x", static_cast<int64_t>(images), digits) == bits);
  }
}

TEST_CASE("image bits: damaged text is an error in one line") {
  const std::string length = "results.json: right: bits: expected two digits for each eight images, got ";
  CHECK(error_for(9, "81") == length + "2 digits for 9 images");
  CHECK(error_for(8, "8180") == length + "4 digits for 8 images");
  CHECK(error_for(8, "8") == length + "1 digits for 8 images");
  CHECK(error_for(0, "") == length + "0 digits for 0 images");
  CHECK(error_for(-8, "81") == length + "2 digits for -8 images");
  CHECK(error_for(std::numeric_limits<int64_t>::max(), "81") == length + "2 digits for 9223372036854775807 images");
  CHECK(error_for(8, "8G") == "results.json: right: bits: expected hexadecimal digits 0 to 9 and a to f, got 'G'");
  CHECK(error_for(8, "8A") == "results.json: right: bits: expected hexadecimal digits 0 to 9 and a to f, got 'A'");
  CHECK(error_for(8, "\n1") == "results.json: right: bits: expected hexadecimal digits 0 to 9 and a to f, got '?'");
  CHECK(error_for(7, "81") == "results.json: right: bits: expected 0 behind the last of 7 images, got 1");
}
