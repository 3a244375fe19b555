#include "base/not_copied.h"
#include "data/image_formats.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <new>
#include <vector>

namespace norma::data {

namespace {

using namespace std::string_view_literals;

/// libpng's object, which reads `bytes`.
class PngReader : NotCopied {
 public:
  explicit PngReader(std::string_view bytes) : bytes_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, take_error, [](png_structp, png_const_charp) {});
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
    // Every check sum is checked. Texts and profiles are passed over, since they may unpack to gigabytes.
    png_set_read_fn(png_, this, read);
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_AS_DEFAULT, reinterpret_cast<png_const_bytep>("eXIf"), 1);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  /// Reads what stands before the pixels. Returns the fault, or "".
  std::string read_header(bool color) {
    return guarded([&] {
      png_read_info(png_, info_);
      png_set_expand(png_);
      png_set_strip_16(png_);
      png_set_strip_alpha(png_);
      if (color) {
        png_set_gray_to_rgb(png_);
      }
      png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
  }
  [[nodiscard]] int64_t channels() const { return png_get_channels(png_, info_); }

  /// Reads the pixels into these rows, and the rest of the file. Returns the fault, or "".
  std::string read_pixels(std::vector<png_bytep>& rows) {
    return guarded([&] {
      png_read_image(png_, rows.data());
      png_read_end(png_, info_);
    });
  }

  [[nodiscard]] int orientation() {
    png_bytep exif = nullptr;
    png_uint_32 size = 0;
    return png_get_eXIf_1(png_, info_, &size, &exif) == 0
               ? 1
               : exif_orientation({reinterpret_cast<const char*>(exif), size});
  }

 private:
  /// No exception may pass through C. The steps own nothing.
  template <class Step>
  std::string guarded(Step&& step) {
    if (setjmp(back_) == 0) {
      step();
      return "";
    }
    if (fault_.data() == "Out of memory"sv || fault_.data() == "insufficient memory"sv) {
      throw std::bad_alloc();
    }
    return fault_.data();
  }

  [[noreturn]] static void take_error(png_structp png, png_const_charp text) {
    auto& self = *static_cast<PngReader*>(png_get_error_ptr(png));
    std::strncpy(self.fault_.data(), text, self.fault_.size() - 1);
    std::longjmp(self.back_, 1);
  }

  static void read(png_structp png, png_bytep to, size_t count) {
    auto& self = *static_cast<PngReader*>(png_get_io_ptr(png));
    // The check sum of the last chunk, which has no content, may be cut off.
    constexpr std::string_view kEnd = "IEND\xAE\x42\x60\x82"sv;
    if (self.bytes_.size() < count && count == 4 && self.last_ == kEnd.substr(0, 4)) {
      std::copy_n(kEnd.data() + 4, count, to);
      return;
    }
    if (self.bytes_.size() < count) {
      png_error(png, "it ends early");
    }
    self.last_ = self.bytes_.substr(0, count);
    if (self.last_.size() == 8) {  // a length and the kind of a chunk
      self.last_.remove_prefix(4);
    }
    std::copy_n(self.bytes_.data(), count, to);
    self.bytes_.remove_prefix(count);
  }

  std::string_view bytes_;
  std::string_view last_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf back_ = {};
  std::array<char, 128> fault_ = {};
};

}  // namespace

void decode_png(std::string_view bytes, const std::string& name, int64_t channels, Image& image) {
  // The sizes after the signature, and the length and kind of the first chunk: checked before libpng does any work.
  image.height = image.width = 0;
  if (bytes.size() >= 24) {  // else libpng finds no header
    check_fault(bytes.substr(12, 4) == "IHDR"sv ? "" : "it does not begin with a header", name);
    const auto* header = reinterpret_cast<png_const_bytep>(bytes.data());
    check_image_size(name, png_get_uint_32(header + 20), png_get_uint_32(header + 16));
    image.height = png_get_uint_32(header + 20);
    image.width = png_get_uint_32(header + 16);
  }
  PngReader reader(bytes);
  check_fault(reader.read_header(channels == 3), name);
  // Depth and samples of a pixel, by the header. DEFLATE makes at most 1032 bytes of one.
  const int64_t samples = (bytes[25] & 3) == 2 ? 3 : 1;
  const int64_t bits = image.height * image.width * samples * static_cast<uint8_t>(bytes[24]);
  check_fault(bits / 8 > 1032 * static_cast<int64_t>(bytes.size()) ? "it ends early" : "", name);
  image.set_size(image.height, image.width, reader.channels());
  std::vector<png_bytep> rows(static_cast<size_t>(image.height));
  for (size_t y = 0; y < rows.size(); ++y) {
    rows[y] = image.pixels.data() + y * static_cast<size_t>(image.width * image.channels);
  }
  check_fault(reader.read_pixels(rows), name);
  image.orientation = reader.orientation();
  if (image.channels != channels) {
    make_grey(image);
  }
}

}  // namespace norma::data
